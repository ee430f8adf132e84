"""The subscription of a consumer: topics, a pattern or partitions, and the partitions assigned because of it. Pure."""

from collections.abc import Collection
from enum import Enum, auto
from re import Pattern

from oncelog.clients.consumer.assigned_partitions import AssignedPartitions, ResetPolicy
from oncelog.clients.errors import IllegalState
from oncelog.protocol.topic_partition import TopicPartition


class _Kind(Enum):
    NOTHING = auto()
    TOPICS = auto()
    PATTERN = auto()
    PARTITIONS = auto()


class SubscriptionState:
    """The subscription, the assignment, and the positions."""

    def __init__(self, default_reset: ResetPolicy) -> None:
        self._kind = _Kind.NOTHING
        self.partitions = AssignedPartitions(default_reset)
        self.pattern: Pattern[str] | None = None
        self.topics: frozenset[str] = frozenset()
        """What this consumer subscribes to; with a pattern, what has matched."""
        self.group_topics: frozenset[str] = frozenset()
        """What the whole group subscribes to, where this member leads it."""

    # What is read

    def subscribe(self, topics: Collection[str]) -> None:
        """Read these topics, sharing them with the group."""
        self._become(_Kind.TOPICS)
        self.topics = frozenset(topics)

    def subscribe_pattern(self, pattern: Pattern[str]) -> None:
        """Read the topics that the pattern matches whole."""
        self._become(_Kind.PATTERN)
        self.pattern = pattern

    def match(self, names: Collection[str]) -> bool:
        """Subscribe to those of all topics that the pattern matches; whether that changed anything."""
        assert self.pattern is not None
        before = self.topics
        self.topics = frozenset(name for name in names if self.pattern.fullmatch(name))
        return self.topics != before

    def assign(self, partitions: Collection[TopicPartition]) -> None:
        """Read just these partitions, without sharing. Those that were read already keep their positions."""
        self._become(_Kind.PARTITIONS)
        self.partitions.assign(partitions)

    def unsubscribe(self) -> None:
        self._kind = _Kind.NOTHING
        self.partitions.assign(())
        self.pattern = None
        self.topics = self.group_topics = frozenset()

    def assign_from_group(self, partitions: Collection[TopicPartition]) -> None:
        """What the group gives this member. Partitions that it had keep their positions."""
        assert self.shares_with_group, "the group assigns to whom has not subscribed"
        self.partitions.assign(partitions)

    def accepts(self, partitions: Collection[TopicPartition]) -> bool:
        """Whether an assignment agrees with the subscription, which may have changed since it was asked for."""
        if self.pattern is not None:
            return all(self.pattern.fullmatch(partition.topic) for partition in partitions)
        return all(partition.topic in self.topics for partition in partitions)

    @property
    def is_empty(self) -> bool:
        """Whether there is neither a subscription nor an assignment by the application."""
        return self._kind is _Kind.NOTHING

    @property
    def shares_with_group(self) -> bool:
        """Whether partitions come from the group."""
        return self._kind in (_Kind.TOPICS, _Kind.PATTERN)

    @property
    def metadata_topics(self) -> frozenset[str]:
        """The topics that there must be metadata of."""
        if self.shares_with_group:
            return self.topics | self.group_topics
        return frozenset(partition.topic for partition in self.partitions)

    def _become(self, kind: _Kind) -> None:
        if self._kind not in (_Kind.NOTHING, kind):
            raise IllegalState("a consumer has one of: topics, a pattern, partitions; unsubscribe in between")
        self._kind = kind

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        return frozenset(self.partitions)

    def is_fetchable(self, topic_partition: TopicPartition) -> bool:
        """Whether records of it may be fetched and returned. What is no longer subscribed to may not."""
        partition = self.partitions.get(topic_partition)
        if partition is None or not partition.is_fetchable:
            return False
        return not self.shares_with_group or topic_partition.topic in self.topics
