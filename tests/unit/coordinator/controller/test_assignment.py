"""Replica placement: Kafka's own examples, and what must hold of every placement."""

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.coordinator.controller.assignment import (
    BrokerAndRack,
    Start,
    assign_replicas,
    rack_alternated,
    random_start,
    start_after,
    why_invalid_assignment,
    why_not_placeable,
)
from oncelog.protocol.errors import ErrorCode

FIVE = [BrokerAndRack(broker_id) for broker_id in range(5)]
SIX_RACKED = [
    BrokerAndRack(0, "rack1"),
    BrokerAndRack(1, "rack3"),
    BrokerAndRack(2, "rack3"),
    BrokerAndRack(3, "rack2"),
    BrokerAndRack(4, "rack2"),
    BrokerAndRack(5, "rack1"),
]


def test_leaders_go_round_and_followers_shift() -> None:
    """The example of Kafka's documentation: ten partitions with three replicas on five brokers."""
    assert assign_replicas(FIVE, 10, 3, Start(0, 0)) == [
        (0, 1, 2), (1, 2, 3), (2, 3, 4), (3, 4, 0), (4, 0, 1),
        (0, 2, 3), (1, 3, 4), (2, 4, 0), (3, 0, 1), (4, 1, 2),
    ]  # fmt: skip


def test_rack_alternated_yields_one_broker_of_each_rack_in_turn() -> None:
    """The example of KIP-36, whose seventh partition is the first with shifted followers."""
    assert rack_alternated({broker.broker_id: str(broker.rack) for broker in SIX_RACKED}) == [0, 3, 1, 5, 4, 2]
    assert assign_replicas(SIX_RACKED, 7, 3, Start(0, 0)) == [
        (0, 3, 1), (3, 1, 5), (1, 5, 4), (5, 4, 2), (4, 2, 0), (2, 0, 3), (0, 4, 2),
    ]  # fmt: skip


def test_leaders_of_added_partitions_go_on_where_the_topic_ended() -> None:
    start = start_after(FIVE, 2)
    ten = assign_replicas(FIVE, 10, 3, start)
    added = assign_replicas(FIVE, 4, 3, start, first_partition=6)
    assert ten[0][0] == 2
    assert [replicas[0] for replicas in added] == [replicas[0] for replicas in ten[6:]]


def test_brokers_without_a_rack_make_all_racks_unknown() -> None:
    mixed = [BrokerAndRack(0, "a"), BrokerAndRack(1, "a"), BrokerAndRack(2)]
    without = [BrokerAndRack(broker.broker_id) for broker in mixed]
    assert assign_replicas(mixed, 6, 2, Start(1, 0)) == assign_replicas(without, 6, 2, Start(1, 0))


clusters = st.lists(st.sampled_from(["a", "b", "c", "d"]), min_size=1, max_size=9).map(
    lambda racks: [BrokerAndRack(index * 3, rack) for index, rack in enumerate(racks)]
)


@given(
    clusters=clusters, with_racks=st.booleans(), partitions=st.integers(1, 40), seed=st.integers(0, 99), data=st.data()
)
def test_assignment_is_valid_even_and_rack_aware(
    clusters: list[BrokerAndRack], with_racks: bool, partitions: int, seed: int, data: st.DataObject
) -> None:
    brokers = clusters if with_racks else [BrokerAndRack(broker.broker_id) for broker in clusters]
    factor = data.draw(st.integers(1, len(brokers)))
    placed = assign_replicas(brokers, partitions, factor, random_start(len(brokers), random.Random(seed)))
    assert len(placed) == partitions
    for replicas in placed:
        assert len(replicas) == len(set(replicas)) == factor
        assert why_invalid_assignment(replicas, brokers, factor) is None
    leaders = Counter({broker.broker_id: 0 for broker in brokers})
    leaders.update(replicas[0] for replicas in placed)
    assert max(leaders.values()) - min(leaders.values()) <= 1
    if with_racks:
        rack_of = {broker.broker_id: broker.rack for broker in brokers}
        racks = len(set(rack_of.values()))
        assert all(len({rack_of[broker_id] for broker_id in replicas}) == min(factor, racks) for replicas in placed)


@given(brokers=st.integers(2, 8), rounds=st.integers(1, 4), seed=st.integers(0, 99), data=st.data())
def test_whole_rounds_give_every_broker_the_same_load(
    brokers: int, rounds: int, seed: int, data: st.DataObject
) -> None:
    factor = data.draw(st.integers(1, brokers))
    cluster = [BrokerAndRack(broker_id) for broker_id in range(brokers)]
    placed = assign_replicas(cluster, rounds * brokers, factor, random_start(brokers, random.Random(seed)))
    load = Counter(broker_id for replicas in placed for broker_id in replicas)
    assert set(load.values()) == {rounds * factor}


@pytest.mark.parametrize(
    ("brokers", "partitions", "factor", "code"),
    [
        (3, 0, 1, ErrorCode.INVALID_PARTITIONS),
        (3, -5, 1, ErrorCode.INVALID_PARTITIONS),
        (3, 1, 0, ErrorCode.INVALID_REPLICATION_FACTOR),
        (3, 1, 4, ErrorCode.INVALID_REPLICATION_FACTOR),
        (0, 1, 1, ErrorCode.INVALID_REPLICATION_FACTOR),
    ],
)
def test_assignment_of_too_many_replicas_is_refused(
    brokers: int, partitions: int, factor: int, code: ErrorCode
) -> None:
    error = why_not_placeable(brokers, partitions, factor)
    assert error is not None
    assert error.code is code


@pytest.mark.parametrize("replicas", [(), (0, 9), (1, 1), (0, 1, 2)])
def test_manual_assignment_names_known_brokers_once_and_equally_many(replicas: tuple[int, ...]) -> None:
    error = why_invalid_assignment(replicas, FIVE, 2)
    assert error is not None
    assert error.code is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert why_invalid_assignment((4, 0), FIVE, 2) is None
