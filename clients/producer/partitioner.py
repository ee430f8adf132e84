"""The partition of a record with a key: by the hash that Kafka's clients share. Pure.

The hash is the 32-bit murmur2 with Kafka's seed; its sign bit is masked off. (Coordinators are found by another hash:
Java's of the string.)
"""

from struct import unpack_from
from typing import Final

_SEED: Final = 0x9747B28C
_MULTIPLIER: Final = 0x5BD1E995
_ROTATION: Final = 24
_UINT32: Final = 0xFFFFFFFF
_POSITIVE: Final = 0x7FFFFFFF


def murmur2(data: bytes) -> int:
    """Return the hash as an unsigned 32-bit integer."""
    words = len(data) // 4
    state = _SEED ^ len(data)
    for word in unpack_from(f"<{words}I", data):
        mixed = word * _MULTIPLIER & _UINT32
        mixed = (mixed ^ mixed >> _ROTATION) * _MULTIPLIER & _UINT32
        state = state * _MULTIPLIER & _UINT32 ^ mixed
    tail = data[words * 4 :]
    if tail:
        state = (state ^ int.from_bytes(tail, "little")) * _MULTIPLIER & _UINT32
    state = (state ^ state >> 13) * _MULTIPLIER & _UINT32
    return state ^ state >> 15


def partition_for_key(key: bytes, partition_count: int) -> int:
    """Return the partition of a record with a key."""
    return (murmur2(key) & _POSITIVE) % partition_count
