"""The sticky assignors: balance, few moves, and with cooperation never two owners. By properties, and by examples."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oncelog.clients.consumer.assignors.assignor import Assignment, MemberSubscription
from oncelog.clients.consumer.assignors.cooperative_sticky import CooperativeStickyAssignor
from oncelog.clients.consumer.assignors.sticky import StickyAssignor
from oncelog.protocol.topic_partition import TopicPartition
from tests.unit.clients.consumer.assignors.groups import (
    TOPICS,
    check,
    is_balanced,
    member,
    partition_counts,
    subscriptions,
)

STICKY = StickyAssignor()
COOPERATIVE = CooperativeStickyAssignor()
Members = dict[str, MemberSubscription]


def remembering(members: Members, assignment: Assignment, generation: int = 1) -> Members:
    """The members when they join after this assignment."""
    return {
        member_id: replace(each, user_data=STICKY.user_data(assignment.get(member_id, []), generation))
        for member_id, each in members.items()
    }


def owning(members: Members, assignment: Assignment, generation: int = 1) -> Members:
    return {
        member_id: replace(each, owned=tuple(assignment.get(member_id, ())), generation_id=generation)
        for member_id, each in members.items()
    }


def moves(before: Assignment, after: Assignment) -> int:
    """Partitions that somebody has who did not have them."""
    return sum(len(set(after[member_id]) - set(before.get(member_id, ()))) for member_id in after)


@settings(max_examples=150, deadline=None)
@given(partition_counts, subscriptions)
def test_balanced_from_nothing(counts: dict[str, int], members: Members) -> None:
    assignment = STICKY.assign(counts, members)
    check(counts, members, assignment)
    assert is_balanced(members, assignment)


@settings(max_examples=150, deadline=None)
@given(partition_counts, subscriptions, st.randoms(use_true_random=False))
def test_balanced_from_anything_that_was_owned(counts: dict[str, int], members: Members, rng: object) -> None:
    owned: Assignment = {member_id: [] for member_id in members}
    for topic, count in counts.items():
        for index in range(count):
            owner = rng.choice([*members])  # type: ignore[attr-defined]
            owned[owner].append(TopicPartition(topic, index))
    assignment = STICKY.assign(counts, remembering(members, owned))
    check(counts, members, assignment)
    assert is_balanced(members, assignment)


@settings(max_examples=150, deadline=None)
@given(partition_counts, subscriptions)
def test_sticky_assignment_unchanged_group_moves_nothing(counts: dict[str, int], members: Members) -> None:
    first = STICKY.assign(counts, members)
    assert STICKY.assign(counts, remembering(members, first)) == first


equal_groups = st.lists(st.sampled_from([f"m{number}" for number in range(7)]), min_size=2, unique=True)


@settings(max_examples=150, deadline=None)
@given(partition_counts, equal_groups)
def test_sticky_assignment_new_member_takes_just_its_share(counts: dict[str, int], ids: list[str]) -> None:
    members = {member_id: member(*TOPICS) for member_id in ids}
    before = STICKY.assign(counts, {member_id: members[member_id] for member_id in ids[1:]})
    after = STICKY.assign(counts, remembering(members, before))
    check(counts, members, after)
    assert moves(before, after) == len(after[ids[0]])
    assert max(map(len, after.values())) - min(map(len, after.values())) <= 1


@settings(max_examples=150, deadline=None)
@given(partition_counts, equal_groups)
def test_sticky_assignment_member_leaves_others_keep_theirs(counts: dict[str, int], ids: list[str]) -> None:
    members = {member_id: member(*TOPICS) for member_id in ids}
    before = STICKY.assign(counts, members)
    rest = {member_id: members[member_id] for member_id in ids[1:]}
    after = STICKY.assign(counts, remembering(rest, before))
    check(counts, rest, after)
    for member_id in rest:
        assert set(before[member_id]) <= set(after[member_id])


def test_sticky_assignment_chain_of_moves_balances() -> None:
    """a can only give orders to b, and b only clicks to c."""
    members = {"a": member("orders"), "b": member("orders", "clicks"), "c": member("clicks")}
    counts = {"orders": 3, "clicks": 3}
    owned: Assignment = {
        "a": [TopicPartition("orders", index) for index in range(3)],
        "b": [TopicPartition("clicks", 0), TopicPartition("clicks", 1)],
        "c": [],
    }
    assignment = STICKY.assign(counts, remembering(members, owned))
    check(counts, members, assignment)
    assert {member_id: len(partitions) for member_id, partitions in assignment.items()} == {"a": 2, "b": 2, "c": 2}


# Who owns what


def test_claims_of_two_generations_latest_owns_the_partition() -> None:
    orders = [TopicPartition("orders", index) for index in range(2)]
    members = {
        "a": replace(member("orders"), user_data=STICKY.user_data(orders, 4)),
        "b": replace(member("orders"), user_data=STICKY.user_data(orders, 5)),
    }
    assert set(STICKY.assign({"orders": 2}, members)["b"]) < set(orders)
    assert STICKY.assign({"orders": 1}, members)["b"] == orders[:1]


@pytest.mark.parametrize("data", [b"", b"\x00", b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff\x00"])
def test_user_data_that_cannot_be_read_count_for_nothing(data: bytes) -> None:
    members = {"a": replace(member("orders"), user_data=data)}
    assert STICKY.assign({"orders": 1}, members) == {"a": [TopicPartition("orders", 0)]}


def test_user_data_are_javas() -> None:
    """``StickyAssignor.STICKY_ASSIGNOR_USER_DATA_V1``: an array of (string, array of int32), an int32."""
    data = STICKY.user_data([TopicPartition("t", 2), TopicPartition("t", 0)], 7)
    assert data == bytes.fromhex("0000000100017400000002000000000000000200000007")
    assert STICKY.user_data([], -1) is None
    old_member = replace(member("t"), user_data=data[:-4])
    new_member = member("t")
    kept = STICKY.assign({"t": 3}, {"a": new_member, "old": old_member})["old"]
    assert set(kept) == {TopicPartition("t", 0), TopicPartition("t", 2)}
    assert COOPERATIVE.user_data([], 7) == bytes.fromhex("00000007")


# Cooperation


def rebalance(counts: dict[str, int], members: Members) -> list[Assignment]:
    """All the rebalances until nobody has to give anything up."""
    rounds: list[Assignment] = []
    generation = max(each.generation_id for each in members.values())
    while True:
        assignment = COOPERATIVE.assign(counts, members)
        rounds.append(assignment)
        generation += 1
        assert len(rounds) < 4
        gives_up = any(set(each.owned) - set(assignment[member_id]) for member_id, each in members.items())
        if not gives_up:
            return rounds
        members = owning(members, assignment, generation)


@settings(max_examples=150, deadline=None)
@given(partition_counts, subscriptions, st.data())
def test_cooperative_assignment_leaves_out_partitions_with_another_owner(
    counts: dict[str, int], members: Members, data: st.DataObject
) -> None:
    owned: Assignment = {member_id: [] for member_id in members}
    for topic, count in counts.items():
        for index in range(count):
            owner = data.draw(st.sampled_from([None, *members]))
            if owner is not None:
                owned[owner].append(TopicPartition(topic, index))
    members = owning(members, owned)
    first, *_ = rounds = rebalance(counts, members)
    for member_id, partitions in first.items():
        others = {partition for other in members if other != member_id for partition in owned[other]}
        assert not others.intersection(partitions)
    check(counts, members, rounds[-1])
    assert is_balanced(members, rounds[-1])


def test_claims_of_one_generation_are_given_up_by_both_members() -> None:
    orders = [TopicPartition("orders", 0)]
    members = {"a": member("orders", owned=orders), "b": member("orders", owned=orders)}
    assert COOPERATIVE.assign({"orders": 1}, members) == {"a": [], "b": []}
    assert len(rebalance({"orders": 1}, members)) == 2


def test_claim_of_an_older_generation_is_given_up_first() -> None:
    orders = [TopicPartition("orders", 0)]
    members = {"a": member("orders", owned=orders, generation=3), "b": member("orders", owned=orders, generation=4)}
    assert COOPERATIVE.assign({"orders": 1}, members) == {"a": [], "b": []}


def test_generation_in_user_data_is_read() -> None:
    """Members before Kafka 3.5 do not say it elsewhere."""
    orders = [TopicPartition("orders", index) for index in range(2)]
    old = replace(member("orders", owned=orders[:1], generation=-1), user_data=COOPERATIVE.user_data([], 4))
    members = {"old": old, "new": member("orders", owned=orders[1:], generation=4)}
    assert COOPERATIVE.assign({"orders": 2}, members) == {"old": orders[:1], "new": orders[1:]}
