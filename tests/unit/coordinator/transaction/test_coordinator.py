"""Transactions from beginning to end, against a log and partitions that do what the test says."""

from collections.abc import Callable
from functools import partial

import pytest

from oncelog.coordinator.metadata_store.store import StoreUnavailable
from oncelog.coordinator.ports import TransactionMarker
from oncelog.coordinator.regular_expression import RegularExpression
from oncelog.coordinator.transaction.coordinator import InitProducerIdResult
from oncelog.coordinator.transaction.listing import TransactionFilter, parse_states
from oncelog.coordinator.transaction.settings import TransactionConfig
from oncelog.coordinator.transaction.state import LAST_LIVE_EPOCH, NO_PRODUCER, ProducerIdAndEpoch, Transaction
from oncelog.coordinator.transaction.transaction_state import TransactionState
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.topic_partition import TopicPartition
from tests.unit.coordinator.transaction.world import HERE, World, world

INVOICES = TopicPartition("invoices", 0)
SHIPMENTS = TopicPartition("shipments", 0)
ELSEWHERE = 2
TIMEOUT_MS = 60_000
LEVELS = pytest.mark.parametrize("level", [1, 2])
"""The finalised levels by which the coordinator ends a transaction itself. At both a version-1 client is fenced."""
SWEEP = TransactionConfig().abort_timed_out_interval_ms / 1000
EXPIRY_SWEEP = TransactionConfig().remove_expired_interval_ms / 1000
WAIT = TransactionConfig().completion_wait_ms / 1000
BUSY_WAIT = TransactionConfig().busy_wait_ms / 1000
REQUEST_TIMEOUT = TransactionConfig().request_timeout_ms / 1000


def listed(w: World, **criteria: object) -> list[Transaction]:
    found = w.listed(TransactionFilter(**criteria))  # type: ignore[arg-type]
    assert not isinstance(found, ErrorCode)
    return found


def marker_version(level: int) -> int:
    """What the markers of the coordinator's own aborts say."""
    return 2 if level == 2 else 0


# The ordinary life of a transaction


@pytest.mark.parametrize("commit", [True, False])
def test_transaction_with_local_partitions_ends_in_the_turn_of_its_request(commit: bool) -> None:
    with world() as w:
        w.cluster.add_topic("invoices")
        w.cluster.add_topic("shipments")
        producer = w.producer()
        assert w.add(producer, INVOICES).response is ErrorCode.NONE
        assert w.add(producer, SHIPMENTS).response is ErrorCode.NONE
        assert w.end(producer, commit=commit).response is ErrorCode.NONE
        end = "Commit" if commit else "Abort"
        assert w.log.states("id") == ["Empty@0", "Ongoing@0", "Ongoing@0", f"Prepare{end}@0", f"Complete{end}@0"]
        assert w.markers(INVOICES) == w.markers(SHIPMENTS) == [TransactionMarker(*producer, commit, 0, 0)]


def test_end_that_is_requested_twice_is_written_once() -> None:
    with world() as w:
        w.cluster.add_topic("invoices")
        producer = w.producer()
        w.add(producer, INVOICES)
        assert [w.end(producer).response for _ in range(3)] == [ErrorCode.NONE] * 3
        assert w.end(producer, commit=False).response is ErrorCode.INVALID_TXN_STATE
        assert len(w.markers(INVOICES)) == 1
        assert len(w.log.states("id")) == 4


def test_partitions_that_are_known_already_cost_no_record() -> None:
    with world() as w:
        w.cluster.add_topic("invoices")
        producer = w.producer()
        w.add(producer, INVOICES)
        before = w.log.log_end_offset
        assert w.add(producer, INVOICES).response is ErrorCode.NONE
        assert w.log.log_end_offset == before


def test_producer_without_a_transactional_id_gets_a_new_id_every_time() -> None:
    with world(block=2) as w:
        producers = [w.init(None).wait() for _ in range(5)]
        assert [result.error for result in producers] == [ErrorCode.NONE] * 5
        assert len({result.producer.id for result in producers}) == 5
        assert {result.producer.epoch for result in producers} == {0}
        assert w.log.log_end_offset == 0


def test_restarted_producer_gets_the_next_epoch_and_the_old_one_is_fenced() -> None:
    with world() as w:
        w.cluster.add_topic("invoices")
        zombie = w.producer()
        successor = w.producer()
        assert successor == ProducerIdAndEpoch(zombie.id, zombie.epoch + 1)
        assert w.add(zombie, INVOICES).response is ErrorCode.PRODUCER_FENCED
        assert w.end(zombie).response is ErrorCode.PRODUCER_FENCED
        assert w.add(successor, INVOICES).response is ErrorCode.NONE


@LEVELS
def test_restarted_producer_aborts_what_it_left_open(level: int) -> None:
    """B22: the abort marker is written before anybody gets the new epoch; here all of it in one turn."""
    with world(level=level) as w:
        w.cluster.add_topic("invoices")
        old = w.producer()
        w.add(old, INVOICES)
        assert w.producer() == ProducerIdAndEpoch(old.id, old.epoch + 2)
        assert w.log.states("id") == ["Empty@0", "Ongoing@0", "PrepareAbort@1", "CompleteAbort@1", "Empty@2"]
        assert w.markers(INVOICES) == [TransactionMarker(old.id, old.epoch + 1, False, 0, marker_version(level))]


def test_exhausted_epochs_lead_to_a_new_producer_id() -> None:
    """B23: from one InitProducerId to the next, through the end of the epochs."""
    with world() as w:
        seen = [w.producer()]
        while len(seen) < 3 or seen[-1].id == seen[0].id:
            w.loop.run_until_complete(_init_many(w, 1_000, seen))
        last_of_first = max(producer.epoch for producer in seen if producer.id == seen[0].id)
        assert last_of_first == LAST_LIVE_EPOCH
        first_of_second = next(producer for producer in seen if producer.id != seen[0].id)
        assert first_of_second.epoch == 0


async def _init_many(w: World, count: int, seen: list[ProducerIdAndEpoch]) -> None:
    for _ in range(count):
        result = w.coordinator.init_producer_id("id", TIMEOUT_MS, None)
        assert isinstance(result, InitProducerIdResult)
        assert result.error is ErrorCode.NONE
        seen.append(result.producer)
        w.logs[0].batches.clear()


# What is refused


@pytest.mark.parametrize("timeout_ms", [-1, 0, 900_001])
def test_transaction_timeout_out_of_bounds_is_refused(timeout_ms: int) -> None:
    with world() as w:
        refused = w.init(timeout_ms=timeout_ms).response
        assert refused == InitProducerIdResult(ErrorCode.INVALID_TRANSACTION_TIMEOUT, NO_PRODUCER)


def test_empty_transactional_id_is_refused() -> None:
    with world() as w:
        producer = ProducerIdAndEpoch(1, 0)
        assert w.init("").response == InitProducerIdResult(ErrorCode.INVALID_REQUEST, NO_PRODUCER)
        assert w.add(producer, INVOICES, transactional_id="").response is ErrorCode.INVALID_REQUEST
        assert w.end(producer, transactional_id="").response is ErrorCode.INVALID_REQUEST
        assert w.coordinator.describe("") is ErrorCode.INVALID_REQUEST


def test_new_transactional_id_beyond_the_limit_is_refused(caplog: pytest.LogCaptureFixture) -> None:
    with world(config=TransactionConfig(max_id_length=3)) as w:
        assert w.init("four").response == InitProducerIdResult(ErrorCode.INVALID_REQUEST, NO_PRODUCER)
        assert "oncelog.transactional.id.max.length is 3" in caplog.text
        assert w.init("ids").response.error is ErrorCode.NONE


def test_new_transactional_id_beyond_their_number_is_refused(caplog: pytest.LogCaptureFixture) -> None:
    with world(config=TransactionConfig(max_ids=1)) as w:
        assert w.init("a").response.error is ErrorCode.NONE
        assert w.init("b").response.error is ErrorCode.POLICY_VIOLATION
        assert "oncelog.transactional.ids.max.count is 1" in caplog.text
        assert w.init("a").response.error is ErrorCode.NONE


def test_transactional_id_beyond_the_limit_that_is_in_the_log_goes_on() -> None:
    with world(config=TransactionConfig(max_id_length=3)) as w:
        w.coordinator._config = TransactionConfig()
        first = w.init("four").response.producer
        w.coordinator._config = TransactionConfig(max_id_length=3)
        assert w.init("four").response.producer == ProducerIdAndEpoch(first.id, first.epoch + 1)


def test_unknown_transactional_id_has_no_producer() -> None:
    with world() as w:
        producer = ProducerIdAndEpoch(1, 0)
        assert w.add(producer, INVOICES).response is ErrorCode.INVALID_PRODUCER_ID_MAPPING
        assert w.end(producer).response is ErrorCode.INVALID_PRODUCER_ID_MAPPING
        assert w.coordinator.describe("id") is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        verdict = w.coordinator.verify_partitions("id", producer, frozenset({INVOICES}))
        assert verdict == {INVOICES: ErrorCode.INVALID_PRODUCER_ID_MAPPING}


def test_coordinator_without_the_partition_responds_not_coordinator() -> None:
    with world() as w:
        producer = w.producer()
        w.log.depose()
        w.do(lambda: w.coordinator.on_resigned(0))
        assert w.init().response == InitProducerIdResult(ErrorCode.NOT_COORDINATOR, NO_PRODUCER)
        assert w.add(producer, INVOICES).response is ErrorCode.NOT_COORDINATOR
        assert w.end(producer).response is ErrorCode.NOT_COORDINATOR
        assert w.coordinator.describe("id") is ErrorCode.NOT_COORDINATOR


def test_store_that_cannot_be_reached_gives_no_producer_id() -> None:
    with world(block=0) as w:
        w.producer_ids.failure = StoreUnavailable("no quorum")
        refused = InitProducerIdResult(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, NO_PRODUCER)
        assert w.init(None).wait() == refused
        assert w.init("id").wait() == refused
        w.producer_ids.failure = None


def test_producer_id_that_must_first_be_reserved_holds_the_connection() -> None:
    with world(block=1) as w:
        assert not w.init("one").held_its_connection
        call = w.init("two")
        assert call.held_its_connection
        assert call.wait().error is ErrorCode.NONE


def test_partitions_of_a_topic_that_does_not_exist_are_refused_for_good_in_the_end() -> None:
    """B10: after a topic is deleted, AddPartitions ends in a definite error, never infinite retries."""
    with world() as w:
        producer = w.producer()
        unknown = w.coordinator.refuse_unknown_topic
        assert unknown("id", producer) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        w.sleep(TIMEOUT_MS / 1000)
        assert unknown("id", producer) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        w.sleep(0.002)
        assert unknown("id", producer) is ErrorCode.INVALID_TOPIC_EXCEPTION
        assert unknown("id", ProducerIdAndEpoch(producer.id, 9)) is ErrorCode.PRODUCER_FENCED
        assert unknown("other", producer) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
        successor = w.producer()
        assert unknown("id", successor) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


# Durability: no response is sent, and nothing is true, before the high watermark has passed


def test_transition_is_neither_confirmed_nor_shown_before_it_is_replicated() -> None:
    """B21: the beginning of a transaction is durable before a producer may write to its partition."""
    with world() as w:
        w.log.replicates_at_once = False
        call = w.init()
        assert call.response is None
        assert not call.held_its_connection
        assert w.coordinator.describe("id") is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        assert w.listed(TransactionFilter()) == []
        w.do(w.log.replicate)
        producer = call.wait().producer
        add = w.add(producer, INVOICES)
        assert add.response is None
        assert w.described().state is TransactionState.EMPTY
        w.do(w.log.replicate)
        assert add.wait() is ErrorCode.NONE
        assert w.described().state is TransactionState.ONGOING


def test_busy_id_gets_concurrent_transactions_after_busy_wait() -> None:
    """B20: and the pending transition is what it was."""
    with world() as w:
        w.cluster.add_topic("invoices")
        producer = w.producer()
        w.log.replicates_at_once = False
        first = w.add(producer, INVOICES)
        second, init = w.add(producer, SHIPMENTS), w.init()
        assert second.held_its_connection
        assert w.end(producer).response is ErrorCode.CONCURRENT_TRANSACTIONS
        before = w.loop.time()
        assert second.wait() is ErrorCode.CONCURRENT_TRANSACTIONS
        assert init.wait().error is ErrorCode.CONCURRENT_TRANSACTIONS
        assert w.loop.time() - before == pytest.approx(BUSY_WAIT)
        (txn,) = listed(w)
        assert not txn.waiters
        w.do(w.log.replicate)
        assert first.wait() is ErrorCode.NONE
        assert w.described().partitions == {INVOICES}


def test_busy_id_that_becomes_free_in_time_is_not_reported_busy() -> None:
    with world() as w:
        w.cluster.add_topic("invoices", leader=ELSEWHERE)
        producer = w.producer()
        w.add(producer, INVOICES)
        end = w.end(producer)
        w.turn()
        following = w.add(producer, INVOICES)
        assert following.response is None
        w.do(w.cluster.deliver)
        assert (end.wait(), following.wait()) == (ErrorCode.NONE, ErrorCode.NONE)
        assert w.described().state is TransactionState.ONGOING
        assert w.loop.time() < WAIT


def test_producer_begins_next_transaction_while_markers_are_on_their_way() -> None:
    with world() as w:
        w.cluster.add_topic("invoices", leader=ELSEWHERE)
        producer = w.producer()
        w.add(producer, INVOICES)
        assert w.end(producer).wait() is ErrorCode.NONE
        following = w.add(producer, INVOICES)
        w.sleep((WAIT + BUSY_WAIT) / 2)
        assert following.response is None
        w.do(w.cluster.deliver)
        assert following.wait() is ErrorCode.NONE


@pytest.mark.parametrize("error", [ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NOT_LEADER_OR_FOLLOWER])
def test_record_that_the_log_refused_leaves_nothing_pending(error: ErrorCode) -> None:
    """B30: pending is cleared when the record was not appended."""
    expected = {
        ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    }[error]
    with world() as w:
        w.cluster.add_topic("invoices")
        w.log.refusals = [error]
        assert w.init().response == InitProducerIdResult(expected, NO_PRODUCER)
        assert w.coordinator.describe("id") is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        producer = w.producer()
        w.log.refusals = [error]
        assert w.add(producer, INVOICES).response is expected
        assert w.add(producer, INVOICES).response is ErrorCode.NONE
        w.log.refusals = [error]
        assert w.end(producer).response is expected
        assert w.end(producer).response is ErrorCode.NONE
        assert w.log.states("id") == ["Empty@0", "Ongoing@0", "PrepareCommit@0", "CompleteCommit@0"]


def test_record_that_is_slow_to_replicate_stays_pending_when_its_client_gives_up() -> None:
    """B30: once it is in the local log, pending stays until the high watermark passes."""
    with world() as w:
        w.cluster.add_topic("invoices")
        producer = w.producer()
        w.add(producer, INVOICES)
        w.log.replicates_at_once = False
        call = w.end(producer)
        w.sleep(REQUEST_TIMEOUT * 0.99)
        assert call.response is None
        assert call.wait() is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert w.end(producer, commit=False).response is ErrorCode.CONCURRENT_TRANSACTIONS
        w.log.replicates_at_once = True
        w.do(w.log.replicate)
        assert w.end(producer).response is ErrorCode.NONE
        assert w.end(producer, commit=False).response is ErrorCode.INVALID_TXN_STATE
        assert [marker.commit for marker in w.markers(INVOICES)] == [True]


def test_losing_the_partition_fails_those_who_wait_and_forgets_what_was_pending() -> None:
    """B30: no id stays pending for ever."""
    with world() as w:
        w.cluster.add_topic("invoices")
        producer = w.producer()
        w.log.replicates_at_once = False
        call = w.add(producer, INVOICES)
        w.elect(lost_records=1)
        assert call.wait() is ErrorCode.NOT_COORDINATOR
        w.log.replicates_at_once = True
        w.turn()
        assert w.described().state is TransactionState.EMPTY
        assert w.add(producer, INVOICES).response is ErrorCode.NONE


def test_record_that_replicates_after_resignation_is_not_applied() -> None:
    with world() as w:
        producer = w.producer()
        w.log.replicates_at_once = False
        call = w.add(producer, INVOICES)
        w.do(lambda: w.coordinator.on_resigned(0))
        w.do(w.log.replicate)
        assert call.wait() is ErrorCode.NOT_COORDINATOR


# Fences


@pytest.mark.parametrize("because", ["a new producer", "the time-out"])
@LEVELS
def test_fence_that_the_log_refused_bumps_no_epoch(because: str, level: int) -> None:
    """B27: a failed append of a fence does not bump the epoch twice, and does not fence the producer."""
    with world(level=level) as w:
        w.cluster.add_topic("invoices")
        producer = w.producer()
        w.add(producer, INVOICES)
        w.sleep(TIMEOUT_MS / 1000 + SWEEP / 2)
        for _ in range(3):
            w.log.refusals = [ErrorCode.NOT_ENOUGH_REPLICAS]
            if because == "a new producer":
                assert w.init().wait().error is ErrorCode.COORDINATOR_NOT_AVAILABLE
            else:
                w.sleep(SWEEP)
            assert not w.log.refusals
            assert w.described().producer_epoch == producer.epoch
        if because == "a new producer":
            w.producer()
        else:
            w.sleep(SWEEP)
        assert w.log.states("id")[2:4] == ["PrepareAbort@1", "CompleteAbort@1"]


@LEVELS
def test_fence_that_did_not_survive_a_failover_is_written_anew_with_the_same_epoch(level: int) -> None:
    """B27: the new coordinator counts from what is durable."""
    with world(level=level) as w:
        w.cluster.add_topic("invoices")
        producer = w.producer()
        w.add(producer, INVOICES)
        w.log.replicates_at_once = False
        assert w.init().wait().error is ErrorCode.CONCURRENT_TRANSACTIONS
        assert w.log.states("id")[-1] == "PrepareAbort@1"
        w.elect(lost_records=1)
        w.log.replicates_at_once = True
        w.turn()
        assert w.producer() == ProducerIdAndEpoch(producer.id, producer.epoch + 2)
        assert w.log.states("id")[2:] == ["PrepareAbort@1", "CompleteAbort@1", "Empty@2"]


@LEVELS
def test_fence_and_abort_are_one_record(level: int) -> None:
    """B29: expiry and InitProducerId bump the epoch in the same record that aborts, wherever the coordinator dies."""
    for survives in range(4):
        with world(level=level) as w:
            w.cluster.add_topic("invoices")
            producer = w.producer()
            w.add(producer, INVOICES)
            w.log.replicates_at_once = False
            w.sleep(TIMEOUT_MS / 1000 + SWEEP)
            w.do(partial(w.log.replicate, w.log.high_watermark + survives))
            w.elect(lost_records=9)
            w.log.replicates_at_once = True
            w.turn()
            metadata = w.described()
            fenced = metadata.producer_epoch == producer.epoch + 1
            assert fenced is (metadata.state is TransactionState.COMPLETE_ABORT)
            assert fenced or metadata.state is TransactionState.ONGOING


@LEVELS
def test_new_producer_waits_for_partitions_that_cannot_be_reached(level: int) -> None:
    with world(level=level) as w:
        w.cluster.add_topic("invoices", leader=ELSEWHERE)
        old = w.producer()
        w.add(old, INVOICES)
        call = w.init()
        assert call.wait().error is ErrorCode.CONCURRENT_TRANSACTIONS
        w.do(w.cluster.deliver)
        assert w.producer() == ProducerIdAndEpoch(old.id, old.epoch + 2)


# Time-outs and expiry


@LEVELS
def test_transaction_that_lasts_too_long_is_aborted_and_its_producer_fenced(level: int) -> None:
    with world(level=level) as w:
        w.cluster.add_topic("invoices")
        producer = w.producer()
        w.add(producer, INVOICES)
        w.sleep(TIMEOUT_MS / 1000 + SWEEP / 2)
        assert w.described().state is TransactionState.ONGOING
        w.sleep(SWEEP)
        assert w.markers(INVOICES) == [
            TransactionMarker(producer.id, producer.epoch + 1, False, 0, marker_version(level))
        ]
        assert w.end(producer).response is ErrorCode.PRODUCER_FENCED
        assert w.described().state is TransactionState.COMPLETE_ABORT


def test_straggler_after_the_end_opens_a_transaction_that_closes_by_itself() -> None:
    """B33: AddPartitions that arrives after the EndTxn of its transaction does not hold back readers for ever."""
    with world() as w:
        w.cluster.add_topic("invoices")
        w.cluster.add_topic("shipments")
        producer = w.producer()
        w.add(producer, INVOICES)
        w.end(producer)
        assert w.add(producer, SHIPMENTS).response is ErrorCode.NONE
        w.sleep(TIMEOUT_MS / 1000 + SWEEP + 1)
        assert w.described().state is TransactionState.COMPLETE_ABORT
        assert [marker.commit for marker in w.markers(SHIPMENTS)] == [False]


@LEVELS
def test_sweep_goes_on_over_failovers_and_loads(level: int) -> None:
    """B33: the new coordinator aborts what its predecessor saw opened."""
    with world(level=level) as w:
        w.cluster.add_topic("invoices")
        producer = w.producer()
        w.add(producer, INVOICES)
        w.elect()
        w.sleep(TIMEOUT_MS / 1000 + SWEEP + 1)
        assert w.markers(INVOICES) == [
            TransactionMarker(producer.id, producer.epoch + 1, False, 1, marker_version(level))
        ]


def test_unused_transactional_ids_expire() -> None:
    config = TransactionConfig(transactional_id_expiration_ms=7_000_000)
    with world(config=config) as w:
        w.cluster.add_topic("invoices", leader=None)
        for number in range(250):
            w.producer(f"unused-{number}")
        busy = w.producer("busy")
        w.sleep(EXPIRY_SWEEP)
        w.producer("used")
        w.add(busy, INVOICES, transactional_id="busy")
        w.sleep(EXPIRY_SWEEP * 1.5)
        assert set(w.log.table()) == {"used", "busy"}
        assert w.coordinator.describe("unused-7") is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        assert w.coordinator.describe("used") is not ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        w.elect()
        w.turn(20)
        assert w.coordinator.describe("unused-7") is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND


def test_id_whose_tombstone_was_refused_goes_on() -> None:
    """B30: and is forgotten by a later sweep."""
    config = TransactionConfig(transactional_id_expiration_ms=1)
    with world(config=config) as w:
        w.producer()
        w.log.refusals = [ErrorCode.NOT_ENOUGH_REPLICAS]
        w.sleep(EXPIRY_SWEEP + 1)
        assert w.producer().epoch == 1
        w.sleep(EXPIRY_SWEEP)
        assert w.log.table() == {}


def test_id_is_busy_while_its_tombstone_replicates() -> None:
    config = TransactionConfig(transactional_id_expiration_ms=1)
    with world(config=config) as w:
        old = w.producer()
        w.log.replicates_at_once = False
        w.sleep(EXPIRY_SWEEP + 1)
        waiting = w.init()
        assert waiting.response is None
        w.log.replicates_at_once = True
        w.do(w.log.replicate)
        assert waiting.wait().producer.id != old.id


# When EndTxn gets its response


def test_end_gets_response_without_waiting_long_for_a_partition() -> None:
    with world() as w:
        w.cluster.add_topic("invoices", leader=None)
        producer = w.producer()
        w.add(producer, INVOICES)
        call = w.end(producer)
        assert call.response is None
        assert not call.held_its_connection
        before = w.loop.time()
        assert call.wait() is ErrorCode.NONE
        assert w.loop.time() - before == pytest.approx(WAIT)
        assert w.described().state is TransactionState.PREPARE_COMMIT
        assert w.end(producer).response is ErrorCode.CONCURRENT_TRANSACTIONS
        w.cluster.partitions[INVOICES].leader = HERE
        w.sleep(1)
        assert w.described().state is TransactionState.COMPLETE_COMMIT


def test_end_gets_response_once_durable_even_if_the_partition_moves() -> None:
    with world() as w:
        w.cluster.add_topic("invoices")
        producer = w.producer()
        w.add(producer, INVOICES)
        w.log.replicates_at_once = False
        call = w.end(producer)
        w.do(lambda: w.log.replicate(w.log.log_end_offset))
        assert w.log.states("id")[-2:] == ["PrepareCommit@0", "CompleteCommit@0"]
        assert call.response is None
        w.log.replicates_at_once = True
        w.elect(lost_records=1)
        assert call.wait() is ErrorCode.NONE
        w.turn()
        assert w.described().state is TransactionState.COMPLETE_COMMIT


# Listing


def test_transactions_are_listed_by_state_producer_duration_and_name() -> None:
    with world(log_partitions=5) as w:
        w.cluster.add_topic("invoices")
        for name in ("a-1", "a-2", "b-1"):
            w.producer(name)
        open_one = w.coordinator.describe("b-1")
        assert not isinstance(open_one, ErrorCode)
        w.add(open_one.producer, INVOICES, transactional_id="b-1")
        w.sleep(10)

        def names(**criteria: object) -> set[str]:
            return {txn.transactional_id for txn in listed(w, **criteria)}

        assert names() == {"a-1", "a-2", "b-1"}
        assert names(states=frozenset({TransactionState.ONGOING})) == {"b-1"}
        assert names(states=frozenset()) == set()
        assert names(producer_ids=frozenset({open_one.producer_id})) == {"b-1"}
        assert names(states=frozenset({TransactionState.ONGOING}), longer_than_ms=9_000) == {"b-1"}
        assert names(states=frozenset({TransactionState.ONGOING}), longer_than_ms=11_000) == set()
        assert names(id_pattern=RegularExpression(".*1")) == {"a-1", "b-1"}


def test_names_of_states_that_do_not_exist_are_returned_apart() -> None:
    assert parse_states([]) == (None, [])
    assert parse_states(["Ongoing", "Asleep"]) == (frozenset({TransactionState.ONGOING}), ["Asleep"])
    assert parse_states(["Asleep"]) == (frozenset(), ["Asleep"])


def test_list_while_a_partition_loads_is_refused() -> None:
    with world(log_partitions=2) as w:
        w.logs[0].replicates_at_once = False
        for index in range(40):
            w.init(f"id-{index}")
        w.elect(0)
        assert w.listed(TransactionFilter()) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


# Unforeseen exceptions


@LEVELS
@pytest.mark.parametrize("step", ["InitProducerId", "AddPartitionsToTxn", "EndTxn"])
def test_exception_in_an_append_leaves_the_id_as_it_was(step: str, level: int) -> None:
    """B101"""
    with world(level=level) as w:
        w.cluster.add_topic("invoices")
        producer = ProducerIdAndEpoch(-1, -1)
        steps: dict[str, Callable[[], object]] = {
            "InitProducerId": w.producer,
            "AddPartitionsToTxn": lambda: w.add(producer, INVOICES),
            "EndTxn": lambda: w.end(producer),
        }
        if step != "InitProducerId":
            producer = w.producer()
        if step == "EndTxn":
            w.add(producer, INVOICES)
        w.log.refusals = [ValueError("unforeseen")]
        with pytest.raises(ValueError, match="unforeseen"):
            steps[step]()
        if step == "InitProducerId":
            producer = w.producer()
        if step != "EndTxn":
            assert w.add(producer, INVOICES).wait() is ErrorCode.NONE
        assert w.end(producer).wait() is ErrorCode.NONE
        assert w.described().state is TransactionState.COMPLETE_COMMIT


@LEVELS
@pytest.mark.parametrize("replicates_at_once", [False, True])
@pytest.mark.parametrize("isr_changes", [0, 1])
def test_exception_after_prepare_was_written_still_completes_the_transaction(
    replicates_at_once: bool, isr_changes: int, level: int
) -> None:
    """B101: a record with a bumped epoch may be durable, and no record with an older epoch can follow it."""
    with world(level=level) as w:
        w.cluster.add_topic("invoices")
        producer = w.producer()
        w.add(producer, INVOICES)
        w.log.isr_changes = isr_changes
        w.log.failures_after_write = [ValueError("unforeseen")]
        w.log.replicates_at_once = replicates_at_once
        with pytest.raises(ValueError, match="unforeseen"):
            w.end(producer)
        w.log.replicates_at_once = True
        w.do(w.log.replicate)
        w.turn()
        assert w.described().state is TransactionState.COMPLETE_COMMIT
        assert [marker.commit for marker in w.markers(INVOICES)] == [True]


@pytest.mark.parametrize("is_written", [False, True])
def test_exception_in_the_append_of_complete_is_retried_unless_it_was_written(is_written: bool) -> None:
    """B101, B14"""
    with world() as w:
        w.cluster.add_topic("invoices", leader=2)
        producer = w.producer()
        w.add(producer, INVOICES)
        w.end(producer)
        w.turn()
        if is_written:
            w.log.failures_after_write = [ValueError("unforeseen")]
        else:
            w.log.refusals = [ValueError("unforeseen")]
        with pytest.raises(ValueError, match="unforeseen"):
            w.do(w.cluster.deliver)
        w.do(w.log.replicate)
        w.sleep(5)
        assert w.log.states("id")[2:] == ["PrepareCommit@0", "CompleteCommit@0"]
        assert w.described().state is TransactionState.COMPLETE_COMMIT


@pytest.mark.parametrize("is_written", [False, True])
def test_exception_in_the_append_of_tombstones_leaves_no_id_busy(is_written: bool) -> None:
    """B101"""
    with world(config=TransactionConfig(transactional_id_expiration_ms=1)) as w:
        for number in range(150):
            w.producer(f"unused-{number}")
        if is_written:
            w.log.failures_after_write = [ValueError("unforeseen")]
        else:
            w.log.refusals = [ValueError("unforeseen")]
        w.loop.set_exception_handler(lambda loop, context: None)
        w.sleep(EXPIRY_SWEEP + 1)
        w.do(w.log.replicate)
        w.sleep(EXPIRY_SWEEP)
        assert w.log.table() == {}
        assert w.producer("unused-1").epoch == 0


# The record that decided the end


def test_markers_carry_the_offset_of_the_record_that_decided_the_end() -> None:
    """B109: it grows from one transaction to the next."""
    with world() as w:
        w.cluster.add_topic("invoices")
        producer = w.producer()
        for commit in (True, False):
            assert w.add(producer, INVOICES).response is ErrorCode.NONE
            assert w.end(producer, commit=commit).response is ErrorCode.NONE
        prepared = [offset for offset, state in enumerate(w.log.states("id")) if state.startswith("Prepare")]
        assert w.decision_offsets(INVOICES) == prepared == [2, 5]
