"""Seeded histories of topics that clients change, on clusters with faults. ``run(seed)`` repeats one exactly."""

import os
import random
from collections.abc import Sequence

import pytest

from tests.simulation.cluster_history import play
from tests.simulation.cluster_shape import THREE, ClusterShape
from tests.simulation.cluster_stories import run_on
from tests.simulation.fault_plan import PlannedFault, fault_plan
from tests.simulation.simulated_cluster import SimulatedCluster
from tests.simulation.topic_load import SETTINGS, TopicLoad

FAULTS = 10
SEEDS = int(os.environ.get("ONCELOG_CLUSTER_SEEDS", "6")) // 2


def shape_of(seed: int) -> ClusterShape:
    """Return the shape of a seed: power is lost at any time, or the minimum is lowered to 1 at times, or neither."""
    return (THREE._replace(harsh=True), THREE._replace(may_be_lowered=True), THREE)[seed % 3]


def plan(seed: int) -> list[PlannedFault]:
    """Return the faults of a history."""
    return fault_plan(seed, FAULTS, harsh=shape_of(seed).harsh)


def run(seed: int, faults: Sequence[PlannedFault] | None = None) -> None:
    """Of topics that are created again, emptied, compacted, configured and read nearby; ``faults``: instead of all."""
    planned, shape = plan(seed) if faults is None else faults, shape_of(seed)

    async def story(cluster: SimulatedCluster) -> None:
        load = TopicLoad(cluster, random.Random(seed), shape)
        await play(cluster, random.Random(f"healing {seed}"), load, planned, shape=shape)

    run_on(shape, seed, story, SETTINGS)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_faults_break_no_promise_about_a_topic_that_changes(seed: int) -> None:
    run(seed)
