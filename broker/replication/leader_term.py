"""A partition of an internal topic as its coordinator sees it: ``oncelog.coordinator.ports.ReplicatedLog``.

The object lives as long as this broker leads without a break. When the term ends it refuses appends and its waiters
have been told; the next term brings another object, so a coordinator that still holds the old one can do no harm.
"""

from typing import TYPE_CHECKING, Final

from oncelog.broker.replication.offset_waiters import OnReached
from oncelog.broker.storage.partition_log import AppendOrigin, PartitionLog
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.records.record_batch import read_header
from oncelog.protocol.schema import Buffer

if TYPE_CHECKING:
    from oncelog.broker.replication.partition import Partition

_ACKS_ALL: Final = -1


class LeaderTerm:
    """Appends and reads of the coordinator that owns this partition."""

    __slots__ = ("_log", "_partition", "leader_epoch")

    def __init__(self, partition: "Partition", log: PartitionLog, leader_epoch: int) -> None:
        self._partition = partition
        self._log = log
        self.leader_epoch = leader_epoch
        """The epoch at which the term began."""

    @property
    def is_over(self) -> bool:
        return self._partition.term is not self

    @property
    def is_deserted(self) -> bool:
        return self._partition.is_deserted

    @property
    def log_start_offset(self) -> int:
        return self._log.log_start_offset

    @property
    def high_watermark(self) -> int:
        return self._log.high_watermark

    @property
    def log_end_offset(self) -> int:
        return self._log.log_end_offset

    def append(self, batch: bytearray) -> int | ErrorCode:
        if self.is_over:
            return self._partition.unavailable_error
        header = read_header(batch)
        if len(batch) > self._log.config.max_message_bytes:
            return ErrorCode.MESSAGE_TOO_LARGE
        info = self._partition.append(batch, header, origin=AppendOrigin.COORDINATOR, required_acks=_ACKS_ALL)
        return info if isinstance(info, ErrorCode) else info.last_offset + 1

    def when_replicated(self, end_offset: int, callback: OnReached) -> None:
        if self.is_over:
            callback(self._partition.unavailable_error)
        else:
            self._partition.when_replicated(end_offset, callback)

    def read(self, start_offset: int, max_bytes: int) -> Buffer:
        """Whole batches up to the log's end. Waits for the disk: a coordinator that loads has nobody to serve yet."""
        log, end_offset = self._log, self._log.log_end_offset
        steps = log.segments.read(max(start_offset, log.log_start_offset), max_bytes, end_offset, end_offset, True)
        try:
            request = next(steps)
            while True:
                request = steps.send(request.file.read_at(request.size, request.position))
        except StopIteration as stop:
            records: Buffer = stop.value[0]
            return records
