"""Flows: what a client has to do for each of many partitions, all at once, for as long as somebody counts.

A flow of a producer keeps ``BURST`` records of ``SIZE`` bytes on their way to its partition: the next ones are sent
when those are acknowledged, so that a partition that hangs holds up its own flow and, in a good client, no other. A
flow of a consumer reads its partition from the beginning to the end, again and again. All flows of a process share one
producer or one consumer. ``counts`` has the records of each partition that were acknowledged or read, ``errors`` what
the application was told.
"""

import asyncio
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Mapping
from random import Random
from typing import Any, Final, Protocol

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as AioTopicPartition
from aiokafka.errors import KafkaError as AioKafkaError
from confluent_kafka import Consumer as LibrdkafkaConsumer
from confluent_kafka import KafkaError, KafkaException, Message
from confluent_kafka import Producer as LibrdkafkaProducer
from confluent_kafka import TopicPartition as LibrdkafkaTopicPartition

from oncelog.clients.consumer import Consumer, ConsumerConfig
from oncelog.clients.errors import ClientError
from oncelog.clients.producer import Producer, ProducerConfig
from oncelog.protocol.topic_partition import TopicPartition
from tests.benchmarks.python_producers import BATCH_BYTES, LINGER_MS, value_of, wall_clock

SIZE: Final = 100
BURST: Final = 50
RECORDS: Final = 5_000
"""Of each partition that is there to be read."""
LOST: Final = 1 << 40
"""An offset that no partition has."""
_POLL_SECONDS: Final = 0.2
_MOST_RECORDS: Final = 500
_FETCH_BYTES: Final = 64 << 10
"""Of a partition in one response: with a megabyte, Kafka's default, most partitions wait for seconds for their turn."""
_QUEUED_RECORDS: Final = 1_000
"""Of a partition that librdkafka reads ahead: with its default the first partitions are all that it ever reads."""
_QUEUE_BACKOFF_MS: Final = 10
"""Until librdkafka looks whether so much is still queued: with its default, a second, it stands still in between."""
_VALUE: Final = value_of(SIZE)
_PAUSE_SECONDS: Final = 0.001
"""After an error, as an application that logs it would take."""


class Flows(Protocol):
    """The flows of one client."""

    counts: Counter[TopicPartition]
    errors: Counter[str]

    async def open(self, group: asyncio.TaskGroup) -> None:
        """Connect; tasks belong to the group."""

    async def run(self, starts: Mapping[TopicPartition, int]) -> None:
        """These partitions, and no others, from now on; a consumer reads what is new among them from an offset."""


# Producers


class TaskFlows:
    """A producer for asyncio: each flow is a task."""

    def __init__(self) -> None:
        self.counts: Counter[TopicPartition] = Counter()
        self.errors: Counter[str] = Counter()
        self._tasks: dict[TopicPartition, asyncio.Task[None]] = {}
        self._group: asyncio.TaskGroup | None = None

    async def open(self, group: asyncio.TaskGroup) -> None:
        self._group = group
        await self.start()

    async def start(self) -> None:
        raise NotImplementedError

    async def send(self, place: TopicPartition) -> Awaitable[object]:
        raise NotImplementedError

    async def run(self, starts: Mapping[TopicPartition, int]) -> None:
        for place in self._tasks.keys() - starts.keys():
            self._tasks.pop(place).cancel()
        assert self._group is not None
        for place in starts.keys() - self._tasks.keys():
            self._tasks[place] = self._group.create_task(self._flow(place), name=f"flow {place}")

    async def _flow(self, place: TopicPartition) -> None:
        while True:
            try:
                for sent in [await self.send(place) for _ in range(BURST)]:
                    await sent
                self.counts[place] += BURST
            except (ClientError, AioKafkaError) as error:
                self.errors[type(error).__name__] += 1
                await asyncio.sleep(_PAUSE_SECONDS)


class OurProducerFlows(TaskFlows):
    def __init__(self, address: str) -> None:
        super().__init__()
        config = ProducerConfig(bootstrap=address, linger_ms=LINGER_MS, batch_bytes=BATCH_BYTES)
        self._producer = Producer(config, rng=Random(1), wall_clock=wall_clock)

    async def start(self) -> None:
        await self._producer.start()

    async def send(self, place: TopicPartition) -> Awaitable[object]:
        return await self._producer.send(place.topic, _VALUE, partition=place.partition)


class AiokafkaProducerFlows(TaskFlows):
    def __init__(self, address: str) -> None:
        super().__init__()
        self._producer = AIOKafkaProducer(
            bootstrap_servers=address, acks="all", linger_ms=LINGER_MS, max_batch_size=BATCH_BYTES
        )

    async def start(self) -> None:
        await self._producer.start()

    async def send(self, place: TopicPartition) -> Awaitable[object]:
        return await self._producer.send(place.topic, _VALUE, partition=place.partition)


class ThreadFlows:
    """A client that blocks, on a thread of its own: ``step`` is called again and again."""

    def __init__(self) -> None:
        self.counts: Counter[TopicPartition] = Counter()
        self.errors: Counter[str] = Counter()
        self._orders: list[Callable[[], None]] = []
        self._thread = threading.Thread(target=self._work, name="flows", daemon=True)

    def step(self) -> None:
        raise NotImplementedError

    def order(self, work: Callable[[], None]) -> None:
        """Have it done on the thread."""
        self._orders.append(work)

    async def open(self, group: asyncio.TaskGroup) -> None:
        self._thread.start()

    def _work(self) -> None:
        while True:
            while self._orders:
                self._orders.pop(0)()
            self.step()


class ConfluentProducerFlows(ThreadFlows):
    """What is acknowledged is sent again at once, where the flow is still wanted."""

    def __init__(self, address: str) -> None:
        super().__init__()
        self._producer = LibrdkafkaProducer(
            {"bootstrap.servers": address, "acks": "all", "linger.ms": LINGER_MS, "batch.size": BATCH_BYTES}
        )
        self._wanted: frozenset[TopicPartition] = frozenset()
        self._unanswered: Counter[TopicPartition] = Counter()

    async def run(self, starts: Mapping[TopicPartition, int]) -> None:
        self.order(lambda: self._want(starts.keys()))

    def _want(self, places: Collection[TopicPartition]) -> None:
        self._wanted = frozenset(places)
        for place in places:
            while self._unanswered[place] < BURST and self._send(place):
                pass

    def step(self) -> None:
        self._producer.poll(_POLL_SECONDS)

    def _send(self, place: TopicPartition) -> bool:
        def responded(error: KafkaError | None, _: Message) -> None:
            self._unanswered[place] -= 1
            if error is None:
                self.counts[place] += 1
            else:
                self.errors[error.name()] += 1
            if place in self._wanted:
                self._send(place)

        try:
            self._producer.produce(place.topic, _VALUE, partition=place.partition, on_delivery=responded)
        except (KafkaException, BufferError) as error:
            self.errors[str(error)] += 1
            return False
        self._unanswered[place] += 1
        return True


# Consumers


class OurConsumerFlows:
    def __init__(self, address: str) -> None:
        self.counts: Counter[TopicPartition] = Counter()
        self.errors: Counter[str] = Counter()
        config = ConsumerConfig(bootstrap=address, auto_offset_reset="none", max_partition_fetch_bytes=_FETCH_BYTES)
        self._consumer = Consumer(config, rng=Random(1), wall_clock=wall_clock)
        self._task: asyncio.Task[None] | None = None
        self._group: asyncio.TaskGroup | None = None

    async def open(self, group: asyncio.TaskGroup) -> None:
        self._group = group
        await self._consumer.start()

    async def run(self, starts: Mapping[TopicPartition, int]) -> None:
        new = starts.keys() - self._consumer.assignment
        self._consumer.assign(list(starts))
        for place in new:
            self._consumer.seek(place, starts[place])
        if self._task is None:
            assert self._group is not None
            self._task = self._group.create_task(self._read(), name="flows")

    async def _read(self) -> None:
        while True:
            try:
                records = await self._consumer.poll(_POLL_SECONDS)
            except ClientError as error:
                self.errors[type(error).__name__] += 1
                await asyncio.sleep(_PAUSE_SECONDS)
                continue
            for record in records:
                place = TopicPartition(record.topic, record.partition)
                self.counts[place] += 1
                if record.offset == RECORDS - 1:
                    self._consumer.seek(place, 0)


class AiokafkaConsumerFlows:
    def __init__(self, address: str) -> None:
        self.counts: Counter[TopicPartition] = Counter()
        self.errors: Counter[str] = Counter()
        self._consumer = AIOKafkaConsumer(
            bootstrap_servers=address,
            auto_offset_reset="none",
            isolation_level="read_committed",
            max_partition_fetch_bytes=_FETCH_BYTES,
        )
        self._task: asyncio.Task[None] | None = None
        self._group: asyncio.TaskGroup | None = None

    async def open(self, group: asyncio.TaskGroup) -> None:
        self._group = group
        await self._consumer.start()

    async def run(self, starts: Mapping[TopicPartition, int]) -> None:
        self._consumer.assign([AioTopicPartition(*place) for place in starts])
        for place, start in starts.items():
            self._consumer.seek(AioTopicPartition(*place), start)
        if self._task is None:
            assert self._group is not None
            self._task = self._group.create_task(self._read(), name="flows")

    async def _read(self) -> None:
        while True:
            try:
                found = await self._consumer.getmany(timeout_ms=int(_POLL_SECONDS * 1000))
            except AioKafkaError as error:
                self.errors[type(error).__name__] += 1
                await asyncio.sleep(_PAUSE_SECONDS)
                continue
            for partition, records in found.items():
                place = TopicPartition(partition.topic, partition.partition)
                for record in records:
                    self.counts[place] += 1
                    if record.offset == RECORDS - 1:
                        self._consumer.seek(partition, 0)


class ConfluentConsumerFlows(ThreadFlows):
    def __init__(self, address: str) -> None:
        super().__init__()
        settings: dict[str, Any] = {
            "bootstrap.servers": address,
            "group.id": "unused",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "max.partition.fetch.bytes": _FETCH_BYTES,
            "queued.min.messages": _QUEUED_RECORDS,
            "fetch.queue.backoff.ms": _QUEUE_BACKOFF_MS,
        }
        self._consumer = LibrdkafkaConsumer(settings)
        self._assigned: set[TopicPartition] = set()

    async def run(self, starts: Mapping[TopicPartition, int]) -> None:
        self.order(lambda: self._assign(starts))

    def _assign(self, starts: Mapping[TopicPartition, int]) -> None:
        gone, new = self._assigned - starts.keys(), starts.keys() - self._assigned
        if gone:
            self._consumer.incremental_unassign([LibrdkafkaTopicPartition(*place) for place in gone])
        if new:
            added = [LibrdkafkaTopicPartition(*place, starts[place]) for place in new]
            self._consumer.incremental_assign(added)
        self._assigned = set(starts)

    def step(self) -> None:
        for message in self._consumer.consume(_MOST_RECORDS, _POLL_SECONDS):
            error = message.error()
            if error is not None:
                self.errors[error.name()] += 1
                continue
            place = TopicPartition(message.topic(), message.partition())
            self.counts[place] += 1
            if message.offset() == RECORDS - 1:
                self._begin_again(place)

    def _begin_again(self, place: TopicPartition) -> None:
        try:
            self._consumer.seek(LibrdkafkaTopicPartition(*place, 0))
        except KafkaException as error:
            self.errors[f"seek: {error.args[0].name()}"] += 1


PRODUCERS: Final[Mapping[str, Callable[[str], Flows]]] = {
    "oncelog": OurProducerFlows,
    "aiokafka": AiokafkaProducerFlows,
    "confluent-kafka": ConfluentProducerFlows,
}
CONSUMERS: Final[Mapping[str, Callable[[str], Flows]]] = {
    "oncelog": OurConsumerFlows,
    "aiokafka": AiokafkaConsumerFlows,
    "confluent-kafka": ConfluentConsumerFlows,
}
