"""Messages of format versions 0 and 1 ("magic" 0 and 1), which Kafka had before 0.11, in sets of entries.

::

    entry        offset int64, size int32, message
    message      crc uint32     CRC-32 (zlib's) of everything from the magic on
                 magic int8     0 or 1
                 attributes     int8: 0-2 codec (there is no zstd), 3 append time (version 1 only)
                 timestamp      int64, version 1 only
                 key            length int32 (-1 null), bytes
                 value          length int32 (-1 null), bytes

A message with a codec is a *wrapper*: its value is a compressed set, whose messages have no codec. Offsets inside are
absolute in version 0. In version 1 they are relative: the wrapper has the offset of its last message. With append time
the wrapper's timestamp is that of every message inside.

lz4 in version 0: the checksum in the frame's header is also over the frame's magic, by an error of Kafka 0.8 that its
clients of that format expect (``with_checksum_of_version_0``); what comes with either checksum is read
(``with_right_checksum``).
"""

import zlib
from struct import Struct
from typing import Final, NamedTuple

from oncelog.protocol.records.compression import Compression, CorruptRecord
from oncelog.protocol.records.record_batch import COMPRESSION_MASK, LOG_APPEND_TIME_BIT
from oncelog.protocol.records.varint import Buffer

MAGIC_0: Final = 0
MAGIC_1: Final = 1
ENTRY_OVERHEAD: Final = 12
"""Of the offset and the size."""
LEAST_MESSAGE_SIZE: Final = 14
"""CRC, magic, attributes and two null lengths."""
LARGEST_MESSAGE_SIZE: Final = 4 << 20
"""Of a message in a compressed set, unless its topic takes larger batches: one is held, checked and copied at once."""
UNITS_PER_MESSAGE: Final = 10
"""What converting a message costs, in the units of a ``WorkBudget``."""

ENTRY: Final = Struct(">qi")
_HEAD: Final = Struct(">Ibb")
_LENGTH: Final = Struct(">i")
_TIMESTAMP: Final = Struct(">q")
_ENTRY_AND_CRC: Final = Struct(">qiI")
_BODY_0: Final = Struct(">bb")
_BODY_1: Final = Struct(">bbq")
_NULL: Final = _LENGTH.pack(-1)
_MAGIC_POSITION: Final = 16
"""In an entry."""
_CRC_SIZE: Final = 4


class ChecksumMismatch(CorruptRecord):
    """The CRC of a message is not that of its bytes."""


class Message(NamedTuple):
    """A message as it is read: what its entry and its head say, and its key and value."""

    offset: int
    magic: int
    attributes: int
    timestamp: int
    """-1 in version 0, which has none."""
    key: bytes | None
    value: bytes | None

    @property
    def codec(self) -> int:
        """The codec's number; it may be one that does not exist."""
        return self.attributes & COMPRESSION_MASK

    @property
    def is_log_append_time(self) -> bool:
        return self.magic == MAGIC_1 and self.attributes & LOG_APPEND_TIME_BIT != 0


def read_message(buffer: bytes, at: int, offset: int, size: int) -> Message:
    """Return the message of ``size`` bytes at ``at``, all of which are there.

    Raises ChecksumMismatch if its CRC is wrong, CorruptRecord if it is malformed.
    """
    end = at + size
    crc, magic, attributes = _HEAD.unpack_from(buffer, at)
    if crc != zlib.crc32(memoryview(buffer)[at + _CRC_SIZE : end]):
        raise ChecksumMismatch(f"the CRC of the message at offset {offset} is wrong")
    at += _HEAD.size
    if magic == MAGIC_1:
        if size < LEAST_MESSAGE_SIZE + _TIMESTAMP.size:
            raise CorruptRecord(f"a message of format version 1 in {size} bytes")
        (timestamp,) = _TIMESTAMP.unpack_from(buffer, at)
        at += _TIMESTAMP.size
    elif magic == MAGIC_0:
        timestamp = -1
    else:
        raise CorruptRecord(f"a message of format version {magic}")
    key, at = _read_field(buffer, at, end - _LENGTH.size)
    value, at = _read_field(buffer, at, end)
    if at != end:
        raise CorruptRecord(f"{end - at} bytes after the value of a message")
    return Message(offset, magic, attributes, timestamp, key, value)


def _read_field(buffer: bytes, at: int, end: int) -> tuple[bytes | None, int]:
    """Return a key or value that must end at ``end`` or before, and the position after it."""
    (length,) = _LENGTH.unpack_from(buffer, at)
    at += _LENGTH.size
    if length < 0:
        if length != -1:
            raise CorruptRecord(f"a length of {length}")
        return None, at
    if length > end - at:
        raise CorruptRecord(f"a field of {length} bytes where {end - at} are left")
    return buffer[at : at + length], at + length


def peek_magic_and_attributes(entries: Buffer) -> tuple[int, int] | None:
    """Return what the first message of a set says of itself; None if the set ends before."""
    if len(entries) < ENTRY_OVERHEAD + LEAST_MESSAGE_SIZE:
        return None
    return entries[_MAGIC_POSITION], entries[_MAGIC_POSITION + 1]


def encode_message(
    magic: int, offset: int, attributes: int, timestamp: int, key: bytes | None, value: bytes | None
) -> bytes:
    """Return a message with its entry. ``timestamp`` has no place in version 0."""
    body = b"".join(
        (
            _BODY_1.pack(magic, attributes, timestamp) if magic == MAGIC_1 else _BODY_0.pack(magic, attributes),
            _NULL if key is None else _LENGTH.pack(len(key)),
            key or b"",
            _NULL if value is None else _LENGTH.pack(len(value)),
            value or b"",
        )
    )
    return _ENTRY_AND_CRC.pack(offset, len(body) + _CRC_SIZE, zlib.crc32(body)) + body


# The frame of lz4

_FRAME_MAGIC: Final = b"\x04\x22\x4d\x18"
_FLAGS_POSITION: Final = len(_FRAME_MAGIC)
_CONTENT_SIZE_FLAG: Final = 0x08
_DICTIONARY_FLAG: Final = 0x01


def codec_input(magic: int, codec: Compression, value: bytes) -> bytes:
    """Return the value of a wrapper as its codec reads it."""
    return with_right_checksum(value) if codec is Compression.LZ4 and magic == MAGIC_0 else value


def with_right_checksum(frame: bytes) -> bytes:
    """Return an lz4 frame whose header checksum is that of the descriptor, whatever it was before."""
    return _with_checksum(frame, _FLAGS_POSITION)


def with_checksum_of_version_0(frame: bytes) -> bytes:
    """Return an lz4 frame as it stands in a wrapper of format version 0."""
    return _with_checksum(frame, 0)


def _with_checksum(frame: bytes, first: int) -> bytes:
    """Return the frame with the checksum of its header from the position ``first`` on."""
    if frame[: len(_FRAME_MAGIC)] != _FRAME_MAGIC or len(frame) <= _FLAGS_POSITION:
        return frame
    flags = frame[_FLAGS_POSITION]
    end = _FLAGS_POSITION + 2 + (8 if flags & _CONTENT_SIZE_FLAG else 0) + (4 if flags & _DICTIONARY_FLAG else 0)
    if len(frame) <= end:
        return frame
    from xxhash import xxh32_intdigest  # Loaded by the first such frame.

    checksum = xxh32_intdigest(frame[first:end]) >> 8 & 0xFF
    return b"%b%c%b" % (frame[:end], checksum, frame[end + 1 :])
