"""The authentication of one connection by SASL: which requests may come, and what comes of them. Pure.

::

    INITIAL --ApiVersions--> HANDSHAKE --SaslHandshake 1--> TOKEN ------token-----> COMPLETE
       '-------------------------'-------SaslHandshake 0--> RAW_TOKEN --token-----> COMPLETE
                                    COMPLETE --SaslHandshake (KIP-368)--> TOKEN or RAW_TOKEN

The caller decodes the frames by ``state``, and sends what is returned. A session may have a lifetime, which is the
shorter of ``connections.max.reauth.ms`` and what remains of the client's token, after which the client must have
authenticated again; it may do so late, but nothing else. It must be the same user by the same mechanism. Names of
mechanisms are case-sensitive, as in Kafka.
"""

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Final, NamedTuple

from oncelog.broker.security.sasl_server import Authenticated, Challenge, Refusal, SaslServer, SaslStep
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.sasl_authenticate import SaslAuthenticateResponse
from oncelog.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

_MIN_REAUTHENTICATION_SECONDS: Final = 1.0
"""A client that authenticates again so soon after it did so last is refused; the first time it may at any moment."""
_LONGEST_LIFETIME_MS: Final = 365 * 86_400_000
"""Of a session by a token: a token may be valid for any time."""


class SaslState(Enum):
    """What a connection waits for."""

    INITIAL = "ApiVersions or SaslHandshake"
    HANDSHAKE = "SaslHandshake"
    TOKEN = "SaslAuthenticate with a token"
    RAW_TOKEN = "a token as a bare frame"
    COMPLETE = "any request: the client is authenticated"
    FAILED = "its end"


NEXT_STATES: Final[Mapping[SaslState, frozenset[SaslState]]] = {
    SaslState.INITIAL: frozenset({SaslState.HANDSHAKE, SaslState.TOKEN, SaslState.RAW_TOKEN, SaslState.FAILED}),
    SaslState.HANDSHAKE: frozenset({SaslState.TOKEN, SaslState.RAW_TOKEN, SaslState.FAILED}),
    SaslState.TOKEN: frozenset({SaslState.COMPLETE, SaslState.FAILED}),
    SaslState.RAW_TOKEN: frozenset({SaslState.COMPLETE, SaslState.FAILED}),
    SaslState.COMPLETE: frozenset({SaslState.TOKEN, SaslState.RAW_TOKEN, SaslState.FAILED}),
    SaslState.FAILED: frozenset(),
}
"""The states that may follow each state."""


class Mechanism(NamedTuple):
    """A mechanism of a listener."""

    new_server: Callable[[], SaslServer]
    max_reauth_ms: int
    """Lifetime of a session in milliseconds; 0: no limit."""


class Session(NamedTuple):
    """What a successful authentication leaves behind."""

    user: str
    mechanism: str
    began_at: float
    lifetime_ms: int
    """0: the session has no end."""
    is_delegated: bool = False
    """Whether the client has authenticated by a delegation token."""


class Reply(NamedTuple):
    """What the client gets: a response or a bare token, or nothing; and why the connection then ends, if it does."""

    response: SaslHandshakeResponse | SaslAuthenticateResponse | bytes | None
    ends: str = ""
    user: str = ""
    """Whom a client that failed claims to be, if there is such a user."""


class SaslAuthenticator:
    """The authentications of one connection, the first one and those that follow. Times are seconds of one clock."""

    __slots__ = ("_is_first", "_mechanisms", "_server", "mechanism", "session", "state")

    def __init__(self, mechanisms: Mapping[str, Mechanism]) -> None:
        self._mechanisms = mechanisms
        self._is_first = True
        """Whether no session came before the last one."""
        self.mechanism = ""
        """The one that was chosen last; none at first."""
        self._server: SaslServer | None = None
        self.session: Session | None = None
        """The last one that began."""
        self.state = SaslState.INITIAL

    def note_greeting(self) -> None:
        """Note that ApiVersions has a response without an error: only SaslHandshake may follow."""
        self._become(SaslState.HANDSHAKE)

    def may_begin_again(self, now: float) -> bool:
        """Return whether an authenticated client may authenticate again."""
        session = self.session
        if session is None or session.lifetime_ms <= 0:
            return False
        return self._is_first or now - session.began_at >= _MIN_REAUTHENTICATION_SECONDS

    def handshake(self, request: SaslHandshakeRequest, version: int) -> Reply:
        """Choose the mechanism."""
        served = list(self._mechanisms)
        chosen = self._mechanisms.get(request.mechanism)
        if chosen is None:
            self._become(SaslState.FAILED)
            error = ErrorCode.UNSUPPORTED_SASL_MECHANISM
            ends = f"a client requests a SASL mechanism that is not enabled; enabled: {', '.join(served)}"
            return Reply(SaslHandshakeResponse(error_code=error, mechanisms=served), ends)
        self.mechanism = request.mechanism
        self._server = chosen.new_server()
        self._become(SaslState.TOKEN if version > 0 else SaslState.RAW_TOKEN)
        return Reply(SaslHandshakeResponse(mechanisms=served))

    def authenticate(self, token: bytes, now: float) -> Reply:
        """Take a token that came in SaslAuthenticate."""
        step = self._respond(token, now)
        match step:
            case Challenge(challenge):
                return Reply(SaslAuthenticateResponse(auth_bytes=challenge))
            case Authenticated(token=last):
                assert self.session is not None
                lifetime_ms = self.session.lifetime_ms
                return Reply(SaslAuthenticateResponse(auth_bytes=last, session_lifetime_ms=lifetime_ms))
            case Refusal(message, reason, user):
                response = SaslAuthenticateResponse(
                    error_code=ErrorCode.SASL_AUTHENTICATION_FAILED, error_message=message
                )
                return Reply(response, _failed(reason), user)

    def authenticate_raw(self, token: bytes, now: float) -> Reply:
        """Take a token that came as a bare frame. A failure has no response."""
        step = self._respond(token, now)
        return Reply(None, _failed(step.reason), step.user) if isinstance(step, Refusal) else Reply(step.token)

    def fail(self) -> None:
        """Note that the client has sent what may not come now."""
        self._become(SaslState.FAILED)

    def _respond(self, token: bytes, now: float) -> SaslStep:
        assert self._server is not None
        step = self._refused_again() or self._server.respond(token)
        if isinstance(step, Authenticated):
            step = self._why_other(step) or step
        if isinstance(step, Authenticated):
            lifetime_ms = _lifetime_ms(self._mechanisms[self.mechanism].max_reauth_ms, step.remaining_ms)
            self._is_first = self.session is None
            self.session = Session(step.user, self.mechanism, now, lifetime_ms, step.is_delegated)
            self._become(SaslState.COMPLETE)
        elif isinstance(step, Refusal):
            self._become(SaslState.FAILED)
        return step

    def _refused_again(self) -> Refusal | None:
        """Return the refusal of another mechanism than that of the session."""
        if self.session is None or self.session.mechanism == self.mechanism:
            return None
        text = (
            f"SASL mechanism '{self.mechanism}' requested by client is not supported for re-authentication of "
            f"mechanism '{self.session.mechanism}'"
        )
        return Refusal(text, text, self.session.user)

    def _why_other(self, authenticated: Authenticated) -> Refusal | None:
        """Return the refusal of another user than that of the session."""
        if self.session is None or self.session.user == authenticated.user:
            return None
        text = (
            f"Cannot change principals during re-authentication from User:{self.session.user}: "
            f"User:{authenticated.user}"
        )
        return Refusal(text, text, self.session.user)

    def _become(self, state: SaslState) -> None:
        assert state in NEXT_STATES[self.state], f"{self.state.name} to {state.name}"
        self.state = state


def _lifetime_ms(max_reauth_ms: int, remaining_ms: int | None) -> int:
    """Return the lifetime of a session in milliseconds; 0: no limit."""
    if remaining_ms is None:
        return max_reauth_ms
    return min(remaining_ms, max_reauth_ms or _LONGEST_LIFETIME_MS, _LONGEST_LIFETIME_MS)


def _failed(reason: str) -> str:
    return f"authentication failed: {reason}"
