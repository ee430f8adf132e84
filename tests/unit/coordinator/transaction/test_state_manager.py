"""Loading: what a new coordinator knows, and when it begins to answer."""

import asyncio

import pytest

from oncelog.coordinator.ports import TransactionMarker
from oncelog.coordinator.transaction.listing import TransactionFilter
from oncelog.coordinator.transaction.log_records import build_record_batch
from oncelog.coordinator.transaction.state import MAX_EPOCH, NO_PARTITIONS, ProducerIdAndEpoch, TransactionMetadata
from oncelog.coordinator.transaction.transaction_state import TransactionState
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.internal.placement import java_hash
from oncelog.protocol.records.record_batch import NewRecord, build_batch
from oncelog.protocol.topic_partition import TopicPartition
from tests.unit.coordinator.transaction.world import HERE, World, world

INVOICES = TopicPartition("invoices", 0)
PRODUCER = ProducerIdAndEpoch(4000, 3)


def metadata(
    state: TransactionState, *, epoch: int = PRODUCER.epoch, partitions: frozenset[TopicPartition] = NO_PARTITIONS
) -> TransactionMetadata:
    return TransactionMetadata(
        producer_id=PRODUCER.id,
        producer_epoch=epoch,
        timeout_ms=60_000,
        state=state,
        partitions=partitions,
        start_ms=1_000_000 if partitions else -1,
        last_update_ms=1_000_000,
    )


def write(w: World, *records: TransactionMetadata, transactional_id: str = "id") -> None:
    """Put records into the log, as a coordinator before this one did."""
    for record in records:
        assert w.log.epoch_log is not None
        w.log.epoch_log.append(build_record_batch(transactional_id, record, 1_000_000))


def is_loading(w: World) -> bool:
    return w.listed(TransactionFilter()) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


# When the partition opens


def test_loaded_partition_serves_nothing_before_everything_read_is_replicated() -> None:
    """B83: a coordinator loads to the log end and opens only when the high watermark has reached it."""
    with world() as w:
        producer = w.producer()
        w.log.replicates_at_once = False
        w.add(producer, INVOICES)
        w.elect()
        w.turn(20)
        assert is_loading(w)
        assert w.end(producer).response is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert w.init().response is not None
        assert w.coordinator.describe("id") is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        w.do(w.log.replicate)
        w.turn()
        assert w.described().state is TransactionState.ONGOING


def test_decision_above_the_high_watermark_is_not_overruled() -> None:
    """B83: a PrepareCommit that is about to replicate is carried out, however late it is for the transaction."""
    with world() as w:
        w.cluster.add_topic("invoices")
        producer = w.producer()
        w.add(producer, INVOICES)
        w.log.replicates_at_once = False
        w.end(producer)
        w.elect()
        w.sleep(1_000)
        assert w.markers(INVOICES) == []
        w.log.replicates_at_once = True
        w.do(w.log.replicate)
        w.turn()
        assert w.markers(INVOICES) == [TransactionMarker(*producer, True, 1, 0)]
        assert w.described().state is TransactionState.COMPLETE_COMMIT


@pytest.mark.parametrize("prepared", [TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT])
def test_prepared_transaction_is_completed_after_the_load(prepared: TransactionState) -> None:
    """B12: Prepare* always progresses, whoever decided it."""
    with world() as w:
        w.cluster.add_topic("invoices")
        write(w, metadata(prepared, partitions=frozenset({INVOICES})))
        w.elect()
        w.turn()
        commit = prepared is TransactionState.PREPARE_COMMIT
        assert w.markers(INVOICES) == [TransactionMarker(*PRODUCER, commit, 1, 0)]
        assert w.end(PRODUCER, commit=commit).response is ErrorCode.NONE


def test_decision_offset_of_a_prepared_transaction_survives_a_load() -> None:
    """B109: markers that the next coordinator sends again are known as the same."""
    with world() as w:
        w.cluster.add_topic("invoices")
        write(w, metadata(TransactionState.ONGOING, partitions=frozenset({INVOICES})))
        write(w, metadata(TransactionState.PREPARE_COMMIT, partitions=frozenset({INVOICES})))
        w.elect()
        w.turn()
        assert w.decision_offsets(INVOICES) == [w.log.log_end_offset - 2]  # Complete* is the last one.


def test_prepared_transaction_is_busy_until_it_is_completed() -> None:
    """B20: as it was under the coordinator that decided it."""
    with world() as w:
        w.cluster.add_topic("invoices", leader=None)
        write(w, metadata(TransactionState.PREPARE_COMMIT, partitions=frozenset({INVOICES})))
        w.elect()
        w.turn()
        assert w.end(PRODUCER).response is ErrorCode.CONCURRENT_TRANSACTIONS
        assert w.add(PRODUCER, INVOICES).wait() is ErrorCode.CONCURRENT_TRANSACTIONS
        w.cluster.partitions[INVOICES].leader = HERE
        w.sleep(2)
        assert w.end(PRODUCER).response is ErrorCode.NONE


def test_load_that_was_overtaken_by_the_next_election_opens_nothing() -> None:
    with world() as w:
        producer = w.producer()
        for _ in range(3):
            w.elect()
        w.turn()
        assert w.described().producer == producer
        w.elect()
        w.log.depose()
        w.do(lambda: w.coordinator.on_resigned(0))
        w.turn(20)
        assert w.coordinator.describe("id") is ErrorCode.NOT_COORDINATOR
        assert not is_loading(w)


def test_load_that_was_overtaken_completes_nothing() -> None:
    """B12: markers of a prepared transaction carry the epoch of the coordinator that owns it now."""
    with world() as w:
        w.cluster.add_topic("invoices")
        write(w, metadata(TransactionState.PREPARE_COMMIT, partitions=frozenset({INVOICES})))

        def elect_twice() -> None:
            for _ in range(2):
                w.coordinator.on_elected(0, w.log.elect())

        w.do(elect_twice)
        w.turn(20)
        assert w.markers(INVOICES) == [TransactionMarker(*PRODUCER, True, 2, 0)]


def test_load_that_waits_for_replication_ends_with_the_leadership() -> None:
    with world() as w:
        w.log.replicates_at_once = False
        w.init()
        w.elect()
        w.turn()
        w.do(w.log.depose)
        w.turn()
        assert w.coordinator.describe("id") is ErrorCode.NOT_COORDINATOR
        w.elect()
        w.turn()
        assert is_loading(w)


def test_long_log_is_loaded_in_slices_between_which_others_run() -> None:
    with world() as w:
        for number in range(4_000):
            write(w, metadata(TransactionState.EMPTY), transactional_id=f"id-{number}")
        w.elect()
        turns = 0

        async def wait() -> None:
            nonlocal turns
            while is_loading(w):
                await asyncio.sleep(0)
                turns += 1

        w.loop.run_until_complete(wait())
        assert turns > 5
        assert w.coordinator.describe("id-3999") == metadata(TransactionState.EMPTY)


# What is read


def test_last_record_of_an_id_counts_and_a_tombstone_forgets_it() -> None:
    with world() as w:
        write(w, metadata(TransactionState.EMPTY), metadata(TransactionState.EMPTY, epoch=4))
        write(w, metadata(TransactionState.EMPTY), transactional_id="gone")
        assert w.log.epoch_log is not None
        w.log.epoch_log.append(build_batch([NewRecord(0, b"\0\0\0\x04gone", None)]))
        w.elect()
        w.turn()
        assert w.described().producer_epoch == 4
        assert w.coordinator.describe("gone") is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND


@pytest.mark.parametrize("level", [1, 2])
def test_log_that_holds_the_epoch_that_no_producer_has_is_loaded(level: int) -> None:
    """B24: a log that already contains epoch 32,767 is recoverable."""
    with world() as w:
        w.transaction_version = level
        w.cluster.add_topic("invoices")
        write(w, metadata(TransactionState.PREPARE_ABORT, epoch=MAX_EPOCH, partitions=frozenset({INVOICES})))
        write(
            w,
            metadata(TransactionState.ONGOING, epoch=MAX_EPOCH, partitions=frozenset({INVOICES})),
            transactional_id="x",
        )
        w.elect()
        w.turn()
        fresh = w.producer()
        assert fresh.id != PRODUCER.id
        assert fresh.epoch == 0
        other = w.producer("x")
        assert other.id not in (PRODUCER.id, fresh.id)
        assert other.epoch == (1 if level == 2 else 0)  # In version 2 the abort itself changes over to the new id.


@pytest.mark.parametrize(
    "damage",
    [
        build_batch([NewRecord(0, None, b"")]),
        build_batch([NewRecord(0, b"\0\0\0\x02id", b"\0")]),
        build_batch([NewRecord(0, b"\0\0\0\x09id", None)]),
        build_record_batch("id", metadata(TransactionState.EMPTY, epoch=2), 0),
    ],
    ids=["no key", "cut value", "cut key", "an epoch that goes back"],
)
def test_log_that_makes_no_sense_is_not_served(damage: bytearray) -> None:
    """The partition is disabled rather than guessed at, until it can be read; the others go on."""
    with world() as w:
        write(w, metadata(TransactionState.EMPTY))
        assert w.log.epoch_log is not None
        w.log.epoch_log.append(damage)
        w.elect()
        w.turn()
        assert w.coordinator.describe("id") is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert not is_loading(w)
        assert [failure.partition(":")[0] for failure in w.tasks.failures] == ["load __transaction_state-0"]


@pytest.mark.parametrize(
    "newer",
    [
        NewRecord(0, b"\0\x09whatever", b"\0\0"),
        NewRecord(0, b"\0\0\0\x02id", b"\0\x09whatever"),
    ],
    ids=["key", "value"],
)
def test_records_of_a_newer_version_are_left_alone(newer: NewRecord, caplog: pytest.LogCaptureFixture) -> None:
    with world() as w:
        write(w, metadata(TransactionState.EMPTY))
        assert w.log.epoch_log is not None
        w.log.epoch_log.append(build_batch([newer]))
        w.elect()
        w.turn()
        assert w.described() == metadata(TransactionState.EMPTY)
    assert "version 9" in caplog.text


def test_id_is_served_by_the_partition_of_its_hash() -> None:
    with world(log_partitions=7) as w:
        names = [f"id-{number}" for number in range(40)] + ["é", "𝄞", "polygenelubricants"]
        for name in names:
            w.producer(name)
        for index, log in enumerate(w.logs):
            assert set(log.table()) == {
                name for name in names if (0 if java_hash(name) == -(2**31) else abs(java_hash(name)) % 7) == index
            }
