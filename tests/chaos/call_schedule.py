"""Random calls of every public method of one client, each cancelled at a random await, over connections that break.

What must hold: a call raises nothing but a ``ClientError``; it takes no longer than its time-out; one that is cancelled
ends at once. When all has healed, the client works, or says by a fatal error why it does not. ``close`` ends in its
time, and leaves no task and no connection behind.
"""

import asyncio
import inspect
from collections import Counter
from collections.abc import Mapping
from random import Random
from typing import Any, Final

from oncelog.clients.admin.admin import Admin
from oncelog.clients.admin.topics import NewTopic, create_topics
from oncelog.clients.bootstrap import parse_bootstrap
from oncelog.clients.cluster import Cluster
from oncelog.clients.consumer import Consumer, ConsumerConfig
from oncelog.clients.consumer.consumer_errors import ConsumerClosed
from oncelog.clients.errors import ClientError, IllegalState, ProducerClosed, Unreachable
from oncelog.clients.producer import Producer, ProducerConfig
from oncelog.protocol.topic_partition import TopicPartition
from tests.chaos.cancellation import CancelledAt
from tests.chaos.drawn_calls import GROUP, SPARE, TABLES, World
from tests.chaos.group_truth import append
from tests.chaos.stage import TOPIC, HangingCall, Stage
from tests.scenarios.scripted_producer import ScriptedProducer
from tests.simulation.simulated_broker import PORT
from tests.simulation.virtual_loop import SimProcess, VirtualLoop
from tests.simulation.wire_client import WireClient

_LATE_SECONDS: Final = 1.0
_CANCEL_SECONDS: Final = 2.5
"""What a cancelled call may still take: a group is told within a second that its member leaves."""
_CLOSE_SECONDS: Final = 8.0
"""What closing may take beyond its time-out, for connections that do not let go what was written."""
_OFTEN: Final = frozenset({"send", "poll", "commit", "subscribe", "begin_transaction", "commit_transaction", "assign"})
_ENDS: Final = frozenset({"close", "__aexit__"})


class CallSchedule:
    """One run, for one client."""

    def __init__(self, loop: VirtualLoop, rng: Random) -> None:
        self.loop = loop
        self.rng = rng
        self.stage = Stage(loop, rng, rng.randint(1, 3))
        self.process = SimProcess(loop, "client")
        self.request_seconds = rng.choice((0.5, 2.0))
        self.block_seconds = rng.choice((1.0, 5.0))
        self.cancel = rng.choice((0.0, 0.3, 0.8))
        self.closes = rng.random() < 0.2
        self.events: Counter[str] = Counter()

    async def run(self) -> Counter[str]:
        """Play, heal, check and close; returns how often what was called, and what became of it."""
        await self.stage.start()
        self.world = World(self.rng, self.stage.partitions, await self._open_a_transaction())
        await self.process.run(self._use())
        await asyncio.sleep(0.1)  # For the other ends of the connections.
        left = [task.get_name() for task in self.process.tasks if not task.done()]
        assert not left, f"left over: {left}"
        connections = [each for each in self.loop.network._transports if each.process is self.process]
        assert not connections, f"left open: {[vars(each) for each in connections]}"
        await self.stage.stop()
        return self.events + Counter({fault.name: count for fault, count in self.stage.proxy.faults.items()})

    async def _open_a_transaction(self) -> int:
        """For administrators, in a topic that only they use."""
        self.stage.proxy.is_bad = False
        async with Cluster(parse_bootstrap(self.stage.bootstrap), rng=self.rng) as cluster:
            await create_topics(cluster, [NewTopic(name=name, partitions=3, replication_factor=1) for name in SPARE])
        producer = ScriptedProducer(lambda: WireClient.connect(PORT), "hanging", timeout_ms=60_000)
        await producer.init()
        await producer.open_transaction({TopicPartition(SPARE[0], 0): [b"open"]})
        producer.disconnect()
        async with self.stage.direct() as client:
            for index in range(self.stage.partitions):
                await append(client, TopicPartition(TOPIC, index), [b"%d" % number for number in range(20)])
        self.stage.proxy.is_bad = True
        return producer.producer_id

    # Playing

    def _new_client(self) -> Any:
        raise NotImplementedError

    async def _works(self, client: Any) -> None:
        """Raise why it does not."""
        raise NotImplementedError

    async def _use(self) -> None:
        client = self._new_client()
        table = TABLES[type(client)]
        if not isinstance(client, Admin) and self.rng.random() < 0.9:
            for _ in range(20):
                await self._call(client, "start", table)
        if "init_transactions" in table:
            for _ in range(3):
                await self._call(client, "init_transactions", table)
        async with asyncio.TaskGroup() as group:
            for _ in range(self.rng.randint(1, 3)):
                group.create_task(self._play(client, table))
        self.stage.proxy.heal()
        await self._check_works(client)
        self.cancel = 0.0
        await self._call(client, "close", table)

    async def _play(self, client: Any, table: Mapping[str, Any]) -> None:
        names = [name for name in table if name not in _ENDS or (self.closes and self.rng.random() < 0.3)]
        weights = [5 if name in _OFTEN else 1 for name in names]
        for _ in range(self.rng.randint(5, 60)):
            await self._call(client, self.rng.choices(names, weights)[0], table)
            if self.rng.random() < 0.2:
                await asyncio.sleep(self.rng.expovariate(1 / self.rng.choice((0.01, 0.5))))

    async def _call(self, client: Any, name: str, table: Mapping[str, Any]) -> None:
        self.events[name] += 1
        try:
            returned = table[name](client, self.world)
            if inspect.iscoroutine(returned):
                await self._wait_for(name, returned, self._bound(name))
        except ClientError as error:
            self.events[type(error).__name__] += 1
        except StopAsyncIteration:
            assert name == "__anext__"

    async def _wait_for(self, name: str, returned: Any, bound: float) -> None:
        cancelled_at: float | None = None

        def note() -> None:
            nonlocal cancelled_at
            cancelled_at = self.loop.time()

        step = self.rng.choice((1, 2, 3, 5, 8, 13, 21)) if self.rng.random() < self.cancel else 0
        if name == "__anext__" and not step:
            step = self.rng.choice((2, 5))  # It waits for ever.
        began = self.loop.time()
        task = asyncio.get_running_loop().create_task(_await(CancelledAt(returned, step, note)), name=f"call of {name}")
        patience = (3_600.0 if name == "__anext__" else bound) + _LATE_SECONDS
        done, _ = await asyncio.wait([task], timeout=patience)
        now = self.loop.time()
        if not done:
            if name == "__anext__":
                task.cancel()
                await asyncio.wait([task])
                return
            raise HangingCall(
                f"{name} was under way after {now - began:g} s; cancelled at {cancelled_at}: {task.get_stack()}"
            )
        if cancelled_at is not None:
            self.events["cancelled"] += 1
            longest = _CLOSE_SECONDS if name in _ENDS else _CANCEL_SECONDS
            if now - cancelled_at > longest:
                raise HangingCall(f"{name} went on for {now - cancelled_at:g} s after it was cancelled")
        if not task.cancelled():
            task.result()

    def _bound(self, name: str) -> float:
        raise NotImplementedError

    async def _check_works(self, client: Any) -> None:
        failure: ClientError | None = None
        for _ in range(60):
            try:
                async with asyncio.timeout(60):
                    await self._works(client)
                self.events["works"] += 1
                return
            except ClientError as error:
                failure = error
                if isinstance(error, ProducerClosed | ConsumerClosed) or (
                    error.is_fatal and not isinstance(error, IllegalState)
                ):
                    self.events[f"says {type(error).__name__}"] += 1
                    return
                if self.closes and isinstance(error, Unreachable) and "closed" in str(error):
                    return
            await asyncio.sleep(0.5)
        raise AssertionError(f"does not work any more: {failure!r}")


async def _await(what: Any) -> Any:
    return await what


class ProducerCalls(CallSchedule):
    """Of a producer, half of the time a transactional one."""

    def _new_client(self) -> Producer:
        self.is_transactional = self.rng.random() < 0.6
        self.delivery_seconds = self.request_seconds + self.rng.choice((0.5, 10.0))
        config = ProducerConfig(
            bootstrap=self.stage.bootstrap,
            transactional_id="id" if self.is_transactional else None,
            transaction_protocol=self.rng.choice(("1", "2", "auto")),
            transaction_timeout_ms=self.rng.choice((3_000, 60_000)),
            max_block_ms=int(self.block_seconds * 1000),
            request_timeout_ms=int(self.request_seconds * 1000),
            delivery_timeout_ms=int(self.delivery_seconds * 1000),
            connect_timeout_ms=1_000,
            buffer_bytes=self.rng.choice((1 << 20, 1 << 14)),
            max_request_bytes=1 << 12,
            retry_backoff_ms=20,
        )
        return Producer(config, rng=self.rng, wall_clock=self.stage.broker.wall_clock)

    def _bound(self, name: str) -> float:
        match name:
            case "close":
                return self.world.timeout + _CLOSE_SECONDS
            case "__aexit__":
                return self.delivery_seconds + self.block_seconds + _CLOSE_SECONDS
            case "flush":
                return self.delivery_seconds
            case "start" | "__aenter__":
                return 10.0
        return self.block_seconds

    async def _works(self, client: Producer) -> None:
        if not self.is_transactional:
            await self._start(client)
            await (await client.send(TOPIC, b"last"))
            return
        await self._start(client)
        for end in (client.init_transactions, client.commit_transaction, client.abort_transaction):
            try:
                await end()
            except ClientError as error:
                if not (isinstance(error, IllegalState) or error.is_abortable):  # It is not what is needed.
                    raise
        client.begin_transaction()
        await (await client.send(TOPIC, b"last"))
        await client.commit_transaction()

    async def _start(self, client: Producer) -> None:
        try:
            await client.start()
        except IllegalState:
            pass  # It has been started.


class ConsumerCalls(CallSchedule):
    """Of a consumer with a group."""

    def _new_client(self) -> Consumer:
        config = ConsumerConfig(
            bootstrap=self.stage.bootstrap,
            group_id=GROUP,
            auto_offset_reset="earliest",
            enable_auto_commit=self.rng.random() < 0.5,
            auto_commit_interval_ms=200,
            assignors=(self.rng.choice(("range", "cooperative-sticky")),),
            session_timeout_ms=6_000,
            heartbeat_interval_ms=500,
            max_poll_interval_ms=self.rng.choice((2_000, 60_000)),
            metadata_max_age_ms=2_000,
            connect_timeout_ms=1_000,
            request_timeout_ms=int(self.request_seconds * 1000),
            default_api_timeout_ms=5_000,
        )
        return Consumer(config, rng=self.rng, wall_clock=self.stage.broker.wall_clock)

    def _bound(self, name: str) -> float:
        match name:
            case "close":
                return self.world.timeout + _CLOSE_SECONDS
            case "__aexit__":
                return 30 + _CLOSE_SECONDS
            case "unsubscribe" | "start" | "__aenter__":
                return 2 * self.request_seconds + 4
        return self.world.timeout

    async def _works(self, client: Consumer) -> None:
        await client.start()
        await client.unsubscribe()
        client.subscribe([TOPIC])
        async with self.stage.direct() as direct:
            await append(direct, TopicPartition(TOPIC, 0), [b"last"])
        while True:
            if any(record.value == b"last" for record in await client.poll(1)):
                return


class AdminCalls(CallSchedule):
    """Of an administrator."""

    def _new_client(self) -> Admin:
        return Admin(
            self.stage.bootstrap,
            rng=self.rng,
            connect_timeout_ms=1000,
            default_api_timeout_ms=int(self.request_seconds * 1000),
        )

    def _bound(self, name: str) -> float:
        """A change whose response is lost is looked for: two operations, and a connection to be made."""
        return 2 * self.request_seconds + 2 + (_CLOSE_SECONDS if name in _ENDS else 0)

    async def _works(self, client: Admin) -> None:
        assert TOPIC in {topic.name for topic in await client.list_topics()}


async def producer_calls(loop: VirtualLoop, rng: Random) -> Counter[str]:
    """Play one schedule."""
    return await ProducerCalls(loop, rng).run()


async def consumer_calls(loop: VirtualLoop, rng: Random) -> Counter[str]:
    """Play one schedule."""
    return await ConsumerCalls(loop, rng).run()


async def admin_calls(loop: VirtualLoop, rng: Random) -> Counter[str]:
    """Play one schedule."""
    return await AdminCalls(loop, rng).run()
