"""``SaslSession``: the authentication of one connection, again before it ends (KIP-368)."""

import asyncio
from typing import Final, Protocol, TypeVar

from oncelog.clients.errors import AuthenticationFailed, ClientError, ConnectionLost, error_code
from oncelog.clients.mechanism_names import shown_mechanisms
from oncelog.clients.outbox import Outbox
from oncelog.clients.sasl import SaslClient
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from oncelog.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from oncelog.protocol.sasl.login import Login, OauthLogin
from oncelog.protocol.sasl.mechanisms import PLAIN
from oncelog.protocol.schema import Message

R = TypeVar("R", bound=Message)
_SHARE_OF_LIFETIME: Final = 0.85
"""After which a client authenticates again."""
_FIRST_VERSION_WITH_TOKENS: Final = 1
"""Of SaslHandshake: from it on tokens have a request of their own."""
_MECHANISM_ADVICE: Final = (
    "set sasl.mechanism to one that is enabled, or add this one to sasl.enabled.mechanisms at the broker"
)
_NO_SASL_ADVICE: Final = (
    "set security.protocol to PLAINTEXT, or to SSL with TLS, or connect to the port of a listener with SASL"
)
_PASSWORD_ADVICE: Final = (
    "see sasl.username and sasl.password, or sasl.jaas.config: is there a user of this name with this password for "
    "{mechanism}? {place}"
)
_USERS_OF_PLAIN: Final = "Users of PLAIN are in sasl.jaas.config of the broker"
_USERS_OF_SCRAM: Final = "`oncelog user list` shows users and mechanisms to those who may see them"
_DELEGATION_ADVICE: Final = (
    "has the delegation token expired, or was it removed? `oncelog token list`, with the password of its owner, shows "
    "what there is; `oncelog token create` makes another one"
)
_TOKEN_ADVICE: Final = "see that the token is valid now, and for this broker: the broker's log says which check failed"


class Line(Protocol):
    """The connection, as its session sees it."""

    @property
    def outbox(self) -> Outbox: ...
    @property
    def address(self) -> object: ...
    @property
    def request_seconds(self) -> float:
        """Return how long a response may take."""

    def send(
        self, request: Message, response_type: type[R], *, at_least: int = 0, timeout: float | None = None
    ) -> "asyncio.Future[R]": ...
    def fail(self, error: ClientError) -> None: ...


class SaslSession:
    """Keeps one connection authenticated."""

    def __init__(self, line: Line, client: SaslClient) -> None:
        self._line = line
        self._client = client
        self._timer: asyncio.TimerHandle | None = None
        self._again: asyncio.Task[None] | None = None

    async def begin(self) -> None:
        """Authenticate. Raises ``AuthenticationFailed``, and what a request raises."""
        try:
            await self._authenticate()
        except AuthenticationFailed as error:
            raise AuthenticationFailed(f"{self._line.address}: {error}", advice=error.advice) from error

    async def _authenticate(self) -> None:
        mechanism = self._client.login.mechanism
        handshake = await self._send(
            SaslHandshakeRequest(mechanism=mechanism), SaslHandshakeResponse, _FIRST_VERSION_WITH_TOKENS
        )
        if handshake.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM:
            enabled = ", ".join(shown_mechanisms(handshake.mechanisms)) or "none"
            raise AuthenticationFailed(
                f"SASL mechanism {mechanism} is not enabled; enabled: {enabled}", advice=_MECHANISM_ADVICE
            )
        if handshake.error_code == ErrorCode.ILLEGAL_SASL_STATE:
            raise AuthenticationFailed(
                "this listener has no SASL: security.protocol is that of another listener", advice=_NO_SASL_ADVICE
            )
        _require_none(handshake.error_code, None)
        last = SaslAuthenticateResponse()

        async def send(token: bytes) -> bytes:
            nonlocal last
            last = await self._send(SaslAuthenticateRequest(auth_bytes=token), SaslAuthenticateResponse)
            _require_none(last.error_code, last.error_message, _login_advice(self._client.login))
            return last.auth_bytes

        await self._client.authenticate(send)
        if last.session_lifetime_ms > 0:
            seconds = last.session_lifetime_ms / 1000 * _SHARE_OF_LIFETIME
            self._timer = asyncio.get_running_loop().call_later(seconds, self._begin_again)

    def _send(self, request: Message, response_type: type[R], at_least: int = 0) -> "asyncio.Future[R]":
        """Send a request before those that are held. Its response comes behind those of requests in flight."""
        now = asyncio.get_running_loop().time()
        others_seconds = max([0.0, *(pending.deadline - now for pending in self._line.outbox.in_flight)])
        timeout = others_seconds + self._line.request_seconds
        with self._line.outbox.passing():
            return self._line.send(request, response_type, at_least=at_least, timeout=timeout)

    def end(self) -> None:
        """Authenticate no more: the connection has ended."""
        if self._timer is not None:
            self._timer.cancel()
        if self._again is not None:
            self._again.cancel()

    def _begin_again(self) -> None:
        self._again = asyncio.get_running_loop().create_task(self._authenticate_again())

    async def _authenticate_again(self) -> None:
        await self._client.prepare()  # Requests are held only while tokens are exchanged with the broker.
        self._line.outbox.hold()
        try:
            await self.begin()
        except ClientError as error:  # A later connection says the same, where its opener can act on it.
            self._line.fail(ConnectionLost(f"it could not authenticate again: {error}"))
        else:
            self._line.outbox.release()


def _require_none(error: int, message: str | None, advice: str = "") -> None:
    if error != ErrorCode.NONE:
        raise AuthenticationFailed(message or error_code(error).name, advice=advice)


def _login_advice(login: Login) -> str:
    if isinstance(login, OauthLogin):
        return _TOKEN_ADVICE
    if login.is_token:
        return _DELEGATION_ADVICE
    mechanism = login.mechanism
    return _PASSWORD_ADVICE.format(
        mechanism=mechanism, place=_USERS_OF_PLAIN if mechanism == PLAIN else _USERS_OF_SCRAM
    )
