"""The ``Content`` of Arrow batches, without a Python object for any row.

A row's hash takes in what the user has given: key, value, headers, partition, and the topic where the column decides.
(What was encoded would not do: offsets in a batch, and the partition of a row without a key, are others at each run.)
Each value is a sum of its 64-bit words, each times an odd number of its place; so is its length. Then the bits are
mixed, so that the sum over rows does not cancel what rows have in common.
"""

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from oncelog.spark_connector.columnar.arrow_encoder import Rows, encode_headers, rows_of
from oncelog.spark_connector.columnar.key_partitions import ends_and_bytes
from oncelog.spark_connector.sink.commit.batch_content import Content

Numbers = npt.NDArray[Any]

_WORD: Final = 8
_BYTES_AT_ONCE: Final = 256 * 1024
"""Of one column: temporary arrays take some times as much, and should stay in the processor's cache."""
_GOLDEN: Final = 0x9E3779B97F4A7C15
_ALL_BITS: Final = 2**64 - 1
_NULL: Final = np.uint64(0x8A5CD789635D2DFF)


def digest_of(batch: "pa.RecordBatch", topic: str | None) -> Content:
    """Return the content of some rows; ``topic`` overrides the column. Raises ``RowsInvalid`` for invalid headers."""
    rows = rows_of(batch)
    hashes = np.zeros(len(rows), np.uint64)
    for place, column in enumerate(_columns(rows, topic)):
        if column is not None:
            hashes += _mixed(_hashes(column) + np.uint64(_GOLDEN * (place + 1) & _ALL_BITS))
    return Content(len(rows), int(_mixed(hashes).sum(dtype=np.uint64)))


def _columns(rows: Rows, topic: str | None) -> "tuple[pa.Array | None, ...]":
    """Return the columns to hash, always in this order: records of the state topic depend on it."""
    headers = None if rows.headers is None else encode_headers(rows.headers)
    topics = None if rows.topic is None or topic is not None else rows.topic.cast(pa.binary())
    return rows.key, rows.value, headers, topics, rows.partition


def _hashes(column: "pa.Array") -> Numbers:
    """Return a number for each value (uint64), not yet mixed."""
    if pa.types.is_integer(column.type):
        hashes: Numbers = column.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64).view(np.uint64).copy()
    else:
        hashes = _hashes_of_bytes(column)
    if column.null_count:
        hashes[column.is_null().to_numpy(zero_copy_only=False)] = _NULL
    return hashes


def _hashes_of_bytes(column: "pa.Array") -> Numbers:
    ends, data = ends_and_bytes(column)
    ends = ends.astype(np.int64)
    hashes = np.empty(len(column), np.uint64)
    first = 0
    while first < len(column):
        end = max(first + 1, int(np.searchsorted(ends, ends[first] + _BYTES_AT_ONCE, side="right")) - 1)
        chunk = ends[first : end + 1]
        hashes[first:end] = _hashes_of_chunk(chunk - chunk[0], data[chunk[0] : chunk[-1]])
        first = end
    return hashes


def _hashes_of_chunk(ends: Numbers, data: Numbers) -> Numbers:
    padded = np.zeros(len(data) + _WORD, np.uint8)
    padded[: len(data)] = data
    words: Numbers = np.ndarray((len(data) + 1,), np.dtype("<u8"), padded, strides=(1,))
    lengths = np.diff(ends)
    counts = (lengths + _WORD - 1) // _WORD
    bounds = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(counts, out=bounds[1:])
    within = np.arange(bounds[-1], dtype=np.int64) - np.repeat(bounds[:-1], counts)
    values = words[np.repeat(ends[:-1], counts) + within * _WORD]
    rests = lengths % _WORD
    is_partial = rests > 0
    bits = (rests[is_partial] * 8).astype(np.uint64)
    values[bounds[1:][is_partial] - 1] &= (np.uint64(1) << bits) - np.uint64(1)
    values *= _weights(int(counts.max(initial=0)))[within]
    sums = np.zeros(len(values) + 1, np.uint64)
    np.cumsum(values, out=sums[1:])
    hashes: Numbers = sums[bounds[1:]] - sums[bounds[:-1]] + lengths.astype(np.uint64) * np.uint64(_GOLDEN)
    return hashes


def _weights(count: int) -> Numbers:
    """Return an odd number for each place of a word."""
    return _mixed(np.arange(1, count + 1, dtype=np.uint64) * np.uint64(_GOLDEN)) | np.uint64(1)


def _mixed(numbers: Numbers) -> Numbers:
    """Apply the finaliser of SplitMix64 (Steele, Lea and Flood, 2014): every bit then depends on all bits."""
    mixed = (numbers ^ numbers >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ mixed >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    result: Numbers = mixed ^ mixed >> np.uint64(31)
    return result
