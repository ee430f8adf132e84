"""Assignments inside group descriptions, which members wrote and brokers never look at."""

import pytest

from oncelog.clients.admin.groups import parse_assignment
from oncelog.protocol.compiler import encode
from oncelog.protocol.internal.consumer_protocol import AssignedTopicPartition, ConsumerProtocolAssignment
from oncelog.protocol.topic_partition import TopicPartition

ASSIGNMENT = ConsumerProtocolAssignment(
    assigned_partitions=[
        AssignedTopicPartition(topic="orders", partitions=[1, 0]),
        AssignedTopicPartition(topic="bills", partitions=[2]),
    ],
    user_data=b"sticky",
)
PARTITIONS = (TopicPartition("bills", 2), TopicPartition("orders", 0), TopicPartition("orders", 1))


@pytest.mark.parametrize("version", ConsumerProtocolAssignment.versions)
def test_assignment_of_each_version_is_read(version: int) -> None:
    data = version.to_bytes(2, "big") + encode(ASSIGNMENT, version)
    assert parse_assignment(data) == PARTITIONS


def test_assignment_of_an_unknown_version_is_read_as_the_newest() -> None:
    newest = ConsumerProtocolAssignment.versions.last
    data = (newest + 5).to_bytes(2, "big") + encode(ASSIGNMENT, newest) + b"more"
    assert parse_assignment(data) == PARTITIONS


@pytest.mark.parametrize(
    "data", [b"", b"\0", b"\0\0", b"\0\0\0\0\0\x09", b"\0\1\x7f\xff\xff\xff", b"not an assignment"]
)
def test_malformed_assignment_has_no_partitions(data: bytes) -> None:
    assert parse_assignment(data) == ()
