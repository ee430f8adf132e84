"""``SaslServer``: the server's side of one exchange of a SASL mechanism, without I/O.

It is given one token of the client after the other, and returns what comes of it. What a ``Refusal`` says to the client
is Kafka's text. Its reason is for the log, and names a user only if there is such a user: a client may have sent a
password in place of the name.
"""

from typing import NamedTuple, Protocol, TypeAlias


class Challenge(NamedTuple):
    """The exchange goes on: the token for the client."""

    token: bytes


class Authenticated(NamedTuple):
    """The client is this user; the last token for it."""

    user: str
    token: bytes = b""
    remaining_ms: int | None = None
    """Milliseconds until what the client has shown expires, at least 1; None if it does not."""
    is_delegated: bool = False
    """Whether it is a delegation token, of which the user is the owner."""


class Refusal(NamedTuple):
    """The exchange has failed."""

    message: str
    """For the client."""
    reason: str
    """For the log."""
    user: str = ""
    """Whom the client claims to be, if there is such a user."""


SaslStep: TypeAlias = Challenge | Authenticated | Refusal

OTHER_AUTHORIZATION_ID = "Authentication failed: Client requested an authorization id that is different from username"


class SaslServer(Protocol):
    """One exchange."""

    def respond(self, token: bytes) -> SaslStep: ...
