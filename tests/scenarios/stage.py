"""What a scenario plays on: one broker in virtual time, a network in memory, a disk that crashes.

A scenario is written as a coroutine function that takes a ``Stage`` and decorated with ``scenario``; pytest sees a
plain function. It runs once for every seed that is named, because delays and segmentation differ between seeds and its
statements must hold under all of them.

At its end the broker must still serve and stop cleanly, and nobody may have logged an error on the way, except where
the scenario took the machine down or says that it expects errors.
"""

import asyncio
import functools
import inspect
import logging
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from oncelog.protocol.messages.delete_topics import DeleteTopicsRequest
from oncelog.protocol.schema import Message
from oncelog.protocol.topic_partition import TopicPartition
from tests.scenarios.scripted_producer import ScriptedProducer
from tests.simulation import requests
from tests.simulation.log_reader import PartitionContent, read_partition
from tests.simulation.requests import FetchedPosition
from tests.simulation.sim_disk import CrashKind
from tests.simulation.simulated_broker import PORT, SimulatedBroker
from tests.simulation.virtual_loop import VirtualLoop
from tests.simulation.wire_client import WireClient

SEEDS: Final = (1, 2, 3)
_STEP_SECONDS: Final = 0.001
_LONGEST_SECONDS: Final = 30 * 86_400.0
"""Of virtual time; what takes longer hangs."""


class _ErrorLog(logging.Handler):
    """Keeps what was logged as an error."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if record.exc_info:
            text += f": {record.exc_info[1]!r}"
        self.messages.append(text)


class Stage:
    """The broker and ways to reach it."""

    def __init__(self, loop: VirtualLoop, rng: random.Random, settings: Mapping[str, str]) -> None:
        self.loop = loop
        self.rng = rng
        self.broker = SimulatedBroker(loop, rng, settings)
        self.errors = _ErrorLog()
        self.expects_errors = False
        """Set by a scenario that makes the broker's disk fail."""

    # The broker

    @property
    def disk(self) -> Any:
        return self.broker.disk

    def crash(self, kind: CrashKind = "process") -> None:
        """kill -9, or power loss. What the dying machine complained about does not count."""
        if self.disk.stopped:
            self.errors.messages.clear()
        self.broker.crash(kind)

    async def restart(self, kind: CrashKind = "process") -> None:
        """Crash and start again."""
        self.crash(kind)
        await self.broker.start()

    def slow_fsync(self, seconds: float = 0.02) -> None:
        """Make what is acknowledged before it is on the medium show itself at the next loss of power."""

        async def delay() -> None:
            await asyncio.sleep(self.rng.uniform(seconds / 2, seconds))

        self.disk.delay = delay

    async def machine_stopped(self) -> None:
        """Wait until the broker came to where ``disk.stop_before`` stops it."""
        await self.until(lambda: self.disk.stopped)

    # Clients

    async def connect(self, *, response_within: float = 30.0) -> WireClient:
        return await WireClient.connect(PORT, response_within=response_within)

    def producer(self, transactional_id: str | None, *, timeout_ms: int = 60_000) -> ScriptedProducer:
        return ScriptedProducer(self.connect, transactional_id, timeout_ms=timeout_ms)

    async def call(self, request: Message, version: int) -> Any:
        """Over a connection of its own, which is then closed."""
        client = await self.connect()
        try:
            return await client.call(request, version)
        finally:
            client.close()

    async def create_topic(
        self, name: str, partitions: int = 1, configs: Mapping[str, str] | None = None
    ) -> list[TopicPartition]:
        topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
        topic.configs = [CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()]
        response = await self.call(CreateTopicsRequest(topics=[topic], timeout_ms=5_000), 5)
        assert response.topics[0].error_code == ErrorCode.NONE, ErrorCode(response.topics[0].error_code)
        return [TopicPartition(name, index) for index in range(partitions)]

    async def delete_topic(self, name: str) -> None:
        response = await self.call(DeleteTopicsRequest(topic_names=[name], timeout_ms=5_000), 5)
        assert response.responses[0].error_code == ErrorCode.NONE, ErrorCode(response.responses[0].error_code)

    async def find_coordinator(self, key: str, *, transactional: bool) -> None:
        """Ask until there is one; whoever asks first has the internal topic created."""
        request = requests.find_coordinator(key, transactional=transactional)

        async def found() -> bool:
            return bool((await self.call(request, requests.FIND_COORDINATOR_VERSION)).error_code == ErrorCode.NONE)

        await self.eventually(found)

    # Reading

    async def read(self, partition: TopicPartition, *, read_committed: bool) -> PartitionContent:
        client = await self.connect()
        try:
            return await read_partition(client.call, partition, read_committed=read_committed)
        finally:
            client.close()

    async def committed(self, partition: TopicPartition) -> list[bytes]:
        """What a read_committed consumer gets from the whole partition."""
        return (await self.read(partition, read_committed=True)).values

    async def everything(self, partition: TopicPartition) -> list[bytes]:
        """What a read_uncommitted consumer gets from the whole partition."""
        return (await self.read(partition, read_committed=False)).values

    async def group_position(
        self, group: str, partition: TopicPartition, *, require_stable: bool = False
    ) -> FetchedPosition:
        """What OffsetFetch says, as soon as the group's coordinator has loaded."""
        request = requests.offset_fetch(group, partition, require_stable=require_stable)
        position = FetchedPosition(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, -1)

        async def loaded() -> bool:
            nonlocal position
            position = requests.fetched_position(await self.call(request, requests.OFFSET_FETCH_VERSION))
            return position.error not in (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR)

        await self.eventually(loaded)
        return position

    async def group_offset(self, group: str, partition: TopicPartition, *, require_stable: bool = False) -> int:
        """A group's committed position; -1 if there is none."""
        position = await self.group_position(group, partition, require_stable=require_stable)
        assert position.error is ErrorCode.NONE, position.error.name
        return position.offset

    # Time

    async def until(self, condition: Callable[[], bool], *, within: float = 60.0) -> None:
        """Let virtual time pass until it is so."""
        end = self.loop.time() + within
        while not condition():
            assert self.loop.time() < end, f"not within {within} s"
            await asyncio.sleep(_STEP_SECONDS)

    async def eventually(self, condition: Callable[[], Awaitable[bool]], *, within: float = 60.0) -> None:
        """The same for what must be asked over the wire."""
        end = self.loop.time() + within
        while not await condition():
            assert self.loop.time() < end, f"not within {within} s"
            await asyncio.sleep(_STEP_SECONDS)


Play = Callable[..., Awaitable[None]]


def scenario(*, settings: Mapping[str, str] | None = None, seeds: Sequence[int] = SEEDS) -> Callable[[Play], Any]:
    """Make a test out of a coroutine function whose first parameter is the stage."""

    def decorate(play: Play) -> Any:
        @functools.wraps(play)
        def test(**arguments: Any) -> None:
            for seed in seeds:
                _run(play, seed, settings or {}, arguments)

        parameters = list(inspect.signature(play).parameters.values())[1:]
        test.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        del test.__wrapped__
        return test

    return decorate


def _run(play: Play, seed: int, settings: Mapping[str, str], arguments: Mapping[str, Any]) -> None:
    rng = random.Random(seed)
    loop = VirtualLoop(rng)
    stage = Stage(loop, rng, settings)
    logging.getLogger().addHandler(stage.errors)
    try:
        loop.run_until_complete(_play(stage, play, arguments))
    except BaseException as failure:
        failure.add_note(f"seed {seed}")
        raise
    finally:
        logging.getLogger().removeHandler(stage.errors)
        if stage.broker.process is not None:
            stage.crash()
        loop.close()


async def _play(stage: Stage, play: Play, arguments: Mapping[str, Any]) -> None:
    await stage.broker.start()
    async with asyncio.timeout(_LONGEST_SECONDS):
        await play(stage, **arguments)
        await _still_serves(stage)
    await stage.broker.stop()
    if not stage.expects_errors:
        assert not stage.errors.messages, stage.errors.messages


async def _still_serves(stage: Stage) -> None:
    """A transaction of another client commits and is read."""
    (partition,) = await stage.create_topic("still-served")
    producer = stage.producer("still-served")
    await producer.init()
    await producer.transaction({partition: [b"yes"]})

    async def is_read() -> bool:
        return await stage.committed(partition) == [b"yes"]

    await stage.eventually(is_read)  # A commit may be answered before its markers are durable.
