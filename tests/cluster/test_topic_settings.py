"""Topic settings in a cluster of real processes: known to every broker, through restarts and the controller's death.

The brokers' own retention is 3 seconds, so whatever is run by it loses its records while the test looks: a topic that
was created with ``retention.ms=-1`` must not, nor the internal topics.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from random import Random

import pytest

from oncelog.broker.config.sources import load_config
from oncelog.clients.admin.admin import Admin
from oncelog.clients.admin.configs import ResourceType
from oncelog.clients.admin.fencing import Fencing
from oncelog.clients.admin.offsets import EARLIEST
from oncelog.clients.admin.topics import NewTopic
from oncelog.clients.connection import Address, connect
from oncelog.clients.errors import ClientError, Refusal
from oncelog.clients.producer import Producer, ProducerConfig
from oncelog.protocol.config_source import ConfigSource
from oncelog.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from oncelog.protocol.topic_partition import TopicPartition
from tests.processes import LIMIT_SECONDS, ClusterProcess
from tests.simulation.topic_settings import unusual_overrides

PARTITIONS = 6
GROUPS = 20
RECORDS = 10
SETTINGS = [
    "log.retention.ms=3000",
    "log.retention.check.interval.ms=300",
    "log.roll.ms=1000",
    "offsets.topic.num.partitions=6",
    "transaction.state.log.num.partitions=6",
]


def wall_clock() -> int:
    return time.time_ns() // 1_000_000


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ClusterProcess]:
    with ClusterProcess(tmp_path, settings=SETTINGS) as running:
        yield running


@pytest.fixture
async def admin(cluster: ClusterProcess) -> AsyncIterator[Admin]:
    async with Admin(cluster.address, rng=Random(1)) as made:
        yield made


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    """Ask until it is so; every request is a round trip to a broker."""
    async with asyncio.timeout(LIMIT_SECONDS):
        while not await condition():
            pass


async def set_on(address: Address, topic: str) -> dict[str, str | None]:
    """What one broker says that a topic is set to."""
    connection = await connect(address)
    try:
        requested = DescribeConfigsResource(
            resource_type=ResourceType.TOPIC, resource_name=topic, configuration_keys=None
        )
        request = DescribeConfigsRequest(resources=[requested])
        response = await connection.send(request, DescribeConfigsResponse)
    finally:
        connection.close()
    (result,) = response.results
    own = ConfigSource.DYNAMIC_TOPIC_CONFIG
    return {config.name: config.value for config in result.configs if config.config_source == own}


class Scene:
    """What is written once, and must be there every time that it is looked at."""

    def __init__(self, cluster: ClusterProcess, admin: Admin) -> None:
        self.cluster = cluster
        self.admin = admin
        self.overrides: Mapping[str, str] = unusual_overrides(load_config(overrides=SETTINGS).config)
        self.kept = [TopicPartition("kept", index) for index in range(PARTITIONS)]
        self.expiring = [TopicPartition("expiring", index) for index in range(PARTITIONS)]
        self.written = 0
        """Records of each partition."""
        self.producers: dict[str, tuple[int, int]] = {}

    async def set_up(self) -> None:
        topics = {"all": dict(self.overrides), "kept": {"retention.ms": "-1"}, "expiring": {}}
        outcomes = await self.admin.create_topics(
            [
                NewTopic(name=name, partitions=PARTITIONS, replication_factor=3, configs=configs)
                for name, configs in topics.items()
            ]
        )
        assert not any(isinstance(outcome, Refusal) for outcome in outcomes.values()), outcomes
        for index in range(GROUPS):
            refused = await self.admin.alter_group_offsets(f"g{index}", dict.fromkeys(self.kept, index))
            assert not any(refused.values()), refused
            config = ProducerConfig(bootstrap=self.cluster.address, transactional_id=f"id{index}")
            async with Producer(config, rng=Random(index), wall_clock=wall_clock) as producer:
                await producer.init_transactions()
        await self.fence()
        await self.write()

    async def write(self) -> None:
        self.written += RECORDS
        config = ProducerConfig(bootstrap=self.cluster.address, linger_ms=0)
        async with Producer(config, rng=Random(2), wall_clock=wall_clock) as producer:
            for topic, index in [*self.kept, *self.expiring]:
                for number in range(RECORDS):
                    await producer.send(topic, b"%d" % number, partition=index)
            await producer.flush()

    async def fence(self) -> None:
        """Each transactional id gets a newer epoch than before, and keeps its producer id."""
        found = await self.admin.fence_producers([f"id{index}" for index in range(GROUPS)])
        for name, fencing in found.items():
            assert isinstance(fencing, Fencing), (name, fencing)
            producer_id, epoch = self.producers.get(name, (fencing.producer_id, -1))
            assert fencing.producer_id == producer_id, name
            assert fencing.producer_epoch > epoch, name
            self.producers[name] = fencing.producer_id, fencing.producer_epoch

    async def retention_has_passed(self) -> None:
        """Everything that is run by the brokers' own retention is gone, although it was written last."""

        async def is_gone() -> bool:
            try:
                found = await self.admin.list_offsets(dict.fromkeys(self.expiring, EARLIEST))
            except ClientError:
                return False
            return len(found.found) == PARTITIONS and all(at.offset == self.written for at in found.found.values())

        await until(is_gone)

    async def check(self, dead: int | None = None) -> None:
        """On every broker but one that is dead; others may name that one for a while."""
        brokers = (await self.admin.describe_cluster()).brokers
        for broker in brokers:
            if broker.broker_id == dead:
                continue
            address = Address(broker.host, broker.port)
            assert await set_on(address, "all") == self.overrides, f"broker {broker.broker_id}"
            assert await set_on(address, "kept") == {"retention.ms": "-1"}, f"broker {broker.broker_id}"
            for topic in ("__consumer_offsets", "__transaction_state"):
                assert (await set_on(address, topic))["cleanup.policy"] == "compact", f"broker {broker.broker_id}"
        found = await self.admin.list_offsets(dict.fromkeys(self.kept, EARLIEST))
        assert {partition: at.offset for partition, at in found.found.items()} == dict.fromkeys(self.kept, 0)
        for index in range(GROUPS):
            committed = await self.admin.committed_offsets(f"g{index}")
            assert {partition: at.offset for partition, at in committed.items()} == dict.fromkeys(self.kept, index)
        await self.fence()

    async def verb(self, *words: object) -> None:
        await asyncio.to_thread(self.cluster.verb, *words)  # type: ignore[arg-type]

    async def is_whole(self) -> bool:
        async with Admin(self.cluster.address, rng=Random(4)) as fresh:  # Another one may remember what was so before.
            topics = await fresh.describe_topics(["all", "kept", "__consumer_offsets", "__transaction_state"])
        described = [topic for topic in topics.values() if not isinstance(topic, Refusal)]
        return len(described) == 4 and all(len(p.isr) == 3 for topic in described for p in topic.partitions)


async def test_settings_offsets_and_epochs_survive_restarts_and_the_death_of_the_controller(
    cluster: ClusterProcess, admin: Admin
) -> None:
    scene = Scene(cluster, admin)
    await scene.set_up()
    await scene.retention_has_passed()
    await scene.check()
    for broker_id in (1, 2, 3):
        await scene.verb("stop", broker_id)
        await scene.verb("start", broker_id)
        await until(scene.is_whole)
    await scene.check()
    await scene.write()
    victim = (await admin.describe_cluster()).controller_id
    assert victim is not None
    await scene.verb("kill", victim)

    async def is_replaced() -> bool:
        try:
            return (await admin.describe_cluster()).controller_id not in (victim, None)
        except ClientError:
            return False

    await until(is_replaced)
    await scene.check(dead=victim)
    await scene.verb("start", victim)
    await until(scene.is_whole)
    await scene.retention_has_passed()
    await scene.check()
