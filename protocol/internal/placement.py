"""Which partition of an internal topic holds a key: a group id in ``__consumer_offsets``, a transactional id in
``__transaction_state``.

Brokers and clients must agree on it with Java, whose ``String.hashCode`` it is. The partitioner for records (murmur2,
masked) is another function.
"""

import sys
from collections.abc import Iterable
from functools import lru_cache
from typing import Final

CONSUMER_OFFSETS: Final = "__consumer_offsets"
TRANSACTION_STATE: Final = "__transaction_state"

_MIN_INT32: Final = -(2**31)
_REMEMBERED_KEYS: Final = 4096
"""A transaction asks several times where its id belongs."""


def java_hash(text: str) -> int:
    """Java's ``String.hashCode``: 32 bits, signed, over UTF-16 code units."""
    units: Iterable[int]
    if text.isascii():
        units = text.encode("ascii")
    else:
        encoding = "utf-16-le" if sys.byteorder == "little" else "utf-16-be"
        units = memoryview(text.encode(encoding, "surrogatepass")).cast("H")
    value = 0
    for unit in units:
        value = (31 * value + unit) & 0xFFFF_FFFF
    return value - 0x1_0000_0000 if value & 0x8000_0000 else value


@lru_cache(maxsize=_REMEMBERED_KEYS)
def partition_for(key: str, partition_count: int) -> int:
    """The partition of an internal topic that holds a transactional id or a group id."""
    value = java_hash(key)
    return 0 if value == _MIN_INT32 else abs(value) % partition_count
