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
from collections import deque
from collections.abc import Callable
from typing import Any, Final, NamedTuple, TypeVar, cast

from oncelog.clients import VERSION
from oncelog.clients.errors import (
    AuthenticationFailed,
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
from oncelog.clients.sasl import SaslClient
from oncelog.clients.sasl_session import SaslSession
from oncelog.protocol.api_keys import ApiKey
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.framing import encode_request, parse_response
from oncelog.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from oncelog.protocol.primitives import DecodeError
from oncelog.protocol.schema import Buffer, Message

R = TypeVar("R", bound=Message)

SOFTWARE_NAME: Final = "oncelog"
_MAX_CORRELATION_ID: Final = 2**31 - 1
_LAST_PORT: Final = 65535
_DEFAULT_CLIENT_ID: Final = "oncelog"
_DEFAULT_CONNECT_SECONDS: Final = 10.0
_DEFAULT_REQUEST_SECONDS: Final = 30.0


class Address(NamedTuple):
    """Where a broker listens."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class _Pending(NamedTuple):
    """A request in flight."""

    correlation_id: int
    version: int
    response_type: type[Message]
    future: "asyncio.Future[Any]"
    sent_at: float
    deadline: float

    @property
    def name(self) -> str:
        """The name of the request."""
        return self.response_type.__name__.removesuffix("Response")


class Connection(asyncio.Protocol):
    """The protocol of one connection. Make it with ``connect``."""

    __slots__ = (
        "_client_id",
        "_correlation_id",
        "_end",
        "_greeted",
        "_held",
        "_loop",
        "_pending",
        "_request_seconds",
        "_session",
        "_splitter",
        "_timer",
        "_transport",
        "address",
        "closed",
        "is_writable",
        "on_writable",
        "versions",
    )

    _transport: asyncio.Transport
    versions: BrokerVersions

    def __init__(self, address: Address, client_id: str | None, request_seconds: float) -> None:
        self.address = address
        self._client_id = client_id
        self._request_seconds = request_seconds
        self._loop = asyncio.get_running_loop()
        self._splitter = FrameSplitter()
        self._pending: deque[_Pending] = deque()
        self._held: list[tuple[_Pending | None, list[Buffer]]] | None = None
        """Requests, encoded, that wait until the connection is authenticated again; None: none have to."""
        self._session: SaslSession | None = None
        self._correlation_id = 0
        self._greeted = 0
        """The correlation id of the first request after ApiVersions."""
        self._timer: asyncio.TimerHandle | None = None
        self._end: ClientError | None = None
        """Why the connection is over; None while it is not."""
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
        _, buffers = self._encode(request, version)
        self._write(None, buffers)

    def close(self) -> None:
        """End the connection once written bytes have left. Requests in flight fail with ``ConnectionLost``."""
        self._finish(ConnectionLost(f"the connection to {self.address} was closed"))
        self._transport.close()

    def abort(self) -> None:
        """End the connection at once, even if written bytes cannot leave. Requests in flight fail."""
        self._fail(ConnectionLost(f"the connection to {self.address} was given up"))

    # What the transport calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        try:
            for frame in self._splitter.feed(data):
                self._take(frame)
        except (BadFrame, DecodeError) as error:
            self._fail(BadResponse(f"{self.address} does not respond like a Kafka broker: {error}"))

    def pause_writing(self) -> None:
        self.is_writable = False

    def resume_writing(self) -> None:
        self.is_writable = True
        if self.on_writable is not None:
            self.on_writable()

    def connection_lost(self, error: Exception | None) -> None:
        reason = f": {error}" if error else ""
        self._finish(ConnectionLost(f"{self.address} closed the connection{reason}{self._perhaps_sasl()}"))
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

    # Authentication (sasl_session.Line)

    def _perhaps_sasl(self) -> str:
        """Return a hint if nothing but ApiVersions has a response: so ends a listener that wants authentication."""
        if self._session is not None or not self._pending or self._pending[0].correlation_id != self._greeted:
            return ""
        return ": does its listener need authentication (security.protocol=SASL_PLAINTEXT)?"

    async def authenticate(self, client: SaslClient) -> None:
        """Authenticate, and from now on again before that expires. Raises ``AuthenticationFailed``."""
        self._session = SaslSession(self, client)
        try:
            await self._session.begin()
        except AuthenticationFailed as error:
            raise AuthenticationFailed(f"{self.address}: {error}") from error

    def send_first(self, request: Message, response_type: type[R], *, at_least: int) -> "asyncio.Future[R]":
        """Send a request of an authentication, before those that are held."""
        self._raise_if_closed()
        version = self._version(request, None, at_least)
        pending, buffers = self._expected(request, response_type, version, None)
        self._write_now(pending, buffers)
        return pending.future

    def hold(self) -> None:
        """Hold further requests until ``release``."""
        self._held = []

    def release(self) -> None:
        """Send the requests that were held."""
        held, self._held = self._held or [], None
        for pending, buffers in held:
            if self._end is None:
                self._write_now(pending, buffers)

    def fail(self, error: ClientError) -> None:
        """End the connection. Requests in flight fail with the error."""
        self._fail(error)

    # Versions and frames

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
        pending, buffers = self._expected(request, response_type, version, timeout)
        self._write(pending, buffers)
        return pending.future

    def _expected(
        self, request: Message, response_type: type[Message], version: int, timeout: float | None
    ) -> tuple[_Pending, list[Buffer]]:
        correlation_id, buffers = self._encode(request, version)
        now = self._loop.time()
        deadline = now + (self._request_seconds if timeout is None else timeout)
        future: asyncio.Future[Any] = self._loop.create_future()
        return _Pending(correlation_id, version, response_type, future, now, deadline), buffers

    def _encode(self, request: Message, version: int) -> tuple[int, list[Buffer]]:
        correlation_id = self._correlation_id
        self._correlation_id = (correlation_id + 1) & _MAX_CORRELATION_ID
        try:
            return correlation_id, encode_request(correlation_id, self._client_id, request, version)
        except MemoryError as error:
            raise self._out_of_memory() from error

    def _write(self, pending: _Pending | None, buffers: list[Buffer]) -> None:
        if self._held is not None:
            self._held.append((pending, buffers))
        else:
            self._write_now(pending, buffers)

    def _write_now(self, pending: _Pending | None, buffers: list[Buffer]) -> None:
        try:
            self._transport.writelines(buffers)
        except MemoryError as error:  # Part of the request may be written: nothing can follow it.
            raise self._out_of_memory() from error
        if pending is not None:
            self._pending.append(pending)
            self._expect_by(pending.deadline)

    def _out_of_memory(self) -> ConnectionLost:
        lost = ConnectionLost(f"this process has no memory for a request to {self.address}")
        self._fail(lost)
        return lost

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
        self._fail(RequestTimedOut(f"{self.address}: no response to {late.name} within {seconds:.3g} s"))

    def _fail(self, error: ClientError) -> None:
        self._finish(error)
        self._transport.abort()

    def _finish(self, error: ClientError) -> None:
        if self._end is not None:
            return
        self._end = error
        if self._timer is not None:
            self._timer.cancel()
        if self._session is not None:
            self._session.end()
        held, self._held = self._held or [], None
        for pending in (*self._pending, *(pending for pending, _ in held if pending is not None)):
            if not pending.future.done():
                pending.future.set_exception(error)
        self._pending.clear()

    def _raise_if_closed(self) -> None:
        if self._end is not None:
            raise ConnectionLost(str(self._end))


def _parse(pending: _Pending, frame: memoryview) -> tuple[int, Message]:
    if pending.response_type is ApiVersionsResponse:
        return parse_api_versions_response(frame, pending.version)
    return parse_response(pending.response_type, pending.version, frame)


def _reason(error: OSError) -> str:
    """Return the reason that the operating system gives, without what asyncio adds."""
    if error.errno is not None and error.errno in errno.errorcode:
        return os.strerror(error.errno)
    return error.strerror or str(error)


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
    is_ready = False
    try:
        async with asyncio.timeout(connect_seconds):
            _, connection = await loop.create_connection(
                lambda: Connection(address, client_id, request_seconds), address.host, address.port, ssl=tls
            )
            on_accepted()
            await connection.negotiate()
            if sasl is not None:
                await connection.authenticate(sasl)
            is_ready = True
            return connection
    except TimeoutError:
        if connection is not None:
            raise BrokerSilent(
                f"{address}: {BrokerSilent.EVENT} within {connect_seconds:g} s{BrokerSilent.CAUSES}"
            ) from None
        raise Unreachable(f"{address}: no response within {connect_seconds:g} s") from None
    except ssl.SSLCertVerificationError as error:
        raise TlsFailed(f"{address}: its certificate is not accepted: {error.verify_message}") from error
    except ssl.SSLError as error:
        raise TlsFailed(f"{address}: {error.reason or error}") from error
    except socket.gaierror as error:
        said = f"the name {address.host} {Unreachable.UNRESOLVED} ({error.strerror})"
        raise Unreachable(f"{address}: {said}") from error
    except OSError as error:
        raise Unreachable(f"{address}: {_reason(error)}") from error
    except ConnectionLost as error:
        reason = str(error).removeprefix(f"{address} ")
        raise Unreachable(
            f"{address}: {reason} without a response: is this the port of a Kafka broker, and of a listener "
            f"{'with' if tls else 'without'} TLS?"
        ) from error
    except ValueError as error:  # Among them UnicodeError: a host that IDNA refuses.
        raise Unreachable(f"{address}: {address.host!r} is not the name of a host") from error
    except MemoryError as error:
        raise Unreachable(f"{address}: this process has no memory for a connection") from error
    finally:
        if connection is not None and not is_ready:
            connection.close()
