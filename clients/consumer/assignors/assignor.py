"""What every assignor is: a pure function from the members' subscriptions and the topics' sizes to an assignment."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from oncelog.protocol.topic_partition import TopicPartition

NO_GENERATION = -1

Assignment: TypeAlias = dict[str, list[TopicPartition]]
"""The partitions of each member id; every member is in it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberSubscription:
    """What a member said when it joined."""

    topics: frozenset[str]
    owned: tuple[TopicPartition, ...] = ()
    """What it reads while it joins: with the eager protocol nothing."""
    generation_id: int = NO_GENERATION
    """The generation in which it got what it owns."""
    group_instance_id: str | None = None
    user_data: bytes | None = None
    """What its assignor wrote for the leader's."""


class Assignor(Protocol):
    """A strategy. Leaders of any client library must share out alike, or members would all move at a change."""

    name: str
    is_cooperative: bool
    """Whether members keep what they own while they join, and give up only what goes to another (KIP-429)."""

    def user_data(self, assigned: Sequence[TopicPartition], generation_id: int) -> bytes | None:
        """Return a member's data for the leader's assignor, from its last assignment and generation (-1 if none)."""

    def assign(self, partition_counts: Mapping[str, int], members: Mapping[str, MemberSubscription]) -> Assignment:
        """Assign each partition to one member that subscribes to its topic, if there is one.

        ``partition_counts`` lacks topics that do not exist.
        """


def member_order(members: Mapping[str, MemberSubscription]) -> list[str]:
    """Return the member ids, static members first and in the order of their instance ids.

    (``AbstractPartitionAssignor.MemberInfo.compareTo``.) A static member's new id thus does not change its place.
    """

    def key(member_id: str) -> tuple[bool, bytes]:
        instance_id = members[member_id].group_instance_id
        return instance_id is None, _java_order(member_id if instance_id is None else instance_id)

    return sorted(members, key=key)


def _java_order(text: str) -> bytes:
    """Return the key that Java sorts strings by: their UTF-16 code units."""
    return text.encode("utf-16-be", "surrogatepass")


def all_partitions(partition_counts: Mapping[str, int]) -> list[TopicPartition]:
    """Return every partition, in the order of topics and then of indexes."""
    topics = sorted(partition_counts, key=_java_order)
    return [TopicPartition(topic, index) for topic in topics for index in range(partition_counts[topic])]
