"""One lane to one other broker: its connection, the requests that wait for it, and the watch over it.

A connection is made when the first request for it comes, and then kept. Requests go out in the order in which they were
given, responses come back in that order. Nothing is retried here: when a connection ends, every request without a
response gets None, because only its sender knows whether to retry.

While a broker cannot be reached, a new attempt is made at most every ``_PAUSE_SECONDS``; requests given in between fail
at once. The end of a connection that was in use says that its broker may be gone, so it is tried at once to connect
again. A link that is watched connects all the time, and sends heartbeats over its connection.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Final, NamedTuple

from oncelog.broker.peers.heartbeat import Heartbeat
from oncelog.broker.peers.lanes import LOWEST_VERSIONS, RESPONSES
from oncelog.broker.peers.link_state import CONNECTING_STATES, LinkEvent, LinkState, next_state
from oncelog.broker.replication.replica_host import Spawn
from oncelog.broker.security.peer_security import PeerSecurity
from oncelog.clients.connection import Address, Connection, connect
from oncelog.clients.errors import ClientError
from oncelog.coordinator.ports import OnResponse
from oncelog.protocol.schema import Message

logger = logging.getLogger(__name__)

_CONNECT_SECONDS: Final = (2.0,)
_RECONNECT_SECONDS: Final = (0.1, 0.4)
"""Of the attempts after a connection broke. A refusal needs no second one."""
_PAUSE_SECONDS: Final = 0.05
_WATCH_PAUSE_SECONDS: Final = 0.25
_PATIENCE_SECONDS: Final = 1.0
"""A watched broker that was never connected to may still be starting."""
_MOST_WAITING: Final = 10_000
"""Requests that wait for a connection to be made."""


class PendingRequest(NamedTuple):
    """A request, and what is called with its response, or with None."""

    request: Message
    on_response: OnResponse


class Peer(NamedTuple):
    """The other end of a link."""

    broker_id: int
    client_id: str
    """By which this broker names itself to it."""
    address_of: Callable[[int], Address | None]
    request_seconds: float
    security: PeerSecurity


def _ignore_request(request: Message, response: "asyncio.Future[Message]") -> None:
    """Do nothing: no heartbeat depends on the request."""


class Link:
    """One lane to one broker."""

    def __init__(self, peer: Peer, spawn: Spawn, on_unreachable: Callable[[int, bool], None]) -> None:
        """Begin idle; ``on_unreachable`` gets the broker's id, and whether the last attempt was refused."""
        self._peer = peer
        self._spawn = spawn
        self._on_unreachable = on_unreachable
        self._loop = asyncio.get_running_loop()
        self._state = LinkState.IDLE
        self._connection: Connection | None = None
        """The last one, which may have ended."""
        self._not_before = 0.0
        """When the next request may cause an attempt to connect, by the loop's clock."""
        self._failing_since: float | None = None
        """When the attempts began to fail; None while the last one succeeded."""
        self._refused = False
        """Whether the last attempt was refused."""
        self._waiting: list[PendingRequest] = []
        self._is_watched = False
        self._heartbeat: Heartbeat | None = None
        self._watch_timer: asyncio.TimerHandle | None = None
        self.on_sent: Callable[[Message, asyncio.Future[Message]], None] = _ignore_request
        """Called with each request that was sent, and the future of its response."""

    @property
    def is_connected(self) -> bool:
        """Whether there is an open connection."""
        return self._connection is not None and self._connection.is_open

    def send(self, pending: PendingRequest) -> None:
        """Send a request as soon as there is a connection; its response is None if it cannot be sent."""
        connection = self._connection
        if connection is not None and connection.is_open and not self._waiting:
            self._send(connection, pending)
            return
        may_wait = self._state in CONNECTING_STATES or self._loop.time() >= self._not_before
        if self._state is LinkState.CLOSED or not may_wait or len(self._waiting) >= _MOST_WAITING:
            pending.on_response(None)
            return
        self._waiting.append(pending)
        self._need_connection()

    def connect(self) -> None:
        """Make a connection unless there is one, or an attempt has just failed."""
        if self._loop.time() >= self._not_before:
            self._need_connection()

    def watch(self) -> None:
        """Stay connected from now on, and notice when the broker does not respond any more."""
        if self._is_watched:
            return
        self._is_watched = True
        self._failing_since = None
        if self._connection is not None and self._connection.is_open:
            self._heartbeat = Heartbeat(self._connection)
        else:
            self._need_connection()

    def unwatch(self) -> None:
        """Leave the connection alone from now on."""
        self._is_watched = False
        self._stop_watching()

    def expect_work(self, request: Message, response: "asyncio.Future[Message]") -> None:
        """Allow more missed heartbeats until the broker has responded to a request on another lane."""
        if self._heartbeat is not None:
            self._heartbeat.expect_work(request, response)

    def check_address(self) -> None:
        """Give up a connection to where the broker was before it moved: nothing there may ever end it."""
        connection = self._connection
        if connection is None or not connection.is_open:
            return
        address = self._peer.address_of(self._peer.broker_id)
        if address is not None and address != connection.address:
            connection.abort()

    def close(self) -> None:
        """Close the connection; requests that wait get no response."""
        self._happened(LinkEvent.CLOSED)
        self._stop_watching()
        if self._connection is not None:
            self._connection.close()
        self._fail_waiting()

    def abort(self) -> None:
        """Close without waiting until what is written has left."""
        if self._connection is not None:
            self._connection.abort()
        self.close()

    def _happened(self, event: LinkEvent) -> bool:
        """Change the state. Returns whether it has changed."""
        before, self._state = self._state, next_state(self._state, event)
        return self._state is not before

    def _stop_watching(self) -> None:
        if self._watch_timer is not None:
            self._watch_timer.cancel()
        self._stop_heartbeat()

    def _stop_heartbeat(self) -> None:
        if self._heartbeat is not None:
            self._heartbeat.stop()
            self._heartbeat = None

    # Connecting

    def _need_connection(self) -> None:
        if not self.is_connected and self._happened(LinkEvent.NEEDED):
            self._spawn(self._open(), f"connect to broker {self._peer.broker_id}")

    async def _open(self) -> None:
        if await self._try_to_connect(_CONNECT_SECONDS) or self._failing_since is None or not self._is_watched:
            return
        if self._loop.time() - self._failing_since > _PATIENCE_SECONDS:
            self._on_unreachable(self._peer.broker_id, self._refused)

    def _lost(self, closed: "asyncio.Future[ClientError]") -> None:
        self._stop_heartbeat()
        if self._happened(LinkEvent.LOST):
            logger.info("The connection to broker %d is lost: %s", self._peer.broker_id, closed.result())
            self._spawn(self._open_again(), f"connect to broker {self._peer.broker_id} again")

    async def _open_again(self) -> None:
        if not await self._try_to_connect(_RECONNECT_SECONDS) and self._state is not LinkState.CLOSED:
            self._on_unreachable(self._peer.broker_id, self._refused)

    async def _try_to_connect(self, attempts: tuple[float, ...]) -> bool:
        """Connect within the seconds of one attempt after the other. Returns whether one succeeded."""
        connection = None
        try:
            for seconds in attempts:
                connection = await self._connect(seconds)
                if connection is not None or self._refused:
                    break
        finally:
            if connection is None:
                self._failed()
        if connection is not None:
            self._opened(connection)
        return connection is not None

    async def _connect(self, seconds: float) -> Connection | None:
        peer = self._peer
        address = peer.address_of(peer.broker_id)
        self._refused = False
        if address is None:
            return None
        try:
            return await connect(
                address,
                client_id=peer.client_id,
                connect_seconds=seconds,
                request_seconds=peer.request_seconds,
                tls=peer.security.tls,
                sasl=peer.security.sasl,
            )
        except ClientError as error:
            self._refused = isinstance(error.__cause__, ConnectionRefusedError)
            peer.security.note_failure(peer.broker_id, error, self._loop.time())
            if self._failing_since is None:
                logger.info("Broker %d cannot be reached: %s", peer.broker_id, error)
            return None

    def _opened(self, connection: Connection) -> None:
        if not self._happened(LinkEvent.OPENED):
            connection.close()  # The link was closed meanwhile.
            return
        self._failing_since = None
        self._connection = connection
        connection.closed.add_done_callback(self._lost)
        if self._is_watched:
            self._heartbeat = Heartbeat(connection)
        waiting, self._waiting = self._waiting, []
        for pending in waiting:
            self._send(connection, pending)

    def _failed(self) -> None:
        self._happened(LinkEvent.FAILED)
        now = self._loop.time()
        self._not_before = now + _PAUSE_SECONDS
        if self._failing_since is None:
            self._failing_since = now
        self._fail_waiting()
        if self._is_watched and self._state is not LinkState.CLOSED:
            if self._watch_timer is not None:
                self._watch_timer.cancel()
            self._watch_timer = self._loop.call_later(_WATCH_PAUSE_SECONDS, self._need_connection)

    # Sending

    def _send(self, connection: Connection, pending: PendingRequest) -> None:
        try:
            kind = type(pending.request)
            response = connection.send(pending.request, RESPONSES[kind], at_least=LOWEST_VERSIONS.get(kind, 0))
        except ClientError as error:
            logger.info("Broker %d was sent no request: %s", self._peer.broker_id, error)
            pending.on_response(None)
            return
        self.on_sent(pending.request, response)
        response.add_done_callback(lambda done: _respond(done, pending.on_response))

    def _fail_waiting(self) -> None:
        waiting, self._waiting = self._waiting, []
        for pending in waiting:
            pending.on_response(None)


def _respond(response: "asyncio.Future[Message]", on_response: OnResponse) -> None:
    failed = response.cancelled() or response.exception() is not None
    on_response(None if failed else response.result())
