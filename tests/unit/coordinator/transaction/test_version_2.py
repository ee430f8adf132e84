"""Transactions of version-2 clients from beginning to end: a new epoch for each, and what happens when they run out."""

from functools import partial

import pytest

from oncelog.coordinator.metadata_store.store import StoreUnavailable
from oncelog.coordinator.ports import TransactionMarker
from oncelog.coordinator.transaction.coordinator import EndTxnResult
from oncelog.coordinator.transaction.log_records import build_record_batch
from oncelog.coordinator.transaction.settings import TransactionConfig
from oncelog.coordinator.transaction.state import (
    LAST_LIVE_EPOCH,
    MAX_EPOCH,
    NO_PRODUCER,
    ProducerIdAndEpoch,
    TransactionMetadata,
)
from oncelog.coordinator.transaction.transaction_state import TransactionState
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.topic_partition import TopicPartition
from tests.unit.coordinator.transaction.world import HERE, Call, World, world

INVOICES = TopicPartition("invoices", 0)
ELSEWHERE = 2
TIMEOUT_MS = 60_000
SWEEP = TransactionConfig().abort_timed_out_interval_ms / 1000
OLD = ProducerIdAndEpoch(77, LAST_LIVE_EPOCH)
"""A producer with the last epoch that there is."""


def add(w: World, producer: ProducerIdAndEpoch) -> Call[ErrorCode]:
    return w.add(producer, INVOICES, client_version=2)


def ended(producer: ProducerIdAndEpoch) -> EndTxnResult:
    return EndTxnResult(ErrorCode.NONE, producer)


def refused(error: ErrorCode) -> EndTxnResult:
    return EndTxnResult(error, NO_PRODUCER)


def bumped(producer: ProducerIdAndEpoch, by: int = 1) -> ProducerIdAndEpoch:
    return ProducerIdAndEpoch(producer.id, producer.epoch + by)


def age(w: World, epoch: int = LAST_LIVE_EPOCH, state: TransactionState = TransactionState.ONGOING) -> None:
    """Put a transaction of OLD, or of one with an even higher epoch, into the log, and load it."""
    w.cluster.add_topic("invoices")
    metadata = TransactionMetadata(
        producer_id=OLD.id,
        producer_epoch=epoch,
        timeout_ms=TIMEOUT_MS,
        state=state,
        partitions=frozenset({INVOICES}) if state is TransactionState.ONGOING else frozenset(),
        start_ms=w.wall_clock(),
        last_update_ms=w.wall_clock(),
        previous_producer_id=OLD.id,
        client_transaction_version=2,
    )
    assert w.log.epoch_log is not None
    w.log.epoch_log.append(build_record_batch("id", metadata, w.wall_clock()))
    w.elect()
    w.turn()


# A new epoch for each transaction


@pytest.mark.parametrize("commit", [True, False])
def test_end_bumps_the_epoch_in_the_record_that_decides_it(commit: bool) -> None:
    """B06: the markers have the new epoch and say that they must, so that no earlier one can pass for them."""
    with world() as w:
        w.cluster.add_topic("invoices")
        producer = w.producer()
        for _ in range(3):
            assert add(w, producer).response is ErrorCode.NONE
            assert w.end_and_bump(producer, commit=commit).response == ended(bumped(producer))
            producer = bumped(producer)
        end = "Commit" if commit else "Abort"
        assert w.log.states("id")[:4] == ["Empty@0", "Ongoing@0", f"Prepare{end}@1", f"Complete{end}@1"]
        assert w.markers(INVOICES) == [TransactionMarker(producer.id, epoch, commit, 0, 2) for epoch in (1, 2, 3)]


@pytest.mark.parametrize("failover", [False, True])
def test_end_that_is_requested_twice_gets_same_response_and_is_written_once(failover: bool) -> None:
    with world() as w:
        w.cluster.add_topic("invoices")
        producer = w.producer()
        add(w, producer)
        first = w.end_and_bump(producer).response
        before = w.log.log_end_offset
        if failover:
            w.elect()
            w.turn()
        assert w.end_and_bump(producer).response == first == ended(bumped(producer))
        assert w.end_and_bump(producer, commit=False).response == refused(ErrorCode.INVALID_TXN_STATE)
        assert w.log.log_end_offset == before


def test_late_end_does_not_touch_the_next_transaction() -> None:
    """B01: in version 2 the epoch tells the transactions apart."""
    with world() as w:
        w.cluster.add_topic("invoices")
        producer = w.producer()
        add(w, producer)
        w.end_and_bump(producer)
        add(w, bumped(producer))
        for commit in (True, False):
            assert w.end_and_bump(producer, commit=commit).response == refused(ErrorCode.PRODUCER_FENCED)
        assert w.described().state is TransactionState.ONGOING
        assert len(w.markers(INVOICES)) == 1


def test_abort_of_nothing_bumps_the_epoch_and_a_commit_of_nothing_is_refused() -> None:
    """B19: clients do not ask for the commit."""
    with world() as w:
        producer = w.producer()
        assert w.end_and_bump(producer).response == refused(ErrorCode.INVALID_TXN_STATE)
        assert w.end_and_bump(producer, commit=False).response == ended(bumped(producer))
        assert w.end_and_bump(producer, commit=False).response == ended(bumped(producer))  # A retry.
        assert w.end_and_bump(bumped(producer)).response == refused(ErrorCode.INVALID_TXN_STATE)
        assert w.end_and_bump(bumped(producer), commit=False).response == ended(bumped(producer, 2))
        assert w.log.states("id") == [
            "Empty@0",
            "PrepareAbort@1",
            "CompleteAbort@1",
            "PrepareAbort@2",
            "CompleteAbort@2",
        ]
        assert w.described().start_ms == w.wall_clock()


def test_abort_right_after_a_commit_fences_no_producer() -> None:
    """B18, B20: while the commit is being completed the id is busy, whatever epoch the request has."""
    with world() as w:
        w.cluster.add_topic("invoices", leader=ELSEWHERE)
        producer = w.producer()
        add(w, producer)
        following = w.end_and_bump(producer).wait().producer
        assert following == bumped(producer)
        for who in (producer, following, bumped(following), ProducerIdAndEpoch(1, 1)):
            assert w.end_and_bump(who, commit=False).response == refused(ErrorCode.CONCURRENT_TRANSACTIONS)
            assert add(w, who).wait() is ErrorCode.CONCURRENT_TRANSACTIONS
        w.do(w.cluster.deliver)
        assert w.end_and_bump(following, commit=False).response == ended(bumped(following))


def test_clients_of_both_versions_may_take_turns() -> None:
    with world() as w:
        w.cluster.add_topic("invoices")
        producer = w.producer()
        add(w, producer)
        producer = w.end_and_bump(producer).wait().producer
        w.add(producer, INVOICES)
        assert w.end(producer).response is ErrorCode.NONE
        assert w.described().client_transaction_version == 0
        add(w, producer)
        assert w.end_and_bump(producer).response == ended(bumped(producer))
        assert [marker[1:5] for marker in w.markers(INVOICES)] == [(1, True, 0, 2), (1, True, 0, 0), (2, True, 0, 2)]


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("failover", [False, True])
def test_zombie_is_not_taken_for_a_successor_that_speaks_version_1(commit: bool, failover: bool) -> None:
    """B01, B28: nothing but their epochs tells a retry of an end from somebody who was replaced, and version 1 bumps
    none; as a retry the zombie would be given the epoch of its successor, who is alive."""
    with world() as w:
        w.cluster.add_topic("invoices")
        zombie, successor = w.producer(), w.producer()
        assert successor == bumped(zombie)
        w.add(successor, INVOICES)
        assert w.end(successor, commit=commit).response is ErrorCode.NONE
        if failover:
            w.elect()
            w.turn()
        for end in (True, False):
            assert w.end_and_bump(zombie, commit=end).wait() == refused(ErrorCode.PRODUCER_FENCED)
        assert w.add(successor, INVOICES).response is ErrorCode.NONE


def test_producer_that_missed_the_response_to_its_end_may_initialise_with_its_old_epoch() -> None:
    """KIP-360: it gets what the end gave it, as long as the coordinator remembers and nobody has come since."""
    with world() as w:
        w.cluster.add_topic("invoices")
        producer = w.producer()
        add(w, producer)
        w.end_and_bump(producer)
        assert w.init(expected=producer).wait().producer == bumped(producer)
        assert w.producer() == bumped(producer, 2)
        assert w.init(expected=producer).wait().error is ErrorCode.PRODUCER_FENCED


# The coordinator's own aborts


def test_producer_whose_transaction_timed_out_may_abort_and_go_on() -> None:
    with world() as w:
        w.cluster.add_topic("invoices")
        producer = w.producer()
        add(w, producer)
        assert [txn.transactional_id for txn in w.coordinator.open_transactions()] == ["id"]
        w.sleep(TIMEOUT_MS / 1000 + SWEEP + 1)
        assert w.log.states("id")[2:] == ["PrepareAbort@1", "CompleteAbort@1"]
        assert w.described().cause == "open for more than 60000 ms"
        assert w.end_and_bump(producer).response == refused(ErrorCode.INVALID_TXN_STATE)
        assert add(w, producer).response is ErrorCode.PRODUCER_FENCED
        assert w.end_and_bump(producer, commit=False).response == ended(bumped(producer))
        assert add(w, bumped(producer)).response is ErrorCode.NONE
        assert w.coordinator.figures.timed_out_count == 1


def test_abort_that_the_log_refused_is_not_counted() -> None:
    with world() as w:
        w.cluster.add_topic("invoices")
        add(w, w.producer())
        w.log.refusals = [ErrorCode.NOT_ENOUGH_REPLICAS]
        w.sleep(TIMEOUT_MS / 1000 + SWEEP + 1)
        assert w.coordinator.figures.timed_out_count == 0
        assert not w.log.refusals
        w.sleep(SWEEP)
        assert w.coordinator.figures.timed_out_count == 1
        assert list(w.coordinator.open_transactions()) == []


def test_cause_is_that_of_its_record_and_survives_a_failover() -> None:
    with world() as w:
        w.cluster.add_topic("invoices", leader=ELSEWHERE)
        producer = w.producer()
        add(w, producer)
        ask = partial(w.coordinator.init_producer_id, "id", TIMEOUT_MS, None, client="client 'b' at 10.0.0.7:1")
        assert w.begin(ask).wait().error is ErrorCode.CONCURRENT_TRANSACTIONS
        w.elect()
        w.turn()
        assert w.described().cause == "InitProducerId from client 'b' at 10.0.0.7:1"
        w.do(w.cluster.deliver)
        assert w.described().state is TransactionState.COMPLETE_ABORT
        assert w.described().cause == "InitProducerId from client 'b' at 10.0.0.7:1"
        successor = w.producer()
        assert w.described().cause is None
        add(w, successor)
        assert w.described().cause is None


# When the epochs run out


@pytest.mark.parametrize("commit", [True, False])
def test_last_epoch_ends_in_a_new_producer_id(commit: bool) -> None:
    """B23: no producer gets an epoch above 32,766, and crossing it takes one new producer id."""
    with world() as w:
        age(w)
        response = w.end_and_bump(OLD, commit=commit).response
        assert response is not None
        new = response.producer
        assert (response.error, new.epoch) == (ErrorCode.NONE, 0)
        assert new.id != OLD.id
        assert w.markers(INVOICES) == [TransactionMarker(OLD.id, MAX_EPOCH, commit, 1, 2)]
        assert w.end_and_bump(OLD, commit=commit).response == ended(new)
        assert w.end_and_bump(OLD, commit=not commit).response == refused(ErrorCode.INVALID_TXN_STATE)
        given = w.producer_ids.given
        assert add(w, new).response is ErrorCode.NONE
        assert w.end_and_bump(OLD, commit=commit).response == refused(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        assert w.end_and_bump(new, commit=commit).response == ended(bumped(new))
        assert w.producer_ids.given == given


@pytest.mark.parametrize("level", [0, 1, 2])
@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("durable", [0, 1, 2])
def test_new_producer_id_survives_a_failover_at_every_point(durable: int, commit: bool, level: int) -> None:
    """B25: whoever completes the transaction gives the producer the id that was set aside; or nothing has happened."""
    with world(level=level) as w:
        age(w)
        w.log.replicates_at_once = False
        call = w.end_and_bump(OLD, commit=commit)
        for _ in range(durable):
            w.do(lambda: w.log.replicate(w.log.high_watermark + 1))
        prepared = [known for _, known in w.log.records()][1:]
        w.elect(lost_records=9)
        w.log.replicates_at_once = True
        w.turn()
        w.do(w.log.replicate)
        if durable == 0:
            assert call.wait() == refused(ErrorCode.NOT_COORDINATOR)
            assert w.described().producer == OLD
            assert w.described().state is TransactionState.ONGOING
            assert w.end_and_bump(OLD, commit=commit).wait().producer.epoch == 0
            return
        assert prepared[0] is not None
        new = ProducerIdAndEpoch(prepared[0].next_producer_id, 0)
        assert call.wait() == ended(new)
        assert w.described().producer == new
        assert w.described().next_producer_id == -1
        if level > 0:  # Below, the log does not say who the producer was before, so the retry is refused.
            assert w.end_and_bump(OLD, commit=commit).wait() == ended(new)
        assert add(w, new).wait() is ErrorCode.NONE
        assert {marker[:4] for marker in w.markers(INVOICES)} <= {
            (OLD.id, MAX_EPOCH, commit, 1),
            (OLD.id, MAX_EPOCH, commit, 2),
        }


def test_next_transaction_may_come_before_the_change_over_is_complete() -> None:
    """B23 (KAFKA-18660): the producer has the new id from the response, and the coordinator still has the old one."""
    with world() as w:
        age(w)
        w.cluster.partitions[INVOICES].leader = ELSEWHERE
        new = w.end_and_bump(OLD).wait().producer
        assert w.described().producer == ProducerIdAndEpoch(OLD.id, MAX_EPOCH)
        assert add(w, new).wait() is ErrorCode.CONCURRENT_TRANSACTIONS
        assert w.end_and_bump(new, commit=False).response == refused(ErrorCode.CONCURRENT_TRANSACTIONS)
        w.do(w.cluster.deliver)
        assert add(w, new).response is ErrorCode.NONE


def test_new_producer_id_that_must_first_be_reserved_holds_the_connection() -> None:
    with world(block=0) as w:
        age(w)
        w.producer_ids.failure = StoreUnavailable("no quorum")
        call = w.end_and_bump(OLD)
        assert call.held_its_connection
        assert call.wait() == refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        assert w.described().state is TransactionState.ONGOING
        w.producer_ids.failure = None
        w.producer_ids.block(1)
        assert w.end_and_bump(OLD).wait().producer == ProducerIdAndEpoch(1_000 + w.producer_ids.given, 0)


def test_request_that_waited_for_a_producer_id_is_decided_by_what_is_true_then() -> None:
    with world(block=0) as w:
        age(w)
        w.producer_ids.block(1)
        calls = [w.end_and_bump(OLD) for _ in range(2)]
        first, second = (call.wait() for call in calls)
        assert first == second
        assert [known.state for _, known in w.log.records() if known is not None][1:] == [
            TransactionState.PREPARE_COMMIT,
            TransactionState.COMPLETE_COMMIT,
        ]


@pytest.mark.parametrize("epoch", [LAST_LIVE_EPOCH, MAX_EPOCH])
@pytest.mark.parametrize("block", [0, 1_000])
def test_time_out_in_the_last_epoch_takes_a_new_producer_id_too(epoch: int, block: int) -> None:
    """B24: also from the epoch that no producer ever has; and if no id is at hand, one is reserved."""
    with world(block=block) as w:
        age(w, epoch)
        w.producer_ids.failure = StoreUnavailable("no quorum")
        w.producer_ids.block(1)
        w.sleep(TIMEOUT_MS / 1000 + SWEEP + 1)
        assert (w.described().state is TransactionState.ONGOING) is (block == 0)
        w.producer_ids.failure = None
        w.sleep(SWEEP)
        metadata = w.described()
        assert (metadata.state, metadata.producer_epoch) == (TransactionState.COMPLETE_ABORT, 0)
        assert metadata.producer_id != OLD.id
        assert w.markers(INVOICES) == [TransactionMarker(OLD.id, MAX_EPOCH, False, 1, 2)]
        assert w.coordinator.figures.timed_out_count == 1


def test_reservation_serves_all_transactions_that_timed_out() -> None:
    with world(block=0) as w:
        age(w)
        assert w.log.epoch_log is not None
        for index in range(3):
            other = w.log.table()["id"]._replace(producer_id=80 + index, previous_producer_id=80 + index)
            w.log.epoch_log.append(build_record_batch(f"id-{index}", other, 0))
        w.elect()
        w.turn()
        w.producer_ids.block(2)
        w.sleep(TIMEOUT_MS / 1000 + 2 * SWEEP)
        table = w.log.table()
        assert {metadata.state for metadata in table.values()} == {TransactionState.COMPLETE_ABORT}
        assert len({metadata.producer_id for metadata in table.values()}) == 4
        assert w.producer_ids.given == 4


@pytest.mark.parametrize("block", [0, 1_000])
def test_new_producer_takes_over_from_one_with_the_last_epoch(block: int) -> None:
    """B23 (KAFKA-19367): its fence changes over to a new producer id, and the new producer gets an epoch of that."""
    with world(block=block) as w:
        age(w)
        w.producer_ids.block(1)
        successor = w.init().wait()
        assert successor.error is ErrorCode.NONE
        assert successor.producer.id != OLD.id
        assert successor.producer.epoch == 1
        assert w.log.states("id")[1:] == [f"PrepareAbort@{MAX_EPOCH}", "CompleteAbort@0", "Empty@1"]
        assert w.end_and_bump(OLD, commit=False).response == refused(ErrorCode.INVALID_PRODUCER_ID_MAPPING)


def test_commit_in_the_epoch_that_only_fences_is_refused() -> None:
    """B24: its transaction can be aborted, and that is the way out."""
    last = ProducerIdAndEpoch(OLD.id, MAX_EPOCH)
    with world() as w:
        age(w, MAX_EPOCH)
        assert w.end_and_bump(last).response == refused(ErrorCode.PRODUCER_FENCED)
        assert w.end_and_bump(last, commit=False).wait().producer.epoch == 0


def test_retry_is_not_given_the_epoch_that_only_fences() -> None:
    """B23: a fence of version 1 left it behind, before the level was raised."""
    with world() as w:
        age(w, MAX_EPOCH, TransactionState.COMPLETE_ABORT)
        assert w.end_and_bump(OLD, commit=False).response == refused(ErrorCode.PRODUCER_FENCED)


# The level of the feature


@pytest.mark.parametrize(("level", "version"), [(0, 0), (1, 1), (2, 1)])
def test_record_version_follows_finalised_level(level: int, version: int) -> None:
    with world(level=level) as w:
        w.producer()
        assert w.log.value_versions() == {"id": version}
        w.transaction_version = 2 - level
        w.producer()
        assert w.log.value_versions() == {"id": min(2 - level, 1)}


@pytest.mark.parametrize("level", [0, 1])
def test_transaction_that_was_open_during_a_downgrade_is_fenced_by_version_1(level: int) -> None:
    with world() as w:
        w.cluster.add_topic("invoices", leader=HERE)
        producer = w.producer()
        add(w, producer)
        w.transaction_version = level
        w.sleep(TIMEOUT_MS / 1000 + SWEEP + 1)
        assert w.markers(INVOICES) == [TransactionMarker(producer.id, 1, False, 0, 0)]
        assert w.described().client_transaction_version == 0
        assert w.init(expected=producer).wait().error is ErrorCode.PRODUCER_FENCED
