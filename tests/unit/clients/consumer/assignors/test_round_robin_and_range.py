"""The two assignors without memory, by examples that can be read, and what holds for every group."""

from hypothesis import given

from oncelog.clients.consumer.assignors.assignor import MemberSubscription
from oncelog.clients.consumer.assignors.range import RangeAssignor
from oncelog.clients.consumer.assignors.round_robin import RoundRobinAssignor
from oncelog.protocol.topic_partition import TopicPartition
from tests.unit.clients.consumer.assignors.groups import check, member, partition_counts, subscriptions


def orders(*indexes: int) -> list[TopicPartition]:
    return [TopicPartition("orders", index) for index in indexes]


def clicks(*indexes: int) -> list[TopicPartition]:
    return [TopicPartition("clicks", index) for index in indexes]


def test_range_assignor_gives_neighbours_and_the_first_members_one_more() -> None:
    members = {"a": member("orders"), "b": member("orders"), "c": member("orders")}
    assert RangeAssignor().assign({"orders": 7}, members) == {
        "a": orders(0, 1, 2),
        "b": orders(3, 4),
        "c": orders(5, 6),
    }


def test_ranges_of_topics_of_one_size_stay_together() -> None:
    members = {"a": member("orders", "clicks"), "b": member("orders", "clicks")}
    assert RangeAssignor().assign({"orders": 2, "clicks": 2}, members) == {
        "a": clicks(0) + orders(0),
        "b": clicks(1) + orders(1),
    }


def test_more_members_than_partitions_leave_the_last_ones_without() -> None:
    members = {"a": member("orders"), "b": member("orders")}
    for assignor in (RangeAssignor(), RoundRobinAssignor()):
        assert assignor.assign({"orders": 1}, members) == {"a": orders(0), "b": []}


def test_round_robin_deals_out_all_topics_in_one_go() -> None:
    members = {"a": member("orders", "clicks"), "b": member("orders", "clicks")}
    assert RoundRobinAssignor().assign({"orders": 3, "clicks": 2}, members) == {
        "a": clicks(0) + orders(0, 2),
        "b": clicks(1) + orders(1),
    }


def test_round_robin_passes_over_who_does_not_subscribe() -> None:
    members = {"a": member("orders"), "b": member("orders", "clicks")}
    assert RoundRobinAssignor().assign({"orders": 2, "clicks": 2}, members) == {
        "a": orders(0),
        "b": clicks(0, 1) + orders(1),
    }


def test_static_members_come_first_whatever_their_member_ids() -> None:
    members = {
        "a": member("orders"),
        "z": MemberSubscription(topics=frozenset({"orders"}), group_instance_id="instance-1"),
    }
    assert RangeAssignor().assign({"orders": 2}, members) == {"z": orders(0), "a": orders(1)}


@given(partition_counts, subscriptions)
def test_assignors_give_each_partition_to_one_subscriber(
    counts: dict[str, int], members: dict[str, MemberSubscription]
) -> None:
    for assignor in (RangeAssignor(), RoundRobinAssignor()):
        check(counts, members, assignor.assign(counts, members))
