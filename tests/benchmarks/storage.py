"""What storage costs: ``python -m tests.benchmarks.storage [directory]``.

Appends are shown with and without the system call (a file that takes everything and keeps nothing), since the budget is
about ours: 6 µs per small batch. Reads are of data in the page cache, sequential as a consumer's and at random offsets.
"""

import asyncio
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from random import Random

from oncelog.broker.storage.disk import LocalDisk, LocalFile
from oncelog.broker.storage.disk_space import DiskSpace
from oncelog.broker.storage.log_config import LogConfig
from oncelog.broker.storage.log_host import LogHost
from oncelog.broker.storage.partition_log import AppendInfo, AppendOrigin, FetchedRecords, PartitionLog
from oncelog.broker.storage.recovery import NotedLog
from oncelog.protocol.records.control_records import build_end_txn_marker
from oncelog.protocol.records.record_batch import BatchHeader, NewRecord, build_batch, iter_batches, read_header
from oncelog.protocol.schema import Buffer
from oncelog.protocol.topic_partition import TopicPartition

TP = TopicPartition("bench", 0)
NOW = 1_700_000_000_000
MEBIBYTE = 1 << 20


class _Void(LocalFile):
    """A file that takes everything."""

    __slots__ = ()

    def append(self, buffers: Sequence[Buffer]) -> int:
        return len(buffers[0])


class _VoidDisk(LocalDisk):
    __slots__ = ()

    def open(self, path: str, *, create: bool = False) -> LocalFile:
        return _Void(path, create=create) if path.endswith(".log") else LocalFile(path, create=create)


def _host(disk: LocalDisk) -> LogHost:
    return LogHost(disk=disk, wall_clock=lambda: NOW, space=DiskSpace(disk, "/", lambda: NOW))


@contextmanager
def new_log(root: str, config: LogConfig | None = None, disk: LocalDisk | None = None) -> Iterator[PartitionLog]:
    disk = disk or LocalDisk()
    directory = tempfile.mkdtemp(dir=root)
    log = PartitionLog.open(_host(disk), directory, TP, config or LogConfig(), NotedLog())
    try:
        yield log
    finally:
        log.release()
        shutil.rmtree(directory)


def batches(
    count: int, size: int, *, producer: bool, transactional: bool = False
) -> list[tuple[bytearray, BatchHeader]]:
    found = []
    for sequence in range(count):
        fields = {"producer_id": 9, "producer_epoch": 0, "base_sequence": sequence} if producer else {}
        data = build_batch([NewRecord(NOW, b"key", bytes(size))], is_transactional=transactional, **fields)  # type: ignore[arg-type]
        found.append((data, read_header(data)))
    return found


def report(name: str, seconds: float, count: int, size: int = 0) -> None:
    rate = f"{size / seconds / 1e6:>9.0f} MB/s" if size else ""
    print(f"{name:<58} {seconds / count * 1e6:>9.2f} µs {rate}")


def append_all(log: PartitionLog, work: list[tuple[bytearray, BatchHeader]]) -> float:
    append, origin = log.append_as_leader, AppendOrigin.CLIENT
    start = time.perf_counter()
    for data, header in work:
        append(data, header, 1, origin)
    return time.perf_counter() - start


def report_appends(root: str) -> None:
    for size, count in ((100, 40_000), (16_384, 8_000), (MEBIBYTE, 300)):
        for producer in (False, True):
            work = batches(count, size, producer=producer)
            kind = "idempotent" if producer else "plain"
            for label, disk in (("", LocalDisk()), (", no system call", _VoidDisk())):
                best = float("inf")
                for _ in range(3):
                    with new_log(root, disk=disk) as log:
                        best = min(best, append_all(log, work))
                total = sum(header.size for _, header in work)
                report(f"append, {kind}, {size} B{label}", best, count, 0 if label else total)


def report_markers(root: str) -> None:
    count = 20_000
    work = batches(count, 100, producer=True, transactional=True)
    marker = build_end_txn_marker(producer_id=9, producer_epoch=0, commit=False, coordinator_epoch=0, timestamp=NOW)
    marker_header = read_header(marker)
    with new_log(root) as log:
        start = time.perf_counter()
        for data, header in work:
            log.append_as_leader(data, header, 1, AppendOrigin.CLIENT)
            log.append_as_leader(marker, marker_header, 1, AppendOrigin.COORDINATOR)
            log.update_high_watermark(log.log_end_offset)
        report("transaction of one batch: append, abort marker, watermark", time.perf_counter() - start, count)
        log.roll()
        start = time.perf_counter()
        for offset in range(0, 2 * count, 200):
            log.aborted_transactions(offset, offset + 200)
        report("aborted transactions of 100 among 20,000", time.perf_counter() - start, 2 * count // 200)


def report_reads(root: str) -> None:
    for size, count in ((100, 200_000), (16_384, 20_000)):
        with new_log(root, LogConfig(segment_bytes=64 * MEBIBYTE)) as log:
            append_all(log, batches(count, size, producer=False))
            for max_bytes in (16_384, MEBIBYTE):
                _report_sequential(log, size, max_bytes)
                _report_random(log, size, max_bytes)
            _report_tail(log, size)


def _report_sequential(log: PartitionLog, size: int, max_bytes: int) -> None:
    offset = reads = total = 0
    seconds = 0.0
    while offset < log.log_end_offset:
        start = time.perf_counter()
        found = log.read(offset, max_bytes, upper_offset=log.log_end_offset)
        seconds += time.perf_counter() - start
        assert isinstance(found, FetchedRecords), found
        for _, header in iter_batches(found.records):  # The consumer's work, not ours.
            offset = header.next_offset
        reads += 1
        total += len(found.records)
    report(f"read in order, batches of {size} B, {max_bytes >> 10} KiB at a time", seconds, reads, total)


def _report_random(log: PartitionLog, size: int, max_bytes: int) -> None:
    random, total, reads = Random(1), 0, 2_000
    start = time.perf_counter()
    for _ in range(reads):
        found = log.read(random.randrange(log.log_end_offset), max_bytes, upper_offset=log.log_end_offset)
        assert isinstance(found, FetchedRecords), found
        total += len(found.records)
    report(
        f"read anywhere, batches of {size} B, {max_bytes >> 10} KiB at a time",
        time.perf_counter() - start,
        reads,
        total,
    )


def _report_tail(log: PartitionLog, size: int) -> None:
    reads, end = 5_000, log.log_end_offset
    for behind, upper, name in ((1, end, "the last batch"), (5, end - 2, "three batches before an upper offset")):
        start = time.perf_counter()
        for _ in range(reads):
            log.read(end - behind, MEBIBYTE, upper_offset=upper)
        report(f"read {name}, {size} B", time.perf_counter() - start, reads)


def report_followers(root: str) -> None:
    with new_log(root) as leader, new_log(root) as follower:
        append_all(leader, batches(100_000, 100, producer=True))
        start, total = time.perf_counter(), 0
        while follower.log_end_offset < leader.log_end_offset:
            found = leader.read(follower.log_end_offset, MEBIBYTE, upper_offset=leader.log_end_offset)
            assert isinstance(found, FetchedRecords)
            assert isinstance(follower.append_as_follower(found.records), AppendInfo)
            total += len(found.records)
        report("replicate batches of 100 B, per batch", time.perf_counter() - start, 100_000, total)


def report_loading(root: str) -> None:
    disk = LocalDisk()
    with new_log(root) as log:
        append_all(log, batches(200_000, 100, producer=True))
        size = log.size
        start = time.perf_counter()
        log.close()
        report("close, 200,000 batches of 100 B", time.perf_counter() - start, 1)
        for clean in (True, False):
            start = time.perf_counter()
            PartitionLog.open(
                _host(disk),
                log.directory,
                TP,
                LogConfig(),
                NotedLog(clean_shutdown=clean, recovery_point=200_000 if clean else 0),
            ).release()
            seconds = time.perf_counter() - start
            report(f"load {'after a clean shutdown' if clean else 'and recover'}", seconds, 1, size)
    with new_log(root) as log:
        log.set_topic_id(bytes(16))
        log.assign_epoch(0)
        start = time.perf_counter()
        for _ in range(200):
            PartitionLog.open(_host(disk), log.directory, TP, LogConfig(), NotedLog(clean_shutdown=True)).release()
        report("load an empty log", time.perf_counter() - start, 200)


async def report_flushes(root: str) -> None:
    with new_log(root, LogConfig(flush_interval_messages=1)) as log:
        work = batches(200, 100, producer=False)
        start = time.perf_counter()
        for data, header in work:
            log.append_as_leader(data, header, 1, AppendOrigin.CLIENT)
            await log.flush_off_loop()
        report("append and flush off the loop, 100 B", time.perf_counter() - start, 200)


def main() -> None:
    root = tempfile.mkdtemp(dir=sys.argv[1] if len(sys.argv) > 1 else None)
    try:
        report_appends(root)
        report_markers(root)
        report_reads(root)
        report_followers(root)
        report_loading(root)
        asyncio.run(report_flushes(root))
    finally:
        shutil.rmtree(root)


if __name__ == "__main__":
    main()
