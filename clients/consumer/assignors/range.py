"""``range``: of each topic a run of neighbouring partitions to each member (Kafka's ``RangeAssignor``).

Topics are shared out one by one, so that topics of the same size have their partitions of the same index at the same
member: what joins them by key needs that. The price is balance: with many small topics the first members get more.

Racks play no part here. (Kafka's also matches racks, KIP-881, where members and brokers name theirs and partitions
are not in every rack; then a leader of this library assigns without regard to them.)
"""

from collections.abc import Mapping, Sequence

from oncelog.clients.consumer.assignors.assignor import Assignment, MemberSubscription, member_order
from oncelog.protocol.topic_partition import TopicPartition


class RangeAssignor:
    """Ranges of each topic."""

    name = "range"
    is_cooperative = False

    def user_data(self, assigned: Sequence[TopicPartition], generation_id: int) -> None:
        return None

    def assign(self, partition_counts: Mapping[str, int], members: Mapping[str, MemberSubscription]) -> Assignment:
        """Assign ranges. The first ``partitions % members`` members get one partition more than the others."""
        order = member_order(members)
        assignment: Assignment = {member_id: [] for member_id in members}
        for topic, count in sorted(partition_counts.items()):
            subscribers = [member_id for member_id in order if topic in members[member_id].topics]
            if not subscribers:
                continue
            each, extra = divmod(count, len(subscribers))
            start = 0
            for place, member_id in enumerate(subscribers):
                end = start + each + (place < extra)
                assignment[member_id] += [TopicPartition(topic, index) for index in range(start, end)]
                start = end
        return assignment
