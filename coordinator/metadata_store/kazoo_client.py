"""``KazooConnection``: a kazoo client for one session. Only the files named ``kazoo_*`` import kazoo.

kazoo works in threads of its own. What it reports crosses into the event loop through one queue, which wakes the loop
once for however many reports have come. Every request is kazoo's asynchronous form, and many are under way at once.

kazoo replaces an expired session by a new one while requests may be queued. Here each session has a kazoo client of its
own, which is thrown away with it. One lock is held while a request is queued and while kazoo's thread notes the end of
the session, so that no request meant for one session can reach another.

Paths lie below the chroot of the connect string.
"""

import asyncio
import logging
import math
import threading
from collections.abc import Callable, Sequence
from enum import Enum, auto
from functools import partial
from typing import Any, Final, NamedTuple

from kazoo.client import KazooState
from kazoo.exceptions import (
    BadVersionError,
    KazooException,
    NoChildrenForEphemeralsError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    RolledBackError,
    RuntimeInconsistency,
    SessionClosedRequireSaslError,
    SessionExpiredError,
)
from kazoo.interfaces import IAsyncResult
from kazoo.protocol.states import EventType, WatchedEvent, ZnodeStat

from oncelog.coordinator.metadata_store.kazoo_encodings import (
    Multi,
    MultiRead,
    decode_stat,
    decode_znode,
    encode_access,
    encode_operation,
    may_be_changed_by_all,
    refusal,
)
from oncelog.coordinator.metadata_store.kazoo_factory import make_client
from oncelog.coordinator.metadata_store.kazoo_handshake import HandshakeReports
from oncelog.coordinator.metadata_store.kazoo_log import KazooLog
from oncelog.coordinator.metadata_store.loop_crossing import LoopCrossing
from oncelog.coordinator.metadata_store.store import (
    ConnectionLost,
    Create,
    Done,
    MultiFailed,
    MultiResult,
    Operation,
    SessionExpired,
    StoreError,
    Znode,
)
from oncelog.coordinator.metadata_store.znode_access import ZnodeAccess, access_of
from oncelog.coordinator.metadata_store.zookeeper_address import ROOT, ConnectString, SessionCredentials
from oncelog.coordinator.metadata_store.zookeeper_security import ZooKeeperSecurity

logger = logging.getLogger(__name__)

_READS_PER_REQUEST: Final = 500

_NEEDS_LOGIN: Final = "ZooKeeper accepts only clients that log in: set oncelog.zookeeper.sasl.jaas.config"

_REFUSALS: Final[dict[type[KazooException], StoreError]] = {
    NoNodeError: StoreError.NO_NODE,
    NodeExistsError: StoreError.NODE_EXISTS,
    BadVersionError: StoreError.BAD_VERSION,
    NotEmptyError: StoreError.NOT_EMPTY,
    NoChildrenForEphemeralsError: StoreError.NO_CHILDREN_FOR_EPHEMERALS,
}
_CONSEQUENCES: Final = (RolledBackError, RuntimeInconsistency)
"""The results of operations of a multi that another one of it has kept from being done."""


class ConnectionState(Enum):
    """The states that kazoo reports."""

    CONNECTED = auto()
    SUSPENDED = auto()
    LOST = auto()


_STATES: Final = {
    KazooState.CONNECTED: ConnectionState.CONNECTED,
    KazooState.SUSPENDED: ConnectionState.SUSPENDED,
    KazooState.LOST: ConnectionState.LOST,
}


class ConnectionEvents(NamedTuple):
    """What a connection calls, on the event loop. A path of None: the watches of all paths are gone."""

    state_changed: Callable[[ConnectionState], None]
    data_changed: Callable[[str | None], None]
    children_changed: Callable[[str | None], None]
    refused: Callable[[str], None]
    """With why a server and this client cannot work together, and the remedy."""


class KazooConnection:
    """Requests to ZooKeeper in one session. All raise ``SessionExpired`` or ``ConnectionLost``."""

    def __init__(
        self,
        connect: ConnectString,
        timeout_seconds: float,
        credentials: SessionCredentials | None,
        security: ZooKeeperSecurity,
        events: ConnectionEvents,
    ) -> None:
        """Begin to connect.

        ``timeout_seconds``: the session time-out to request. ``credentials``: of a session to take over.
        """
        self.timeout_seconds = timeout_seconds
        """The session time-out that was granted, when there has been a connection."""
        self.session_id = 0
        self.password = b""
        self.is_over = False
        """Whether the session has ended, or this connection was closed."""
        self.last_contact = -math.inf
        """The loop's time at which the last request was sent that has a response."""
        self._loop = asyncio.get_running_loop()
        self._cross = LoopCrossing()
        self._address = connect
        self._full = connect.with_chroot
        self._access_of = access_of if security.protects_znodes else _open_to_all
        self._events = events
        self._on_data = partial(self._changed, events.data_changed)
        self._on_children = partial(self._changed, events.children_changed)
        """kazoo keeps one registration of each callable per path."""
        self._gate = threading.Lock()
        """Held while a request is queued, and while kazoo's thread notes the end of the session."""
        self._log = KazooLog()
        self._refusal = ""
        reports = HandshakeReports(self._note_connected, self._note_refusal)
        self._client = make_client(connect.hosts, timeout_seconds, credentials, security, self._log, reports)
        self._client.add_listener(self._state_changed)
        self._client.start_async()

    @property
    def trouble(self) -> str:
        """Why no server can be reached, in parentheses, to follow a sentence; empty if kazoo has not said."""
        return f" ({self._refusal})" if self._refusal else self._log.reason

    def _note_connected(self, timeout_seconds: float) -> None:
        """Note in kazoo's thread that a server works with this client, and the session time-out that it granted."""
        self.timeout_seconds = timeout_seconds
        self._refusal = ""

    def _note_refusal(self, reason: str) -> None:
        """Note why a server and this client cannot work together, also in kazoo's thread."""
        self._refusal = reason
        self._cross(self._events.refused, reason)

    def _state_changed(self, state: str) -> None:
        """Note a state in kazoo's thread, before kazoo does anything else about it."""
        if state == KazooState.LOST:
            self._note_end()
        elif state == KazooState.CONNECTED and self.session_id == 0:
            self.session_id, self.password = self._client.client_id
        self._cross(self._events.state_changed, _STATES[state])

    def _note_end(self) -> None:
        with self._gate:
            self.is_over = True

    async def close(self) -> None:
        """End the session at the store, if it can be reached, and the client in any case."""
        self._note_end()
        await asyncio.to_thread(self._stop)

    def _stop(self) -> None:
        try:
            self._client.stop()
        except (KazooException, OSError) as error:
            logger.info("the session with ZooKeeper was not ended in an orderly way: %s", error)
        finally:
            self._client.close()

    # Requests

    def probe(self) -> "asyncio.Future[Any]":
        """Send a request whose only purpose is its response."""
        return self._start(ROOT, lambda: self._client.exists_async(ROOT))

    async def sync(self) -> None:
        """Make later reads see all writes that were done before this."""
        await self._start(ROOT, lambda: self._client.sync_async(self._address.with_chroot(ROOT)))

    async def exists(self, path: str, *, watch: bool) -> bool:
        """Return whether a znode exists; ``watch``: report when it is created, set or deleted."""
        event = self._on_data if watch else None
        return bool(await self._start(path, lambda: self._client.exists_async(self._full(path), event)))

    async def get(self, path: str, *, watch: bool) -> Znode | None:
        """Return a znode; ``watch``: report when it is set or deleted, if there is one."""
        event = self._on_data if watch else None
        try:
            data, stat = await self._start(path, lambda: self._client.get_async(self._full(path), event))
        except NoNodeError:
            return None
        return Znode(data=data or b"", stat=decode_stat(stat))

    async def get_many(self, paths: Sequence[str]) -> list[Znode | None]:
        """Return many znodes, in few requests."""
        if self.is_over:
            raise self._expired()
        requests = [
            MultiRead([self._full(path) for path in paths[first : first + _READS_PER_REQUEST]])
            for first in range(0, len(paths), _READS_PER_REQUEST)
        ]
        responses = await asyncio.gather(*(self._start(ROOT, partial(self._call, request)) for request in requests))
        found = (each for response in responses for each in response)
        return [decode_znode(each, path) for path, each in zip(paths, found, strict=True)]

    async def children(self, path: str, *, watch: bool) -> list[str] | None:
        """Return the names of a znode's children; ``watch``: report when they change, if there is the znode."""
        event = self._on_children if watch else None
        try:
            names = await self._start(path, lambda: self._client.get_children_async(self._full(path), event))
        except NoNodeError:
            return None
        return sorted(names)

    async def multi(self, operations: Sequence[Operation]) -> MultiResult:
        """Do all operations or none."""
        requests = [encode_operation(each, self._full(each.path), self._access_of(each.path)) for each in operations]
        results = await self._multi(requests)
        if isinstance(results, MultiFailed):
            return results
        return [_done(self._address, each, result) for each, result in zip(operations, results, strict=True)]

    async def make_chroot(self) -> None:
        """Create the znodes of the chroot that do not exist."""
        for path in self._address.chroot_znodes():
            await self._multi([encode_operation(Create(path=path), path, self._access_of(ROOT))])

    async def set_access(self, path: str, access: ZnodeAccess) -> None:
        """Replace the access control list of a znode, if there is one."""
        acls = encode_access(access)
        try:
            await self._start(path, lambda: self._client.set_acls_async(self._full(path), acls))
        except NoNodeError:
            return

    async def is_open(self, path: str) -> bool:
        """Return whether there is a znode that everybody can change."""
        try:
            acls, _ = await self._start(path, lambda: self._client.get_acls_async(self._full(path)))
        except NoNodeError:
            return False
        return may_be_changed_by_all(acls)

    async def _multi(self, requests: list[Any]) -> list[Any] | MultiFailed:
        results = await self._start(ROOT, lambda: self._call(Multi(requests)))
        for index, result in enumerate(results):
            if type(result) in _REFUSALS:
                return MultiFailed(index=index, error=_REFUSALS[type(result)])
        failures = [(request.path, each) for request, each in zip(requests, results, strict=True) if _failed(each)]
        for path, error in failures:
            if not isinstance(error, _CONSEQUENCES):
                raise refusal(error, path)
        if failures:
            raise ConnectionLost("ZooKeeper refused a multi")
        return list(results)

    def _call(self, request: Multi | MultiRead) -> IAsyncResult:
        """Queue a request of our own, as kazoo does with its own."""
        result = self._client.handler.async_result()
        self._client._call(request, result)
        return result

    def _start(self, path: str, request: Callable[[], IAsyncResult]) -> "asyncio.Future[Any]":
        """Queue a request, which is about a path; return the future of its response."""
        future: asyncio.Future[Any] = self._loop.create_future()
        sent = self._loop.time()
        with self._gate:
            if self.is_over:
                future.set_exception(self._expired())
                return future
            result = request()
        result.rawlink(lambda done: self._cross(self._settle, future, done, sent, path))
        return future

    def _settle(self, future: "asyncio.Future[Any]", done: IAsyncResult, sent: float, path: str) -> None:
        error = done.exception
        if error is None or type(error) in _REFUSALS:
            self.last_contact = max(self.last_contact, sent)
        if future.done():
            return
        if error is None:
            future.set_result(done.value)
        elif type(error) in _REFUSALS:
            future.set_exception(error)
        elif self.is_over or isinstance(error, SessionExpiredError):
            future.set_exception(self._expired())
        else:
            if isinstance(error, SessionClosedRequireSaslError):
                self._note_refusal(_NEEDS_LOGIN)
            future.set_exception(refusal(error, path))
        if error is not None:
            future.exception()  # The caller may have been cancelled; the loop must not warn of the error then.

    def _expired(self) -> SessionExpired:
        return SessionExpired(f"session {self.session_id:#x} has expired")

    def _changed(self, report: Callable[[str | None], None], event: WatchedEvent) -> None:
        """Report a watch event."""
        self._cross(report, None if event.type == EventType.NONE else self._address.without_chroot(event.path))


def _open_to_all(path: str) -> ZnodeAccess:
    return ZnodeAccess.OPEN


def _failed(result: Any) -> bool:
    return isinstance(result, KazooException)


def _done(address: ConnectString, operation: Operation, result: Any) -> Done:
    if isinstance(operation, Create):
        path, stat = result
        return Done(path=address.without_chroot(path), stat=decode_stat(stat))
    return Done(path=operation.path, stat=decode_stat(result) if isinstance(result, ZnodeStat) else None)
