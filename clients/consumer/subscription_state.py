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
    """The subscription of one consumer, and its assigned partitions."""

    def __init__(self, default_reset: ResetPolicy) -> None:
        self._kind = _Kind.NOTHING
        self.partitions = AssignedPartitions(default_reset)
        self.pattern: Pattern[str] | None = None
        self.topics: frozenset[str] = frozenset()
        """The topics of this consumer's subscription; with a pattern, those that have matched."""
        self.group_topics: frozenset[str] = frozenset()
        """The topics of all members' subscriptions if this member leads the group."""

    # What is read

    def subscribe(self, topics: Collection[str]) -> None:
        """Share these topics with the group."""
        self._become(_Kind.TOPICS)
        self.topics = frozenset(topics)

    def subscribe_pattern(self, pattern: Pattern[str]) -> None:
        """Share the topics whose whole names match the pattern."""
        self._become(_Kind.PATTERN)
        self.pattern = pattern

    def match(self, names: Collection[str]) -> bool:
        """Subscribe to the topics that the pattern matches. Return whether that changed the subscription."""
        assert self.pattern is not None
        before = self.topics
        self.topics = frozenset(name for name in names if self.pattern.fullmatch(name))
        return self.topics != before

    def assign(self, partitions: Collection[TopicPartition]) -> None:
        """Read these partitions without sharing them. Those that were assigned already keep their positions."""
        self._become(_Kind.PARTITIONS)
        self.partitions.assign(partitions)

    def unsubscribe(self) -> None:
        self._kind = _Kind.NOTHING
        self.partitions.assign(())
        self.pattern = None
        self.topics = self.group_topics = frozenset()

    def assign_from_group(self, partitions: Collection[TopicPartition]) -> None:
        """Apply the group's assignment. Partitions that stay keep their positions."""
        assert self.shares_with_group, "the group assigns to whom has not subscribed"
        self.partitions.assign(partitions)

    def accepts(self, partitions: Collection[TopicPartition]) -> bool:
        """Return whether an assignment fits the subscription, which may have changed since the member joined."""
        if self.pattern is not None:
            return all(self.pattern.fullmatch(partition.topic) for partition in partitions)
        return all(partition.topic in self.topics for partition in partitions)

    @property
    def is_empty(self) -> bool:
        """Return whether there is neither a subscription nor an assignment by the application."""
        return self._kind is _Kind.NOTHING

    @property
    def shares_with_group(self) -> bool:
        """Return whether the group assigns partitions."""
        return self._kind in (_Kind.TOPICS, _Kind.PATTERN)

    @property
    def metadata_topics(self) -> frozenset[str]:
        """Return the topics whose metadata is needed."""
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
        """Return whether its records may be fetched and returned: not those of topics that were unsubscribed."""
        partition = self.partitions.get(topic_partition)
        if partition is None or not partition.is_fetchable:
            return False
        return not self.shares_with_group or topic_partition.topic in self.topics
