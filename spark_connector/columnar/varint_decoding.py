"""Many variable-length integers at once: one at each of some positions in a buffer. Pure.

Nearly every integer of a record has one byte or two, so two bytes are decoded for all positions together, and only
longer integers are decoded further. Positions beyond the buffer read its last byte: the caller compares the end of a
record's fields with the end of the record, and rejects what was read beyond it.
"""

from typing import Final

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]
Integers = npt.NDArray[np.int64]

_MOST_BITS: Final = 63
"""The shift of the tenth byte, which has one bit of a 64-bit integer."""


def decode_varints(data: Bytes, at: Integers) -> tuple[Integers, Integers]:
    """Return the integers at ``at``, and the positions after them. Raises ``ValueError`` for one of over 64 bits."""
    first = data.take(at, mode="clip")
    continues = first >> 7
    zigzag = (first & 0x7F).astype(np.int64)
    if not continues.any():
        return _signed(zigzag), at + 1
    following = at + 1
    second = data.take(following, mode="clip")
    zigzag |= (second & 0x7F).astype(np.int64) * continues << 7
    following += continues
    long = np.flatnonzero(continues & (second >> 7))
    if long.size:
        _decode_rest(data, zigzag, following, long)
    return _signed(zigzag), following


def _decode_rest(data: Bytes, zigzag: Integers, following: Integers, long: npt.NDArray[np.intp]) -> None:
    """Add the third and later bytes of some of the integers."""
    shift = 14
    while long.size:
        byte = data.take(following[long], mode="clip")
        if shift > _MOST_BITS or (shift == _MOST_BITS and byte.max() > 1):
            raise ValueError("a varint longer than 64 bits")
        zigzag[long] |= (byte & 0x7F).astype(np.int64) << shift
        following[long] += 1
        long = long[byte >= 0x80]
        shift += 7


def _signed(zigzag: Integers) -> Integers:
    magnitude = (zigzag.view(np.uint64) >> np.uint64(1)).view(np.int64)
    return magnitude ^ -(zigzag & 1)
