"""Seeded histories of whole clusters. ``run(seed)`` repeats one exactly; a failure names its seed."""

import os
import random
from collections.abc import Awaitable, Callable, Sequence

import pytest

from tests.simulation.acknowledged_writers import AcknowledgedWriters
from tests.simulation.cluster_history import play
from tests.simulation.cluster_routes import ClusterRoutes
from tests.simulation.cluster_stories import simulate
from tests.simulation.fault_plan import Fault, PlannedFault, fault_plan, worn_plan
from tests.simulation.simulated_cluster import SimulatedCluster
from tests.simulation.workload import Manners, Workload

SEEDS = int(os.environ.get("ONCELOG_CLUSTER_SEEDS", "3"))
FAULTS = 25
FAULTS_UNDER_TRANSACTIONS = 12
REPLICATED = {
    "min.insync.replicas": "2",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "controlled.shutdown.retry.backoff.ms": "200",
}
MANNERS = Manners(
    replication_factor=3,
    longest_rest=0.4,
    most_batches=200,
    patience=(0.3, 1.0, 5.0),
    patience_in_version_1=60.0,
    repeats_markers=False,
    restarts=True,
    requests_outlive_clients=True,
)


def plan(seed: int, *, harsh: bool = False) -> list[PlannedFault]:
    """Return the faults of a history of writers."""
    return fault_plan(seed, FAULTS, harsh=harsh)


def plan_under_transactions(seed: int, *, harsh: bool = False) -> list[PlannedFault]:
    """Return the faults of a history of transactions."""
    return fault_plan(seed, FAULTS_UNDER_TRANSACTIONS, harsh=harsh)


def plan_of_wear(seed: int) -> list[PlannedFault]:
    """Return the faults of a history of writers to a worn cluster."""
    return worn_plan(seed, FAULTS)


def plan_of_wear_under_transactions(seed: int) -> list[PlannedFault]:
    """Return the same for transactions, which would time out too late after a clock jumped."""
    return worn_plan(seed, FAULTS_UNDER_TRANSACTIONS, excluded={Fault.CLOCK_JUMP})


def run_worn(seed: int, faults: Sequence[PlannedFault] | None = None) -> None:
    """Of writers to a cluster whose disks, clocks and links are worn."""
    run(seed, plan_of_wear(seed) if faults is None else faults, harsh=True)


def run_worn_transactions(seed: int, faults: Sequence[PlannedFault] | None = None) -> None:
    """Of transactions on such a cluster."""
    run_transactions(seed, plan_of_wear_under_transactions(seed) if faults is None else faults, harsh=True)


def run(seed: int, faults: Sequence[PlannedFault] | None = None, *, harsh: bool = False) -> None:
    """Of writers with acks=all; ``faults``: instead of all that are planned; ``harsh``: power is lost at any time."""
    planned = plan(seed, harsh=harsh) if faults is None else faults

    async def story(cluster: SimulatedCluster) -> None:
        load = AcknowledgedWriters(cluster, random.Random(seed))
        await play(cluster, random.Random(f"healing {seed}"), load, planned, harsh=harsh)

    _run(seed, story)


def run_transactions(seed: int, faults: Sequence[PlannedFault] | None = None, *, harsh: bool = False) -> None:
    """Of transactional producers of both versions, idempotent producers, groups, and readers of what is committed."""
    planned = plan_under_transactions(seed, harsh=harsh) if faults is None else faults

    async def story(cluster: SimulatedCluster) -> None:
        rng = random.Random(seed)
        for broker in cluster.alive:
            broker.running.producer_ids._block_size = rng.choice([1, 3, 1000])
        load = Workload(cluster.loop, lambda: ClusterRoutes(cluster, random.Random(rng.random())), rng, MANNERS)
        await play(cluster, random.Random(f"healing {seed}"), load, planned, harsh=harsh)

    _run(seed, story)


def _run(seed: int, story: Callable[[SimulatedCluster], Awaitable[None]]) -> None:
    segment_bytes = random.Random(seed).choice(["1024", "4096", "1048576"])
    try:
        simulate(story, seed=seed, settings={**REPLICATED, "log.segment.bytes": segment_bytes})
    except BaseException as failure:
        failure.add_note(f"seed {seed}")
        raise


@pytest.mark.parametrize("seed", range(SEEDS))
def test_faults_lose_nothing_acknowledged_and_the_cluster_agrees_in_the_end(seed: int) -> None:
    """B49, B56, B60, B62, B65, B66, B67"""
    run(seed)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_power_losses_at_any_time_lose_nothing_acknowledged(seed: int) -> None:
    """B57, B105, B106"""
    run(seed, harsh=True)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_power_losses_at_any_time_leave_transactions_whole(seed: int) -> None:
    """B57"""
    run_transactions(seed, harsh=True)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_faults_leave_transactions_whole(seed: int) -> None:
    """B26, B34, B60, B71, B83, B85"""
    run_transactions(seed)
