"""The metadata store on ZooKeeper: its client, and the sessions that it has one after the other.

*A session is live* for two thirds of its time-out after the last request that certainly has a response, counted from
when that request was sent: the store may have received it later than that, but not earlier. A request is sent for that
purpose alone several times within the time-out. So a process that was stopped finds its session not live when it goes
on, whatever the store thinks of it. The time-out is what the server grants, which may be less than what was requested:
at most twenty of its ticks.

*A watch* is kept here, by path, and fires once; losing the connection fires them all, as kazoo forgets them then.

Paths lie below the chroot of the connect string, ``host:port,host:port/chroot``, which is created when it is missing.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, TypeAlias

from oncelog.coordinator.metadata_store.kazoo_client import ConnectionEvents, ConnectionState, KazooConnection
from oncelog.coordinator.metadata_store.store import (
    MultiResult,
    Operation,
    Session,
    SessionEvent,
    SessionExpired,
    SessionListener,
    StoreUnavailable,
    Watch,
    Znode,
)
from oncelog.coordinator.metadata_store.watches import WatchTable
from oncelog.coordinator.metadata_store.znode_access import ZnodeAccess
from oncelog.coordinator.metadata_store.zookeeper_address import ConnectString, SessionCredentials
from oncelog.coordinator.metadata_store.zookeeper_security import UNPROTECTED, ZooKeeperSecurity

logger = logging.getLogger(__name__)

OnWait: TypeAlias = Callable[[str], None]
"""Gets, in parentheses, why no server is reached; empty if that is not known."""

PATIENCE_SECONDS: Final = 2.0
"""After which a store that waits for its first session calls ``OnWait``, or ends if a server has refused it."""
_ADVICE: Final = "see that ZooKeeper runs, and that this is the address of its client port"
_LIVE_SHARE: Final = 2 / 3
_CONTACTS_PER_TIMEOUT: Final = 6
_MOST_AT_ONCE: Final = 1_000
"""Multis of one bulk call that are under way together."""


def _say_nothing(trouble: str) -> None:
    pass


async def connect_zookeeper(
    connect: str,
    *,
    session_timeout_ms: int,
    connection_timeout_ms: int,
    security: ZooKeeperSecurity = UNPROTECTED,
    on_wait: OnWait = _say_nothing,
) -> "ZooKeeperStore":
    """Return a client with a session.

    Raises StoreUnavailable if there is none within the connection time-out, or if a server and this client cannot work
    together as they are configured.
    """
    store = ZooKeeperStore(ConnectString.parse(connect), session_timeout_ms / 1000, security)
    try:
        await store.started(connection_timeout_ms / 1000, on_wait)
    except StoreUnavailable:
        await store.close()
        raise
    return store


async def end_session(
    connect: str,
    credentials: SessionCredentials,
    *,
    session_timeout_ms: int,
    connection_timeout_ms: int,
    security: ZooKeeperSecurity = UNPROTECTED,
    on_wait: OnWait = _say_nothing,
) -> None:
    """Take over a session that a former process has left, and close it: its ephemerals are gone then.

    A session that has ended already is no error. Raises StoreUnavailable if the store does not respond in time.
    """
    store = ZooKeeperStore(ConnectString.parse(connect), session_timeout_ms / 1000, security, credentials)
    try:
        await store.started(connection_timeout_ms / 1000, on_wait)
    finally:
        await store.close()


class _Plan(NamedTuple):
    """How a session is begun."""

    connect: ConnectString
    timeout_seconds: float
    security: ZooKeeperSecurity
    credentials: SessionCredentials | None = None
    """Of a session to take over."""


class _SessionEvents(NamedTuple):
    """What a session calls, on the event loop."""

    happened: Callable[["ZooKeeperSession", SessionEvent], None]
    refused: Callable[["ZooKeeperSession", str], None]
    """With why a server and this client cannot work together, and the remedy."""


class ZooKeeperSession(Session):
    """One session with ZooKeeper."""

    generation: int = 0

    def __init__(self, plan: "_Plan", generation: int, events: "_SessionEvents") -> None:
        self.generation = generation
        self._loop = asyncio.get_running_loop()
        self._on_event = events.happened
        self._is_known = False
        """Whether the store has responded, so that the session has begun."""
        self._outages = self._ended_outages = 0
        """How often the session was suspended, or found not live; and how many of these outages have ended."""
        self._contact_timer: asyncio.TimerHandle | None = None
        self._data_watches = WatchTable()
        self._child_watches = WatchTable()
        self._connection = KazooConnection(
            plan.connect,
            plan.timeout_seconds,
            plan.credentials,
            plan.security,
            ConnectionEvents(
                state_changed=self._follow,
                data_changed=partial(self._fire, self._data_watches),
                children_changed=partial(self._fire, self._child_watches),
                refused=partial(events.refused, self),
            ),
        )

    @property
    def session_id(self) -> int:
        """The store's id of the session; 0 before the first connection."""
        return self._connection.session_id

    @property
    def last_contact(self) -> float:
        """The loop's time at which the last request was sent that has a response."""
        return self._connection.last_contact

    @property
    def credentials(self) -> SessionCredentials:
        """What a later process needs to end this session."""
        return SessionCredentials(self._connection.session_id, self._connection.password)

    @property
    def trouble(self) -> str:
        """Why no server can be reached, in parentheses; empty if that is not known."""
        return self._connection.trouble

    def is_live(self) -> bool:
        """Return whether the store certainly still holds this session's ephemerals."""
        connection = self._connection
        live_seconds = connection.timeout_seconds * _LIVE_SHARE
        return not connection.is_over and self._loop.time() < connection.last_contact + live_seconds

    # Beginning, contact and end

    def _follow(self, state: ConnectionState) -> None:
        if state is ConnectionState.CONNECTED and not self._connection.is_over:
            self._keep_contact()
        elif state is ConnectionState.SUSPENDED and self._is_known:
            self._outages += 1
            self._on_event(self, SessionEvent.SUSPENDED)
        elif state is ConnectionState.LOST:
            self._end()

    def _keep_contact(self) -> None:
        """Send a probe, and another one several times within the time-out."""
        self._stop_contact()
        if self._connection.is_over:
            return
        interval = self._connection.timeout_seconds / _CONTACTS_PER_TIMEOUT
        self._contact_timer = self._loop.call_later(interval, self._keep_contact)
        if self._is_known and self._outages == self._ended_outages and not self.is_live():
            self._outages += 1
        outage = self._outages
        self._connection.probe().add_done_callback(lambda probe: self._on_contact(probe, outage))

    def _on_contact(self, probe: "asyncio.Future[Any]", outage: int) -> None:
        """End the outage during which the probe was sent, unless another one has begun since."""
        if probe.cancelled() or probe.exception() is not None or self._connection.is_over:
            return
        if not self._is_known:
            self._is_known = True
            self._on_event(self, SessionEvent.STARTED)
        elif outage == self._outages and self._ended_outages < outage:
            self._ended_outages = outage
            self._on_event(self, SessionEvent.RESUMED)

    def _end(self) -> None:
        self._stop_contact()
        self._fire_everything()
        self._on_event(self, SessionEvent.ENDED)

    def _stop_contact(self) -> None:
        if self._contact_timer is not None:
            self._contact_timer.cancel()

    async def close(self) -> None:
        """End the session at the store, if it can be reached, and the client in any case."""
        self._stop_contact()
        await self._connection.close()

    # Operations

    async def make_chroot(self) -> None:
        """Create the znodes of the chroot that do not exist."""
        await self._connection.make_chroot()

    async def sync(self) -> None:
        """Make later reads see all writes that were done before this."""
        await self._connection.sync()

    async def get(self, path: str, watch: Watch | None = None) -> Znode | None:
        """Return the znode, or None. The watch fires when it is created, set or deleted."""
        if watch is not None:
            self._data_watches.add(path, watch)
        while True:
            znode = await self._connection.get(path, watch=watch is not None)
            if znode is not None or watch is None:
                return znode
            # ``exists`` leaves a watch of the creation; by then the znode may exist.
            if not await self._connection.exists(path, watch=True):
                return None

    async def get_many(self, paths: Sequence[str]) -> list[Znode | None]:
        """Return the znodes of ``paths``, in order."""
        return await self._connection.get_many(paths)

    async def children(self, path: str, watch: Watch | None = None) -> list[str] | None:
        """Return the names of the znode's children, sorted; None, and no watch, if there is no such znode."""
        if watch is None:
            return await self._connection.children(path, watch=False)
        self._child_watches.add(path, watch)
        names = await self._connection.children(path, watch=True)
        if names is None:
            self._child_watches.discard(path, watch)
        return names

    async def multi(self, operations: Sequence[Operation]) -> MultiResult:
        """Do all operations or none."""
        return await self._connection.multi(operations)

    async def multi_many(self, batches: Sequence[Sequence[Operation]]) -> list[MultiResult]:
        """Do several multis in order, each atomic in itself."""
        if self._connection.is_over:
            raise SessionExpired(f"session {self.session_id:#x} (generation {self.generation}) has expired")
        results: list[MultiResult] = []
        for first in range(0, len(batches), _MOST_AT_ONCE):
            results += await asyncio.gather(*map(self.multi, batches[first : first + _MOST_AT_ONCE]))
        return results

    async def set_access(self, path: str, access: ZnodeAccess) -> None:
        """Replace the access control list of a znode, if there is one."""
        await self._connection.set_access(path, access)

    async def is_open(self, path: str) -> bool:
        """Return whether there is a znode that everybody can change."""
        return await self._connection.is_open(path)

    # Watches

    def _fire(self, watches: WatchTable, path: str | None) -> None:
        if path is None:
            self._fire_everything()
            return
        for watch in watches.pop(path):
            watch()

    def _fire_everything(self) -> None:
        for watch in self._data_watches.pop_all() + self._child_watches.pop_all():
            watch()


class ZooKeeperStore:
    """One client, with one session after the other. Made by ``connect_zookeeper``."""

    def __init__(
        self,
        connect: ConnectString,
        timeout_seconds: float,
        security: ZooKeeperSecurity = UNPROTECTED,
        credentials: SessionCredentials | None = None,
    ) -> None:
        self._plan = _Plan(connect, timeout_seconds, security)
        self._loop = asyncio.get_running_loop()
        self._listeners: list[SessionListener] = []
        self._started: asyncio.Future[None] = self._loop.create_future()
        self._refused: asyncio.Future[str] = self._loop.create_future()
        """Why a server and this client cannot work together, by the first that does not."""
        self._reported_refusal = ""
        """The last that was logged since a server has responded."""
        self._closing = False
        self._leaving: set[asyncio.Task[None]] = set()
        """The tasks that close sessions that have ended."""
        self._current = self._open(1, self._plan._replace(credentials=credentials))
        self._session: ZooKeeperSession | None = None

    @property
    def session(self) -> ZooKeeperSession | None:
        """The current session, or None while there is none."""
        return self._session

    @property
    def credentials(self) -> SessionCredentials | None:
        """What a later process needs to end the current session; None if there is none."""
        return None if self._session is None else self._session.credentials

    def add_session_listener(self, listener: SessionListener) -> None:
        """Call ``listener`` with the session's events, on the event loop, in order."""
        self._listeners.append(listener)

    async def started(self, timeout_seconds: float, on_wait: OnWait) -> None:
        """Wait for the first session. Raises StoreUnavailable if it does not begin in time, or cannot."""
        where = "".join(self._plan.connect) + " (zookeeper.connect)"
        try:
            async with asyncio.timeout(timeout_seconds):
                await self._until_started_or_refused(on_wait)
        except TimeoutError:
            what = f"no session with ZooKeeper at {where} within {timeout_seconds:g} s"
            raise StoreUnavailable(f"{what}{self._current.trouble}: {_ADVICE}") from None
        if not self._started.done():
            raise StoreUnavailable(f"no session with ZooKeeper at {where}: {self._refused.result()}")
        await self._current.make_chroot()

    async def _until_started_or_refused(self, on_wait: OnWait) -> None:
        """Return when there is a session, or a server has refused it and there was time for the others."""
        outcomes: list[asyncio.Future[Any]] = [self._started, self._refused]
        first = outcomes[:1] if self._plan.connect.has_several_hosts else outcomes
        await asyncio.wait(first, timeout=PATIENCE_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        if not (self._started.done() or self._refused.done()):
            on_wait(self._current.trouble)
            await asyncio.wait(outcomes, return_when=asyncio.FIRST_COMPLETED)

    async def close(self) -> None:
        """End the session: its ephemerals are gone on return, if the store could be reached."""
        self._closing = True
        await self._current.close()
        if self._session is not None:
            session, self._session = self._session, None
            self._notify(SessionEvent.ENDED, session)
        if self._leaving:
            await asyncio.wait(self._leaving)

    def _open(self, generation: int, plan: _Plan) -> ZooKeeperSession:
        return ZooKeeperSession(plan, generation, _SessionEvents(self._on_event, self._on_refusal))

    def _on_refusal(self, session: ZooKeeperSession, reason: str) -> None:
        if session is not self._current or self._closing:
            return
        if not self._refused.done():
            self._refused.set_result(reason)
        if self._started.done() and reason != self._reported_refusal:
            logger.warning("A server of ZooKeeper does not work with this broker any more: %s", reason)
            self._reported_refusal = reason

    def _on_event(self, session: ZooKeeperSession, event: SessionEvent) -> None:
        if session is not self._current or self._closing:
            return
        if event in (SessionEvent.STARTED, SessionEvent.RESUMED):
            self._reported_refusal = ""
        if event is SessionEvent.STARTED:
            self._session = session
            if not self._started.done():
                self._started.set_result(None)
        elif event is SessionEvent.ENDED:
            known, self._session = self._session, None
            task = self._loop.create_task(session.close())
            self._leaving.add(task)
            task.add_done_callback(self._leaving.discard)
            self._current = self._open(session.generation + 1, self._plan)
            if known is None:
                return  # It had not begun, as with the credentials of a session that has expired.
        self._notify(event, session)

    def _notify(self, event: SessionEvent, session: ZooKeeperSession) -> None:
        for listener in self._listeners:
            self._loop.call_soon(listener, event, session)
