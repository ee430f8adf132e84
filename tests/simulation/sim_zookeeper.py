"""A ZooKeeper ensemble in virtual time: sessions that expire, connections that break, responses that are lost.

The ensemble is one ``ZnodeTree``, the same as below the embedded store. Clients reach it over links that delay every
message by a random while, in order in each direction, and that tests can cut, in one direction or both. What follows
from that is what kazoo and ZooKeeper do:

* A request whose response does not come within a third of the session time-out breaks the connection: everything that
  waits raises ``ConnectionLost`` (some of it was done, some was not), all watches fire, and the client tries to connect
  again until it can.
* The ensemble closes a session that it has not heard of for the whole time-out. Its client hears of that when it
  reaches the ensemble again, and not before; until then it has only its own deadline.
* The member of the ensemble that a client is connected to may be behind the others: until it catches up, which a write
  or a ``sync`` of its client makes it do, its client reads what was, and hears of no change.
* A client's callbacks run in the context of the process that made it, so a killed process hears nothing any more, and
  its session expires.
"""

import asyncio
import contextvars
import random
from collections.abc import Callable, Sequence
from enum import Flag, auto
from typing import Any, Final, TypeVar

from oncelog.coordinator.metadata_store.store import (
    ConnectionLost,
    MultiFailed,
    MultiResult,
    Operation,
    Session,
    SessionEvent,
    SessionExpired,
    SessionListener,
    Watch,
    Znode,
)
from oncelog.coordinator.metadata_store.znode_tree import Changes, CloseSession, Multi, OpenSession, ZnodeTree
from oncelog.coordinator.metadata_store.zookeeper_address import SessionCredentials
from tests.simulation.buggify import current_swarm
from tests.simulation.journal import current_journal
from tests.simulation.tree_events import describe
from tests.simulation.virtual_loop import process_name

T = TypeVar("T")

LONGEST_DELAY: Final = 0.002
RECONNECT_SECONDS: Final = 0.1
_NOTICED_SHARE: Final = 1 / 3
_LIVE_SHARE: Final = 2 / 3
_CONTACTS_PER_TIMEOUT: Final = 6
_APART: Final = 1e-6
"""Messages of one direction never arrive at once, because timers of one moment have no order."""


class Direction(Flag):
    """Which way messages are lost."""

    NONE = 0
    TO_ENSEMBLE = auto()
    TO_CLIENT = auto()
    BOTH = TO_ENSEMBLE | TO_CLIENT


class SimZooKeeper:
    """The ensemble. It lives in the context in which it was made, and outlives its clients' processes."""

    def __init__(self, rng: random.Random, *, longest_delay: float = LONGEST_DELAY) -> None:
        self.tree = ZnodeTree()
        self.journal = current_journal()
        self.swarm = current_swarm()
        self._is_up = True
        self._rng = rng
        self._longest_delay = longest_delay
        self._loop = asyncio.get_running_loop()
        self._context = contextvars.copy_context()
        self._expiries: dict[int, asyncio.TimerHandle] = {}
        self._timeouts: dict[int, float] = {}
        self._data_watches: dict[str, dict[tuple[_Connection, Watch], None]] = {}
        self._child_watches: dict[str, dict[tuple[_Connection, Watch], None]] = {}
        self._behind: dict[SimStore, _Past] = {}
        """The clients whose member is behind."""

    def connect(self, *, session_timeout: float) -> "SimStore":
        """A client of the running process, with a session."""
        return SimStore(self, session_timeout)

    @property
    def is_up(self) -> bool:
        """Whether it responds to anything."""
        return self._is_up

    @is_up.setter
    def is_up(self, value: bool) -> None:
        if value is not self._is_up:
            self._is_up = value
            self.journal.note("ensemble", "ensemble up" if value else "ensemble down")

    def expire(self, session_id: int) -> None:
        """Close a session as if its client had not been heard of for too long."""
        self.journal.note("ensemble", "session expired by a test", f"session {session_id}")
        self._close(session_id)

    def delay(self) -> float:
        delay = self._rng.uniform(0, self._longest_delay)
        return delay + self.swarm.delay(("slow ensemble", 0.3), ("very slow ensemble", 1.5))

    def call_later(self, seconds: float, call: Callable[..., None], *arguments: Any) -> asyncio.TimerHandle:
        return self.call_at(self._loop.time() + seconds, call, *arguments)

    def call_at(self, when: float, call: Callable[..., None], *arguments: Any) -> asyncio.TimerHandle:
        return self._loop.call_at(when, call, *arguments, context=self._context)

    # Sessions

    def open_session(self, timeout: float) -> int:
        session_id = self.tree.next_session_id
        self._apply(OpenSession(session_id=session_id))
        self._timeouts[session_id] = timeout
        self.heard_of(session_id)
        return session_id

    def has_session(self, session_id: int) -> bool:
        return session_id in self._timeouts

    def heard_of(self, session_id: int) -> None:
        """The session's client has sent something."""
        if session_id in self._timeouts:
            if session_id in self._expiries:
                self._expiries[session_id].cancel()
            self._expiries[session_id] = self.call_later(self._timeouts[session_id], self._close, session_id)

    def _close(self, session_id: int) -> None:
        if self._timeouts.pop(session_id, None) is not None:
            self._expiries.pop(session_id).cancel()
            self.journal.note("ensemble", "session ends", f"session {session_id}")
            self._apply(CloseSession(session_id=session_id))

    close_session = _close

    # Reads, writes, watches

    def apply(self, session: "SimSession", operations: Sequence[Operation]) -> MultiResult:
        self.catch_up(session.store)
        return self._apply(Multi(session_id=session.session_id, operations=tuple(operations)))

    def _apply(self, transaction: OpenSession | CloseSession | Multi) -> MultiResult:
        changes = Changes()
        events = describe(transaction, self.tree.get) if isinstance(transaction, Multi) else []
        result = self.tree.apply(transaction, changes)
        if not isinstance(result, MultiFailed):
            for kind, detail in events:
                self.journal.note("ensemble", kind, detail)
        if not isinstance(result, MultiFailed):
            self._fire(changes)
        return result

    def get(self, connection: "_Connection", path: str, watch: Watch | None) -> Znode | None:
        if watch is not None:
            self._data_watches.setdefault(path, {})[connection, watch] = None
        return self.seen_by(connection.store).get(path)

    def children(self, connection: "_Connection", path: str, watch: Watch | None) -> list[str] | None:
        names = self.seen_by(connection.store).children(path)
        if watch is not None and names is not None:
            self._child_watches.setdefault(path, {})[connection, watch] = None
        return names

    # A member that is behind

    def fall_behind(self, store: "SimStore") -> None:
        """From now on, and until it catches up, the client's member hears nothing of the others."""
        if store not in self._behind:
            self.journal.note("ensemble", "member behind", store.name)
            self._behind[store] = _Past(ZnodeTree.restore(b"".join(self.tree.snapshot())))

    def catch_up(self, store: "SimStore") -> None:
        """The client's member learns everything that it has missed."""
        past = self._behind.pop(store, None)
        if past is not None:
            self._tell(past.missed, lambda connection: connection.store is store)

    def seen_by(self, store: "SimStore") -> ZnodeTree:
        """What a client's member of the ensemble has got."""
        past = self._behind.get(store)
        return self.tree if past is None else past.tree

    def _fire(self, changes: Changes) -> None:
        """Tell who has left watches; a member that is behind does that later."""
        for past in self._behind.values():
            past.missed.data += changes.data
            past.missed.children += changes.children
        self._tell(changes, lambda connection: connection.store not in self._behind)

    def _tell(self, changes: Changes, whom: "Callable[[_Connection], bool]") -> None:
        for table, paths in ((self._data_watches, changes.data), (self._child_watches, changes.children)):
            for path in dict.fromkeys(paths):
                for connection, watch in list(table.get(path, ())):
                    if whom(connection):
                        del table[path][connection, watch]
                        self.call_later(
                            self.swarm.delay(("late watch", 0.5)), connection.to_client, connection.fire, watch
                        )


class _Past:
    """What a member that is behind takes for the newest, and what has changed since."""

    def __init__(self, tree: ZnodeTree) -> None:
        self.tree = tree
        self.missed = Changes()


class _Connection:
    """One connection of a session: what waits for a response over it, and the watches left over it."""

    def __init__(self, session: "SimSession") -> None:
        self._session = session
        self.store = session.store
        self._ensemble = session.ensemble
        self._loop = asyncio.get_running_loop()
        self._waiting: dict[asyncio.Future[Any], None] = {}
        self._watches: list[Watch] = []
        self._arrives = [0.0, 0.0]
        self.is_open = True

    def ask(self, read: Callable[["_Connection"], T], watch: Watch | None = None) -> "asyncio.Future[T]":
        """Send a read to the ensemble; the future has its response, if the connection lasts until then."""
        response: asyncio.Future[T] = self._loop.create_future()
        sent = self._loop.time()
        self._waiting[response] = None
        if watch is not None:
            self._watches.append(watch)
        noticed = self._loop.call_later(self._session.timeout * _NOTICED_SHARE, self._session.lose, self)
        response.add_done_callback(lambda _: noticed.cancel())
        swarm = self._ensemble.swarm
        if watch is not None and swarm.strikes("spurious watch"):
            self._loop.call_later(self._ensemble.delay(), self.fire, watch)
        if swarm.strikes("stale member"):
            self._ensemble.fall_behind(self.store)
            self._ensemble.call_later(swarm.rng.uniform(0.0, 1.0), self._ensemble.catch_up, self.store)
        if swarm.strikes("lost store request"):
            self._loop.call_soon(self._session.lose, self)
        elif Direction.TO_ENSEMBLE not in self._session.store.cut:
            self._ensemble.call_at(self._arrival(0), self._arrive, read, response, sent)
        return response

    def _arrive(self, read: Callable[["_Connection"], T], response: "asyncio.Future[T]", sent: float) -> None:
        """At the ensemble."""
        if not self.is_open or not self._ensemble.is_up:
            return
        session_id = self._session.session_id
        if self._ensemble.swarm.strikes("expired session"):
            self._ensemble.expire(session_id)
        if not self._ensemble.has_session(session_id):
            self.to_client(self._session.end, self)
            return
        self._ensemble.heard_of(session_id)
        value = read(self)
        if self._ensemble.swarm.strikes("lost store response"):
            self.to_client(self._session.lose, self)
        else:
            self.to_client(self._responded, response, value, sent)

    def _responded(self, response: "asyncio.Future[T]", value: T, sent: float) -> None:
        """At the client."""
        self._waiting.pop(response, None)
        if self.is_open:
            self._session.heard(sent)
            if not response.done():
                response.set_result(value)

    def to_client(self, call: Callable[..., None], *arguments: Any) -> None:
        session = self._session
        if Direction.TO_CLIENT not in session.store.cut:
            self._loop.call_at(self._arrival(1), call, *arguments, context=session.store.context)
        else:  # A connection of which something was lost does not go on, also if no call waits for that: a watch.
            self._loop.call_later(session.timeout * _NOTICED_SHARE, session.lose, self, context=session.store.context)

    def _arrival(self, direction: int) -> float:
        """When a message arrives: after a delay, and later than the one before it."""
        arrives = max(self._arrives[direction] + _APART, self._loop.time() + self._ensemble.delay())
        self._arrives[direction] = arrives
        return arrives

    def fire(self, watch: Watch) -> None:
        """At the client; at most once for each time that it was left."""
        if watch in self._watches:
            self._watches = [left for left in self._watches if left != watch]
            watch()

    def close(self, error: Exception) -> None:
        """At the client: fail every waiting call, and fire all watches."""
        self.is_open = False
        waiting, self._waiting = self._waiting, {}
        for response in waiting:
            if not response.done():
                response.set_exception(error)
                response.exception()  # The caller may have gone.
        watches, self._watches = dict.fromkeys(self._watches), []
        for watch in watches:
            watch()


class SimSession(Session):
    """One session with the simulated ensemble."""

    session_id = 0
    generation = 0
    last_contact = 0.0

    def __init__(self, store: "SimStore", session_id: int, generation: int) -> None:
        self.store = store
        self.ensemble = store.ensemble
        self.timeout = store.session_timeout
        self.session_id = session_id
        self.generation = generation
        self._loop = asyncio.get_running_loop()
        self.last_contact = self._loop.time()
        self._over = False
        self._connection = _Connection(self)
        self._connected = asyncio.Event()
        self._connected.set()
        self._keep_contact()

    def is_live(self) -> bool:
        return not self._over and self._loop.time() < self.last_contact + self.timeout * _LIVE_SHARE

    def heard(self, sent: float) -> None:
        self.last_contact = max(self.last_contact, sent)

    def _keep_contact(self) -> None:
        if not self._over:
            self._loop.call_later(self.timeout / _CONTACTS_PER_TIMEOUT, self._keep_contact)
            if self._connection.is_open:
                self._connection.ask(lambda _: None)

    def lose(self, connection: _Connection) -> None:
        """The connection gives no answers any more."""
        if connection is self._connection and connection.is_open and not self._over:
            self._connected.clear()
            self.store.tell(SessionEvent.SUSPENDED, self)
            connection.close(ConnectionLost("the connection to the ensemble broke"))
            self._loop.call_later(RECONNECT_SECONDS, self._connect_again)

    def _connect_again(self) -> None:
        if self._over:
            return
        if self.store.cut or not self.ensemble.is_up:
            self._loop.call_later(RECONNECT_SECONDS, self._connect_again)
            return
        sent = self._loop.time()
        if not self.ensemble.has_session(self.session_id):
            self.end(self._connection)
            return
        self.ensemble.heard_of(self.session_id)
        self.heard(sent)
        self._connection = _Connection(self)
        self._connected.set()
        self.store.tell(SessionEvent.RESUMED, self)

    def end(self, connection: _Connection) -> None:
        """The ensemble says that the session is over."""
        if connection is self._connection and not self._over:
            self._finish()
            self.store.replace(self)

    def _finish(self) -> None:
        self._over = True
        self._connected.set()
        self._connection.close(self._expired())

    def _expired(self) -> SessionExpired:
        return SessionExpired(f"session {self.session_id} (generation {self.generation}) has expired")

    async def close(self) -> None:
        """In an orderly way, if the ensemble can be reached."""
        if not self._over and self._connection.is_open:
            try:
                await self._connection.ask(lambda _: self.ensemble.close_session(self.session_id))
            except (ConnectionLost, SessionExpired):
                pass
        self._finish()

    async def _ask(self, read: Callable[[_Connection], T], watch: Watch | None = None) -> T:
        if not self._connected.is_set():
            await self._connected.wait()
        if self._over:
            raise self._expired()
        return await self._connection.ask(read, watch)

    async def sync(self) -> None:
        await self._ask(lambda _: self.ensemble.catch_up(self.store))

    async def get(self, path: str, watch: Watch | None = None) -> Znode | None:
        return await self._ask(lambda connection: self.ensemble.get(connection, path, watch), watch)

    async def get_many(self, paths: Sequence[str]) -> list[Znode | None]:
        return await self._ask(lambda _: [self.ensemble.seen_by(self.store).get(path) for path in paths])

    async def children(self, path: str, watch: Watch | None = None) -> list[str] | None:
        return await self._ask(lambda connection: self.ensemble.children(connection, path, watch), watch)

    async def multi(self, operations: Sequence[Operation]) -> MultiResult:
        return await self._ask(lambda _: self.ensemble.apply(self, operations))

    async def multi_many(self, batches: Sequence[Sequence[Operation]]) -> list[MultiResult]:
        """Each batch is a request of its own, so a connection that breaks may have done the first ones only."""
        return list(await asyncio.gather(*map(self.multi, batches)))


class SimStore:
    """One client; see ``store.MetadataStore``."""

    def __init__(self, ensemble: SimZooKeeper, session_timeout: float) -> None:
        self.ensemble = ensemble
        self.session_timeout = session_timeout
        self.context = contextvars.copy_context()
        self.name = process_name()
        self._cut = Direction.NONE
        self._loop = asyncio.get_running_loop()
        self._listeners: list[SessionListener] = []
        self._session: SimSession | None = self._open(1)

    @property
    def cut(self) -> Direction:
        """Set by tests: the messages that are lost from now on."""
        return self._cut

    @cut.setter
    def cut(self, value: Direction) -> None:
        if value is not self._cut:
            self._cut = value
            kind = "joined with ensemble" if value is Direction.NONE else "cut from ensemble"
            self.ensemble.journal.note(self.name, kind, str(value.name))

    @property
    def session(self) -> SimSession | None:
        return self._session

    @property
    def credentials(self) -> SessionCredentials | None:
        return None if self._session is None else SessionCredentials(self._session.session_id, b"")

    def add_session_listener(self, listener: SessionListener) -> None:
        self._listeners.append(listener)

    async def close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.close()
            self.tell(SessionEvent.ENDED, session)

    def replace(self, ended: SimSession) -> None:
        """A session is over: begin the next."""
        if self._session is ended:
            self.tell(SessionEvent.ENDED, ended)
            self._session = self._open(ended.generation + 1)
            self.tell(SessionEvent.STARTED, self._session)

    def _open(self, generation: int) -> SimSession:
        self.ensemble.catch_up(self)  # The member that opens a session has written that.
        return SimSession(self, self.ensemble.open_session(self.session_timeout), generation)

    def tell(self, event: SessionEvent, session: SimSession) -> None:
        for listener in self._listeners:
            self._loop.call_soon(listener, event, session)
