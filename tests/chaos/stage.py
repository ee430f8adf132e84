"""A simulated broker behind a proxy, in virtual time, and the truth about what it holds."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from random import Random
from typing import Any, Final, TypeAlias

from oncelog.clients.admin.topics import NewTopic, create_topics
from oncelog.clients.bootstrap import parse_bootstrap
from oncelog.clients.cluster import Cluster
from oncelog.clients.errors import ClientError
from oncelog.clients.offset_and_metadata import OffsetAndMetadata
from oncelog.protocol.topic_partition import TopicPartition
from tests.chaos.proxy import Proxy
from tests.simulation.log_reader import PositionedValue, read_partition
from tests.simulation.simulated_broker import PORT, SimulatedBroker
from tests.simulation.virtual_loop import VirtualLoop
from tests.simulation.wire_client import WireClient

TOPIC: Final = "journal"
PROXY_PORT: Final = 19_092
Schedule: TypeAlias = Callable[[VirtualLoop, Random], Coroutine[Any, Any, Counter[str]]]
"""Plays in a loop, from chance; returns how often what happened."""
_LATE_SECONDS: Final = 1.0
"""How much later than its time-out a call may return."""


_MOST_FINALLY: Final = 10


class HangingCall(AssertionError):
    """A call took longer than it may."""


class Stage:
    """One broker, one proxy, one topic."""

    def __init__(
        self, loop: VirtualLoop, rng: Random, partitions: int, settings: Mapping[str, str] | None = None
    ) -> None:
        self.loop = loop
        self.rng = rng
        self.partitions = partitions
        advertised = {"advertised.listeners": f"PLAINTEXT://127.0.0.1:{PROXY_PORT}"}
        self.broker = SimulatedBroker(loop, rng, {**advertised, **(settings or {})})
        self.proxy = Proxy(PORT, Random(rng.getrandbits(64)), port=PROXY_PORT)
        self.calls = 0
        """How many calls were made."""
        self.cancelled = 0
        """How many of them were cancelled."""

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{PROXY_PORT}"

    async def start(self) -> None:
        """Start all, and create the topic before the weather turns bad."""
        await self.broker.start()
        await self.proxy.start()
        async with Cluster(parse_bootstrap(self.bootstrap), rng=self.rng) as cluster:
            topic = NewTopic(name=TOPIC, partitions=self.partitions, replication_factor=1)
            assert await create_topics(cluster, [topic]) == {TOPIC: None}
        self.proxy.is_bad = True

    async def stop(self) -> None:
        await self.proxy.close()
        await self.broker.stop()

    # Calls

    async def call(self, work: Coroutine[Any, Any, Any], bound_seconds: float, *, cancel: float = 0.0) -> Any:
        """Return what a call returns, or its error, or its cancellation. ``cancel``: how likely it is cancelled.

        Raises ``HangingCall`` if it takes longer than its bound.
        """
        self.calls += 1
        started = self.loop.time()
        async with asyncio.TaskGroup() as group:
            task = group.create_task(_outcome(work))
            if self.rng.random() < cancel:
                await self._wait_a_little()
                self.cancelled += task.cancel()
            done, _ = await asyncio.wait([task], timeout=bound_seconds + _LATE_SECONDS)
            task.cancel()
        work.close()  # Of a call that was cancelled before it began.
        if not done:
            raise HangingCall(f"{work.__qualname__} was still under way after {self.loop.time() - started:g} s")
        return asyncio.CancelledError() if task.cancelled() else task.result()

    async def _wait_a_little(self) -> None:
        """Some steps of the loop, or some time."""
        if self.rng.random() < 0.5:
            for _ in range(self.rng.randint(0, 8)):
                await asyncio.sleep(0)
        else:
            await asyncio.sleep(self.rng.expovariate(1 / self.rng.choice((0.001, 0.05, 1.0))))

    # The truth

    @asynccontextmanager
    async def direct(self) -> AsyncIterator[WireClient]:
        """A connection to the broker past the proxy."""
        client = await WireClient.connect(PORT)
        try:
            yield client
        finally:
            client.close()

    async def content(self, *, read_committed: bool) -> list[list[PositionedValue]]:
        """The records of each partition."""
        async with self.direct() as client:
            return [
                (await read_partition(client.call, TopicPartition(TOPIC, index), read_committed=read_committed)).records
                for index in range(self.partitions)
            ]


async def _outcome(work: Coroutine[Any, Any, Any]) -> Any:
    try:
        return await work
    except ClientError as error:
        return error


def run_schedule(seed: int, schedule: Schedule) -> Counter[str]:
    """Run one schedule in a loop of its own; a failure names its seed."""
    rng = Random(seed)
    loop = VirtualLoop(rng)
    try:
        return loop.run_until_complete(schedule(loop, rng))
    except BaseException as failure:
        failure.add_note(f"seed {seed}")
        raise
    finally:
        _collect(loop)
        loop.close()


def _collect(loop: VirtualLoop) -> None:
    """End what killed processes left behind; their ``finally`` blocks speak to nobody."""
    for process in loop.processes:
        for task in process.tasks:
            work = task.get_coro()
            for _ in range(_MOST_FINALLY):
                try:
                    work.close()  # type: ignore[union-attr]
                    break
                except RuntimeError:  # It awaits in a ``finally`` block, or asks for the running loop.
                    pass


def offsets_of(number: int) -> dict[TopicPartition, OffsetAndMetadata]:
    """What a transaction commits beside its records."""
    return {TopicPartition(TOPIC, 0): OffsetAndMetadata(number)}
