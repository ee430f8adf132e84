"""Arrow batches in, the records of Kafka's record batches out, without a Python object for any row.

Rows are put in the order of their partitions (a stable sort, so that rows of one partition keep their order), cut into
batches, and the records are joined in C++ from columns: the lengths and deltas as varints, the key, the value's length,
the value, the headers. The data buffer of the joined column *is* the records, one batch after the other::

    length, attributes 0, timestamp delta 0, offset delta, key length | key | value length | value | headers

All records of a batch have the batch's timestamp, so their deltas are 0. The layout is that of
``oncelog.protocol.records.record_batch``.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from oncelog.protocol.topic_partition import TopicPartition
from oncelog.spark_connector.columnar.key_partitions import ends_and_bytes, partitions_of_keys
from oncelog.spark_connector.columnar.varint_columns import varint_sizes, varints, zigzag
from oncelog.spark_connector.target_topics import STATE_TOPIC, shown, target_problem

Numbers = npt.NDArray[Any]

NO_HEADERS: Final = b"\0"
_FIXED_BYTES: Final = 2
"""Of each record: attributes and timestamp delta."""
_MOST_OVERHEAD: Final = 20
"""Bytes of a record beside key, value and headers, at most; an estimate for cutting batches."""


class RowsInvalid(ValueError):
    """Rows that cannot be written, however often the task is retried."""


class EncodedRecords(NamedTuple):
    """The records of one batch, uncompressed and without the batch's header."""

    topic_partition: TopicPartition
    records: memoryview
    record_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """Rows by column, as binary arrays; None for a column that the rows do not have."""

    value: "pa.Array"
    key: "pa.Array | None" = None
    headers: "pa.Array | None" = None
    topic: "pa.Array | None" = None
    partition: "pa.Array | None" = None

    def __len__(self) -> int:
        return len(self.value)

    @property
    def size(self) -> int:
        """Bytes of keys and values, about."""
        return int(self.value.nbytes) + (0 if self.key is None else int(self.key.nbytes))

    def take(self, order: "pa.Array") -> "Rows":
        return self._each(lambda column: column.take(order))

    def slice(self, start: int, count: int) -> "Rows":
        return self._each(lambda column: column.slice(start, count))

    def _each(self, change: "Callable[[pa.Array], pa.Array]") -> "Rows":
        columns = (self.value, self.key, self.headers, self.topic, self.partition)
        value, key, headers, topic, partition = (None if each is None else change(each) for each in columns)
        return Rows(value=value, key=key, headers=headers, topic=topic, partition=partition)


def rows_of(batch: "pa.RecordBatch") -> Rows:
    """Return the columns of a batch from Spark by name, without those that are not written.

    The types are those that ``write_options`` has checked.
    """
    columns = {name: batch.column(index) for index, name in enumerate(batch.schema.names)}
    key, topic = columns.get("key"), columns.get("topic")
    return Rows(
        value=_binary(columns["value"]),
        key=None if key is None else _binary(key),
        headers=columns.get("headers"),
        topic=topic,
        partition=columns.get("partition"),
    )


def _binary(array: "pa.Array") -> "pa.Array":
    if pa.types.is_binary(array.type):
        return array
    return array.cast(pa.binary())


class ArrowEncoder:
    """Encodes rows for the partitions of their topics. ``topic`` overrides the column, as in Spark's own sink."""

    def __init__(self, topic: str | None, batch_bytes: int, rng: Random, *, state_topic: str = STATE_TOPIC) -> None:
        self._topic = topic
        self._state_topic = state_topic
        self._batch_bytes = batch_bytes
        self._rng = rng

    def topics_of(self, rows: Rows) -> list[str]:
        """Return the topics that rows are for. Raises ``RowsInvalid``."""
        if self._topic is not None:
            return [self._topic]
        if rows.topic is None or rows.topic.null_count:
            raise RowsInvalid("a row has no topic: the column topic is null, and there is no option topic")
        topics = [str(each) for each in pc.unique(rows.topic).to_pylist()]
        for topic in topics:
            if reason := target_problem(topic, self._state_topic):
                raise RowsInvalid(f"a row of the column topic is for {shown(topic)}: {reason}. Correct the column")
        return topics

    def encode(self, rows: Rows, partition_counts: Mapping[str, int]) -> Iterator[EncodedRecords]:
        """Yield the batches of some rows, by topic and partition. Raises ``RowsInvalid``."""
        if self._topic is not None:
            yield from self._encode_topic(self._topic, rows, partition_counts[self._topic])
            return
        for topic in self.topics_of(rows):
            chosen = pc.indices_nonzero(pc.equal(rows.topic, topic))
            mine = rows if len(chosen) == len(rows) else rows.take(chosen)
            yield from self._encode_topic(topic, mine, partition_counts[topic])

    def _encode_topic(self, topic: str, rows: Rows, partition_count: int) -> Iterator[EncodedRecords]:
        partitions = self._partitions(topic, rows, partition_count)
        if len(partitions) and partitions.min() != partitions.max():
            order = np.argsort(partitions, kind="stable")
            rows, partitions = rows.take(pa.array(order)), partitions[order]
        starts = self._cut(rows, partitions)
        ends, data = ends_and_bytes(_records(rows, starts))
        view = memoryview(data.data)
        for start, end in zip(starts, [*starts[1:], len(rows)], strict=True):
            home = TopicPartition(topic, int(partitions[start]))
            yield EncodedRecords(home, view[ends[start] : ends[end]], int(end - start))

    def _partitions(self, topic: str, rows: Rows, count: int) -> Numbers:
        """Return the partition of each row: its column, else its key's hash, else one random one for all others."""
        anywhere = self._rng.randrange(count)
        if rows.key is None:
            partitions = np.full(len(rows), anywhere, np.int32)
        else:
            partitions = partitions_of_keys(rows.key, count)
            if rows.key.null_count:
                partitions[_nulls(rows.key)] = anywhere
        if rows.partition is not None:
            given = rows.partition.fill_null(-1).to_numpy(zero_copy_only=False)
            is_given = ~_nulls(rows.partition)
            wrong = is_given & ((given < 0) | (given >= count))
            if wrong.any():
                raise RowsInvalid(f"a row is for partition {given[wrong][0]} of {topic}, which has {count}")
            partitions = np.where(is_given, given, partitions)
        return partitions

    def _cut(self, rows: Rows, partitions: Numbers) -> list[int]:
        """Return the rows that begin batches: the first of each partition, and where a batch would grow too large."""
        sizes = _lengths(rows.value) + _MOST_OVERHEAD
        if rows.key is not None:
            sizes += _lengths(rows.key)
        if rows.headers is not None:
            sizes += 100 * rows.headers.value_lengths().fill_null(0).to_numpy(zero_copy_only=False)
        before = np.cumsum(sizes) - sizes
        firsts = np.flatnonzero(np.diff(partitions, prepend=-1))
        counts = np.diff(np.append(firsts, len(partitions)))
        piece = (before - np.repeat(before[firsts], counts)) // self._batch_bytes
        is_first = np.diff(piece, prepend=-1) != 0
        is_first[firsts] = True
        return [int(each) for each in np.flatnonzero(is_first)]


def _nulls(array: "pa.Array") -> Numbers:
    nulls: Numbers = array.is_null().to_numpy(zero_copy_only=False)
    return nulls


def _lengths(array: "pa.Array") -> Numbers:
    """Return the lengths of binary values in bytes; 0 for nulls."""
    lengths = np.diff(ends_and_bytes(array)[0]).astype(np.int64)
    if array.null_count:
        lengths[_nulls(array)] = 0
    return lengths


def _records(rows: Rows, starts: list[int]) -> "pa.Array":
    """Return each row as an encoded record of its batch; batches begin at the rows ``starts``."""
    count = len(rows)
    counts = np.diff([*starts, count])
    deltas = np.arange(count, dtype=np.int64) - np.repeat(np.asarray(starts, np.int64), counts)
    value_sizes, stated_value = _sizes(rows.value)
    bodies = varint_sizes(zigzag(deltas)) + varint_sizes(zigzag(stated_value)) + value_sizes + _FIXED_BYTES
    headers = None if rows.headers is None else encode_headers(rows.headers)
    bodies += 1 if headers is None else _lengths(headers)
    tail = pa.scalar(NO_HEADERS, pa.binary()) if headers is None else headers
    value = rows.value.fill_null(b"") if rows.value.null_count else rows.value
    if rows.key is None:
        bodies += 1
        prefix = varints(bodies, deltas, np.full(count, -1, np.int64), stated_value, zeros_after_first=_FIXED_BYTES)
        return pc.binary_join_element_wise(prefix, value, tail, b"")
    key_sizes, stated_key = _sizes(rows.key)
    bodies += varint_sizes(zigzag(stated_key)) + key_sizes
    prefix = varints(bodies, deltas, stated_key, zeros_after_first=_FIXED_BYTES)
    key = rows.key.fill_null(b"") if rows.key.null_count else rows.key
    return pc.binary_join_element_wise(prefix, key, varints(stated_value), value, tail, b"")


def _sizes(array: "pa.Array") -> tuple[Numbers, Numbers]:
    """Return the bytes of each value, and the content of its length field: -1 for a null."""
    sizes = _lengths(array)
    if not array.null_count:
        return sizes, sizes
    return sizes, np.where(_nulls(array), -1, sizes)


def encode_headers(headers: "pa.Array") -> "pa.Array":
    """Return each row's encoded headers: their count, then each name and value. Raises ``RowsInvalid``."""
    counts = headers.value_lengths().fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    flat = headers.flatten()
    if flat.null_count or flat.field(0).null_count:
        raise RowsInvalid("a header, or its key, is null")
    names, values = (_binary(each) for each in flat.flatten())
    _, stated = _sizes(values)
    joined = pc.binary_join_element_wise(
        varints(_lengths(names)), names, varints(stated), values.fill_null(b"") if values.null_count else values, b""
    )
    ends = np.zeros(len(headers) + 1, np.int32)
    np.cumsum(counts, out=ends[1:])
    lists = pa.ListArray.from_arrays(pa.array(ends), joined)
    return pc.binary_join_element_wise(varints(counts), pc.binary_join(lists, b""), b"")
