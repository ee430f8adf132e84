"""A model of Spark, as far as a sink can tell: runs of a query, batches, tasks with attempts, crashes, and zombies.

What it does was observed on real Spark. A batch that is not in the commit log is run again as a whole, with other
messages and maybe another number of tasks, while attempts of the last try may still be at work. A task may have two
attempts at once, of which one message arrives. A commit that raises is followed by ``abort`` with all messages. A
driver that is believed dead may go on later. Rows of a batch do not change, which tasks they are in does.
"""

from collections.abc import AsyncIterator, Coroutine
from random import Random
from typing import Any

from oncelog.spark_connector.sink.commit.batch_commit import abort_batch, commit_batch
from oncelog.spark_connector.sink.commit.prelude import Permit, begin_batch
from oncelog.spark_connector.sink.commit.sink_errors import SinkError
from oncelog.spark_connector.sink.commit.slot_pool import SlotPool
from oncelog.spark_connector.sink.commit.task import TaskOutcome, write_rows
from tests.unit.spark_connector.sink.commit.model_cluster import Cluster, Fate, ModelBroker, Turn
from tests.unit.spark_connector.sink.commit.sink_history import digest

SINK = "s"
QUERY = "q"
ROWS_IN_BATCH = 4
_MOST_ATTEMPTS = 3
_FAULTS = (Fate.LOST, Fate.RESPONSE_LOST, Fate.LATE)


class Actor:
    """A process, or a thread of one: a coroutine that is moved on step by step."""

    def __init__(self, name: str, work: Coroutine[Any, Any, Any]) -> None:
        self.name = name
        self._work = work
        self.is_done = False
        self.error: Exception | None = None
        self.result: Any = None

    def step(self) -> None:
        if self.is_done:
            return
        try:
            self._work.send(None)
        except StopIteration as stop:
            self.is_done, self.result = True, stop.value
        except Exception as error:
            self.is_done, self.error = True, error

    def kill(self) -> None:
        """kill -9: not even ``finally`` runs where that would be more than a turn."""
        self.is_done = True
        work, self._work = self._work, _nothing()
        self._corpse = work

    def close(self) -> None:
        for work in (self._work, getattr(self, "_corpse", None)):
            if work is not None:
                try:
                    work.close()
                except RuntimeError:  # It wanted to abort something: the dead do not.
                    pass


async def _nothing() -> None:
    return None


class World:
    """One query's runs on one cluster."""

    def __init__(self, seed: int, *, version: int, batches: int, fault_rate: float, first_epoch: int) -> None:
        self.rng = Random(seed)
        self.cluster = Cluster(version, first_epoch)
        self.batches = batches
        self.fault_rate = fault_rate
        self.committed = -1
        """The last batch in Spark's commit log."""
        self.run = 0
        self.actors: list[Actor] = []
        self.driver: Actor | None = None
        self.slots = [SlotPool("p0"), SlotPool("p1")]
        self.failures: list[Exception] = []
        self.is_replaced = False
        """Whether the topic was, so that the first batches may be gone."""

    @property
    def is_finished(self) -> bool:
        return self.committed == self.batches - 1

    def fate(self) -> Fate:
        return self.rng.choice(_FAULTS) if self.rng.random() < self.fault_rate else Fate.RESPONDED

    def broker(self) -> ModelBroker:
        return ModelBroker(self.cluster, self.fate)

    # Spark's driver

    def start_run(self, *, same_processes: bool) -> None:
        """Start the query again. The processes of the planner and the executors may be those of the run before."""
        self.run += 1
        if not same_processes:
            self.slots = [SlotPool(f"p{self.run}x{number}") for number in range(2)]
        self.driver = self.add(f"driver {self.run}", self._run(self.run))

    def add(self, name: str, work: Coroutine[Any, Any, Any]) -> Actor:
        actor = Actor(name, work)
        self.actors.append(actor)
        return actor

    async def _run(self, run: int) -> None:
        broker = self.broker()
        while self.committed < self.batches - 1:
            batch = self.committed + 1
            permit = await begin_batch(broker, SINK, requires_decisions=True)
            outcomes = await self._run_tasks(permit, batch)
            try:
                if None in outcomes:
                    raise SinkError("a task failed for good")
                await commit_batch(broker, [each for each in outcomes if each is not None], batch)
            except SinkError:
                known = [each for each in outcomes if each is not None]
                await abort_batch(broker, known, SINK, batch)
                raise
            if run == self.run:
                self.committed = batch

    async def _run_tasks(self, permit: Permit, batch: int) -> list[TaskOutcome | None]:
        outcomes: list[TaskOutcome | None] = []
        for share in self._layout(batch):
            outcomes.append(await self._run_task(permit, batch, share))
        return outcomes

    def _layout(self, batch: int) -> list[list[int]]:
        """Every execution of a batch may have other tasks, and empty ones."""
        shares: list[list[int]] = [[] for _ in range(self.rng.randint(1, 3))]
        for row in range(batch * ROWS_IN_BATCH, (batch + 1) * ROWS_IN_BATCH):
            self.rng.choice(shares).append(row)
        return shares

    async def _run_task(self, permit: Permit, batch: int, share: list[int]) -> TaskOutcome | None:
        """Attempts one after the other, sometimes two at once; the first that is done wins, the other goes on."""
        for number in range(_MOST_ATTEMPTS):
            attempts = [self._attempt(permit, batch, share, number) for _ in range(self.rng.choice((1, 1, 2)))]
            while not all(each.is_done for each in attempts):
                done = [each for each in attempts if each.result is not None]
                if done:
                    return done[0].result  # type: ignore[no-any-return]
                await Turn()
            done = [each for each in attempts if each.result is not None]
            if done:
                return done[0].result  # type: ignore[no-any-return]
        return None

    def _attempt(self, permit: Permit, batch: int, share: list[int], number: int) -> Actor:
        async def rows() -> AsyncIterator[list[int]]:
            for row in share:
                yield [row]

        slots = self.rng.choice(self.slots)
        work = write_rows(self.broker(), permit, slots, QUERY, batch, rows(), digest)
        return self.add(f"task of batch {batch}, attempt {number}", work)

    # What may happen

    @property
    def living(self) -> list[Actor]:
        return [each for each in self.actors if not each.is_done]

    def step(self, actor: Actor) -> None:
        actor.step()
        if actor is self.driver and actor.is_done:
            self.driver = None
            if actor.error is not None:
                self.failures.append(actor.error)
        elif actor.error is not None and not isinstance(actor.error, SinkError):
            self.failures.append(actor.error)

    def leave_driver(self, *, dead: bool) -> None:
        """The driver is believed dead; is it?"""
        if self.driver is not None and dead:
            self.driver.kill()
        self.driver = None

    def time_out(self, name: str) -> None:
        self.cluster.fence(name)

    def replace_topic(self) -> None:
        self.cluster.replace_topic()
        self.is_replaced = True

    def add_state_partitions(self) -> None:
        self.cluster.add_state_partitions(self.rng.randint(1, 4))

    def deliver_late(self) -> None:
        if self.cluster.late:
            self.cluster.late.pop(self.rng.randrange(len(self.cluster.late)))()

    # The end

    def recover(self, *, runs: int = 8, steps: int = 3000) -> None:
        """No more faults, apart from what is under way: the query is run until it has nothing left to do."""
        self.fault_rate = 0.0
        for _ in range(runs):
            if self.is_finished and self.driver is None:
                return
            if self.driver is None:
                self.start_run(same_processes=False)
            for _ in range(steps):
                if self.driver is None:
                    break
                self.step(self.rng.choice(self.living))

    def let_zombies_finish(self) -> None:
        while self.cluster.late:
            self.deliver_late()
        for _ in range(20_000):
            if not self.living:
                return
            self.step(self.rng.choice(self.living))

    def clean_up(self) -> None:
        """What the next batch would begin with."""
        actor = self.add("prelude", begin_batch(self.broker(), SINK))
        while not actor.is_done:
            actor.step()

    def close(self) -> None:
        for actor in self.actors:
            actor.close()

    def verdict(self) -> str | None:
        """What is wrong with the rows; None if each is visible once, but for batches that went with a topic."""
        visible = sorted(self.cluster.visible)
        rows = self.batches * ROWS_IN_BATCH
        first = min(visible, default=rows) // ROWS_IN_BATCH * ROWS_IN_BATCH if self.is_replaced else 0
        expected = list(range(first, rows))
        unexpected = [each for each in self.failures if not isinstance(each, SinkError)]
        if unexpected:
            return f"failed: {unexpected[0]!r}"
        if len(set(visible)) < len(visible):
            return "duplicated"
        if not self.is_finished:
            return f"stuck: {self.failures[-1]!r}" if self.failures else "stuck"
        if visible != expected:
            return "lost"
        return None

    def left_open(self) -> str | None:
        """What is open although a driver has begun another batch."""
        return f"left open: {self.cluster.open_ids}" if self.cluster.open_ids else None

    def finish(self) -> str | None:
        """Recover, let zombies do what they can, recover again; the verdict."""
        self.recover()
        self.let_zombies_finish()
        self.recover()
        verdict = self.verdict()
        self.clean_up()
        return verdict or self.verdict() or self.left_open()


def simulate(
    seed: int,
    *,
    steps: int = 250,
    time_outs: bool = False,
    replaces_topic: bool = False,
    adds_state_partitions: bool = False,
) -> str | None:
    """One history, at random; the verdict."""
    rng = Random(seed)
    world = World(
        seed,
        version=rng.choice((1, 2)),
        batches=rng.randint(1, 3),
        fault_rate=rng.choice((0.0, 0.05, 0.2)),
        first_epoch=rng.choice((0, 32_763)),
    )
    try:
        _make_history(world, rng, steps, time_outs, replaces_topic, adds_state_partitions)
        return world.finish()
    finally:
        world.close()


def _make_history(
    world: World, rng: Random, steps: int, time_outs: bool, replaces_topic: bool, adds_state_partitions: bool
) -> None:
    crash_rate = rng.choice((0.005, 0.02, 0.05))
    for _ in range(steps):
        if world.driver is None and not world.is_finished:
            world.start_run(same_processes=rng.random() < 0.5)
        if not world.living:
            return
        chance = rng.random()
        if chance < crash_rate:
            world.leave_driver(dead=rng.random() < 0.5)
        elif chance < 2 * crash_rate:
            victim = rng.choice(world.living)
            if victim is not world.driver:
                victim.kill()
        elif chance < 2.5 * crash_rate:
            world.deliver_late()
        elif chance < 2.7 * crash_rate and time_outs and world.cluster.open_ids:
            world.time_out(rng.choice(world.cluster.open_ids))
        elif 2.7 * crash_rate <= chance < 3 * crash_rate and replaces_topic:
            world.replace_topic()
        elif 3 * crash_rate <= chance < 3.5 * crash_rate and adds_state_partitions:
            world.add_state_partitions()
        else:
            world.step(rng.choice(world.living))
