"""The offset of a stream as JSON."""

import json

import pytest

from oncelog.protocol.topic_partition import TopicPartition
from oncelog.spark_connector.offset_ranges import OffsetRange
from oncelog.spark_connector.stream_offset import OffsetUnreadable, StreamOffset, initial_json, parse_offset

ID = bytes(range(16))
A9, A10, B0 = TopicPartition("a", 9), TopicPartition("a", 10), TopicPartition("b", 0)
OFFSET = StreamOffset({B0: 1, A10: 2, A9: 3}, {A9: 30, B0: 10, A10: 20}, {"b": bytes(16), "a": ID})


def test_equal_offsets_have_one_text() -> None:
    """Spark compares the text: the order is that of topics, then of partition numbers."""
    text = json.dumps(OFFSET.to_json())
    assert text == (
        '{"v": 1, "start": {"a": {"9": 3, "10": 2}, "b": {"0": 1}}, "end": {"a": {"9": 30, "10": 20}, "b": {"0": 10}}, '
        f'"ids": {{"a": "{ID.hex()}"}}, "revision": 2}}'
    )
    parsed = parse_offset(json.loads(text))
    assert parsed is not None
    assert json.dumps(parsed.to_json()) == text


def test_ranges_of_an_offset_are_those_of_its_partitions() -> None:
    assert OFFSET.ranges() == [
        OffsetRange("a", 9, 3, 30, ID),
        OffsetRange("a", 10, 2, 20, ID),
        OffsetRange("b", 0, 1, 10, bytes(16)),
    ]


def test_initial_offset_is_always_the_same() -> None:
    assert initial_json() == initial_json() == {"v": 1, "init": True}
    assert parse_offset(initial_json()) is None


@pytest.mark.parametrize(
    "broken",
    [
        {},
        {"t": {"0": 5}},
        {"v": 2, "init": True},
        {"v": 1},
        {"v": 1, "start": {}, "end": {"t": 5}, "ids": {}},
        {"v": 1, "start": {"t": {"0": "x"}}, "end": {}, "ids": {}},
    ],
)
def test_offsets_of_others_are_refused(broken: dict[str, object]) -> None:
    with pytest.raises(OffsetUnreadable):
        parse_offset(broken)
