"""What a member commits of what it wrote to a pipe, and when. In virtual time."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from oncelog.clients.cli.group_offsets import COMMIT_SECONDS, GroupOffsets
from oncelog.clients.cli.paced_output import PacedOutput
from oncelog.clients.consumer import Consumer
from oncelog.protocol.messages.offset_commit import OffsetCommitRequest
from tests.unit.broker.virtual_time import in_virtual_time
from tests.unit.clients.consumer.fetched import ORDERS
from tests.unit.clients.consumer.scripted_group import GroupBroker
from tests.unit.clients.consumer.scripted_log import ScriptedMetadata, connected

LINE = b"a line\n"


class Member:
    """A member that writes a line for each record to a pipe."""

    def __init__(self, broker: GroupBroker, consumer: Consumer) -> None:
        self.reader, self.writer = os.pipe()
        self._broker = broker
        self._consumer = consumer
        self._output = PacedOutput(self.writer)
        self.said: list[str] = []
        self.offsets = GroupOffsets(
            consumer=consumer,
            output=self._output,
            find_start=None,
            warn=self._say,
            group_id="group",
            is_hindered=lambda seconds: False,
        )

    def _say(self, text: str, advice: str | None = None) -> None:
        self.said.append(text)

    async def write(self, position: int) -> None:
        """Write a line, after which the consumer is at this position."""

        async def nothing() -> None:
            pass

        await self._output.write(LINE, nothing)
        self._consumer.seek(ORDERS, position)
        await self.offsets.note_written()

    def take(self) -> None:
        assert os.read(self.reader, len(LINE)) == LINE

    @property
    def committed(self) -> list[int]:
        requests: list[Any] = self._broker.seen(OffsetCommitRequest)
        return [request.topics[0].partitions[0].committed_offset for request in requests]


@asynccontextmanager
async def member() -> AsyncIterator[Member]:
    broker = GroupBroker()
    async with connected(broker, reported=ScriptedMetadata([1]), group_id="group") as consumer:
        consumer.assign([ORDERS])
        made = Member(broker, consumer)
        yield made
        os.close(made.writer)


def play(script: Callable[[Member], Any]) -> None:
    @in_virtual_time
    async def run() -> None:
        async with member() as made:
            await script(made)

    run()


def test_first_commit_is_not_before_the_usual_interval_is_over() -> None:
    async def script(member: Member) -> None:
        await member.write(1)
        member.take()
        await member.offsets.commit_if_due()
        assert member.committed == []
        await asyncio.sleep(COMMIT_SECONDS)
        await member.offsets.commit_if_due()
        assert member.committed == [1]
        os.close(member.reader)

    play(script)


def test_commit_ends_before_what_the_reader_has_not_taken() -> None:
    async def script(member: Member) -> None:
        await member.write(1)
        await member.write(2)
        member.take()
        assert await member.offsets.commit_finally()
        assert member.committed == [1]
        member.take()
        assert await member.offsets.commit_finally()
        assert member.committed == [1, 2]
        os.close(member.reader)

    play(script)


def test_commit_after_the_reader_has_gone_commits_nothing() -> None:
    async def script(member: Member) -> None:
        await member.write(1)
        member.take()
        os.close(member.reader)
        assert await member.offsets.commit_finally()
        assert member.committed == []

    play(script)
