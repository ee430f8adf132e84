"""OAUTHBEARER on the server (RFC 7628, KIP-255): a token from a trusted issuer, in place of a password.

A message that is malformed, or names another authorization id than the token's user, fails at once. A token that is not
accepted has the challenge ``{"status":"invalid_token"}``, as in Kafka; whatever the client sends then, the exchange
fails. The client does not learn why: the reason is for the log.
"""

from collections.abc import Callable
from typing import Final

from oncelog.broker.security.sasl_server import Authenticated, Challenge, Refusal, SaslStep
from oncelog.broker.security.token_verifier import BadToken, TokenOutcome
from oncelog.protocol.sasl.oauthbearer import INVALID_TOKEN, OAUTHBEARER, BadOauthMessage, parse_oauth_first

VerifyToken = Callable[[str], TokenOutcome]
"""From a token to what it says, or why it is refused."""
_MALFORMED: Final = (
    f"Authentication failed during authentication due to invalid credentials with SASL mechanism {OAUTHBEARER}"
)
_OTHER_ID: Final = (
    "Authentication failed: Client requested an authorization id that is different from the token's principal name"
)


class OauthServer:
    """Implements ``SaslServer``."""

    def __init__(self, verify: VerifyToken, wall_clock: Callable[[], int]) -> None:
        """Accept what ``verify`` does; ``wall_clock`` returns milliseconds since the epoch."""
        self._verify = verify
        self._wall_clock = wall_clock
        self._reason = ""
        """Why the client's token is refused, once it is."""

    def respond(self, token: bytes) -> SaslStep:
        if self._reason:
            return Refusal(INVALID_TOKEN.decode(), self._reason)
        try:
            message = parse_oauth_first(token)
        except BadOauthMessage as error:
            return Refusal(_MALFORMED, f"a malformed {OAUTHBEARER} message: {error}")
        outcome = self._verify(message.token)
        if isinstance(outcome, BadToken):
            self._reason = f"a bad token: {outcome.reason}"
            return Challenge(INVALID_TOKEN)
        if message.authorization_id not in ("", outcome.user):
            reason = f"a token of user {outcome.user} with another authorization id"
            return Refusal(_OTHER_ID, reason, outcome.user)
        return Authenticated(outcome.user, remaining_ms=max(1, outcome.expires_ms - self._wall_clock()))
