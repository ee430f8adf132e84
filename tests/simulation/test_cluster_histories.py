"""Seeded histories of a whole cluster. ``run(seed)`` repeats one exactly; a failure names its seed."""

import os
import random

import pytest

from tests.simulation.cluster_history import PARTITIONS, SETTINGS, ClusterHistory
from tests.simulation.cluster_stories import create, simulate
from tests.simulation.simulated_cluster import SimulatedCluster

SEEDS = int(os.environ.get("ONCELOG_CLUSTER_SEEDS", "8"))
EVENTS = 25


def run(seed: int) -> None:
    async def story(cluster: SimulatedCluster) -> None:
        await create(cluster, "t", *[(1, 2, 3), (2, 3, 1), (3, 1, 2)][:PARTITIONS])
        await ClusterHistory(cluster, random.Random(seed)).run(EVENTS)

    try:
        simulate(story, seed=seed, settings=SETTINGS)
    except BaseException as failure:
        failure.add_note(f"seed {seed}")
        raise


@pytest.mark.parametrize("seed", range(SEEDS))
def test_whatever_happens_nothing_acknowledged_is_lost_and_the_cluster_agrees_in_the_end(seed: int) -> None:
    """B49, B60, B62, B65, B66, B67"""
    run(seed)
