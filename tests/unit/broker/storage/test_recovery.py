"""Any history of a log, cut anywhere, comes back as what its batches add up to.

A *history* is a list of steps (appends of several kinds, rolls, truncations, flushes, restarts) applied to a log and,
in parallel, to a model: a plain list of batches. What a log must be follows from the model's batches alone.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from oncelog.broker.storage.log_config import LogConfig
from oncelog.broker.storage.partition_log import AppendInfo, AppendOrigin, PartitionLog
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.records.record_batch import patch_offset_and_epoch, read_header
from tests.simulation.sim_disk import MachineStopped, SimDisk
from tests.unit.broker.batches import batch, marker
from tests.unit.broker.storage.logs import (
    DIRECTORY,
    append,
    content,
    must_append,
    new_disk,
    offset_for_timestamp,
    open_log,
    producers,
    read,
)

CONFIG = LogConfig(segment_bytes=900, index_interval_bytes=150)
PRODUCERS = 3


@dataclass(slots=True)
class Model:
    """What the log must contain: batches with stamped offsets, and the sequence that each producer is at."""

    batches: list[bytes] = field(default_factory=list)
    epoch: int = 0

    @property
    def end(self) -> int:
        return read_header(self.batches[-1]).next_offset if self.batches else 0

    def truncate(self, offset: int) -> None:
        while self.batches and read_header(self.batches[-1]).next_offset > offset:
            self.batches.pop()

    def rebuild(self) -> PartitionLog:
        """A fresh log that got exactly these batches, without a restart."""
        log = open_log(new_disk(), LogConfig())
        for data in self.batches:
            assert isinstance(log.append_as_follower(data), AppendInfo)
        log.update_high_watermark(log.log_end_offset)
        return log


class History:
    """Applies steps to a log and its model."""

    def __init__(self, disk: SimDisk) -> None:
        self.disk = disk
        self.model = Model()
        self.checkpointed = 0
        self.log = self.open()

    def open(self, *, clean: bool = False) -> PartitionLog:
        log = open_log(self.disk, CONFIG, recovery_point=self.checkpointed, clean_shutdown=clean)
        log.on_checkpoints_lowered = self._checkpoint
        return log

    def _checkpoint(self, log: PartitionLog) -> None:
        """What the log manager does, durably."""
        self.checkpointed = log.flush_state.checkpointed_recovery_point = log.recovery_point

    def step(self, kind: str, number: int) -> None:
        getattr(self, f"do_{kind}")(number)

    def _append(self, data: bytearray, origin: AppendOrigin) -> None:
        info = append(self.log, data, self.model.epoch, origin)
        assert isinstance(info, AppendInfo), info
        assert not info.duplicate
        assert info.base_offset == self.model.end
        self.model.batches.append(bytes(data))

    def do_plain(self, number: int) -> None:
        values = [b"p" * (number % 120)] * (1 + number % 3)
        self._append(batch(*values, timestamp=1000 + number * 7 % 100), AppendOrigin.CLIENT)

    def do_idempotent(self, number: int) -> None:
        self._produce(number % PRODUCERS, number, transactional=False)

    def do_transactional(self, number: int) -> None:
        self._produce(100 + number % PRODUCERS, number, transactional=True)

    def _produce(self, producer_id: int, number: int, *, transactional: bool) -> None:
        entry = self.log.producer_state.producers.get(producer_id)
        sequence = 0 if entry is None else entry.last_sequence + 1
        epoch = 0 if entry is None else entry.producer_epoch
        data = batch(
            *[b"i" * (number % 90)] * (1 + number % 2),
            producer_id=producer_id,
            epoch=epoch,
            sequence=sequence,
            transactional=transactional,
        )
        self._append(data, AppendOrigin.CLIENT)

    def do_end(self, number: int) -> None:
        producer_id = 100 + number % PRODUCERS
        entry = self.log.producer_state.producers.get(producer_id)
        epoch = 0 if entry is None else entry.producer_epoch + number % 2
        data = marker(producer_id, epoch, commit=number % 3 == 0, coordinator_epoch=1)
        self._append(data, AppendOrigin.COORDINATOR)

    def do_new_epoch(self, number: int) -> None:
        self.model.epoch += 1
        self.log.assign_epoch(self.model.epoch)

    def do_roll(self, number: int) -> None:
        self.log.roll()

    def do_truncate(self, number: int) -> None:
        offset = self.model.end * (number % 10) // 10
        self.log.truncate_to(offset)
        self.model.truncate(offset)
        self.model.epoch += 1  # Logs are truncated because another broker led.

    def do_high_watermark(self, number: int) -> None:
        self.log.update_high_watermark(max(self.log.high_watermark, self.log.log_end_offset * (number % 5) // 4))

    def do_flush(self, number: int) -> None:
        self.log.flush()

    def do_flush_closed(self, number: int) -> None:
        with pytest.raises(StopIteration):  # On this disk nothing waits.
            self.log.flush_closed_segments_off_loop().send(None)

    def do_flush_batches(self, number: int) -> None:
        with pytest.raises(StopIteration):
            self.log.flush_off_loop().send(None)

    def do_checkpoint(self, number: int) -> None:
        self._checkpoint(self.log)

    def do_restart(self, number: int) -> None:
        high_watermark = self.log.high_watermark
        self.log.close()
        self.checkpointed = self.log.recovery_point
        self.log = self.open(clean=True)
        self.log.update_high_watermark(min(high_watermark, self.log.log_end_offset))

    def do_kill(self, number: int) -> None:
        high_watermark = self.log.high_watermark
        self.disk.crash("process", Random(number))
        self.log = self.open()
        self.log.update_high_watermark(min(high_watermark, self.log.log_end_offset))


STEPS = sorted(name.removeprefix("do_") for name in dir(History) if name.startswith("do_"))
APPENDS = ["plain", "idempotent", "transactional", "transactional", "end"]
histories = st.lists(st.tuples(st.sampled_from(STEPS + APPENDS * 4), st.integers(0, 1000)), min_size=1, max_size=50)


def must_equal(log: PartitionLog, expected: PartitionLog) -> None:
    """The log is what an untouched log with the same batches is."""
    assert log.log_end_offset == expected.log_end_offset
    assert content(log) == content(expected)
    assert producers(log) == producers(expected)
    for entry in log.producer_state.producers.values():
        kept = expected.producer_state.producers[entry.producer_id].batches
        assert entry.batches == kept[len(kept) - len(entry.batches) :]
    assert (
        log.producer_state.transactions.first_undecided_offset
        == expected.producer_state.transactions.first_undecided_offset
    )
    aborted = [log.aborted_transactions(offset, log.log_end_offset) for offset in range(log.log_end_offset)]
    assert aborted == [
        expected.aborted_transactions(offset, log.log_end_offset) for offset in range(log.log_end_offset)
    ]
    with_data = [entry for entry in log.epochs.entries if entry.start_offset < log.log_end_offset]
    assert with_data == expected.epochs.entries
    for timestamp in range(990, 1110, 13):
        assert offset_for_timestamp(log, timestamp) == offset_for_timestamp(expected, timestamp)
    for offset in range(0, log.log_end_offset, 3):
        assert read_header(read(log, offset, 200).records).base_offset <= offset


@settings(max_examples=120)
@example([("idempotent", 0), ("idempotent", 3), ("truncate", 5)])
@given(histories)
def test_log_is_what_its_batches_add_up_to(steps: list[tuple[str, int]]) -> None:
    """B37: whatever happened, truncations included, state equals a rebuild from the log."""
    history = History(new_disk())
    for kind, number in steps:
        history.step(kind, number)
    log, expected = history.log, history.model.rebuild()
    must_equal(log, expected)
    assert log.log_start_offset <= log.last_stable_offset <= log.high_watermark <= log.log_end_offset
    log.update_high_watermark(log.log_end_offset)
    assert log.last_stable_offset == expected.last_stable_offset
    must_equal(reopened(history), expected)


def reopened(history: History) -> PartitionLog:
    """After the end of the process; and once more, after a clean one."""
    history.do_kill(0)
    history.do_restart(0)
    return history.log


def run_until_stopped(disk: SimDisk, steps: list[tuple[str, int]], units: int) -> tuple[History, bool]:
    history = History(disk)
    disk.stop_after(units)
    try:
        for kind, number in steps:
            history.step(kind, number)
    except MachineStopped:
        return history, True
    return history, False


@settings(max_examples=120)
@given(histories, st.integers(0, 6000))
def test_process_that_ends_anywhere_loses_nothing_that_was_acknowledged(
    steps: list[tuple[str, int]], units: int
) -> None:
    disk = new_disk()
    history, _ = run_until_stopped(disk, steps, units)
    acknowledged = history.model
    disk.crash("process", Random(units))
    log = history.open()
    before = Model(list(acknowledged.batches))
    adopt_what_was_in_flight(log, before, disk)
    assert before.batches[: len(acknowledged.batches)] == acknowledged.batches or "truncate" in dict(steps)
    must_equal(log, before.rebuild())
    goes_on(log)


def adopt_what_was_in_flight(log: PartitionLog, model: Model, disk: SimDisk) -> None:
    """One batch, or one truncation, may have been carried out without being told."""
    found = stored_batches(log)
    assert found[: len(model.batches)] == model.batches or model.batches[: len(found)] == found
    assert len(found) <= len(model.batches) + 1
    model.batches[:] = found


def stored_batches(log: PartitionLog) -> list[bytes]:
    return [
        bytes(memoryview(found.buffer)[found.at : found.at + found.header.size])
        for segment in log.segments
        for found in segment.scan()
    ]


def goes_on(log: PartitionLog) -> None:
    """The log takes appends where it ends."""
    end = log.log_end_offset
    assert must_append(log, batch(b"after"), 10_000).base_offset == end


_TRUNCATED_BELOW_ITS_CHECKPOINT = [
    *[
        ("kill", 0),
        ("end", 0),
        ("end", 0),
        ("end", 0),
        ("idempotent", 1),
        ("plain", 2),
        ("restart", 0),
        ("truncate", 0),
    ],
    *[("end", 0), ("end", 0), ("end", 0), ("end", 0), ("flush", 0), ("idempotent", 12), ("plain", 113), ("end", 0)],
]


@settings(max_examples=250)
@example(_TRUNCATED_BELOW_ITS_CHECKPOINT, 0, 3_053_647_137)
@given(histories, st.integers(0, 8000), st.integers(0, 2**32))
def test_log_after_a_power_loss_is_a_prefix_of_what_it_was(steps: list[tuple[str, int]], units: int, seed: int) -> None:
    """Whatever the medium kept, the log loads, holds a prefix that includes all that was flushed, and goes on."""
    disk = new_disk()
    history, _ = run_until_stopped(disk, steps, units)
    flushed = [data for data in history.model.batches if read_header(data).next_offset <= history.log.flushed_offset]
    disk.crash("power", Random(seed))
    log = history.open()
    found = stored_batches(log)
    assert found[: len(flushed)] == flushed or "truncate" in dict(steps)
    must_equal(log, Model(found).rebuild())
    goes_on(log)


# Particular crashes


def filled(disk: SimDisk, count: int = 20) -> PartitionLog:
    log = open_log(disk, CONFIG)
    for number in range(count):
        must_append(log, batch(b"v" * 60, producer_id=5, epoch=0, sequence=number))
    return log


def damage(disk: SimDisk, path: str, change: Callable[[bytes], bytes]) -> None:
    disk.write_atomic(path, change(disk.read(path)))


@pytest.mark.parametrize(
    "change",
    [
        lambda data: data[:-1],
        lambda data: data + b"\0",
        lambda data: data + bytes(200),
        lambda data: data[:-30] + bytes(30),
        lambda data: data[: len(data) // 2] + bytes(len(data) // 2),
        lambda data: b"",
        lambda data: bytes(len(data)),
        lambda data: b"\xff" * len(data),
    ],
)
def test_damaged_tail_is_cut_off(change: Callable[[bytes], bytes]) -> None:
    disk = new_disk()
    log = filled(disk)
    whole = stored_batches(log)
    path = log.segments.active.path(".log")
    log.close()
    damage(disk, path, change)
    again = open_log(disk, CONFIG)
    found = stored_batches(again)
    assert found == whole[: len(found)]
    must_equal(again, Model(found).rebuild())
    sequence = again.producer_state.producers[5].last_sequence + 1
    info = must_append(again, batch(producer_id=5, epoch=0, sequence=sequence))
    assert info.base_offset == len(found)


def test_damage_in_an_unflushed_segment_removes_what_follows() -> None:
    disk = new_disk()
    log = filled(disk, 40)
    assert len(log.segments) > 3
    path, base = log.segments[1].path(".log"), log.segments[1].base_offset
    log.close()
    damage(disk, path, lambda data: data[:200])
    again = open_log(disk, CONFIG)
    assert base < again.log_end_offset < base + 4
    assert len(again.segments) == 2
    assert not [name for name in disk.list_dir(DIRECTORY) if int(name[:20] if name[0].isdigit() else 0) > base + 4]


def test_hole_between_unflushed_segments_ends_the_log() -> None:
    disk = new_disk()
    log = filled(disk, 40)
    first_end = log.segments[1].base_offset
    log.close()
    disk.remove(f"{DIRECTORY}/{first_end:020}.log")
    assert open_log(disk, CONFIG).log_end_offset == first_end


def test_damage_below_the_recovery_point_removes_nothing_that_follows() -> None:
    disk = new_disk()
    log = filled(disk, 40)
    end, path = log.log_end_offset, log.segments[0].path(".index")
    log.close()
    disk.remove(path)
    again = open_log(disk, CONFIG, recovery_point=end, clean_shutdown=True)
    assert again.log_end_offset == end
    assert disk.exists(path) is False
    assert len(content(again)) == end


EMPTIED: Callable[[bytes], bytes] = lambda data: b""  # noqa: E731
SHORTENED: Callable[[bytes], bytes] = lambda data: data[:-1]  # noqa: E731
GARBLED: Callable[[bytes], bytes] = lambda data: b"\x07" * len(data)  # noqa: E731
AFTER_A_CRASH = [
    (ending, change, False)
    for ending in (".index", ".timeindex", ".txnindex", ".snapshot", "checkpoint")
    for change in (EMPTIED, SHORTENED, GARBLED)
]
AFTER_A_CLEAN_SHUTDOWN = [
    (".index", EMPTIED, True),
    (".index", SHORTENED, True),
    (".index", GARBLED, True),
    (".timeindex", SHORTENED, True),
    (".txnindex", SHORTENED, True),
    (".txnindex", GARBLED, True),
    (".snapshot", EMPTIED, True),
    (".snapshot", GARBLED, True),
    ("checkpoint", EMPTIED, True),
    ("checkpoint", GARBLED, True),
]


@pytest.mark.parametrize(("ending", "change", "clean"), AFTER_A_CRASH + AFTER_A_CLEAN_SHUTDOWN)
def test_files_that_can_be_derived_are_derived(ending: str, change: Callable[[bytes], bytes], clean: bool) -> None:
    disk = new_disk()
    history = History(disk)
    for number in range(60):
        history.step(("transactional", "end", "idempotent", "plain", "new_epoch")[number % 5], number)
    end = history.log.log_end_offset
    expected = history.model.rebuild()
    history.log.close()
    for name in disk.list_dir(DIRECTORY):
        if name.endswith(ending):
            damage(disk, f"{DIRECTORY}/{name}", change)
    log = open_log(disk, CONFIG, recovery_point=end if clean else 0, clean_shutdown=clean)
    must_equal(log, expected)


def test_checkpoint_beyond_the_log_empties_it() -> None:
    disk = new_disk()
    filled(disk).close()
    log = open_log(disk, CONFIG, log_start_offset=500)
    assert (log.log_start_offset, log.log_end_offset, len(log.segments)) == (500, 500, 1)
    assert producers(log) == {}
    goes_on(log)


def test_leftovers_are_removed() -> None:
    disk = new_disk()
    filled(disk).close()
    before = disk.list_dir(DIRECTORY)
    for name in ("00000000000000000000.log.cleaned", "00000000000000000000.log.deleted", "leader-epoch-checkpoint.tmp"):
        disk.write_atomic(f"{DIRECTORY}/{name}", b"x")
    disk.write_atomic(f"{DIRECTORY}/00000000000000000099.index", b"")
    open_log(disk, CONFIG, recovery_point=20, clean_shutdown=True)
    assert disk.list_dir(DIRECTORY) == before


@pytest.mark.parametrize("flushes", [False, True])
async def test_epochs_are_found_whatever_their_file_says(flushes: bool, caplog: pytest.LogCaptureFixture) -> None:
    """B53: a leader epoch costs no write when it begins, and a crash forgets none that has batches."""
    disk = new_disk()
    log = open_log(disk, CONFIG)
    name = f"{DIRECTORY}/leader-epoch-checkpoint"
    for epoch in (1, 4):
        log.assign_epoch(epoch)
        must_append(log, batch(b"v" * 100), epoch)
        assert not disk.exists(name)
    if flushes:
        log.roll()
        await log.flush_closed_segments_off_loop()
        assert disk.read(name) == b"0\n2\n1 0\n4 1\n"
    must_append(log, batch(b"v" * 100), 6)
    log.assign_epoch(9)
    disk.crash("process", Random(0))
    again = open_log(disk, CONFIG, recovery_point=log.recovery_point)
    assert again.recovery_point == (2 if flushes else 0)
    assert again.epochs.entries == [(1, 0), (4, 1), (6, 2)]
    assert not caplog.records
    again.close()
    assert disk.read(name) == b"0\n3\n1 0\n4 1\n6 2\n"


async def test_epoch_file_that_cannot_be_written_keeps_the_recovery_point() -> None:
    disk = new_disk()
    log = open_log(disk, CONFIG)
    must_append(log, batch(), 5)
    log.roll()
    disk.fail("append", "checkpoint.tmp")
    await log.flush_closed_segments_off_loop()
    assert (log.failed, log.recovery_point) == (True, 0)


def test_older_history_that_comes_back_is_recognised_by_its_epoch() -> None:
    disk = new_disk()
    log = open_log(disk, LogConfig())
    must_append(log, batch(b"a" * 100), 1)
    must_append(log, batch(b"old" * 40), 2)
    log.truncate_to(1)
    must_append(log, batch(b"b" * 120), 3)
    must_append(log, batch(b"c" * 10), 3)
    disk.crash("process", Random(0))
    phantom = batch(b"phantom")
    patch_offset_and_epoch(phantom, 0, 3, 2)
    disk.open(f"{DIRECTORY}/{0:020}.log").append((phantom,))
    assert open_log(disk, LogConfig()).log_end_offset == 3


def test_snapshot_of_another_history_is_not_trusted() -> None:
    """B37: one that was removed by a truncation may come back after a power loss."""
    disk, other = new_disk(), new_disk()
    log = filled(disk)
    before, offset = producers(log), log.segments[1].base_offset
    stranger = open_log(other, CONFIG)
    for number in range(offset):
        must_append(stranger, batch(producer_id=99, epoch=7, sequence=number))
    stranger.roll()
    stranger.flush()
    disk.crash("process", Random(0))
    name = f"{DIRECTORY}/{offset:020}.snapshot"
    disk.write_atomic(name, other.read(name))
    log = open_log(disk, CONFIG)
    assert producers(log) == before
    log.truncate_to(offset + 2)
    assert producers(log) == {5: (0, offset + 1, offset + 1, -1, None)}


def test_truncated_batches_do_not_come_back() -> None:
    for seed in range(20):
        disk = new_disk()
        log = filled(disk, 40)
        log.flush()
        removed = [path for segment in list(log.segments)[2:] for path in segment.paths()]
        log.truncate_to(log.segments[1].base_offset + 1)
        disk.crash("power", Random(seed))
        assert not [path for path in removed if disk.exists(path)]


def test_flush_after_a_truncation_covers_the_segment_that_was_cut() -> None:
    for seed in range(20):
        disk = new_disk()
        log = filled(disk)
        log.flush()
        offset = log.segments[1].base_offset + 2
        log.truncate_to(offset)
        cut = log.segments[1]
        assert cut is log.segments.active
        log.roll()
        must_append(log, batch(b"new"))
        with pytest.raises(StopIteration):
            log.flush_off_loop().send(None)
        assert log.flushed_offset == log.log_end_offset == offset + 1
        disk.crash("power", Random(seed))
        assert disk.file_size(cut.path(".log")) == cut.size


def test_segment_ends_where_the_next_one_begins() -> None:
    disk = new_disk()
    log = filled(disk)
    stale = batch(b"stale", producer_id=5, epoch=0, sequence=7)
    patch_offset_and_epoch(stale, 0, log.segments[1].base_offset, 0)
    whole = stored_batches(log)
    disk.crash("process", Random(0))
    disk.open(log.segments[0].path(".log")).append((stale,))
    assert stored_batches(open_log(disk, CONFIG)) == whole


def test_batches_that_recovery_cuts_off_do_not_come_back() -> None:
    for seed in range(20):
        disk = new_disk()
        log = filled(disk, 3)
        file = log.segments.active.file
        file.append((bytes(300),))
        file.sync()
        disk.sync_dir(DIRECTORY)
        disk.crash("process", Random(0))
        size = open_log(disk, CONFIG).size
        disk.crash("power", Random(seed))
        assert disk.file_size(f"{DIRECTORY}/{0:020}.log") == size


def test_clean_restart_reads_little() -> None:
    disk = new_disk()
    log = open_log(disk, LogConfig(index_interval_bytes=150))
    for number in range(300):
        must_append(log, batch(b"v" * 60, producer_id=5, epoch=0, sequence=number))
    log.close()
    before = disk.calls.get("read", 0)
    log = open_log(disk, recovery_point=300, clean_shutdown=True)
    assert log.log_end_offset == 300
    assert disk.calls["read"] - before <= 5
    assert log.recovery_point == log.flushed_offset == 300


@pytest.mark.parametrize(("is_orderly", "known"), [(True, {5: (0, 1, 1, -1, None)}), (False, {})])
def test_producer_without_records_is_forgotten_by_a_kill_only(
    is_orderly: bool, known: dict[int, tuple[int, int, int, int, int | None]]
) -> None:
    """B32, and where it ends: DeleteRecords has deleted all of its records, and no snapshot was written since."""
    disk = new_disk()
    log = open_log(disk)
    for sequence in (0, 1):
        must_append(log, batch(producer_id=5, epoch=0, sequence=sequence))
    log.high_watermark = 2
    assert log.advance_log_start_offset(2) is ErrorCode.NONE
    assert producers(log) == {5: (0, 1, 1, -1, None)}
    if is_orderly:
        log.close()
    again = open_log(disk, log_start_offset=2, recovery_point=2 if is_orderly else 0, clean_shutdown=is_orderly)
    assert producers(again) == known
    assert again.log_end_offset == 2
    info = must_append(again, batch(producer_id=5, epoch=0, sequence=2))
    assert (info.duplicate, info.base_offset) == (False, 2)
