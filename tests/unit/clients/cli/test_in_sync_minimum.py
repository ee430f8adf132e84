"""Partitions that refuse writes for want of replicas, as ``oncelog health`` and ``oncelog doctor`` tell it."""

import pytest

from oncelog.clients.cli.cluster_health import assess
from oncelog.clients.cli.in_sync_minimum import about_excess, about_minimum
from tests.unit.clients.cli.test_cluster_health import broker, metadata

CUT = metadata(d=(1, [1, 2, 3], [1]), a=(1, [1, 2, 3], [1]), b=(1, [1, 2], [1]), c=(1, [1], [1]), e=(2, [1, 2], [2]))


def test_partitions_below_the_minimum_are_named_with_the_brokers_that_are_away() -> None:
    assert about_minimum(CUT, {"a": 2, "b": 1, "d": 2}, {1}) == (
        "2 partitions have fewer replicas in sync than min.insync.replicas: writes with acks=all are refused "
        "(a-0, d-0); start broker 2 or 3: one of them is enough, as 1 more replica must be in sync"
    )


@pytest.mark.parametrize(
    ("minimum", "replicas", "alive", "way_out"),
    [
        (2, [1, 2], {1}, "start broker 2, as 1 more replica must be in sync"),
        (3, [1, 2, 3], {1}, "start brokers 2, 3: all are needed, as 2 more replicas must be in sync"),
        (9, [1, 2, 3], {1}, "start brokers 2, 3: all are needed, as 2 more replicas must be in sync"),
        (3, [1, 2, 3, 4], {1}, "start brokers 2, 3, 4: 2 of them are enough, as 2 more replicas must be in sync"),
        (
            2,
            [1, 2],
            {1, 2},
            "check that broker 2 can reach the leaders and catch up, as 1 more replica must be in sync",
        ),
        (
            2,
            [1, 2, 3],
            {1, 3},
            "start broker 2 or check that broker 3 can reach the leaders and catch up: one of them is enough, as 1 "
            "more replica must be in sync",
        ),
    ],
)
def test_partition_below_the_minimum_says_which_brokers_and_how_many_are_enough(
    minimum: int, replicas: list[int], alive: set[int], way_out: str
) -> None:
    sentence = about_minimum(metadata(a=(1, replicas, [1])), {"a": minimum}, alive) or ""
    assert sentence.partition("(a-0); ")[2] == way_out


def test_partitions_that_wait_for_different_brokers_say_which_waits_for_which() -> None:
    seen = metadata(__consumer_offsets=(1, [1, 2], [1]), b=(1, [1, 3], [1]), c=(1, [1, 3], [1]))
    sentence = about_minimum(seen, {"__consumer_offsets": 2, "b": 2, "c": 2}, {1}) or ""
    assert "are refused (b-0, c-0, __consumer_offsets-0), groups cannot" in sentence
    assert sentence.endswith(
        "; start broker 2, as 1 more replica must be in sync (__consumer_offsets-0); "
        "start broker 3, as 1 more replica must be in sync (b-0, c-0)"
    )


@pytest.mark.parametrize(
    ("topic", "effect"),
    [
        ("__transaction_state", "transactions can neither begin nor end"),
        ("__consumer_offsets", "groups cannot commit offsets"),
    ],
)
def test_internal_partition_below_the_minimum_is_told_by_its_effect(topic: str, effect: str) -> None:
    cut = metadata(**{topic: (1, [1, 2], [1])})
    assert about_minimum(cut, {topic: 2}, {1, 2}) == (
        "1 partition has fewer replicas in sync than min.insync.replicas: writes with acks=all are refused "
        f"({topic}-0), {effect}; check that broker 2 can reach the leaders and catch up, as 1 more "
        "replica must be in sync"
    )


def test_sentence_about_many_partitions_names_three_and_a_count() -> None:
    many = metadata(**{f"t{index}": (1, [1, 2], [1]) for index in range(5)})
    sentence = about_minimum(many, {f"t{index}": 2 for index in range(5)}, {1, 2})
    assert sentence is not None
    assert "(t0-0, t1-0, t2-0 and 2 more); check" in sentence


def test_about_minimum_enough_unknown_or_leaderless_returns_none() -> None:
    assert about_minimum(CUT, {}, {1}) is None
    assert about_minimum(CUT, {"b": 1, "c": 2, "e": 2}, {1}) is None


def test_health_says_that_writes_are_refused() -> None:
    health = assess(CUT, 1, [broker(1)], {"a": 2})
    assert [each for each in health.problems if each.startswith("1 partition has fewer replicas in sync than min.")]


def test_minimum_above_the_replication_factor_is_said_to_act_as_that() -> None:
    said = about_excess("3", {"b": 2, "a": 1, "c": 3}) or ""
    assert said.startswith(
        "min.insync.replicas=3 is above the replication factor of a (1), b (2): it acts as that number"
    )
    assert about_excess("2", {"b": 2, "c": 3}) is None
    assert about_excess(None, {"a": 1}) is None
    assert "is above the replication factor of a (1)" in (about_excess("+2", {"a": 1}) or "")
    assert about_excess("two", {"a": 1}) is None
