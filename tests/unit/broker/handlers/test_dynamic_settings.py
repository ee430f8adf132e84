"""Settings of brokers that are altered while a broker runs, and what the broker does then.

Each one is altered as a client does it, for all brokers and for this one, and judged by what changes.
"""

import asyncio
from contextlib import AsyncExitStack

import pytest

from oncelog.broker.config.dynamic_config import with_overrides
from oncelog.broker.config.listener_limits import parse_listener_limits
from oncelog.broker.handlers.create_topics import handle_create_topics
from oncelog.broker.handlers.describe_producers import handle_describe_producers
from oncelog.broker.handlers.produce import handle_produce
from oncelog.broker.parts import Broker
from oncelog.broker.storage.log_maintenance import LogMaintenance
from oncelog.coordinator.controller.config_changes import OperationType, ResourceType
from oncelog.protocol.config_source import ConfigSource
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.api_versions import ApiVersionsRequest
from oncelog.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from oncelog.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    TopicRequest,
)
from oncelog.protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from oncelog.protocol.topic_partition import TopicPartition
from tests.unit.broker.batches import batch
from tests.unit.broker.handlers.administration import after_power_loss, ask, new_disk, running_broker
from tests.unit.broker.handlers.test_config_administration import chain, change, create, described
from tests.unit.broker.handlers.transactional_producer import transactional_broker
from tests.unit.broker.network.frame_client import FrameClient
from tests.unit.broker.virtual_time import in_virtual_time

SET, DELETE = OperationType.SET, OperationType.DELETE
ALL, ONE = "", "1"
NOW = 1_700_000_000_000
KAFKAS_DYNAMIC = (
    "background.threads", "log.cleaner.backoff.ms", "log.cleaner.dedupe.buffer.size",
    "log.cleaner.io.buffer.load.factor", "log.cleaner.io.buffer.size", "log.cleaner.io.max.bytes.per.second",
    "log.cleaner.threads", "max.connection.creation.rate", "max.connections", "max.connections.per.ip",
    "max.connections.per.ip.overrides", "num.io.threads", "num.network.threads", "num.recovery.threads.per.data.dir",
    "num.replica.fetchers", "producer.id.expiration.ms", "transaction.partition.verification.enable",
)  # fmt: skip
"""Those of Kafka 4.3 that are no default of a topic and belong to something that is served here."""
NOT_SERVED = {"log.cleaner.io.buffer.load.factor", "log.cleaner.io.max.bytes.per.second"}
LISTENER_CONNECTIONS = "listener.name.plaintext.max.connections"
LISTENER_RATE = "listener.name.plaintext.max.connection.creation.rate"


async def alter(broker: Broker, name: str, key: str, value: str) -> ErrorCode:
    return await change(broker, ResourceType.BROKER, name, (key, SET, value))


async def produce(broker: Broker, topic: str, *batches: bytearray) -> list[int]:
    errors = []
    for records in batches:
        data = PartitionProduceData(index=0, records=memoryview(records))
        request = ProduceRequest(
            acks=1, timeout_ms=1000, topic_data=[TopicProduceData(name=topic, partition_data=[data])]
        )
        response = await ask(broker, handle_produce, request, ProduceResponse, 9)
        errors.append(response.responses[0].partition_responses[0].error_code)
    return errors


@pytest.mark.parametrize("key", [key for key in KAFKAS_DYNAMIC if key not in NOT_SERVED])
@pytest.mark.parametrize("name", [ALL, ONE])
async def test_alter_setting_that_is_dynamic_in_kafka_is_accepted_and_described(name: str, key: str) -> None:
    async with running_broker() as broker:
        before = await described(broker, ResourceType.BROKER, ONE, key)
        assert not before.read_only
        value = {"true": "false", "": "10.0.0.1:5"}.get(before.value or "") or str(int(before.value or "0") // 2 + 1)
        assert await alter(broker, name, key, value) is ErrorCode.NONE
        assert (await described(broker, ResourceType.BROKER, ONE, key)).value == value


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("log.cleaner.backoff.ms", "-1"), ("log.cleaner.threads", "0"), ("log.cleaner.threads", "3"),
        ("num.io.threads", "3"), ("num.io.threads", "17"), ("num.io.threads", "0"), ("num.replica.fetchers", "3"),
        ("background.threads", "4"), ("num.recovery.threads.per.data.dir", "3"),
        ("max.connections", "-1"), ("max.connections.per.ip.overrides", "rubbish"),
        ("max.connections.per.ip.overrides", "127.0.0.1:-1"), ("producer.id.expiration.ms", "0"),
        ("transaction.partition.verification.enable", "maybe"), ("compression.gzip.level", "99"),
        (LISTENER_CONNECTIONS, "-1"), (LISTENER_CONNECTIONS, "x"), (LISTENER_RATE, "0"),
        ("listener.name.other.max.connections", "5"), ("listener.name.PLAINTEXT.max.connections", "5"),
        ("listener.name.plaintext.max.connections.per.ip", "5"),
    ],
)  # fmt: skip
async def test_alter_dynamic_setting_out_of_bounds_is_refused(key: str, value: str) -> None:
    async with running_broker() as broker:
        for name in (ALL, ONE):
            assert await alter(broker, name, key, value) is ErrorCode.INVALID_REQUEST
        assert broker.configs.cluster_overrides() == broker.configs.broker_overrides(1) == {}


async def test_thread_counts_are_judged_by_the_present_count() -> None:
    """As in Kafka: at least half of what it is, at most twice that; so 8 becomes 17 in two steps."""
    async with running_broker() as broker:
        assert await alter(broker, ALL, "num.io.threads", "17") is ErrorCode.INVALID_REQUEST
        assert await alter(broker, ALL, "num.io.threads", "16") is ErrorCode.NONE
        assert await alter(broker, ALL, "num.io.threads", "17") is ErrorCode.NONE


@in_virtual_time
async def test_alter_cleaner_backoff_takes_effect_while_the_cleaner_waits() -> None:
    async with running_broker(log_cleaner_backoff_ms="3600000", log_cleaner_min_cleanable_ratio="0") as broker:
        request = CreateTopicsRequest(topics=[CreatableTopic(name="t", num_partitions=1, replication_factor=1)])
        await ask(broker, handle_create_topics, request, CreateTopicsResponse)
        await change(broker, ResourceType.TOPIC, "t", ("cleanup.policy", SET, "compact"))
        assert await produce(broker, "t", *(batch(b"v%d" % index, timestamp=NOW) for index in range(20))) == [0] * 20
        log = broker.log_manager.get(TopicPartition("t", 0))
        assert log is not None
        log.roll()
        await log.flush_closed_segments_off_loop()
        before = log.size
        await asyncio.sleep(60)
        assert log.size == before
        assert await alter(broker, ONE, "log.cleaner.backoff.ms", "1000") is ErrorCode.NONE
        await asyncio.sleep(3)
        assert log.size < before


async def test_alter_producer_id_expiration_forgets_idle_producers() -> None:
    now = [NOW]
    async with running_broker(wall_clock=lambda: now[0]) as broker:
        await create(broker, "t")
        assert await produce(broker, "t", batch(b"v", timestamp=NOW, producer_id=7, epoch=0, sequence=0)) == [0]
        now[0] += 5_000

        async def producers() -> list[int]:
            await LogMaintenance(broker.log_manager).expire_producers()
            request = DescribeProducersRequest(topics=[TopicRequest(name="t", partition_indexes=[0])])
            response = await ask(broker, handle_describe_producers, request, DescribeProducersResponse)
            return [each.producer_id for each in response.topics[0].partitions[0].active_producers]

        assert await producers() == [7]
        assert await alter(broker, ALL, "producer.id.expiration.ms", "6000") is ErrorCode.NONE
        assert await producers() == [7]
        assert await alter(broker, ONE, "producer.id.expiration.ms", "5000") is ErrorCode.NONE
        assert await producers() == []
        await create(broker, "later")
        later = broker.log_manager.get(TopicPartition("later", 0))
        assert later is not None
        assert later.producer_state.producer_id_expiration_ms == 5000


async def test_alter_partition_verification_takes_effect_for_the_next_batch() -> None:
    async with transactional_broker() as (broker, producer):
        key = "transaction.partition.verification.enable"
        await producer.add(0)
        assert await producer.produce(1, 0) is ErrorCode.TRANSACTION_ABORTABLE
        assert await alter(broker, ALL, key, "false") is ErrorCode.NONE
        assert await producer.produce(1, 0) is ErrorCode.NONE
        assert await alter(broker, ONE, key, "true") is ErrorCode.NONE
        await producer.end(commit=True)
        assert await producer.produce(0, 0) is ErrorCode.TRANSACTION_ABORTABLE


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("max.connections", "2"),
        ("max.connections.per.ip", "2"),
        ("max.connections.per.ip.overrides", "127.0.0.1:2"),
        ("listener.name.plaintext.max.connections", "2"),
    ],
)
async def test_alter_connection_limit_refuses_the_next_connection(key: str, value: str) -> None:
    async with running_broker(listeners="PLAINTEXT://127.0.0.1:0") as broker, AsyncExitStack() as stack:
        port = broker.listeners.advertised["PLAINTEXT"].port

        async def is_served() -> bool:
            loop = asyncio.get_running_loop()
            transport, client = await loop.create_connection(FrameClient, "127.0.0.1", port)
            stack.callback(transport.abort)
            client.send((1, ApiVersionsRequest(), 0))
            async with asyncio.timeout(10):
                return await client.correlation_ids(1) == [1]

        assert await is_served()
        assert await is_served()
        assert await alter(broker, ONE, key, value) is ErrorCode.NONE
        assert not await is_served()
        assert await change(broker, ResourceType.BROKER, ONE, (key, DELETE, None)) is ErrorCode.NONE
        assert await is_served()


async def test_limits_of_a_listener_are_those_of_the_broker_then_of_all_then_of_the_file() -> None:
    settings = {"listeners": "PLAINTEXT://127.0.0.1:0", LISTENER_CONNECTIONS.replace(".", "_"): "9"}
    async with running_broker(**settings) as broker:
        static, common, own = (ConfigSource.STATIC_BROKER_CONFIG, ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG,
                               ConfigSource.DYNAMIC_BROKER_CONFIG)  # fmt: skip
        assert await alter(broker, ALL, LISTENER_CONNECTIONS, "8") is ErrorCode.NONE
        assert await alter(broker, ONE, LISTENER_CONNECTIONS, "7") is ErrorCode.NONE
        assert await alter(broker, ALL, LISTENER_RATE, "6") is ErrorCode.NONE
        found = await described(broker, ResourceType.BROKER, ONE, LISTENER_CONNECTIONS)
        assert (found.value, found.read_only) == ("7", False)
        assert [(value, source) for _, value, source in chain(found)] == [("7", own), ("8", common), ("9", static)]
        for name in (ALL, ONE):
            found = await described(broker, ResourceType.BROKER, name, LISTENER_RATE)
            assert [(value, source) for _, value, source in chain(found)] == [("6", common)]


async def test_rate_of_a_listener_that_is_altered_delays_the_next_connections() -> None:
    async with running_broker() as broker:
        rates = broker.quotas.connections
        now = asyncio.get_running_loop().time()

        def delayed() -> int:
            admitted = [rates.admit("h", "PLAINTEXT", now, is_between_brokers=False) for _ in range(50)]
            return sum(admission.delay > 0 for admission in admitted)

        assert delayed() == 0
        assert await alter(broker, ALL, LISTENER_RATE, "1") is ErrorCode.NONE
        assert delayed() > 0
        assert await change(broker, ResourceType.BROKER, ALL, (LISTENER_RATE, DELETE, None)) is ErrorCode.NONE
        assert rates.admit("h", "PLAINTEXT", now, is_between_brokers=False).delay == 0


async def test_limits_of_listeners_that_another_tool_wrote_wrongly_hold_nothing_up() -> None:
    """What another broker has accepted for a listener of its own may stay when other settings are altered."""
    async with running_broker() as broker:
        wrong = {"listener.name.other.max.connections": "5", LISTENER_CONNECTIONS: "x"}
        config = with_overrides(broker.config, wrong)
        assert parse_listener_limits(config, ["PLAINTEXT"]) == parse_listener_limits(broker.config, ["PLAINTEXT"])


async def test_altered_settings_are_in_force_after_a_restart() -> None:
    disk = new_disk()
    async with running_broker(disk) as broker:
        assert await alter(broker, ALL, "producer.id.expiration.ms", "6000") is ErrorCode.NONE
        assert await alter(broker, ONE, "log.cleaner.backoff.ms", "77") is ErrorCode.NONE
        survivor = after_power_loss(disk)
    async with running_broker(survivor) as broker:
        config = broker.log_manager.config
        assert (config.producer_id_expiration_ms, config.cleaner_backoff_ms) == (6000, 77)
