"""``SaslClient``: the client's side of authentication by SASL: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 and OAUTHBEARER.

A SCRAM server says how many iterations of a slow function a client computes. So that no server can stop a client, the
number is bounded; what is allowed is computed in a thread, and kept, because a client opens several connections.
"""

import asyncio
import hmac
from collections.abc import Awaitable, Callable
from random import Random, SystemRandom
from typing import Final, TypeAlias

from oncelog.clients.errors import AuthenticationFailed
from oncelog.clients.oauth_tokens import TokenSource
from oncelog.protocol.sasl.login import Login, OauthLogin, SaslLogin
from oncelog.protocol.sasl.mechanisms import PLAIN, SCRAM_MECHANISMS
from oncelog.protocol.sasl.oauthbearer import END_OF_CLIENT, encode_oauth_first
from oncelog.protocol.sasl.plain import encode_plain
from oncelog.protocol.sasl.scram import (
    MAX_ITERATIONS,
    MIN_ITERATIONS,
    ScramMechanism,
    client_proof,
    new_credential,
    salt_of,
    salt_password,
    server_signature,
    signed_text,
)
from oncelog.protocol.sasl.scram_messages import (
    BadScramMessage,
    ServerFirst,
    encode_client_final,
    encode_client_final_without_proof,
    encode_client_first,
    parse_server_final,
    parse_server_first,
)

SendToken: TypeAlias = Callable[[bytes], Awaitable[bytes]]
"""Sends a token and returns the server's. Raises ``AuthenticationFailed``."""
_NONCE_BITS: Final = 130


class SaslClient:
    """Authenticates the connections of one client."""

    def __init__(self, login: Login, *, rng: Random | None = None, max_iterations: int = MAX_ITERATIONS) -> None:
        """Set up without a connection; ``rng`` makes the nonces, which no server may predict."""
        self.login = login
        self._rng = rng or SystemRandom()
        self._max_iterations = max_iterations
        self._salted: dict[tuple[bytes, int], bytes] = {}
        """The last salted password, by salt and iterations."""
        self._tokens = TokenSource(login) if isinstance(login, OauthLogin) else None

    async def prepare(self) -> None:
        """Get what the next authentication needs from elsewhere. A failure is that of the authentication."""
        if self._tokens is not None:
            await self._tokens.prepare()

    async def authenticate(self, send: SendToken) -> None:
        """Exchange tokens until the server has accepted the client. Raises ``AuthenticationFailed``."""
        login = self.login
        if isinstance(login, OauthLogin):
            await self._authenticate_by_token(login, send)
            return
        if login.mechanism == PLAIN:
            await send(encode_plain(login.username, login.password))
            return
        try:
            await self._authenticate_by_scram(login, SCRAM_MECHANISMS[login.mechanism], send)
        except BadScramMessage as error:
            raise AuthenticationFailed(f"{login.mechanism}: {error}") from error

    async def _authenticate_by_token(self, login: OauthLogin, send: SendToken) -> None:
        assert self._tokens is not None
        token = await self._tokens.token()
        if await send(encode_oauth_first(token, dict(login.extensions))):
            await send(END_OF_CLIENT)  # The server has refused the token, and now says so by an error.
            raise AuthenticationFailed(f"{login.mechanism}: the server does not accept the token")

    async def _authenticate_by_scram(self, login: SaslLogin, mechanism: ScramMechanism, send: SendToken) -> None:
        nonce = salt_of(self._rng.getrandbits(_NONCE_BITS)).decode()
        header, bare = encode_client_first(login.username, nonce, is_token=login.is_token)
        server_first = await send(header + bare)
        first = parse_server_first(server_first)
        if not first.nonce.startswith(nonce) or len(first.nonce) == len(nonce):
            raise BadScramMessage("the server's nonce does not continue the client's")
        if not MIN_ITERATIONS <= first.iterations <= self._max_iterations:
            raise BadScramMessage(
                f"the server requests {first.iterations} iterations: expected {MIN_ITERATIONS} to "
                f"{self._max_iterations}"
            )
        salted = await self._salt(login, mechanism, first)
        without_proof = encode_client_final_without_proof(header, first.nonce)
        signed = signed_text(bare, server_first, without_proof)
        signature = await send(encode_client_final(without_proof, client_proof(mechanism, salted, signed)))
        server_key = new_credential(mechanism, salted, salt=first.salt, iterations=first.iterations).server_key
        if not hmac.compare_digest(parse_server_final(signature), server_signature(mechanism, server_key, signed)):
            raise BadScramMessage("the server does not prove that it knows the password")

    async def _salt(self, login: SaslLogin, mechanism: ScramMechanism, first: ServerFirst) -> bytes:
        key = (first.salt, first.iterations)
        if key not in self._salted:
            loop = asyncio.get_running_loop()
            salted = await loop.run_in_executor(None, salt_password, mechanism, login.password, *key)
            self._salted = {key: salted}
        return self._salted[key]
