"""A znode that cannot be decoded: what it describes is set aside and shown, and everything else is controlled on.

Another tool, an operator or a newer release wrote it. When it is mended, what it describes is controlled again.
"""

import asyncio
import json
import logging
from collections.abc import Callable
from typing import Any

import pytest

from oncelog.broker.metrics.cluster_metrics import controller_metrics
from oncelog.coordinator.controller.api_error import ApiError
from oncelog.coordinator.controller.cluster_image import NO_LEADER
from oncelog.coordinator.controller.topic_plan import NewTopic
from oncelog.coordinator.metadata_store import paths
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.topic_partition import TopicPartition
from tests.simulation.acknowledged_writer import AcknowledgedWriter
from tests.simulation.cluster_stories import NOTICED_SECONDS, assert_agreement, create, session_of, simulate, state_of
from tests.simulation.simulated_cluster import SESSION_SECONDS, ClusterBroker, SimulatedCluster

T0 = TopicPartition("t", 0)
GARBAGE = (b"", b"not json", b"[]", b"{}", b"null", b"\xff\xfe", b'"text"', b"1")


def changed(**fields: Any) -> Callable[[bytes], bytes]:
    """Well-formed JSON with other values in some fields."""

    def change(data: bytes) -> bytes:
        return json.dumps({**json.loads(data), **fields}).encode()

    return change


def garbage(data: bytes) -> Callable[[bytes], bytes]:
    return lambda _: data


STATES = [
    *map(garbage, GARBAGE),
    changed(leader="one"),
    changed(leader=None),
    changed(leader=1 << 40),
    changed(leader_epoch=1 << 40),
    changed(leader_epoch=[1]),
    changed(isr="12"),
    changed(isr=["a"]),
    changed(isr=[1, 1 << 40]),
    changed(controller_epoch=1 << 40),
    changed(leader_recovery_state=7),
]
TOPICS = [
    *map(garbage, GARBAGE),
    changed(partitions=None),
    changed(partitions={"0": "12"}),
    changed(partitions={"0": [1 << 40]}),
    changed(partitions={"0": ["a"]}),
    changed(partitions={"x": [1]}),
    changed(partitions={"3": [1]}),
    changed(partitions={"-1": [1]}),
    changed(partitions={"0": []}),
    changed(partitions={"0": [1, 1]}),
    changed(topic_id="short"),
    changed(topic_id=5),
    changed(adding_replicas=[]),
    changed(adding_replicas={"0": 3}),
]
BROKERS = [
    *map(garbage, GARBAGE),
    changed(endpoints=None),
    changed(endpoints=["PLAINTEXT://host"]),
    changed(endpoints=["PLAINTEXT://host:700000"]),
    changed(endpoints=[5]),
    changed(listener_security_protocol_map={"PLAINTEXT": "NONE"}),
    changed(rack=5),
    changed(features={"f": {"min_version": 0, "max_version": 1 << 40}}),
]


async def spoil(cluster: SimulatedCluster, path: str, change: Callable[[bytes], bytes]) -> bytes:
    """Change a znode as another tool would; returns what it held."""
    znode = cluster.ensemble.tree.get(path)
    assert znode is not None
    await session_of(cluster.alive[0]).set(path, change(znode.data))
    return znode.data


async def mend(cluster: SimulatedCluster, path: str, data: bytes) -> None:
    await session_of(cluster.alive[0]).set(path, data)
    await asyncio.sleep(1.0)


async def new_controller(cluster: SimulatedCluster) -> ClusterBroker:
    """Kill the controller, start it again, and return its successor."""
    (before,) = cluster.controllers
    cluster[before].kill()
    await asyncio.sleep(NOTICED_SECONDS)
    (after,) = cluster.controllers
    await cluster[before].start()
    await asyncio.sleep(SESSION_SECONDS)
    assert cluster.controllers == [after]
    return cluster[after]


async def assert_everything_else_is_controlled(cluster: SimulatedCluster, name: str) -> None:
    """A topic is created, led, and led by others when its leader dies."""
    (controller_id,) = cluster.controllers
    replicas = sorted(cluster.brokers, key=lambda broker_id: broker_id == controller_id)
    topic = NewTopic(name=name, assignments=[(0, tuple(replicas))])
    (result,) = await cluster[controller_id].running.controller_apis.create_topics([topic])
    assert not isinstance(result, ApiError), result
    writer = AcknowledgedWriter(cluster, TopicPartition(name, 0))
    await writer.write(2)
    cluster[replicas[0]].kill()
    await asyncio.sleep(NOTICED_SECONDS)
    assert state_of(cluster, name).leader == replicas[1]
    await writer.write(2)
    await cluster[replicas[0]].start()
    await asyncio.sleep(SESSION_SECONDS)
    assert len(state_of(cluster, name).isr) == 3


def shown(broker: ClusterBroker) -> float:
    """The metric of malformed znodes."""
    families = {family.name: family for family in controller_metrics(broker.running) if family is not None}
    return sum(sample.value for sample in families["oncelog_malformed_znodes"].samples)


def errors_that_name(caplog: pytest.LogCaptureFixture, path: str) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.levelno == logging.ERROR and path in r.getMessage()]


def test_malformed_partition_states_set_only_those_partitions_aside(caplog: pytest.LogCaptureFixture) -> None:
    async def story(cluster: SimulatedCluster) -> None:
        count = len(STATES)
        await create(cluster, "t", *[(1, 2, 3)] * (count + 1))
        partitions = [TopicPartition("t", index) for index in range(count)]
        await AcknowledgedWriter(cluster, T0).write(3)
        good = {p: await spoil(cluster, paths.partition_state(p), STATES[p.partition]) for p in partitions}
        controller = await new_controller(cluster)
        assert [p for p in partitions if not errors_that_name(caplog, paths.partition_state(p))] == []
        assert shown(controller) == count
        for broker in cluster.alive:
            known = broker.running.metadata.image.topics["t"].partitions
            assert [known[index].leader for index in range(count)] == [NO_LEADER] * count
            assert known[count].leader in (1, 2, 3)
        await assert_everything_else_is_controlled(cluster, "u")
        await AcknowledgedWriter(cluster, TopicPartition("t", count)).write(2)

        for partition, data in good.items():
            await mend(cluster, paths.partition_state(partition), data)
        await asyncio.sleep(SESSION_SECONDS)
        (controller_id,) = cluster.controllers
        assert shown(cluster[controller_id]) == 0
        await AcknowledgedWriter(cluster, T0).write(3)
        assert_agreement(cluster)

    simulate(story)


def test_topic_with_malformed_partition_state_can_be_deleted() -> None:
    async def story(cluster: SimulatedCluster) -> None:
        await create(cluster, "t", (1, 2, 3), (1, 2, 3))
        await spoil(cluster, paths.partition_state(T0), garbage(b"not json"))
        controller = await new_controller(cluster)
        (error,) = await controller.running.controller_apis.delete_topics(["t"], timeout_seconds=10.0)
        assert error.code == ErrorCode.NONE
        await asyncio.sleep(1.0)
        assert shown(controller) == 0
        assert cluster.ensemble.tree.get(paths.topic("t")) is None
        assert all(list(broker.running.log_manager) == [] for broker in cluster.alive)
        assert_agreement(cluster)

    simulate(story)


def test_partition_state_that_is_spoilt_under_a_controller_sets_only_that_partition_aside(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def story(cluster: SimulatedCluster) -> None:
        await create(cluster, "t", (2, 3, 1), (2, 3, 1))
        await spoil(cluster, paths.partition_state(T0), garbage(b"not json"))
        cluster[2].kill()
        await asyncio.sleep(NOTICED_SECONDS)
        assert state_of(cluster, "t", 1).leader == 3
        assert errors_that_name(caplog, paths.partition_state(T0))
        await cluster[2].start()
        await asyncio.sleep(SESSION_SECONDS)
        await assert_everything_else_is_controlled(cluster, "u")

    simulate(story)


def test_malformed_topics_set_only_those_topics_aside(caplog: pytest.LogCaptureFixture) -> None:
    async def story(cluster: SimulatedCluster) -> None:
        names = [f"t{index}" for index in range(len(TOPICS))]
        writers = {name: AcknowledgedWriter(cluster, TopicPartition(name, 0)) for name in names}
        for name, writer in writers.items():
            await create(cluster, name, (1, 2, 3))
            await writer.write(2)
        changes = zip(names, TOPICS, strict=True)
        good = {name: await spoil(cluster, paths.topic(name), change) for name, change in changes}
        controller = await new_controller(cluster)
        assert [name for name in names if not errors_that_name(caplog, paths.topic(name))] == []
        assert shown(controller) == len(names)
        await assert_everything_else_is_controlled(cluster, "u")

        for name, data in good.items():
            await mend(cluster, paths.topic(name), data)
        await asyncio.sleep(SESSION_SECONDS)
        (controller_id,) = cluster.controllers
        assert shown(cluster[controller_id]) == 0
        for writer in writers.values():
            await writer.write(2)
            await asyncio.sleep(1.0)
            for broker in cluster.alive:
                writer.assert_nothing_is_lost(broker.content(writer.partition))
        assert_agreement(cluster)

    simulate(story)


def test_malformed_registrations_set_only_those_brokers_aside(caplog: pytest.LogCaptureFixture) -> None:
    """A broker that is registered in a way that cannot be understood is as good as away."""

    async def story(cluster: SimulatedCluster) -> None:
        await create(cluster, "t", (3, 2), (2, 1))
        znode = cluster.ensemble.tree.get(paths.broker(3))
        assert znode is not None
        strange = {paths.broker(4 + index): change(znode.data) for index, change in enumerate(BROKERS)}
        strange[f"{paths.BROKER_IDS}/not-a-number"] = znode.data
        for path, data in strange.items():
            await session_of(cluster[1]).create(path, data)
        await asyncio.sleep(1.0)
        (controller_id,) = cluster.controllers
        assert [path for path in strange if not errors_that_name(caplog, path)] == []
        assert shown(cluster[controller_id]) == len(strange)
        assert sorted(cluster[controller_id].running.metadata.image.brokers) == [1, 2, 3]
        await new_controller(cluster)
        await assert_everything_else_is_controlled(cluster, "u")
        for path in strange:
            await session_of(cluster.alive[0]).delete(path)
        await asyncio.sleep(1.0)
        (controller_id,) = cluster.controllers
        assert shown(cluster[controller_id]) == 0

    simulate(story)


def test_registration_that_is_spoilt_later_counts_as_it_was() -> None:
    """The broker is the same, as its registration's session and epoch tell."""

    async def story(cluster: SimulatedCluster) -> None:
        await create(cluster, "t", (3, 2))
        await spoil(cluster, paths.broker(3), garbage(b"not json"))
        cluster[2].kill()  # The controller reads all registrations again.
        await asyncio.sleep(2 * SESSION_SECONDS)
        assert state_of(cluster, "t").leader == 3
        await AcknowledgedWriter(cluster, T0).write(2)

    simulate(story)


@pytest.mark.parametrize("data", [b"not json", b"[]", b'{"config":5}', b'{"config":{"retention.ms":{}}}'])
def test_malformed_configuration_loses_no_record_and_stops_nothing_else(
    data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async def story(cluster: SimulatedCluster) -> None:
        (controller_id,) = cluster.controllers
        topic = NewTopic(name="t", assignments=[(0, (1, 2, 3))], configs={"retention.ms": "-1"})
        assert not isinstance(
            (await cluster[controller_id].running.controller_apis.create_topics([topic]))[0], ApiError
        )
        writer = AcknowledgedWriter(cluster, T0)
        await writer.write(3)
        path = paths.topic_config("t")
        good = await spoil(cluster, path, garbage(data))
        for broker in list(cluster.brokers.values()):
            await broker.stop()
            await broker.start()
            await asyncio.sleep(1.0)
        assert errors_that_name(caplog, path)
        await asyncio.sleep(60.0)
        for broker in cluster.alive:
            assert shown(broker) == 1
            assert broker.running.replica_manager.partition(T0) is not None
            writer.assert_nothing_is_lost(broker.content(T0))
        await assert_everything_else_is_controlled(cluster, "u")

        await mend(cluster, path, good)
        for broker in cluster.alive:
            assert shown(broker) == 0
            assert broker.running.configs.topic_overrides("t") == {"retention.ms": "-1"}
        await writer.write(3)

    simulate(story, settings={"log.retention.ms": "2000", "log.retention.check.interval.ms": "1000"})


def test_partition_without_log_is_led_when_its_topics_configuration_is_mended() -> None:
    async def story(cluster: SimulatedCluster) -> None:
        await create(cluster, "t", (1,))
        path = paths.topic_config("t")
        good = await spoil(cluster, path, garbage(b"not json"))
        for broker in list(cluster.brokers.values()):
            await broker.stop()
            if broker.broker_id == 1:
                for name in broker.disk.list_dir("/data/t-0"):
                    broker.disk.remove(f"/data/t-0/{name}")
                broker.disk.remove_tree("/data/t-0")
            await broker.start()
            await asyncio.sleep(1.0)
        assert list(cluster[1].running.log_manager) == []
        await mend(cluster, path, good)
        await asyncio.sleep(SESSION_SECONDS)
        await AcknowledgedWriter(cluster, T0).write(1)

    simulate(story)


@pytest.mark.parametrize("data", [b"", b"not json", b'{"brokerid":"one"}'])
def test_malformed_controller_znode_of_another_session_ends_when_that_session_does(data: bytes) -> None:
    """No broker knows the controller then; when the znode is gone, the next election is as always."""

    async def story(cluster: SimulatedCluster) -> None:
        await create(cluster, "t", (1, 2, 3))
        (controller_id,) = cluster.controllers
        await spoil(cluster, paths.CONTROLLER, garbage(data))
        await asyncio.sleep(1.0)
        cluster[controller_id].kill()
        await asyncio.sleep(2 * SESSION_SECONDS)
        await cluster[controller_id].start()
        await asyncio.sleep(SESSION_SECONDS)
        await assert_everything_else_is_controlled(cluster, "u")

    simulate(story)


def test_configuration_that_an_order_finds_malformed_is_read_again_when_it_is_mended() -> None:
    """B97: the broker learned of it by making a replica; the repair leaves no change notification."""

    async def story(cluster: SimulatedCluster) -> None:
        await create(cluster, "t", (1, 2))
        path = paths.topic_config("t")
        good = b'{"version":1,"config":{"retention.ms":"-1"}}'
        await session_of(cluster[1]).create(path, good)
        await asyncio.sleep(1.0)
        await spoil(cluster, path, garbage(b"not json"))
        await cluster[1].running.controller_apis.alter_reassignments({T0: [2, 4]})
        await asyncio.sleep(NOTICED_SECONDS)
        assert path in cluster[4].running.controller.malformed_znodes
        await mend(cluster, path, good)
        await asyncio.sleep(NOTICED_SECONDS)
        assert not any(broker.running.controller.malformed_znodes for broker in cluster.alive)
        assert cluster[4].running.configs.topic_overrides("t") == {"retention.ms": "-1"}

    simulate(story, brokers=4)
