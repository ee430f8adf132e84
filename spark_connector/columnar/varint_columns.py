"""Columns of varints: the numbers of many records as the bytes of a record batch. Vectorised, pure.

A varint is base 128, least significant group first, zig-zagged (``oncelog.protocol.records.varint``). ``varints``
places several of them, and zero bytes, side by side for each row, and makes a binary array of the rows.
"""

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Numbers = npt.NDArray[Any]

_GROUP: Final = 7
_LIMITS: Final = tuple(1 << _GROUP * groups for groups in range(1, 5))
"""Zig-zagged 32-bit numbers below these take one byte, two, three and four."""


def zigzag(values: Numbers) -> Numbers:
    """Map signed numbers to unsigned ones, small ones to small ones: -1 to 1, 1 to 2."""
    return (values << 1) ^ (values >> 63)


def varint_sizes(zigzagged: Numbers) -> Numbers:
    """Return the bytes that each varint takes."""
    sizes = np.ones(len(zigzagged), np.int64)
    largest = int(zigzagged.max()) if len(zigzagged) else 0
    for limit in _LIMITS:
        if largest < limit:
            break
        sizes += zigzagged >= limit
    return sizes


def varints(*columns: Numbers | int, zeros_after_first: int = 0) -> "pa.Array":
    """Return one binary value for each row: the varints of the columns in their order.

    A column is int64 numbers, one for each row; ``zeros_after_first`` zero bytes follow the first column.
    """
    arrays = [zigzag(np.asarray(column, np.int64)) for column in columns]
    sizes = [varint_sizes(array) for array in arrays]
    totals = np.sum(sizes, axis=0) + zeros_after_first
    ends = np.zeros(len(totals) + 1, np.int32)
    np.cumsum(totals, out=ends[1:])
    data = np.zeros(int(ends[-1]), np.uint8)
    at = ends[:-1].astype(np.int64)
    for index, (array, size) in enumerate(zip(arrays, sizes, strict=True)):
        _put(data, at, array, size)
        at = at + size + (zeros_after_first if index == 0 else 0)
    return pa.Array.from_buffers(pa.binary(), len(totals), [None, pa.py_buffer(ends), pa.py_buffer(data)])


def _put(data: Numbers, at: Numbers, zigzagged: Numbers, sizes: Numbers) -> None:
    if not len(sizes):
        return
    shortest, longest = int(sizes.min()), int(sizes.max())
    for group in range(longest):
        bits = zigzagged >> _GROUP * group & 0x7F
        if group + 1 < shortest:
            data[at + group] = bits | 0x80
        elif shortest == longest:
            data[at + group] = bits
        else:
            rows = np.flatnonzero(sizes > group)
            continues = (sizes[rows] > group + 1) << _GROUP
            data[at[rows] + group] = bits[rows] | continues
