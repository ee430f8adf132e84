"""Producer state: what may be appended, what is stable, what snapshots keep."""

import pytest

from oncelog.broker.storage.producer_snapshots import (
    CorruptSnapshot,
    ProducerSnapshots,
    decode_snapshot,
    encode_snapshot,
)
from oncelog.broker.storage.producer_state import (
    Accept,
    AppendOrigin,
    BatchMetadata,
    Duplicate,
    ProducerStateEntry,
    ProducerStateManager,
)
from oncelog.broker.storage.transaction_index import TransactionIndex
from oncelog.broker.storage.verification_state import MAX_EPOCH, VerificationStateEntry
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.records.control_records import EndTxnMarker
from oncelog.protocol.records.record_batch import BatchHeader, read_header
from tests.simulation.sim_disk import SimDisk
from tests.unit.broker.batches import batch
from tests.unit.broker.storage.logs import NOW

CLIENT, COORDINATOR, REPLICATION = AppendOrigin.CLIENT, AppendOrigin.COORDINATOR, AppendOrigin.REPLICATION
OUT_OF_ORDER = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
FENCED = ErrorCode.INVALID_PRODUCER_EPOCH
MAX_SEQUENCE = 2**31 - 1


class World:
    """A producer state and the log end that it follows."""

    def __init__(self) -> None:
        self.disk = SimDisk()
        self.now_ms = NOW
        self.end = 0
        self.index = TransactionIndex(self.disk, "/txnindex", 0)
        self.state = self.new_state()

    def new_state(self) -> ProducerStateManager:
        self.snapshots = ProducerSnapshots(self.disk, "")
        self.snapshots.open()
        return ProducerStateManager(wall_clock=lambda: self.now_ms, producer_id_expiration_ms=1000)

    def snapshot(self) -> str | None:
        return self.snapshots.take(self.state, sync=True)

    def restart(self) -> None:
        """Restore the state from the latest snapshot."""
        self.state = self.new_state()
        self.snapshots.restore(self.state, 0, self.end)

    def header(self, sequence: int, count: int = 1, *, epoch: int = 0, pid: int = 1, txn: bool = False) -> BatchHeader:
        data = batch(*[b"v"] * count, producer_id=pid, epoch=epoch, sequence=sequence, transactional=txn)
        return read_header(data)

    def check(self, sequence: int, count: int = 1, *, epoch: int = 0, pid: int = 1, txn: bool = False, origin=CLIENT):
        """Return why a batch is not admitted, or the batch that it duplicates; None if it is admitted."""
        verdict = self.state.admit(self.header(sequence, count, epoch=epoch, pid=pid, txn=txn), origin)
        return verdict.batch if isinstance(verdict, Duplicate) else None if isinstance(verdict, Accept) else verdict

    def append(self, sequence: int, count: int = 1, *, epoch: int = 0, pid: int = 1, txn: bool = False) -> int:
        first = self.end
        self.state.update(self.header(sequence, count, epoch=epoch, pid=pid, txn=txn), first)
        self.end += count
        self.state.map_end_offset = self.end
        return first

    def end_txn(
        self, *, commit: bool = True, epoch: int = 0, coordinator_epoch: int = 0, pid: int = 1, version: int = 0
    ):
        marker = EndTxnMarker(commit=commit, coordinator_epoch=coordinator_epoch)
        header = self.header(-1, epoch=epoch, pid=pid)
        completed = self.state.end_transaction(header, marker, self.end, self.index, version)
        self.end += 1
        self.state.map_end_offset = self.end
        return completed

    def check_marker(self, *, epoch: int, coordinator_epoch: int = 0, version: int = 0) -> ErrorCode | None:
        marker = EndTxnMarker(commit=True, coordinator_epoch=coordinator_epoch)
        verdict = self.state.admit_marker(b"", self.header(-1, epoch=epoch), marker, version)
        return None if isinstance(verdict, Accept) else verdict

    def start(self, sequence: int = 0, *, epoch: int = 0, pid: int = 1, adds: bool = False):
        return self.state.start_verification(pid, epoch, sequence, adds_partitions=adds)

    def guard(self, sequence: int = 0, *, epoch: int = 0, pid: int = 1, adds: bool = False) -> VerificationStateEntry:
        guard = self.start(sequence, epoch=epoch, pid=pid, adds=adds)
        assert isinstance(guard, VerificationStateEntry)
        return guard

    def verified(self, guard: VerificationStateEntry | None, *, epoch: int = 0, pid: int = 1) -> ErrorCode:
        return self.state.check_verified(pid, epoch, guard)


@pytest.fixture
def world() -> World:
    return World()


def test_producer_without_state_may_begin_anywhere(world: World) -> None:
    """B32: what retention or deletion of records forgot does not stop a live producer."""
    assert world.check(1234) is None


def test_sequences_follow_each_other(world: World) -> None:
    world.append(0, 5)
    assert world.check(5) is None
    assert world.check(6) is OUT_OF_ORDER
    assert world.check(0) is OUT_OF_ORDER, "neither next nor the batch that was appended"


def test_sequences_wrap_to_zero(world: World) -> None:
    world.append(MAX_SEQUENCE - 1, 2)
    assert world.check(0) is None
    assert world.check(1) is OUT_OF_ORDER


def test_batch_may_contain_the_wrap(world: World) -> None:
    world.append(MAX_SEQUENCE - 1, 4)
    assert world.check(2) is None
    assert world.check(MAX_SEQUENCE - 1, 4) == BatchMetadata(MAX_SEQUENCE - 1, 1, 0, 3, 1000)


def test_duplicates_of_the_last_five_batches_are_recognised(world: World) -> None:
    """B34: a retry gets the original offset or is refused, never appended again."""
    for sequence in range(0, 14, 2):
        world.append(sequence, 2)
    for sequence in (4, 6, 8, 10, 12):
        duplicate = world.check(sequence, 2)
        assert isinstance(duplicate, BatchMetadata)
        assert (duplicate.first_offset, duplicate.last_offset) == (sequence, sequence + 1)
    assert world.check(2, 2) is OUT_OF_ORDER
    assert world.check(12, 1) is OUT_OF_ORDER, "the same beginning is not the same batch"


def test_new_epoch_begins_at_zero(world: World) -> None:
    world.append(0, 3, epoch=4)
    assert world.check(3, epoch=5) is OUT_OF_ORDER
    assert world.check(0, epoch=5) is None
    world.append(0, epoch=5)
    assert world.check(0, epoch=4) is FENCED
    assert world.check(0, 3, epoch=4) is FENCED, "batches of an older epoch are no duplicates"


def test_producer_of_which_only_a_marker_is_known(world: World) -> None:
    world.end_txn(epoch=3)
    assert world.check(0, epoch=3) is None
    assert world.check(1, epoch=3) is OUT_OF_ORDER
    assert world.check(1, epoch=4) is OUT_OF_ORDER
    assert world.check(0, epoch=2) is FENCED


def test_coordinator_has_epochs_but_no_sequences(world: World) -> None:
    world.append(-1, 2, epoch=4, txn=True)
    assert world.check(-1, 2, epoch=4, txn=True, origin=COORDINATOR) is None
    assert world.check(-1, epoch=3, txn=True, origin=COORDINATOR) is FENCED


def test_transaction_is_not_interrupted_by_other_batches(world: World) -> None:
    world.append(0, txn=True)
    assert world.check(1) is ErrorCode.INVALID_TXN_STATE
    assert world.check(1, txn=True) is None
    world.end_txn()
    assert world.check(1) is None


def test_markers_are_fenced_by_both_epochs(world: World) -> None:
    world.end_txn(epoch=3, coordinator_epoch=7)
    assert world.check_marker(epoch=2, coordinator_epoch=9) is FENCED
    assert world.check_marker(epoch=3, coordinator_epoch=6) is ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert world.check_marker(epoch=3, coordinator_epoch=7) is None
    assert world.check_marker(epoch=4, coordinator_epoch=8) is None


@pytest.mark.parametrize("version", [0, 1])
def test_up_to_version_1_a_marker_has_the_epoch_of_its_transaction(world: World, version: int) -> None:
    world.append(0, epoch=3, txn=True)
    assert world.check_marker(epoch=2, version=version) is FENCED
    assert world.check_marker(epoch=3, version=version) is None
    assert world.check_marker(epoch=4, version=version) is None


def test_marker_of_version_2_needs_a_newer_epoch_than_its_transaction(world: World) -> None:
    """B06: one with the present epoch is meant for a transaction before this one."""
    world.append(0, epoch=3, txn=True)
    assert world.check_marker(epoch=2, version=2) is FENCED
    assert world.check_marker(epoch=3, version=2) is FENCED
    assert world.check_marker(epoch=4, version=2) is None


def test_retried_marker_of_version_2_finds_its_transaction_ended(world: World) -> None:
    """B07: success, as long as the next transaction has not begun; after that it is refused and ends nothing."""
    world.append(0, epoch=3, txn=True)
    world.end_txn(epoch=4)
    assert world.check_marker(epoch=4, version=2) is None
    assert world.check_marker(epoch=3, version=2) is FENCED
    world.append(0, epoch=4, txn=True)
    assert world.check_marker(epoch=4, version=2) is FENCED


def test_transaction_of_epoch_32767_can_be_ended(world: World) -> None:
    """B24: no epoch is newer, so its own ends it."""
    world.append(0, epoch=32_767, txn=True)
    assert world.check_marker(epoch=32_767, version=2) is None
    assert world.check_marker(epoch=32_766, version=2) is FENCED


def test_epoch_32767_in_a_log_is_recoverable(world: World) -> None:
    """B24: whatever the log has is taken, the largest epoch included."""
    world.append(0, epoch=32_767, txn=True)
    assert world.end_txn(epoch=32_767) is not None
    world.snapshot()
    world.restart()
    assert world.state.producers[1].producer_epoch == 32_767
    assert world.check(1, epoch=32_767) is None


def test_empty_transaction_completes_nothing(world: World) -> None:
    world.append(0)
    assert world.end_txn(commit=False) is None


def test_first_unstable_offset(world: World) -> None:
    assert world.state.transactions.first_unstable_offset is None
    world.append(0)
    first = world.append(0, pid=2, txn=True)
    second = world.append(0, pid=3, txn=True)
    assert world.state.transactions.first_unstable_offset == first
    world.end_txn(pid=2)
    assert world.state.transactions.first_unstable_offset == first, "the marker is not replicated yet"
    assert world.state.transactions.first_undecided_offset == second
    world.state.transactions.on_high_watermark(world.end - 1)
    assert world.state.transactions.first_unstable_offset == first, "the high watermark is still before the marker"
    world.state.transactions.on_high_watermark(world.end)
    assert world.state.transactions.first_unstable_offset == second
    world.end_txn(pid=3)
    world.state.transactions.on_high_watermark(world.end)
    assert world.state.transactions.first_unstable_offset is None


def test_last_stable_offset_of_an_index_entry_is_that_of_the_others(world: World) -> None:
    world.append(0, pid=1, txn=True)
    second = world.append(0, pid=2, txn=True)
    completed = world.end_txn(pid=1, commit=False)
    assert completed is not None
    assert completed.aborted
    assert world.index.entries()[0].last_stable_offset == second
    completed = world.end_txn(pid=2, commit=False)
    assert completed is not None
    assert world.index.entries()[1].last_stable_offset == world.end


def test_idle_producers_expire(world: World) -> None:
    world.append(0, pid=1)
    world.now_ms += 500
    world.append(0, pid=2)
    world.now_ms += 500
    assert world.state.expire(world.now_ms, 0) == 1
    assert set(world.state.producers) == {2}


def test_old_timestamps_do_not_expire_a_producer(world: World) -> None:
    """B34: records about the distant past come from a producer that is alive."""
    world.append(0)
    assert world.state.producers[1].last_timestamp < world.now_ms - 10 * 1000
    assert world.state.expire(world.now_ms + 999, 0) == 0


def test_producer_with_an_open_transaction_does_not_expire(world: World) -> None:
    """B33."""
    world.append(0, txn=True)
    assert world.state.expire(world.now_ms + 10**9, 0) == 0
    world.end_txn()
    assert world.state.expire(world.now_ms + 10**9, 0) == 1


def test_marker_counts_as_activity(world: World) -> None:
    """B31: a producer is not forgotten, and with it the coordinator epoch, soon after its transaction ended."""
    world.append(0, txn=True)
    world.now_ms += 2000
    world.end_txn(coordinator_epoch=5)
    assert world.state.expire(world.now_ms + 999, 0) == 0
    assert world.check_marker(epoch=0, coordinator_epoch=4) is ErrorCode.TRANSACTION_COORDINATOR_FENCED


def test_first_batch_of_a_transaction_is_verified_and_later_ones_are_not(world: World) -> None:
    guard = world.guard()
    assert world.verified(guard) is ErrorCode.NONE
    world.append(0, txn=True)
    assert world.start(1) is None
    assert world.verified(None) is ErrorCode.NONE


def test_zombie_is_fenced_before_any_verification(world: World) -> None:
    """B09."""
    world.append(0, epoch=4)
    assert world.start(epoch=3) is FENCED
    assert world.state.check_verified(1, 3, None) is FENCED


@pytest.mark.parametrize("commit", [True, False])
def test_marker_between_verification_and_append_invalidates_the_guard(world: World, commit: bool) -> None:
    """B04: the transaction that was asked about is over."""
    guard = world.guard()
    world.end_txn(commit=commit)
    assert world.verified(guard) is ErrorCode.INVALID_TXN_STATE
    assert world.verified(world.guard()) is ErrorCode.NONE


def test_guard_is_not_taken_for_that_of_the_next_transaction(world: World) -> None:
    """B04: a response that comes when another verification is under way says nothing about that one."""
    old = world.guard()
    world.end_txn()
    new = world.guard()
    assert world.verified(old) is ErrorCode.INVALID_TXN_STATE
    assert world.verified(new) is ErrorCode.NONE


def test_batch_that_needed_no_verification_needs_its_transaction_to_last(world: World) -> None:
    """B04: it was open when the batch came; a marker ended it while another was asked about."""
    world.append(0, txn=True)
    assert world.start(1) is None
    world.end_txn()
    assert world.verified(None) is ErrorCode.INVALID_TXN_STATE


def test_newer_epoch_takes_the_guard_away_and_fences(world: World) -> None:
    """B08: the older producer learns that it is fenced, not that its transaction is broken."""
    old = world.guard(epoch=4)
    new = world.guard(epoch=5)
    assert world.verified(old, epoch=4) is FENCED
    assert world.verified(new, epoch=5) is ErrorCode.NONE
    world.append(0, epoch=5, txn=True)
    world.end_txn(epoch=5)
    assert world.verified(old, epoch=4) is FENCED


def test_losing_leadership_takes_the_guards_away(world: World) -> None:
    guard = world.guard()
    world.state.forget_undecided()
    assert world.verified(guard) is ErrorCode.INVALID_TXN_STATE


def test_guard_outlives_the_markers_of_other_producers(world: World) -> None:
    guard = world.guard(pid=1)
    world.append(0, pid=2, txn=True)
    world.end_txn(pid=2)
    assert world.verified(guard) is ErrorCode.NONE


@pytest.mark.parametrize("adds", [False, True])
def test_marker_of_version_2_leaves_the_guard_of_the_next_transaction(world: World, adds: bool) -> None:
    """Its epoch is the next transaction's: that one waits for its predecessor, not for itself."""
    world.append(0, epoch=3, txn=True)
    guard = world.guard(epoch=4, adds=adds)
    world.end_txn(epoch=4, version=2)
    assert world.verified(guard, epoch=4) is ErrorCode.NONE
    world.end_txn(epoch=5, version=2)
    assert world.verified(guard, epoch=4) is FENCED


@pytest.mark.parametrize(("epoch", "version"), [(4, 0), (MAX_EPOCH, 2)])
def test_marker_that_may_be_of_this_transaction_takes_the_guard_away(world: World, epoch: int, version: int) -> None:
    """B11: version 1 does not bump the epoch, however its batches came, and above the last epoch there is none."""
    guard = world.guard(epoch=epoch, adds=True)
    world.end_txn(epoch=epoch, version=version)
    assert world.verified(guard, epoch=epoch) is ErrorCode.INVALID_TXN_STATE


@pytest.mark.parametrize("version", [0, 2])
def test_marker_of_an_older_epoch_leaves_the_guard_alone(world: World, version: int) -> None:
    world.append(0, epoch=2, txn=True)
    guard = world.guard(epoch=4)
    world.end_txn(epoch=3, version=version)
    assert world.verified(guard, epoch=4) is ErrorCode.NONE


def test_batch_does_not_slip_in_before_one_that_was_refused_undecided(world: World) -> None:
    """B85: the lowest sequence that was asked about comes first."""
    world.guard(3)
    world.guard(0)
    world.guard(2)
    assert world.check(2, txn=True) is OUT_OF_ORDER
    assert world.check(0, txn=True) is None
    world.append(0, txn=True)
    assert world.check(1, txn=True) is None


def test_newer_epoch_begins_its_sequences_anew(world: World) -> None:
    world.guard(0, epoch=3)
    world.guard(7, epoch=4)
    assert world.check(7, epoch=4, txn=True) is None
    assert world.check(8, epoch=4, txn=True) is OUT_OF_ORDER
    world.guard(0, epoch=3)
    assert world.check(7, epoch=4, txn=True) is None, "an older epoch has no say"


def test_unknown_producer_of_version_2_begins_at_sequence_zero(world: World) -> None:
    world.guard(1, pid=1, adds=True)
    assert world.check(1, pid=1, txn=True) is OUT_OF_ORDER
    world.guard(0, pid=2, adds=True)
    assert world.check(0, pid=2, txn=True) is None
    world.end_txn(pid=3, epoch=5)
    world.guard(1, pid=3, epoch=5, adds=True)
    assert world.check(1, pid=3, epoch=5, txn=True) is OUT_OF_ORDER, "a marker says nothing about sequences"
    world.guard(1, pid=4, adds=False)
    assert world.check(1, pid=4, txn=True) is None, "version 1 may begin anywhere"


def test_offsets_have_no_sequences_to_check(world: World) -> None:
    world.guard(-1, adds=True)
    assert world.check(-1, txn=True, origin=COORDINATOR) is None


def test_guards_of_verifications_that_were_never_decided_expire(world: World) -> None:
    guard = world.guard()
    world.now_ms += 999
    world.state.expire(world.now_ms, 0)
    assert world.verified(guard) is ErrorCode.NONE
    world.now_ms += 1
    world.state.expire(world.now_ms, 0)
    assert world.verified(guard) is ErrorCode.INVALID_TXN_STATE


def test_guards_of_too_many_producers_drop_the_oldest(world: World) -> None:
    first, second = world.guard(pid=1), world.guard(pid=2)
    for pid in range(3, 10_002):
        world.guard(pid=pid)
    assert world.verified(first, pid=1) is ErrorCode.INVALID_TXN_STATE
    assert world.verified(second, pid=2) is ErrorCode.NONE


def entry(producer_id: int, epoch: int, *, coordinator_epoch: int = -1, txn: int | None = None) -> ProducerStateEntry:
    found = ProducerStateEntry(producer_id, epoch)
    found.coordinator_epoch, found.txn_first_offset, found.last_timestamp = coordinator_epoch, txn, 1700
    return found


def test_snapshot_bytes_are_those_of_kafka() -> None:
    with_batch = entry(7, 3, coordinator_epoch=2, txn=95)
    with_batch.batches.append(BatchMetadata(10, 14, 96, 100, 1700))
    data = encode_snapshot([with_batch, entry(8, 0)])
    assert data.hex() == (
        "0001"  # version
        "27d9557d"  # CRC-32C of the rest
        "00000002"
        "0000000000000007 0003 0000000e 0000000000000064 00000004 00000000000006a4 00000002 000000000000005f"
        "0000000000000008 0000 ffffffff ffffffffffffffff 00000000 00000000000006a4 ffffffff ffffffffffffffff"
    ).replace(" ", "")
    first, second = decode_snapshot(data)
    assert (first.producer_id, first.producer_epoch, first.coordinator_epoch, first.txn_first_offset) == (7, 3, 2, 95)
    assert first.batches == with_batch.batches
    assert (second.producer_id, second.batches, second.txn_first_offset) == (8, [], None)


def test_producer_of_a_snapshot_may_have_aborted() -> None:
    """B111: the file does not say how its last transaction has ended."""
    (restored,) = decode_snapshot(encode_snapshot([entry(7, 3)]))
    assert restored.aborted_epoch == restored.producer_epoch == 3


def test_broken_snapshots_are_recognised() -> None:
    good = encode_snapshot([entry(7, 3)])
    bad = [good[:size] for size in range(len(good))]
    bad += [good[:place] + bytes([good[place] ^ 1]) + good[place + 1 :] for place in range(len(good))]
    for data in bad:
        with pytest.raises(CorruptSnapshot):
            decode_snapshot(data)


def test_snapshot_brings_back_epochs_sequences_and_transactions(world: World) -> None:
    world.append(0, 3, pid=1, epoch=2)
    world.append(3, 2, pid=1, epoch=2)
    first = world.append(0, pid=2, txn=True)
    world.end_txn(pid=3, epoch=9, coordinator_epoch=4)
    assert world.snapshot() == f"/{world.end:020}.snapshot"
    assert world.snapshot() is None, "there is one"
    world.restart()
    assert world.state.map_end_offset == world.end
    assert world.state.transactions.first_unstable_offset == first
    assert isinstance(world.check(3, 2, epoch=2), BatchMetadata)
    assert world.check(0, 3, epoch=2) is OUT_OF_ORDER, "a snapshot has the last batch only"
    assert world.check(5, epoch=2) is None
    assert world.state.producers[3].coordinator_epoch == 4
    assert world.end_txn(pid=2) is not None


def test_best_snapshot_is_the_latest_that_is_whole(world: World) -> None:
    for sequence in range(3):
        world.append(sequence)
        world.snapshot()
    assert world.snapshots.offsets == (1, 2, 3)
    world.disk.write_atomic("/00000000000000000002.snapshot", b"torn")
    state = world.new_state()
    world.snapshots.restore(state, 0, 2)
    assert state.map_end_offset == 1
    assert world.snapshots.offsets == (1, 3)
    world.snapshots.truncate(1)
    assert world.snapshots.offsets == (1,)
    world.snapshots.restore(state, 2, 9)
    assert (state.map_end_offset, state.producers) == (2, {})


def test_stray_snapshots_go_except_the_one_at_the_end(world: World) -> None:
    for sequence in range(5):
        world.append(sequence)
        world.snapshot()
    world.snapshots.remove_strays([2, 3])
    assert world.snapshots.offsets == (2, 3, 5)
    world.snapshots.remove_strays([2, 5, 6])
    assert world.snapshots.offsets == (2, 5)
    assert world.disk.list_dir("/") == ["00000000000000000002.snapshot", "00000000000000000005.snapshot"]
