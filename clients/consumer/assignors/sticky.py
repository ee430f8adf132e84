"""``sticky``: balance with few moves, with the eager protocol (Kafka's ``StickyAssignor``).

Members give everything up before they join, so the user data of each contain its last assignment and generation.
The user data are those of Kafka's version 1: topics with partition indexes, then the generation, all big-endian.
"""

from collections.abc import Mapping, Sequence

from oncelog.clients.consumer.assignors.assignor import NO_GENERATION, Assignment, MemberSubscription
from oncelog.clients.consumer.assignors.sticky_balance import assign_sticky, rightful_owners
from oncelog.protocol.compiler import decoder, encoder
from oncelog.protocol.primitives import DecodeError
from oncelog.protocol.schema import Message, array, array_of, int32, string
from oncelog.protocol.topic_partition import TopicPartition


class _TopicAssignment(Message):
    topic: str = string("0+", default="")
    partitions: list[int] = array_of(int32, "0+", default_factory=list)


class StickyUserData(Message, versions="0-1", flexible="none"):
    """What a member had. Clients before Kafka 2.4 leave out the generation."""

    previous_assignment: list[_TopicAssignment] = array(_TopicAssignment, "0+", default_factory=list)
    generation: int = int32("1+", default=NO_GENERATION)


class StickyAssignor:
    """Balanced and sticky; all partitions pause at a rebalance."""

    name = "sticky"
    is_cooperative = False

    def user_data(self, assigned: Sequence[TopicPartition], generation_id: int) -> bytes | None:
        if generation_id == NO_GENERATION:
            return None
        topics: dict[str, list[int]] = {}
        for topic, index in sorted(assigned):
            topics.setdefault(topic, []).append(index)
        had = [_TopicAssignment(topic=topic, partitions=partitions) for topic, partitions in topics.items()]
        data = StickyUserData(previous_assignment=had, generation=generation_id)
        return b"".join(encoder(StickyUserData, 1)(data, bytearray()))

    def assign(self, partition_counts: Mapping[str, int], members: Mapping[str, MemberSubscription]) -> Assignment:
        owners = rightful_owners((member_id, *_previous(member.user_data)) for member_id, member in members.items())
        return assign_sticky(partition_counts, members, owners)


def _previous(user_data: bytes | None) -> tuple[int, list[TopicPartition]]:
    """Return the generation and the partitions in user data; none if there are none or they cannot be read."""
    for version in (1, 0) if user_data else ():
        try:
            data, _ = decoder(StickyUserData, version)(memoryview(user_data or b""), 0)
        except DecodeError:
            continue
        had = [TopicPartition(topic.topic, index) for topic in data.previous_assignment for index in topic.partitions]
        return data.generation, had
    return NO_GENERATION, []
