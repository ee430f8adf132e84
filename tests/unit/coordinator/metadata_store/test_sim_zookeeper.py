"""The simulated ensemble keeps the contract too, and loses what ZooKeeper's clients lose."""

import asyncio
import random
from collections.abc import Coroutine
from typing import Any

import pytest

from oncelog.coordinator.metadata_store.store import ConnectionLost, Done, MetadataStore, SessionEvent
from tests.simulation.sim_zookeeper import Direction, SimStore, SimZooKeeper
from tests.simulation.virtual_loop import VirtualLoop
from tests.unit.coordinator.metadata_store.contract import Hint, MetadataStoreContract, data_of, session_of

SESSION_TIMEOUT = 6.0


class SimZooKeeperUnderTest:
    """The suite's view of a ``SimZooKeeper``."""

    def __init__(self) -> None:
        self.ensemble = SimZooKeeper(random.Random(1))

    async def connect(self) -> MetadataStore:
        return self.ensemble.connect(session_timeout=SESSION_TIMEOUT)

    async def expire(self, store: MetadataStore) -> None:
        started = Hint()
        store.add_session_listener(lambda event, _: started() if event is SessionEvent.STARTED else None)
        session = session_of(store)
        self.ensemble.expire(session.session_id)
        with pytest.raises(Exception, match="has expired"):
            await session.get("/")  # The next request of the client fails.
        await started.wait()


class TestSimZooKeeper(MetadataStoreContract):
    @pytest.fixture
    async def ensemble(self) -> SimZooKeeperUnderTest:
        return SimZooKeeperUnderTest()


def in_virtual_time(scenario: Coroutine[Any, Any, None]) -> None:
    loop = VirtualLoop(random.Random(7))
    try:
        loop.run_until_complete(scenario)
    finally:
        loop.close()


def connect(ensemble: SimZooKeeper) -> SimStore:
    return ensemble.connect(session_timeout=SESSION_TIMEOUT)


def test_lost_response_leaves_it_open_whether_the_write_happened() -> None:
    async def scenario() -> None:
        ensemble = SimZooKeeper(random.Random(1))
        store, other = connect(ensemble), session_of(connect(ensemble))
        session = session_of(store)
        for cut, happened in ((Direction.TO_CLIENT, True), (Direction.TO_ENSEMBLE, False)):
            store.cut = cut
            with pytest.raises(ConnectionLost):
                await session.create(f"/{cut.name}", b"x")
            store.cut = Direction.NONE
            assert (await other.get(f"/{cut.name}") is not None) is happened
            assert isinstance(await session.create(f"/{cut.name}-again"), Done)
        assert store.session is session

    in_virtual_time(scenario())


def test_session_of_cut_off_client_is_not_live_before_it_expires() -> None:
    async def scenario() -> None:
        ensemble = SimZooKeeper(random.Random(1))
        store, other = connect(ensemble), session_of(connect(ensemble))
        session = session_of(store)
        await session.create("/e", ephemeral=True)
        gone = Hint()
        await other.get("/e", gone)
        store.cut = Direction.BOTH
        loop = asyncio.get_running_loop()
        cut_at = loop.time()
        while session.is_live():
            assert ensemble.tree.get("/e") is not None
            await asyncio.sleep(0.1)
        assert loop.time() - cut_at <= SESSION_TIMEOUT
        await gone.wait()
        assert await other.get("/e") is None
        assert store.session is session, "it cannot know yet"
        started = Hint()
        store.add_session_listener(lambda event, _: started() if event is SessionEvent.STARTED else None)
        store.cut = Direction.NONE
        await started.wait()
        assert session_of(store).generation == session.generation + 1

    in_virtual_time(scenario())


def test_broken_connection_fires_every_watch_and_keeps_the_session() -> None:
    async def scenario() -> None:
        ensemble = SimZooKeeper(random.Random(1))
        store = connect(ensemble)
        session = session_of(store)
        await session.create("/w", b"1")
        hint, resumed = Hint(), Hint()
        await session.get("/w", hint)
        store.add_session_listener(lambda event, _: resumed() if event is SessionEvent.RESUMED else None)
        ensemble.is_up = False
        await hint.wait()
        ensemble.is_up = True
        await resumed.wait()
        assert hint.count == 1
        assert session.is_live()
        assert await data_of(session, "/w") == b"1"

    in_virtual_time(scenario())


def test_client_of_a_lagging_member_sees_changes_when_it_catches_up() -> None:
    async def scenario() -> None:
        ensemble = SimZooKeeper(random.Random(1))
        store, other = connect(ensemble), session_of(connect(ensemble))
        session, hint, children = session_of(store), Hint(), Hint()
        await other.create("/a", b"old")
        assert await data_of(session, "/a") == b"old"
        ensemble.fall_behind(store)
        assert await session.get("/a", hint) is not None
        assert await session.children("/a", children) == []
        await other.set("/a", b"new")
        await asyncio.sleep(1.0)
        assert await data_of(session, "/a") == b"old"
        assert (hint.count, children.count) == (0, 0)
        await session.sync()
        assert await data_of(session, "/a") == b"new"
        assert (hint.count, children.count) == (1, 0)
        assert await session.children("/", children) == ["a"]
        ensemble.fall_behind(store)
        await other.create("/b")
        await other.delete("/b")
        ensemble.catch_up(store)
        assert await session.children("/") == ["a"]
        assert children.count == 1
        ensemble.fall_behind(store)
        await other.set("/a", b"newest")
        await session.create("/b")
        assert await data_of(session, "/a") == b"newest"

    in_virtual_time(scenario())
