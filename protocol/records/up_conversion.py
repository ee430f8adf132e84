"""A set of old messages as one batch of format version 2: what becomes of Produce before version 3.

All messages of a set go into one batch, in the producer's codec or the topic's; it has no producer id, since its
producer has none. A set is either messages of one format version without codec, or one wrapper. Kinds of badness, with
Kafka's code for each:

==============================================================  ============================
no message, a cut-off one, bytes after the last, lengths        INVALID_RECORD
format version 2 or unknown, or two versions in one set         INVALID_RECORD
a CRC, of a message or of one inside a wrapper                  CORRUPT_MESSAGE
a codec that is unknown, or zstd                                UNSUPPORTED_COMPRESSION_TYPE
a wrapper beside others, in another, empty; its offset          INVALID_RECORD
a null key if the topic is compacted                            INVALID_RECORD
timestamp out of the topic's bounds, or "log append time"       INVALID_TIMESTAMP
larger than the topic's ``max.message.bytes`` as a batch        MESSAGE_TOO_LARGE
larger than allowed once decompressed, a message or all         MESSAGE_TOO_LARGE
==============================================================  ============================

The offsets of messages have no meaning on their way to a broker, except that a wrapper of version 1 must not have one
that is smaller than that of its last message (0: it has none). A message of version 0 has no
timestamp, and its record none either, unless the topic's is the time of the append.

Sets may be hostile: a wrapper of a few hundred bytes holds tens of millions of messages. So this is a generator that
takes its work from a ``WorkBudget``; what it holds is one message, one block, and the batch that it makes, which has an
upper bound.
"""

from collections.abc import Generator, Iterator
from typing import Final, TypeAlias

from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.records.block_window import BlockWindow
from oncelog.protocol.records.compression import Compression, DecompressionBomb, iter_decompressed
from oncelog.protocol.records.old_messages import (
    ENTRY,
    ENTRY_OVERHEAD,
    LARGEST_MESSAGE_SIZE,
    LEAST_MESSAGE_SIZE,
    MAGIC_1,
    UNITS_PER_MESSAGE,
    ChecksumMismatch,
    Message,
    codec_input,
    peek_magic_and_attributes,
    read_message,
)
from oncelog.protocol.records.recompression import BatchTooLarge, Recompression
from oncelog.protocol.records.record_batch import (
    COMPRESSION_MASK,
    LOG_APPEND_TIME_BIT,
    MAGIC,
    NO_PARTITION_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    BatchHeader,
    CorruptRecord,
    NewRecord,
    encode_record,
    read_header,
)
from oncelog.protocol.records.record_walk import MAX_RECORD_ERRORS, RecordError, WorkBudget
from oncelog.protocol.records.validation import BatchRules, Conformed, RejectedRecords

_MAX_INT64: Final = 2**63 - 1
_BLOCK_SIZE: Final = 64 * 1024
"""Records are handed to the compressor in blocks of about this size."""
_CODECS_OF_MESSAGES: Final = frozenset({Compression.NONE, Compression.GZIP, Compression.SNAPPY, Compression.LZ4})


_Steps: TypeAlias = Generator[None, None, Conformed | ErrorCode | RejectedRecords]


def convert_message_set(entries: memoryview, rules: BatchRules, budget: WorkBudget) -> _Steps:
    """Make one batch, as it will be stored, of a set of messages. Yields whenever the budget is used up."""
    head = peek_magic_and_attributes(entries)
    if head is None:
        return ErrorCode.INVALID_RECORD
    magic, attributes = head
    if magic > MAGIC_1:
        return ErrorCode.INVALID_RECORD
    if attributes & COMPRESSION_MASK not in _CODECS_OF_MESSAGES:
        return ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    codec = Compression(attributes & COMPRESSION_MASK)
    try:
        if codec is Compression.NONE:
            return (yield from _convert_plain(entries, magic, rules, budget))
        return (yield from _convert_wrapper(entries, codec, rules, budget))
    except (DecompressionBomb, BatchTooLarge):
        return ErrorCode.MESSAGE_TOO_LARGE
    except ChecksumMismatch:
        return ErrorCode.CORRUPT_MESSAGE
    except CorruptRecord:
        return ErrorCode.INVALID_RECORD


def _convert_plain(entries: memoryview, magic: int, rules: BatchRules, budget: WorkBudget) -> _Steps:
    blocks = iter_decompressed(Compression.NONE, entries, max_bytes=len(entries))
    conversion = _Conversion(blocks, magic, rules.compression or Compression.NONE, rules, budget)
    yield from conversion.run()
    return conversion.result()


def _convert_wrapper(entries: memoryview, codec: Compression, rules: BatchRules, budget: WorkBudget) -> _Steps:
    if len(entries) > rules.max_message_bytes:
        return ErrorCode.MESSAGE_TOO_LARGE
    offset, size = ENTRY.unpack_from(entries)
    if size != len(entries) - ENTRY_OVERHEAD:
        return ErrorCode.INVALID_RECORD  # It is cut off, or not alone.
    wrapper = read_message(bytes(entries), ENTRY_OVERHEAD, offset, size)
    if wrapper.value is None:
        return ErrorCode.INVALID_RECORD
    if wrapper.is_log_append_time:
        return ErrorCode.INVALID_TIMESTAMP
    value = codec_input(wrapper.magic, codec, wrapper.value)
    blocks = iter_decompressed(codec, value, max_bytes=rules.max_decompressed_bytes)
    target = codec if rules.compression is None else rules.compression
    conversion = _Conversion(blocks, wrapper.magic, target, rules, budget, is_inside=True)
    yield from conversion.run()
    if wrapper.magic == MAGIC_1 and 0 < wrapper.offset < conversion.last_offset:
        return ErrorCode.INVALID_RECORD
    return conversion.result()


class _Conversion:
    """The records of one set, on their way into a batch."""

    __slots__ = (
        "_base_timestamp",
        "_budget",
        "_count",
        "_errors",
        "_has_bad_timestamp",
        "_is_inside",
        "_magic",
        "_max_timestamp",
        "_most",
        "_pending",
        "_pending_size",
        "_recompression",
        "_rejected",
        "_rules",
        "_window",
        "last_offset",
    )

    def __init__(
        self,
        blocks: Iterator[bytes],
        magic: int,
        codec: Compression,
        rules: BatchRules,
        budget: WorkBudget,
        *,
        is_inside: bool = False,
    ) -> None:
        """Begin a batch with ``codec`` from ``blocks``, all messages of which have ``magic``.

        ``is_inside``: they are the value of a wrapper.
        """
        self._window = BlockWindow(blocks, budget)
        self._recompression = Recompression(codec, max_bytes=rules.max_message_bytes, budget=budget)
        self._magic = magic
        self._rules = rules
        self._budget = budget
        self._is_inside = is_inside
        self._most = max(LARGEST_MESSAGE_SIZE, rules.max_message_bytes)
        self._pending: list[bytes] = []
        """Records that are still to be compressed."""
        self._pending_size = 0
        self._count = 0
        self._base_timestamp = self._max_timestamp = NO_TIMESTAMP
        self._rejected = 0
        self._has_bad_timestamp = False
        self._errors: list[RecordError] = []
        self.last_offset = -1
        """Of the message that was read last, as its entry has it."""

    def run(self) -> Generator[None, None, None]:
        """Convert all messages. Raises CorruptRecord and BatchTooLarge."""
        window, budget = self._window, self._budget
        while window.left >= ENTRY_OVERHEAD or (yield from window.need(ENTRY_OVERHEAD)):
            offset, size = ENTRY.unpack_from(window.held, window.at)
            if size < LEAST_MESSAGE_SIZE:
                raise CorruptRecord(f"a message of {size} bytes")
            if size > self._most:
                raise BatchTooLarge
            whole = ENTRY_OVERHEAD + size
            if window.left < whole and not (yield from window.need(whole)):
                raise CorruptRecord("a message is cut off")
            message = read_message(window.held, window.at + ENTRY_OVERHEAD, offset, size)
            window.at += whole
            self._add(message)
            budget.left -= UNITS_PER_MESSAGE
            if self._pending_size >= _BLOCK_SIZE:
                yield from self._compress_pending()
            elif budget.left <= 0:
                yield
        if window.left:
            raise CorruptRecord("a message is cut off")
        yield from self._compress_pending()

    def result(self) -> Conformed | RejectedRecords:
        """Return the batch, or which records the topic does not accept. Raises CorruptRecord without any."""
        if not self._count:
            raise CorruptRecord("a set without messages")
        if self._rejected:
            error = ErrorCode.INVALID_TIMESTAMP if self._has_bad_timestamp else ErrorCode.INVALID_RECORD
            return RejectedRecords(error, self._rejected, self._errors)
        is_append_time = self._rules.log_append_time_ms is not None
        header = BatchHeader(
            base_offset=0,
            batch_length=0,
            partition_leader_epoch=NO_PARTITION_LEADER_EPOCH,
            magic=MAGIC,
            crc=0,
            attributes=LOG_APPEND_TIME_BIT if is_append_time else 0,
            last_offset_delta=self._count - 1,
            base_timestamp=self._base_timestamp,
            max_timestamp=self._max_timestamp,
            producer_id=NO_PRODUCER_ID,
            producer_epoch=NO_PRODUCER_EPOCH,
            base_sequence=NO_SEQUENCE,
            records_count=self._count,
        )
        batch = memoryview(self._recompression.batch(header))
        return batch, read_header(batch)

    def _add(self, message: Message) -> None:
        if message.magic != self._magic:
            raise CorruptRecord("messages of two format versions in one set")
        if message.codec:
            raise CorruptRecord("a wrapper in another" if self._is_inside else "a wrapper beside messages")
        self._judge(message)
        append_time = self._rules.log_append_time_ms
        timestamp = message.timestamp if append_time is None else append_time
        if not self._count:
            self._base_timestamp = self._max_timestamp = timestamp
        elif timestamp > self._max_timestamp:
            self._max_timestamp = timestamp
        record = encode_record(self._count, self._base_timestamp, NewRecord(timestamp, message.key, message.value))
        self._count += 1
        self.last_offset = message.offset
        self._pending.append(record)
        self._pending_size += len(record)

    def _judge(self, message: Message) -> None:
        """Note a message that the topic does not accept."""
        rules, timestamp = self._rules.records, message.timestamp
        is_bad_time = message.is_log_append_time and not self._is_inside
        if self._rules.log_append_time_ms is None and timestamp != NO_TIMESTAMP:
            # A difference to -1 must fit 64 bits.
            is_bad_time |= not max(rules.earliest, 0) <= timestamp <= min(rules.latest, _MAX_INT64 - 1)
        if rules.needs_keys and message.key is None:
            reason = "A record of a compacted topic needs a key"
        elif is_bad_time:
            reason = f"The timestamp {timestamp} is not one that the topic accepts"
            self._has_bad_timestamp = True
        else:
            return
        self._rejected += 1
        if self._rejected <= MAX_RECORD_ERRORS:
            self._errors.append(RecordError(self._count, reason))

    def _compress_pending(self) -> Generator[None, None, None]:
        """Hand over what is pending in pieces of a bounded size: one record may be large."""
        pending = memoryview(b"".join(self._pending))
        self._pending.clear()
        self._pending_size = 0
        for start in range(0, len(pending), _BLOCK_SIZE):
            self._recompression.add(bytes(pending[start : start + _BLOCK_SIZE]))
            if self._budget.left <= 0:
                yield
