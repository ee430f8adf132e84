"""Producer ids: unique over brokers, blocks, crashes and lost answers."""

import asyncio
import json
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oncelog.broker.metadata.metadata_journal import MetadataJournal
from oncelog.coordinator.metadata_store import paths
from oncelog.coordinator.metadata_store.local import LocalEnsemble, LocalStore
from oncelog.coordinator.metadata_store.store import Session, StoreUnavailable
from oncelog.coordinator.producer_ids import ProducerIds, ProducerIdsExhausted
from tests.simulation.sim_disk import SimDisk


def sim_disk() -> SimDisk:
    disk = SimDisk()
    disk.make_dirs("/data")
    disk.sync_dir("/")
    return disk


def open_on(disk: SimDisk) -> LocalEnsemble:
    return LocalEnsemble(MetadataJournal(disk, "/data"))


def session_of(store: LocalStore) -> Session:
    assert store.session is not None
    return store.session


async def one_turn() -> None:
    await asyncio.sleep(0)


@settings(max_examples=60, deadline=None)
@given(
    plan=st.lists(
        st.one_of(
            st.tuples(st.just("take"), st.integers(0, 4), st.integers(1, 7)),
            st.tuples(st.just("restart broker"), st.integers(0, 4), st.just(0)),
            st.tuples(st.sampled_from(["process", "power"]), st.integers(0, 999), st.just(0)),
        ),
        max_size=25,
    ),
    block_size=st.sampled_from([1, 2, 5]),
)
async def test_producer_id_is_never_given_out_twice(plan: list[tuple[str, int, int]], block_size: int) -> None:
    """B26: over all brokers, restarts and block boundaries; also after a power loss, since blocks are synced first."""
    disk = sim_disk()
    ensemble = open_on(disk)
    brokers = {number: ProducerIds(ensemble.connect(), number, block_size=block_size) for number in range(5)}
    given_out: list[int] = []
    for what, number, count in plan:
        if what == "take":
            given_out += [await brokers[number].next() for _ in range(count)]
        elif what == "restart broker":
            brokers[number] = ProducerIds(ensemble.connect(), number, block_size=block_size)
        else:
            disk.crash("power" if what == "power" else "process", random.Random(number))
            ensemble = open_on(disk)
            for each in brokers:
                brokers[each] = ProducerIds(ensemble.connect(), each, block_size=block_size)
    assert len(given_out) == len(set(given_out))
    assert all(producer_id >= 0 for producer_id in given_out)


async def test_brokers_that_reserve_at_once_get_different_blocks() -> None:
    """B26"""
    disk = sim_disk()
    disk.delay = one_turn
    ensemble = open_on(disk)
    brokers = [ProducerIds(ensemble.connect(), number, block_size=3) for number in range(8)]
    taken = await asyncio.gather(*(broker.next() for broker in brokers for _ in range(10)))
    assert len(set(taken)) == 80


async def test_znode_is_kafkas() -> None:
    store = open_on(sim_disk()).connect()
    assert await ProducerIds(store, 7).next() == 0
    znode = await session_of(store).get(paths.LATEST_PRODUCER_ID_BLOCK)
    assert znode is not None
    assert json.loads(znode.data) == {"version": 1, "broker": 7, "block_start": "0", "block_end": "999"}


async def test_empty_znode_is_a_beginning() -> None:
    store = open_on(sim_disk()).connect()
    await session_of(store).create(paths.LATEST_PRODUCER_ID_BLOCK)
    assert await ProducerIds(store, 1).next() == 0
    assert await ProducerIds(store, 2).next() == 1_000


async def test_next_id_does_not_wait_while_a_block_is_in_reserve() -> None:
    ids = ProducerIds(open_on(sim_disk()).connect(), 1, block_size=8)
    running = asyncio.get_running_loop().create_task(ids.run())
    assert ids.next_nowait() is None
    taken = []
    for _ in range(50):
        await one_turn()
        await one_turn()
        taken.append(ids.next_nowait())
    assert taken == list(range(50))
    running.cancel()


async def test_block_whose_reservation_got_no_response_is_not_used() -> None:
    disk = sim_disk()
    store = open_on(disk).connect()
    ids = ProducerIds(store, 1, block_size=2)
    assert [await ids.next(), await ids.next()] == [0, 1]
    disk.fail("sync", ".journal")
    with pytest.raises(StoreUnavailable):
        await ids.next()
    assert ids.next_nowait() is None
    disk.crash("process", random.Random(1))
    assert await ProducerIds(open_on(disk).connect(), 1, block_size=2).next() == 4


async def test_last_id_of_all_is_not_passed() -> None:
    store = open_on(sim_disk()).connect()
    last = {"version": 1, "broker": 1, "block_start": "0", "block_end": str(2**63 - 1_000)}
    await session_of(store).create(paths.LATEST_PRODUCER_ID_BLOCK, json.dumps(last).encode())
    with pytest.raises(ProducerIdsExhausted):
        await ProducerIds(store, 1).next()
