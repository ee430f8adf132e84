"""One request in one state of a connection, on a broker in virtual time: what comes back, and when the connection ends.

A state is brought about by the frames that are sent before. The request has the fields of its class by default, in the
newest version; for an API without a class here it is a header alone.
"""

import asyncio
import ssl
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, NamedTuple, cast

from oncelog.protocol.api_keys import ApiKey
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.framing import encode_request, parse_response
from oncelog.protocol.messages.api_versions import ApiVersionsRequest
from oncelog.protocol.messages.produce import ProduceRequest
from oncelog.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from oncelog.protocol.messages.sasl_handshake import SaslHandshakeRequest
from oncelog.protocol.sasl.plain import encode_plain
from oncelog.protocol.schema import Message
from tests.simulation.wire_client import response_class
from tests.unit.protocol.declared import message_classes

PLAINTEXT_PORT: Final = 9092
SASL_PORT: Final = 9093
EXPIRING_PORT: Final = 9094
SESSION_SECONDS: Final = 1.2
"""``connections.max.reauth.ms`` of the listener whose sessions end."""
_NETWORK_SECONDS: Final = 0.05
_PATIENCE_SECONDS: Final = 1.5
_CORRELATION_ID: Final = 7
_OWN_VERSIONS: Final = {ApiKey.INIT_PRODUCER_ID: 5}

_USERS: Final = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="wonderland";'
SETTINGS: Final = {
    "listeners": f"PLAINTEXT://127.0.0.1:{PLAINTEXT_PORT},SASL_PLAINTEXT://127.0.0.1:{SASL_PORT}",
    "listener.name.sasl_plaintext.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": _USERS,
}


class Ends(NamedTuple):
    """Where the listeners of a broker are, and how they are connected to."""

    plaintext: int = PLAINTEXT_PORT
    sasl: int = SASL_PORT
    expiring: int = EXPIRING_PORT
    host: str = "127.0.0.1"
    tls: ssl.SSLContext | None = None
    """Of the two with SASL."""
    delay_seconds: float = 0.1
    """``connection.failed.authentication.delay.ms``."""


def authenticating_settings(ends: Ends, *, protocol: str) -> dict[str, str]:
    """Return the settings of the broker that was recorded: ANONYMOUS may do everything, alice nothing."""
    host = ends.host
    listeners = {"PLAINTEXT": ends.plaintext, "LOGIN": ends.sasl, "EXPIRING": ends.expiring}
    return {
        "listeners": ",".join(f"{name}://{host}:{port}" for name, port in listeners.items()),
        "listener.security.protocol.map": f"PLAINTEXT:PLAINTEXT,LOGIN:{protocol},EXPIRING:{protocol}",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        "sasl.jaas.config": _USERS,
        "listener.name.expiring.connections.max.reauth.ms": str(int(SESSION_SECONDS * 1000)),
        "connection.failed.authentication.delay.ms": str(int(ends.delay_seconds * 1000)),
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
        "delegation.token.secret.key": "key of the tokens",
    }


class State(Enum):
    """How far a connection is when the request comes."""

    PLAINTEXT = "on a listener without SASL"
    FIRST = "as the first request"
    GREETED = "after ApiVersions"
    TOKEN_DUE = "after SaslHandshake 1"
    RAW_TOKEN_DUE = "after SaslHandshake 0"
    MECHANISM_REFUSED = "after a SaslHandshake for a mechanism that there is not"
    LOGIN_REFUSED = "after a wrong password"
    AUTHENTICATED = "after a right password"
    EXPIRED = "after the end of its session"


_TOKEN: Final = encode_plain("alice", "wonderland")
_GREETING: Final = ApiVersionsRequest(client_software_name="c", client_software_version="1")
_BEFORE: Final[dict[State, tuple[tuple[Message, int], ...]]] = {
    State.PLAINTEXT: (),
    State.FIRST: (),
    State.GREETED: ((_GREETING, 4),),
    State.TOKEN_DUE: ((SaslHandshakeRequest(mechanism="PLAIN"), 1),),
    State.RAW_TOKEN_DUE: ((SaslHandshakeRequest(mechanism="PLAIN"), 0),),
    State.MECHANISM_REFUSED: ((SaslHandshakeRequest(mechanism="NOPE"), 1),),
    State.LOGIN_REFUSED: (
        (SaslHandshakeRequest(mechanism="PLAIN"), 1),
        (SaslAuthenticateRequest(auth_bytes=encode_plain("alice", "wrong")), 2),
    ),
}
_LOGIN: Final = ((SaslHandshakeRequest(mechanism="PLAIN"), 1), (SaslAuthenticateRequest(auth_bytes=_TOKEN), 2))
_BEFORE[State.AUTHENTICATED] = _BEFORE[State.EXPIRED] = _LOGIN
_REQUESTS: Final[dict[int, Message]] = {
    ApiKey.SASL_HANDSHAKE: SaslHandshakeRequest(mechanism="PLAIN"),
    ApiKey.SASL_AUTHENTICATE: SaslAuthenticateRequest(auth_bytes=_TOKEN),
    ApiKey.API_VERSIONS: _GREETING,
    ApiKey.PRODUCE: ProduceRequest(acks=1, timeout_ms=1_000),
}


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a client sees."""

    responds: bool
    errors: frozenset[ErrorCode] = field(default_factory=frozenset)
    """Every error code in the response."""
    closes: bool = False
    is_delayed: bool = False

    def __str__(self) -> str:
        when = "after the delay" if self.is_delayed else "at once"
        end = "closed" if self.closes else "open"
        if not self.responds:
            return f"{end} {when}" if self.closes else "nothing"
        return f"{'+'.join(sorted(error.name for error in self.errors)) or 'a response'} {when}, {end}"


def request_of(api_key: int) -> tuple[Message, int] | None:
    """Return the request of an API and its version; None if it has no class here."""
    for cls in message_classes().values():
        if cls.api_key == api_key and cls.__name__.endswith("Request"):
            version = _OWN_VERSIONS.get(ApiKey(api_key), cls.versions.last)
            return _REQUESTS.get(api_key) or cls(), version
    return None


async def outcome(api_key: int, state: State, ends: Ends) -> Outcome:
    """Send the request of an API in a state."""
    loop = asyncio.get_running_loop()
    port = {State.PLAINTEXT: ends.plaintext, State.EXPIRED: ends.expiring}.get(state, ends.sasl)
    tls = None if state is State.PLAINTEXT else ends.tls
    _, connection = await loop.create_connection(_Frames, ends.host, port, ssl=tls)
    try:
        for request, version in _BEFORE[state]:
            connection.send(b"".join(encode_request(1, "tester", request, version)))
            await connection.next_frame()
        if state in (State.MECHANISM_REFUSED, State.LOGIN_REFUSED):
            await connection.next_frame()  # None: it is closed right behind the response.
        if state is State.EXPIRED:
            await asyncio.sleep(SESSION_SECONDS + _NETWORK_SECONDS)
        made = request_of(api_key)
        began = loop.time()
        if made is None:
            connection.send(struct.pack(">ihhihx", 11, api_key, 0, _CORRELATION_ID, 0))
        else:
            connection.send(b"".join(encode_request(_CORRELATION_ID, "tester", *made)))
        frame = await connection.next_frame()
        is_delayed = loop.time() - began > ends.delay_seconds / 2
        if frame is None:
            return Outcome(responds=False, closes=connection.is_closed, is_delayed=is_delayed)
        assert made is not None
        assert int.from_bytes(frame[:4], "big") == _CORRELATION_ID
        _, response = parse_response(response_class(made[0]), made[1], memoryview(frame))
        await connection.next_frame(_NETWORK_SECONDS)
        return Outcome(
            responds=True,
            errors=frozenset(error_codes(response, made[1])),
            closes=connection.is_closed,
            is_delayed=is_delayed,
        )
    finally:
        connection.close()


def error_codes(message: Message, version: int) -> Iterator[ErrorCode]:
    """Yield every error code of a response."""
    for declared in type(message).fields:
        if version not in declared.versions:
            continue
        value = getattr(message, declared.name)
        if declared.name.endswith("error_code"):
            yield ErrorCode(value)
        for part in value if isinstance(value, list) else [value]:
            if isinstance(part, Message):
                yield from error_codes(part, version)


class _Frames(asyncio.Protocol):
    """A client that waits for frames."""

    transport: asyncio.Transport

    def __init__(self) -> None:
        self._received = bytearray()
        self._changed = asyncio.Event()
        self.is_closed = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._received += data
        self._changed.set()

    def connection_lost(self, error: Exception | None) -> None:
        self.is_closed = True
        self._changed.set()

    def send(self, data: bytes) -> None:
        self.transport.write(data)

    def close(self) -> None:
        self.transport.abort()

    async def next_frame(self, seconds: float = _PATIENCE_SECONDS) -> bytes | None:
        """Return the next frame; None when the connection has ended, or after some time."""
        try:
            async with asyncio.timeout(seconds):
                while True:
                    end = 4 + int.from_bytes(self._received[:4], "big")
                    if len(self._received) >= max(4, end):
                        frame = bytes(self._received[4:end])
                        del self._received[:end]
                        return frame
                    if self.is_closed:
                        return None
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            return None


def all_cells() -> list[tuple[int, State]]:
    """Return every API key of the recording, in every state; expired sessions are not in the recording."""
    return [(api_key, state) for state in State for api_key in range(128)]


async def all_outcomes(ends: Ends) -> dict[tuple[int, State], Outcome]:
    """Try the cells one after the other: some requests create topics, which others describe."""
    return {cell: await outcome(*cell, ends) for cell in all_cells()}
