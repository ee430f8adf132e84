"""The ZooKeeper store keeps the contract, on a real server; and what is its own: time-outs, restarts, take-overs."""

import asyncio
import itertools
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import cast

import pytest

from oncelog.broker.local_cluster.zookeeper_server import ZooKeeperServer
from oncelog.coordinator.metadata_store.store import (
    Create,
    Done,
    MetadataStore,
    Session,
    SessionEvent,
    SetData,
    StoreUnavailable,
)
from oncelog.coordinator.metadata_store.zookeeper import ZooKeeperStore, connect_zookeeper, end_session
from oncelog.coordinator.metadata_store.zookeeper_address import SessionCredentials
from tests.processes import free_port
from tests.unit.coordinator.metadata_store.contract import (
    PATIENCE_SECONDS,
    Hint,
    MetadataStoreContract,
    data_of,
    session_of,
)

_chroots = itertools.count()
_SECOND_TRY_SECONDS = 2.0


class ZooKeeperUnderTest:
    """A tree of its own on a server that others use too: a fresh chroot."""

    def __init__(self, server: ZooKeeperServer, session_timeout_ms: int = 4_000) -> None:
        self.server = server
        self.connect_string = f"{server.address}/test/{next(_chroots)}"
        self.session_timeout_ms = session_timeout_ms
        self._stores: list[ZooKeeperStore] = []

    async def connect(self) -> ZooKeeperStore:
        store = await connect_zookeeper(
            self.connect_string,
            session_timeout_ms=self.session_timeout_ms,
            connection_timeout_ms=PATIENCE_SECONDS * 1_000,
        )
        self._stores.append(store)
        return store

    async def expire(self, store: MetadataStore) -> None:
        """Close its session from elsewhere, and wait for the next one."""
        assert isinstance(store, ZooKeeperStore)
        credentials = store.credentials
        assert credentials is not None
        started = hint_of(store, SessionEvent.STARTED)
        while True:
            await self.end(credentials)
            try:
                async with asyncio.timeout(_SECOND_TRY_SECONDS):
                    return await started.wait()
            except TimeoutError:
                continue  # Its owner took the session back before it was closed.

    async def end(self, credentials: SessionCredentials) -> None:
        await end_session(
            self.connect_string,
            credentials,
            session_timeout_ms=self.session_timeout_ms,
            connection_timeout_ms=PATIENCE_SECONDS * 1_000,
        )

    async def close(self) -> None:
        for store in self._stores:
            await store.close()


def hint_of(store: MetadataStore, wanted: SessionEvent) -> Hint:
    """Something to await: the next event of this kind."""
    hint = Hint()

    def listen(event: SessionEvent, session: Session) -> None:
        if event is wanted:
            hint()

    store.add_session_listener(listen)
    return hint


@pytest.fixture
async def ensemble(zookeeper: ZooKeeperServer) -> AsyncIterator[ZooKeeperUnderTest]:
    under_test = ZooKeeperUnderTest(zookeeper)
    yield under_test
    await under_test.close()


class TestZooKeeper(MetadataStoreContract):
    """The contract, on a real server."""


async def test_ten_thousand_znodes_are_written_and_read_in_bulk(ensemble: ZooKeeperUnderTest) -> None:
    session = session_of(await ensemble.connect())
    await session.create("/n")
    paths = [f"/n/{number}" for number in range(10_000)]
    batches = [[Create(path=path, data=path.encode()) for path in paths[at : at + 200]] for at in range(0, 10_000, 200)]
    results = await session.multi_many(batches)
    stats = [done.stat for result in results if isinstance(result, list) for done in result]
    assert len(stats) == len(paths)
    znodes = await session.get_many(paths)
    assert [znode and znode.data for znode in znodes] == [path.encode() for path in paths]
    assert [znode and znode.stat for znode in znodes] == stats


async def test_ending_a_session_that_is_over_does_no_harm(ensemble: ZooKeeperUnderTest) -> None:
    leaving = await ensemble.connect()
    credentials = leaving.credentials
    assert credentials is not None
    await leaving.close()
    await ensemble.end(credentials)


async def test_server_restart_keeps_sessions_and_fires_watches(
    zookeeper: ZooKeeperServer, ensemble: ZooKeeperUnderTest
) -> None:
    store = await ensemble.connect()
    suspended = hint_of(store, SessionEvent.SUSPENDED)
    session = session_of(store)
    await session.create("/e", b"mine", ephemeral=True)
    hint = Hint()
    await session.get("/e", hint)
    await asyncio.to_thread(zookeeper.kill)
    await hint.wait()
    await suspended.wait()
    await asyncio.to_thread(zookeeper.start)
    assert await data_of(session, "/e") == b"mine"
    assert session.is_live()
    assert store.session is session


async def test_session_uses_no_longer_timeout_than_the_server_grants(zookeeper: ZooKeeperServer) -> None:
    """Twenty ticks of 200 ms: without a contact it is not live any more after two thirds of that."""
    ensemble = ZooKeeperUnderTest(zookeeper, session_timeout_ms=60_000)
    store = await ensemble.connect()
    session = session_of(store)
    started = asyncio.get_running_loop().time()
    os.kill(zookeeper.pid, signal.SIGSTOP)
    try:
        last_live = started
        for _ in range(600):
            before = asyncio.get_running_loop().time()
            if not session.is_live():
                break
            last_live = before
            await asyncio.sleep(0.1)  # Time is what is tested.
        ended = asyncio.get_running_loop().time()
    finally:
        os.kill(zookeeper.pid, signal.SIGCONT)
    assert last_live - started < 3.2  # A busy machine looks seldom, and may see the end late.
    assert ended - started > 1.0
    await ensemble.close()


async def test_store_without_a_server_is_unavailable() -> None:
    address = f"127.0.0.1:{free_port()}"
    with pytest.raises(StoreUnavailable, match=address):
        await connect_zookeeper(address, session_timeout_ms=1_000, connection_timeout_ms=300)


async def test_chroot_is_not_part_of_paths(ensemble: ZooKeeperUnderTest) -> None:
    session = session_of(await ensemble.connect())
    done = await session.create("/q", b"", sequential=True)
    assert isinstance(done, Done)
    assert done.path.startswith("/q0")
    again = await session.multi([SetData(path=done.path, data=b"x", version=0)])
    assert isinstance(again, list)
    assert [entry.path for entry in again] == [done.path]
    assert await session.children("/") == [done.path[1:]]


async def test_connect_request_without_response_is_retried_while_the_session_lasts() -> None:
    """A server that starts takes connections before it serves, and never responds to some of those."""
    greeted = asyncio.Semaphore(0)

    class Silent(asyncio.Protocol):
        def data_received(self, data: bytes) -> None:
            greeted.release()

    server = await asyncio.get_running_loop().create_server(Silent, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    with pytest.raises(StoreUnavailable):
        await connect_zookeeper(f"127.0.0.1:{port}", session_timeout_ms=4_500, connection_timeout_ms=2_500)
    server.close()
    await greeted.acquire()
    assert not greeted.locked(), "there was one greeting"


class Relay(asyncio.Protocol):
    """One end of a connection that is carried to the server and back."""

    def __init__(self, server: ZooKeeperServer, ends: "list[asyncio.Transport]", other: "Relay | None" = None) -> None:
        self._server = server
        self._ends = ends
        self._other = other
        self._early: list[bytes] = []
        self._transport: asyncio.Transport | None = None
        self._task: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._ends.append(self._transport)
        if self._other is None:
            self._task = asyncio.get_running_loop().create_task(self._connect())

    def connection_lost(self, error: Exception | None) -> None:
        if self._transport in self._ends:
            self._ends.remove(self._transport)
        if self._task is not None:
            self._task.cancel()
        if self._other is not None and self._other._transport is not None:
            self._other._transport.abort()

    async def _connect(self) -> None:
        host, _, port = self._server.address.partition(":")
        further = Relay(self._server, self._ends, self)
        await asyncio.get_running_loop().create_connection(lambda: further, host, int(port))
        self._other = further
        for data in self._early:
            self.data_received(data)

    def data_received(self, data: bytes) -> None:
        if self._other is None or self._other._transport is None:
            self._early.append(data)
        else:
            self._other._transport.write(data)


@asynccontextmanager
async def relayed(server: ZooKeeperServer) -> AsyncIterator[tuple[asyncio.Server, list[asyncio.Transport]]]:
    """Serve a second address of ``server``; returned with it are the open ends of its connections, to abort."""
    ends: list[asyncio.Transport] = []
    listener = await asyncio.get_running_loop().create_server(lambda: Relay(server, ends), "127.0.0.1", 0)
    try:
        yield listener, ends
    finally:
        listener.close()
        async with asyncio.timeout(PATIENCE_SECONDS):
            while ends:
                for end in ends:
                    end.abort()
                await asyncio.sleep(0)


async def connect_through(listener: asyncio.Server, *, session_timeout_ms: int, chroot: str = "") -> ZooKeeperStore:
    host, port = listener.sockets[0].getsockname()
    return await connect_zookeeper(
        f"{host}:{port}{chroot}",
        session_timeout_ms=session_timeout_ms,
        connection_timeout_ms=PATIENCE_SECONDS * 1_000,
    )


async def test_connection_that_breaks_for_a_moment_is_suspended_and_resumed_each_time(
    zookeeper: ZooKeeperServer,
) -> None:
    async with relayed(zookeeper) as (listener, ends):
        store = await connect_through(listener, session_timeout_ms=20_000)
        events: list[SessionEvent] = []
        store.add_session_listener(lambda event, _: events.append(event))
        try:
            for outages in (1, 2, 3):
                resumed = hint_of(store, SessionEvent.RESUMED)
                while ends:
                    ends.pop().abort()
                await resumed.wait()
                assert session_of(store).is_live()
                assert events == [SessionEvent.SUSPENDED, SessionEvent.RESUMED] * outages
        finally:
            await store.close()


async def test_abandoned_session_can_be_ended_by_its_credentials(
    zookeeper: ZooKeeperServer, ensemble: ZooKeeperUnderTest
) -> None:
    """Its owner is cut off: one that can reach the server takes the session back."""
    staying = session_of(await ensemble.connect())
    async with relayed(zookeeper) as (listener, ends):
        chroot = ensemble.connect_string.removeprefix(zookeeper.address)
        leaving = await connect_through(listener, session_timeout_ms=ensemble.session_timeout_ms, chroot=chroot)
        await session_of(leaving).create("/e", ephemeral=True)
        assert leaving.credentials is not None
        gone = Hint()
        assert await staying.get("/e", gone) is not None
        suspended = hint_of(leaving, SessionEvent.SUSPENDED)
        listener.close()
        while ends:
            ends.pop().abort()
        await suspended.wait()
        await ensemble.end(leaving.credentials)
        assert await staying.get("/e") is None
        await gone.wait()
        await leaving.close()
