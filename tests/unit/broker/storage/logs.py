"""Logs on simulated disks, as the tests of storage use them."""

from collections.abc import Callable
from typing import Any

from oncelog.broker.storage.disk import Disk
from oncelog.broker.storage.disk_space import DiskSpace
from oncelog.broker.storage.log_config import LogConfig
from oncelog.broker.storage.log_host import LogHost
from oncelog.broker.storage.partition_log import AppendInfo, AppendOrigin, FetchedRecords, PartitionLog
from oncelog.broker.storage.recovery import NotedLog
from oncelog.broker.storage.timestamp_search import FoundOffset, Search
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.records.record_batch import BatchHeader, crc_is_valid, iter_batches, iter_records, read_header
from oncelog.protocol.records.record_walk import WorkBudget
from oncelog.protocol.topic_partition import TopicPartition
from tests.simulation.sim_disk import SimDisk

TP = TopicPartition("t", 0)
DIRECTORY = "/data/t-0"
NOW = 1_000_000


def new_disk() -> SimDisk:
    disk = SimDisk()
    disk.make_dirs(DIRECTORY)
    for directory in ("", "/data", DIRECTORY):
        disk.sync_dir(directory)
    return disk


def log_host(disk: Disk, wall_clock: Callable[[], int] = lambda: NOW) -> LogHost:
    return LogHost(disk=disk, wall_clock=wall_clock, space=DiskSpace(disk, "/data", wall_clock))


def open_log(disk: SimDisk, config: LogConfig | None = None, **noted: Any) -> PartitionLog:
    """Open the log in ``DIRECTORY``; ``noted``: fields of ``NotedLog``."""
    return PartitionLog.open(log_host(disk), DIRECTORY, TP, config or LogConfig(), NotedLog(**noted))


def append(
    log: PartitionLog, data: bytearray, epoch: int = 0, origin: AppendOrigin = AppendOrigin.CLIENT
) -> AppendInfo | ErrorCode:
    return log.append_as_leader(data, read_header(data), epoch, origin)


def must_append(
    log: PartitionLog, data: bytearray, epoch: int = 0, origin: AppendOrigin = AppendOrigin.CLIENT
) -> AppendInfo:
    info = append(log, data, epoch, origin)
    assert isinstance(info, AppendInfo), info
    return info


def end_txn(log: PartitionLog, data: bytearray, epoch: int = 0) -> AppendInfo:
    return must_append(log, data, epoch, AppendOrigin.COORDINATOR)


def read(log: PartitionLog, offset: int, max_bytes: int = 1 << 20, upper: int | None = None) -> FetchedRecords:
    found = log.read(offset, max_bytes, upper_offset=log.log_end_offset if upper is None else upper)
    assert isinstance(found, FetchedRecords), found
    return found


def headers(records: Any) -> list[BatchHeader]:
    return [header for _, header in iter_batches(records)]


def content(log: PartitionLog) -> list[tuple[int, bytes | None, bytes | None]]:
    """(offset, key, value) of every record in the log, through reads as a consumer does them."""
    found: list[tuple[int, bytes | None, bytes | None]] = []
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        fetched = read(log, offset, 1000)
        batches = list(iter_batches(fetched.records))
        if not batches:
            break
        for position, header in batches:
            assert crc_is_valid(fetched.records, position, header)
            records = iter_records(fetched.records, position, header, max_decompressed_bytes=1 << 20)
            found += [(record.offset, record.key, record.value) for record in records if record.offset >= offset]
            offset = header.next_offset
    return found


def producers(log: PartitionLog) -> dict[int, tuple[int, int, int, int, int | None]]:
    """What has to survive of each producer: epoch, last sequence and offset, coordinator epoch, open transaction."""
    return {
        entry.producer_id: (
            entry.producer_epoch,
            entry.last_sequence,
            entry.last_data_offset,
            entry.coordinator_epoch,
            entry.txn_first_offset,
        )
        for entry in log.producer_state.producers.values()
    }


def searched(search: Search) -> FoundOffset | None:
    """The result of a search by time."""
    data = None
    try:
        while True:
            request = search.send(data)
            data = None if request is None else request.file.read_at(request.size, request.position)
    except StopIteration as stop:
        found: FoundOffset | None = stop.value
        return found


def offset_for_timestamp(log: PartitionLog, timestamp: int) -> FoundOffset | None:
    return searched(log.offset_for_timestamp(timestamp, WorkBudget(1_000_000)))


def max_timestamp_offset(log: PartitionLog) -> FoundOffset | None:
    return searched(log.max_timestamp_offset(WorkBudget(1_000_000)))
