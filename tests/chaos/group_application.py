"""An application around a consumer of a group, in a simulated process of its own: it can stand still, and be killed.

It polls, commits and looks at positions at random, cancels some of its calls, has a listener that takes its time, and
stays away from ``poll`` now and then. What it sees goes into the history of its group.
"""

import asyncio
from collections import Counter
from collections.abc import Collection, Coroutine
from random import Random
from re import Pattern
from typing import Any, Final

from oncelog.clients.consumer import Consumer, ConsumerConfig, OffsetAndMetadata, RebalanceListener
from oncelog.clients.consumer.consumer_errors import InstanceFenced
from oncelog.clients.errors import ClientError, CommitFailed, IllegalState
from oncelog.protocol.topic_partition import TopicPartition
from tests.chaos.group_history import FOREVER, GroupHistory, MemberHistory, Tenure, merged
from tests.chaos.stage import HangingCall
from tests.simulation.virtual_loop import SimProcess, VirtualLoop

_LATE_SECONDS: Final = 1.0
"""How much later than its time-out a call may return."""


class Application(RebalanceListener):
    """One member. ``run`` it in its ``process``."""

    def __init__(
        self,
        loop: VirtualLoop,
        rng: Random,
        config: ConsumerConfig,
        topics: Collection[str] | Pattern[str],
        history: GroupHistory,
        member: MemberHistory,
        wall_clock: Any,
    ) -> None:
        self.loop = loop
        self.rng = rng
        self.config = config
        self.topics = topics
        self.history = history
        self.member = member
        self.process = SimProcess(loop, member.name)
        self.consumer = Consumer(config, rng=Random(rng.getrandbits(64)), wall_clock=wall_clock)
        self.events: Counter[str] = Counter()
        self.tenures: dict[TopicPartition, Tenure] = {}
        self.slow_seconds = rng.choice((0.0, 0.02, 0.5))
        """How long its listener and its processing take on the average."""
        self.cancel = rng.choice((0.0, 0.1, 0.5))
        """How likely a call is cancelled."""
        self.restlessness = 0.3
        """How often it unsubscribes and subscribes again, in per cent of its steps."""
        self.stay_away_seconds = 0.0
        """For how long it is not to poll next."""
        self.is_stopping = self.is_fenced = False
        self.close_seconds = rng.choice((0.0, 1.0, 10.0))
        self.doubles: list[MemberHistory] = []
        """The members with its instance id, itself among them."""
        self._began = loop.time()
        self._arriving: frozenset[TopicPartition] = frozenset()
        self._paused_at: float | None = None
        self._polled_at = loop.time()
        self._in_listener: list[tuple[float, float]] = []
        self.task = self.process.run(self._run())

    # What befalls it

    def pause(self) -> None:
        """SIGSTOP."""
        if self._paused_at is None and self.process.alive:
            self._paused_at = self.loop.time()
            self.process.pause()

    def resume(self) -> None:
        if self._paused_at is not None:
            self.member.out_of_touch.append((self._paused_at, self.loop.time()))
            self._paused_at = None
            self.process.resume()

    def kill(self) -> None:
        """kill -9."""
        self.resume()
        self._note_absence(self._polled_at)
        self.process.kill()
        for tenure in self.tenures.values():
            tenure.ended = self.loop.time()
        self.tenures.clear()

    @property
    def is_present(self) -> bool:
        """Whether it polls, or has polled of late."""
        return self.loop.time() - self._polled_at < self.config.max_poll_interval_ms / 1000 / 4

    @property
    def is_over(self) -> bool:
        return not self.process.alive or self.task.done()

    # Its listener

    async def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:
        self._arriving = frozenset(partitions)
        await self._take_time()
        self._arriving = frozenset()
        for partition in partitions:
            assert partition not in self.tenures, f"{self.member.name}: {partition} was given to it, and it had it"
            self.tenures[partition] = self.history.begin(self.member, partition, self.loop.time())
        for double in self.doubles:
            if double is not self.member:
                double.out_of_touch.append((self._began, self.loop.time()))

    async def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> None:
        await self._take_time()
        if not self.config.enable_auto_commit:
            await self._commit(partitions)
        self._end(partitions)

    async def on_partitions_lost(self, partitions: Collection[TopicPartition]) -> None:
        await self._take_time()
        self.events["lost partitions"] += len(partitions)
        self._end(partitions)

    def _end(self, partitions: Collection[TopicPartition]) -> None:
        for partition in partitions:
            tenure = self.tenures.pop(partition, None)
            if tenure is not None:
                tenure.ended = self.loop.time()
            else:  # The call that was to give it was cancelled, and there was no other.
                assert partition in self._arriving, f"{self.member.name}: {partition} was taken, and it did not have it"

    async def _take_time(self) -> None:
        began = self.loop.time()
        try:
            if self.slow_seconds and self.rng.random() < 0.5:
                await asyncio.sleep(self.rng.expovariate(1 / self.slow_seconds))
        finally:
            self._in_listener.append((began, self.loop.time()))
            self._note_absence(began)

    def _note_absence(self, since: float) -> None:
        """The application does not poll, or its listener has not returned: a rebalance may end without it."""
        if self.loop.time() - since > self.config.max_poll_interval_ms / 1000 / 4:
            self.member.away.append((since, self.loop.time()))

    # What it does

    async def _run(self) -> None:
        while await self._call(self.consumer.start(), 60) is not None:
            if self.is_stopping:
                return
        self.consumer.subscribe(self.topics, self)
        while not self.is_stopping and not self.is_fenced:
            await self._step()
        await self._close()

    async def _step(self) -> None:
        if self.stay_away_seconds:
            self.stay_away_seconds = await self._stay_away(self.stay_away_seconds)
        match self.rng.choices(("poll", "commit", "ask", "resubscribe", "process"), (70, 10, 5, self.restlessness, 10))[
            0
        ]:
            case "poll":
                await self._poll(self.rng.choice((0.0, 0.001, 0.1, 1.0)))
                if not self.config.enable_auto_commit and self.rng.random() < 0.3:
                    await self._commit(list(self.tenures))
            case "commit" if not self.config.enable_auto_commit:
                await self._commit(list(self.tenures))
            case "ask" if self.tenures:
                partition = self.rng.choice(list(self.tenures))
                is_position = self.rng.random() < 0.5
                ask = self._ask_position if is_position else self._ask_committed
                await self._call(ask(partition), 2.0)
            case "resubscribe":
                if await self._call(self.consumer.unsubscribe(), 60, cancel=0.0) is None:
                    self.events["unsubscribed"] += 1
                    self.consumer.subscribe(self.topics, self)
            case _:
                await asyncio.sleep(self.rng.expovariate(1 / (self.slow_seconds or 0.01)))

    async def _stay_away(self, seconds: float) -> float:
        await asyncio.sleep(seconds)
        self.events["stayed away"] += 1
        return 0.0

    async def _poll(self, seconds: float) -> None:
        outcome = await self._call(self._take(seconds), seconds)
        if isinstance(outcome, IllegalState):
            raise outcome

    async def _take(self, seconds: float) -> None:
        self._note_absence(self._polled_at)
        self._polled_at = FOREVER
        try:
            await self._take_records(seconds)
        finally:
            self._polled_at = self.loop.time()

    async def _take_records(self, seconds: float) -> None:
        records = await self.consumer.poll(seconds, self.rng.choice((1, 3, 100)))
        now = self.loop.time()
        membership = self.consumer._group._membership  # type: ignore[union-attr]
        assert not records or not membership.generation.is_lost, "returned after the generation was lost"
        for record in records:
            tenure = self.tenures.get(record.topic_partition)
            assert tenure is not None, f"{self.member.name}: {record.topic_partition} is not its own, and returned"
            tenure.returned.append((now, record.offset))
        self.events["returned"] += len(records)

    async def _ask_position(self, partition: TopicPartition) -> None:
        await self.consumer.position(partition, 2.0)

    async def _ask_committed(self, partition: TopicPartition) -> None:
        await self.consumer.committed([partition], 2.0)

    async def _commit(self, partitions: Collection[TopicPartition]) -> None:
        """What it has seen of these."""
        seen = {tp: tenure.returned[-1][1] for tp in partitions if (tenure := self.tenures.get(tp)) and tenure.returned}
        offsets = {partition: OffsetAndMetadata(offset + 1) for partition, offset in seen.items()}
        seconds = self.rng.choice((0.2, 5.0))
        await self._call(self.consumer.commit(offsets, seconds), seconds)

    async def _close(self) -> None:
        self._note_absence(self._polled_at)
        await self._call(self.consumer.close(self.close_seconds), self.close_seconds + 1, cancel=0.0)
        for tenure in self.tenures.values():  # Of which there was no time to tell the listener.
            tenure.ended = self.loop.time()
        self.tenures.clear()
        self.events["closed"] += 1

    async def _call(
        self, work: Coroutine[Any, Any, Any], seconds: float, *, cancel: float | None = None
    ) -> BaseException | None:
        """The error of a call, if it is one that may be."""
        began = self.loop.time()
        is_cancelled = self.rng.random() < (self.cancel if cancel is None else cancel)
        outcome: BaseException | None = None
        try:
            async with asyncio.timeout(self.rng.expovariate(1 / 0.05) if is_cancelled else None):
                await work
        except TimeoutError as error:
            self.events["cancelled"] += 1
            outcome = error
        except InstanceFenced as error:
            self.is_fenced = True
            self.events["fenced"] += 1
            outcome = error
        except ClientError as error:
            self.events[type(error).__name__] += 1
            if not error.is_retriable and not isinstance(error, CommitFailed | IllegalState):
                raise
            outcome = error
        self._check_time(began, seconds, work.__qualname__)
        return outcome

    def _check_time(self, began: float, seconds: float, name: str) -> None:
        """The listener's time and the time that the process stood still do not count."""
        now = self.loop.time()
        excused = merged(
            (max(begin, began), end) for begin, end in (*self.member.out_of_touch, *self._in_listener) if end > began
        )
        if now - began - excused > seconds + _LATE_SECONDS:
            raise HangingCall(f"{self.member.name}: {name} took {now - began:g} s")
