"""``KazooConnection``: a kazoo client for one session. The one file that imports kazoo.

kazoo works in threads of its own. What it reports crosses into the event loop through one queue, which wakes the loop
once for however many reports have come. Every request is kazoo's asynchronous form, and many are under way at once.

kazoo replaces an expired session by a new one while requests may be queued. Here each session has a kazoo client of its
own, which is thrown away with it. One lock is held while a request is queued and while kazoo's thread notes the end of
the session, so that no request meant for one session can reach another.

Paths lie below the chroot of the connect string. Requests that kazoo does not know are encoded here: a multi whose
creates return their stats, and many reads in one request.
"""

import asyncio
import logging
import math
import threading
from collections.abc import Callable, Sequence
from enum import Enum, auto
from functools import partial
from typing import Any, Final, NamedTuple

from kazoo.client import KazooClient, KazooState
from kazoo.exceptions import (
    EXCEPTIONS,
    BadVersionError,
    KazooException,
    NoChildrenForEphemeralsError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    SessionExpiredError,
)
from kazoo.interfaces import IAsyncResult
from kazoo.protocol.serialization import (
    CheckVersion,
    Create2,
    GetData,
    MultiHeader,
    Transaction,
    int_struct,
    multiheader_struct,
    stat_struct,
)
from kazoo.protocol.serialization import Delete as DeleteRequest
from kazoo.protocol.serialization import SetData as SetDataRequest
from kazoo.protocol.states import EventType, WatchedEvent, ZnodeStat
from kazoo.retry import KazooRetry
from kazoo.security import OPEN_ACL_UNSAFE

from oncelog.coordinator.metadata_store.kazoo_log import KazooLog
from oncelog.coordinator.metadata_store.loop_crossing import LoopCrossing
from oncelog.coordinator.metadata_store.store import (
    Check,
    ConnectionLost,
    Create,
    Delete,
    Done,
    MultiFailed,
    MultiResult,
    Operation,
    SessionExpired,
    SetData,
    Stat,
    StoreError,
    Znode,
)
from oncelog.coordinator.metadata_store.zookeeper_address import ConnectString, SessionCredentials

logger = logging.getLogger(__name__)

ROOT: Final = "/"
_EPHEMERAL: Final = 1
_SEQUENTIAL: Final = 2
_ERROR: Final = -1
_HANDSHAKES_PER_TIMEOUT: Final = 9
"""Of the time-out that is requested; the server may grant half of that."""
_RECONNECT: Final = KazooRetry(max_tries=-1, delay=0.05, backoff=2, max_jitter=0.4, max_delay=1.0)
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
        self._chroot = connect.chroot
        self._events = events
        self._gate = threading.Lock()
        """Held while a request is queued, and while kazoo's thread notes the end of the session."""
        self._log = KazooLog()
        options = {"client_id": credentials, "connection_retry": _RECONNECT, "logger": self._log}
        self._client = KazooClient(hosts=connect.hosts, timeout=timeout_seconds, **options)
        self._learn_granted_timeout()
        self._bound_handshakes(timeout_seconds / _HANDSHAKES_PER_TIMEOUT)
        self._client.add_listener(self._state_changed)
        self._client.start_async()

    @property
    def trouble(self) -> str:
        """Why no server can be reached, in parentheses, to follow a sentence; empty if kazoo has not said."""
        return self._log.reason

    def _learn_granted_timeout(self) -> None:
        """Intercept the granted time-out: kazoo passes it to its own connection only, two thirds of it, in ms."""
        connection = self._client._connection
        connect = connection._connect

        def connect_and_learn(*arguments: Any) -> tuple[float, float]:
            read_timeout, connect_timeout = connect(*arguments)
            self.timeout_seconds = read_timeout * 1.5 / 1000
            return read_timeout, connect_timeout

        connection._connect = connect_and_learn

    def _bound_handshakes(self, seconds: float) -> None:
        """Bound the wait for a server's first response, for which kazoo waits a whole session time-out.

        A server that has just been started accepts connections before it serves, and may never respond on those. A
        session that waits for such a response has expired before the second attempt.
        """
        connection, handler = self._client._connection, self._client.handler
        invoke, create_connection = connection._invoke, handler.create_connection

        def invoke_in_time(timeout: float, *arguments: Any, **named: Any) -> Any:
            return invoke(min(timeout, seconds), *arguments, **named)

        def connect_in_time(*arguments: Any, timeout: float, **named: Any) -> Any:
            return create_connection(*arguments, timeout=min(timeout, seconds), **named)

        connection._invoke, handler.create_connection = invoke_in_time, connect_in_time

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
        await self._start(lambda: self._client.sync_async(self._path(ROOT)))

    async def exists(self, path: str, *, watch: bool) -> bool:
        """Return whether a znode exists; ``watch``: report when it is created, set or deleted."""
        event = self._data_changed if watch else None
        return bool(await self._start(lambda: self._client.exists_async(self._path(path), event)))

    async def get(self, path: str, *, watch: bool) -> Znode | None:
        """Return a znode; ``watch``: report when it is set or deleted, if there is one."""
        event = self._data_changed if watch else None
        try:
            data, stat = await self._start(lambda: self._client.get_async(self._path(path), event))
        except NoNodeError:
            return None
        return Znode(data=data, stat=_stat(stat))

    async def get_many(self, paths: Sequence[str]) -> list[Znode | None]:
        """Return many znodes, in few requests."""
        self._require_session()
        requests = [
            _MultiRead([self._path(path) for path in paths[first : first + _READS_PER_REQUEST]])
            for first in range(0, len(paths), _READS_PER_REQUEST)
        ]
        responses = await asyncio.gather(*(self._start(partial(self._call, request)) for request in requests))
        return [_znode(found) for response in responses for found in response]

    async def children(self, path: str, *, watch: bool) -> list[str] | None:
        """Return the names of a znode's children; ``watch``: report when they change, if there is the znode."""
        event = self._children_changed if watch else None
        try:
            names = await self._start(lambda: self._client.get_children_async(self._path(path), event))
        except NoNodeError:
            return None
        return sorted(names)

    async def multi(self, operations: Sequence[Operation]) -> MultiResult:
        """Do all operations or none."""
        results = await self._multi([_encoded(operation, self._path(operation.path)) for operation in operations])
        if isinstance(results, MultiFailed):
            return results
        return [self._done(operation, result) for operation, result in zip(operations, results, strict=True)]

    async def make_chroot(self) -> None:
        """Create the znodes of the chroot that do not exist."""
        parts = self._chroot.split("/")[1:]
        for count in range(1, len(parts) + 1):
            path = "/" + "/".join(parts[:count])
            await self._multi([_encoded(Create(path=path), path)])

    async def _multi(self, requests: list[Any]) -> list[Any] | MultiFailed:
        results = await self._start(lambda: self._call(_Multi(requests)))
        for index, result in enumerate(results):
            if type(result) in _REFUSALS:
                return MultiFailed(index=index, error=_REFUSALS[type(result)])
        for result in results:
            if isinstance(result, Exception):
                raise ConnectionLost(f"ZooKeeper refused a multi: {type(result).__name__}")
        return list(results)

    def _call(self, request: "_Multi | _MultiRead") -> IAsyncResult:
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
        return SessionExpired(f"session {self.session_id:#x} is over")

    def _path(self, path: str) -> str:
        return (self._chroot + path).rstrip("/") or ROOT

    def _without_chroot(self, path: str) -> str:
        return path.removeprefix(self._chroot) or ROOT

    def _done(self, operation: Operation, result: Any) -> Done:
        if isinstance(operation, Create):
            path, stat = result
            return Done(path=self._without_chroot(path), stat=_stat(stat))
        return Done(path=operation.path, stat=_stat(result) if isinstance(result, ZnodeStat) else None)

    # Watch events. kazoo keeps one registration of each callable per path.

    def _data_changed(self, event: WatchedEvent) -> None:
        self._cross(self._events.data_changed, self._changed_path(event))

    def _children_changed(self, event: WatchedEvent) -> None:
        self._cross(self._events.children_changed, self._changed_path(event))

    def _changed_path(self, event: WatchedEvent) -> str | None:
        return None if event.type == EventType.NONE else self._without_chroot(event.path)


class _Multi:
    """A multi whose creates return their stats: kazoo's own encodes the older create."""

    type = Transaction.type

    def __init__(self, operations: list[Any]) -> None:
        self._operations = operations

    def serialize(self) -> bytearray:
        request = bytearray()
        for operation in self._operations:
            request += MultiHeader(operation.type, False, -1).serialize() + operation.serialize()
        request += multiheader_struct.pack(-1, True, -1)
        return request

    @classmethod
    def deserialize(cls, response: bytes, offset: int) -> list[Any]:
        """Return one result per operation: (path, stat) of a create, a stat of a set, True, or an exception."""
        header, offset = MultiHeader.deserialize(response, offset)
        results: list[Any] = []
        while not header.done:
            if header.type == Create2.type:
                path, stat = Create2.deserialize(response, offset)
                offset += int_struct.size + len(path.encode()) + stat_struct.size
                results.append((path, stat))
            elif header.type == SetDataRequest.type:
                results.append(ZnodeStat._make(stat_struct.unpack_from(response, offset)))
                offset += stat_struct.size
            elif header.type == _ERROR:
                results.append(EXCEPTIONS[int_struct.unpack_from(response, offset)[0]]())
                offset += int_struct.size
            else:
                results.append(True)
            header, offset = MultiHeader.deserialize(response, offset)
        return results


class _MultiRead:
    """Many reads in one request (ZooKeeper 3.6 and later), which kazoo does not know: each costs it a millisecond."""

    type = 22

    def __init__(self, paths: Sequence[str]) -> None:
        self._paths = paths

    def serialize(self) -> bytearray:
        request = bytearray()
        for path in self._paths:
            request += MultiHeader(GetData.type, False, -1).serialize() + GetData(path, None).serialize()
        request += multiheader_struct.pack(-1, True, -1)
        return request

    @classmethod
    def deserialize(cls, response: bytes, offset: int) -> list[tuple[bytes, ZnodeStat] | KazooException]:
        """Return the data and stat of each path, or an exception."""
        header, offset = MultiHeader.deserialize(response, offset)
        results: list[tuple[bytes, ZnodeStat] | KazooException] = []
        while not header.done:
            if header.type == _ERROR:
                results.append(EXCEPTIONS[int_struct.unpack_from(response, offset)[0]]())
                offset += int_struct.size
            else:
                data, stat = GetData.deserialize(response, offset)
                offset += int_struct.size + len(data) + stat_struct.size
                results.append((data, stat))
            header, offset = MultiHeader.deserialize(response, offset)
        return results


def _encoded(operation: Operation, path: str) -> Any:
    """Return kazoo's form of an operation on a path that includes the chroot."""
    match operation:
        case Create(data=data, ephemeral=ephemeral, sequential=sequential):
            flags = _EPHEMERAL * ephemeral | _SEQUENTIAL * sequential
            return Create2(path, data, OPEN_ACL_UNSAFE, flags)
        case SetData(data=data, version=version):
            return SetDataRequest(path, data, version)
        case Delete(version=version):
            return DeleteRequest(path, version)
        case Check(version=version):
            return CheckVersion(path, version)


def _stat(stat: ZnodeStat) -> Stat:
    return Stat(czxid=stat.czxid, mzxid=stat.mzxid, version=stat.version, ephemeral_owner=stat.ephemeralOwner)


def _znode(found: tuple[bytes, ZnodeStat] | KazooException) -> Znode | None:
    if isinstance(found, NoNodeError):
        return None
    if isinstance(found, Exception):
        raise ConnectionLost(f"ZooKeeper refused a read: {type(found).__name__}")
    data, stat = found
    return Znode(data=data, stat=_stat(stat))
