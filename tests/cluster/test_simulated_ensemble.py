"""The simulated ensemble and a real ZooKeeper respond alike to the same random operations of two sessions.

``ONCELOG_ENSEMBLE_SEQUENCES`` is the number of sequences. Each has a directory of its own: creates (ephemeral,
sequential), sets and deletes with versions, multis, reads with and without one-shot watches; then one session ends.
Compared are every result, which watches have fired, and what is left. Transaction ids: only as equal or different.

A real watch may also fire for what happened before it was left: kazoo reports events and responses in two threads, so a
read can overtake the event of an older watch of that path. A watch must never be missing.
"""

import asyncio
import os
import random
from typing import Any, Final

import pytest

from oncelog.broker.local_cluster.zookeeper_server import ZooKeeperServer
from oncelog.coordinator.metadata_store.store import (
    ANY_VERSION,
    Check,
    Create,
    Delete,
    MetadataStore,
    MultiFailed,
    MultiResult,
    Operation,
    SetData,
    Stat,
    Znode,
)
from tests.cluster.test_zookeeper_store import ZooKeeperUnderTest
from tests.simulation.sim_zookeeper import SimZooKeeper
from tests.simulation.virtual_loop import VirtualLoop
from tests.unit.coordinator.metadata_store.contract import Hint, session_of

SEQUENCES: Final = int(os.environ.get("ONCELOG_ENSEMBLE_SEQUENCES", "200"))
_PER_PAIR: Final = 20
_STEPS: Final = 12
_NAMES: Final = ("a", "b", "a/c", "b/c")


def _operation(rng: random.Random, root: str) -> Operation:
    path = f"{root}/{rng.choice(_NAMES)}"
    version = rng.choice([ANY_VERSION, 0, 0, 1, 2])
    match rng.randrange(6):
        case 0 | 1 | 2:
            return Create(path=path, data=b"x", ephemeral=rng.random() < 0.3, sequential=rng.random() < 0.3)
        case 3:
            return SetData(path=path, data=b"%d" % rng.randrange(9), version=version)
        case 4:
            return Delete(path=path, version=version)
    return Check(path=path, version=rng.randrange(3))


def _stat(stat: Stat | None) -> Any:
    return None if stat is None else (stat.version, stat.ephemeral_owner != 0, stat.czxid == stat.mzxid)


def _result(result: MultiResult) -> Any:
    if isinstance(result, MultiFailed):
        return result.index, result.error.name
    return [(done.path, _stat(done.stat)) for done in result]


def _znode(znode: Znode | None) -> Any:
    return None if znode is None else (znode.data, _stat(znode.stat))


async def _play(stores: tuple[MetadataStore, MetadataStore], seed: int) -> tuple[list[Any], dict[str, Hint]]:
    """Return the result of every step of one sequence, and the watches that were left."""
    rng, root, seen = random.Random(seed), f"/s{seed}", []
    hints: dict[str, Hint] = {}
    await session_of(stores[0]).multi([Create(path=root)])
    for step in range(_STEPS):
        session = session_of(rng.choice(stores))
        path = rng.choice([root, *(f"{root}/{name}" for name in _NAMES)])
        kind = rng.randrange(6)
        operations = [_operation(rng, root) for _ in range(rng.choice([1, 1, 1, 2, 3]))]
        if kind == 0:
            hints[f"data {step}"] = Hint()
            seen.append(_znode(await session.get(path, hints[f"data {step}"])))
        elif kind == 1:
            hint = Hint()
            names = await session.children(path, hint)
            if names is not None:
                hints[f"children {step}"] = hint
            seen.append(None if names is None else sorted(names))
        else:
            seen.append((operations, _result(await session.multi(operations))))
    return seen, hints


async def _left(store: MetadataStore, path: str) -> list[Any]:
    session = session_of(store)
    found = [(path, _znode(await session.get(path)))]
    for name in sorted(await session.children(path) or ()):
        found += await _left(store, f"{path}/{name}")
    return found


async def _pass_watches(store: MetadataStore, path: str) -> None:
    """Wait for a watch that was left and fired last: all before it have fired then."""
    session, last = session_of(store), Hint()
    await session.sync()
    await session.get(path, last)
    await session.multi([SetData(path=path, data=b"end")])
    await last.wait()


async def _play_pair(stores: tuple[MetadataStore, MetadataStore], seeds: range) -> list[Any]:
    """Return all that a pair of sessions saw, and what is left when the second has ended."""
    played = [await _play(stores, seed) for seed in seeds]
    for store in stores:
        await _pass_watches(store, f"/s{seeds.start}")
    fired = [{name: hint.count for name, hint in hints.items()} for _, hints in played]
    await stores[1].close()
    await session_of(stores[0]).sync()
    left = [await _left(stores[0], f"/s{seed}") for seed in seeds]
    return [(seed, seen, fire, rest) for seed, (seen, _), fire, rest in zip(seeds, played, fired, left, strict=True)]


def _simulated(seeds: range) -> list[Any]:
    loop = VirtualLoop(random.Random(seeds.start))

    async def play() -> list[Any]:
        ensemble = SimZooKeeper(random.Random(seeds.start))
        first, second = ensemble.connect(session_timeout=60.0), ensemble.connect(session_timeout=60.0)
        result = await _play_pair((first, second), seeds)
        await first.close()
        return result

    try:
        return loop.run_until_complete(play())
    finally:
        loop.close()


async def _real(server: ZooKeeperServer, seeds: range) -> list[Any]:
    under_test = ZooKeeperUnderTest(server, session_timeout_ms=8_000)
    first, second = await under_test.connect(), await under_test.connect()
    try:
        return await _play_pair((first, second), seeds)
    finally:
        await under_test.close()


@pytest.mark.real_loop
def test_simulated_ensemble_responds_as_zookeeper_does(zookeeper: ZooKeeperServer) -> None:
    spurious = 0
    for start in range(0, SEQUENCES, _PER_PAIR):
        seeds = range(start, min(start + _PER_PAIR, SEQUENCES))
        for simulated, real in zip(_simulated(seeds), asyncio.run(_real(zookeeper, seeds)), strict=True):
            (seed, seen, fired, left), (_, real_seen, real_fired, real_left) = simulated, real
            assert (seen, left) == (real_seen, real_left), f"sequence {seed}"
            assert fired.keys() == real_fired.keys(), f"sequence {seed}"
            missing = [name for name, count in fired.items() if real_fired[name] < count]
            assert not missing, f"sequence {seed}: watches that did not fire: {missing}"
            spurious += sum(real_fired[name] > count for name, count in fired.items())
    assert spurious <= SEQUENCES // 50, f"{spurious} watches fired for nothing"
