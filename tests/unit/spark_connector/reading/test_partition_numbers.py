"""Numbers for partitions, as options have them."""

import pytest

from oncelog.protocol.topic_partition import TopicPartition
from oncelog.spark_connector.options import OptionsInvalid
from oncelog.spark_connector.reading.read_options import read_options
from oncelog.spark_connector.reading.topic_selection import parse_assign, parse_partition_numbers


def test_offset_of_a_stream_stands_for_its_end() -> None:
    """So what an error shows of a checkpoint can be given as startingOffsets."""
    shown = '{"v": 1, "start": {"orders": {"0": 1}}, "end": {"orders": {"0": 23}}, "ids": {"orders": "0a"}}'
    assert parse_partition_numbers(shown) == {TopicPartition("orders", 0): 23}


def test_topic_may_have_the_name_of_a_part_of_such_an_offset() -> None:
    assert parse_partition_numbers('{"v": {"0": 1}, "end": {"0": 2}}') == {
        TopicPartition("v", 0): 1,
        TopicPartition("end", 0): 2,
    }


@pytest.mark.parametrize(
    "text",
    [
        '{"orders": {"0": 0, "0": 5, "1": 0}}',
        '{"orders": {"0": 0, "00": 5}}',
        '{"orders": {"0": 0}, "orders": {"1": 5}}',
    ],
)
def test_partition_numbers_that_name_a_key_twice_are_refused(text: str) -> None:
    """JSON takes the last one, so a start that was meant would be passed over."""
    with pytest.raises(ValueError, match="twice"):
        parse_partition_numbers(text)
    with pytest.raises(OptionsInvalid, match=r"startingOffsets.*twice"):
        read_options({"kafka.bootstrap.servers": "b:1", "subscribe": "orders", "startingOffsets": text}, streaming=True)


def test_topic_that_is_assigned_twice_is_refused() -> None:
    with pytest.raises(ValueError, match="twice"):
        parse_assign('{"orders": [0], "orders": [1]}')
