"""The partition of an internal topic that holds a key.

A group id in ``__consumer_offsets``, a transactional id in ``__transaction_state``. Brokers and clients must agree on
it with Java, whose ``String.hashCode`` it is. The partitioner for records (murmur2, masked) is another function.
"""

import sys
from collections.abc import Iterable
from functools import lru_cache
from typing import Final

_MIN_INT32: Final = -(2**31)
_REMEMBERED_KEYS: Final = 4096
"""A transaction asks several times where its id belongs."""
_LONGEST_REMEMBERED: Final = 256
"""Characters of such a key; what is longer is worked out each time."""
_LONG_TEXT: Final = 256
"""Characters from which on four units are hashed at a time."""


def java_hash(text: str) -> int:
    """Return Java's ``String.hashCode``: 32 bits, signed, over UTF-16 code units."""
    value = 0
    if len(text) >= _LONG_TEXT:
        for unit in _fours(text.encode("utf-16-le", "surrogatepass")):
            value = (31**4 * value + unit) & 0xFFFF_FFFF
    else:
        for unit in _units(text):
            value = (31 * value + unit) & 0xFFFF_FFFF
    return value - 0x1_0000_0000 if value & 0x8000_0000 else value


def _units(text: str) -> Iterable[int]:
    if text.isascii():
        return text.encode("ascii")
    encoding = "utf-16-le" if sys.byteorder == "little" else "utf-16-be"
    return memoryview(text.encode(encoding, "surrogatepass")).cast("H")


def _fours(units: bytes) -> Iterable[int]:
    """Return the hashes of four 16-bit units each, all worked out at once in the lanes of one large integer.

    Leading zeros change no hash, so they fill up the first four.
    """
    units = bytes(-len(units) % 8) + units
    lanes = int.from_bytes(units, "little")
    for width, power in ((2, 31), (4, 31**2)):
        first = int.from_bytes((b"\xff" * width + bytes(width)) * (len(units) // (2 * width)), "little")
        lanes = (lanes & first) * power + (lanes >> 8 * width & first)
    return memoryview(lanes.to_bytes(len(units), sys.byteorder)).cast("Q")[:: 1 if sys.byteorder == "little" else -1]


def partition_for(key: str, partition_count: int) -> int:
    """Return the partition of an internal topic that holds a transactional id or a group id."""
    if len(key) > _LONGEST_REMEMBERED:
        return _partition_for(key, partition_count)
    return _remembered_partition_for(key, partition_count)


def _partition_for(key: str, partition_count: int) -> int:
    value = java_hash(key)
    return 0 if value == _MIN_INT32 else abs(value) % partition_count


_remembered_partition_for: Final = lru_cache(maxsize=_REMEMBERED_KEYS)(_partition_for)
