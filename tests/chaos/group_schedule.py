"""A group whose members come, leave, die, stall and stand still every few seconds, over connections that break.

Some schedules have one assignor, some another; some members are static; some subscribe to a pattern whose topics come
while they run; some commit by themselves; the machine may be so busy that every member stands still now and then; the
coordinator may be killed and come back. Then all faults end. Within a bounded time the members that are left must
agree on one assignment, stay with it, and have returned everything; ``GroupHistory`` judges what they did meanwhile.
"""

import asyncio
import re
from collections import Counter
from collections.abc import Awaitable, Callable
from random import Random
from typing import Final

from oncelog.clients.consumer import ConsumerConfig
from oncelog.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from oncelog.protocol.topic_partition import TopicPartition
from tests.chaos.group_application import Application
from tests.chaos.group_history import GroupHistory, MemberHistory
from tests.chaos.group_truth import append, read_commits, read_log
from tests.chaos.stage import TOPIC, Stage
from tests.simulation.simulated_broker import PORT
from tests.simulation.virtual_loop import VirtualLoop
from tests.simulation.wire_client import NoResponse, WireClient

GROUP: Final = "group"
_ASSIGNORS: Final = (
    ("range",),
    ("roundrobin",),
    ("sticky",),
    ("cooperative-sticky",),
    ("cooperative-sticky",),
    ("cooperative-sticky", "range"),
)
_INSTANCES: Final = ("left", "right")
_SESSION_MS: Final = 6_000
"""The least that brokers accept."""
_MOST_TOPICS: Final = 4


class GroupNeverSettles(AssertionError):
    """The members do not agree on one assignment, though nothing disturbs them any more."""


class GroupSchedule:
    """One run."""

    def __init__(self, loop: VirtualLoop, rng: Random) -> None:
        self.loop = loop
        self.rng = rng
        delay_ms = rng.choice((0, 0, 1_000))
        self.stage = Stage(loop, rng, rng.randint(1, 6), {"group.initial.rebalance.delay.ms": str(delay_ms)})
        self.assignors = rng.choice(_ASSIGNORS)
        self.by_pattern = rng.random() < 0.4
        self.is_static = rng.random() < 0.3
        self.is_busy = rng.random() < 0.3
        self.weather = rng.choice(("good", "good", "bad", "changing"))
        self.has_restarts = rng.random() < 0.3
        self.most_members = 10 if rng.random() < 0.1 else rng.randint(2, 5)
        self.pace_seconds = rng.choice((0.3, 1.0, 4.0))
        self.max_poll_ms = rng.choice((2_000, 5_000, 20_000))
        self.heartbeat_ms = rng.choice((300, 1_000, 3_000))
        self.request_ms = rng.choice((1_000, 5_000))
        self.partitions: list[TopicPartition] = []
        self.topics = 0
        self.history = GroupHistory()
        self.instances: dict[str, list[MemberHistory]] = {name: [] for name in _INSTANCES}
        self.members: list[Application] = []
        self.trouble: list[tuple[float, float]] = []
        """When no member could be expected to hear from the coordinator."""
        self.quiet = asyncio.Event()
        self.visible: dict[TopicPartition, list[int]] = {}
        self.calm_generation: int | None = None
        self.calm_since = 0.0
        self.events: Counter[str] = Counter()

    async def run(self) -> Counter[str]:
        """Play, let it end, and check; returns how often what happened."""
        await self.stage.start()
        self.stage.proxy.is_bad = False
        self.partitions = [TopicPartition(TOPIC, index) for index in range(self.stage.partitions)]
        async with asyncio.TaskGroup() as group:
            background = [group.create_task(each()) for each in (self._feed, self._disturb, self._change_weather)]
            await self._play()
            self.quiet.set()
            await asyncio.gather(*background)
        await self._end()
        await self._check()
        await self.stage.stop()
        return self._count()

    # What happens

    async def _play(self) -> None:
        self._join()
        for _ in range(self.rng.randint(5, 25)):
            await asyncio.sleep(self.rng.expovariate(1 / self.pace_seconds))
            self._raise_failures()
            events: list[tuple[float, Callable[[], Awaitable[None] | None]]] = [
                (6, self._join),
                (4, self._leave),
                (2, self._kill),
                (2, self._keep_away),
                (2, self._stand_still),
                (2 if self.by_pattern and self.topics < _MOST_TOPICS else 0, self._add_topic),
                (1 if self.has_restarts else 0, self._restart),
            ]
            event = self.rng.choices([event for _, event in events], [weight for weight, _ in events])[0]
            self.events[event.__name__.strip("_")] += 1
            happening = event()
            if happening is not None:
                await happening

    def _running(self) -> list[Application]:
        return [each for each in self.members if not each.is_over and not each.is_stopping and not each.is_fenced]

    def _join(self) -> None:
        running = self._running()
        if len(running) >= self.most_members:
            return
        instance = self.rng.choice(_INSTANCES) if self.is_static and self.rng.random() < 0.6 else None
        config = ConsumerConfig(
            bootstrap=self.stage.bootstrap,
            client_id=f"member-{len(self.members)}",
            group_id=GROUP,
            group_instance_id=instance,
            assignors=self.assignors,
            auto_offset_reset="earliest",
            enable_auto_commit=self.rng.random() < 0.5,
            auto_commit_interval_ms=self.rng.choice((200, 2_000)),
            session_timeout_ms=_SESSION_MS,
            heartbeat_interval_ms=self.heartbeat_ms,
            max_poll_interval_ms=self.max_poll_ms,
            metadata_max_age_ms=2_000,
            connect_timeout_ms=1_000,
            request_timeout_ms=self.request_ms,
            fetch_max_wait_ms=500,
        )
        knows_within = (self.heartbeat_ms + 2 * self.request_ms + config.connect_timeout_ms) / 1000 + 2
        member = MemberHistory(config.client_id, knows_within)
        topics = re.compile(f"{TOPIC}.*") if self.by_pattern else [TOPIC]
        application = Application(
            self.loop,
            Random(self.rng.getrandbits(64)),
            config,
            topics,
            self.history,
            member,
            self.stage.broker.wall_clock,
        )
        if instance is not None:
            application.doubles = self.instances[instance]
            application.doubles.append(member)
        self.members.append(application)

    def _leave(self) -> None:
        for application in self._some():
            application.is_stopping = True

    def _kill(self) -> None:
        for application in self._some():
            application.kill()

    def _keep_away(self) -> None:
        for application in self._some():
            application.stay_away_seconds = self.max_poll_ms / 1000 * self.rng.choice((0.5, 1.0, 1.5))

    def _stand_still(self) -> None:
        for application in self._some():
            application.pause()
            self.loop.call_later(self.rng.uniform(0, 1.5 * _SESSION_MS / 1000), application.resume)

    def _some(self) -> list[Application]:
        running = self._running()
        return [self.rng.choice(running)] if running else []

    async def _add_topic(self) -> None:
        self.topics += 1
        name, count = f"{TOPIC}-{self.topics}", self.rng.randint(1, 3)
        request = CreateTopicsRequest(
            topics=[CreatableTopic(name=name, num_partitions=count, replication_factor=1)], timeout_ms=5_000
        )
        async with self.stage.direct() as client:
            response = await client.call(request, 5)
        assert response.topics[0].error_code == 0
        self.partitions += [TopicPartition(name, index) for index in range(count)]

    async def _restart(self) -> None:
        began = self.loop.time()
        self.stage.broker.crash("process")
        await asyncio.sleep(self.rng.uniform(0, 2))
        await self.stage.broker.start()
        self.trouble.append((began, self.loop.time()))

    # Beside that

    async def _feed(self) -> None:
        """Append to the topics."""
        number = 0
        while not self.quiet.is_set():
            partition = self.rng.choice(self.partitions)
            try:
                client = await WireClient.connect(PORT, response_within=2)
                await append(client, partition, [b"%d" % number] * self.rng.randint(1, 5))
                client.close()
            except NoResponse:
                pass
            number += 1
            await self._pass(self.rng.expovariate(1 / (self.pace_seconds / 4)))

    async def _disturb(self) -> None:
        """A busy machine: whoever is there stands still for moments."""
        while self.is_busy and not self.quiet.is_set():
            for application in self._running():
                if self.rng.random() < 0.3:
                    application.pause()
                    self.loop.call_later(self.rng.expovariate(1 / 0.5), application.resume)
            await self._pass(self.rng.uniform(0.1, 1))

    async def _change_weather(self) -> None:
        while self.weather != "good" and not self.quiet.is_set():
            began = self.loop.time()
            self.stage.proxy.is_bad = True
            await self._pass(None if self.weather == "bad" else self.rng.expovariate(1 / 2.5))
            self.stage.proxy.heal()
            self.trouble.append((began, self.loop.time()))
            await self._pass(self.rng.uniform(0.5, 10))

    async def _pass(self, seconds: float | None) -> None:
        """Let so much time pass, or what is left of the play."""
        try:
            async with asyncio.timeout(seconds):
                await self.quiet.wait()
        except TimeoutError:
            pass

    # The end

    def _raise_failures(self) -> None:
        for application in self.members:
            if application.process.alive and application.task.done():
                application.task.result()

    async def _end(self) -> None:
        """Nothing disturbs the group any more: it must settle, stay so, and return everything."""
        self.most_members += 1
        self._let_be()
        patience = 3 * _SESSION_MS / 1000 + 4 * self.max_poll_ms / 1000 + 20
        await self._until(self._is_settled, patience)
        async with self.stage.direct() as client:
            for partition in self.partitions:
                await append(client, partition, [b"last"])
            self.visible = {tp: [record.offset for record in await read_log(client, tp)] for tp in self.partitions}
        await self._until(self._is_calm, patience)
        for application in self._running():
            application.is_stopping = True
        await self._until(lambda: all(each.is_over for each in self.members), 30)

    def _let_be(self) -> None:
        """Have a member, and none that is disturbed. The last one may be fenced by one that has gone before it."""
        if not self._running():
            self._join()
        for application in self.members:
            application.resume()
            application.cancel = application.slow_seconds = application.restlessness = 0.0
            application.close_seconds = 10.0

    async def _until(self, condition: Callable[[], bool], patience: float) -> None:
        deadline = self.loop.time() + patience
        while not condition():
            self._raise_failures()
            if self.loop.time() > deadline:
                raise GroupNeverSettles(f"after {patience:g} s: {self._describe()}")
            await asyncio.sleep(0.1)
        self._raise_failures()

    def _is_settled(self) -> bool:
        running = self._running()
        if any(not each.is_over and each not in running for each in self.members):
            return False  # One that is about to end.
        if not running:
            self._let_be()
            return False
        owned = [partition for application in running for partition in application.tenures]
        busy = any(application.consumer._group.is_due for application in running)  # type: ignore[union-attr]
        return sorted(owned) == sorted(self.partitions) and not busy and self._generation() is not None

    def _is_calm(self) -> bool:
        """Whether it has been settled, in one generation, for so long that no ghost of a dead member is left."""
        is_calm = self._is_settled() and self._has_returned_all() and all(each.is_present for each in self._running())
        generation = self._generation() if is_calm else None
        if generation is None or generation != self.calm_generation:
            self.calm_generation, self.calm_since = generation, self.loop.time()
        return self.loop.time() - self.calm_since > 1.5 * _SESSION_MS / 1000

    def _has_returned_all(self) -> bool:
        returned = self.history.returned()
        return all(returned[partition].keys() >= set(offsets) for partition, offsets in self.visible.items())

    def _generation(self) -> int | None:
        """Of all members, None if they differ."""
        generations = {application.consumer.group_metadata().generation_id for application in self._running()}
        return generations.pop() if len(generations) == 1 else None

    def _describe(self) -> str:
        return "; ".join(
            f"{each.member.name}: {each.consumer.group_metadata().generation_id}, {sorted(map(str, each.tenures))}"
            for each in self.members
            if not each.is_over
        )

    async def _check(self) -> None:
        for application in self.members:
            application.member.out_of_touch += self.trouble
        async with self.stage.direct() as client:
            commits = await read_commits(client, GROUP)
        self.history.check(self.visible, commits)
        for partition, offsets in self.visible.items():
            assert commits[partition][-1].offset == offsets[-1] + 1, f"{partition}: {commits[partition][-1]}"

    def _count(self) -> Counter[str]:
        events = self.events + Counter({fault.name: count for fault, count in self.stage.proxy.faults.items()})
        for application in self.members:
            events += application.events
        events["generations"] = len(self.history.tenures)
        return events


async def group_schedule(loop: VirtualLoop, rng: Random) -> Counter[str]:
    """Play one schedule."""
    return await GroupSchedule(loop, rng).run()
