"""Applications around consumers: each polls, notes what it gets, and commits, until it is stopped."""

import asyncio
import random
import re
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from typing import Any

from oncelog.clients.consumer import Consumer, ConsumerConfig, ConsumerRecord, RebalanceListener
from oncelog.clients.consumer.consumer_errors import RebalanceInProgress
from oncelog.clients.errors import BrokerRefused
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.topic_partition import TopicPartition
from tests.scenarios.stage import Stage
from tests.simulation.simulated_broker import EPOCH_MS, PORT

Place = tuple[TopicPartition, int]


def new_consumer(stage: Stage, **settings: Any) -> Consumer:
    """A consumer of the stage's broker, with its own seed."""
    defaults = {"bootstrap": f"127.0.0.1:{PORT}", "auto_offset_reset": "earliest", "session_timeout_ms": 6_000}
    config = ConsumerConfig(**{**defaults, **settings})
    rng = random.Random(stage.rng.getrandbits(32))
    return Consumer(config, rng=rng, wall_clock=lambda: EPOCH_MS + int(stage.loop.time() * 1000))


def places(records: Iterable[ConsumerRecord]) -> list[Place]:
    return [(record.topic_partition, record.offset) for record in records]


def all_places(partitions: Collection[TopicPartition], count: int) -> Counter[Place]:
    """Each of the first ``count`` offsets, once."""
    return Counter((partition, offset) for partition in partitions for offset in range(count))


class Member(RebalanceListener):
    """An application that processes each record before it polls again, and commits what it has processed."""

    def __init__(self, stage: Stage, topics: Sequence[str] | re.Pattern[str], **settings: Any) -> None:
        self.consumer = new_consumer(stage, **{"group_id": "group", **settings})
        self.topics = topics
        self.seen: list[Place] = []
        self.revoked: list[TopicPartition] = []
        self.lost: list[TopicPartition] = []
        self.assigned: list[TopicPartition] = []
        self.polls = 0
        self.failure: BaseException | None = None
        self._stopping = False
        self._task: asyncio.Task[None] | None = None

    async def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:
        self.assigned += partitions

    async def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> None:
        self.revoked += partitions
        await self._commit()

    async def on_partitions_lost(self, partitions: Collection[TopicPartition]) -> None:
        self.lost += partitions

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        return self.consumer.assignment

    def start(self) -> "Member":
        self._task = asyncio.get_running_loop().create_task(self._run())
        return self

    async def _run(self) -> None:
        try:
            await self.consumer.start()
            self.consumer.subscribe(self.topics, self)
            while not self._stopping:
                await self.step()
        except Exception as failure:
            self.failure = failure

    async def step(self) -> None:
        records = await self.consumer.poll(0.2, 3)
        self.polls += 1
        self.seen += places(records)
        if records:
            await self._commit()

    async def _commit(self) -> None:
        try:
            await self.consumer.commit()
        except RebalanceInProgress:
            pass  # What is given up is committed then, and the rest with the next poll.
        except BrokerRefused as error:
            if error.refusal.error is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:  # The topic has been deleted.
                raise

    async def stop(self) -> None:
        """End in good order."""
        self._stopping = True
        assert self._task is not None
        await self._task
        if self.failure is not None:
            raise self.failure
        await self.consumer.close()

    def abandon(self) -> None:
        """Stop polling, without a word."""
        assert self._task is not None
        self._task.cancel()


async def settled(stage: Stage, *members: Member, partitions: Collection[TopicPartition]) -> None:
    """Wait until the members share the partitions, and none is about to rebalance."""

    def is_settled() -> bool:
        for member in members:
            if member.failure is not None:
                raise member.failure
        owned = [partition for member in members for partition in member.assignment]
        generations = {member.consumer.group_metadata().generation_id for member in members}
        busy = any(member.consumer._group.is_due for member in members)  # type: ignore[union-attr]
        return sorted(owned) == sorted(partitions) and len(generations) == 1 and not busy

    await stage.until(is_settled)


async def produce(stage: Stage, partitions: Collection[TopicPartition], count: int, begin: int = 0) -> None:
    """Values from ``begin`` on to each partition, one batch for each."""
    producer = stage.producer(None)
    await producer.init()
    for partition in partitions:
        for number in range(begin, begin + count):
            response = await producer.send(partition, str(number).encode())
            assert response.error_code == 0, response.error_code
