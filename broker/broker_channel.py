"""Requests from this broker's controller, coordinators and replicas to brokers: to itself by a plain call, to others
over one connection each.

A connection is made when the first request for a broker comes, and then kept. Requests go out in the order in which
they were given, answers come back in that order. Nothing is repeated here: when a connection ends, whoever waits for an
answer is told that it will not come, because only the asker knows whether asking again makes sense.

*Suspicion.* The end of a connection that was in use says that its broker may be gone. It is tried at once to connect
again; if that fails within a moment, ``on_unreachable`` is called. That is only a suspicion: the metadata store says
who is alive, and until it does, whoever acts on a suspicion must be safe if it was wrong.

While a broker cannot be reached, a new attempt is made at most every ``_PAUSE_SECONDS``; requests given in between fail
at once.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Final, NamedTuple

from broker.local_channel import LocalChannel
from broker.replication.partition import Spawn
from clients.connection import Address, Connection, connect
from clients.errors import ClientError
from coordinator.ports import OnResponse
from protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse
from protocol.messages.controlled_shutdown import ControlledShutdownRequest, ControlledShutdownResponse
from protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from protocol.messages.leader_and_isr import LeaderAndIsrRequest, LeaderAndIsrResponse
from protocol.messages.stop_replica import StopReplicaRequest, StopReplicaResponse
from protocol.messages.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse
from protocol.messages.write_txn_markers import WriteTxnMarkersRequest, WriteTxnMarkersResponse
from protocol.schema import Message

logger = logging.getLogger(__name__)

_RESPONSES: Final[dict[type[Message], type[Message]]] = {
    AddPartitionsToTxnRequest: AddPartitionsToTxnResponse,
    ControlledShutdownRequest: ControlledShutdownResponse,
    CreateTopicsRequest: CreateTopicsResponse,
    LeaderAndIsrRequest: LeaderAndIsrResponse,
    StopReplicaRequest: StopReplicaResponse,
    UpdateMetadataRequest: UpdateMetadataResponse,
    WriteTxnMarkersRequest: WriteTxnMarkersResponse,
}
"""The requests that brokers send to each other, and their answers."""

_LOWEST_VERSIONS: Final[dict[type[Message], int]] = {AddPartitionsToTxnRequest: 4}
"""Of requests whose older versions are for clients, and have no room for what a broker says."""

_CONNECT_SECONDS: Final = 2.0
_RECONNECT_SECONDS: Final = 0.1
_PAUSE_SECONDS: Final = 0.05
_REQUEST_SECONDS: Final = 30.0
_MOST_WAITING: Final = 10_000
"""Requests that wait for a connection to be made."""


class _Question(NamedTuple):
    request: Message
    on_response: OnResponse


class ClusterChannel:
    """Implements ``coordinator.ports.BrokerChannel`` for a member of a cluster."""

    def __init__(
        self,
        broker_id: int,
        *,
        local: LocalChannel,
        address_of: Callable[[int], Address | None],
        spawn: Spawn,
        on_unreachable: Callable[[int], None],
    ) -> None:
        """``address_of`` tells where another broker listens for brokers; None if that is not known."""
        self._broker_id = broker_id
        self._local = local
        self._address_of = address_of
        self._spawn = spawn
        self._on_unreachable = on_unreachable
        self._links: dict[int, _Link] = {}
        self._closed = False

    def send(self, broker_id: int, request: Message, on_response: OnResponse) -> None:
        if self._closed:
            on_response(None)
        elif broker_id == self._broker_id:
            self._local.send(broker_id, request, on_response)
        else:
            self._link(broker_id).send(_Question(request, on_response))

    def watch(self, broker_id: int) -> None:
        """Keep a connection to a broker from now on, so that its end is noticed."""
        if broker_id != self._broker_id and not self._closed:
            self._link(broker_id).open()

    def forget(self, broker_id: int) -> None:
        """The broker has left the cluster, or is about to come back at another address."""
        link = self._links.pop(broker_id, None)
        if link is not None:
            link.close()

    def close(self) -> None:
        """Whoever waits, or asks from now on, is told that there will be no answer."""
        self._closed = True
        for broker_id in list(self._links):
            self.forget(broker_id)

    def _link(self, broker_id: int) -> "_Link":
        link = self._links.get(broker_id)
        if link is None:
            link = self._links[broker_id] = _Link(broker_id, self._address_of, self._spawn, self._on_unreachable)
        return link


class _Link:
    """The way to one broker."""

    def __init__(
        self,
        broker_id: int,
        address_of: Callable[[int], Address | None],
        spawn: Spawn,
        on_unreachable: Callable[[int], None],
    ) -> None:
        self._broker_id = broker_id
        self._address_of = address_of
        self._spawn = spawn
        self._on_unreachable = on_unreachable
        self._loop = asyncio.get_running_loop()
        self._connection: Connection | None = None
        self._opening = False
        self._closed = False
        self._not_before = 0.0
        self._waiting: list[_Question] = []

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
        self.open()

    def open(self) -> None:
        if not self._opening and not self._closed and (self._connection is None or not self._connection.is_open):
            self._opening = True
            self._spawn(self._open(_CONNECT_SECONDS), f"connect to broker {self._broker_id}")

    def close(self) -> None:
        self._closed = True
        if self._connection is not None:
            self._connection.close()
        self._fail_waiting()

    async def _open(self, seconds: float) -> None:
        try:
            connection = await self._connect(seconds)
        finally:
            self._opening = False
        if connection is None:
            self._not_before = self._loop.time() + _PAUSE_SECONDS
            self._fail_waiting()
            return
        if self._closed:
            connection.close()
            return
        self._connection = connection
        connection.closed.add_done_callback(self._lost)
        waiting, self._waiting = self._waiting, []
        for question in waiting:
            self._ask(connection, question)

    async def _connect(self, seconds: float) -> Connection | None:
        address = self._address_of(self._broker_id)
        if address is None:
            return None
        try:
            return await connect(address, connect_seconds=seconds, request_seconds=_REQUEST_SECONDS)
        except ClientError as error:
            logger.info("broker %d cannot be reached: %s", self._broker_id, error)
            return None

    def _lost(self, closed: "asyncio.Future[ClientError]") -> None:
        if not self._closed and not self._opening:
            logger.info("the connection to broker %d is lost: %s", self._broker_id, closed.result())
            self._opening = True
            self._spawn(self._open_again(), f"connect to broker {self._broker_id} again")

    async def _open_again(self) -> None:
        await self._open(_RECONNECT_SECONDS)
        if not self._closed and (self._connection is None or not self._connection.is_open):
            self._on_unreachable(self._broker_id)

    def _ask(self, connection: Connection, question: _Question) -> None:
        try:
            kind = type(question.request)
            answer = connection.send(question.request, _RESPONSES[kind], at_least=_LOWEST_VERSIONS.get(kind, 0))
        except ClientError as error:
            logger.info("broker %d was not asked: %s", self._broker_id, error)
            question.on_response(None)
            return
        answer.add_done_callback(lambda done: _tell(done, question.on_response))

    def _fail_waiting(self) -> None:
        waiting, self._waiting = self._waiting, []
        for question in waiting:
            question.on_response(None)


def _tell(answer: "asyncio.Future[Message]", on_response: OnResponse) -> None:
    failed = answer.cancelled() or answer.exception() is not None
    on_response(None if failed else answer.result())
