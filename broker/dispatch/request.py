"""What is known of a request beside its content: the client's connection and who the client is."""

import asyncio
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple, Protocol

from oncelog.broker.dispatch.old_consumer import OldConsumer
from oncelog.coordinator.ports import NEVER
from oncelog.protocol.principal import USER
from oncelog.protocol.principal import Principal as Principal
from oncelog.protocol.schema import Buffer

NO_SOCKET: Final = -1
"""The descriptor of a connection that has no socket: in the simulation."""


ANONYMOUS: Final = Principal(USER, "ANONYMOUS")


class CloseConnection(Exception):
    """The connection must be closed. The message is the one line that is logged about it."""

    def __init__(self, reason: str, response: Iterable[Buffer] = (), *, after_seconds: float = 0.0) -> None:
        super().__init__(reason)
        self.response = list(response)
        """What the client is sent before."""
        self.after_seconds = after_seconds
        """For which both wait."""


class RequestOrder(Protocol):
    """The order of a connection's requests and responses (``oncelog.coordinator.ports.ClientConnection``)."""

    def request_number(self) -> int: ...
    def when_responded(self, callback: Callable[[int], None]) -> None: ...
    def is_last(self) -> bool:
        """Return whether nothing has come behind the request in hand."""
        ...


class ConnectionInfo:
    """What is known of a connection's client. The software names come with ApiVersions (KIP-511)."""

    __slots__ = (
        "carries_heartbeats",
        "changes_under_way",
        "client_host",
        "client_port",
        "client_software_name",
        "client_software_version",
        "connected_after",
        "descriptor",
        "greeted_at",
        "id",
        "is_open",
        "is_replica_fetcher",
        "is_token_authenticated",
        "large_left_since",
        "listener_name",
        "loop_nanoseconds",
        "old_consumer",
        "on_throttle",
        "order",
        "principal",
        "was_sent_much",
    )

    def __init__(
        self,
        *,
        client_host: str,
        client_port: int = 0,
        listener_name: str,
        principal: Principal = ANONYMOUS,
        id: int = 1,
        connected_after: float = NEVER,
    ) -> None:
        self.id = id
        """No other connection of this broker has or had it."""
        self.connected_after = connected_after
        """A time of the loop's clock: the kernel connected it later."""
        self.order: RequestOrder | None = None
        """None once the connection is lost."""
        self.client_host = client_host
        self.client_port = client_port
        self.listener_name = listener_name
        self.principal = principal
        self.is_token_authenticated = False
        """Whether the client has authenticated by a delegation token, which must not lead to further ones."""
        self.client_software_name = "unknown"
        self.client_software_version = "unknown"
        self.greeted_at = NEVER
        """See ``oncelog.coordinator.ports.ClientConnection``."""
        self.carries_heartbeats = False
        """Whether it carries only heartbeats of another broker (``oncelog.broker.network.heartbeats``)."""
        self.is_replica_fetcher = False
        """Whether a broker that copies partitions is at the other end, which may overtake a fetch of its own."""
        self.descriptor = NO_SOCKET
        """The system's number of the socket."""
        self.was_sent_much = False
        """Whether it was sent a large response before."""
        self.large_left_since: float | None = None
        """Since when it was given small batches only while there were large ones, by the loop's clock."""
        self.loop_nanoseconds = 0
        """What its requests took of the event loop since its last response, if that is measured (``LoopMeter``)."""
        self.on_throttle: Callable[[float], None] | None = None
        """Called with the seconds for which nothing more is read; None without a connection, and once it is lost."""
        self.old_consumer: OldConsumer | None = None
        """What is remembered of its fetches if they are older than version 4."""
        self.is_open = True
        """False once the connection is lost: its responses have no reader."""
        self.changes_under_way = 0
        """Requests that change something for others, and are carried to their end although the connection is lost."""

    def request_number(self) -> int:
        """Return the place of the request in hand among those of the connection, from 1; 0 if it is lost."""
        return 0 if self.order is None else self.order.request_number()

    def when_responded(self, callback: Callable[[int], None]) -> None:
        """Call back as ``oncelog.coordinator.ports.ClientConnection`` says."""
        if self.order is not None:
            self.order.when_responded(callback)

    def throttle(self, seconds: float) -> None:
        """Begin no further request for some seconds, and read none."""
        if self.on_throttle is not None:
            self.on_throttle(seconds)

    def note_greeting(self) -> None:
        """Note that the response to the request in hand, ApiVersions, is made."""
        if self.order is not None and self.order.is_last():
            self.greeted_at = asyncio.get_running_loop().time()

    @property
    def log_peer(self) -> str:
        """Lines about this client are counted by its address (``oncelog.broker.process.log_output.LogPeer``)."""
        return self.client_host

    def __str__(self) -> str:
        return f"{self.client_host}:{self.client_port} on {self.listener_name}"


class RequestContext(NamedTuple):
    """What a handler knows of a request beside its content. A tuple, because one is made for every request."""

    api_version: int
    correlation_id: int
    client_id: str | None
    connection: ConnectionInfo
