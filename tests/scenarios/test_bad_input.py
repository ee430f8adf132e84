"""Bad input leaves a real broker serving, in bounded memory, and each bad batch gets Kafka's error code for it.

One broker process takes all of it: every kind of bad batch, one by one; bombs and huge counts, while its memory is
watched; then a hundred thousand malformed frames. Afterwards a transaction commits and is read, nothing that was
refused is in a log, nobody had to catch an exception that nobody foresaw, and the data directory is good for a start
after kill -9.
"""

import asyncio
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import uvloop

from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from oncelog.protocol.messages.delete_topics import DeleteTopicsRequest
from oncelog.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from oncelog.protocol.messages.describe_groups import DescribeGroupsRequest
from oncelog.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from oncelog.protocol.messages.find_coordinator import FindCoordinatorRequest
from oncelog.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from oncelog.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from oncelog.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics
from oncelog.protocol.records.compression import Compression
from oncelog.protocol.schema import Message
from oncelog.protocol.topic_partition import TopicPartition
from tests.processes import OncelogProcess
from tests.scenarios.bad_batches import (
    BAD_BATCHES,
    BOMBS,
    MAX_DECOMPRESSED_BYTES,
    PLAIN,
    TOPIC_CONFIGS,
    BadBatch,
    good_batch,
    with_payload,
)
from tests.scenarios.frame_flood import Flood
from tests.scenarios.malformed_frames import MAX_FRAME_BYTES, SCRATCH, Fate, Frame, FrameFactory, Kind
from tests.scenarios.scripted_producer import ScriptedProducer
from tests.simulation import requests
from tests.simulation.log_reader import read_partition
from tests.simulation.wire_client import NoResponse, WireClient

FRAMES: Final = 100_000
SEED: Final = 1
MOST_GROWTH_MIB: Final = 192
SETTINGS: Final = (
    "auto.create.topics.enable=false",
    "group.initial.rebalance.delay.ms=0",
    "offsets.topic.num.partitions=2",
    "transaction.state.log.num.partitions=2",
    f"socket.request.max.bytes={MAX_FRAME_BYTES}",
    f"oncelog.max.decompressed.bytes={MAX_DECOMPRESSED_BYTES}",
)
VERSIONS: Final = (3, 6, 7, 8, 9, 11)
"""Of Produce: the border of each change in how errors are told."""
UNREAD: Final = "unread"
"""A topic for batches that a leader takes as they are."""
EVERY_BATCH: Final = {**BAD_BATCHES, **BOMBS}


class Target:
    """The broker under attack."""

    def __init__(self, process: OncelogProcess) -> None:
        self.process = process
        self.topic_ids: dict[str, bytes] = {}

    async def connect(self) -> WireClient:
        return await WireClient.connect(self.process.port, response_within=30.0)

    async def call(self, request: Message, version: int) -> Any:
        client = await self.connect()
        try:
            return await client.call(request, version)
        finally:
            client.close()

    async def prepare(self) -> None:
        """Topics, and coordinators that are there: what waits for them would only wait."""
        topics = [_topic(name, configs) for name, configs in {**TOPIC_CONFIGS, SCRATCH: {}}.items()]
        response = await self.call(CreateTopicsRequest(topics=topics, timeout_ms=5_000), 7)
        assert [topic.error_code for topic in response.topics] == [ErrorCode.NONE] * len(topics)
        self.topic_ids = {topic.name: topic.topic_id for topic in response.topics}
        producer = self.producer("fuzz")
        await producer.init()
        producer.disconnect()
        while (await self.call(requests.find_coordinator("fuzz", transactional=False), 2)).error_code:  # noqa: ASYNC110
            await asyncio.sleep(0.01)

    def producer(self, transactional_id: str) -> ScriptedProducer:
        return ScriptedProducer(self.connect, transactional_id, timeout_ms=60_000)

    async def produce(self, bad: BadBatch, records: bytes | None, version: int) -> ErrorCode:
        request = requests.produce(TopicPartition(bad.topic, 0), records, transactional_id=bad.transactional_id)
        response = await self.call(request, version)
        return ErrorCode(response.responses[0].partition_responses[0].error_code)

    async def log_end(self, topic: str) -> int:
        partition = ListOffsetsPartition(partition_index=0, timestamp=-1)
        requested = ListOffsetsTopic(name=topic, partitions=[partition])
        response = await self.call(ListOffsetsRequest(topics=[requested]), 7)
        assert response.topics[0].partitions[0].error_code == ErrorCode.NONE
        offset: int = response.topics[0].partitions[0].offset
        return offset

    async def commits_a_transaction(self, transactional_id: str) -> None:
        """A producer with exactly-once, and a consumer that sees what it committed."""
        value = transactional_id.encode()
        partition = TopicPartition(PLAIN, 0)
        producer = self.producer(transactional_id)
        assert await producer.init() is ErrorCode.NONE
        await producer.transaction({partition: [value]})
        producer.disconnect()
        client = await self.connect()
        content = await read_partition(client.call, partition, read_committed=True)
        client.close()
        assert value in content.values
        assert content.last_stable_offset == content.high_watermark, "a transaction is open for ever"

    async def every_partition_is_led(self) -> None:
        response = await self.call(MetadataRequest(topics=None), 9)
        partitions = [partition for topic in response.topics for partition in topic.partitions]
        assert len(partitions) >= len(TOPIC_CONFIGS) + 4
        assert {partition.error_code for partition in partitions} == {ErrorCode.NONE}

    # The process from outside

    def memory(self, row: str) -> int:
        """A row of /proc/…/status, in MiB."""
        lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        (value,) = (int(line.split()[1]) for line in lines if line.startswith(row))
        return value // 1024

    def forget_peak(self) -> None:
        Path(f"/proc/{self.process.pid}/clear_refs").write_text("5")

    def log(self) -> str:
        return (self.process.directory / "stderr.log").read_text(errors="replace")


def _topic(name: str, configs: dict[str, str]) -> CreatableTopic:
    return CreatableTopic(
        name=name,
        num_partitions=1,
        replication_factor=1,
        configs=[CreatableTopicConfig(name=key, value=value) for key, value in configs.items()],
    )


def send_all(flood: Flood, frames: Iterator[Frame]) -> None:
    """On the faster loop, since most of the time is spent here."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(flood.run(frames))
    assert not flood.problems, "\n\n".join([f"seed {SEED}", *flood.problems])


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    with OncelogProcess(tmp_path_factory.mktemp("broker"), SETTINGS) as process:
        target = Target(process)
        asyncio.run(target.prepare())
        yield target


@pytest.mark.parametrize("name", EVERY_BATCH)
def test_bad_batch_of_each_kind_gets_kafkas_error(target: Target, name: str) -> None:
    bad = EVERY_BATCH[name]

    async def play() -> None:
        end = await target.log_end(bad.topic)
        rng = random.Random(name)
        responses = {v: await target.produce(bad, bad.make(rng), v) for v in VERSIONS if v in bad.versions}
        assert responses
        assert responses == dict.fromkeys(responses, bad.error)
        assert await target.log_end(bad.topic) == end

    asyncio.run(play())


def _produce(topic: str = PLAIN, *, acks: int = -1, index: int = 0, transactional_id: str | None = None) -> Message:
    records = bytes(good_batch(random.Random(topic)))
    request = requests.produce(TopicPartition(topic, index), records, transactional_id=transactional_id, acks=acks)
    return request


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        pytest.param(_produce(acks=2), ErrorCode.INVALID_REQUIRED_ACKS, id="acks"),
        pytest.param(_produce(acks=-(2**15)), ErrorCode.INVALID_REQUIRED_ACKS, id="least acks"),
        pytest.param(_produce("unknown"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, id="unknown topic"),
        pytest.param(_produce(""), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, id="no name"),
        pytest.param(_produce("x" * 32_767), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, id="longest name"),
        pytest.param(_produce(index=1), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, id="unknown partition"),
        pytest.param(_produce(index=-1), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, id="negative partition"),
        pytest.param(_produce("__consumer_offsets"), ErrorCode.INVALID_TOPIC_EXCEPTION, id="group metadata"),
        pytest.param(_produce("__transaction_state"), ErrorCode.INVALID_TOPIC_EXCEPTION, id="transaction state"),
    ],
)
def test_good_batches_in_bad_requests_are_refused(target: Target, request_: Message, error: ErrorCode) -> None:
    async def play() -> None:
        end = await target.log_end(PLAIN)
        for version in VERSIONS:
            response = await target.call(request_, version)
            assert response.responses[0].partition_responses[0].error_code == error
        assert await target.log_end(PLAIN) == end

    asyncio.run(play())


def test_sequences_that_do_not_follow_and_epochs_that_are_over(target: Target) -> None:
    async def play() -> None:
        async def send(epoch: int, sequence: int) -> ErrorCode:
            options: dict[str, Any] = {"producer_id": 900, "producer_epoch": epoch, "base_sequence": sequence}
            bad = BadBatch(make=lambda rng: bytes(good_batch(rng, **options)), error=ErrorCode.NONE)
            return await target.produce(bad, bad.make(random.Random(5)), 9)

        assert await send(1, 0) is ErrorCode.NONE
        end = await target.log_end(PLAIN)
        assert await send(1, 1000) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert await send(1, 2**31 - 1) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert await send(2, 7) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert await send(0, 0) is ErrorCode.INVALID_PRODUCER_EPOCH
        assert await target.log_end(PLAIN) == end

    asyncio.run(play())


def test_bombs_and_huge_frames_leave_memory_bounded(target: Target) -> None:
    """B77: nothing is allocated for what is only claimed, and what is there is held once."""
    factory = FrameFactory(SEED)
    bombs = [factory.produce(Kind.BOMB, bomb, version) for bomb in BOMBS.values() for version in (7, 9, 11)]
    claims = [factory.frame(kind) for kind in (Kind.HUGE_COUNT, Kind.BAD_SIZE, Kind.CUT_OFF) for _ in range(500)]
    before = target.memory("VmRSS")
    target.forget_peak()
    send_all(Flood(target.process.port), iter(bombs + claims))
    assert target.memory("VmHWM") - before <= MOST_GROWTH_MIB


_MANY: Final = 9_000
"""Below ``oncelog.request.max.elements``, which counts the elements of all arrays."""
_TOO_MANY: Final = 10_001
LARGE_REQUESTS: Final[tuple[tuple[Message, int], ...]] = (
    (DescribeGroupsRequest(groups=[""] * _MANY), 5),
    (FindCoordinatorRequest(key_type=1, coordinator_keys=["k"] * _MANY), 4),
    (DeleteTopicsRequest(topic_names=["unknown"] * _MANY), 4),
    (MetadataRequest(topics=[MetadataRequestTopic(name=f"unknown-{index}") for index in range(_MANY)]), 12),
    (
        DescribeConfigsRequest(resources=[DescribeConfigsResource(resource_type=4, resource_name="")] * _MANY),
        4,
    ),
    (
        ListOffsetsRequest(
            topics=[ListOffsetsTopic(name=PLAIN, partitions=[ListOffsetsPartition(timestamp=-1)] * _MANY)]
        ),
        7,
    ),
    (FetchRequest(topics=[FetchTopic(topic=PLAIN, partitions=[FetchPartition()] * _MANY)]), 12),
    (
        OffsetFetchRequest(
            groups=[
                OffsetFetchRequestGroup(
                    group_id="g", topics=[OffsetFetchRequestTopics(name=PLAIN, partition_indexes=[0] * _MANY)]
                )
            ]
        ),
        8,
    ),
    (CreateTopicsRequest(topics=[_topic("again", {})] * _MANY, timeout_ms=1_000), 5),
)


@pytest.mark.parametrize(
    ("request_", "version"), LARGE_REQUESTS, ids=[type(case[0]).__name__ for case in LARGE_REQUESTS]
)
def test_requests_that_repeat_themselves_get_responses(target: Target, request_: Message, version: int) -> None:
    """In time and memory that grow with the request, not with its square."""

    async def play() -> None:
        before = target.memory("VmRSS")
        target.forget_peak()
        await target.call(request_, version)
        assert target.memory("VmHWM") - before <= MOST_GROWTH_MIB

    asyncio.run(play())


def test_requests_of_too_many_elements_end_their_connection(target: Target) -> None:
    async def play() -> None:
        client = await target.connect()
        with pytest.raises(NoResponse):
            await client.call(DescribeGroupsRequest(groups=[""] * _TOO_MANY), 5)
        assert client.closed

    asyncio.run(play())


def test_broker_still_serves_after_a_hundred_thousand_malformed_frames(target: Target) -> None:
    async def ends() -> dict[str, int]:
        return {topic: await target.log_end(topic) for topic in TOPIC_CONFIGS}

    async def serves() -> None:
        await target.commits_a_transaction("after the flood")
        await target.every_partition_is_led()

    ends_before, memory_before = asyncio.run(ends()), target.memory("VmRSS")
    closed_before = target.log().count("Closing the connection")
    target.forget_peak()
    flood = Flood(target.process.port)
    send_all(flood, FrameFactory(SEED, [target.topic_ids[SCRATCH]]).frames(FRAMES))
    assert target.memory("VmHWM") - memory_before <= MOST_GROWTH_MIB
    assert flood.sent.total() == FRAMES
    assert {kind for kind, _ in flood.sent} == set(Kind)
    assert asyncio.run(ends()) == ends_before
    closed = sum(count for (_, fate), count in flood.sent.items() if fate is Fate.CLOSES)
    reported = target.log().count("Closing the connection")
    assert reported > 0, "closings are told"
    assert reported - closed_before <= closed, "no line without a closing"
    asyncio.run(serves())


def test_batch_that_is_broken_where_only_readers_look_is_carried_unless_it_counts_more_records_than_bytes(
    target: Target,
) -> None:
    """A compressed batch may count as many records as it has bytes; more are believed only if they are there."""

    async def play() -> None:
        partition, count = TopicPartition(UNREAD, 0), 40
        response = await target.call(CreateTopicsRequest(topics=[_topic(UNREAD, {})], timeout_ms=5_000), 5)
        assert response.topics[0].error_code == ErrorCode.NONE
        for lie in (count + 1, 2**31 - 1):
            refused = with_payload(random.Random(SEED), b"\xff" * count, lie, Compression.ZSTD)
            response = await target.call(requests.produce(partition, refused), 9)
            assert response.responses[0].partition_responses[0].error_code == ErrorCode.INVALID_RECORD
        hostile = with_payload(random.Random(SEED), b"\xff" * count, count, Compression.ZSTD)
        for round_ in range(5):
            response = await target.call(requests.produce(partition, hostile), 9)
            assert response.responses[0].partition_responses[0].base_offset == round_ * count
        assert await target.log_end(UNREAD) == 5 * count
        for offset in (0, count, 5 * count - 1):
            response = await target.call(requests.fetch(partition, offset, read_committed=True), 11)
            fetched = response.responses[0].partitions[0]
            assert fetched.error_code == ErrorCode.NONE
            assert bytes(fetched.records)[21:61] == hostile[21:61]

    asyncio.run(play())


def test_bad_input_logs_no_unforeseen_error_and_records_survive_a_crash(target: Target) -> None:
    """The last test of this broker."""

    async def play() -> None:
        topics = (*TOPIC_CONFIGS, UNREAD)
        await target.commits_a_transaction("before the crash")
        ends = [await target.log_end(topic) for topic in topics]
        target.process.kill()
        target.process.start()
        assert [await target.log_end(topic) for topic in topics] == ends
        await target.commits_a_transaction("after the crash")
        await target.every_partition_is_led()

    asyncio.run(play())
    assert target.process.stop() == 0
    assert "Traceback" not in target.log()
    assert "] ERROR " not in target.log()
