"""Stories with whole clusters in virtual time, and what is looked at in them: the tree, and what brokers know."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from oncelog.coordinator.controller.api_error import ApiError
from oncelog.coordinator.controller.topic_plan import NewTopic
from oncelog.coordinator.metadata_store import paths, znodes
from oncelog.coordinator.metadata_store.store import Session
from oncelog.coordinator.metadata_store.znodes import PartitionState
from oncelog.protocol.topic_partition import TopicPartition
from tests.simulation.cluster_shape import ClusterShape
from tests.simulation.simulated_cluster import ClusterBroker, SimulatedCluster
from tests.simulation.virtual_loop import VirtualLoop

NOTICED_SECONDS = 3.5
"""Seconds after which a silent broker is presumed dead, and other brokers lead its partitions."""


def simulate(
    story: Callable[[SimulatedCluster], Awaitable[None]],
    *,
    seed: int = 0,
    brokers: int = 3,
    settings: Mapping[str, str] | None = None,
) -> None:
    """Play a story with a cluster that runs."""
    loop = VirtualLoop(random.Random(seed))

    async def play() -> None:
        cluster = SimulatedCluster(loop, random.Random(seed + 1), range(1, brokers + 1), settings)
        await cluster.start()
        await story(cluster)
        for process in loop.processes:
            process.kill()

    try:
        loop.run_until_complete(play())
    finally:
        loop.close()


def run_on(
    shape: ClusterShape,
    seed: int,
    story: Callable[[SimulatedCluster], Awaitable[None]],
    settings: Mapping[str, str] | None = None,
) -> None:
    """Play the story of a seed with a cluster of a shape; the segments of its logs are small or large.

    Where responses wait for syncs these take time, so that power is lost between a write and its sync.
    """
    segment_bytes = random.Random(seed).choice(["1024", "4096", "1048576"])
    known = {**shape.settings, "controlled.shutdown.retry.backoff.ms": "200", "log.segment.bytes": segment_bytes}

    async def on_its_disks(cluster: SimulatedCluster) -> None:
        if shape.flushes:
            slow_down_disks(cluster, random.Random(f"disks {seed}"))
        await story(cluster)

    try:
        simulate(on_its_disks, seed=seed, brokers=shape.brokers, settings={**known, **(settings or {})})
    except BaseException as failure:
        failure.add_note(f"seed {seed}")
        raise


def slow_down_disks(cluster: SimulatedCluster, rng: random.Random) -> None:
    """Let every call off the loop, such as fsync, take a moment."""
    slowest = rng.choice([0.005, 0.05, 0.3])

    async def delay() -> None:
        await asyncio.sleep(slowest * rng.random())

    for broker in cluster.brokers.values():
        broker.disk.delay = delay


def session_of(broker: ClusterBroker) -> Session:
    assert broker.store is not None
    assert broker.store.session is not None
    return broker.store.session


def state_of(cluster: SimulatedCluster, topic: str, partition: int = 0) -> PartitionState:
    state = known_state_of(cluster, topic, partition)
    assert state is not None
    return state


def known_state_of(cluster: SimulatedCluster, topic: str, partition: int) -> PartitionState | None:
    """None while the topic is being created or deleted."""
    znode = cluster.ensemble.tree.get(paths.partition_state(TopicPartition(topic, partition)))
    return None if znode is None else znodes.decode_partition_state(znode.data)


def assignments(cluster: SimulatedCluster) -> dict[TopicPartition, tuple[int, ...]]:
    """The replicas of every partition."""
    found: dict[TopicPartition, tuple[int, ...]] = {}
    for name in cluster.ensemble.tree.children(paths.TOPICS) or ():
        topic = cluster.ensemble.tree.get(paths.topic(name))
        assert topic is not None
        for index, partition in znodes.decode_topic(topic.data).partitions.items():
            found[TopicPartition(name, index)] = partition.replicas
    return found


def controller_epoch(cluster: SimulatedCluster) -> int:
    znode = cluster.ensemble.tree.get(paths.CONTROLLER_EPOCH)
    assert znode is not None
    return znodes.decode_controller_epoch(znode.data)


def tree(cluster: SimulatedCluster, path: str = "") -> dict[str, tuple[bytes, int]]:
    """Every znode's content and version."""
    found: dict[str, tuple[bytes, int]] = {}
    for name in cluster.ensemble.tree.children(path or "/") or ():
        znode = cluster.ensemble.tree.get(f"{path}/{name}")
        assert znode is not None
        found[f"{path}/{name}"] = znode.data, znode.stat.version
        found |= tree(cluster, f"{path}/{name}")
    return found


async def create(cluster: SimulatedCluster, name: str, *replicas: tuple[int, ...]) -> None:
    """Create a topic; again if the ensemble loses requests, so that the controller changes or does not know of it."""
    topic = NewTopic(name=name, assignments=list(enumerate(replicas)))
    while True:
        result: object = None
        if len(cluster.controllers) == 1:
            (result,) = await cluster[cluster.controllers[0]].running.controller_apis.create_topics([topic])
        await asyncio.sleep(0.1)
        if cluster.ensemble.tree.get(paths.topic(name)) is not None and result is not None:
            assert cluster.loop.swarm.breaks_connections or not isinstance(result, ApiError), result
            return
        assert cluster.loop.swarm.breaks_connections, (cluster.controllers, result)


def views(cluster: SimulatedCluster) -> dict[int, Any]:
    """What each broker knows: the controller, who is alive, and who leads what."""
    return {
        broker.broker_id: (
            broker.running.metadata.image.controller_id,
            sorted(broker.running.metadata.image.brokers),
            {
                (topic.name, index): (partition.leader, partition.leader_epoch, partition.isr)
                for topic in broker.running.metadata.image.topics.values()
                for index, partition in topic.partitions.items()
            },
        )
        for broker in cluster.alive
    }


def assert_agreement(cluster: SimulatedCluster) -> None:
    """One controller, and every broker that runs knows the same."""
    assert len(cluster.controllers) == 1, f"controllers: {cluster.controllers}"
    (controller_id,) = cluster.controllers
    known = views(cluster)
    assert all(view == known[controller_id] for view in known.values()), known
    assert known[controller_id][:2] == (controller_id, [broker.broker_id for broker in cluster.alive])
