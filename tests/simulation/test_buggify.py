"""The buggify points: what is drawn, that it is counted, and that nothing strikes unless it is enabled."""

import random
from collections import Counter

import pytest

from oncelog.broker.config.sources import load_config
from tests.simulation.buggify import BREAKING_POINTS, SETTING_POINTS, WORLD_POINTS, Swarm, current_swarm, swarming
from tests.simulation.histories import HistoryName, play
from tests.simulation.journal import Journal, keep

SEEDS = 400


def test_points_are_sixty_or_more_and_have_distinct_names() -> None:
    assert not SETTING_POINTS.keys() & WORLD_POINTS.keys()
    assert len(SETTING_POINTS) + len(WORLD_POINTS) >= 60


@pytest.mark.parametrize("name", SETTING_POINTS)
def test_setting_points_are_values_that_a_broker_accepts(name: str) -> None:
    point = SETTING_POINTS[name]
    for value in point.values:
        load_config(overrides=[f"{point.key}={value}"], environment={})


def test_swarms_of_seeds_enable_each_point_often_and_none_always() -> None:
    enabled = Counter(name for seed in range(SEEDS) for name in Swarm.drawn(seed).enabled)
    assert set(enabled) == {*SETTING_POINTS, *WORLD_POINTS}
    assert all(SEEDS / 10 < count < SEEDS / 2 for count in enabled.values()), enabled


def test_swarms_of_seeds_that_enable_nothing_are_few() -> None:
    """Such a history is that of the plain kind with its seed, which is played anyway."""
    assert sum(not Swarm.drawn(seed).enabled for seed in range(SEEDS)) < SEEDS / 50


def test_swarm_of_a_seed_is_the_same_every_time() -> None:
    first, second = Swarm.drawn(17), Swarm.drawn(17)
    assert (first.enabled, first.settings()) == (second.enabled, second.settings())


def test_point_that_is_not_enabled_never_strikes() -> None:
    swarm = Swarm(frozenset({"cold read"}), random.Random(1), factor=1000.0)
    assert swarm.strikes("cold read")
    assert not swarm.strikes("slow disk")
    assert swarm.delay(("slow disk", 5.0)) == 0.0


def test_swarm_breaks_connections_only_with_a_point_that_does() -> None:
    assert set(WORLD_POINTS) > BREAKING_POINTS
    assert Swarm(frozenset({"expired session"}), random.Random(1)).breaks_connections
    assert not Swarm(frozenset({"cold read"}), random.Random(1)).breaks_connections


def test_calm_swarm_never_strikes_again() -> None:
    swarm = Swarm(frozenset({"cold read"}), random.Random(1), factor=1000.0)
    swarm.calm()
    assert not swarm.strikes("cold read")


def test_settings_never_make_fetches_wait_for_more_than_a_partition_may_count() -> None:
    points = {"greedy replica waits", "small replica fetches"}
    assert Swarm(frozenset(points), random.Random(1)).settings() == {"replica.fetch.max.bytes": "1"}


def test_outside_of_a_swarm_nothing_is_enabled() -> None:
    with swarming(Swarm.drawn(1)) as swarm:
        assert current_swarm() is swarm
    assert not current_swarm().enabled


def test_strikes_and_settings_are_counted_by_name() -> None:
    with keep(Journal()) as journal:
        swarm = Swarm(frozenset({"cold read", "small segments"}), random.Random(1), factor=1000.0)
        assert swarm.settings().keys() == {"log.segment.bytes"}
        assert swarm.strikes("cold read")
    assert journal.counts == {"buggify: small segments": 1, "buggify: cold read": 1}


def test_world_points_strike_in_histories() -> None:
    counts: Counter[str] = Counter()
    for seed in range(12):
        counts += play(HistoryName("swarm-one-broker", seed)).counts
    struck = {name for name in WORLD_POINTS if counts[f"buggify: {name}"]}
    assert {"split in two", "late segment", "cold read", "slow disk"} <= struck
