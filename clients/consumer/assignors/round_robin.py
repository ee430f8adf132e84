"""``roundrobin``: all partitions of all topics dealt out in turn (Kafka's ``RoundRobinAssignor``).

With equal subscriptions the members' shares differ by one at most. A member that does not subscribe to a partition's
topic is passed over, and its turn comes again only after a whole round.
"""

from collections.abc import Mapping, Sequence

from oncelog.clients.consumer.assignors.assignor import Assignment, MemberSubscription, all_partitions, member_order
from oncelog.protocol.topic_partition import TopicPartition


class RoundRobinAssignor:
    """In turn."""

    name = "roundrobin"
    is_cooperative = False

    def user_data(self, assigned: Sequence[TopicPartition], generation_id: int) -> None:
        return None

    def assign(self, partition_counts: Mapping[str, int], members: Mapping[str, MemberSubscription]) -> Assignment:
        order = member_order(members)
        subscribed = frozenset().union(*(member.topics for member in members.values()))
        assignment: Assignment = {member_id: [] for member_id in members}
        turn = 0
        for partition in all_partitions({topic: n for topic, n in partition_counts.items() if topic in subscribed}):
            while partition.topic not in members[order[turn]].topics:
                turn = (turn + 1) % len(order)
            assignment[order[turn]].append(partition)
            turn = (turn + 1) % len(order)
        return assignment
