"""Stray replicas: logs of partitions that are not assigned to this broker any more, or of topics that are gone.

A replica that was moved away, or whose topic was deleted, while its broker could not be reached is not always deleted
later: only the controller that decided it knows that it still has to be, and controllers change. So every controller
begins by naming all partitions to each broker, and the broker compares its logs with that. A log that does not belong
here is set aside, not deleted: its directory gets a name that ends in ``-stray``, as in Apache Kafka, and an operator
removes it. Topics that are being deleted are left to StopReplica, which deletes them. Pure.
"""

from oncelog.coordinator.controller.cluster_image import MetadataChange, TopicImage
from oncelog.protocol.schema import ZERO_UUID
from oncelog.protocol.topic_partition import TopicPartition


def is_of_another_topic(log_topic_id: bytes | None, topic_id: bytes) -> bool:
    """Return whether a log belongs to another topic of the same name; False if an id is not known."""
    return log_topic_id is not None and ZERO_UUID not in (log_topic_id, topic_id) and log_topic_id != topic_id


def stray_reason(
    topic_partition: TopicPartition, log_topic_id: bytes | None, broker_id: int, change: MetadataChange
) -> str | None:
    """Return the reason why a log does not belong here after a full update of the metadata; None if it does."""
    if topic_partition.topic in change.being_deleted:
        return None
    topic = change.after.topic(topic_partition.topic)
    if topic is None:
        return "its topic does not exist"
    if is_of_another_topic(log_topic_id, topic.topic_id):
        return "its topic was deleted, and another one has its name"
    return None if _is_assigned(topic, topic_partition.partition, broker_id) else "it is not assigned to this broker"


def _is_assigned(topic: TopicImage, index: int, broker_id: int) -> bool:
    partition = topic.partitions.get(index)
    return partition is not None and broker_id in partition.replicas
