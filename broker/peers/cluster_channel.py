"""Requests from this broker's controller, coordinators and replicas to brokers: to itself by a plain call, to others
over a few connections each.

A broker answers a connection's requests in their order, so an answer that waits holds up those behind it, and one that
does not come in time ends the connection. Requests that wait for different things therefore take different *lanes*
(``_Lane``), each a connection of its own: what the controller orders does not wait for followers to replicate a marker.

A connection is made when the first request for it comes, and then kept. Requests of a lane go out in the order in which
they were given, answers come back in that order. Nothing is repeated here: when a connection ends, whoever waits for an
answer is told that it will not come, because only the asker knows whether asking again makes sense.

*Watching.* The end of a connection that was in use says that its broker may be gone. It is tried at once to connect
again. If nobody listens there any more (``on_refused``), the process is certainly not what it was; if nothing is heard
within a moment (``on_silence``), it may be stopped, busy, or cut off, or this broker may be. Neither is proof: the
metadata store says who is alive, and until it does, whoever acts on it must be safe if it was wrong. A broker that is
*watched* is connected to all the time, on a lane of its own, and asked something small five times a second: one that
does not answer for 1.6 seconds (longer while it has much to do for us) counts as a broken connection. A broker answers
on that lane although a disk that stalls keeps its event loop from turning (`oncelog.broker.network.heartbeats`).
Unanswered questions are counted, not timed, so that a process which was itself stopped for a while suspects nobody.
While a watched broker cannot be connected to, they are called again and again. So a broker that falls silent is
suspected after two seconds, and before three have passed others lead what it led.

While a broker cannot be reached, a new attempt is made at most every ``_PAUSE_SECONDS``; requests given in between fail
at once.
"""

import asyncio
import logging
from collections.abc import Callable
from enum import Enum
from functools import partial
from typing import Final, NamedTuple, TypeAlias, TypeVar

from oncelog.broker.network.heartbeats import heartbeat_client_id
from oncelog.broker.peers.local_channel import LocalChannel
from oncelog.broker.replication.replica_host import Spawn
from oncelog.clients import VERSION
from oncelog.clients.connection import SOFTWARE_NAME, Address, Connection, connect
from oncelog.clients.errors import ClientError
from oncelog.coordinator.ports import OnResponse
from oncelog.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse
from oncelog.protocol.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from oncelog.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from oncelog.protocol.messages.controlled_shutdown import ControlledShutdownRequest, ControlledShutdownResponse
from oncelog.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from oncelog.protocol.messages.leader_and_isr import LeaderAndIsrRequest, LeaderAndIsrResponse
from oncelog.protocol.messages.stop_replica import StopReplicaRequest, StopReplicaResponse
from oncelog.protocol.messages.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse
from oncelog.protocol.messages.write_txn_markers import WriteTxnMarkersRequest, WriteTxnMarkersResponse
from oncelog.protocol.schema import Message

logger = logging.getLogger(__name__)
R = TypeVar("R", bound=Message)

_RESPONSES: Final[dict[type[Message], type[Message]]] = {
    AddPartitionsToTxnRequest: AddPartitionsToTxnResponse,
    AlterPartitionRequest: AlterPartitionResponse,
    ControlledShutdownRequest: ControlledShutdownResponse,
    CreateTopicsRequest: CreateTopicsResponse,
    LeaderAndIsrRequest: LeaderAndIsrResponse,
    StopReplicaRequest: StopReplicaResponse,
    UpdateMetadataRequest: UpdateMetadataResponse,
    WriteTxnMarkersRequest: WriteTxnMarkersResponse,
}
"""The requests that brokers send to each other, and their answers."""


class _Lane(Enum):
    """What is answered without waiting for what the other lanes carry."""

    HEARTBEATS = "heartbeats"
    """Nothing else, so that the other broker can answer them while its event loop stands still."""
    ORDERS = "orders"
    """Of the controller. What is carried out at once."""
    QUESTIONS = "questions"
    """To the controller, which has them wait for those before, and for the metadata store."""
    MARKERS = "markers"
    """Answered when partitions of clients are replicated."""
    VERIFICATION = "verification"
    """Answered when the transaction log is replicated."""


_LANES: Final[dict[type[Message], _Lane]] = {
    AddPartitionsToTxnRequest: _Lane.VERIFICATION,
    AlterPartitionRequest: _Lane.QUESTIONS,
    ControlledShutdownRequest: _Lane.QUESTIONS,
    CreateTopicsRequest: _Lane.QUESTIONS,
    LeaderAndIsrRequest: _Lane.ORDERS,
    StopReplicaRequest: _Lane.ORDERS,
    UpdateMetadataRequest: _Lane.ORDERS,
    WriteTxnMarkersRequest: _Lane.MARKERS,
}

_KEPT: Final = frozenset({_Lane.HEARTBEATS, _Lane.ORDERS})
"""Lanes to a broker that the cluster goes on without: it may come back."""

_LOWEST_VERSIONS: Final[dict[type[Message], int]] = {AddPartitionsToTxnRequest: 4}
"""Of requests whose older versions are for clients, and have no room for what a broker says."""

_CONNECT_SECONDS: Final = 2.0
_RECONNECT_SECONDS: Final = (0.1, 0.4)
"""Of the attempts after a connection broke. A refusal needs no second one."""
_PAUSE_SECONDS: Final = 0.05
_WATCH_PAUSE_SECONDS: Final = 0.25
_PATIENCE_SECONDS: Final = 1.0
"""A watched broker that was never connected to may still be starting."""
_HEARTBEAT_SECONDS: Final = 0.2
_MOST_MISSED: Final = 8
_PARTITIONS_PER_HEARTBEAT: Final = 20
"""What a broker that does nothing else may take between two heartbeats to open or delete logs."""
_MOST_WAITING: Final = 10_000
"""Requests that wait for a connection to be made."""


OnUnreachable: TypeAlias = Callable[[int], None]


def _ignore(broker_id: int) -> None:
    """Nobody wants to know."""


def _ignore_request(request: Message, answer: "asyncio.Future[Message]") -> None:
    """No heartbeat depends on the request."""


class _Question(NamedTuple):
    request: Message
    on_response: OnResponse


class ClusterChannel:
    """Implements ``oncelog.coordinator.ports.BrokerChannel`` for a member of a cluster."""

    def __init__(
        self,
        broker_id: int,
        *,
        local: LocalChannel,
        address_of: Callable[[int], Address | None],
        spawn: Spawn,
        on_refused: OnUnreachable = _ignore,
        on_silence: OnUnreachable = _ignore,
        socket_timeout_ms: int = 30_000,
        request_timeout_ms: int = 30_000,
    ) -> None:
        """``address_of`` tells where another broker listens for brokers; None if that is not known.

        ``socket_timeout_ms`` is how long the controller and who asks it wait for an answer, ``request_timeout_ms`` how
        long transaction coordinators and who asks them do.
        """
        self._broker_id = broker_id
        self._client_id = f"broker-{broker_id}"
        self._local = local
        self.address_of = address_of
        self._spawn = spawn
        self._on_refused = on_refused
        self._on_silence = on_silence
        self._answer_seconds = {
            _Lane.HEARTBEATS: socket_timeout_ms / 1000,
            _Lane.ORDERS: socket_timeout_ms / 1000,
            _Lane.QUESTIONS: socket_timeout_ms / 1000,
            _Lane.MARKERS: request_timeout_ms / 1000,
            _Lane.VERIFICATION: request_timeout_ms / 1000,
        }
        self._links: dict[tuple[int, _Lane], _Link] = {}
        self._closed = False

    def send(self, broker_id: int, request: Message, on_response: OnResponse) -> None:
        if self._closed:
            on_response(None)
        elif broker_id == self._broker_id:
            self._local.send(broker_id, request, _in_another_turn(on_response) if _is_work(request) else on_response)
        else:
            self._link(broker_id, _LANES[type(request)]).send(_Question(request, on_response))

    def watch(self, broker_id: int) -> None:
        """Keep a connection to another broker from now on, and notice when it is of no use any more."""
        if not self._closed:
            self._link(broker_id, _Lane.HEARTBEATS).watch()
            self._link(broker_id, _Lane.ORDERS).connect()  # So that orders leave at once.

    def unwatch(self, broker_id: int) -> None:
        link = self._links.get((broker_id, _Lane.HEARTBEATS))
        if link is not None:
            link.unwatch()

    def give_up(self, broker_id: int) -> None:
        """The cluster goes on without this broker: whoever waits for an answer of it is told that none will come.

        Orders are still brought to it, because it is to hear that it was passed over.
        """
        for lane in _Lane:
            link = None if lane in _KEPT else self._links.pop((broker_id, lane), None)
            if link is not None:
                link.abort()

    def close(self) -> None:
        """Whoever waits, or asks from now on, is told that there will be no answer."""
        self._closed = True
        links, self._links = self._links, {}
        for link in links.values():
            link.close()

    def _link(self, broker_id: int, lane: _Lane) -> "_Link":
        link = self._links.get((broker_id, lane))
        if link is None:
            link = self._links[broker_id, lane] = _Link(
                broker_id,
                heartbeat_client_id(self._broker_id) if lane is _Lane.HEARTBEATS else self._client_id,
                self.address_of,
                self._spawn,
                self._tell_unreachable,
                self._answer_seconds[lane],
            )
            if lane is _Lane.ORDERS:
                link.on_asked = partial(self._expect_work, broker_id)
        return link

    def _expect_work(self, broker_id: int, request: Message, answer: "asyncio.Future[Message]") -> None:
        """An order may keep a broker busy, if it answers heartbeats on its event loop, as older ones do."""
        link = self._links.get((broker_id, _Lane.HEARTBEATS))
        if link is not None:
            link.expect_work(request, answer)

    def _tell_unreachable(self, broker_id: int, refused: bool) -> None:
        (self._on_refused if refused else self._on_silence)(broker_id)

    def is_connected(self, broker_id: int) -> bool:
        """Whether another broker, which is watched, answers heartbeats."""
        link = self._links.get((broker_id, _Lane.HEARTBEATS))
        return link is not None and link.is_connected

    async def ask_once(
        self, address: Address, request: Message, response_type: type[R], *, at_least: int, seconds: float
    ) -> R | None:
        """Send a request over a connection of its own; None if no response comes within this time."""
        try:
            async with asyncio.timeout(seconds):
                connection = await connect(address, client_id=self._client_id, connect_seconds=seconds)
                try:
                    return await connection.send(request, response_type, at_least=at_least)
                finally:
                    connection.close()
        except (ClientError, TimeoutError):
            return None

    async def reaches(self, broker_id: int, seconds: float) -> bool:
        """Whether another broker answers on a new connection within this time."""
        address = self.address_of(broker_id)
        if address is None:
            return False
        try:
            connection = await connect(address, client_id=self._client_id, connect_seconds=seconds)
        except ClientError:
            return False
        connection.close()
        return True


class _Link:
    """One lane to one broker."""

    def __init__(
        self,
        broker_id: int,
        client_id: str,
        address_of: Callable[[int], Address | None],
        spawn: Spawn,
        on_unreachable: Callable[[int, bool], None],
        request_seconds: float,
    ) -> None:
        """``on_unreachable`` is told whether the last attempt was refused."""
        self._broker_id = broker_id
        self._client_id = client_id
        self.address_of = address_of
        self._spawn = spawn
        self._on_unreachable = on_unreachable
        self._request_seconds = request_seconds
        self._loop = asyncio.get_running_loop()
        self._connection: Connection | None = None
        self._opening = False
        self._closed = False
        self._not_before = 0.0
        self._waiting: list[_Question] = []
        self._heartbeat: _Heartbeat | None = None
        self._watched = False
        self._watch_timer: asyncio.TimerHandle | None = None
        self._failing_since: float | None = None
        self._refused = False
        self.on_asked: Callable[[Message, asyncio.Future[Message]], None] = _ignore_request
        """Called with each request that was sent, and the future of its answer."""

    @property
    def is_connected(self) -> bool:
        return self._connection is not None and self._connection.is_open

    def send(self, question: _Question) -> None:
        connection = self._connection
        if connection is not None and connection.is_open and not self._waiting:
            self._ask(connection, question)
            return
        may_wait = self._opening or self._loop.time() >= self._not_before
        if self._closed or not may_wait or len(self._waiting) >= _MOST_WAITING:
            question.on_response(None)
            return
        self._waiting.append(question)
        self._open()

    def connect(self) -> None:
        """Make a connection unless there is one, or an attempt has just failed."""
        if self._loop.time() >= self._not_before:
            self._open()

    def watch(self) -> None:
        if self._watched:
            return
        self._watched = True
        self._failing_since = None
        if self._connection is not None and self._connection.is_open:
            self._heartbeat = _Heartbeat(self._connection)
        else:
            self._open()

    def expect_work(self, request: Message, answer: "asyncio.Future[Message]") -> None:
        """Be more patient with the broker until it has answered a request on another lane."""
        if self._heartbeat is not None:
            self._heartbeat.expect_work(request, answer)

    def unwatch(self) -> None:
        self._watched = False
        self._stop_watching()

    def close(self) -> None:
        self._closed = True
        self._stop_watching()
        if self._connection is not None:
            self._connection.close()
        self._fail_waiting()

    def abort(self) -> None:
        """Close without waiting until what is written has left."""
        if self._connection is not None:
            self._connection.abort()
        self.close()

    def _stop_watching(self) -> None:
        if self._watch_timer is not None:
            self._watch_timer.cancel()
        if self._heartbeat is not None:
            self._heartbeat.stop()
            self._heartbeat = None

    # Connecting

    def _open(self) -> None:
        if not self._opening and not self._closed and (self._connection is None or not self._connection.is_open):
            self._opening = True
            self._spawn(self._open_first(), f"connect to broker {self._broker_id}")

    async def _open_first(self) -> None:
        try:
            connection = await self._connect(_CONNECT_SECONDS)
        finally:
            self._opening = False
        self._take(connection)
        if connection is None and self._failing_since is not None:
            if self._watched and self._loop.time() - self._failing_since > _PATIENCE_SECONDS:
                self._on_unreachable(self._broker_id, self._refused)

    def _lost(self, closed: "asyncio.Future[ClientError]") -> None:
        if self._heartbeat is not None:
            self._heartbeat.stop()
            self._heartbeat = None
        if not self._closed and not self._opening:
            logger.info("The connection to broker %d is lost: %s", self._broker_id, closed.result())
            self._opening = True
            self._spawn(self._open_again(), f"connect to broker {self._broker_id} again")

    async def _open_again(self) -> None:
        connection = None
        try:
            for seconds in _RECONNECT_SECONDS:
                connection = await self._connect(seconds)
                if connection is not None or self._refused:
                    break
        finally:
            self._opening = False
        self._take(connection)
        if connection is None and not self._closed:
            self._on_unreachable(self._broker_id, self._refused)

    async def _connect(self, seconds: float) -> Connection | None:
        address = self.address_of(self._broker_id)
        self._refused = False
        if address is None:
            return None
        try:
            return await connect(
                address, client_id=self._client_id, connect_seconds=seconds, request_seconds=self._request_seconds
            )
        except ClientError as error:
            self._refused = isinstance(error.__cause__, ConnectionRefusedError)
            if self._failing_since is None:
                logger.info("Broker %d cannot be reached: %s", self._broker_id, error)
            return None

    def _take(self, connection: Connection | None) -> None:
        """Use a new connection, or do without."""
        if connection is None:
            self._go_without()
        elif self._closed:
            connection.close()
        else:
            self._failing_since = None
            self._connection = connection
            connection.closed.add_done_callback(self._lost)
            if self._watched:
                self._heartbeat = _Heartbeat(connection)
            waiting, self._waiting = self._waiting, []
            for question in waiting:
                self._ask(connection, question)

    def _go_without(self) -> None:
        now = self._loop.time()
        self._not_before = now + _PAUSE_SECONDS
        if self._failing_since is None:
            self._failing_since = now
        self._fail_waiting()
        if self._watched and not self._closed:
            if self._watch_timer is not None:
                self._watch_timer.cancel()
            self._watch_timer = self._loop.call_later(_WATCH_PAUSE_SECONDS, self._open)

    # Asking

    def _ask(self, connection: Connection, question: _Question) -> None:
        try:
            kind = type(question.request)
            answer = connection.send(question.request, _RESPONSES[kind], at_least=_LOWEST_VERSIONS.get(kind, 0))
        except ClientError as error:
            logger.info("Broker %d was not asked: %s", self._broker_id, error)
            question.on_response(None)
            return
        self.on_asked(question.request, answer)
        answer.add_done_callback(lambda done: _tell(done, question.on_response))

    def _fail_waiting(self) -> None:
        waiting, self._waiting = self._waiting, []
        for question in waiting:
            question.on_response(None)


class _Heartbeat:
    """Small questions over a connection, to notice that nobody answers any more."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._loop = asyncio.get_running_loop()
        self._missed = 0
        self._allowed = 0
        """Further heartbeats that may be missed, for the work that is under way."""
        self._answer: asyncio.Future[ApiVersionsResponse] | None = None
        self._timer = self._loop.call_later(_HEARTBEAT_SECONDS, self._beat)

    def stop(self) -> None:
        self._timer.cancel()

    def expect_work(self, request: Message, answer: "asyncio.Future[Message]") -> None:
        """Be more patient until a request with much work is answered."""
        beats = _partition_count(request) // _PARTITIONS_PER_HEARTBEAT
        if beats:
            self._allowed += beats
            answer.add_done_callback(lambda _: self._worked(beats))

    def _worked(self, beats: int) -> None:
        self._allowed -= beats

    def _beat(self) -> None:
        self._timer = self._loop.call_later(_HEARTBEAT_SECONDS, self._beat)
        if self._answer is None or self._answer.done():
            self._missed = 0
            self._ask()
        else:
            self._missed += 1
            if self._missed >= _MOST_MISSED + self._allowed:
                self.stop()
                self._connection.abort()

    def _ask(self) -> None:
        try:
            request = ApiVersionsRequest(client_software_name=SOFTWARE_NAME, client_software_version=VERSION)
            self._answer = self._connection.send(request, ApiVersionsResponse)
        except ClientError:
            self.stop()  # The connection has ended, which its owner is about to hear.
        else:
            self._answer.add_done_callback(_look_away)


def _is_work(request: Message) -> bool:
    return isinstance(request, LeaderAndIsrRequest | StopReplicaRequest)


def _in_another_turn(on_response: OnResponse) -> OnResponse:
    """Let the loop do something else, before whoever waits for the answer asks for more."""

    def respond(response: Message | None) -> None:
        asyncio.get_running_loop().call_soon(on_response, response)

    return respond


def _partition_count(request: Message) -> int:
    if isinstance(request, LeaderAndIsrRequest | StopReplicaRequest):
        return sum(len(topic.partition_states) for topic in request.topic_states)
    return 0


def _look_away(answer: "asyncio.Future[ApiVersionsResponse]") -> None:
    """Whether it failed is seen elsewhere."""
    if not answer.cancelled():
        answer.exception()


def _tell(answer: "asyncio.Future[Message]", on_response: OnResponse) -> None:
    failed = answer.cancelled() or answer.exception() is not None
    on_response(None if failed else answer.result())
