"""The embedded metadata store: a znode tree in memory, made durable by a journal.

``LocalEnsemble`` stands where a ZooKeeper ensemble would: it owns the tree and its journal, and gives out clients.
``LocalStore`` is one client, with the sessions and watches of the contract (``store.py``); a single broker uses one.

* *Decide, append, apply.* A transaction is tried on the tree, which undoes it if it fails; if it succeeds, its record
  is appended to the journal before anything else can run. It returns once the journal is synced; one sync covers
  everything appended until then. Reads, too, return only when all that they could have seen is durable.
* *Sessions end with the process.* Opening an ensemble closes whatever sessions its last run left, so their ephemerals
  are gone; zxids go on from where they were, so a broker's epoch (the zxid of its registration) is always larger.
* *When the journal fails*, waiting writes end in ``ConnectionLost`` (they may have happened), all sessions end, and no
  new one starts: the broker must stop, and its next start reads what the disk really holds.
"""

import asyncio
import json
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Protocol, TypeVar

from oncelog.coordinator.metadata_store.store import (
    Check,
    ConnectionLost,
    Create,
    Delete,
    MultiFailed,
    MultiResult,
    Operation,
    Session,
    SessionEvent,
    SessionExpired,
    SessionListener,
    SetData,
    StoreFull,
    StoreUnavailable,
    Watch,
    Znode,
)
from oncelog.coordinator.metadata_store.watches import WatchTable
from oncelog.coordinator.metadata_store.znode_tree import (
    Changes,
    CloseSession,
    Multi,
    OpenSession,
    Transaction,
    ZnodeTree,
)

logger = logging.getLogger(__name__)
_T = TypeVar("_T")


_COMPACT_AT_BYTES: Final = 4 << 20
_WORK_PER_TURN: Final = 1_000
"""Operations of several multis; then the loop has its turn."""
_WORK_OF_A_RECORD: Final = 4
"""What a record in the journal costs, in operations."""


class JournalFull(Exception):
    """The disk has no room for what was to be written. The journal is as it was. The message is for the operator."""


class Journal(Protocol):
    """Where an ensemble keeps its tree: a snapshot, and the records appended since."""

    def load(self) -> tuple[bytes | None, list[bytes]]:
        """Return the last snapshot, and the records appended after it, in order. Called once, first."""

    def append(self, record: bytes) -> None:
        """Add a record. After an ``OSError`` the record is not in the journal and nothing more may be appended.

        Raises ``JournalFull`` if there was no room for it; what comes later may fit.
        """

    async def sync(self) -> None:
        """Make everything appended so far durable; ``OSError`` if that failed."""

    @property
    def size(self) -> int:
        """Bytes appended since the last snapshot."""

    async def compact(self, snapshot: Iterable[bytes]) -> None:
        """Replace everything appended before this call by the snapshot. Appending may go on meanwhile.

        The snapshot comes in parts, which take time to make: between them the loop runs.

        Raises ``JournalFull`` if there was no room for the snapshot: then nothing is replaced.
        """


class LocalEnsemble:
    """The tree, its journal, and the clients that share them."""

    def __init__(self, journal: Journal, *, compact_at_bytes: int = _COMPACT_AT_BYTES) -> None:
        """Restore the tree from the journal and close the sessions of the last run."""
        snapshot, records = journal.load()
        self.tree = ZnodeTree() if snapshot is None else ZnodeTree.restore(snapshot)
        self._journal = journal
        self._data_watches = WatchTable()
        self._child_watches = WatchTable()
        self._appended = self._synced = 0
        self._sync_lock = asyncio.Lock()
        self._compact_at_bytes = compact_at_bytes
        self._compacting = False
        self._clients: dict[int, LocalStore] = {}
        self.failure: OSError | None = None
        for record in records:
            self._replay(*_decode(record))
        for session_id in self.tree.session_ids:
            self.submit(CloseSession(session_id=session_id))

    def _replay(self, zxid: int, transaction: Transaction) -> None:
        result = self.tree.apply(transaction, Changes())
        assert isinstance(result, list), f"the journal holds {transaction}, which the tree refuses: {result}"
        assert self.tree.zxid == zxid, f"the journal lacks a record before zxid {zxid}"

    def connect(self) -> "LocalStore":
        """Return a new client, with a session."""
        return LocalStore(self)

    def submit(self, transaction: Transaction) -> MultiResult:
        """Decide, append and apply in one step. What was done is durable after ``settle``."""
        if self.failure is not None:
            raise ConnectionLost(str(self.failure))
        changes = Changes()
        try:
            result = self.tree.apply(
                transaction, changes, lambda zxid: self._journal.append(_encode(zxid, transaction))
            )
        except JournalFull as error:
            raise StoreFull(str(error)) from error
        except OSError as error:
            self._fail(error)
            raise ConnectionLost(str(error)) from error
        if isinstance(result, MultiFailed):
            return result
        if isinstance(transaction, Multi):  # Sessions need not be durable: none survives a restart.
            self._appended += 1
        self._fire(self._data_watches, changes.data)
        self._fire(self._child_watches, changes.children)
        return result

    async def settle(self) -> None:
        """Wait until everything submitted so far is durable."""
        target = self._appended
        if self._synced >= target:
            return
        async with self._sync_lock:
            if self.failure is not None:
                raise ConnectionLost(str(self.failure))
            if self._synced >= target:
                return
            upto = self._appended
            try:
                await self._journal.sync()
            except OSError as error:
                self._fail(error)
                raise ConnectionLost(str(error)) from error
            self._synced = upto
        if self._journal.size >= self._compact_at_bytes and not self._compacting:
            await self._compact()

    async def _compact(self) -> None:
        self._compacting = True
        try:
            await self._journal.compact(self.tree.snapshot())
        except JournalFull as error:
            logger.warning("The metadata journal is not compacted yet: %s", error)
            self._compact_at_bytes += self._journal.size
        except OSError as error:
            self._fail(error)
        finally:
            self._compacting = False

    def open_session(self, client: "LocalStore") -> int:
        session_id = self.tree.next_session_id
        self.submit(OpenSession(session_id=session_id))
        self._clients[session_id] = client
        return session_id

    def close_session(self, session_id: int) -> None:
        """End a session: its ephemerals go, and its client is notified."""
        client = self._clients.pop(session_id)
        self.submit(CloseSession(session_id=session_id))
        client.on_session_closed(session_id)

    def _fail(self, error: OSError) -> None:
        logger.critical("The metadata journal failed: %s", error)
        self.failure = error
        for session_id, client in tuple(self._clients.items()):
            client.on_session_closed(session_id)
        self._clients.clear()

    def watch_data(self, path: str, watch: Watch) -> None:
        """Call ``watch`` once when the znode is created, set or deleted."""
        self._data_watches.add(path, watch)

    def watch_children(self, path: str, watch: Watch) -> None:
        """Call ``watch`` once when the znode's children change or it is deleted."""
        self._child_watches.add(path, watch)

    @staticmethod
    def _fire(watches: WatchTable, paths: Iterable[str]) -> None:
        if not watches:
            return
        for path in paths:
            for watch in watches.pop(path):
                asyncio.get_running_loop().call_soon(watch)


class LocalSession(Session):
    """A session of a ``LocalStore``."""

    __slots__ = ("_ended", "_ensemble", "generation", "session_id")

    generation: int
    session_id: int

    def __init__(self, ensemble: LocalEnsemble, session_id: int, generation: int) -> None:
        self._ensemble = ensemble
        self._ended = False
        self.session_id = session_id
        self.generation = generation

    @property
    def last_contact(self) -> float:
        """Now: the store is in this process."""
        return asyncio.get_running_loop().time()

    def is_live(self) -> bool:
        return not self._ended

    def end(self) -> None:
        self._ended = True

    def _tree(self) -> ZnodeTree:
        if self._ended:
            raise SessionExpired(f"session {self.session_id} (generation {self.generation}) has expired")
        return self._ensemble.tree

    async def _settled(self, result: _T) -> _T:
        await self._ensemble.settle()
        return result

    async def sync(self) -> None:
        self._tree()  # There is one tree, and no read is behind it.

    async def get(self, path: str, watch: Watch | None = None) -> Znode | None:
        znode = self._tree().get(path)
        if watch is not None:
            self._ensemble.watch_data(path, watch)
        return await self._settled(znode)

    async def get_many(self, paths: Sequence[str]) -> list[Znode | None]:
        tree = self._tree()
        return await self._settled([tree.get(path) for path in paths])

    async def children(self, path: str, watch: Watch | None = None) -> list[str] | None:
        names = self._tree().children(path)
        if watch is not None and names is not None:
            self._ensemble.watch_children(path, watch)
        return await self._settled(names)

    async def multi(self, operations: Sequence[Operation]) -> MultiResult:
        return (await self.multi_many([operations]))[0]

    async def multi_many(self, batches: Sequence[Sequence[Operation]]) -> list[MultiResult]:
        results: list[MultiResult] = []
        work = 0
        for batch in batches:
            if work > _WORK_PER_TURN:
                await asyncio.sleep(0)
                work = 0
            self._tree()
            results.append(self._ensemble.submit(Multi(session_id=self.session_id, operations=tuple(batch))))
            work += _WORK_OF_A_RECORD + len(batch)
        return await self._settled(results)


class LocalStore:
    """One client of an ensemble. It always has a session, except after ``close`` and after the journal failed."""

    def __init__(self, ensemble: LocalEnsemble) -> None:
        self._ensemble = ensemble
        self._listeners: list[SessionListener] = []
        self._closing = False
        self._generation = 0
        self._session: LocalSession | None = self._start_session()

    @property
    def session(self) -> LocalSession | None:
        return self._session

    @property
    def credentials(self) -> None:
        """The store is opened by one process at a time, which ends what sessions there were."""

    def add_session_listener(self, listener: SessionListener) -> None:
        self._listeners.append(listener)

    async def close(self) -> None:
        self._closing = True
        if self._session is None:
            return
        try:
            self._ensemble.close_session(self._session.session_id)
            await self._ensemble.settle()
        except StoreUnavailable as error:  # The next opening of the ensemble ends the session.
            logger.warning("The session with the metadata store was not ended in an orderly way: %s", error)

    def on_session_closed(self, session_id: int) -> None:
        """Replace a session that was closed or expired; the client has none after a failure of the journal."""
        ended = self._session
        assert ended is not None, f"session {session_id} is not ours"
        ended.end()
        self._session = None
        self._tell(SessionEvent.ENDED, ended)
        if not self._closing and self._ensemble.failure is None:
            self._session = self._start_session()
            self._tell(SessionEvent.STARTED, self._session)

    def _start_session(self) -> LocalSession:
        self._generation += 1
        return LocalSession(self._ensemble, self._ensemble.open_session(self), self._generation)

    def _tell(self, event: SessionEvent, session: LocalSession) -> None:
        for listener in self._listeners:
            asyncio.get_running_loop().call_soon(listener, event, session)


def _encode(zxid: int, transaction: Transaction) -> bytes:
    match transaction:
        case OpenSession(session_id=session_id):
            row: list[Any] = [zxid, "open", session_id]
        case CloseSession(session_id=session_id):
            row = [zxid, "close", session_id]
        case Multi(session_id=session_id, operations=operations):
            row = [zxid, "multi", session_id, [_operation_row(operation) for operation in operations]]
    return json.dumps(row, separators=(",", ":")).encode()


def _operation_row(operation: Operation) -> list[Any]:
    match operation:
        case Create(path=path, data=data, ephemeral=ephemeral, sequential=sequential):
            return ["create", path, data.decode("latin-1"), ephemeral, sequential]
        case SetData(path=path, data=data, version=version):
            return ["set", path, data.decode("latin-1"), version]
        case Delete(path=path, version=version):
            return ["delete", path, version]
        case Check(path=path, version=version):
            return ["check", path, version]


def _decode(record: bytes) -> tuple[int, Transaction]:
    zxid, kind, session_id, *rest = json.loads(record)
    transactions: dict[str, Callable[[], Transaction]] = {
        "open": lambda: OpenSession(session_id=session_id),
        "close": lambda: CloseSession(session_id=session_id),
        "multi": lambda: Multi(session_id=session_id, operations=tuple(map(_decode_operation, rest[0]))),
    }
    return zxid, transactions[kind]()


def _decode_operation(row: list[Any]) -> Operation:
    match row:
        case ["create", path, data, ephemeral, sequential]:
            return Create(path=path, data=data.encode("latin-1"), ephemeral=ephemeral, sequential=sequential)
        case ["set", path, data, version]:
            return SetData(path=path, data=data.encode("latin-1"), version=version)
        case ["delete", path, version]:
            return Delete(path=path, version=version)
        case ["check", path, version]:
            return Check(path=path, version=version)
    raise ValueError(f"not an operation of the metadata journal: {row!r}")
