"""The headers of many records as columns of numbers: where each name and value is. Pure.

Headers follow one another, but most records have a few: the first headers of all records are located together, then the
second ones, and so on. A few records with very many headers are gone through one by one.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from oncelog.protocol.records.record_batch import CorruptRecord
from oncelog.protocol.records.varint import decode_varint
from oncelog.spark_connector.columnar.record_columns import RecordColumns
from oncelog.spark_connector.columnar.varint_decoding import Integers, decode_varints

_FEW: Final = 8


@dataclass(frozen=True, slots=True)
class HeaderColumns:
    """One entry for each header, in the order of records; a value's length below 0 is a null."""

    counts: Integers
    """The number of headers of each record."""
    name_at: Integers
    name_length: Integers
    value_at: Integers
    value_length: Integers


def locate_headers(records: RecordColumns) -> HeaderColumns:
    """Return where the headers of all records are. Raises ``CorruptRecord``."""
    try:
        return _locate(records)
    except (IndexError, ValueError) as error:
        raise CorruptRecord(f"in the headers of a record from offset {records.offset[0]} on: {error}") from error


def _locate(records: RecordColumns) -> HeaderColumns:
    counts, at = decode_varints(records.data, records.headers_at)
    if (counts < 0).any() or (counts > records.end - records.headers_at).any():
        raise ValueError("a header count that cannot be")
    total = int(counts.sum())
    fields = np.empty((4, total), np.int64)
    first = np.cumsum(counts) - counts
    active = np.flatnonzero(counts)
    index = 0
    while active.size > _FEW:
        fields[:, first[active] + index], at[active] = _next_headers(records, at[active], records.end[active])
        index += 1
        active = active[counts[active] > index]
    for record in active:
        at[record] = _walk(records, int(record), int(at[record]), fields[:, first[record] + index :], counts, index)
    if (at != records.end).any():
        raise ValueError("headers that do not end where their record does")
    return HeaderColumns(counts, *fields)


def _next_headers(records: RecordColumns, at: Integers, end: Integers) -> tuple[npt.NDArray[np.int64], Integers]:
    name_length, name_at = decode_varints(records.data, at)
    if (name_length < 0).any() or (name_length > end - name_at).any():
        raise ValueError("a header without a name, or with one that is too long")
    value_length, value_at = decode_varints(records.data, name_at + name_length)
    if (value_length > end - value_at).any():
        raise ValueError("a header whose value is too long")
    return np.stack([name_at, name_length, value_at, value_length]), value_at + np.maximum(value_length, 0)


def _walk(
    records: RecordColumns, record: int, at: int, fields: npt.NDArray[np.int64], counts: Integers, index: int
) -> int:
    """Locate the headers of one record from the ``index``-th on, in ``fields``; return the position after them."""
    start, end = at, int(records.end[record])
    data = records.data[start:end].tobytes()
    for column in range(int(counts[record]) - index):
        name_length, name_at = decode_varint(data, at - start)
        value_length, value_at = decode_varint(data, name_at + max(name_length, 0))
        at = start + value_at + max(value_length, 0)
        if name_length < 0 or at > end:
            raise ValueError("a header without a name, or one that is too long")
        fields[:, column] = start + name_at, name_length, start + value_at, value_length
    return at
