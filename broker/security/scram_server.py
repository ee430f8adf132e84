"""SCRAM on the server (RFC 5802): verifies that a client has a password, without having it.

The slow derivation of keys is the client's work: the server has stored keys only. A user that does not exist is not
refused at its first message: it gets a salt that is always the same for its name, so that a client cannot learn which
names exist, and fails at its proof like a wrong password. A client may authenticate by a delegation token (KIP-48): its
id is in place of the user, and the same holds for ids.
"""

import random
from collections.abc import Callable
from typing import Final, Protocol

from oncelog.broker.security.sasl_server import (
    OTHER_AUTHORIZATION_ID,
    Authenticated,
    Challenge,
    Refusal,
    SaslStep,
)
from oncelog.broker.security.token_credentials import TokenSession
from oncelog.protocol.sasl.scram import (
    MIN_ITERATIONS,
    ScramCredential,
    ScramMechanism,
    is_proof,
    salt_of,
    server_signature,
    signed_text,
)
from oncelog.protocol.sasl.scram_messages import (
    BadScramMessage,
    ClientFirst,
    encode_server_final,
    encode_server_first,
    parse_client_final,
    parse_client_first,
)

_NONCE_BITS: Final = 130
_FAKE_SALT_BYTES: Final = 17

FindCredential = Callable[[str], ScramCredential | None]
"""From the name of a user to its credential for the mechanism."""


class Tokens(Protocol):
    """The delegation tokens of a cluster."""

    def find(self, mechanism: ScramMechanism, token_id: str, salt: bytes) -> ScramCredential | None:
        """Return the credential of a token, for a salt; None if it does not exist or has expired."""

    def session(self, token_id: str) -> TokenSession | None:
        """Return what a client has by this token; None if it does not exist or has expired."""


class ScramServer:
    """Implements ``SaslServer``."""

    def __init__(
        self,
        mechanism: ScramMechanism,
        find: FindCredential,
        tokens: Tokens | None = None,
        *,
        rng: random.Random,
        fake_salt_key: bytes,
    ) -> None:
        """Begin an exchange; without ``tokens`` no delegation token exists."""
        self._mechanism = mechanism
        self._find = find
        self._tokens = tokens
        self._rng = rng
        self._fake_salt_key = fake_salt_key
        self._first: ClientFirst | None = None
        self._server_first = b""
        self._nonce = ""
        self._credential: ScramCredential | None = None
        """None if the user or the token does not exist."""

    def respond(self, token: bytes) -> SaslStep:
        try:
            return self._begin(token) if self._first is None else self._finish(self._first, token)
        except BadScramMessage as error:
            return self._refused(f"a malformed {self._mechanism.name} message: {error}")

    def _begin(self, token: bytes) -> SaslStep:
        first = self._first = parse_client_first(token)
        if first.authorization_id not in ("", first.user):
            return Refusal(OTHER_AUTHORIZATION_ID, "a client asks for another authorization id than its name")
        self._credential = self._find_token(first.user) if first.is_token else self._find(first.user)
        self._nonce = first.nonce + salt_of(self._rng.getrandbits(_NONCE_BITS)).decode()
        shown = self._credential or self._fake(first.user)
        self._server_first = encode_server_first(self._nonce, shown.salt, shown.iterations)
        return Challenge(self._server_first)

    def _finish(self, first: ClientFirst, token: bytes) -> SaslStep:
        final = parse_client_final(token)
        if final.header != first.header:
            return self._refused("a channel binding header that differs from the first message's")
        if final.nonce not in (self._nonce, first.nonce + self._nonce):  # or librdkafka < 2.6.1
            return self._refused("a nonce that is not the one of this exchange")
        signed = signed_text(first.bare, self._server_first, final.without_proof)
        credential = self._credential or self._fake(first.user)
        is_right = is_proof(self._mechanism, credential, final.proof, signed)
        if self._credential is None:
            return self._refused(self._why_unknown(first))
        if not is_right:
            return self._refused(f"a wrong {'hmac of token' if first.is_token else 'password of user'} {first.user}")
        last = encode_server_final(server_signature(self._mechanism, credential.server_key, signed))
        if not first.is_token:
            return Authenticated(first.user, last)
        session = None if self._tokens is None else self._tokens.session(first.user)
        if session is None:
            return self._refused(self._why_unknown(first))
        return Authenticated(session.user, last, session.lifetime_ms, is_delegated=True)

    def _find_token(self, token_id: str) -> ScramCredential | None:
        return None if self._tokens is None else self._tokens.find(self._mechanism, token_id, self._salt(token_id))

    def _why_unknown(self, first: ClientFirst) -> str:
        if first.is_token:
            return "a delegation token that does not exist or has expired"
        return f"an unknown user, or one without a credential for {self._mechanism.name}"

    def _fake(self, user: str) -> ScramCredential:
        """Return a credential that no proof fits, with a salt that is always the same for the name."""
        digest = self._digest(user)
        return ScramCredential(salt=self._salt(user), iterations=MIN_ITERATIONS, stored_key=digest, server_key=digest)

    def _salt(self, name: str) -> bytes:
        return salt_of(int.from_bytes(self._digest(name)[:_FAKE_SALT_BYTES], "big"))

    def _digest(self, name: str) -> bytes:
        return self._mechanism.hmac(self._fake_salt_key, name.encode())

    def _refused(self, reason: str) -> Refusal:
        first = self._first
        is_known_user = first is not None and not first.is_token and self._credential is not None
        return Refusal(
            "Authentication failed during authentication due to invalid credentials with SASL mechanism "
            f"{self._mechanism.name}",
            reason,
            first.user if first is not None and is_known_user else "",
        )
