"""How much is replicated in the long run, whose bytes count, and when there is room again."""

import random

import pytest

from oncelog.broker.config.topic_config import FOLLOWER_THROTTLE, LEADER_THROTTLE, validate
from oncelog.broker.peers.replication_throttles import throttled_partitions
from oncelog.broker.replication.replication_quota import ReplicationQuota


def limited(bytes_a_second: float) -> ReplicationQuota:
    quota = ReplicationQuota()
    quota.set_limit(bytes_a_second)
    return quota


def test_quota_without_a_limit_is_never_exceeded() -> None:
    quota = ReplicationQuota()
    quota.record(1 << 40, 0.0)
    assert not quota.is_exceeded(0.0)
    assert quota.free_at(0.0) == 0.0


def test_quota_over_the_rate_is_exceeded_until_the_average_is_below() -> None:
    quota = limited(100)
    assert not quota.is_exceeded(5.0)
    quota.record(100, 5.0)
    assert not quota.is_exceeded(5.0)
    quota.record(300, 5.5)
    assert quota.is_exceeded(5.5)
    free_at = quota.free_at(5.5)
    assert free_at == pytest.approx(9.0, abs=0.01)
    assert quota.is_exceeded(free_at - 0.01)
    assert not quota.is_exceeded(free_at)


def test_old_samples_are_forgotten() -> None:
    quota = limited(100)
    quota.record(1_000_000, 0.0)
    assert quota.free_at(1.0) == pytest.approx(11.0, abs=0.01)
    assert quota.is_exceeded(10.9)
    assert not quota.is_exceeded(11.0)


@pytest.mark.parametrize("limit", [0, 1])
def test_tiny_rate_admits_bytes_at_the_time_that_the_quota_returns(limit: int) -> None:
    quota = limited(limit)
    quota.record(1_000, 0.0)
    assert quota.is_exceeded(10.0)
    assert not quota.is_exceeded(quota.free_at(10.0))


@pytest.mark.parametrize("seed", range(10))
def test_sender_that_checks_before_each_step_keeps_to_the_rate(seed: int) -> None:
    rng, quota = random.Random(seed), limited(1_000)
    now, total = 0.0, 0
    while now < 120.0:
        size = rng.randrange(2_000)
        total += size
        quota.record(size, now)
        now += rng.random() / 100
        while quota.is_exceeded(now):
            now = quota.free_at(now)
    assert 0.9 * 120_000 < total < 1.1 * 120_000


def test_partitions_are_throttled_by_topic() -> None:
    quota = ReplicationQuota()
    quota.throttle("some", frozenset({1}))
    quota.throttle("all", None)
    assert [quota.is_throttled(("some", index)) for index in range(3)] == [False, True, False]
    assert quota.is_throttled(("all", 7))
    assert not quota.is_throttled(("other", 1))
    quota.throttle("all", frozenset())
    quota.throttle("some", frozenset({0}))
    assert not quota.is_throttled(("all", 7))
    assert [quota.is_throttled(("some", index)) for index in range(3)] == [True, False, False]
    quota.release("some")
    assert not quota.is_throttled(("some", 0))


@pytest.mark.parametrize(
    ("text", "partitions"),
    [("", frozenset()), ("*", None), ("0:1", frozenset()), ("0:2,5:2,6:3", frozenset({0, 5})), (" 1:2 ", {1})],
)
def test_throttle_setting_names_replicas(text: str, partitions: frozenset[int] | None) -> None:
    assert validate(LEADER_THROTTLE, text) is None
    assert throttled_partitions(text, 2) == partitions


@pytest.mark.parametrize("text", ["all", "1", "1:", "1:2:3", "a:b", "*,1:2", "-1:2"])
def test_setting_that_is_no_list_of_replicas_is_refused(text: str) -> None:
    for key in (LEADER_THROTTLE, FOLLOWER_THROTTLE):
        reason = validate(key, text)
        assert reason is not None
        assert "partition:broker" in reason
