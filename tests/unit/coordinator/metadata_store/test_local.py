"""The embedded store keeps the contract, and what it keeps survives both kinds of crash."""

import asyncio
import errno
import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oncelog.broker.metadata.metadata_journal import CorruptSnapshot, MetadataJournal
from oncelog.broker.storage.disk import LocalDisk
from oncelog.coordinator.metadata_store.local import LocalEnsemble
from oncelog.coordinator.metadata_store.store import (
    ConnectionLost,
    Create,
    Delete,
    Done,
    MetadataStore,
    Operation,
    SessionEvent,
    SessionExpired,
    SetData,
    StoreError,
    StoreFull,
)
from oncelog.coordinator.metadata_store.znode_tree import ZnodeTree
from oncelog.protocol.schema import Buffer
from tests.simulation.sim_disk import CrashKind, MachineStopped, SimDisk
from tests.unit.broker.turns import longest_turn
from tests.unit.coordinator.metadata_store.contract import MetadataStoreContract, data_of, session_of


class Gate:
    """Holds off-loop disk calls back until it is opened."""

    def __init__(self) -> None:
        self._opened = asyncio.Event()

    async def __call__(self) -> None:
        await self._opened.wait()

    def open(self) -> None:
        self._opened.set()


class LocalEnsembleUnderTest:
    """The suite's view of a ``LocalEnsemble``."""

    def __init__(self, ensemble: LocalEnsemble) -> None:
        self._ensemble = ensemble

    async def connect(self) -> MetadataStore:
        return self._ensemble.connect()

    async def expire(self, store: MetadataStore) -> None:
        self._ensemble.close_session(session_of(store).session_id)


@pytest.mark.real_loop
class TestOnARealDisk(MetadataStoreContract):
    @pytest.fixture
    async def ensemble(self, tmp_path: Path) -> LocalEnsembleUnderTest:
        return LocalEnsembleUnderTest(LocalEnsemble(MetadataJournal(LocalDisk(), str(tmp_path))))


class TestOnASimulatedDisk(MetadataStoreContract):
    @pytest.fixture
    async def ensemble(self) -> LocalEnsembleUnderTest:
        return LocalEnsembleUnderTest(open_on(sim_disk()))


class TestAfterACrash(MetadataStoreContract):
    @pytest.fixture
    async def ensemble(self) -> LocalEnsembleUnderTest:
        disk = sim_disk()
        session = session_of(open_on(disk).connect())
        await session.create("/before", b"crash", ephemeral=True)
        disk.crash("power", random.Random(1))
        return LocalEnsembleUnderTest(open_on(disk))


def prepare(disk: SimDisk) -> None:
    disk.make_dirs("/data")
    disk.sync_dir("/")


def sim_disk() -> SimDisk:
    disk = SimDisk()
    prepare(disk)
    return disk


def open_on(disk: SimDisk, *, compact_at_bytes: int = 1 << 20) -> LocalEnsemble:
    return LocalEnsemble(MetadataJournal(disk, "/data"), compact_at_bytes=compact_at_bytes)


def lasting(tree: ZnodeTree, path: str = "/") -> dict[str, bytes]:
    """The znodes that do not end with a session."""
    znode, names = tree.get(path), tree.children(path)
    assert znode is not None
    assert names is not None
    contents = {} if znode.stat.ephemeral_owner else {path: znode.data}
    for name in names:
        contents |= lasting(tree, f"{path.rstrip('/')}/{name}")
    return contents


async def test_restart_finds_everything_but_the_ephemerals() -> None:
    disk = sim_disk()
    session = session_of(open_on(disk).connect())
    await session.create("/a", b"1")
    await session.set("/a", b"2")
    before = await session.get("/a")
    await session.create("/a/n_", sequential=True)
    await session.create("/e", b"me", ephemeral=True)
    disk.crash("process", random.Random(1))
    session = session_of(open_on(disk).connect())
    assert await session.get("/a") == before
    assert await session.get("/e") is None
    again = await session.create("/a/n_", sequential=True)
    assert isinstance(again, Done)
    assert await session.children("/a") == ["n_0000000000", "n_0000000001"]


async def test_later_registration_has_a_later_zxid() -> None:
    """B63: the epoch of a restarted broker is larger than the one it had, also if its old session never ended."""
    disk = sim_disk()
    epochs = []
    for seed in range(5):
        session = session_of(open_on(disk).connect())
        await session.create("/brokers")
        done = await session.create("/brokers/1", ephemeral=True)
        assert isinstance(done, Done)
        assert done.stat is not None
        epochs.append(done.stat.czxid)
        disk.crash("power", random.Random(seed))
    assert epochs == sorted(set(epochs))


NAMES = ["/a", "/b", "/a/x", "/a/y", "/b/x"]
OPERATIONS = st.one_of(
    st.builds(Create, path=st.sampled_from(NAMES), data=st.binary(max_size=8), ephemeral=st.booleans()),
    st.builds(Create, path=st.sampled_from(["/a/n_", "/n_"]), sequential=st.just(True)),
    st.builds(SetData, path=st.sampled_from(NAMES), data=st.binary(max_size=8), version=st.integers(-1, 2)),
    st.builds(Delete, path=st.sampled_from(NAMES), version=st.integers(-1, 2)),
)
LIVES = st.lists(st.lists(st.lists(OPERATIONS, min_size=1, max_size=4), max_size=8), min_size=1, max_size=4)


@settings(max_examples=150, deadline=None)
@given(
    lives=LIVES,
    kind=st.sampled_from(["process", "power"]),
    units=st.lists(st.integers(0, 1_500), min_size=4, max_size=4),
    compact_at_bytes=st.sampled_from([1, 200, 1 << 20]),
    seed=st.integers(0, 1_000),
)
async def test_acknowledged_write_survives_any_crash(
    lives: list[list[list[Operation]]], kind: CrashKind, units: list[int], compact_at_bytes: int, seed: int
) -> None:
    """After a crash at any byte the tree is what was answered last, or that and the one multi under way."""
    disk, rng = sim_disk(), random.Random(seed)
    found = {"/": b""}
    for incarnation, budget in zip(lives, units, strict=False):
        possible = [found]
        disk.stop_after(budget)
        ensemble = None
        try:
            ensemble = open_on(disk, compact_at_bytes=compact_at_bytes)
            session = session_of(ensemble.connect())
            for operations in incarnation:
                await session.multi(operations)
                possible = [lasting(ensemble.tree)]
        except MachineStopped:
            if ensemble is not None:
                possible.append(lasting(ensemble.tree))
        disk.crash(kind, rng)
        found = lasting(open_on(disk).tree)
        assert found in possible
        disk.crash(kind, rng)


async def test_many_writes_share_a_sync() -> None:
    disk = sim_disk()
    session = session_of(open_on(disk).connect())
    disk.delay = gate = Gate()
    async with asyncio.TaskGroup() as group:
        for number in range(50):
            group.create_task(session.create(f"/n{number}"))
        await asyncio.sleep(0)
        before = disk.calls["sync"]
        gate.open()
    assert disk.calls["sync"] - before <= 1
    disk.crash("power", random.Random(1))
    assert len(open_on(disk).tree) == 50


async def test_read_waits_until_what_it_saw_is_durable() -> None:
    disk = sim_disk()
    session = session_of(open_on(disk).connect())
    disk.delay = gate = Gate()
    async with asyncio.TaskGroup() as group:
        write = group.create_task(session.create("/a", b"1"))
        read = group.create_task(session.get("/a"))
        await asyncio.sleep(0)
        assert not write.done()
        assert not read.done()
        gate.open()
    assert await data_of(session, "/a") == b"1"


async def test_cancelled_writer_does_not_cancel_others() -> None:
    disk = sim_disk()
    session = session_of(open_on(disk).connect())
    disk.delay = gate = Gate()
    loop = asyncio.get_running_loop()
    cancelled = loop.create_task(session.create("/a"))
    waiting = loop.create_task(session.create("/b"))
    await asyncio.sleep(0)
    cancelled.cancel()
    gate.open()
    assert isinstance(await waiting, Done)
    with pytest.raises(asyncio.CancelledError):
        await cancelled
    disk.crash("power", random.Random(1))
    assert set(lasting(open_on(disk).tree)) == {"/", "/a", "/b"}


@pytest.mark.parametrize("operation", ["append", "sync"])
async def test_failed_journal_ends_all_sessions_and_starts_none(operation: str) -> None:
    """What was answered is still there for the next start; what was not may be."""
    disk = sim_disk()
    store = open_on(disk).connect()
    heard: list[SessionEvent] = []
    store.add_session_listener(lambda event, _: heard.append(event))
    session = session_of(store)
    await session.create("/answered")
    disk.fail(operation, ".journal")
    with pytest.raises(ConnectionLost):
        await session.create("/indeterminate")
    with pytest.raises(SessionExpired):
        await session.create("/refused")
    await asyncio.sleep(0)
    assert heard == [SessionEvent.ENDED]
    assert store.session is None
    disk.crash("power", random.Random(1))
    found = set(lasting(open_on(disk).tree))
    assert found - {"/indeterminate"} == {"/", "/answered"}


@pytest.mark.parametrize("taken", [0, 5])
async def test_write_to_a_full_disk_is_refused_changes_nothing_and_succeeds_later(taken: int) -> None:
    disk = sim_disk()
    store = open_on(disk).connect()
    session = session_of(store)
    await session.create("/answered")
    disk.fill(taken)
    for _ in range(3):
        with pytest.raises(StoreFull, match="free space or enlarge the volume"):
            await session.create("/refused")
        with pytest.raises(StoreFull):
            await session.multi([Create(path="/a"), Delete(path="/answered")])
    assert session.is_live()
    assert await session.get("/answered") is not None
    assert await session.get("/refused") is None
    disk.make_room()
    assert isinstance(await session.create("/accepted"), Done)
    disk.crash("power", random.Random(1))
    assert set(lasting(open_on(disk).tree)) == {"/", "/answered", "/accepted"}


async def test_compaction_on_a_full_disk_loses_nothing_and_is_done_later() -> None:
    disk = sim_disk()
    session = session_of(open_on(disk, compact_at_bytes=2_000).connect())
    await session.create("/n", b"0")
    disk.fail("append", "metadata.snapshot.tmp", error=errno.ENOSPC, times=2)
    for number in range(500):
        assert isinstance(await session.set("/n", b"%d" % number), Done)
    disk.crash("power", random.Random(1))
    again = open_on(disk)
    znode = again.tree.get("/n")
    assert znode is not None
    assert znode.data == b"499"


async def test_compaction_keeps_the_journal_short() -> None:
    disk = sim_disk()
    session = session_of(open_on(disk, compact_at_bytes=2_000).connect())
    await session.create("/n", b"0")
    for number in range(500):
        assert isinstance(await session.set("/n", b"%d" % number), Done)
    assert sum(disk.file_size(f"/data/{name}") for name in disk.list_dir("/data")) < 5_000
    assert len(disk.list_dir("/data")) == 2
    disk.crash("power", random.Random(1))
    assert await data_of(session_of(open_on(disk).connect()), "/n") == b"499"


async def test_writes_go_on_while_a_compaction_writes_its_snapshot() -> None:
    disk = sim_disk()
    session = session_of(open_on(disk, compact_at_bytes=1).connect())
    disk.delay = gate = Gate()
    async with asyncio.TaskGroup() as group:
        for number in range(20):
            group.create_task(session.create(f"/n{number}"))
            await asyncio.sleep(0)
        gate.open()
    for seed in range(5):
        disk.crash("power", random.Random(seed))
        assert len(open_on(disk).tree) == 20


class DiskThatHoldsSnapshots(SimDisk):
    """Writes no snapshot, and notes which calls on the event loop change or sync the directory."""

    def __init__(self) -> None:
        super().__init__()
        self._reached = asyncio.Event()
        self.on_loop: list[str] = []
        self._is_off_loop = False

    async def write_atomic_off_loop(self, path: str, data: Buffer) -> None:
        self._reached.set()
        await asyncio.Event().wait()

    async def holds_snapshot_of(self, compacting: asyncio.Task[object]) -> None:
        """Wait until there is a snapshot to write."""
        async with asyncio.TaskGroup() as group:
            reached = group.create_task(self._reached.wait())
            await asyncio.wait([reached, compacting], return_when=asyncio.FIRST_COMPLETED)
            self._reached.set()
        assert not compacting.done()

    async def sync_dir_off_loop(self, path: str) -> None:
        self._is_off_loop = True
        try:
            await super().sync_dir_off_loop(path)
        finally:
            self._is_off_loop = False

    def enter(self, operation: str, path: str) -> None:
        if operation in ("sync_dir", "remove") and not self._is_off_loop:
            self.on_loop.append(f"{operation} {path}")
        super().enter(operation, path)


@pytest.mark.parametrize("seed", range(8))
async def test_unfinished_compaction_loses_no_acknowledged_write(seed: int) -> None:
    """Neither what the file before it still had to sync, nor what went to the file after it."""
    disk = DiskThatHoldsSnapshots()
    prepare(disk)
    session = session_of(open_on(disk, compact_at_bytes=1).connect())
    loop = asyncio.get_running_loop()
    compacting = loop.create_task(session.create("/compacts-after-its-sync"))
    beside = loop.create_task(session.create("/beside-that-sync"))
    await disk.holds_snapshot_of(compacting)
    assert isinstance(await beside, Done)
    assert isinstance(await session.create("/after"), Done)
    assert not compacting.done()
    disk.crash("power", random.Random(seed))
    compacting.cancel()
    assert set(lasting(open_on(disk).tree)) == {"/", "/compacts-after-its-sync", "/beside-that-sync", "/after"}


async def test_file_that_a_compaction_begins_gets_its_name_off_the_loop() -> None:
    """With thousands of partitions in the directory, on a busy disk, its sync may take a second."""
    disk = DiskThatHoldsSnapshots()
    prepare(disk)
    session = session_of(open_on(disk, compact_at_bytes=1).connect())
    disk.on_loop.clear()
    compacting = asyncio.get_running_loop().create_task(session.create("/compacts"))
    await disk.holds_snapshot_of(compacting)
    assert isinstance(await session.create("/after"), Done)
    assert disk.on_loop == []
    compacting.cancel()


async def test_file_name_not_durable_before_restart_is_durable_with_next_write() -> None:
    disk = sim_disk()
    open_on(disk)
    disk.crash("process", random.Random(1))
    assert isinstance(await session_of(open_on(disk).connect()).create("/answered"), Done)
    disk.crash("power", random.Random(2))
    assert set(lasting(open_on(disk).tree)) == {"/", "/answered"}


async def test_compaction_of_many_znodes_is_made_in_slices() -> None:
    disk = sim_disk()
    ensemble = open_on(disk)
    session = session_of(ensemble.connect())
    for first in range(0, 20_000, 1_000):
        await session.multi([Create(path=f"/n{number:05}") for number in range(first, first + 1_000)])
    disk.crash("process", random.Random(1))
    session = session_of(open_on(disk, compact_at_bytes=1).connect())
    _, lines = await longest_turn(lambda: session.create("/compacts"))
    assert disk.exists("/data/metadata.snapshot")
    assert lines < 5_000  # At once it would be 40,000.
    disk.crash("power", random.Random(1))
    assert len(open_on(disk).tree) == 20_001


@pytest.mark.parametrize("seed", range(20))
async def test_write_during_compaction_survives_a_crash_at_any_point(seed: int) -> None:
    disk, rng = sim_disk(), random.Random(seed)
    session = session_of(open_on(disk).connect())
    await session.multi([Create(path=f"/n{number}") for number in range(3_000)])
    disk.crash("process", rng)
    session = session_of(open_on(disk, compact_at_bytes=1).connect())
    disk.stop_after(rng.randint(1, 300_000))
    possible = {f"/n{number}": {0} for number in range(3_000)}
    """By path, the versions that may be found."""

    async def write(numbers: range) -> None:
        for version in range(1, 20):
            for path in [f"/n{number}" for number in numbers]:
                possible[path].add(version)
                await session.set(path, b"%d" % version)
                possible[path] = {version}

    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(write(range(0, 3_000, 1_000)))
            group.create_task(write(range(1, 3_000, 1_000)))
    except* MachineStopped:
        pass
    disk.crash("power", rng)
    tree = open_on(disk).tree
    assert len(tree) == len(possible)
    for path, versions in possible.items():
        znode = tree.get(path)
        assert znode is not None
        assert znode.stat.version in versions
        assert znode.data == (b"%d" % znode.stat.version if znode.stat.version else b"")


async def test_compacting_twice_keeps_what_comes_after() -> None:
    disk = sim_disk()
    journal = MetadataJournal(disk, "/data")
    journal.load()
    journal.append(b"1")
    await journal.compact([b"snapshot", b" of 1"])
    await journal.compact([b"snapshot", b" of 1"])
    journal.append(b"2")
    await journal.sync()
    disk.crash("process", random.Random(1))
    assert MetadataJournal(disk, "/data").load() == (b"snapshot of 1", [b"2"])


async def test_damaged_snapshot_is_refused() -> None:
    disk = sim_disk()
    journal = MetadataJournal(disk, "/data")
    journal.load()
    await journal.compact([b"snapshot"])
    disk.open("/data/metadata.snapshot").write_at(b"S", 12)
    with pytest.raises(CorruptSnapshot):
        MetadataJournal(disk, "/data").load()


async def test_many_multis_of_one_call_are_done_in_slices_and_in_order() -> None:
    session = session_of(open_on(sim_disk()).connect())
    batches = [[Create(path="/n", sequential=True)] for _ in range(5_000)]
    results, lines = await longest_turn(lambda: session.multi_many(batches))
    assert [done.path for result in results for done in result] == [f"/n{number:010}" for number in range(5_000)]
    assert lines < 100_000  # At once it would be ten times as many.


async def test_session_that_ends_between_the_slices_of_a_call_does_no_more() -> None:
    ensemble = open_on(sim_disk())
    store = ensemble.connect()
    session = session_of(store)
    batches = [[Create(path="/n", sequential=True)] for _ in range(5_000)]
    writing = asyncio.get_running_loop().create_task(session.multi_many(batches))
    await asyncio.sleep(0)
    ensemble.close_session(session.session_id)
    with pytest.raises(SessionExpired):
        await writing
    assert 0 < len(ensemble.tree) < 5_000


async def test_refusals_are_not_journalled() -> None:
    disk = sim_disk()
    ensemble = open_on(disk)
    session = session_of(ensemble.connect())
    await session.create("/a")
    appends = disk.calls["append"]
    assert await session.create("/a") is StoreError.NODE_EXISTS
    assert disk.calls["append"] == appends
