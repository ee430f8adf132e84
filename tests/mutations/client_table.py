"""The safeguards of the client library's producer, for ``table``."""

from typing import Final

from tests.mutations.mutation import Mutation

_SEQUENCES: Final = "clients/producer/producer_sequences.py"
_NUMBERING: Final = "clients/producer/partition_sequences.py"
_BATCH: Final = "clients/producer/producer_batch.py"
_MANAGER: Final = "clients/producer/transaction_manager.py"
_REQUESTS: Final = "clients/producer/coordinator_requests.py"
_DELIVERY: Final = "clients/producer/batch_delivery.py"
_TESTS: Final = "tests/unit/clients/producer"

CLIENT_MUTATIONS: Final = (
    Mutation(
        "B61", _MANAGER,
        "        ErrorCode.NOT_LEADER_OR_FOLLOWER,  # It was the leader when it appended (KAFKA-13574).\n",
        "",
        f"{_TESTS}/test_batch_delivery.py::test_error_after_a_lost_response_leaves_the_outcome_unknown",
    ),
    Mutation(
        "B86", _SEQUENCES,
        "        elif not batch.has_sequence:\n",
        "        else:\n",
        f"{_TESTS}/test_producer_sequences.py::test_sequence_is_assigned_once",
    ),
    Mutation(
        "B86", _NUMBERING,
        "            if not batch.maybe_written:\n                batch.forget_sequence()\n",
        "            batch.forget_sequence()\n",
        f"{_TESTS}/test_producer_sequences.py::test_batch_that_may_be_written_fails_when_numbering_restarts",
    ),
    Mutation(
        "B86", _DELIVERY,
        "        if error in MAYBE_WRITTEN:\n            batch.maybe_written = True\n",
        "",
        f"{_TESTS}/test_delivery_properties.py::test_records_are_written_once_in_order_and_every_future_done_once",
    ),
    Mutation(
        "B87", _SEQUENCES,
        "            return batch is sequences.in_flight[0]\n",
        "            return True\n",
        f"{_TESTS}/test_producer_sequences.py::test_retries_are_sent_one_at_a_time_in_order",
    ),
    Mutation(
        "B87", _SEQUENCES,
        "        if sequences.last_acked_sequence == NO_SEQUENCE and not self._is_transactional:\n",
        "        if False:\n",
        f"{_TESTS}/test_producer_sequences.py::test_first_batch_of_a_numbering_is_sent_alone",
    ),
    Mutation(
        "B87", _SEQUENCES,
        "        if sequences.unresolved is not None or sequences.must_restart:\n            return False\n",
        "",
        f"{_TESTS}/test_producer_sequences.py::test_unresolved_batch_blocks_new_ones_until_it_is_resolved",
    ),
    Mutation(
        "B88", _SEQUENCES,
        "        if not self._is_transactional:\n            self._bump_epoch()\n",
        "",
        f"{_TESTS}/test_producer_sequences.py::test_out_of_order_of_the_next_sequence_bumps_the_epoch",
    ),
    Mutation(
        "B88", _SEQUENCES,
        "        quiet = sorted(each for each in self._restarting if self.of(each).is_quiet)\n",
        "        quiet = sorted(self._restarting)\n",
        f"{_TESTS}/test_producer_sequences.py::test_numbering_restarts_only_when_no_batch_waits_for_a_response",
    ),
    Mutation(
        "B88", _SEQUENCES,
        "NO_PRODUCER if last else ",
        "",
        f"{_TESTS}/test_producer_sequences.py::test_last_epoch_is_followed_by_a_new_producer_id",
    ),
    Mutation(
        "B88", _MANAGER,
        "            self.transaction.needs_epoch_bump = True\n",
        "",
        f"{_TESTS}/test_transaction_manager.py::test_failed_record_fails_the_transaction_not_the_producer",
    ),
    Mutation(
        "B89", _MANAGER,
        "        self.state.require_no_error()\n        self.state.move(State.COMMITTING_TRANSACTION, ",
        "        self.state.move(State.COMMITTING_TRANSACTION, ",
        f"{_TESTS}/test_transaction_manager.py::test_call_in_each_state_succeeds_or_raises_as_listed",
    ),
    Mutation(
        "B89", _MANAGER,
        "            self.fail_transaction(error, needs_epoch_bump=True)\n        else:\n            self.sequences.re",
        "            pass\n        else:\n            self.sequences.re",
        f"{_TESTS}/test_transaction_manager.py::test_failed_record_while_committing_fails_the_commit",
    ),
    Mutation(
        "B89", _MANAGER,
        "        if code == ErrorCode.PRODUCER_FENCED:\n",
        "        if False:\n",
        f"{_TESTS}/test_transaction_manager.py::test_fatal_error_of_a_batch_fails_the_producer",
    ),
    Mutation(
        "B89", _MANAGER,
        "        elif code in FATAL_TO_PRODUCE:\n",
        "        elif False:\n",
        f"{_TESTS}/test_transaction_manager.py::test_fatal_error_of_a_batch_fails_the_producer",
    ),
    Mutation(
        "B89", _REQUESTS,
        "            if isinstance(pending.request, EndTxn) and has_incomplete and manager.state.error() is None:\n",
        "            if False:\n",
        f"{_TESTS}/test_transaction_manager.py::test_end_of_transaction_waits_for_its_records",
    ),
    Mutation(
        "B78", "clients/consumer/consumer.py",
        "        async with self._calls.one():\n            await self._runtime.cluster.refresh(())\n",
        "        await self._runtime.cluster.refresh(())\n",
        "tests/unit/clients/test_calls_under_way.py::test_consumer_start_ends_when_it_is_closed_between_two_attempts",
    ),
    Mutation(
        "B78", "clients/admin/admin.py",
        "            self._calls.close()\n", "",
        "tests/unit/clients/test_calls_under_way.py::test_admin_call_ends_when_admin_is_closed_between_two_attempts",
    ),
    Mutation(
        "B78", "clients/producer/producer.py",
        "        self._calls.close()\n", "",
        "tests/unit/clients/test_calls_under_way.py::"
        "test_send_that_waits_for_metadata_ends_while_producer_delivers_what_it_accepted",
    ),
)  # fmt: skip
