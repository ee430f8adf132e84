"""Seeded histories in which one broker of three is away at a time: the other two accept writes within seconds.

``run(seed)`` repeats one exactly. What befalls a broker begins when the one before is back: it is registered, does not
call its disk full, and all can reach it. That is all that the cluster needs, however often a broker or its links have
failed before.
"""

import asyncio
import os
import random
from collections.abc import Sequence
from enum import Enum, auto
from typing import Final, NamedTuple

import pytest

from oncelog.coordinator.metadata_store import paths
from oncelog.protocol.topic_partition import TopicPartition
from tests.simulation.acknowledged_writer import AcknowledgedWriter
from tests.simulation.cluster_stories import create, session_of, simulate
from tests.simulation.journal import current_journal
from tests.simulation.recorded_history import SimulatedHistory
from tests.simulation.sim_zookeeper import Direction
from tests.simulation.simulated_cluster import ClusterBroker, SimulatedCluster

SEEDS: Final = int(os.environ.get("ONCELOG_CLUSTER_SEEDS", "6"))
BROKERS: Final = (1, 2, 3)
DEEDS: Final = 15
HOLDS: Final = (0.3, 4.0, 4.0, 9.0)
RESTS: Final = (1.0, 3.0, 10.0)
"""Seconds for which a broker is away, and then all are there."""
DIFFERENT_DEEDS: Final = 2
SAME_AGAIN: Final = 0.6
PAUSE: Final = 0.3
RESPONSE_WITHIN: Final = 0.5
LONGEST_STALL: Final = 4.5
"""Seconds between two acknowledged writes: 3.5 until a silent broker is replaced, and what the client takes."""
_LOOK_SECONDS: Final = 0.05
_MOST_LOOKS: Final = 1_400
SETTINGS: Final = {"min.insync.replicas": "2", "controlled.shutdown.retry.backoff.ms": "200"}


class Deed(Enum):
    """What a broker may do or suffer."""

    KILL = auto()
    STOP = auto()
    PAUSE = auto()
    ISOLATE = auto()
    """From all others and from the ensemble."""
    CUT_FROM_BROKERS = auto()
    CUT_FROM_ONE = auto()
    CUT_FROM_ENSEMBLE = auto()
    EXPIRE = auto()
    FULL_DISK = auto()


class Away(NamedTuple):
    """One broker is away for a while, or hampered."""

    deed: Deed
    broker_id: int
    hold: float
    rest: float
    """Seconds for which all are there, from the moment that this one is back."""


def plan(seed: int) -> list[Away]:
    """Return what befalls which broker: few kinds of deeds, and most of them to the same one."""
    rng, planned = random.Random(f"away {seed}"), list[Away]()
    deeds, frail = rng.sample(list(Deed), DIFFERENT_DEEDS), rng.choice(BROKERS)
    for _ in range(DEEDS):
        broker_id = frail if rng.random() < SAME_AGAIN else rng.choice(BROKERS)
        planned.append(Away(rng.choice(deeds), broker_id, rng.choice(HOLDS), rng.choice(RESTS)))
    return planned


def run(seed: int, faults: Sequence[Away] | None = None) -> None:
    """Of writers with acks=all; ``faults``: instead of all that are planned."""
    planned = plan(seed) if faults is None else faults

    async def story(cluster: SimulatedCluster) -> None:
        await create(cluster, "t", [1, 2, 3], [2, 3, 1], [3, 1, 2])
        history = SimulatedHistory(cluster.loop)
        writers = [
            AcknowledgedWriter(
                cluster, TopicPartition("t", index), pause=PAUSE, response_within=RESPONSE_WITHIN, history=history
            )
            for index in range(3)
        ]
        writing = [asyncio.ensure_future(writer.run()) for writer in writers]  # noqa: TID251
        for away in planned:
            current_journal().note("faults", f"away: {away.deed.name.lower()}", str(away))
            began = cluster.loop.time()
            await _strike(cluster, away)
            await _until_back(cluster, away)
            await asyncio.sleep(away.rest)
            for writer in writers:
                stall = writer.longest_stall_since(began)
                assert stall <= LONGEST_STALL, f"{writer.partition} accepted nothing for {stall:.1f} s: {away}"
        for writer in writers:
            writer.stop()
        await asyncio.gather(*writing)

    simulate(story, seed=seed, settings=SETTINGS)


async def _strike(cluster: SimulatedCluster, away: Away) -> None:
    broker, others = cluster[away.broker_id], [each for each in BROKERS if each != away.broker_id]
    assert broker.process is not None
    match away.deed:
        case Deed.KILL:
            broker.kill()
        case Deed.STOP:
            await broker.stop()
        case Deed.PAUSE:
            broker.process.pause()
        case Deed.EXPIRE:
            cluster.ensemble.expire(session_of(broker).session_id)
        case Deed.FULL_DISK:
            broker.disk.fill()
        case Deed.CUT_FROM_ENSEMBLE:
            broker.cut_from_ensemble()
        case Deed.CUT_FROM_ONE:
            cluster.isolate(away.broker_id, others[0])
        case Deed.CUT_FROM_BROKERS:
            cluster.isolate(away.broker_id)
        case Deed.ISOLATE:
            cluster.isolate(away.broker_id)
            broker.cut_from_ensemble()
    await asyncio.sleep(away.hold)
    await _bring_back(cluster, broker)


async def _bring_back(cluster: SimulatedCluster, broker: ClusterBroker) -> None:
    cluster.loop.network.heal()
    broker.disk.make_room()
    if broker.broker is None:
        assert await broker.try_to_start(), f"broker {broker.broker_id} does not start"
    assert broker.process is not None
    broker.process.resume()
    broker.cut_from_ensemble(Direction.NONE)


async def _until_back(cluster: SimulatedCluster, away: Away) -> None:
    """Wait until a broker is registered by its present session, and has noticed that its disk has room."""
    broker = cluster[away.broker_id]
    for _ in range(_MOST_LOOKS):
        if _is_registered(cluster, broker) and not broker.running.log_manager.space.is_full:
            return
        await asyncio.sleep(_LOOK_SECONDS)
    raise AssertionError(f"broker {away.broker_id} is not registered again: {away}")


def _is_registered(cluster: SimulatedCluster, broker: ClusterBroker) -> bool:
    znode = cluster.ensemble.tree.get(paths.broker(broker.broker_id))
    session = None if broker.store is None else broker.store.session
    return znode is not None and session is not None and znode.stat.ephemeral_owner == session.session_id


@pytest.mark.parametrize("seed", range(SEEDS // 2))
def test_writes_go_on_within_seconds_while_one_broker_is_away(seed: int) -> None:
    """B115"""
    run(seed)
