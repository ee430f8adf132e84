"""Which partitions rows go to, for whole columns at once: the same as ``oncelog.clients.producer.partitioner`` chooses.

Murmur2 takes a key four bytes at a time. Here it takes the first four bytes of all keys, then the next four of those
that have as many; keys above ``_LONG`` bytes are rare, and hashed one by one.
"""

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from oncelog.clients.producer.partitioner import murmur2

_SEED: Final = np.uint32(0x9747B28C)
_MULTIPLIER: Final = np.uint32(0x5BD1E995)
_POSITIVE: Final = np.uint32(0x7FFFFFFF)
_LONG: Final = 256
_WORD: Final = 4

Numbers = npt.NDArray[Any]


def ends_and_bytes(array: "pa.Array") -> tuple[Numbers, Numbers]:
    """Return a binary array's offsets (one more than there are rows) and the bytes that they point into."""
    kind = np.int64 if pa.types.is_large_binary(array.type) else np.int32
    _, offsets, data = array.buffers()
    ends = np.frombuffer(offsets, dtype=kind)[array.offset : array.offset + len(array) + 1]
    return ends, np.frombuffer(data, dtype=np.uint8) if data is not None else np.empty(0, np.uint8)


def murmur2_of(keys: "pa.Array") -> Numbers:
    """Return the murmur2 hash of each key (uint32); that of a null is undefined."""
    ends, data = ends_and_bytes(keys)
    starts, lengths = ends[:-1].astype(np.int64), np.diff(ends).astype(np.int64)
    hashes = _SEED ^ lengths.astype(np.uint32)
    is_long = lengths > _LONG
    if is_long.any():
        lengths = np.where(is_long, 0, lengths)
    hashes = _mix_words(hashes, data, starts, lengths // _WORD)
    hashes = _mix_rest(hashes, data, starts, lengths)
    hashes = (hashes ^ hashes >> np.uint32(13)) * _MULTIPLIER
    hashes ^= hashes >> np.uint32(15)
    for row in np.flatnonzero(is_long):
        hashes[row] = murmur2(data[ends[row] : ends[row + 1]].tobytes())
    return hashes


def _mix_words(hashes: Numbers, data: Numbers, starts: Numbers, counts: Numbers) -> Numbers:
    if len(data) < _WORD or not len(counts):
        return hashes
    words: Numbers = np.ndarray((len(data) - _WORD + 1,), np.dtype("<u4"), data, strides=(1,))
    fewest = int(counts.min())
    for index in range(int(counts.max())):
        if index < fewest:
            hashes = _mix(hashes, words[starts + index * _WORD])
        else:
            rows = np.flatnonzero(counts > index)
            hashes[rows] = _mix(hashes[rows], words[starts[rows] + index * _WORD])
    return hashes


def _mix(hashes: Numbers, words: Numbers) -> Numbers:
    words = words * _MULTIPLIER
    words ^= words >> np.uint32(24)
    words *= _MULTIPLIER
    mixed: Numbers = hashes * _MULTIPLIER ^ words
    return mixed


def _mix_rest(hashes: Numbers, data: Numbers, starts: Numbers, lengths: Numbers) -> Numbers:
    """Mix in the last one to three bytes of each key."""
    rests = lengths % _WORD
    for left in range(_WORD - 1, 0, -1):
        rows = np.flatnonzero(rests >= left)
        at = starts[rows] + lengths[rows] - rests[rows] + left - 1
        hashes[rows] ^= data[at].astype(np.uint32) << np.uint32(8 * (left - 1))
    rows = np.flatnonzero(rests)
    hashes[rows] *= _MULTIPLIER
    return hashes


def partitions_of_keys(keys: "pa.Array", partition_count: int) -> Numbers:
    """Return the partition of each key, as in every Kafka client; that of a null is undefined."""
    return ((murmur2_of(keys) & _POSITIVE) % np.uint32(partition_count)).astype(np.int32)
