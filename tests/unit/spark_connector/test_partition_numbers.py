"""Numbers for partitions, as options have them."""

from protocol.topic_partition import TopicPartition
from spark_connector.topic_selection import parse_partition_numbers


def test_offset_of_a_stream_stands_for_its_end() -> None:
    """So what an error shows of a checkpoint can be given as startingOffsets."""
    shown = '{"v": 1, "start": {"orders": {"0": 1}}, "end": {"orders": {"0": 23}}, "ids": {"orders": "0a"}}'
    assert parse_partition_numbers(shown) == {TopicPartition("orders", 0): 23}


def test_topic_may_have_the_name_of_a_part_of_such_an_offset() -> None:
    assert parse_partition_numbers('{"v": {"0": 1}, "end": {"0": 2}}') == {
        TopicPartition("v", 0): 1,
        TopicPartition("end", 0): 2,
    }
