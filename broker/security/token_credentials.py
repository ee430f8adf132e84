"""``TokenCredentials``: delegation tokens as SCRAM sees them.

The password of a token is its hmac in base64, and a broker knows it. It salts it as a client does. That takes 3 to 7 ms
of the event loop, so it is done at the first login by the token, and the result is kept. The salt is the one that a
name without a credential would get: all brokers have the same, and no client learns from it whether a token exists.
"""

import base64
from typing import Final, NamedTuple

from oncelog.coordinator.controller.token_repository import TokenRepository
from oncelog.coordinator.ports import WallClock
from oncelog.protocol.sasl.scram import MIN_ITERATIONS, ScramCredential, ScramMechanism, new_credential, salt_password

_MECHANISMS: Final = 2


class TokenSession(NamedTuple):
    """What a client has that has proved to have a token's hmac."""

    user: str
    """The owner of the token."""
    lifetime_ms: int
    """Milliseconds until the token expires, 1 or more."""


class TokenCredentials:
    """Implements ``oncelog.broker.security.scram_server.Tokens``."""

    def __init__(self, tokens: TokenRepository, wall_clock: WallClock) -> None:
        self._tokens = tokens
        self._wall_clock = wall_clock
        self._salted: dict[tuple[str, str, bytes], ScramCredential] = {}
        """By token id, mechanism and salt."""

    def session(self, token_id: str) -> TokenSession | None:
        """Return what a client of this token has; None if it does not exist or has expired."""
        token = self._tokens.tokens.get(token_id)
        lifetime_ms = 0 if token is None else token.expires_at_ms - self._wall_clock()
        return None if token is None or lifetime_ms <= 0 else TokenSession(token.owner.name, lifetime_ms)

    def find(self, mechanism: ScramMechanism, token_id: str, salt: bytes) -> ScramCredential | None:
        """Return the credential of a token that has not expired."""
        if self.session(token_id) is None:
            return None
        key = (token_id, mechanism.name, salt)
        if key not in self._salted:
            self._forget_removed()
            password = base64.b64encode(self._tokens.hmac_of(token_id)).decode()
            salted = salt_password(mechanism, password, salt, MIN_ITERATIONS)
            self._salted[key] = new_credential(mechanism, salted, salt=salt, iterations=MIN_ITERATIONS)
        return self._salted[key]

    def _forget_removed(self) -> None:
        tokens = self._tokens.tokens
        if len(self._salted) > _MECHANISMS * len(tokens):
            self._salted = {key: credential for key, credential in self._salted.items() if key[0] in tokens}
