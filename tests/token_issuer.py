"""``TokenIssuer``: an issuer of tokens on loopback, with a JWKS, a token endpoint, and keys that it can change.

It runs on an event loop in a thread of its own, so that synchronous tests and programs of other languages can use it.
"""

import asyncio
import base64
import json
import threading
import time
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import parse_qs, unquote_plus

from joserfc import jwt
from joserfc.jwk import ECKey, RSAKey

ISSUER: Final = "https://issuer.example"
AUDIENCE: Final = "oncelog-test"
SECRETS: Final = {"alice-app": "s3cret+/%", "broker-app": "b-secret"}
"""The secret of each client, by its id."""
_LIFETIME_SECONDS: Final = 3600


def new_key(kid: str = "k1", kind: str = "RSA") -> RSAKey | ECKey:
    parameters: Any = {"kid": kid} if kid else {}
    if kind == "RSA":
        return RSAKey.generate_key(2048, parameters)
    return ECKey.generate_key(kind, parameters)  # type: ignore[arg-type]


def jwks_of(*keys: RSAKey | ECKey) -> bytes:
    return json.dumps({"keys": [key.as_dict(private=False) for key in keys]}).encode()


def sign(key: RSAKey | ECKey, claims: dict[str, Any], *, algorithm: str = "RS256", **header: Any) -> str:
    """Return a token; the header names the key unless ``kid`` is None there."""
    named = {"alg": algorithm, "kid": key.kid, **header}
    return jwt.encode({k: v for k, v in named.items() if v is not None}, claims, key, algorithms=[algorithm])


def claims_at(now: float, user: str = "alice", **changes: Any) -> dict[str, Any]:
    """Return good claims; a change to None leaves one out."""
    good = {"iss": ISSUER, "aud": AUDIENCE, "sub": user, "iat": int(now), "exp": int(now) + _LIFETIME_SECONDS}
    return {name: value for name, value in {**good, **changes}.items() if value is not None}


@dataclass
class TokenIssuer:
    """Serves ``/jwks`` and ``/token`` while it is entered."""

    keys: list[RSAKey | ECKey] = field(default_factory=lambda: [new_key()])
    """The first one signs."""
    lifetime_seconds: int = _LIFETIME_SECONDS
    is_down: bool = False
    """Whether it closes each connection without a response."""
    fetches: list[str] = field(default_factory=list)
    """The path of each request."""
    port: int = 0

    def __post_init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="token issuer")

    def __enter__(self) -> Self:
        self._thread.start()
        self.port = asyncio.run_coroutine_threadsafe(self._serve(), self._loop).result(10)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    @property
    def jwks_url(self) -> str:
        return f"http://127.0.0.1:{self.port}/jwks"

    @property
    def token_url(self) -> str:
        return f"http://127.0.0.1:{self.port}/token"

    def token(self, user: str = "alice", **changes: Any) -> str:
        now = time.time()  # noqa: TID251 - the broker under test goes by the system's clock, too
        return sign(self.keys[0], claims_at(now, user, **{"exp": int(now) + self.lifetime_seconds, **changes}))

    async def _serve(self) -> int:
        self._server = await self._loop.create_server(lambda: _Http(self), "127.0.0.1", 0)
        return int(self._server.sockets[0].getsockname()[1])

    async def _stop(self) -> None:
        self._server.close()
        await self._server.wait_closed()

    def respond(self, path: str, authorization: str, body: bytes) -> tuple[int, bytes]:
        """Return status and body of a response."""
        self.fetches.append(path)
        if path == "/jwks":
            return 200, jwks_of(*self.keys)
        client_id, _, secret = base64.b64decode(authorization.removeprefix("Basic ")).decode().partition(":")
        client_id, secret = unquote_plus(client_id), unquote_plus(secret)
        if SECRETS.get(client_id) != secret or parse_qs(body.decode())["grant_type"] != ["client_credentials"]:
            return 401, b'{"error":"invalid_client"}'
        token = self.token(client_id.removesuffix("-app"))
        response = {"access_token": token, "token_type": "Bearer", "expires_in": self.lifetime_seconds}
        return 200, json.dumps(response).encode()


class _Http(asyncio.Protocol):
    """One request."""

    def __init__(self, issuer: TokenIssuer) -> None:
        self._issuer = issuer
        self._received = b""

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        if self._issuer.is_down:
            self._transport.abort()
            return
        self._received += data
        head, end, body = self._received.partition(b"\r\n\r\n")
        lines = head.decode().split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])}
        if not end or len(body) < int(headers.get("content-length", "0")):
            return
        status, content = self._issuer.respond(lines[0].split()[1], headers.get("authorization", ""), body)
        start = f"HTTP/1.1 {status} X\r\nContent-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n"
        self._transport.write(start.encode() + content)
        self._transport.close()
