"""A partition of an internal topic as its coordinator sees it: ``oncelog.coordinator.ports.ReplicatedLog``.

The object belongs to one unbroken leadership. When that ends it refuses appends and has failed its waiters; the next
leadership brings another object, so a coordinator that still holds the old one can do no harm.
"""

from oncelog.broker.replication.leading_partition import ACKS_ALL, LeadingPartition
from oncelog.broker.replication.offset_waiters import OnReached
from oncelog.broker.storage.partition_log import AppendOrigin
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.records.record_batch import read_header
from oncelog.protocol.schema import Buffer


class CoordinatorLog:
    """Appends and reads of the coordinator that owns this partition."""

    __slots__ = ("_log", "_partition", "leader_epoch")

    def __init__(self, partition: LeadingPartition) -> None:
        self._partition = partition
        self._log = partition.log
        self.leader_epoch = partition.progress.leader_epoch
        """The leader epoch at which the leadership began."""

    @property
    def is_over(self) -> bool:
        """Whether this broker leads the partition no more."""
        return self._partition.is_over

    @property
    def is_deserted(self) -> bool:
        """Whether no in-sync follower has fetched lately, so that one of them may lead by now."""
        return self._partition.is_deserted

    @property
    def log_start_offset(self) -> int:
        """The first offset of the log."""
        return self._log.log_start_offset

    @property
    def high_watermark(self) -> int:
        """The end of what is replicated."""
        return self._log.high_watermark

    @property
    def log_end_offset(self) -> int:
        """The end of what is written."""
        return self._log.log_end_offset

    def append(self, batch: bytearray) -> int | ErrorCode:
        """Append a batch; returns the log's end behind it."""
        if not self._partition.is_over and len(batch) > self._log.config.max_message_bytes:
            return ErrorCode.MESSAGE_TOO_LARGE
        header = read_header(batch)
        info = self._partition.append(batch, header, origin=AppendOrigin.COORDINATOR, required_acks=ACKS_ALL)
        return info if isinstance(info, ErrorCode) else info.last_offset + 1

    def when_replicated(self, end_offset: int, callback: OnReached) -> None:
        """Call back once: with NONE when the log is replicated up to ``end_offset``, or with why it will not be."""
        self._partition.when_replicated(end_offset, callback)

    def read(self, start_offset: int, max_bytes: int) -> Buffer:
        """Return whole batches up to the log's end.

        It waits for the disk: a coordinator that loads has no requests to serve yet.
        """
        log, end_offset = self._log, self._log.log_end_offset
        steps = log.segments.read(max(start_offset, log.log_start_offset), max_bytes, end_offset, end_offset, True)
        try:
            request = next(steps)
            while True:
                request = steps.send(request.file.read_at(request.size, request.position))
        except StopIteration as stop:
            records: Buffer = stop.value[0]
            return records
