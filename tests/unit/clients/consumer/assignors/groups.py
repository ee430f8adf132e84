"""Groups for the assignors' tests, and what must be true of every assignment."""

from collections.abc import Collection, Mapping

from hypothesis import strategies as st

from oncelog.clients.consumer.assignors.assignor import Assignment, MemberSubscription, all_partitions
from oncelog.protocol.topic_partition import TopicPartition

TOPICS = ["orders", "clicks", "views", "empty"]


def member(*topics: str, owned: Collection[TopicPartition] = (), generation: int = 1) -> MemberSubscription:
    return MemberSubscription(topics=frozenset(topics), owned=tuple(owned), generation_id=generation)


partition_counts = st.dictionaries(st.sampled_from(TOPICS), st.integers(1, 8), min_size=1)
subscriptions = st.dictionaries(
    st.sampled_from([f"m{number}" for number in range(7)]),
    st.frozensets(st.sampled_from(TOPICS), min_size=1).map(lambda topics: MemberSubscription(topics=topics)),
    min_size=1,
)


def check(counts: Mapping[str, int], members: Mapping[str, MemberSubscription], assignment: Assignment) -> None:
    """Each partition that anybody subscribes to has one owner, who subscribes to it."""
    assert assignment.keys() == members.keys()
    given = [partition for partitions in assignment.values() for partition in partitions]
    wanted = [p for p in all_partitions(counts) if any(p.topic in each.topics for each in members.values())]
    assert sorted(given) == sorted(wanted)
    for member_id, partitions in assignment.items():
        assert {partition.topic for partition in partitions} <= members[member_id].topics


def is_balanced(members: Mapping[str, MemberSubscription], assignment: Assignment) -> bool:
    """Whether nobody could give one, straight or along a chain of members, to somebody with two less."""
    for giver, partitions in assignment.items():
        reached, layer = {giver}, [giver]
        while layer:
            current = layer.pop()
            for partition in assignment[current]:
                for taker, subscription in members.items():
                    if taker not in reached and partition.topic in subscription.topics:
                        reached.add(taker)
                        layer.append(taker)
        if any(len(partitions) - len(assignment[taker]) >= 2 for taker in reached):
            return False
    return True
