"""Which logs do not belong to this broker, by a full update of the metadata."""

import pytest

from oncelog.broker.replication.stray_replicas import stray_reason
from oncelog.coordinator.controller.cluster_image import ClusterImage, MetadataChange, PartitionImage, TopicImage
from oncelog.protocol.schema import ZERO_UUID
from oncelog.protocol.topic_partition import TopicPartition

ME, ID, OTHER_ID = 1, b"i" * 16, b"o" * 16
HERE = PartitionImage(leader=2, leader_epoch=0, replicas=(2, ME), isr=(2,))
ELSEWHERE = PartitionImage(leader=2, leader_epoch=0, replicas=(2, 3), isr=(2, 3))


def after(topic_id: bytes = ID, being_deleted: frozenset[str] = frozenset()) -> MetadataChange:
    topic = TopicImage(name="t", topic_id=topic_id, partitions={0: HERE, 1: ELSEWHERE})
    image = ClusterImage(topics={"t": topic})
    return MetadataChange(before=image, after=image, topics=frozenset(), is_full=True, being_deleted=being_deleted)


@pytest.mark.parametrize(
    ("topic", "index", "log_topic_id", "reason"),
    [
        ("t", 0, ID, None),
        ("t", 0, None, None),
        ("t", 0, ZERO_UUID, None),
        ("t", 0, OTHER_ID, "another one"),
        ("t", 1, ID, "not assigned"),
        ("t", 1, None, "not assigned"),
        ("t", 2, ID, "not assigned"),
        ("u", 0, ID, "does not exist"),
    ],
)
def test_log_is_stray_if_its_partition_is_not_assigned_here(
    topic: str, index: int, log_topic_id: bytes | None, reason: str | None
) -> None:
    found = stray_reason(TopicPartition(topic, index), log_topic_id, ME, after())
    assert (found is None) == (reason is None)
    assert reason is None or reason in str(found)


def test_log_of_topic_that_is_being_deleted_is_left_to_stop_replica() -> None:
    change = after(being_deleted=frozenset(["u", "t"]))
    assert stray_reason(TopicPartition("u", 0), ID, ME, change) is None
    assert stray_reason(TopicPartition("t", 1), ID, ME, change) is None


def test_topic_without_an_id_has_no_stray_logs_by_id() -> None:
    assert stray_reason(TopicPartition("t", 0), OTHER_ID, ME, after(ZERO_UUID)) is None
