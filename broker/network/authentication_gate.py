"""The gate of a connection to a listener with SASL: it begins requests until the client is authenticated.

Then it is gone, and the connection costs what any other does. Where a session has a lifetime (KIP-368) the gate
remains: it hands requests on, begins a new authentication, and closes a connection whose session has expired.

Before authentication only ApiVersions, SaslHandshake and SaslAuthenticate are read, in that order, or tokens as bare
frames after SaslHandshake 0. ``SaslAuthenticator`` decides what becomes of them; the responses are those of Apache
Kafka. The response to a failure and the end of the connection wait for ``connection.failed.authentication.delay.ms``,
and nothing is read meanwhile. A request that may not come ends the connection at once. A client has
``oncelog.authentication.timeout.ms`` from its connection to its authentication. A later one has no such limit: its
responses may have to wait for an earlier request's, and the client can do nothing else.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from struct import Struct
from typing import Final, Protocol, TypeVar

from oncelog.broker.dispatch.dispatcher import Dispatcher, PendingResponse, ResponseBuffers
from oncelog.broker.dispatch.request import CloseConnection, ConnectionInfo, Principal
from oncelog.broker.network.connection import Connection
from oncelog.broker.security.login_log import LoginLog
from oncelog.broker.security.sasl_authenticator import Reply, SaslAuthenticator, SaslState
from oncelog.protocol.api_keys import ApiKey
from oncelog.protocol.compiler import decoder
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.framing import RequestHeader, encode_response, parse_request_header
from oncelog.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from oncelog.protocol.messages.sasl_handshake import SaslHandshakeRequest
from oncelog.protocol.primitives import DecodeError
from oncelog.protocol.schema import Message

logger = logging.getLogger(__name__)

M = TypeVar("M", bound=Message)

_SIZE: Final = Struct(">i")
_ERROR_OF_API_VERSIONS: Final = Struct(">8xh")
"""The error code of an ApiVersions response, which has the same place in every version."""
_HANDSHAKE_KEY: Final = int(ApiKey.SASL_HANDSHAKE).to_bytes(2, "big")
_MAX_ELEMENTS: Final = 100
"""Of a request before authentication: tagged fields, since it has no arrays."""
_EXPIRED: Final = (
    "its session has expired (connections.max.reauth.ms, or the end of its token), and it has not authenticated again: "
    "clients that cannot do that connect anew"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class GateSettings:
    """What all gates of a broker go by."""

    failure_delay_seconds: float
    timeout_seconds: float
    logins: LoginLog = field(default_factory=LoginLog)


class Counts(Protocol):
    """What the gates of one listener count."""

    successful_authentications: int
    failed_authentications: int


class AuthenticationGate:
    """Implements ``oncelog.broker.network.gate.Gate``."""

    __slots__ = (
        "_authenticator",
        "_claimed_user",
        "_connection",
        "_counts",
        "_dispatcher",
        "_expired",
        "_loop",
        "_settings",
        "_timer",
    )

    def __init__(
        self,
        connection: Connection,
        dispatcher: Dispatcher,
        authenticator: SaslAuthenticator,
        settings: GateSettings,
        counts: Counts,
    ) -> None:
        self._connection = connection
        self._dispatcher = dispatcher
        self._authenticator = authenticator
        self._settings = settings
        self._counts = counts
        self._claimed_user = ""
        """Whom a client that failed claims to be, if there is such a user."""
        self._expired = False
        """The session has ended, and a new one has not begun."""
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._set_timer(settings.timeout_seconds, self._time_out)

    def dispatch(self, frame: memoryview, connection: ConnectionInfo) -> ResponseBuffers | PendingResponse:
        if self._authenticator.state is SaslState.COMPLETE:
            return self._dispatch_authenticated(frame, connection)
        try:
            return self._take(frame, connection)
        except CloseConnection as error:
            self._note_failure(str(error))
            raise

    def _take(self, frame: memoryview, connection: ConnectionInfo) -> ResponseBuffers | PendingResponse:
        """Take a frame of a client that is not authenticated, or begins to be so anew."""
        match self._authenticator.state:
            case SaslState.RAW_TOKEN:
                return self._respond_raw(self._authenticator.authenticate_raw(bytes(frame), self._loop.time()))
            case SaslState.TOKEN:
                return self._take_token(frame)
            case _:
                return self._take_first(frame, connection)

    def refuse(self, reason: str) -> CloseConnection:
        self._note_failure(reason)
        return CloseConnection(reason, after_seconds=self._settings.failure_delay_seconds)

    def _note_failure(self, reason: str) -> None:
        mechanism = self._authenticator.mechanism
        self._settings.logins.failed(self._connection.info, mechanism, reason, self._claimed_user)

    def connection_lost(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    # The requests before authentication

    def _take_first(self, frame: memoryview, connection: ConnectionInfo) -> ResponseBuffers | PendingResponse:
        header, position = _header(frame)
        if header.api_key == ApiKey.SASL_HANDSHAKE:
            return self._take_handshake(frame, header, position)
        if header.api_key == ApiKey.API_VERSIONS and self._authenticator.state is SaslState.INITIAL:
            response = self._dispatcher.dispatch(frame, connection)
            connection.carries_heartbeats = False  # Such a connection leaves this loop: not before it may.
            if isinstance(response, PendingResponse):
                raise CloseConnection("a request before authentication whose response takes time")
            if _has_versions(response):
                self._authenticator.note_greeting()
            return response
        raise CloseConnection(
            f"a request for {_name_of(header.api_key)} before authentication: the client's security.protocol has to be "
            "that of this listener"
        )

    def _take_handshake(self, frame: memoryview, header: RequestHeader, position: int) -> ResponseBuffers:
        request = _decode(SaslHandshakeRequest, frame, header, position)
        return self._respond(header, self._authenticator.handshake(request, header.api_version))

    def _take_token(self, frame: memoryview) -> ResponseBuffers:
        header, position = _header(frame)
        if header.api_key != ApiKey.SASL_AUTHENTICATE:
            response = self._dispatcher.refuse(frame, ErrorCode.ILLEGAL_SASL_STATE, max_elements=_MAX_ELEMENTS)
            self._authenticator.fail()
            raise self._end(f"a request for API key {header.api_key} in place of SaslAuthenticate", response)
        request = _decode(SaslAuthenticateRequest, frame, header, position)
        return self._respond(header, self._authenticator.authenticate(request.auth_bytes, self._loop.time()))

    def _respond(self, header: RequestHeader, reply: Reply) -> ResponseBuffers:
        assert isinstance(reply.response, Message)
        response = encode_response(header.correlation_id, reply.response, header.api_version)
        return self._conclude(reply, response)

    def _respond_raw(self, reply: Reply) -> ResponseBuffers:
        token = reply.response
        return self._conclude(reply, [_SIZE.pack(len(token)) + token] if isinstance(token, bytes) else [])

    def _conclude(self, reply: Reply, response: ResponseBuffers) -> ResponseBuffers:
        if reply.ends:
            self._claimed_user = reply.user
            raise self._end(reply.ends, response)
        if self._authenticator.state is SaslState.COMPLETE:
            self._admit()
        return response

    def _end(self, reason: str, response: ResponseBuffers) -> CloseConnection:
        self._counts.failed_authentications += 1
        return CloseConnection(reason, response, after_seconds=self._settings.failure_delay_seconds)

    # Sessions

    def _admit(self) -> None:
        session = self._authenticator.session
        assert session is not None
        info = self._connection.info
        info.principal = Principal("User", session.user)
        info.is_token_authenticated = session.is_delegated
        logger.debug("%s is %s, authenticated by %s", info, info.principal, session.mechanism)
        self._settings.logins.succeeded(info, session.mechanism, is_delegated=session.is_delegated)
        self._expired = False
        self._counts.successful_authentications += 1
        if session.lifetime_ms > 0:
            self._set_timer(session.lifetime_ms / 1000, self._expire)
        elif self._timer is not None:
            self._timer.cancel()
        self._connection.has_sent_request = True
        self._connection.entrance.open(keeps_gate=session.lifetime_ms > 0)

    def _dispatch_authenticated(
        self, frame: memoryview, connection: ConnectionInfo
    ) -> ResponseBuffers | PendingResponse:
        if frame[:2] == _HANDSHAKE_KEY and self._authenticator.may_begin_again(self._loop.time()):
            header, position = _header(frame)
            return self._take_handshake(frame, header, position)
        if self._expired:
            raise CloseConnection(_EXPIRED)
        return self._dispatcher.dispatch(frame, connection)

    # Time

    def _set_timer(self, seconds: float, on_time: Callable[[], None]) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(seconds, on_time)

    def _expire(self) -> None:
        self._expired = True

    def _time_out(self) -> None:
        seconds = self._settings.timeout_seconds
        logger.warning(
            "Closing the connection of %s: it has not authenticated within %g s (oncelog.authentication.timeout.ms)",
            self._connection.info,
            seconds,
        )
        self._note_failure(f"no login within {seconds:g} s (oncelog.authentication.timeout.ms)")
        self._connection.abort()


def _header(frame: memoryview) -> tuple[RequestHeader, int]:
    try:
        return parse_request_header(frame)
    except DecodeError as error:
        raise CloseConnection(f"a malformed request before authentication: {error}") from None


def _decode(request_type: type[M], frame: memoryview, header: RequestHeader, position: int) -> M:
    if header.api_version not in request_type.versions:
        raise CloseConnection(f"a request for {request_type.__name__} v{header.api_version}, which is not served")
    try:
        return decoder(request_type, header.api_version)(frame, position, _MAX_ELEMENTS)[0]
    except DecodeError as error:
        raise CloseConnection(f"a malformed request before authentication: {error}") from None


def _name_of(api_key: int) -> str:
    """Return the API as its log lines name it; one that there is not has only a number."""
    names = {int(each): each.name for each in ApiKey}
    return names.get(api_key, f"API key {api_key}")


def _has_versions(response: ResponseBuffers) -> bool:
    """Return whether an ApiVersions response has no error: its client knows the versions."""
    return bool(response) and _ERROR_OF_API_VERSIONS.unpack_from(response[0])[0] == ErrorCode.NONE
