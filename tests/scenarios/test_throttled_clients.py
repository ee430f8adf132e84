"""Clients over their quotas have what their limits allow, and no other client is slower for it."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

import pytest

from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.alter_client_quotas import AlterClientQuotasRequest, EntityData, EntryData, OpData
from oncelog.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from oncelog.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from oncelog.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from oncelog.protocol.topic_partition import TopicPartition
from tests.scenarios.stage import Stage, scenario
from tests.simulation import requests
from tests.simulation.wire_client import NoResponse, WireClient

LIMIT: Final = 10_000
"""Bytes per second of the client ``slow``."""
RECORD: Final = b"x" * 2_000
TOLERANCE: Final = 0.15
SOON: Final = 0.5
"""Seconds in which a request without throttling certainly has its response."""


async def limit(stage: Stage, parts: dict[str, str | None], **limits: float | None) -> None:
    entity = [EntityData(entity_type=kind, entity_name=name) for kind, name in parts.items()]
    ops = [OpData(key=key, value=value or 0.0, remove=value is None) for key, value in limits.items()]
    request = AlterClientQuotasRequest(entries=[EntryData(entity=entity, ops=ops)])
    response = await stage.call(request, 1)
    assert [each.error_code for each in response.entries] == [ErrorCode.NONE], response


async def client_of(stage: Stage, client_id: str) -> WireClient:
    client = await stage.connect(response_within=600.0)
    client.client_id = client_id
    return client


async def produce(client: WireClient, partition: TopicPartition, value: bytes = RECORD) -> Any:
    batch = requests.batch([value])
    response = await client.call(requests.produce(partition, batch), requests.PRODUCE_VERSION)
    (topic,) = response.responses
    assert topic.partition_responses[0].error_code == ErrorCode.NONE
    return response


async def amount_per_second(stage: Stage, seconds: float, act: Callable[[], Awaitable[int]]) -> float:
    """Do something again and again, and return how much of it was done per second."""
    began, amount = stage.loop.time(), 0
    while stage.loop.time() < began + seconds:
        amount += await act()
    return amount / (stage.loop.time() - began)


@scenario()
async def test_throttled_producer_gets_its_rate_and_another_is_not_slowed(stage: Stage) -> None:
    (partition,) = await stage.create_topic("orders")
    await limit(stage, {"client-id": "slow"}, producer_byte_rate=LIMIT)
    slow, fast = await client_of(stage, "slow"), await client_of(stage, "fast")
    longest = 0.0

    async def produce_slowly() -> int:
        await produce(slow, partition)
        return len(RECORD)

    async def produce_fast() -> None:
        nonlocal longest
        while True:
            began = stage.loop.time()
            assert (await produce(fast, partition)).throttle_time_ms == 0
            longest = max(longest, stage.loop.time() - began)
            await asyncio.sleep(0.2)

    async with asyncio.TaskGroup() as group:
        other = group.create_task(produce_fast())
        await amount_per_second(stage, 15.0, produce_slowly)  # What the windows allow at once is used up.
        rate = await amount_per_second(stage, 60.0, produce_slowly)
        other.cancel()
    assert rate == pytest.approx(LIMIT, rel=TOLERANCE)
    assert longest < SOON


@scenario()
async def test_throttled_response_leaves_at_once_and_then_nothing_is_read(stage: Stage) -> None:
    (partition,) = await stage.create_topic("orders")
    await limit(stage, {"user": "ANONYMOUS"}, producer_byte_rate=1_000)
    client, began = await client_of(stage, "any"), stage.loop.time()
    response = await produce(client, partition, b"x" * 30_000)
    assert stage.loop.time() - began < SOON
    assert response.throttle_time_ms == pytest.approx(20_000, rel=0.01)
    await client.call(requests.api_versions(), requests.API_VERSIONS_VERSION)
    assert stage.loop.time() - began == pytest.approx(20.0, abs=SOON)


@scenario()
async def test_requests_behind_a_throttled_one_wait_in_their_order(stage: Stage) -> None:
    """The broker has received both with one read."""
    (partition,) = await stage.create_topic("orders")
    await limit(stage, {"client-id": None}, producer_byte_rate=10)
    client, began = await client_of(stage, "any"), stage.loop.time()
    hello = requests.api_versions()
    throttled = client.encode(requests.produce(partition, requests.batch([b"x" * 100])), requests.PRODUCE_VERSION)
    client.send_bytes(throttled + client.encode(hello, requests.API_VERSIONS_VERSION))
    response = await client.call(hello, requests.API_VERSIONS_VERSION)
    assert response.error_code == ErrorCode.NONE
    assert stage.loop.time() - began == pytest.approx(168 / 10 - 10, abs=SOON), "168 bytes take that long"
    version, waiting = requests.PRODUCE_VERSION, await client_of(stage, "another")
    first = requests.produce(partition, requests.batch([b"x" * 100]))
    waiting.send_bytes(waiting.encode(first, version) + waiting.encode(first, version))
    await asyncio.sleep(SOON)
    assert len(await stage.everything(partition)) == 2, "the second waits"
    await asyncio.sleep(10)
    assert len(await stage.everything(partition)) == 3


@scenario()
async def test_throttled_consumer_gets_its_rate_and_everything(stage: Stage) -> None:
    (partition,) = await stage.create_topic("orders")
    writer = await client_of(stage, "writer")
    for _ in range(400):
        await produce(writer, partition)
    await limit(stage, {"user": "ANONYMOUS", "client-id": "slow"}, consumer_byte_rate=LIMIT)
    slow, offset, throttled = await client_of(stage, "slow"), 0, 0

    async def fetch() -> int:
        nonlocal offset, throttled
        response = await slow.call(requests.fetch(partition, offset, read_committed=False), requests.FETCH_VERSION)
        throttled += response.throttle_time_ms > 0
        if response.throttle_time_ms:
            assert not response.responses
            return 0
        records = response.responses[0].partitions[0].records
        count = len(records) // 2_000 if records else 0
        offset += count
        return count * len(RECORD)

    await amount_per_second(stage, 15.0, fetch)  # What the windows allow at once is used up.
    rate = await amount_per_second(stage, 40.0, fetch)
    assert rate == pytest.approx(LIMIT, rel=TOLERANCE)
    while offset < 400:
        await fetch()
    assert throttled > 0


@scenario()
async def test_batch_beyond_what_a_limit_ever_allows_reaches_its_consumer(stage: Stage) -> None:
    (partition,) = await stage.create_topic("orders")
    await produce(await client_of(stage, "writer"), partition, b"x" * 50_000)
    await limit(stage, {"client-id": "slow"}, consumer_byte_rate=1_000)
    slow = await client_of(stage, "slow")
    response = await slow.call(requests.fetch(partition, 0, read_committed=False), requests.FETCH_VERSION)
    assert len(response.responses[0].partitions[0].records) > 50_000
    assert response.throttle_time_ms == pytest.approx(50_000, rel=0.05)


class BusyClock:
    """Goes on by as much for each request as if it took that long."""

    def __init__(self, stage: Stage, seconds: float) -> None:
        self._stage = stage
        self._step = int(seconds * 1e9)
        self._busy = 1

    def __call__(self) -> int:
        self._busy += self._step
        return self._busy


@scenario()
async def test_client_over_its_share_of_the_loop_is_throttled_by_a_window_at_most(stage: Stage) -> None:
    await limit(stage, {"client-id": "slow"}, request_percentage=1)
    assert stage.broker.broker is not None
    stage.broker.broker.quotas.nanoseconds = BusyClock(stage, 0.01)
    slow, fast = await client_of(stage, "slow"), await client_of(stage, "fast")

    async def ask() -> int:
        response = await slow.call(requests.metadata("orders"), requests.METADATA_VERSION)
        assert response.throttle_time_ms <= 1_000
        return 1

    await amount_per_second(stage, 15.0, ask)
    rate = await amount_per_second(stage, 60.0, ask)
    assert rate == pytest.approx(1.0, rel=TOLERANCE), "each takes 10 ms, and may take 1 % of the time"
    began = stage.loop.time()
    for _ in range(50):
        response = await fast.call(requests.metadata("orders"), requests.METADATA_VERSION)
        assert response.throttle_time_ms == 0
    assert stage.loop.time() - began < 10.0


def topics(*counts: int, prefix: str = "t") -> list[CreatableTopic]:
    return [
        CreatableTopic(name=f"{prefix}{number}", num_partitions=count, replication_factor=1)
        for number, count in enumerate(counts)
    ]


@scenario()
async def test_strict_creations_are_refused_one_by_one_and_older_ones_throttled(stage: Stage) -> None:
    await limit(stage, {"user": None}, controller_mutation_rate=1)
    client = await client_of(stage, "admin")
    created = await client.call(CreateTopicsRequest(topics=topics(8, 8, 1), timeout_ms=5_000), 7)
    codes = [each.error_code for each in created.topics]
    assert codes == [ErrorCode.NONE, ErrorCode.NONE, ErrorCode.THROTTLING_QUOTA_EXCEEDED]
    assert created.throttle_time_ms == pytest.approx(5_000, rel=0.1)
    began = stage.loop.time()
    older = CreateTopicsRequest(topics=topics(3, prefix="old"), timeout_ms=5_000)
    response = await client.call(older, 5)
    assert [each.error_code for each in response.topics] == [ErrorCode.NONE]
    assert stage.loop.time() - began == pytest.approx(5.0, abs=SOON)
    assert response.throttle_time_ms == pytest.approx(3_000, rel=0.1)


@scenario()
async def test_deletions_and_more_partitions_cost_what_creations_cost(stage: Stage) -> None:
    await stage.create_topic("orders", 8)
    await limit(stage, {"client-id": "admin"}, controller_mutation_rate=1)
    client = await client_of(stage, "admin")
    more = CreatePartitionsRequest(
        topics=[CreatePartitionsTopic(name="orders", count=12, assignments=None)], timeout_ms=5_000
    )
    assert (await client.call(more, 3)).results[0].error_code == ErrorCode.NONE
    deletion = DeleteTopicsRequest(topics=[DeleteTopicState(name="orders")], timeout_ms=5_000)
    assert (await client.call(deletion, 6)).responses[0].error_code == ErrorCode.NONE
    refused = await client.call(CreateTopicsRequest(topics=topics(1), timeout_ms=5_000), 7)
    assert [each.error_code for each in refused.topics] == [ErrorCode.THROTTLING_QUOTA_EXCEEDED]
    assert refused.throttle_time_ms == pytest.approx(5_000, rel=0.1)


@scenario()
async def test_quota_that_is_removed_throttles_no_client_any_more(stage: Stage) -> None:
    (partition,) = await stage.create_topic("orders")
    await limit(stage, {"client-id": "slow"}, producer_byte_rate=1_000)
    client = await client_of(stage, "slow")
    assert (await produce(client, partition, b"x" * 12_000)).throttle_time_ms > 0
    await limit(stage, {"client-id": "slow"}, producer_byte_rate=None)
    assert (await produce(client, partition, b"x" * 12_000)).throttle_time_ms == 0


@scenario()
async def test_quotas_hold_after_a_restart(stage: Stage) -> None:
    (partition,) = await stage.create_topic("orders")
    await limit(stage, {"user": None, "client-id": None}, producer_byte_rate=1_000)
    await stage.restart("power")
    response = await produce(await client_of(stage, "any"), partition, b"x" * 12_000)
    assert response.throttle_time_ms > 0


@scenario()
async def test_throttled_client_that_is_gone_leaves_no_timer(stage: Stage) -> None:
    (partition,) = await stage.create_topic("orders")
    await limit(stage, {"client-id": "slow"}, producer_byte_rate=1)
    client = await client_of(stage, "slow")
    assert (await produce(client, partition, b"x" * 100_000)).throttle_time_ms > 80_000_000
    client.close()
    await stage.broker.stop()
    await stage.broker.start()


@scenario()
async def test_connections_over_the_rate_of_their_address_are_held_and_closed(stage: Stage) -> None:
    await limit(stage, {"ip": None}, connection_creation_rate=1)
    lost = 0
    for _ in range(20):
        began = stage.loop.time()
        try:
            client = await client_of(stage, "any")
            await client.call(requests.api_versions(), requests.API_VERSIONS_VERSION)
            client.close()
        except NoResponse:
            lost += 1
            assert 0.01 < stage.loop.time() - began < 1.0 + SOON
    assert 5 <= lost <= 12
    await asyncio.sleep(12)
    await limit(stage, {"ip": None}, connection_creation_rate=None)


@scenario(settings={"max.connection.creation.rate": "2"})
async def test_connections_over_the_rate_of_the_broker_are_served_later(stage: Stage) -> None:
    await asyncio.sleep(12)
    began = stage.loop.time()

    async def connect() -> float:
        client = await client_of(stage, "any")
        await client.call(requests.api_versions(), requests.API_VERSIONS_VERSION)
        client.close()
        return stage.loop.time() - began

    served = sorted(await asyncio.gather(*(connect() for _ in range(40))))
    assert served[19] < SOON
    assert served[20] > 0.3
    assert 8.0 < served[-1] < 13.0
    await asyncio.sleep(12)


@scenario(settings={"listener.name.plaintext.max.connections": "2"})
async def test_connection_beyond_those_of_its_listener_is_closed(stage: Stage) -> None:
    held = [await client_of(stage, "any") for _ in range(2)]
    for client in held:
        await client.call(requests.api_versions(), requests.API_VERSIONS_VERSION)
    another = await client_of(stage, "any")
    with pytest.raises(NoResponse):
        await another.call(requests.api_versions(), requests.API_VERSIONS_VERSION)
    for client in held:
        client.close()
    await asyncio.sleep(1)
