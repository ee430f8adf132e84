"""The metadata of a cluster: its brokers, the leader of each partition, and the ids of topics. Pure.

This is a cache of responses. A Metadata response comes from any broker, also from one that lags behind, so a
partition's leader is replaced only by one of the same or a newer leader epoch, unless the topic was created anew (its
id changed). That holds for a topic that was removed and requested again, too: an earlier leader does not have the
records that a consumer has read from its successor, and they would seem lost. A leader that a broker names in an error
is applied by the same rule (KIP-951), and saves a Metadata request.
"""

from collections.abc import Iterable, Mapping

from oncelog.clients.connection import Address
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.metadata import MetadataResponse, MetadataResponsePartition, MetadataResponseTopic
from oncelog.protocol.schema import ZERO_UUID
from oncelog.protocol.topic_partition import TopicPartition

NO_LEADER = -1
NO_LEADER_EPOCH = -1


class ClusterMetadata:
    """The cache of one cluster. Times are seconds of the caller's clock."""

    def __init__(self) -> None:
        self.brokers: dict[int, Address] = {}
        self.controller_id: int | None = None
        self.cluster_id: str | None = None
        self.topics: dict[str, MetadataResponseTopic] = {}
        """Topics by name, from the newest responses; none with an error."""
        self.updated_at: dict[str, float] = {}
        """The time of each topic's newest metadata."""
        self._partitions: dict[TopicPartition, MetadataResponsePartition] = {}
        self._names: dict[bytes, str] = {}
        self._forgotten: dict[str, MetadataResponseTopic] = {}
        """Removed topics with an id, kept for their leader epochs."""

    def update(self, response: MetadataResponse, now: float) -> None:
        """Apply a response. Topics with an error stay as they were; those that do not exist are removed."""
        if response.brokers:  # A broker that has only just started may not know any, itself included.
            self.brokers = {broker.node_id: Address(broker.host, broker.port) for broker in response.brokers}
        self.controller_id = response.controller_id if response.controller_id in self.brokers else None
        self.cluster_id = response.cluster_id
        for topic in response.topics:
            if topic.name is None:
                continue
            if topic.error_code == ErrorCode.NONE:
                self._take_topic(topic.name, topic, now)
            elif topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                self.forget(topic.name)
                self._forgotten.pop(topic.name, None)

    def _take_topic(self, name: str, topic: MetadataResponseTopic, now: float) -> None:
        known = self.topics.get(name) or self._forgotten.get(name)
        if known is not None and known.topic_id == topic.topic_id:
            partitions = {each.partition_index: each for each in known.partitions}
            topic.partitions = [_newer(partitions.get(each.partition_index), each) for each in topic.partitions]
        self.forget(name)
        self._forgotten.pop(name, None)
        self.topics[name] = topic
        self.updated_at[name] = now
        self._partitions |= {TopicPartition(name, each.partition_index): each for each in topic.partitions}
        if topic.topic_id != ZERO_UUID:
            self._names[topic.topic_id] = name

    def forget(self, name: str) -> None:
        """Remove a topic, but keep its leader epochs for its next metadata."""
        topic = self.topics.pop(name, None)
        if topic is None:
            return
        self.updated_at.pop(name, None)
        self._names.pop(topic.topic_id, None)
        if topic.topic_id != ZERO_UUID:
            self._forgotten[name] = topic
        for partition in topic.partitions:
            self._partitions.pop(TopicPartition(name, partition.partition_index), None)

    def partition(self, topic_partition: TopicPartition) -> MetadataResponsePartition | None:
        """Return the metadata of a partition; None if it is not known."""
        return self._partitions.get(topic_partition)

    def leader(self, topic_partition: TopicPartition) -> int | None:
        """Return the node id of a partition's leader; None if it has none that is in the cluster."""
        partition = self._partitions.get(topic_partition)
        return partition.leader_id if partition is not None and partition.leader_id in self.brokers else None

    def leader_epoch(self, topic_partition: TopicPartition) -> int:
        """Return the leader epoch of a partition; -1 if it is not known."""
        partition = self._partitions.get(topic_partition)
        return NO_LEADER_EPOCH if partition is None else partition.leader_epoch

    def partition_count(self, name: str) -> int:
        """Return the number of partitions of a topic; 0 if it is not known."""
        topic = self.topics.get(name)
        return 0 if topic is None else len(topic.partitions)

    def topic_id(self, name: str) -> bytes:
        """Return a topic's id; ``ZERO_UUID`` if it has none or is not known."""
        topic = self.topics.get(name)
        return ZERO_UUID if topic is None else topic.topic_id

    def topic_name(self, topic_id: bytes) -> str | None:
        """Return the name of the topic with this id; None if it is not known."""
        return self._names.get(topic_id)

    def take_leaders(
        self, leaders: Mapping[TopicPartition, tuple[int, int]], endpoints: Iterable[tuple[int, Address]]
    ) -> set[TopicPartition]:
        """Apply (leader id, leader epoch) that came with errors (KIP-951). Return the partitions that this changed."""
        self.brokers |= dict(endpoints)
        news = set()
        for topic_partition, (leader_id, leader_epoch) in leaders.items():
            known = self._partitions.get(topic_partition)
            if known is not None and leader_epoch > known.leader_epoch and leader_id in self.brokers:
                known.leader_id, known.leader_epoch = leader_id, leader_epoch
                news.add(topic_partition)
        return news


def _newer(known: MetadataResponsePartition | None, received: MetadataResponsePartition) -> MetadataResponsePartition:
    if known is None or NO_LEADER_EPOCH in (known.leader_epoch, received.leader_epoch):
        return received
    return received if received.leader_epoch >= known.leader_epoch else known
