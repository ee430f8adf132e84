"""Seeded schedules of a group: members come and go, polls are cancelled, connections are cut; nothing is lost.

Every member reads each partition without a gap from where it was given it, and in the end one member is left to read
what is not committed: all records have been seen. A record may be seen twice, by a member that came after a cut.
"""

import asyncio
import re
from collections.abc import Collection
from random import Random
from typing import Any

import pytest

from oncelog.clients.consumer import RebalanceListener
from oncelog.clients.errors import ClientError
from oncelog.protocol.topic_partition import TopicPartition
from tests.integration.group_members import Place, all_places, new_consumer, places, produce
from tests.scenarios.stage import Stage, scenario

_RECORDS = 40
_PERIODS = 12
_SETTINGS = {"group.initial.rebalance.delay.ms": "0"}


class _Application(RebalanceListener):
    """Polls with short and long time-outs, cancels some of the polls, and commits what it has seen."""

    def __init__(self, stage: Stage, rng: Random, topics: Any, assignor: str) -> None:
        settings = {"assignors": (assignor,), "max_poll_interval_ms": 5_000, "request_timeout_ms": 3_000}
        self.consumer = new_consumer(stage, group_id="group", enable_auto_commit=rng.random() < 0.5, **settings)
        self.seen: list[Place] = []
        self._rng = rng
        self._topics = topics
        self._next: dict[TopicPartition, int] = {}
        self._is_stopping = False
        self._task = stage.loop.create_task(self._run())

    async def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:
        await asyncio.sleep(self._rng.uniform(0, 0.02))
        assert self._next.keys().isdisjoint(partitions), "given what it has"

    async def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> None:
        await asyncio.sleep(self._rng.uniform(0, 0.02))
        await self._commit()
        self._forget(partitions)

    async def on_partitions_lost(self, partitions: Collection[TopicPartition]) -> None:
        self._forget(partitions)

    def _forget(self, partitions: Collection[TopicPartition]) -> None:
        for partition in partitions:
            self._next.pop(partition, None)

    async def _run(self) -> None:
        await self.consumer.start()
        self.consumer.subscribe(self._topics, self)
        while not self._is_stopping:
            try:
                async with asyncio.timeout(self._rng.choice((0.003, 0.03, 3.0))):
                    self._take(places(await self.consumer.poll(self._rng.choice((0.0, 0.01, 0.5)), 3)))
                    await self._commit()
            except TimeoutError:
                pass
            await asyncio.sleep(0.002)

    def _take(self, found: list[Place]) -> None:
        for partition, offset in found:
            assert self._next.get(partition, offset) == offset, f"{partition}: {offset} after {self._next[partition]}"
            self._next[partition] = offset + 1
        self.seen += found

    async def _commit(self) -> None:
        try:
            await self.consumer.commit()
        except ClientError:
            pass  # The group is being rebalanced, or has gone on: the records come again.

    async def stop(self) -> None:
        self._is_stopping = True
        await self._task
        await self.consumer.close(5)


@pytest.mark.parametrize("assignor", ["range", "cooperative-sticky"])
@pytest.mark.parametrize("topics", [["orders"], re.compile("ord.*")], ids=["topics", "pattern"])
@scenario(settings=_SETTINGS, seeds=range(1, 4))
async def test_group_under_a_random_schedule_loses_nothing(stage: Stage, assignor: str, topics: Any) -> None:
    stage.expects_errors = True
    partitions = await stage.create_topic("orders", 4)
    rng = Random(stage.rng.getrandbits(32))
    await produce(stage, partitions, _RECORDS)
    members, left = [_Application(stage, rng, topics, assignor)], []
    for period in range(_PERIODS):
        await asyncio.sleep(rng.uniform(0.2, 3))
        match rng.randrange(3):
            case 0 if len(members) > 1:
                left.append(members.pop(rng.randrange(len(members))))
                await left[-1].stop()
            case 1:
                for transport in rng.sample(list(stage.loop.network._transports), 2):
                    transport.abort()
            case _ if len(members) < 4:
                members.append(_Application(stage, rng, topics, assignor))
        await produce(stage, partitions, 1, _RECORDS + period)
    expected = all_places(partitions, _RECORDS + _PERIODS)
    await stage.until(lambda: {place for each in members + left for place in each.seen} >= expected.keys(), within=120)
    for member in members:
        await member.stop()
