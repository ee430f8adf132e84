"""Why a transactional id went from one record to the next, and whom that fenced."""

from dataclasses import replace

import pytest

from oncelog.clients.admin.transaction_records import TransactionSnapshot
from oncelog.clients.admin.transaction_steps import Step, explain
from oncelog.protocol.topic_partition import TopicPartition

ORDERS, BILLS = TopicPartition("orders", 0), TopicPartition("bills", 1)
START_MS = 1_000_000
EMPTY = TransactionSnapshot(
    state="Empty",
    producer_id=7,
    producer_epoch=3,
    previous_producer_id=None,
    next_producer_id=None,
    timeout_ms=60_000,
    start_ms=None,
    last_update_ms=START_MS,
    partitions=(),
    client_transaction_version=0,
    cause=None,
)
ONGOING = replace(EMPTY, state="Ongoing", start_ms=START_MS, partitions=(ORDERS,))
ONGOING_2 = replace(ONGOING, client_transaction_version=2)
PREPARE_ABORT = replace(ONGOING, state="PrepareAbort", last_update_ms=START_MS + 1_000)
COMPLETE_ABORT = replace(EMPTY, state="CompleteAbort")
COMPLETE_COMMIT = replace(EMPTY, state="CompleteCommit")


def bumped(snapshot: TransactionSnapshot, by: int = 1) -> TransactionSnapshot:
    return replace(snapshot, producer_epoch=snapshot.producer_epoch + by)


def last_step(*snapshots: TransactionSnapshot | None) -> Step:
    return list(explain(snapshots))[-1]


def aborted(before: TransactionSnapshot, after: TransactionSnapshot, *later: TransactionSnapshot) -> Step:
    """The step to the second of these, after the id was initialised."""
    return list(explain([EMPTY, before, after, *later]))[2]


@pytest.mark.parametrize(
    ("snapshots", "why"),
    [
        ([replace(EMPTY, producer_epoch=0)], "InitProducerId"),
        ([EMPTY], "what led here is not in the log any more"),
        ([EMPTY, EMPTY], "InitProducerId, again"),
        ([EMPTY, ONGOING], "a transaction began"),
        ([COMPLETE_COMMIT, ONGOING], "a transaction began"),
        ([ONGOING, replace(ONGOING, partitions=(BILLS, ORDERS))], "added bills-1"),
        ([ONGOING, ONGOING], "went on"),
        ([ONGOING, replace(ONGOING, state="PrepareCommit")], "EndTxn(commit) from its producer"),
        ([ONGOING_2, bumped(replace(ONGOING_2, state="PrepareCommit"))], "EndTxn(commit) from its producer"),
        ([EMPTY, bumped(PREPARE_ABORT)], "EndTxn(abort) from its producer, which had no transaction"),
        ([PREPARE_ABORT, COMPLETE_ABORT], "all its partitions have their markers"),
        ([PREPARE_ABORT, replace(COMPLETE_ABORT, producer_id=8, producer_epoch=0)], "markers, and a new producer id"),
        ([COMPLETE_COMMIT, None], "transactional.id.expiration.ms"),
        ([ONGOING, COMPLETE_COMMIT], "compacted away"),
        ([ONGOING, EMPTY], "compacted away"),
        ([COMPLETE_COMMIT, bumped(COMPLETE_COMMIT, 9)], "compacted away"),
        ([COMPLETE_COMMIT, bumped(EMPTY, 5)], "InitProducerId; records between have been compacted away"),
    ],
)
def test_cause_of_each_step_is_derived_from_two_records(snapshots: list[TransactionSnapshot | None], why: str) -> None:
    step = last_step(*snapshots)
    assert why in step.why
    assert step.is_derived


# Aborts


def test_abort_of_version_1_by_its_producer_keeps_the_epoch() -> None:
    assert aborted(ONGOING, PREPARE_ABORT) == Step(why="EndTxn(abort) from its producer", is_derived=True, fenced=None)


def test_abort_after_the_time_out_is_by_the_coordinator() -> None:
    late = replace(PREPARE_ABORT, last_update_ms=START_MS + 60_000)
    for before in (ONGOING, ONGOING_2):
        step = aborted(before, bumped(late))
        assert step.why == "open for more than its time-out of 60000 ms"
        assert step.fenced == (7, 3)


def test_abort_of_version_1_with_a_bumped_epoch_is_for_a_successor() -> None:
    """In version 2's form on a cluster that has finalised it, whatever the producer speaks."""
    step = aborted(ONGOING, bumped(replace(PREPARE_ABORT, client_transaction_version=2)))
    assert step.why == "InitProducerId of a successor"
    assert step.fenced == (7, 3)


def test_abort_of_version_2_is_explained_by_the_next_record() -> None:
    abort = bumped(replace(PREPARE_ABORT, client_transaction_version=2))
    complete = bumped(COMPLETE_ABORT)
    step = aborted(ONGOING_2, abort, complete, bumped(EMPTY, 2))
    assert (step.why, step.fenced) == ("InitProducerId of a successor", (7, 3))
    step = aborted(ONGOING_2, abort, complete, bumped(ONGOING_2))
    assert (step.why, step.fenced) == ("EndTxn(abort) from its producer", None)
    step = aborted(ONGOING_2, abort, complete)
    assert (step.why, step.fenced) == ("EndTxn(abort) from its producer, or InitProducerId of a successor", None)


# Fencing


def test_new_producer_fences_the_one_before() -> None:
    step = last_step(EMPTY, bumped(EMPTY))
    assert step.fenced == (7, 3)
    assert last_step(EMPTY, replace(EMPTY, producer_id=8, producer_epoch=0)).fenced == (7, 3)


def test_epoch_of_an_abort_belongs_to_no_producer() -> None:
    abort = bumped(replace(PREPARE_ABORT, client_transaction_version=2))
    steps = list(explain([EMPTY, ONGOING, abort, bumped(COMPLETE_ABORT), bumped(EMPTY, 2), bumped(EMPTY, 3)]))
    assert [step.fenced for step in steps] == [None, None, (7, 3), None, None, (7, 5)]


def test_producer_of_version_2_owns_the_epoch_of_each_end() -> None:
    commit = bumped(replace(ONGOING_2, state="PrepareCommit"))
    steps = list(explain([EMPTY, ONGOING_2, commit, bumped(COMPLETE_COMMIT), bumped(EMPTY, 2)]))
    assert [step.fenced for step in steps] == [None, None, None, None, (7, 4)]


def test_producer_whose_id_was_replaced_when_it_ended_has_the_new_one() -> None:
    last = replace(ONGOING_2, producer_epoch=32_766)
    commit = replace(last, state="PrepareCommit", producer_epoch=32_767, next_producer_id=8)
    complete = replace(COMPLETE_COMMIT, producer_id=8, producer_epoch=0)
    steps = list(
        explain(
            [replace(EMPTY, producer_epoch=32_766), last, commit, complete, bumped(replace(complete, state="Empty"))]
        )
    )
    assert steps[-1].fenced == (8, 0)


def test_id_whose_epochs_are_used_up_gets_a_new_producer_id() -> None:
    step = last_step(replace(EMPTY, producer_epoch=32_766), replace(EMPTY, producer_id=8, producer_epoch=0))
    assert "used up" in step.why


# What was recorded


def test_recorded_cause_is_not_derived() -> None:
    cause = "InitProducerId from client 'app-1' at 127.0.0.1:50123"
    step = aborted(ONGOING_2, bumped(replace(PREPARE_ABORT, cause=cause)), bumped(replace(COMPLETE_ABORT, cause=cause)))
    assert step == Step(why=cause, is_derived=False, fenced=(7, 3))


def test_recorded_cause_belongs_to_the_step_that_it_caused() -> None:
    cause = "open for more than 60000 ms"
    step = last_step(bumped(replace(PREPARE_ABORT, cause=cause)), bumped(replace(COMPLETE_ABORT, cause=cause)))
    assert step == Step(why="all its partitions have their markers", is_derived=True, fenced=None)


def test_first_producer_of_an_id_fences_no_other() -> None:
    (step,) = explain([replace(EMPTY, producer_epoch=0, cause="InitProducerId from client 'app' at 127.0.0.1:1")])
    assert step.fenced is None
    assert not step.is_derived
