"""The contract of ``MetadataStore``, as a suite that every implementation passes.

A test module of an implementation subclasses ``MetadataStoreContract`` and provides the fixture ``ensemble``. Nothing
here depends on time: what must happen is awaited (with a bound), what must not happen is never waited for.
"""

import asyncio
from typing import Protocol

import pytest

from oncelog.coordinator.metadata_store.store import (
    NO_SESSION,
    Check,
    Create,
    Delete,
    Done,
    MetadataStore,
    MultiFailed,
    Session,
    SessionEvent,
    SessionExpired,
    SetData,
    StoreError,
    Znode,
)

PATIENCE_SECONDS = 300
"""Of one wait; it ends a test that hangs."""


class Ensemble(Protocol):
    """What the suite asks of the place that the stores are clients of."""

    async def connect(self) -> MetadataStore: ...

    async def expire(self, store: MetadataStore) -> None:
        """End the store's session as the ensemble would; returns when the client has a new one."""


class Hint:
    """A watch that can be awaited."""

    def __init__(self) -> None:
        self._fired = asyncio.Event()
        self.count = 0

    def __call__(self) -> None:
        self.count += 1
        self._fired.set()

    async def wait(self) -> None:
        async with asyncio.timeout(PATIENCE_SECONDS):
            await self._fired.wait()


def session_of(store: MetadataStore) -> Session:
    session = store.session
    assert session is not None
    return session


async def data_of(session: Session, path: str) -> bytes | None:
    znode = await session.get(path)
    return None if znode is None else znode.data


async def version_of(session: Session, path: str) -> int:
    znode = await session.get(path)
    assert znode is not None
    return znode.stat.version


class MetadataStoreContract:
    @pytest.fixture
    async def store(self, ensemble: Ensemble) -> MetadataStore:
        return await ensemble.connect()

    @pytest.fixture
    async def session(self, store: MetadataStore) -> Session:
        return session_of(store)

    async def test_created_znode_is_read_back_with_version_zero(self, session: Session) -> None:
        done = await session.create("/a", b"one")
        assert isinstance(done, Done)
        znode = await session.get("/a")
        assert znode is not None
        assert done.stat == znode.stat
        assert (done.path, znode.data, znode.stat.version, znode.stat.ephemeral_owner) == ("/a", b"one", 0, NO_SESSION)
        assert znode.stat.czxid == znode.stat.mzxid > 0

    async def test_missing_znode_is_read_as_none(self, session: Session) -> None:
        assert await session.get("/nothing") is None
        assert await session.children("/nothing") is None

    async def test_expected_refusals_are_values(self, session: Session) -> None:
        await session.create("/a")
        await session.create("/a/b")
        await session.create("/e", ephemeral=True)
        assert await session.create("/a") is StoreError.NODE_EXISTS
        assert await session.create("/no/parent") is StoreError.NO_NODE
        assert await session.create("/e/child") is StoreError.NO_CHILDREN_FOR_EPHEMERALS
        assert await session.set("/nothing", b"") is StoreError.NO_NODE
        assert await session.delete("/nothing") is StoreError.NO_NODE
        assert await session.delete("/a") is StoreError.NOT_EMPTY
        assert await session.set("/a", b"", version=7) is StoreError.BAD_VERSION
        assert await session.delete("/a/b", version=7) is StoreError.BAD_VERSION

    async def test_set_counts_versions_and_keeps_the_creation(self, session: Session) -> None:
        created = await session.create("/a", b"0")
        for expected in range(3):
            done = await session.set("/a", b"%d" % (expected + 1), version=expected)
            assert isinstance(done, Done)
            assert done.stat is not None
            assert done.stat.version == expected + 1
        znode = await session.get("/a")
        assert isinstance(created, Done)
        assert created.stat is not None
        assert znode is not None
        assert znode.data == b"3"
        assert znode.stat.czxid == created.stat.czxid < znode.stat.mzxid

    async def test_conditional_write_wins_once(self, ensemble: Ensemble) -> None:
        first, second = session_of(await ensemble.connect()), session_of(await ensemble.connect())
        await first.create("/a", b"")
        results = await asyncio.gather(first.set("/a", b"1", version=0), second.set("/a", b"2", version=0))
        assert sum(isinstance(result, Done) for result in results) == 1
        assert StoreError.BAD_VERSION in results
        assert await data_of(first, "/a") == (b"1" if isinstance(results[0], Done) else b"2")

    async def test_children_are_names_in_order(self, session: Session) -> None:
        for path in ("/p", "/p/b", "/p/a", "/p/c", "/p/a/deep"):
            await session.create(path)
        assert await session.children("/p") == ["a", "b", "c"]
        await session.delete("/p/b")
        assert await session.children("/p") == ["a", "c"]
        assert await session.children("/p/c") == []

    async def test_sequential_names_grow_and_never_repeat(self, session: Session) -> None:
        await session.create("/q")
        paths = []
        for round_number in range(4):
            done = await session.create("/q/n_", b"%d" % round_number, sequential=True)
            assert isinstance(done, Done)
            paths.append(done.path)
            if round_number % 2:
                await session.delete(done.path)
        assert all(path.startswith("/q/n_") and len(path) == len("/q/n_") + 10 for path in paths)
        assert paths == sorted(set(paths))

    async def test_bulk_reads_return_in_the_order_of_the_paths(self, session: Session) -> None:
        await session.create("/a", b"1")
        await session.create("/b", b"2")
        znodes = await session.get_many(["/b", "/nothing", "/a", "/b"])
        assert [znode and znode.data for znode in znodes] == [b"2", None, b"1", b"2"]
        assert await session.get_many([]) == []

    async def test_sync_makes_reads_see_writes_of_another_session(self, ensemble: Ensemble) -> None:
        one, other = session_of(await ensemble.connect()), session_of(await ensemble.connect())
        for number in range(20):
            await one.create(f"/n{number}")
            await other.sync()
            assert await other.get_many([f"/n{number}"]) != [None]

    async def test_multi_does_everything(self, session: Session) -> None:
        await session.create("/epoch", b"1")
        await session.create("/old")
        result = await session.multi(
            [
                Check(path="/epoch", version=0),
                Create(path="/t", data=b"t"),
                Create(path="/t/child"),
                Create(path="/t/n_", sequential=True),
                SetData(path="/t", data=b"t2", version=0),
                Delete(path="/old"),
            ]
        )
        assert isinstance(result, list)
        assert [done.path for done in result[:3]] == ["/epoch", "/t", "/t/child"]
        assert await data_of(session, "/t") == b"t2"
        assert await session.children("/t") == ["child", result[3].path.removeprefix("/t/")]
        assert await session.get("/old") is None

    async def test_multi_that_fails_did_nothing(self, session: Session) -> None:
        await session.create("/epoch", b"1")
        await session.set("/epoch", b"2")
        await session.create("/keep", b"kept")
        result = await session.multi(
            [
                Create(path="/t"),
                Create(path="/t/n_", sequential=True),
                SetData(path="/keep", data=b"lost"),
                Delete(path="/keep"),
                Check(path="/epoch", version=0),
                Create(path="/never"),
            ]
        )
        assert result == MultiFailed(index=4, error=StoreError.BAD_VERSION)
        assert await session.get("/t") is None
        assert await data_of(session, "/keep") == b"kept"
        assert await version_of(session, "/keep") == 0

    async def test_failed_multi_does_not_prevent_the_next(self, session: Session) -> None:
        results = await session.multi_many(
            [
                [Create(path="/a"), Create(path="/a/b")],
                [Create(path="/a"), Create(path="/c")],
                [Create(path="/d"), Check(path="/a", version=0)],
            ]
        )
        assert isinstance(results[0], list)
        assert results[1] == MultiFailed(index=0, error=StoreError.NODE_EXISTS)
        assert isinstance(results[2], list)
        assert await session.children("/a") == ["b"]
        assert await session.get("/c") is None
        assert await session.get("/d") is not None

    async def test_multi_gives_all_znodes_one_transaction_id(self, session: Session) -> None:
        result = await session.multi([Create(path="/a"), Create(path="/b")])
        assert isinstance(result, list)
        first, second = (done.stat for done in result)
        assert first is not None
        assert second is not None
        assert first.czxid == second.czxid

    async def test_ephemerals_end_with_an_orderly_close(self, ensemble: Ensemble) -> None:
        leaving, staying = await ensemble.connect(), session_of(await ensemble.connect())
        session = session_of(leaving)
        await session.create("/e", b"here", ephemeral=True)
        znode = await staying.get("/e")
        assert isinstance(znode, Znode)
        assert znode.stat.ephemeral_owner == session.session_id
        await leaving.close()
        assert await staying.get("/e") is None
        assert leaving.session is None

    async def test_ephemerals_end_with_an_expired_session(self, ensemble: Ensemble) -> None:
        expiring, staying = await ensemble.connect(), session_of(await ensemble.connect())
        await session_of(expiring).create("/e", ephemeral=True)
        await session_of(expiring).create("/stays")
        await ensemble.expire(expiring)
        assert await staying.get("/e") is None
        assert await staying.get("/stays") is not None

    async def test_expired_session_is_refused_for_ever(self, ensemble: Ensemble) -> None:
        """B65: what keeps an old session can do nothing with it, although the client has a new one."""
        store = await ensemble.connect()
        old = session_of(store)
        await ensemble.expire(store)
        new = session_of(store)
        assert new.generation > old.generation
        assert new.session_id != old.session_id
        assert (old.is_live(), new.is_live()) == (False, True)
        for attempt in (
            old.get("/"),
            old.get_many(["/"]),
            old.children("/"),
            old.create("/a"),
            old.set("/", b""),
            old.delete("/a"),
            old.multi([Create(path="/a")]),
            old.multi_many([[Create(path="/a")]]),
        ):
            with pytest.raises(SessionExpired):
                await attempt
        assert await new.get("/a") is None
        assert isinstance(await new.create("/a"), Done)

    async def test_listeners_hear_of_the_end_before_the_next_start(self, ensemble: Ensemble) -> None:
        store = await ensemble.connect()
        heard: list[tuple[SessionEvent, int]] = []
        restarted = asyncio.Event()

        def listen(event: SessionEvent, session: Session) -> None:
            heard.append((event, session.generation))
            if event is SessionEvent.STARTED:
                restarted.set()

        generation = session_of(store).generation
        store.add_session_listener(listen)
        await ensemble.expire(store)
        async with asyncio.timeout(PATIENCE_SECONDS):
            await restarted.wait()
        ends_and_starts = [entry for entry in heard if entry[0] in (SessionEvent.ENDED, SessionEvent.STARTED)]
        assert ends_and_starts == [(SessionEvent.ENDED, generation), (SessionEvent.STARTED, generation + 1)]

    async def test_data_watch_fires_on_creation_change_and_deletion(self, ensemble: Ensemble) -> None:
        watching, writing = session_of(await ensemble.connect()), session_of(await ensemble.connect())
        for write in (writing.create("/w"), writing.set("/w", b"2"), writing.delete("/w")):
            hint = Hint()
            await watching.get("/w", hint)
            await write
            await hint.wait()

    async def test_child_watch_fires_when_children_come_and_go(self, ensemble: Ensemble) -> None:
        watching, writing = session_of(await ensemble.connect()), session_of(await ensemble.connect())
        await writing.create("/w")
        for write in (writing.create("/w/a"), writing.delete("/w/a"), writing.delete("/w")):
            hint = Hint()
            await watching.children("/w", hint)
            await write
            await hint.wait()

    async def test_watch_on_an_ephemeral_fires_when_its_session_ends(self, ensemble: Ensemble) -> None:
        watching, leaving = session_of(await ensemble.connect()), await ensemble.connect()
        await session_of(leaving).create("/e", ephemeral=True)
        hint = Hint()
        await watching.get("/e", hint)
        await leaving.close()
        await hint.wait()
        assert await watching.get("/e") is None

    async def test_watch_fires_once_however_often_it_was_left(self, ensemble: Ensemble) -> None:
        watching, writing = session_of(await ensemble.connect()), session_of(await ensemble.connect())
        await writing.create("/w")
        once, marker = Hint(), Hint()
        for _ in range(3):
            await watching.get("/w", once)
        await writing.set("/w", b"1")
        await once.wait()
        await watching.get("/w", marker)
        await writing.set("/w", b"2")
        await marker.wait()
        assert once.count == 1

    async def test_watch_is_enough_to_follow_every_change(self, ensemble: Ensemble) -> None:
        """Reading again at each hint ends at the last value, however hints and writes interleave."""
        watching, writing = session_of(await ensemble.connect()), session_of(await ensemble.connect())
        await writing.create("/n", b"0")
        seen: list[bytes] = []

        async def follow() -> None:
            while not seen or seen[-1] != b"20":
                hint = Hint()
                znode = await watching.get("/n", hint)
                assert znode is not None
                seen.append(znode.data)
                if znode.data != b"20":
                    await hint.wait()

        async def write() -> None:
            for number in range(1, 21):
                await writing.set("/n", b"%d" % number)

        await asyncio.gather(follow(), write())
        assert seen == sorted(seen, key=int)
