"""Requests from this broker's controller, coordinators and replicas to brokers.

To itself by a plain call, to others over a few connections each, one per lane (``lanes``, ``link``).

*Watching.* A broker that is watched is connected to all the time, on a lane of its own, with heartbeats. A broken
connection is tried to be made again. If nothing listens there any more (``on_refused``), the process is certainly not
what it was; if there is no response in time (``on_silence``), it may be stopped, busy, or cut off, or this broker
may be. Neither is proof: the metadata store says which brokers are alive, and until it does, an action on it must be
safe if it was wrong. A broker responds to heartbeats although a disk that stalls keeps its event loop from turning
(``oncelog.broker.network.heartbeats``). While a watched broker cannot be connected to, ``on_refused`` or ``on_silence``
is called again and again. So a silent broker is reported unreachable after two seconds, and before three have passed
others lead what it led.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final, TypeAlias, TypeVar

from oncelog.broker.network.heartbeats import heartbeat_client_id
from oncelog.broker.peers.lanes import KEPT_LANES, LANES, Lane, RequestTimeouts
from oncelog.broker.peers.link import Link, Peer, PendingRequest
from oncelog.broker.peers.local_channel import LocalChannel
from oncelog.broker.replication.replica_host import Spawn
from oncelog.broker.security.peer_security import PeerSecurity
from oncelog.clients.connection import Address, Connection, connect
from oncelog.clients.errors import ClientError
from oncelog.coordinator.ports import OnResponse
from oncelog.protocol.messages.leader_and_isr import LeaderAndIsrRequest
from oncelog.protocol.messages.stop_replica import StopReplicaRequest
from oncelog.protocol.schema import Message

R = TypeVar("R", bound=Message)
OnUnreachable: TypeAlias = Callable[[int], None]

_WORK: Final = (LeaderAndIsrRequest, StopReplicaRequest)
"""Requests that take a broker a while."""
_DEFAULT_TIMEOUTS: Final = RequestTimeouts()


def _ignore(broker_id: int) -> None:
    """Do nothing about a broker that cannot be reached."""


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
        timeouts: RequestTimeouts = _DEFAULT_TIMEOUTS,
    ) -> None:
        """Connect to no broker yet; ``address_of`` returns where one listens for brokers, or None if not known."""
        self._broker_id = broker_id
        self._client_id = f"broker-{broker_id}"
        self._local = local
        self.address_of = address_of
        self._spawn = spawn
        self._on_refused = on_refused
        self._on_silence = on_silence
        self._timeouts = timeouts
        self._links: dict[tuple[int, Lane], Link] = {}
        self._closed = False
        self.security = PeerSecurity()
        """Set before the first request."""

    def send(self, broker_id: int, request: Message, on_response: OnResponse) -> None:
        """Send a request; ``on_response`` is called once, with None if there will be no response."""
        if self._closed:
            on_response(None)
        elif broker_id == self._broker_id:
            self._local.send(
                broker_id, request, _in_another_turn(on_response) if isinstance(request, _WORK) else on_response
            )
        else:
            self._link(broker_id, LANES[type(request)]).send(PendingRequest(request, on_response))

    def watch(self, broker_id: int) -> None:
        """Stay connected to another broker from now on, and notice when it does not respond any more."""
        if not self._closed:
            self._link(broker_id, Lane.HEARTBEATS).watch()
            self._link(broker_id, Lane.CONTROL).connect()  # So that control requests leave at once.

    def unwatch(self, broker_id: int) -> None:
        """Leave the connection to a broker alone from now on."""
        link = self._links.get((broker_id, Lane.HEARTBEATS))
        if link is not None:
            link.unwatch()

    def give_up(self, broker_id: int) -> None:
        """Fail the requests to a broker that the cluster goes on without.

        Control requests are still sent to it, because it must receive that others lead its partitions.
        """
        for lane in Lane:
            link = None if lane in KEPT_LANES else self._links.pop((broker_id, lane), None)
            if link is not None:
                link.abort()

    def check_addresses(self) -> None:
        """Connect anew to brokers that have moved. Requests that the former address has not responded to fail."""
        for link in list(self._links.values()):
            link.check_address()

    def close(self) -> None:
        """Fail all requests that have no response, and those that are given from now on."""
        self._closed = True
        links, self._links = self._links, {}
        for link in links.values():
            link.close()

    def _link(self, broker_id: int, lane: Lane) -> "Link":
        link = self._links.get((broker_id, lane))
        if link is None:
            client_id = heartbeat_client_id(self._broker_id) if lane is Lane.HEARTBEATS else self._client_id
            peer = Peer(broker_id, client_id, self.address_of, self._timeouts.seconds(lane), self.security)
            link = self._links[broker_id, lane] = Link(peer, self._spawn, self._report_unreachable)
            if lane is Lane.CONTROL:
                link.on_sent = partial(self._expect_work, broker_id)
        return link

    def _expect_work(self, broker_id: int, request: Message, response: "asyncio.Future[Message]") -> None:
        """Allow for a broker that is busy with a control request: older ones serve heartbeats on their event loop."""
        link = self._links.get((broker_id, Lane.HEARTBEATS))
        if link is not None:
            link.expect_work(request, response)

    def _report_unreachable(self, broker_id: int, refused: bool) -> None:
        (self._on_refused if refused else self._on_silence)(broker_id)

    def is_connected(self, broker_id: int) -> bool:
        """Return whether another broker, which is watched, responds to heartbeats."""
        link = self._links.get((broker_id, Lane.HEARTBEATS))
        return link is not None and link.is_connected

    async def request_once(
        self, address: Address, request: Message, response_type: type[R], *, at_least: int, seconds: float
    ) -> R | None:
        """Send a request over a connection of its own; None if no response comes within this time."""
        try:
            async with asyncio.timeout(seconds):
                connection = await self._connect(address, seconds)
                try:
                    return await connection.send(request, response_type, at_least=at_least)
                finally:
                    connection.close()
        except (ClientError, TimeoutError):
            return None

    async def _connect(self, address: Address, seconds: float) -> Connection:
        security = self.security
        return await connect(
            address, client_id=self._client_id, connect_seconds=seconds, tls=security.tls, sasl=security.sasl
        )

    async def reaches(self, broker_id: int, seconds: float) -> bool:
        """Return whether another broker accepts a new connection and responds within this time."""
        address = self.address_of(broker_id)
        if address is None:
            return False
        try:
            connection = await self._connect(address, seconds)
        except ClientError:
            return False
        connection.close()
        return True


def _in_another_turn(on_response: OnResponse) -> OnResponse:
    """Return a callback that lets the loop do something else before the next request is sent."""

    def respond(response: Message | None) -> None:
        asyncio.get_running_loop().call_soon(on_response, response)

    return respond
