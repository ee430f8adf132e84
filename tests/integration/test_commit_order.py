"""Commits of one consumer at the same time: the last one that was requested counts."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from oncelog.clients.consumer import Consumer
from tests.integration.group_members import new_consumer, produce
from tests.scenarios.stage import Stage, scenario


@pytest.mark.parametrize("finish", [Consumer.close, Consumer.commit])
def test_automatic_commit_is_not_appended_after_a_newer_one(finish: Callable[[Consumer], Awaitable[None]]) -> None:
    """A poll begins an automatic commit and returns more records; what follows at once commits those, too."""

    @scenario()
    async def play(stage: Stage) -> None:
        (partition,) = await stage.create_topic("orders")
        await produce(stage, [partition], 5)
        consumer = new_consumer(stage, group_id="group", enable_auto_commit=True, auto_commit_interval_ms=1_000)
        await consumer.start()
        consumer.subscribe(["orders"])
        while not await consumer.poll(0.1, 3):
            pass
        await asyncio.sleep(1)  # The interval.
        assert len(await consumer.poll(0, 3)) == 2
        await finish(consumer)
        await asyncio.sleep(0.5)  # The automatic commit may still be under way, until the next interval.
        assert await stage.group_offset("group", partition) == 5
        await consumer.close()

    play()
