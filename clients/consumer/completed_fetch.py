"""The records of one partition in one fetch response, returned piece by piece. Pure.

The batches are walked once when they come, by their lengths only, which gives the offset of the next fetch: it can be
under way while these records are polled. Each batch is checked and decoded when its first record is polled.

A batch that cannot be read is an error at its place: the records before it are returned first.
"""

from struct import Struct
from typing import Final

from oncelog.clients.consumer.consumer_config import ConsumerConfig
from oncelog.clients.consumer.consumer_errors import UnreadableRecords
from oncelog.clients.consumer.consumer_record import ConsumerRecord
from oncelog.clients.consumer.fetch_session import Wanted
from oncelog.clients.consumer.fetched_response import FetchedResponse
from oncelog.clients.consumer.record_decoder import decode_records
from oncelog.clients.errors import error_code
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.fetch import PartitionData
from oncelog.protocol.records.aborted_ranges import AbortedRanges
from oncelog.protocol.records.record_batch import (
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC,
    BatchHeader,
    CorruptRecord,
    crc_is_valid,
    read_header,
)
from oncelog.protocol.schema import Buffer
from oncelog.protocol.topic_partition import TopicPartition

_EXTENT: Final = Struct(">qi4xb6xi")
"""Base offset, length, magic and last offset delta of a batch."""


class CompletedFetch:
    """The records of one partition in one response, or the error that came instead."""

    __slots__ = (
        "_aborted",
        "_batch",
        "_buffer",
        "_check_crcs",
        "_given",
        "_max_batch_bytes",
        "_pending",
        "_pending_end",
        "_positions",
        "blocks",
        "counts",
        "current_leader_epoch",
        "error",
        "fetch_offset",
        "leader_epoch",
        "next_offset",
        "position",
        "response",
        "size",
        "topic_partition",
    )

    def __init__(
        self,
        config: ConsumerConfig,
        topic_partition: TopicPartition,
        requested: Wanted,
        data: PartitionData,
        response: FetchedResponse,
    ) -> None:
        assert not isinstance(data.records, list), "a list of buffers is for encoding only"
        fetch_offset = requested.offset
        self.topic_partition = topic_partition
        self.fetch_offset = fetch_offset
        """The offset that was requested."""
        self.current_leader_epoch = requested.leader_epoch
        """The leader epoch of the request: the records are from this leader's log. -1 if it was not known."""
        self.error = error_code(data.error_code)
        self._buffer: Buffer = data.records or b""
        self.size = len(self._buffer)
        self.response = response
        """The response that brought it."""
        self.counts = False
        """Whether the buffer counts it among the records that can be returned now."""
        self.position = fetch_offset
        """The offset after the records that have been returned."""
        self.leader_epoch = -1
        """The leader epoch of the batch before the position."""
        self._aborted = AbortedRanges(data.aborted_transactions or () if config.reads_committed else ())
        self._check_crcs = config.check_crcs
        self._max_batch_bytes = config.max_batch_bytes
        self._positions: list[int] = []
        """Where the batches begin that are whole; the last one may be cut off."""
        self._batch = 0
        """Which batch comes next."""
        self._pending: list[ConsumerRecord] = []
        """The batch that is being given out, decoded."""
        self._given = 0
        """How many of them have been."""
        self._pending_end = fetch_offset
        """The offset after it."""
        self.next_offset = fetch_offset
        """Where the next fetch begins."""
        self.blocks = self.error is not ErrorCode.NONE
        """Whether nothing can be fetched beyond this: an error, a strange format, not one batch that is whole."""
        self._walk()

    def _walk(self) -> None:
        at, end = 0, len(self._buffer)
        while end - at >= HEADER_SIZE:
            base_offset, length, magic, last_offset_delta = _EXTENT.unpack_from(self._buffer, at)
            is_known = magic == MAGIC and length >= HEADER_SIZE - LOG_OVERHEAD
            following = at + LOG_OVERHEAD + length
            if is_known and following > end:
                break
            self._positions.append(at)
            if not is_known:
                self.blocks = True
                return
            self.next_offset = max(self.next_offset, base_offset + last_offset_delta + 1)
            at = following
        self.blocks |= self._is_cut_off

    @property
    def _is_cut_off(self) -> bool:
        """Whether the first batch is not whole. Brokers send that whole, however large it is (KIP-74)."""
        return bool(self._buffer) and not self._positions

    @property
    def is_drained(self) -> bool:
        return not self._is_cut_off and self._given >= len(self._pending) and self._batch >= len(self._positions)

    @property
    def is_between_batches(self) -> bool:
        """Whether no decoded records wait to be given out."""
        return self._given >= len(self._pending)

    def detach(self) -> None:
        """Copy the records out of the response, so that they do not keep all of it in memory."""
        if isinstance(self._buffer, memoryview):
            self._buffer = bytes(self._buffer)

    def take(self, limit: int) -> list[ConsumerRecord]:
        """Return up to ``limit`` records in order, fewer only if there are no more. Moves the position.

        Raises ``UnreadableRecords`` and ``MemoryError``, but only if no records come before the failure.
        """
        if self._is_cut_off:
            reason = f"the broker sent {self.size} bytes of a batch that is larger: increase max_partition_fetch_bytes"
            raise UnreadableRecords(self.topic_partition, self.position, None, reason)
        taken = self._pending[self._given : self._given + limit]
        self._given += len(taken)
        while self._given == len(self._pending):
            self.position = max(self.position, self._pending_end)
            if len(taken) >= limit or self._batch >= len(self._positions):
                self._pending, self._given = [], 0  # It may be long until its next turn.
                return taken
            try:
                self._pending = self._next_batch()
            except (CorruptRecord, MemoryError) as error:
                if taken:  # The next call raises the same, with nothing before it.
                    return taken
                if isinstance(error, CorruptRecord):
                    raise self._unreadable(error) from error
                raise
            self._given = min(len(self._pending), limit - len(taken))
            taken += self._pending[: self._given]
        self.position = taken[-1].offset + 1
        return taken

    def _next_batch(self) -> list[ConsumerRecord]:
        """Decode the records of the next batch that a consumer sees. After an exception nothing has changed."""
        at = self._positions[self._batch]
        header = read_header(self._buffer, at)
        if self._check_crcs and not crc_is_valid(self._buffer, at, header):
            raise CorruptRecord("its CRC is wrong")
        shows = self._aborted.shows(self._buffer, at, header)
        records = self._decode(at, header) if shows else []
        self._batch += 1
        self._pending_end = header.next_offset
        self.leader_epoch = header.partition_leader_epoch
        return records

    def _decode(self, at: int, header: BatchHeader) -> list[ConsumerRecord]:
        return decode_records(
            self._buffer,
            at,
            header,
            topic=self.topic_partition.topic,
            partition=self.topic_partition.partition,
            from_offset=self.fetch_offset,
            max_decompressed_bytes=self._max_batch_bytes,
        )

    def _unreadable(self, error: CorruptRecord) -> UnreadableRecords:
        """Return the exception for the next batch."""
        base_offset, _, magic, last_offset_delta = _EXTENT.unpack_from(self._buffer, self._positions[self._batch])
        following = base_offset + last_offset_delta + 1
        skip_to = following if magic == MAGIC and following > self.position else None
        reason = f"the batch at offset {base_offset} cannot be read: {error}"
        return UnreadableRecords(self.topic_partition, self.position, skip_to, reason)
