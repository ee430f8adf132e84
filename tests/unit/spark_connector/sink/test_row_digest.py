"""The digest of Arrow batches: the same for the same rows, however Spark cuts, orders and types them; else another."""

from random import Random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oncelog.spark_connector.sink.commit.batch_content import NO_ROWS, Content, content_of_all
from oncelog.spark_connector.sink.row_digest import digest_of
from tests.unit.spark_connector.columnar.test_arrow_encoder import record_batch, row


def whole(batches: list[pa.RecordBatch], topic: str | None = None) -> Content | None:
    return content_of_all(digest_of(each, topic) for each in batches)


@settings(max_examples=200, deadline=None)
@given(rows=st.lists(row, max_size=12), cut=st.integers(0, 12), seed=st.integers(0, 2**32))
def test_digest_of_rows_in_any_order_and_tasks_is_the_same(rows: list[dict[str, Any]], cut: int, seed: int) -> None:
    batch = record_batch(rows)
    shuffled = Random(seed).sample(rows, len(rows))
    expected = whole([batch])
    assert whole([batch.slice(0, cut), batch.slice(cut)]) == expected
    assert whole([record_batch(shuffled[:cut]), record_batch(shuffled[cut:])]) == expected


@settings(max_examples=400, deadline=None)
@given(rows=st.lists(row, min_size=1, max_size=4), others=st.lists(row, min_size=1, max_size=4))
def test_other_rows_have_another_digest(rows: list[dict[str, Any]], others: list[dict[str, Any]]) -> None:
    def plain(of: list[dict[str, Any]]) -> list[str]:
        return sorted(repr(sorted({**each, "headers": each["headers"] or []}.items())) for each in of)

    assert (whole([record_batch(rows)]) == whole([record_batch(others)])) == (plain(rows) == plain(others))


def values(*of: bytes | None, key: bytes | None = None) -> pa.RecordBatch:
    keys = pa.array([key] * len(of), pa.binary())
    return pa.RecordBatch.from_arrays([keys, pa.array(of, pa.binary())], ["key", "value"])


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (values(b"ab"), values(b"ba")),
        (values(b"12345678abcdefgh"), values(b"abcdefgh12345678")),
        (values(b""), values(None)),
        (values(b"\0"), values(b"")),
        (values(b"a\0"), values(b"a")),
        (values(b"x", key=b"y"), values(b"y", key=b"x")),
        (values(b"a", b"a"), values(b"b", b"b")),
        (values(b"a", b"b"), values(b"a", b"c")),
        (values(b"a" * 600_000, b"b"), values(b"a" * 600_001, b"b")),
    ],
)
def test_rows_that_are_nearly_the_same_have_other_digests(one: pa.RecordBatch, other: pa.RecordBatch) -> None:
    assert digest_of(one, "t") != digest_of(other, "t")


def test_digest_of_known_rows_does_not_change() -> None:
    """Records of the state topic outlive a release."""
    batch = record_batch([{"key": b"k", "value": b"a value", "headers": [], "topic": "a", "partition": 1}])
    assert digest_of(batch, None) == Content(1, 0xCAF9A120897DFF54)
    assert digest_of(batch.slice(1), None) == NO_ROWS


def test_text_is_its_bytes_and_the_topic_counts_where_the_column_decides() -> None:
    texts = pa.RecordBatch.from_arrays([pa.array(["ä", "b"]), pa.array(["one", "two"])], ["value", "topic"])
    data = pa.RecordBatch.from_arrays([pa.array(["ä".encode(), b"b"]), pa.array(["one", "one"])], ["value", "topic"])
    assert digest_of(texts, "t") == digest_of(data, "t")
    assert digest_of(texts, None) != digest_of(data, None)
