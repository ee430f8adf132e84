"""One connection to one broker: requests out, responses in, in order.

``connect`` opens it and requests the versions that the broker serves. From then on ``send`` writes a request at once,
in the newest version that both sides support, and returns the future of its response; any number may be in flight. A
broker responds in the order of the requests, so after a response that has not come in time none will come either: the
connection then ends, and the futures of its requests fail. It does not reconnect: ``oncelog.clients.cluster`` opens new
connections.

Responses are typed by the caller: ``await connection.send(MetadataRequest(...), MetadataResponse)``.
"""

import asyncio
import errno
import os
import socket
import ssl
from collections.abc import Callable
from typing import Final, NamedTuple, TypeVar, cast

from oncelog.clients import VERSION
from oncelog.clients.errors import (
    BadResponse,
    BrokerSilent,
    ClientError,
    ConnectionLost,
    RequestTimedOut,
    TlsFailed,
    Unreachable,
    VersionNotSupported,
    error_code,
)
from oncelog.clients.frames import BadFrame, FrameSplitter
from oncelog.clients.negotiation import BrokerVersions, parse_api_versions_response, version_to_retry
from oncelog.clients.outbox import Outbox, PendingRequest
from oncelog.clients.sasl import SaslClient
from oncelog.clients.sasl_session import SaslSession
from oncelog.clients.tls_failures import (
    CLIENT_CERTIFICATE_HINT,
    HANDSHAKE_CAUSES,
    NO_TLS_ADVICE,
    TLS_ADVICE,
    explain,
)
from oncelog.protocol.api_keys import ApiKey
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.framing import encode_request, parse_response
from oncelog.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from oncelog.protocol.primitives import DecodeError
from oncelog.protocol.schema import Message

R = TypeVar("R", bound=Message)

SOFTWARE_NAME: Final = "oncelog"
_MAX_CORRELATION_ID: Final = 2**31 - 1
_LAST_PORT: Final = 65535
_DEFAULT_CLIENT_ID: Final = "oncelog"
_PERHAPS_SASL: Final = ": does its listener need authentication (security.protocol={})?"
"""If nothing but ApiVersions had a response: so ends a listener that wants authentication."""
_DEFAULT_CONNECT_SECONDS: Final = 10.0
_DEFAULT_REQUEST_SECONDS: Final = 30.0
_TLS_SHUTDOWN_SECONDS: Final = 2.0
"""Time for the other side to end TLS after this one; the connection is ended then."""


class Address(NamedTuple):
    """Where a broker listens."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Connection(asyncio.Protocol):
    """The protocol of one connection. Make it with ``connect``."""

    __slots__ = (
        "_client_id",
        "_correlation_id",
        "_end",
        "_greeted",
        "_loop",
        "_pending",
        "_splitter",
        "_timer",
        "_transport",
        "address",
        "closed",
        "is_secured",
        "is_writable",
        "on_writable",
        "outbox",
        "request_seconds",
        "session",
        "versions",
        "was_turned_away",
    )

    _transport: asyncio.Transport
    versions: BrokerVersions

    def __init__(self, address: Address, client_id: str | None, request_seconds: float) -> None:
        self.address = address
        self._client_id = client_id
        self.request_seconds = request_seconds
        self._loop = asyncio.get_running_loop()
        self._splitter = FrameSplitter()
        self.outbox = Outbox()
        self._pending = self.outbox.in_flight
        self.session: SaslSession | None = None
        """The authentication of the connection; None if it has none."""
        self._correlation_id = 0
        self._greeted = -1
        """The correlation id of the first request after ApiVersions; -1 before that is known."""
        self._timer: asyncio.TimerHandle | None = None
        self._end: ClientError | None = None
        """Why the connection is over; None while it is not."""
        self.is_secured = False
        self.was_turned_away = False
        """Whether the broker ended it at the first request after its introduction, without a response."""
        """Whether it is encrypted by TLS."""
        self.is_writable = True
        """Whether almost all written bytes have left; writers of requests without responses must respect it."""
        self.on_writable: Callable[[], object] | None = None
        """Called when it has become so again."""
        self.closed: asyncio.Future[ClientError] = self._loop.create_future()
        """Done, with the reason, when nothing of the connection is left; never fails."""

    @property
    def is_open(self) -> bool:
        return self._end is None

    @property
    def end(self) -> ClientError | None:
        """Why the connection is over; None while it is not."""
        return self._end

    @property
    def requests_in_flight(self) -> int:
        """The number of requests whose response has not come."""
        return len(self._pending)

    @property
    def oldest_request_seconds(self) -> float:
        """How long the oldest of them has waited (s); 0 if there is none."""
        return self._loop.time() - self._pending[0].sent_at if self._pending else 0.0

    @property
    def awaited(self) -> str:
        """The name of the request that has waited longest for its response; empty if there is none."""
        return self._pending[0].name if self._pending else ""

    def send(
        self,
        request: Message,
        response_type: type[R],
        *,
        at_least: int = 0,
        at_most: int | None = None,
        timeout: float | None = None,
    ) -> "asyncio.Future[R]":
        """Write a request now. ``timeout`` replaces the connection's (seconds).

        ``at_least`` and ``at_most`` bound its version: fields of a version that the broker does not serve are not sent.
        """
        return self._send(request, response_type, self._version(request, at_most, at_least), timeout)

    def send_without_response(self, request: Message, *, at_most: int | None = None) -> None:
        """Write a request without a response: a Produce with ``acks=0``."""
        version = self._version(request, at_most)
        self._raise_if_closed()
        self._write(request, version)

    def close(self) -> None:
        """End the connection once written bytes have left. Requests in flight fail with ``ConnectionLost``."""
        self._finish(ConnectionLost(f"the connection to {self.address} was closed"))
        self._transport.close()

    def abort(self) -> None:
        """End the connection at once, even if written bytes cannot leave. Requests in flight fail."""
        self.fail(ConnectionLost(f"the connection to {self.address} was given up"))

    # What the transport calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self.outbox.open(self._transport.writelines)

    def data_received(self, data: bytes) -> None:
        try:
            for frame in self._splitter.feed(data):
                self._take(frame)
        except (BadFrame, DecodeError) as error:
            self.fail(BadResponse(f"{self.address} does not respond like a Kafka broker: {error}"))

    def pause_writing(self) -> None:
        self.is_writable = False

    def resume_writing(self) -> None:
        self.is_writable = True
        if self.on_writable is not None:
            self.on_writable()

    def connection_lost(self, error: Exception | None) -> None:
        reason = f": {error}" if error else ""
        if self.session is None and self._pending:
            self.was_turned_away = self._pending[0].correlation_id == self._greeted
        hint = _PERHAPS_SASL.format("SASL_SSL" if self.is_secured else "SASL_PLAINTEXT") if self.was_turned_away else ""
        if isinstance(error, ssl.SSLError) and self._greeted < 0:  # In TLS 1.3, what a broker requires comes so late.
            self._finish(tls_failed(self.address, error))
        else:
            self._finish(ConnectionLost(f"{self.address} closed the connection{reason}{hint}"))
        assert self._end is not None
        self.closed.set_result(self._end)

    # Requests and responses

    async def negotiate(self) -> None:
        """Learn what the broker serves. Raises ``BadResponse`` when it will not say."""
        version: int | None = ApiVersionsRequest.versions.last
        request = ApiVersionsRequest(client_software_name=SOFTWARE_NAME, client_software_version=VERSION)
        while version is not None:
            response = await self._send(request, ApiVersionsResponse, version, None)
            if response.error_code == ErrorCode.NONE:
                self.versions = BrokerVersions(response)
                self._greeted = self._correlation_id
                return
            if response.error_code != ErrorCode.UNSUPPORTED_VERSION:
                raise BadResponse(
                    f"{self.address} does not return its versions: {error_code(response.error_code).name}"
                )
            version = version_to_retry(response, version)
        raise BadResponse(f"{self.address} refuses every version of ApiVersions that it names")

    def _version(self, request: Message, at_most: int | None, at_least: int = 0) -> int:
        cls = type(request)
        version = self.versions.choose(cls, at_most)
        if version is None or version < at_least:
            assert cls.api_key is not None
            theirs = self.versions.range_of(cls.api_key)
            has = f"only versions {theirs.first} to {theirs.last}" if theirs else "no version"
            needs = f", and this needs {at_least}" if theirs and at_least else ""
            name = ApiKey(cls.api_key).name
            raise VersionNotSupported(f"the broker at {self.address} serves {has} of {name}{needs}")
        return version

    def _send(
        self, request: Message, response_type: type[R], version: int, timeout: float | None
    ) -> "asyncio.Future[R]":
        self._raise_if_closed()
        correlation_id = self._write(request, version)
        now = self._loop.time()
        deadline = now + (self.request_seconds if timeout is None else timeout)
        future: asyncio.Future[R] = self._loop.create_future()
        self.outbox.queue.append(PendingRequest(correlation_id, version, response_type, future, now, deadline))
        self._expect_by(deadline)
        return future

    def _write(self, request: Message, version: int) -> int:
        correlation_id = self._correlation_id
        self._correlation_id = (correlation_id + 1) & _MAX_CORRELATION_ID
        try:
            self.outbox.send(encode_request(correlation_id, self._client_id, request, version))
        except MemoryError as error:  # Part of the request may be written: nothing can follow it.
            lost = ConnectionLost(f"this process has no memory for a request to {self.address}")
            self.fail(lost)
            raise lost from error
        return correlation_id

    def _take(self, frame: memoryview) -> None:
        if not self._pending:
            raise BadFrame("a response without a request")
        pending = self._pending[0]
        correlation_id, response = _parse(pending, frame)
        if correlation_id != pending.correlation_id:
            raise BadFrame(f"a response to request {correlation_id} where {pending.correlation_id} is due")
        self._pending.popleft()
        if not pending.future.done():
            pending.future.set_result(response)

    # Time and the end

    def _expect_by(self, deadline: float) -> None:
        """Have the timer fire by then. It is not moved when a response comes: most come in time."""
        if self._timer is not None:
            if self._timer.when() <= deadline:
                return
            self._timer.cancel()
        self._timer = self._loop.call_at(deadline, self._check_time)

    def _check_time(self) -> None:
        self._timer = None
        if not self._pending:
            return
        deadline = min(pending.deadline for pending in self._pending)
        if deadline > self._loop.time():
            self._expect_by(deadline)
            return
        late = next(pending for pending in self._pending if pending.deadline == deadline)
        seconds = self._loop.time() - late.sent_at
        self.fail(RequestTimedOut(f"{self.address}: no response to {late.name} within {seconds:.3g} s"))

    def fail(self, error: ClientError) -> None:
        """End the connection at once. Requests in flight fail with the error."""
        self._finish(error)
        self._transport.abort()

    def _finish(self, error: ClientError) -> None:
        if self._end is not None:
            return
        self._end = error
        if self._timer is not None:
            self._timer.cancel()
        if self.session is not None:
            self.session.end()
            self.session = None  # It references the connection.
        for pending in self.outbox.take_all():
            if not pending.future.done():
                pending.future.set_exception(error)

    def _raise_if_closed(self) -> None:
        if self._end is not None:
            raise ConnectionLost(str(self._end))


def _parse(pending: PendingRequest, frame: memoryview) -> tuple[int, Message]:
    if pending.response_type is ApiVersionsResponse:
        return parse_api_versions_response(frame, pending.version)
    return parse_response(pending.response_type, pending.version, frame)


def _reason(error: OSError) -> str:
    """Return the reason that the operating system gives, without what asyncio adds."""
    if error.errno is not None and error.errno in errno.errorcode:
        return os.strerror(error.errno)
    return error.strerror or str(error)


async def _introduce(connection: Connection, sasl: SaslClient | None) -> None:
    await connection.negotiate()
    if sasl is not None:
        connection.session = SaslSession(connection, sasl)
        await connection.session.begin()


async def connect(
    address: Address,
    *,
    client_id: str | None = _DEFAULT_CLIENT_ID,
    connect_seconds: float = _DEFAULT_CONNECT_SECONDS,
    request_seconds: float = _DEFAULT_REQUEST_SECONDS,
    tls: ssl.SSLContext | None = None,
    sasl: SaslClient | None = None,
    on_accepted: Callable[[], object] = lambda: None,
) -> Connection:
    """Open a connection and learn which versions the broker serves; all of it within ``connect_seconds``.

    ``on_accepted`` is called when the address has accepted the connection, and nothing has been said yet.

    With ``tls`` the connection is secured first; ``TlsFailed`` says what is wrong with a certificate. With ``sasl`` it
    is authenticated; ``AuthenticationFailed`` says what the broker does not accept. Everything else raises
    ``Unreachable``, also an address that cannot be one: brokers advertise what their settings say.
    """
    if not 0 < address.port <= _LAST_PORT:
        raise Unreachable(f"{address}: there is no port {address.port}")
    loop = asyncio.get_running_loop()
    connection: Connection | None = None
    is_securing = is_ready = False

    def secure() -> Connection:
        nonlocal is_securing
        is_securing = True
        on_accepted()
        secured = Connection(address, client_id, request_seconds)
        secured.is_secured = True
        return secured

    try:
        async with asyncio.timeout(connect_seconds):
            if tls is None:
                _, connection = await loop.create_connection(
                    lambda: Connection(address, client_id, request_seconds), address.host, address.port
                )
                on_accepted()
            else:
                _, connection = await loop.create_connection(
                    secure, address.host, address.port, ssl=tls, ssl_shutdown_timeout=_TLS_SHUTDOWN_SECONDS
                )
                is_securing = False
            await _introduce(connection, sasl)
            is_ready = True
            return connection
    except TimeoutError:
        raise _late(address, connect_seconds, is_securing=is_securing, is_open=connection is not None) from None
    except OSError as error:
        raise _failed(address, error, is_securing=is_securing) from error
    except ConnectionLost as error:
        raise _without_response(address, error, is_secured=tls is not None) from error
    except ValueError as error:  # Among them UnicodeError: a host that IDNA refuses.
        raise Unreachable(f"{address}: {address.host!r} is not the name of a host") from error
    except MemoryError as error:
        raise Unreachable(f"{address}: this process has no memory for a connection") from error
    finally:
        if connection is not None and not is_ready:
            connection.close()


def tls_failed(address: Address, error: ssl.SSLError) -> TlsFailed:
    """Return the error for a connection that could not be secured."""
    reason, advice = explain(error)
    return TlsFailed(f"{address}: {reason}", advice=advice)


def _late(address: Address, seconds: float, *, is_securing: bool, is_open: bool) -> Unreachable:
    """Return the error for a connection that is not ready in time."""
    if is_securing:
        return BrokerSilent(f"{address}: {BrokerSilent.EVENT} in TLS within {seconds:g} s: {NO_TLS_ADVICE}")
    if is_open:
        return BrokerSilent(f"{address}: {BrokerSilent.EVENT} within {seconds:g} s{BrokerSilent.CAUSES}")
    return Unreachable(f"{address}: no response within {seconds:g} s")


def _without_response(address: Address, error: ConnectionLost, *, is_secured: bool) -> Unreachable:
    """Return the error for a connection that the other side has closed before it sent a response."""
    reason = str(error).removeprefix(f"{address} ")
    hint = f"with TLS? If so, {CLIENT_CERTIFICATE_HINT}" if is_secured else f"without TLS? If it has TLS, {TLS_ADVICE}"
    return Unreachable(
        f"{address}: {reason} without a response: is this the port of a Kafka broker, and of a listener {hint}"
    )


def _failed(address: Address, error: OSError, *, is_securing: bool) -> ClientError:
    """Return the error for an attempt to connect that has failed; ``is_securing``: during the handshake of TLS."""
    if isinstance(error, ssl.SSLError) and not isinstance(error, ssl.SSLEOFError):
        return tls_failed(address, error)
    if isinstance(error, socket.gaierror):
        return Unreachable(f"{address}: the name {address.host} {Unreachable.UNRESOLVED} ({error.strerror})")
    if is_securing:
        return Unreachable(f"{address}: closed the connection during the TLS handshake: {HANDSHAKE_CAUSES}")
    return Unreachable(f"{address}: {_reason(error)}")
