"""PLAIN on the server (RFC 4616): a name and a password, compared with those of the listener's JAAS configuration.

A comparison takes the same time whether the user exists, and wherever the passwords differ.
"""

import hashlib
import hmac
from collections.abc import Mapping
from typing import Final

from oncelog.broker.security.sasl_server import OTHER_AUTHORIZATION_ID, Authenticated, Refusal, SaslStep
from oncelog.protocol.sasl.plain import BadPlainMessage, parse_plain

_NO_PASSWORD: Final = ""
"""Of a user that does not exist. No client can send it: an empty password is refused before."""


class PlainServer:
    """Implements ``SaslServer``."""

    def __init__(self, users: Mapping[str, str]) -> None:
        """Accept the ``users``, whose passwords are the values."""
        self._users = users

    def respond(self, token: bytes) -> SaslStep:
        try:
            message = parse_plain(token)
        except BadPlainMessage as error:
            return Refusal(str(error), f"a malformed PLAIN token of {len(token)} bytes")
        is_right = hmac.compare_digest(_digest(self._users.get(message.user, _NO_PASSWORD)), _digest(message.password))
        if not is_right:
            known = message.user in self._users
            reason = f"a wrong password of user {message.user}" if known else "an unknown user"
            user = message.user if known else ""
            return Refusal("Authentication failed: Invalid username or password", reason, user)
        if message.authorization_id not in ("", message.user):
            reason = f"user {message.user} asks for another authorization id"
            return Refusal(OTHER_AUTHORIZATION_ID, reason, message.user)
        return Authenticated(message.user)


def _digest(password: str) -> bytes:
    """Return a digest, so that the length of a password does not show in the time of its comparison."""
    return hashlib.sha256(password.encode()).digest()
