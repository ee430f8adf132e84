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
    SessionExpiredError,
)
from kazoo.interfaces import IAsyncResult
from kazoo.protocol.states import EventType, WatchedEvent, ZnodeStat

from oncelog.coordinator.metadata_store.kazoo_encodings import (
    Multi,
    MultiRead,
    decode_stat,
    decode_znode,
    encode_operation,
)
from oncelog.coordinator.metadata_store.kazoo_factory import make_client
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
from oncelog.coordinator.metadata_store.zookeeper_address import ROOT, ConnectString, SessionCredentials

logger = logging.getLogger(__name__)

_READS_PER_REQUEST: Final = 500

_REFUSALS: Final[dict[type[KazooException], StoreError]] = {
    NoNodeError: StoreError.NO_NODE,
    NodeExistsError: StoreError.NODE_EXISTS,
    BadVersionError: StoreError.BAD_VERSION,
    NotEmptyError: StoreError.NOT_EMPTY,
    NoChildrenForEphemeralsError: StoreError.NO_CHILDREN_FOR_EPHEMERALS,
}


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


class KazooConnection:
    """Requests to ZooKeeper in one session. All raise ``SessionExpired`` or ``ConnectionLost``."""

    def __init__(
        self,
        connect: ConnectString,
        timeout_seconds: float,
        credentials: SessionCredentials | None,
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
        self._events = events
        self._gate = threading.Lock()
        """Held while a request is queued, and while kazoo's thread notes the end of the session."""
        self._log = KazooLog()
        self._client = make_client(connect.hosts, timeout_seconds, credentials, self._log, self._note_granted_timeout)
        self._client.add_listener(self._state_changed)
        self._client.start_async()

    @property
    def trouble(self) -> str:
        """Why no server can be reached, in parentheses, to follow a sentence; empty if kazoo has not said."""
        return self._log.reason

    def _note_granted_timeout(self, seconds: float) -> None:
        self.timeout_seconds = seconds

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
        return self._start(lambda: self._client.exists_async(ROOT))

    async def sync(self) -> None:
        """Make later reads see all writes that were done before this."""
        await self._start(lambda: self._client.sync_async(self._address.with_chroot(ROOT)))

    async def exists(self, path: str, *, watch: bool) -> bool:
        """Return whether a znode exists; ``watch``: report when it is created, set or deleted."""
        event = self._data_changed if watch else None
        return bool(await self._start(lambda: self._client.exists_async(self._address.with_chroot(path), event)))

    async def get(self, path: str, *, watch: bool) -> Znode | None:
        """Return a znode; ``watch``: report when it is set or deleted, if there is one."""
        event = self._data_changed if watch else None
        try:
            data, stat = await self._start(lambda: self._client.get_async(self._address.with_chroot(path), event))
        except NoNodeError:
            return None
        return Znode(data=data or b"", stat=decode_stat(stat))

    async def get_many(self, paths: Sequence[str]) -> list[Znode | None]:
        """Return many znodes, in few requests."""
        self._require_session()
        requests = [
            MultiRead([self._address.with_chroot(path) for path in paths[first : first + _READS_PER_REQUEST]])
            for first in range(0, len(paths), _READS_PER_REQUEST)
        ]
        responses = await asyncio.gather(*(self._start(partial(self._call, request)) for request in requests))
        return [decode_znode(found) for response in responses for found in response]

    async def children(self, path: str, *, watch: bool) -> list[str] | None:
        """Return the names of a znode's children; ``watch``: report when they change, if there is the znode."""
        event = self._children_changed if watch else None
        try:
            names = await self._start(lambda: self._client.get_children_async(self._address.with_chroot(path), event))
        except NoNodeError:
            return None
        return sorted(names)

    async def multi(self, operations: Sequence[Operation]) -> MultiResult:
        """Do all operations or none."""
        address = self._address
        results = await self._multi([encode_operation(each, address.with_chroot(each.path)) for each in operations])
        if isinstance(results, MultiFailed):
            return results
        return [self._done(operation, result) for operation, result in zip(operations, results, strict=True)]

    async def make_chroot(self) -> None:
        """Create the znodes of the chroot that do not exist."""
        for path in self._address.chroot_znodes():
            await self._multi([encode_operation(Create(path=path), path)])

    async def _multi(self, requests: list[Any]) -> list[Any] | MultiFailed:
        results = await self._start(lambda: self._call(Multi(requests)))
        for index, result in enumerate(results):
            if type(result) in _REFUSALS:
                return MultiFailed(index=index, error=_REFUSALS[type(result)])
        for result in results:
            if isinstance(result, Exception):
                raise ConnectionLost(f"ZooKeeper refused a multi: {type(result).__name__}")
        return list(results)

    def _call(self, request: Multi | MultiRead) -> IAsyncResult:
        """Queue a request of our own, as kazoo does with its own."""
        result = self._client.handler.async_result()
        self._client._call(request, result)
        return result

    def _start(self, request: Callable[[], IAsyncResult]) -> "asyncio.Future[Any]":
        """Queue a request; return the future of its response."""
        future: asyncio.Future[Any] = self._loop.create_future()
        sent = self._loop.time()
        with self._gate:
            if self.is_over:
                future.set_exception(self._expired())
                return future
            result = request()
        result.rawlink(lambda done: self._cross(self._settle, future, done, sent))
        return future

    def _settle(self, future: "asyncio.Future[Any]", done: IAsyncResult, sent: float) -> None:
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
            future.set_exception(ConnectionLost(f"{type(error).__name__} {error}".strip()))
        if error is not None:
            future.exception()  # The caller may have been cancelled; the loop must not warn of the error then.

    def _require_session(self) -> None:
        if self.is_over:
            raise self._expired()

    def _expired(self) -> SessionExpired:
        return SessionExpired(f"session {self.session_id:#x} has expired")

    def _done(self, operation: Operation, result: Any) -> Done:
        if isinstance(operation, Create):
            path, stat = result
            return Done(path=self._address.without_chroot(path), stat=decode_stat(stat))
        return Done(path=operation.path, stat=decode_stat(result) if isinstance(result, ZnodeStat) else None)

    # Watch events. kazoo keeps one registration of each callable per path.

    def _data_changed(self, event: WatchedEvent) -> None:
        self._cross(self._events.data_changed, self._changed_path(event))

    def _children_changed(self, event: WatchedEvent) -> None:
        self._cross(self._events.children_changed, self._changed_path(event))

    def _changed_path(self, event: WatchedEvent) -> str | None:
        return None if event.type == EventType.NONE else self._address.without_chroot(event.path)
