"""How far a consumer reads ahead, so that its memory is bounded and no partition waits behind all others. Pure.

Two responses of each broker may be unread: one whose records are being returned, and one behind it, so that the broker
works while the application does. All partitions of the broker are in each request: one that has few records is not held
up by one that has many. The brokers share ``max_buffered_bytes`` evenly, and the partitions of a broker share its
responses; what one of them does not use is not lost to the others, because the next fetch follows at once.
"""

from typing import Final

MAX_UNREAD_RESPONSES: Final = 2
"""Of one broker. Also of one partition, whose leader may have changed in between."""
_LEAST_PARTITION_BYTES: Final = 64 * 1024
"""Holds some batches of usual producers. Of a larger batch a broker sends nothing, but for the first of a response."""


def response_bytes(max_buffered_bytes: int, brokers: int) -> int:
    """Return the maximum size of one response, in bytes, for a number of brokers."""
    return max(1, max_buffered_bytes // (MAX_UNREAD_RESPONSES * max(1, brokers)))


def partition_bytes(max_partition_fetch_bytes: int, response: int, partitions: int) -> int:
    """Return the maximum size of one partition's records in a response to a request for a number of partitions.

    It is the partition's share, rounded down to a power of two: each change makes a request name all partitions anew.
    """
    share = max(1, response // max(1, partitions))
    return min(max_partition_fetch_bytes, max(_LEAST_PARTITION_BYTES, 1 << (share.bit_length() - 1)))
