"""What each failure loses under which settings: every cell of the table in ``docs/explanation``, from runs.

A cluster of three brokers in virtual time takes records all the time; the first of them are on the medium, as the
operating system writes sooner or later. Then the failure happens, whoever died starts again, and more records are
acknowledged. Lost is what was acknowledged and is not in the leader's log at the end. A cell says what the worst of its
histories lost. A failure of a test names the seed, and ``run(failure, settings, seed)`` repeats it.
"""

import asyncio
import errno
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Final

import pytest

from oncelog.protocol.messages.produce import ProduceRequest
from oncelog.protocol.topic_partition import TopicPartition
from tests.simulation import requests
from tests.simulation.acknowledged_writer import AcknowledgedWriter
from tests.simulation.cluster_stories import create, simulate, state_of
from tests.simulation.simulated_cluster import SESSION_SECONDS, ClusterBroker, SimulatedCluster
from tests.simulation.stopping_disk import StoppingDisk

SEEDS: Final = 4
MORE_SEEDS: Final = 40
"""Histories until the loss that a cell has is seen."""
PAGE: Final = Path(__file__).parents[2] / "docs" / "explanation" / "durability.md"
T0: Final = TopicPartition("t", 0)
_LEADER: Final = 2
_WRITTEN_OUT: Final = 5
"""Records that are on every replica's medium before the failure."""
_AFTERWARDS: Final = 3
"""Records that must be acknowledged after the failure."""
_POLL_SECONDS: Final = 0.000_5
_MOST_POLLS: Final = 200_000


class Loss(IntEnum):
    """What a history lost."""

    NOTHING = 0
    LAST = 1
    """Records that were not on the leader's medium."""
    EVERYTHING = 2
    """Also records that had long been there."""

    @property
    def cell(self) -> str:
        """The text in the table."""
        return ("nothing", "the last records", "everything")[self]


@dataclass(frozen=True, slots=True)
class Settings:
    """A column of the table."""

    name: str
    replicas: tuple[int, ...] = (_LEADER, 3, 1)
    acks: int = -1
    min_insync_replicas: int = 1
    flushes: bool = False

    @property
    def of_broker(self) -> dict[str, str]:
        settings = {"min.insync.replicas": str(self.min_insync_replicas)}
        return settings | ({"log.flush.interval.messages": "1"} if self.flushes else {})


ONE = Settings("1 replica", replicas=(_LEADER,))
ONE_FLUSHED = Settings("1 replica, flush 1", replicas=(_LEADER,), flushes=True)
ACKS_1 = Settings("3 replicas, acks=1", acks=1)
MIN_1 = Settings("3 replicas, min ISR 1")
MIN_2 = Settings("3 replicas, min ISR 2", min_insync_replicas=2)
MIN_2_FLUSHED = Settings("3 replicas, min ISR 2, flush 1", min_insync_replicas=2, flushes=True)
COLUMNS: Final = (ONE, ONE_FLUSHED, ACKS_1, MIN_1, MIN_2, MIN_2_FLUSHED)


@dataclass(slots=True)
class Scene:
    """A cluster under load, to which a failure happens."""

    cluster: SimulatedCluster
    rng: random.Random
    settings: Settings

    @property
    def leader(self) -> ClusterBroker:
        return self.cluster[_LEADER]

    @property
    def others(self) -> list[ClusterBroker]:
        return [broker for broker in self.cluster.brokers.values() if broker.broker_id != _LEADER]

    async def pause(self) -> None:
        """Let a time pass that may be nothing, or long enough for others to lead."""
        await asyncio.sleep(self.rng.choice([0.0, 0.05, 1.0, 2 * SESSION_SECONDS]))

    async def start_in_any_order(self) -> None:
        """Start every broker that does not run."""
        stopped = [broker for broker in self.cluster.brokers.values() if broker.process is None]
        for broker in self.rng.sample(stopped, len(stopped)):
            await broker.start()
            await asyncio.sleep(self.rng.choice([0.0, 0.5, SESSION_SECONDS]))


Failure = Callable[[Scene], Awaitable[None]]


async def kill_leader(scene: Scene) -> None:
    scene.leader.kill()
    await scene.pause()
    await scene.start_in_any_order()


async def kill_all(scene: Scene) -> None:
    for broker in scene.rng.sample(scene.cluster.alive, 3):
        broker.kill()
    await scene.pause()
    await scene.start_in_any_order()


async def leader_loses_power(scene: Scene) -> None:
    scene.leader.crash("power")
    await scene.pause()
    await scene.start_in_any_order()


async def all_lose_power(scene: Scene) -> None:
    for broker in scene.cluster.alive:
        broker.crash("power")
    await scene.pause()
    await scene.start_in_any_order()


async def disk_full(scene: Scene) -> None:
    async with _lagging_followers(scene):
        scene.leader.disk.fill(scene.rng.randint(0, 300))
    await scene.pause()
    scene.leader.disk.make_room()
    await _restart_if_it_stopped(scene)


async def disk_error(scene: Scene) -> None:
    operation = scene.rng.choice(["append", "sync"]) if scene.settings.flushes else "append"
    async with _lagging_followers(scene):
        scene.leader.disk.fail(operation, f"{T0}/{0:020d}.log", error=errno.EIO)
    await asyncio.sleep(1.0)
    await scene.pause()
    await _restart_if_it_stopped(scene)


async def disk_replaced(scene: Scene) -> None:
    _lose_disk(scene.leader)
    await scene.pause()
    await scene.start_in_any_order()


async def last_in_sync_loses_power(scene: Scene) -> None:
    await _leave_leader_alone(scene)
    scene.leader.crash("power")
    await scene.pause()
    await scene.start_in_any_order()


async def disk_of_last_in_sync_replaced(scene: Scene) -> None:
    await _leave_leader_alone(scene)
    _lose_disk(scene.leader)
    await scene.pause()
    await scene.start_in_any_order()


@asynccontextmanager
async def _lagging_followers(scene: Scene) -> AsyncIterator[None]:
    """Stop the other brokers for a moment around a failure, so that the leader has records that they lack."""
    processes = [broker.process for broker in scene.others if broker.process is not None]
    for process in processes:
        process.pause()
    await asyncio.sleep(scene.rng.uniform(0.05, 0.2))
    yield
    await asyncio.sleep(scene.rng.uniform(0.05, 0.2))
    for process in processes:
        process.resume()


async def _leave_leader_alone(scene: Scene) -> None:
    for broker in scene.others:
        broker.kill()
    for _ in range(100):
        await asyncio.sleep(0.5)
        if set(state_of(scene.cluster, "t").isr) == {_LEADER}:
            break
    await asyncio.sleep(1.0)


async def _restart_if_it_stopped(scene: Scene) -> None:
    if scene.leader.is_down:
        scene.leader.kill()
        await scene.start_in_any_order()


def _lose_disk(broker: ClusterBroker) -> None:
    broker.kill()
    broker.disk = StoppingDisk()
    broker.ends_old_session = False


NOTHING, LAST, EVERYTHING = Loss
TABLE: Final[dict[Failure, tuple[Loss | None, ...]]] = {
    kill_leader: (NOTHING, NOTHING, LAST, NOTHING, NOTHING, NOTHING),
    kill_all: (NOTHING, NOTHING, LAST, NOTHING, NOTHING, NOTHING),
    leader_loses_power: (LAST, NOTHING, LAST, NOTHING, NOTHING, NOTHING),
    all_lose_power: (LAST, NOTHING, LAST, LAST, LAST, NOTHING),
    disk_full: (NOTHING, NOTHING, LAST, NOTHING, NOTHING, NOTHING),
    disk_error: (NOTHING, NOTHING, LAST, NOTHING, NOTHING, NOTHING),
    disk_replaced: (EVERYTHING, EVERYTHING, LAST, NOTHING, NOTHING, NOTHING),
    # With min ISR 2 the others are eligible leader replicas (KIP-966); with min ISR 1 none is.
    last_in_sync_loses_power: (None, None, LAST, LAST, NOTHING, NOTHING),
    disk_of_last_in_sync_replaced: (None, None, EVERYTHING, EVERYTHING, NOTHING, NOTHING),
}
"""By failure, the loss in each of ``COLUMNS``; None where the failure cannot happen."""
ROWS: Final[dict[Failure, str]] = {
    kill_leader: "the leader's process is killed",
    kill_all: "all processes are killed",
    leader_loses_power: "the leader's machine loses power",
    all_lose_power: "all machines lose power",
    disk_full: "the leader's disk is full for a while",
    disk_error: "the leader's disk fails a write or a sync",
    disk_replaced: "the leader's disk is replaced by an empty one",
    last_in_sync_loses_power: "only the leader is in sync, and its machine loses power",
    disk_of_last_in_sync_replaced: "only the leader is in sync, and its disk is replaced",
}


class _Writer(AcknowledgedWriter):
    acks = -1

    def _request(self, value: bytes) -> ProduceRequest:
        return requests.produce(self.partition, requests.batch([value]), acks=self.acks)


async def _history(scene: Scene, failure: Failure) -> Loss:
    cluster = scene.cluster
    cluster.loop.network.delay_seconds = (0.000_05, 0.03)
    await create(cluster, "t", scene.settings.replicas)
    writer = _Writer(cluster, T0)
    writer.acks = scene.settings.acks
    await writer.write(_WRITTEN_OUT)
    await asyncio.sleep(1.0)
    _write_out(cluster)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(writer.run())
        await asyncio.sleep(scene.rng.uniform(0.3, 1.0))
        await _until_acknowledged(writer, len(writer.acknowledged) + 1)
        await failure(scene)
        await _until_acknowledged(writer, len(writer.acknowledged) + _AFTERWARDS)
        writer.stop()
    await asyncio.sleep(SESSION_SECONDS)
    log = cluster[state_of(cluster, "t").leader].content(T0)
    lost = [number for number, value in enumerate(writer.acknowledged) if value not in log]
    return Loss.NOTHING if not lost else Loss.EVERYTHING if lost[0] < _WRITTEN_OUT else Loss.LAST


async def _until_acknowledged(writer: AcknowledgedWriter, count: int) -> None:
    """Return right after the response, when followers may not have the record yet."""
    for _ in range(_MOST_POLLS):
        if len(writer.acknowledged) >= count:
            return
        await asyncio.sleep(_POLL_SECONDS)
    raise AssertionError(f"only {len(writer.acknowledged)} of {count} records were acknowledged")


def _write_out(cluster: SimulatedCluster) -> None:
    """Do what the operating system does after a while."""
    for broker in cluster.alive:
        partition = broker.running.replica_manager.partition(T0)
        if partition is not None and partition.log is not None:
            partition.log.flush()


def run(failure: Failure, settings: Settings, seed: int) -> Loss:
    """Play one history; return what it lost."""
    losses: list[Loss] = []

    async def story(cluster: SimulatedCluster) -> None:
        losses.append(await _history(Scene(cluster, random.Random(seed), settings), failure))

    try:
        simulate(story, seed=seed, settings=settings.of_broker)
    except BaseException as error:
        error.add_note(f"{failure.__name__}, {settings.name}, seed {seed}")
        raise
    return losses[0]


def _cells() -> Iterator[tuple[Failure, Settings, Loss]]:
    for failure, losses in TABLE.items():
        for settings, loss in zip(COLUMNS, losses, strict=True):
            if loss is not None:
                yield failure, settings, loss


@pytest.mark.parametrize(
    ("failure", "settings", "expected"),
    [pytest.param(*cell, id=f"{cell[0].__name__}, {cell[1].name}") for cell in _cells()],
)
def test_failure_under_settings_loses_what_the_table_says(failure: Failure, settings: Settings, expected: Loss) -> None:
    worst = Loss.NOTHING
    for seed in range(MORE_SEEDS):
        if seed >= SEEDS and worst >= expected:
            break
        worst = max(worst, run(failure, settings, seed))
        assert worst <= expected, f"seed {seed} of {failure.__name__} with {settings.name} loses {worst.cell}"
    assert worst == expected, "better than the table says"


def test_table_in_the_documentation_agrees() -> None:
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in PAGE.read_text().splitlines()]
    header = ["failure", *(settings.name for settings in COLUMNS)]
    start = rows.index(header)
    expected = [[ROWS[failure], *("" if loss is None else loss.cell for loss in TABLE[failure])] for failure in TABLE]
    assert rows[start + 2 : start + 2 + len(expected)] == expected
