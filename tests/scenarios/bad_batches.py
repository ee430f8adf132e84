"""Every kind of batch that a leader must refuse, and Kafka's error code for it.

A kind makes its batches out of a ``random.Random``, so that the same table serves one example of each and thousands of
different ones. Every batch is wrong in one way only, under a right CRC unless the CRC is what is wrong: whatever is
looked for first must not hide what is looked for later.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.records.compression import Compression, compress
from oncelog.protocol.records.record_batch import NewRecord, assemble_batch, build_batch, read_header
from oncelog.protocol.records.varint import encode_varint
from tests.simulation.requests import RECORD_TIMESTAMP

PLAIN: Final = "orders"
"""A topic whose batches are judged by their header."""
COMPACTED: Final = "balances"
"""A compacted topic: the records of its batches are walked."""
BOUNDED: Final = "recent"
"""A topic that takes no records older than ``BOUNDED_MS``."""
BOUNDED_MS: Final = 60_000
MAX_MESSAGE_BYTES: Final = 300_000
MAX_DECOMPRESSED_BYTES: Final = 8 << 20
"""How the broker under test is set up: what a topic takes, and what a batch may decompress to."""
TOPIC_CONFIGS: Final = {
    PLAIN: {"max.message.bytes": str(MAX_MESSAGE_BYTES)},
    COMPACTED: {"max.message.bytes": str(MAX_MESSAGE_BYTES), "cleanup.policy": "compact"},
    BOUNDED: {"message.timestamp.before.max.ms": str(BOUNDED_MS)},
}

Batch = bytes | None
_CODECS: Final = (Compression.GZIP, Compression.SNAPPY, Compression.LZ4, Compression.ZSTD)
_HEADER_SIZE: Final = 61
_INT32_MAX: Final = 2**31 - 1
_INT64_MAX: Final = 2**63 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class BadBatch:
    """One kind: how to make one, for which topic, and what Kafka says to it."""

    make: Callable[[random.Random], Batch]
    error: ErrorCode
    topic: str = PLAIN
    versions: range = range(3, 12)
    """Of Produce."""
    transactional_id: str | None = None


def good_batch(rng: random.Random, *, keyed: bool = True, **options: Any) -> bytearray:
    records = [
        NewRecord(RECORD_TIMESTAMP + index, b"key" if keyed else None, rng.randbytes(rng.randint(0, 40)))
        for index in range(rng.randint(1, 4))
    ]
    return build_batch(records, **options)


def _changed(rng: random.Random, **fields: int) -> bytes:
    """A good batch with other header fields, under a right CRC."""
    batch = good_batch(rng)
    return bytes(assemble_batch(read_header(batch)._replace(**fields), batch[_HEADER_SIZE:]))


def with_payload(rng: random.Random, payload: bytes, count: int, codec: Compression = Compression.NONE) -> bytes:
    """A batch whose header is right, apart from what it says of these bytes."""
    header = read_header(good_batch(rng))
    fields = {"records_count": count, "last_offset_delta": count - 1, "attributes": int(codec)}
    return bytes(assemble_batch(header._replace(**fields), payload))


def _patched(rng: random.Random, position: int, value: bytes) -> bytes:
    """A good batch with other bytes under its old CRC."""
    batch = good_batch(rng)
    batch[position : position + len(value)] = value
    return bytes(batch)


def _wrong_length(rng: random.Random, low: int, high: int) -> bytes:
    return _patched(rng, 8, rng.choice((low, high, rng.randint(low, high))).to_bytes(4, "big", signed=True))


def _cut_off(rng: random.Random) -> bytes:
    batch = bytes(good_batch(rng))
    return batch[: rng.randrange(len(batch))]


def _flipped(rng: random.Random) -> bytes:
    """One bit is wrong behind the attributes, or in the CRC itself."""
    batch = good_batch(rng)
    position = rng.choice((17, 18, 19, 20, rng.randrange(23, len(batch))))
    batch[position] ^= 1 << rng.randrange(8)
    return bytes(batch)


def _wrong_count(rng: random.Random) -> bytes:
    """More than there can be, or not what the last offset says."""
    count = rng.choice((100, 1000, _INT32_MAX))
    return _changed(rng, records_count=count, last_offset_delta=rng.choice((-1, 0, count, count - 2, count - 1)))


def _no_records(rng: random.Random) -> bytes:
    count = rng.choice((0, -1, -(2**31)))
    return _changed(rng, records_count=count, last_offset_delta=max(count - 1, -(2**31)))


def _bad_producer(rng: random.Random) -> bytes:
    fields = rng.choice(
        (
            {"producer_id": -2, "producer_epoch": 0, "base_sequence": 0},
            {"producer_id": -(2**63)},
            {"producer_id": 7, "producer_epoch": -1, "base_sequence": 0},
            {"producer_id": 7, "producer_epoch": -(2**15), "base_sequence": 0},
            {"producer_id": 7, "producer_epoch": 0, "base_sequence": -1},
            {"producer_id": 7, "producer_epoch": 0, "base_sequence": -(2**31)},
        )
    )
    return _changed(rng, **fields)


def _oversized(rng: random.Random) -> bytes:
    return bytes(
        build_batch([NewRecord(RECORD_TIMESTAMP, b"k", rng.randbytes(MAX_MESSAGE_BYTES + rng.randint(0, 99)))])
    )


def _misnumbered(rng: random.Random) -> bytes:
    """Records whose offset deltas are not 0, 1, 2, …"""
    one, two = (bytes(good_batch(rng))[_HEADER_SIZE:] for _ in range(2))
    count = one.count(b"key") + two.count(b"key")
    return with_payload(rng, one + two, count)


def _broken_records(rng: random.Random) -> bytes:
    """Records that end too early, say too much, or are none."""
    batch = good_batch(rng)
    header, payload = read_header(batch), bytes(batch[_HEADER_SIZE:])
    count = header.records_count
    broken = rng.choice(
        (
            payload[:-1],
            payload + b"\0",
            payload[: rng.randrange(len(payload))],
            encode_varint(_INT32_MAX) + payload[1:],
            encode_varint(-1) + payload[1:],
            b"\xff" * rng.randint(1, 40),
        )
    )
    return with_payload(rng, broken, count)


def _too_few_records(rng: random.Random) -> bytes:
    """The header counts up to two thousand million records; those that are there could not be more than five."""
    payload = bytes(good_batch(rng))[_HEADER_SIZE:]
    codec = rng.choice((Compression.NONE, *_CODECS))
    return with_payload(rng, bytes(compress(codec, payload)), rng.choice((5, 100_000, _INT32_MAX)), codec)


def _hostile_headers(rng: random.Random) -> bytes:
    """A record that counts more headers than there are bytes."""
    count = rng.choice((1, 2, 1_000_000, _INT32_MAX, -1, -_INT32_MAX))
    body = b"\0\0\0" + encode_varint(1) + b"k" + encode_varint(-1) + encode_varint(count)
    return with_payload(rng, encode_varint(len(body)) + body, 1)


def _undecompressible(rng: random.Random) -> bytes:
    codec = rng.choice(_CODECS)
    compressed = bytes(compress(codec, bytes(good_batch(rng))[_HEADER_SIZE:]))
    broken = rng.choice(
        (b"", compressed[: len(compressed) // 2], compressed + b"\0\0\0\0\0", b"\x7f" + rng.randbytes(40))
    )
    return with_payload(rng, broken, 3, codec)


def _null_keys(rng: random.Random) -> bytes:
    return bytes(good_batch(rng, keyed=False, compression=rng.choice((Compression.NONE, *_CODECS))))


@cache
def _bomb(codec: Compression) -> bytes:
    size = 4 * MAX_DECOMPRESSED_BYTES
    if codec is Compression.SNAPPY:  # It only shrinks twenty-fold, so this one is a declaration, with little behind it.
        return b"\xff\xff\xff\xff\x0f" + b"\xfe\x01\x00" * 1000
    body = b"\0\0\0" + encode_varint(1) + b"k" + encode_varint(size) + bytes(size) + b"\0"
    return bytes(compress(codec, encode_varint(len(body)) + body))


def _bomb_of(codec: Compression) -> Callable[[random.Random], bytes]:
    return lambda rng: with_payload(rng, _bomb(codec), rng.choice((1, 1000, _INT32_MAX)), codec)


def _stale(rng: random.Random) -> bytes:
    return bytes(build_batch([NewRecord(rng.choice((0, 1, 10**12)), b"k", b"v")]))


INVALID_RECORD: Final = ErrorCode.INVALID_RECORD
CORRUPT_MESSAGE: Final = ErrorCode.CORRUPT_MESSAGE
INVALID_TIMESTAMP: Final = ErrorCode.INVALID_TIMESTAMP
MESSAGE_TOO_LARGE: Final = ErrorCode.MESSAGE_TOO_LARGE
UNSUPPORTED_COMPRESSION_TYPE: Final = ErrorCode.UNSUPPORTED_COMPRESSION_TYPE

BAD_BATCHES: Final[dict[str, BadBatch]] = {
    # What is there at all.
    "null": BadBatch(make=lambda rng: None, error=INVALID_RECORD),
    "empty": BadBatch(make=lambda rng: b"", error=INVALID_RECORD),
    "cut off": BadBatch(make=_cut_off, error=INVALID_RECORD),
    "two batches": BadBatch(make=lambda rng: bytes(good_batch(rng) + good_batch(rng)), error=INVALID_RECORD),
    "bytes after it": BadBatch(make=lambda rng: bytes(good_batch(rng)) + rng.randbytes(9), error=INVALID_RECORD),
    "formats 0 and 1": BadBatch(make=lambda rng: _patched(rng, 16, rng.choice((b"\0", b"\1"))), error=INVALID_RECORD),
    "format unknown": BadBatch(make=lambda rng: _patched(rng, 16, bytes([rng.randint(3, 255)])), error=CORRUPT_MESSAGE),
    "length impossible": BadBatch(make=lambda rng: _wrong_length(rng, -(2**31), 48), error=CORRUPT_MESSAGE),
    "length beyond": BadBatch(make=lambda rng: _wrong_length(rng, 100_000, _INT32_MAX), error=INVALID_RECORD),
    "crc": BadBatch(make=_flipped, error=CORRUPT_MESSAGE),
    "larger than allowed": BadBatch(make=_oversized, error=MESSAGE_TOO_LARGE),
    # What the header says.
    "codec": BadBatch(make=lambda rng: _changed(rng, attributes=rng.randint(5, 7)), error=UNSUPPORTED_COMPRESSION_TYPE),
    "zstd too early": BadBatch(
        make=lambda rng: bytes(good_batch(rng, compression=Compression.ZSTD)),
        error=UNSUPPORTED_COMPRESSION_TYPE,
        versions=range(3, 7),
    ),
    "base offset": BadBatch(
        make=lambda rng: _changed(rng, base_offset=rng.choice((-1, 1, _INT64_MAX, -(2**63)))), error=INVALID_RECORD
    ),
    "count": BadBatch(make=_wrong_count, error=INVALID_RECORD),
    "no records": BadBatch(make=_no_records, error=INVALID_RECORD),
    "control": BadBatch(make=lambda rng: _changed(rng, attributes=0x20), error=INVALID_RECORD),
    "transactional control": BadBatch(
        make=lambda rng: _changed(rng, attributes=0x30, producer_id=7, producer_epoch=0),
        error=INVALID_RECORD,
        transactional_id="fuzz",
    ),
    "delete horizon": BadBatch(make=lambda rng: _changed(rng, attributes=0x40), error=INVALID_RECORD),
    "producer": BadBatch(make=_bad_producer, error=INVALID_RECORD),
    "transaction of nobody": BadBatch(
        make=lambda rng: _changed(rng, attributes=0x10), error=INVALID_RECORD, transactional_id="fuzz"
    ),
    "transaction without its id": BadBatch(
        make=lambda rng: _changed(rng, attributes=0x10, producer_id=7, producer_epoch=0, base_sequence=0),
        error=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ),
    "log append time": BadBatch(make=lambda rng: _changed(rng, attributes=0x08), error=INVALID_TIMESTAMP),
    "from the future": BadBatch(
        make=lambda rng: _changed(rng, max_timestamp=rng.choice((2**50, _INT64_MAX))), error=INVALID_TIMESTAMP
    ),
    "from the past": BadBatch(make=_stale, error=INVALID_TIMESTAMP, topic=BOUNDED),
    # What the records say.
    "null keys": BadBatch(make=_null_keys, error=INVALID_RECORD, topic=COMPACTED, versions=range(7, 12)),
    "broken records": BadBatch(make=_broken_records, error=INVALID_RECORD, topic=COMPACTED),
    "offset deltas": BadBatch(make=_misnumbered, error=INVALID_RECORD, topic=COMPACTED),
    "too few records": BadBatch(make=_too_few_records, error=INVALID_RECORD, topic=COMPACTED, versions=range(7, 12)),
    "record headers": BadBatch(make=_hostile_headers, error=INVALID_RECORD, topic=COMPACTED),
    "undecompressible": BadBatch(make=_undecompressible, error=INVALID_RECORD, topic=COMPACTED, versions=range(7, 12)),
}
BOMBS: Final[dict[str, BadBatch]] = {
    f"{codec.name.lower()} bomb": BadBatch(
        make=_bomb_of(codec), error=MESSAGE_TOO_LARGE, topic=COMPACTED, versions=range(7, 12)
    )
    for codec in _CODECS
}
"""Apart from the others, because each costs the broker some milliseconds."""
