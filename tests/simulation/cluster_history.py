"""A history of a cluster: clients are at work, faults befall it, everything heals; and what must hold then.

The brokers agree, there is one controller, every partition is led and whole, its replicas are equal batch by batch up
to their common end, every broker knows every topic's settings, and nothing that clients were promised is broken.
In a history with buggify points the network, the disks and the ensemble are kind again from the healing on: a cluster
that loses connections and sessions all the time is not whole at any given moment. Extreme settings stay.
"""

import asyncio
import random
from collections.abc import Mapping, Sequence
from typing import Final, Protocol

from oncelog.broker.storage.partition_log import PartitionLog
from oncelog.coordinator.metadata_store import paths, znodes
from oncelog.protocol.topic_partition import TopicPartition
from tests.simulation.cluster_faults import ClusterFaults
from tests.simulation.cluster_shape import THREE, ClusterShape
from tests.simulation.cluster_stories import assert_agreement, assignments, state_of
from tests.simulation.fault_plan import PlannedFault
from tests.simulation.latest_records import latest_of
from tests.simulation.replication_history import batches
from tests.simulation.simulated_cluster import SESSION_SECONDS, ClusterBroker, SimulatedCluster
from tests.simulation.topic_settings import assert_settings_are_known, described_overrides

HEALING_SECONDS: Final = 10 * SESSION_SECONDS
"""Seconds without faults after which a cluster is whole."""
_LOOK_SECONDS: Final = 0.5


class Load(Protocol):
    """The clients."""

    async def setup(self) -> None:
        """While nothing is wrong yet."""
        ...

    def start(self) -> None: ...

    async def disturb(self) -> None:
        """Something befalls a client."""
        ...

    def progress(self) -> Mapping[TopicPartition, int]:
        """The number of acknowledged writes to each partition to which one cut link must not stop them."""
        ...

    def power_lost(self, broker: ClusterBroker) -> None:
        """While all replicas are in sync, a machine is about to lose power."""
        ...

    async def finish(self) -> None:
        """Come to an end, in a cluster that works."""
        ...

    async def check(self) -> None:
        """What the clients were promised is there."""
        ...


async def play(
    cluster: SimulatedCluster,
    rng: random.Random,
    load: Load,
    plan: Sequence[PlannedFault],
    *,
    shape: ClusterShape = THREE,
) -> None:
    """Let the planned faults happen, heal, and check; ``rng``: of what the healing does, and of nothing else."""
    faults = ClusterFaults(cluster, rng, load.progress, shape=shape, power_lost=load.power_lost)
    await load.setup()
    load.start()
    await faults.befall(plan, load.disturb)
    await faults.heal()
    cluster.loop.swarm.calm()
    for broker in cluster.brokers.values():
        broker.disk.delay = None  # A follower that syncs slowly, one batch at a time, may never catch up with writers.
    await _until_whole(cluster)
    await load.finish()
    await asyncio.sleep(SESSION_SECONDS)
    _check_whole(cluster)
    for partition in assignments(cluster):
        _check_replicas(cluster, partition)
    await _ask_settings(cluster)
    await load.check()


async def _until_whole(cluster: SimulatedCluster) -> None:
    deadline = cluster.loop.time() + HEALING_SECONDS
    while True:
        await asyncio.sleep(_LOOK_SECONDS)
        try:
            _check_whole(cluster)
            return
        except AssertionError:
            if cluster.loop.time() > deadline:
                raise


def _check_whole(cluster: SimulatedCluster) -> None:
    for broker in cluster.alive:
        failure = broker.running.failure
        assert not failure.done(), f"broker {broker.broker_id} cannot go on: {failure.result()}"
    assert_agreement(cluster)
    for partition, replicas in assignments(cluster).items():
        state = state_of(cluster, *partition)
        assert set(state.isr) == set(replicas), (partition, state, replicas)
    assert not cluster.ensemble.tree.children(paths.DELETE_TOPICS), "a topic is not deleted"
    for broker in cluster.alive:
        held = {log.topic_partition for log in broker.running.log_manager}
        due = {p for p, replicas in assignments(cluster).items() if broker.broker_id in replicas}
        assert held == due, f"broker {broker.broker_id} holds {held - due}, and not {due - held}"
    _check_settings(cluster)


def _check_settings(cluster: SimulatedCluster) -> None:
    """Every broker knows every topic's settings, and runs its replicas by them."""
    for topic in cluster.ensemble.tree.children(paths.TOPICS) or ():
        znode = cluster.ensemble.tree.get(paths.topic_config(topic))
        assert znode is not None, f"{topic} has no configuration"
        for broker in cluster.alive:
            assert_settings_are_known(broker, topic, znodes.decode_config(znode.data))


async def _ask_settings(cluster: SimulatedCluster) -> None:
    """The same as clients see it, who ask any broker."""
    for topic in cluster.ensemble.tree.children(paths.TOPICS) or ():
        responses = [await described_overrides(broker, topic) for broker in cluster.alive]
        assert responses.count(responses[0]) == len(responses), (topic, responses)


def _check_replicas(cluster: SimulatedCluster, partition: TopicPartition) -> None:
    logs = [log_of(cluster, broker_id, partition) for broker_id in assignments(cluster)[partition]]
    is_compacted = logs[0].config.compacts  # By each replica at its own time, as old segments are deleted.
    start = max(log.log_start_offset for log in logs)
    contents = [latest_of(log) if is_compacted else batches(log, start) for log in logs]
    assert contents.count(contents[0]) == len(contents), f"the replicas of {partition} differ"
    ends = {offset for log in logs for offset in (log.high_watermark, log.log_end_offset)}
    assert len(ends) == 1, f"{partition} is not replicated to its end: {ends}"


def log_of(cluster: SimulatedCluster, broker_id: int, partition: TopicPartition) -> PartitionLog:
    replica = cluster[broker_id].running.replica_manager.partition(partition)
    log = None if replica is None else replica.log
    assert log is not None, f"broker {broker_id} has no replica of {partition}"
    return log
