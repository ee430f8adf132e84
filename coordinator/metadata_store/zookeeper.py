"""The metadata store on ZooKeeper, through kazoo: the one file that imports it.

kazoo works in threads of its own. What it tells crosses into the event loop through one queue, which wakes the loop
once for however many answers have come. Every operation is kazoo's asynchronous form, and many are under way at once.

*A session is a client.* kazoo replaces an expired session by a new one behind the back of whoever still queues
operations. Here each session has a kazoo client to itself, which is thrown away with it; the moment in which kazoo
learns of the end and the moment in which an operation is queued exclude each other, so that no operation meant for one
session can reach another.

*A session is live* for two thirds of its time-out after the last request that was certainly answered, counted from when
that request was sent: the store may have heard of us later than that, but not earlier. A request is sent for that
purpose alone several times within the time-out. So a process that was stopped finds its session not live when it goes
on, whatever the store thinks of it. The time-out is what the server grants, which may be less than was asked for: at
most twenty of its ticks.

*A watch* is kept here, by path, and fires once; losing the connection fires them all, as kazoo forgets them then.

Paths lie below the chroot of the connect string, ``host:port,host:port/chroot``, which is created when it is missing.
"""

import asyncio
import logging
import math
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, TypeVar

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
    ANY_VERSION,
    Check,
    ConnectionLost,
    Create,
    Delete,
    Done,
    MultiFailed,
    MultiResult,
    Operation,
    SessionEvent,
    SessionExpired,
    SessionListener,
    SetData,
    Stat,
    StoreError,
    StoreUnavailable,
    Watch,
    Znode,
)
from oncelog.coordinator.metadata_store.zookeeper_address import ConnectString, SessionCredentials

logger = logging.getLogger(__name__)
_T = TypeVar("_T")

_EPHEMERAL: Final = 1
_SEQUENTIAL: Final = 2
_ERROR: Final = -1
_ROOT: Final = "/"
_LIVE_SHARE: Final = 2 / 3
_CONTACTS_PER_TIMEOUT: Final = 6
_HANDSHAKES_PER_TIMEOUT: Final = 9  # Of the time-out that is asked for; what is granted may be half of that.
_RECONNECT: Final = KazooRetry(max_tries=-1, delay=0.05, backoff=2, max_jitter=0.4, max_delay=1.0)
_MOST_AT_ONCE: Final = 1_000
"""Multis of one bulk call that are under way together."""
_READS_PER_REQUEST: Final = 500

_REFUSALS: Final[dict[type[KazooException], StoreError]] = {
    NoNodeError: StoreError.NO_NODE,
    NodeExistsError: StoreError.NODE_EXISTS,
    BadVersionError: StoreError.BAD_VERSION,
    NotEmptyError: StoreError.NOT_EMPTY,
    NoChildrenForEphemeralsError: StoreError.NO_CHILDREN_FOR_EPHEMERALS,
}


async def connect_zookeeper(connect: str, *, session_timeout_ms: int, connection_timeout_ms: int) -> "ZooKeeperStore":
    """A client with a session. ``StoreUnavailable`` when there is none within the connection time-out."""
    store = ZooKeeperStore(ConnectString.parse(connect), session_timeout_ms / 1000)
    try:
        await store.started(connection_timeout_ms / 1000)
    except StoreUnavailable:
        await store.close()
        raise
    return store


async def end_session(
    connect: str, credentials: SessionCredentials, *, session_timeout_ms: int, connection_timeout_ms: int
) -> None:
    """Take over a session that a former life of this client has left, and close it: its ephemerals are gone then.

    One that is over already is as good. ``StoreUnavailable`` when the store cannot be asked in time.
    """
    store = ZooKeeperStore(ConnectString.parse(connect), session_timeout_ms / 1000, credentials)
    try:
        await store.started(connection_timeout_ms / 1000)
    finally:
        await store.close()


class _Multi:
    """A multi whose creates answer their stats: kazoo's own knows only the older create."""

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
    def deserialize(cls, answer: bytes, offset: int) -> list[Any]:
        """For each operation its answer: (path, stat) of a create, a stat of a set, True, or an exception."""
        header, offset = MultiHeader.deserialize(answer, offset)
        results: list[Any] = []
        while not header.done:
            if header.type == Create2.type:
                path, stat = Create2.deserialize(answer, offset)
                offset += int_struct.size + len(path.encode()) + stat_struct.size
                results.append((path, stat))
            elif header.type == SetDataRequest.type:
                results.append(ZnodeStat._make(stat_struct.unpack_from(answer, offset)))
                offset += stat_struct.size
            elif header.type == _ERROR:
                results.append(EXCEPTIONS[int_struct.unpack_from(answer, offset)[0]]())
                offset += int_struct.size
            else:
                results.append(True)
            header, offset = MultiHeader.deserialize(answer, offset)
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
    def deserialize(cls, answer: bytes, offset: int) -> list[tuple[bytes, ZnodeStat] | KazooException]:
        """For each path its data and stat, or an exception."""
        header, offset = MultiHeader.deserialize(answer, offset)
        results: list[tuple[bytes, ZnodeStat] | KazooException] = []
        while not header.done:
            if header.type == _ERROR:
                results.append(EXCEPTIONS[int_struct.unpack_from(answer, offset)[0]]())
                offset += int_struct.size
            else:
                data, stat = GetData.deserialize(answer, offset)
                offset += int_struct.size + len(data) + stat_struct.size
                results.append((data, stat))
            header, offset = MultiHeader.deserialize(answer, offset)
        return results


class ZooKeeperSession:
    """One session. See ``store.Session`` for what its methods promise."""

    def __init__(
        self,
        connect: ConnectString,
        timeout_seconds: float,
        generation: int,
        credentials: SessionCredentials | None,
        on_event: Callable[["ZooKeeperSession", SessionEvent], None],
    ) -> None:
        self.generation = generation
        self.session_id = 0
        self.password = b""
        self._loop = asyncio.get_running_loop()
        self._cross = LoopCrossing()
        self._chroot = connect.chroot
        self._timeout_seconds = timeout_seconds
        self._on_event = on_event
        self._gate = threading.Lock()
        """Held while an operation is queued, and while kazoo's thread notes the end of the session."""
        self._over = False
        self.last_contact = -math.inf
        self._is_known = False
        """Whether the store has been heard from, so that the session has begun."""
        self._outages = self._ended_outages = 0
        """How often the session was suspended, or found not live; and up to which of them the end was told."""
        self._contact_timer: asyncio.TimerHandle | None = None
        self._data_watches: dict[str, dict[Watch, None]] = {}
        self._child_watches: dict[str, dict[Watch, None]] = {}
        self.log = KazooLog()
        options = {"client_id": credentials, "connection_retry": _RECONNECT, "logger": self.log}
        self._client = KazooClient(hosts=connect.hosts, timeout=timeout_seconds, **options)
        self._learn_granted_timeout()
        self._bound_handshakes(timeout_seconds / _HANDSHAKES_PER_TIMEOUT)
        self._client.add_listener(self._state_changed)
        self._client.start_async()

    def is_live(self) -> bool:
        return not self._over and self._loop.time() < self.last_contact + self._timeout_seconds * _LIVE_SHARE

    def _learn_granted_timeout(self) -> None:
        """What time-out was granted, kazoo tells its own connection only: two thirds of it, in milliseconds."""
        connection = self._client._connection
        connect = connection._connect

        def connect_and_learn(*arguments: Any) -> tuple[float, float]:
            read_timeout, connect_timeout = connect(*arguments)
            self._timeout_seconds = read_timeout * 1.5 / 1000
            return read_timeout, connect_timeout

        connection._connect = connect_and_learn

    def _bound_handshakes(self, seconds: float) -> None:
        """Give up a connection whose greeting is not answered in time, and try another: kazoo waits a whole time-out.

        A server that has just been started takes connections before it serves, and may never answer those. A session
        that waits for such an answer is over when it comes to a second attempt.
        """
        connection, handler = self._client._connection, self._client.handler
        invoke, create_connection = connection._invoke, handler.create_connection

        def invoke_in_time(timeout: float, *arguments: Any, **named: Any) -> Any:
            return invoke(min(timeout, seconds), *arguments, **named)

        def connect_in_time(*arguments: Any, timeout: float, **named: Any) -> Any:
            return create_connection(*arguments, timeout=min(timeout, seconds), **named)

        connection._invoke, handler.create_connection = invoke_in_time, connect_in_time

    # Beginning and end

    def _state_changed(self, state: str) -> None:
        """In kazoo's thread, before it does anything else about the change."""
        if state == KazooState.LOST:
            with self._gate:
                self._over = True
        elif state == KazooState.CONNECTED and self.session_id == 0:
            self.session_id, self.password = self._client.client_id
        self._cross(self._follow, state)

    def _follow(self, state: str) -> None:
        if state == KazooState.CONNECTED and not self._over:
            self._keep_contact()
        elif state == KazooState.SUSPENDED and self._is_known:
            self._outages += 1
            self._on_event(self, SessionEvent.SUSPENDED)
        elif state == KazooState.LOST:
            self._end()

    def _keep_contact(self) -> None:
        """Ask for nothing, to hear that the store still hears us; and do so again some time later."""
        if self._contact_timer is not None:
            self._contact_timer.cancel()
        if self._over:
            return
        interval = self._timeout_seconds / _CONTACTS_PER_TIMEOUT
        self._contact_timer = self._loop.call_later(interval, self._keep_contact)
        if self._is_known and self._outages == self._ended_outages and not self.is_live():
            self._outages += 1
        outage = self._outages
        contact = self._start(lambda: self._client.exists_async(_ROOT))
        contact.add_done_callback(lambda future: self._heard(future, outage))

    def _heard(self, contact: "asyncio.Future[Any]", outage: int) -> None:
        """An answer ends the outage during which it was asked for, not one that began since."""
        if contact.cancelled() or contact.exception() is not None or self._over:
            return
        if not self._is_known:
            self._is_known = True
            self._on_event(self, SessionEvent.STARTED)
        elif outage == self._outages and self._ended_outages < outage:
            self._ended_outages = outage
            self._on_event(self, SessionEvent.RESUMED)

    def _end(self) -> None:
        if self._contact_timer is not None:
            self._contact_timer.cancel()
        self._fire_everything()
        self._on_event(self, SessionEvent.ENDED)

    async def close(self) -> None:
        """End the session at the store, if it can be reached, and the client in any case."""
        with self._gate:
            self._over = True
        if self._contact_timer is not None:
            self._contact_timer.cancel()
        await asyncio.to_thread(self._stop)

    def _stop(self) -> None:
        try:
            self._client.stop()
        except Exception as error:  # kazoo's own, and whatever its sockets raise while they go away.
            logger.info("the session with ZooKeeper was not ended in an orderly way: %s", error)
        finally:
            self._client.close()

    # Operations

    def _start(self, operation: Callable[[], IAsyncResult]) -> "asyncio.Future[Any]":
        """Queue an operation; the future is that of its answer. ``SessionExpired`` if the session is over."""
        future: asyncio.Future[Any] = self._loop.create_future()
        sent = self._loop.time()
        with self._gate:
            if self._over:
                future.set_exception(self._expired())
                return future
            result = operation()
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
        elif self._over or isinstance(error, SessionExpiredError):
            future.set_exception(self._expired())
        else:
            future.set_exception(ConnectionLost(f"{type(error).__name__} {error}".strip()))
        if error is not None:
            future.exception()  # Whoever asked may have gone; then nobody is to be warned.

    def _expired(self) -> SessionExpired:
        return SessionExpired(f"session {self.session_id:#x} (generation {self.generation}) is over")

    def _path(self, path: str) -> str:
        return (self._chroot + path).rstrip("/") or _ROOT

    def _without_chroot(self, path: str) -> str:
        return path.removeprefix(self._chroot) or _ROOT

    async def sync(self) -> None:
        await self._start(lambda: self._client.sync_async(self._path(_ROOT)))

    async def get(self, path: str, watch: Watch | None = None) -> Znode | None:
        if watch is not None:
            self._data_watches.setdefault(path, {})[watch] = None
        event = None if watch is None else self._data_changed
        while True:
            try:
                data, stat = await self._start(lambda: self._client.get_async(self._path(path), event))
                return Znode(data=data, stat=_stat(stat))
            except NoNodeError:
                # A watch for the creation is left by asking whether it exists; by then it may.
                if event is None or not await self._start(lambda: self._client.exists_async(self._path(path), event)):
                    return None

    async def get_many(self, paths: Sequence[str]) -> list[Znode | None]:
        if self._over:
            raise self._expired()
        requests = [
            _MultiRead([self._path(path) for path in paths[first : first + _READS_PER_REQUEST]])
            for first in range(0, len(paths), _READS_PER_REQUEST)
        ]
        answers = await asyncio.gather(*(self._start(partial(self._call, request)) for request in requests))
        return [_znode(found) for answer in answers for found in answer]

    async def children(self, path: str, watch: Watch | None = None) -> list[str] | None:
        if watch is not None:
            self._child_watches.setdefault(path, {})[watch] = None
        event = None if watch is None else self._children_changed
        try:
            names = await self._start(lambda: self._client.get_children_async(self._path(path), event))
        except NoNodeError:
            self._forget(self._child_watches, path, watch)
            return None
        return sorted(names)

    async def create(
        self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequential: bool = False
    ) -> Done | StoreError:
        return await self._one(Create(path=path, data=data, ephemeral=ephemeral, sequential=sequential))

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> Done | StoreError:
        return await self._one(SetData(path=path, data=data, version=version))

    async def delete(self, path: str, version: int = ANY_VERSION) -> Done | StoreError:
        return await self._one(Delete(path=path, version=version))

    async def _one(self, operation: Operation) -> Done | StoreError:
        result = await self.multi([operation])
        return result.error if isinstance(result, MultiFailed) else result[0]

    async def multi(self, operations: Sequence[Operation]) -> MultiResult:
        requests = [self._request(operation) for operation in operations]
        answers = await self._start(lambda: self._call(_Multi(requests)))
        for index, answer in enumerate(answers):
            if type(answer) in _REFUSALS:
                return MultiFailed(index=index, error=_REFUSALS[type(answer)])
        for answer in answers:
            if isinstance(answer, Exception):
                raise ConnectionLost(f"ZooKeeper refused a multi: {type(answer).__name__}")
        return [self._done(operation, answer) for operation, answer in zip(operations, answers, strict=True)]

    async def multi_many(self, batches: Sequence[Sequence[Operation]]) -> list[MultiResult]:
        if self._over:
            raise self._expired()
        results: list[MultiResult] = []
        for first in range(0, len(batches), _MOST_AT_ONCE):
            results += await asyncio.gather(*(self.multi(batch) for batch in batches[first : first + _MOST_AT_ONCE]))
        return results

    def _call(self, request: _Multi | _MultiRead) -> IAsyncResult:
        """Queue a request of our own, as kazoo does with its own."""
        result = self._client.handler.async_result()
        self._client._call(request, result)
        return result

    def _request(self, operation: Operation) -> Any:
        path = self._path(operation.path)
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

    def _done(self, operation: Operation, answer: Any) -> Done:
        if isinstance(operation, Create):
            path, stat = answer
            return Done(path=self._without_chroot(path), stat=_stat(stat))
        return Done(path=operation.path, stat=_stat(answer) if isinstance(answer, ZnodeStat) else None)

    # Watches

    def _data_changed(self, event: WatchedEvent) -> None:
        self._cross(self._fire, self._data_watches, event)

    def _children_changed(self, event: WatchedEvent) -> None:
        self._cross(self._fire, self._child_watches, event)

    def _fire(self, watches: dict[str, dict[Watch, None]], event: WatchedEvent) -> None:
        if event.type == EventType.NONE:
            self._fire_everything()
            return
        for watch in watches.pop(self._without_chroot(event.path), ()):
            watch()

    def _fire_everything(self) -> None:
        for watches in (self._data_watches, self._child_watches):
            fired = [watch for of_path in watches.values() for watch in of_path]
            watches.clear()
            for watch in fired:
                watch()

    @staticmethod
    def _forget(watches: dict[str, dict[Watch, None]], path: str, watch: Watch | None) -> None:
        of_path = watches.get(path)
        if watch is not None and of_path is not None:
            of_path.pop(watch, None)
            if not of_path:
                del watches[path]


class ZooKeeperStore:
    """One client, with one session after the other. Made by ``connect_zookeeper``."""

    def __init__(
        self, connect: ConnectString, timeout_seconds: float, credentials: SessionCredentials | None = None
    ) -> None:
        self._connect = connect
        self._timeout_seconds = timeout_seconds
        self._loop = asyncio.get_running_loop()
        self._listeners: list[SessionListener] = []
        self._started: asyncio.Future[None] = self._loop.create_future()
        self._closing = False
        self._leaving: set[asyncio.Task[None]] = set()
        """The ends of sessions that are over."""
        self._current = self._open(1, credentials)
        self._session: ZooKeeperSession | None = None

    @property
    def session(self) -> ZooKeeperSession | None:
        return self._session

    @property
    def credentials(self) -> SessionCredentials | None:
        session = self._session
        return None if session is None else SessionCredentials(session.session_id, session.password)

    def add_session_listener(self, listener: SessionListener) -> None:
        self._listeners.append(listener)

    async def started(self, timeout_seconds: float) -> None:
        """Wait for the first session. ``StoreUnavailable`` if it does not come in time."""
        try:
            async with asyncio.timeout(timeout_seconds):
                await asyncio.shield(self._started)
        except TimeoutError:
            where = "".join(self._connect) + " (zookeeper.connect)"
            what = f"no session with ZooKeeper at {where} within {timeout_seconds:g} s"
            raise StoreUnavailable(what + self._current.log.reason) from None
        await self._make_chroot()

    async def close(self) -> None:
        self._closing = True
        await self._current.close()
        if self._session is not None:
            session, self._session = self._session, None
            self._tell(SessionEvent.ENDED, session)
        if self._leaving:
            await asyncio.wait(self._leaving)

    async def _make_chroot(self) -> None:
        """Create what is missing of the chroot, from a session that has none."""
        session = self._current
        chroot, session._chroot = session._chroot, ""
        try:
            parts = chroot.split("/")[1:]
            for count in range(1, len(parts) + 1):
                await session.create("/" + "/".join(parts[:count]))
        finally:
            session._chroot = chroot

    def _open(self, generation: int, credentials: SessionCredentials | None = None) -> ZooKeeperSession:
        return ZooKeeperSession(self._connect, self._timeout_seconds, generation, credentials, self._on_event)

    def _on_event(self, session: ZooKeeperSession, event: SessionEvent) -> None:
        if session is not self._current or self._closing:
            return
        if event is SessionEvent.STARTED:
            self._session = session
            if not self._started.done():
                self._started.set_result(None)
        elif event is SessionEvent.ENDED:
            known, self._session = self._session, None
            task = self._loop.create_task(session.close())
            self._leaving.add(task)
            task.add_done_callback(self._leaving.discard)
            self._current = self._open(session.generation + 1)
            if known is None:
                return  # It had not begun, as when the credentials of an ended one were tried.
        self._tell(event, session)

    def _tell(self, event: SessionEvent, session: ZooKeeperSession) -> None:
        for listener in self._listeners:
            self._loop.call_soon(listener, event, session)


def _stat(stat: ZnodeStat) -> Stat:
    return Stat(czxid=stat.czxid, mzxid=stat.mzxid, version=stat.version, ephemeral_owner=stat.ephemeralOwner)


def _znode(found: tuple[bytes, ZnodeStat] | KazooException) -> Znode | None:
    if isinstance(found, NoNodeError):
        return None
    if isinstance(found, Exception):
        raise ConnectionLost(f"ZooKeeper refused a read: {type(found).__name__}")
    data, stat = found
    return Znode(data=data, stat=_stat(stat))
