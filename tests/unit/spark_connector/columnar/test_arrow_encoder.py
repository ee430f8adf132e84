"""Encoded columns against the plain codec and the plain partitioner, over all the shapes that Spark may hand in."""

from collections import Counter, defaultdict
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oncelog.clients.producer.partitioner import partition_for_key
from oncelog.clients.producer.producer_batch import ProducerBatch
from oncelog.protocol.records.compression import Compression
from oncelog.protocol.records.record_batch import Record, iter_records, read_header
from oncelog.protocol.topic_partition import TopicPartition
from oncelog.spark_connector.columnar.arrow_encoder import ArrowEncoder, RowsInvalid, rows_of
from oncelog.spark_connector.columnar.key_partitions import murmur2_of, partitions_of_keys

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
LIMIT = 64 * 1024 * 1024
NOW = 1_700_000_000_000

short_bytes = st.binary(max_size=20)
some_bytes = st.one_of(short_bytes, st.binary(min_size=60, max_size=70), st.binary(min_size=250, max_size=300))
header = st.fixed_dictionaries({"key": st.text(max_size=5), "value": st.none() | short_bytes})
row = st.fixed_dictionaries(
    {
        "key": st.none() | some_bytes,
        "value": st.none() | some_bytes,
        "headers": st.none() | st.lists(header, max_size=3),
        "topic": st.sampled_from(["a", "b"]),
        "partition": st.none() | st.integers(0, 2),
    }
)


def record_batch(rows: list[dict[str, Any]], *, leave_out: frozenset[str] = frozenset()) -> pa.RecordBatch:
    schema = pa.schema(
        [
            ("key", pa.binary()),
            ("value", pa.binary()),
            ("headers", HEADERS),
            ("topic", pa.string()),
            ("partition", pa.int32()),
        ]
    )
    batch = pa.RecordBatch.from_pylist(rows, schema=schema)
    return batch.select([name for name in schema.names if name not in leave_out])


def decode(encoded: Any, codec: Compression = Compression.NONE) -> list[Record]:
    """Through the batch that the producer would send."""
    batch = ProducerBatch.of_records(encoded.topic_partition, encoded.records, encoded.record_count, NOW, 0.0)
    data = batch.encode(codec)
    return list(iter_records(data, 0, read_header(data), max_decompressed_bytes=LIMIT))


def written(
    batch: pa.RecordBatch, *, topic: str | None, batch_bytes: int, seed: int
) -> dict[TopicPartition, list[Any]]:
    encoder = ArrowEncoder(topic, batch_bytes, Random(seed))
    rows = rows_of(batch)
    found: dict[TopicPartition, list[Any]] = defaultdict(list)
    for encoded in encoder.encode(rows, dict.fromkeys(encoder.topics_of(rows), 3)):
        records = decode(encoded)
        assert [record.offset for record in records] == list(range(encoded.record_count))
        assert {record.timestamp for record in records} == {NOW}
        found[encoded.topic_partition] += [(each.key, each.value, each.headers) for each in records]
    return found


def _expected(
    row: dict[str, Any], topic: str | None, leave_out: frozenset[str]
) -> tuple[str, int | None, tuple[Any, Any, list[Any]]]:
    """Topic, partition (None: any) and content of the record of a row."""
    key = None if "key" in leave_out else row["key"]
    headers = [] if "headers" in leave_out else [(h["key"], h["value"]) for h in row["headers"] or []]
    partition = None if "partition" in leave_out else row["partition"]
    if partition is None and key is not None:
        partition = partition_for_key(key, 3)
    return topic or row["topic"], partition, (key, row["value"], headers)


@given(
    rows=st.lists(row, min_size=1, max_size=30),
    topic=st.none() | st.just("c"),
    batch_bytes=st.sampled_from([1, 300, 100_000]),
    leave_out=st.frozensets(st.sampled_from(["key", "headers", "partition"])),
    skipped=st.integers(0, 3),
)
@settings(deadline=None)
def test_encoded_rows_equal_those_of_the_plain_codec(
    rows: list[dict[str, Any]], topic: str | None, batch_bytes: int, leave_out: frozenset[str], skipped: int
) -> None:
    """Also from a batch that is a slice of a larger one."""
    batch = record_batch(rows, leave_out=leave_out)
    skipped = min(skipped, len(rows) - 1)
    found = written(batch.slice(skipped), topic=topic, batch_bytes=batch_bytes, seed=1)
    expected = [_expected(each, topic, leave_out) for each in rows[skipped:]]
    chosen = Counter(TopicPartition(name, partition) for name, partition, _ in expected if partition is not None)
    anywhere: dict[str, int] = {}
    """The partition of rows that may go anywhere: the one that has more records than were meant for it."""
    for name, partition, _ in expected:
        if partition is None and name not in anywhere:
            places = (TopicPartition(name, each) for each in range(3))
            anywhere[name] = next(place.partition for place in places if len(found[place]) > chosen[place])
    for name, partition, record in expected:
        place = TopicPartition(name, anywhere[name] if partition is None else partition)
        assert found[place].pop(0) == record
    assert not any(found.values())


@given(keys=st.lists(st.none() | some_bytes, max_size=40))
@settings(deadline=None)
def test_keys_go_to_the_partitions_of_other_clients(keys: list[bytes | None]) -> None:
    array = pa.array(keys, pa.binary())
    found = partitions_of_keys(array, 7)
    assert [int(p) for key, p in zip(keys, found, strict=True) if key is not None] == [
        partition_for_key(key, 7) for key in keys if key is not None
    ]


def test_murmur2_of_keys_equals_javas() -> None:
    """Values from Kafka's UtilsTest.testMurmur2."""
    known = {
        b"21": -973932308,
        b"foobar": -790332482,
        b"a-little-bit-long-string": -985981536,
        b"a-little-bit-longer-string": -1486304829,
        b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
        b"abc": 479470107,
    }
    found = murmur2_of(pa.array(list(known), pa.binary()))
    assert [int(each) for each in found] == [value % 2**32 for value in known.values()]


@pytest.mark.parametrize("codec", list(Compression))
def test_batches_of_every_codec_are_read_as_written(codec: Compression) -> None:
    encoder = ArrowEncoder("t", 1000, Random(1))
    rows = rows_of(pa.record_batch({"value": pa.array([b"x" * n for n in range(50)])}))
    values = [record.value for each in encoder.encode(rows, {"t": 1}) for record in decode(each, codec)]
    assert values == [b"x" * n for n in range(50)]


def test_strings_are_utf_8() -> None:
    encoder = ArrowEncoder("t", 1000, Random(1))
    rows = rows_of(pa.record_batch({"key": pa.array(["ä"]), "value": pa.array(["→"])}))
    (encoded,) = encoder.encode(rows, {"t": 1})
    assert decode(encoded)[0][2:4] == ("ä".encode(), "→".encode())


def test_batches_are_cut_near_their_limit() -> None:
    encoder = ArrowEncoder("t", 10_000, Random(1))
    rows = rows_of(pa.record_batch({"value": pa.array([b"x" * 100] * 1000)}))
    sizes = [len(each.records) for each in encoder.encode(rows, {"t": 1})]
    assert len(sizes) > 10
    assert max(sizes) < 10_300


@pytest.mark.parametrize(
    ("columns", "complaint"),
    [
        ({"topic": pa.array([None], pa.string())}, "no topic"),
        ({"topic": pa.array(["t"]), "partition": pa.array([3], pa.int32())}, "partition 3 of t, which has 3"),
        ({"topic": pa.array(["t"]), "partition": pa.array([-1], pa.int32())}, "partition -1 of t"),
        ({"topic": pa.array(["t"]), "headers": pa.array([[{"key": None, "value": b""}]], HEADERS)}, "null"),
    ],
)
def test_rows_that_cannot_be_written_raise_rows_invalid(columns: dict[str, Any], complaint: str) -> None:
    encoder = ArrowEncoder(None, 1000, Random(1))
    rows = rows_of(pa.record_batch({"value": pa.array([b"v"]), **columns}))
    with pytest.raises(RowsInvalid, match=complaint):
        list(encoder.encode(rows, dict.fromkeys(encoder.topics_of(rows), 3)))


@pytest.mark.parametrize(
    ("topic", "reason"),
    [
        ("__spark_sink_state", "state topic"),
        ("decisions", "state topic"),
        ("__consumer_offsets", "internal topic"),
        ("a b", "no topic can have this name"),
        ("x" * 250, "no topic can have this name: one has 1 to 249"),
        ("", "no topic can have this name"),
    ],
)
def test_rows_for_topics_that_cannot_be_written_are_refused(topic: str, reason: str) -> None:
    encoder = ArrowEncoder(None, LIMIT, Random(1), state_topic="decisions")
    rows = pa.record_batch({"value": pa.array([b"v", b"w"], pa.binary()), "topic": pa.array(["a", topic])})
    with pytest.raises(RowsInvalid, match=f"column topic .*{reason}"):
        encoder.topics_of(rows_of(rows))
