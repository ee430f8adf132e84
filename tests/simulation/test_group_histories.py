"""Seeded histories of a consumer group on clusters with faults. ``run(seed)`` repeats one exactly."""

import os
import random
from collections.abc import Sequence

import pytest

from tests.simulation.cluster_history import play
from tests.simulation.cluster_shape import THREE, ClusterShape
from tests.simulation.cluster_stories import run_on
from tests.simulation.fault_plan import PlannedFault, fault_plan
from tests.simulation.group_load import SETTINGS, GroupLoad
from tests.simulation.simulated_cluster import SimulatedCluster

FAULTS = 12
SEEDS = int(os.environ.get("ONCELOG_CLUSTER_SEEDS", "6")) // 3


def shape_of(seed: int) -> ClusterShape:
    """Return the shape of a seed: machines lose power at any time in every third."""
    return THREE._replace(harsh=seed % 3 == 0)


def plan(seed: int) -> list[PlannedFault]:
    """Return the faults of a history."""
    return fault_plan(seed, FAULTS, harsh=shape_of(seed).harsh)


def run(seed: int, faults: Sequence[PlannedFault] | None = None) -> None:
    """Of a group whose members come and go; ``faults``: instead of all that are planned."""
    planned, shape = plan(seed) if faults is None else faults, shape_of(seed)

    async def story(cluster: SimulatedCluster) -> None:
        load = GroupLoad(cluster, random.Random(seed), shape)
        await play(cluster, random.Random(f"healing {seed}"), load, planned, shape=shape)

    run_on(shape, seed, story, SETTINGS)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_faults_lose_no_commit_of_a_group_and_it_becomes_stable(seed: int) -> None:
    run(seed)
