"""Seeded histories of whole clusters. ``run(seed)`` repeats one exactly; a failure names its seed."""

import os
import random
from collections.abc import Sequence

import pytest

from tests.simulation.acknowledged_writers import LONG_PAUSES, PAUSES, AcknowledgedWriters
from tests.simulation.cluster_history import play
from tests.simulation.cluster_routes import ClusterRoutes
from tests.simulation.cluster_shape import THREE, ClusterShape
from tests.simulation.cluster_stories import run_on
from tests.simulation.fault_plan import Fault, PlannedFault, fault_plan, worn_plan
from tests.simulation.simulated_cluster import SimulatedCluster
from tests.simulation.workload import Manners, Workload

SEEDS = int(os.environ.get("ONCELOG_CLUSTER_SEEDS", "3"))
FAULTS = 25
FAULTS_UNDER_TRANSACTIONS = 12
FAULTS_ON_ANY_SIZE = 10
FAULTS_ON_ANY_SIZE_UNDER_TRANSACTIONS = 7
FAULTS_ON_A_LARGE_CLUSTER = 4
"""Under transactions; more brokers take more processor time."""
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


def plan_on_any_size(seed: int) -> list[PlannedFault]:
    """Return the faults of a history of writers to a cluster of another size."""
    shape = ClusterShape.drawn(seed)
    return fault_plan(seed, FAULTS_ON_ANY_SIZE, harsh=shape.harsh, broker_ids=shape.broker_ids)


def plan_on_any_size_under_transactions(seed: int) -> list[PlannedFault]:
    """Return the same for transactions, which are torn where power loss may cost the last records."""
    shape = ClusterShape.drawn(seed)
    excluded = () if shape.survives_power_loss else (Fault.POWER_LOSS,)
    count = FAULTS_ON_ANY_SIZE_UNDER_TRANSACTIONS if shape.brokers <= 3 else FAULTS_ON_A_LARGE_CLUSTER
    return fault_plan(seed, count, harsh=shape.harsh, broker_ids=shape.broker_ids, excluded=excluded)


def run_on_any_size(seed: int, faults: Sequence[PlannedFault] | None = None) -> None:
    """Of writers to a cluster of one broker to seven."""
    planned = plan_on_any_size(seed) if faults is None else faults
    _run_writers(seed, planned, ClusterShape.drawn(seed), LONG_PAUSES)


def run_transactions_on_any_size(seed: int, faults: Sequence[PlannedFault] | None = None) -> None:
    """Of transactions on such a cluster."""
    planned = plan_on_any_size_under_transactions(seed) if faults is None else faults
    shape = ClusterShape.drawn(seed)
    manners = MANNERS._replace(replication_factor=shape.replication_factor, longest_rest=1.0, most_batches=40)
    _run_transactions(seed, planned, shape, manners)


def run_worn(seed: int, faults: Sequence[PlannedFault] | None = None) -> None:
    """Of writers to a cluster whose disks, clocks and links are worn."""
    run(seed, plan_of_wear(seed) if faults is None else faults, harsh=True)


def run_worn_transactions(seed: int, faults: Sequence[PlannedFault] | None = None) -> None:
    """Of transactions on such a cluster."""
    run_transactions(seed, plan_of_wear_under_transactions(seed) if faults is None else faults, harsh=True)


def run(seed: int, faults: Sequence[PlannedFault] | None = None, *, harsh: bool = False) -> None:
    """Of writers with acks=all; ``faults``: instead of all that are planned; ``harsh``: power is lost at any time."""
    planned = plan(seed, harsh=harsh) if faults is None else faults
    _run_writers(seed, planned, THREE._replace(harsh=harsh), PAUSES)


def run_transactions(seed: int, faults: Sequence[PlannedFault] | None = None, *, harsh: bool = False) -> None:
    """Of transactional producers of both versions, idempotent producers, groups, and readers of what is committed."""
    planned = plan_under_transactions(seed, harsh=harsh) if faults is None else faults
    _run_transactions(seed, planned, THREE._replace(harsh=harsh), MANNERS)


def _run_writers(seed: int, planned: Sequence[PlannedFault], shape: ClusterShape, pauses: Sequence[float]) -> None:
    async def story(cluster: SimulatedCluster) -> None:
        load = AcknowledgedWriters(cluster, random.Random(seed), shape, pauses)
        await play(cluster, random.Random(f"healing {seed}"), load, planned, shape=shape)

    run_on(shape, seed, story)


def _run_transactions(seed: int, planned: Sequence[PlannedFault], shape: ClusterShape, manners: Manners) -> None:
    async def story(cluster: SimulatedCluster) -> None:
        rng = random.Random(seed)
        for broker in cluster.alive:
            broker.running.producer_ids._block_size = rng.choice([1, 3, 1000])
        load = Workload(cluster.loop, lambda: ClusterRoutes(cluster, random.Random(rng.random())), rng, manners)
        await play(cluster, random.Random(f"healing {seed}"), load, planned, shape=shape)

    run_on(shape, seed, story)


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


@pytest.mark.parametrize("seed", range(SEEDS // 2))
def test_faults_on_clusters_of_any_size_lose_nothing_that_durability_promises(seed: int) -> None:
    run_on_any_size(seed)


@pytest.mark.parametrize("seed", range(4, 4 + SEEDS // 3))
def test_faults_on_clusters_of_any_size_leave_transactions_whole(seed: int) -> None:
    run_transactions_on_any_size(seed)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_faults_leave_transactions_whole(seed: int) -> None:
    """B26, B34, B60, B71, B83, B85"""
    run_transactions(seed)
