"""``cooperative-sticky``: balance with few moves, and only what moves pauses (Kafka's ``CooperativeStickyAssignor``).

Members keep what they own while they join. A partition that moves from one member to another is assigned to none
at first: its owner sees that it is missing, gives it up and joins again, and the rebalance that this causes gives it to
its new owner (KIP-429). So a partition never has two owners.

The user data are the generation, as an int32: members before Kafka 3.5 do not say it elsewhere.
"""

from collections.abc import Mapping, Sequence
from struct import Struct
from typing import Final

from oncelog.clients.consumer.assignors.assignor import NO_GENERATION, Assignment, MemberSubscription
from oncelog.clients.consumer.assignors.sticky_balance import assign_sticky, rightful_owners
from oncelog.protocol.topic_partition import TopicPartition

_GENERATION: Final = Struct(">i")


class CooperativeStickyAssignor:
    """Balanced and sticky; partitions that stay where they are do not pause."""

    name = "cooperative-sticky"
    is_cooperative = True

    def user_data(self, assigned: Sequence[TopicPartition], generation_id: int) -> bytes:
        return _GENERATION.pack(generation_id)

    def assign(self, partition_counts: Mapping[str, int], members: Mapping[str, MemberSubscription]) -> Assignment:
        claims = [(member_id, _generation(member), member.owned) for member_id, member in members.items()]
        assignment = assign_sticky(partition_counts, members, rightful_owners(claims))
        claimants: dict[TopicPartition, set[str]] = {}
        for member_id, _, owned in claims:
            for partition in owned:
                claimants.setdefault(partition, set()).add(member_id)
        return {
            member_id: [partition for partition in partitions if claimants.get(partition, {member_id}) == {member_id}]
            for member_id, partitions in assignment.items()
        }


def _generation(member: MemberSubscription) -> int:
    if member.generation_id != NO_GENERATION:
        return member.generation_id
    if member.user_data is None or len(member.user_data) < _GENERATION.size:
        return NO_GENERATION
    generation: int = _GENERATION.unpack_from(member.user_data)[0]
    return generation
