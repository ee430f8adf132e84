"""Logins that must succeed, and those that must not, word by word: PLAIN and SCRAM (RFC 4616, RFC 5802)."""

import asyncio
import base64
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Final

from oncelog.clients.connection import Address, Connection, connect
from oncelog.clients.errors import ClientError
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.metadata import MetadataRequest, MetadataResponse
from oncelog.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from oncelog.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from oncelog.protocol.sasl.scram import SCRAM_SHA_256, SCRAM_SHA_512, ScramMechanism
from tests.command import Oncelog
from tests.processes import OncelogProcess, free_port
from tests.security.cell import Cell
from tests.unit.broker.security.scram_client import NONCE, ScramClient

LOGGED_IN: Final = "logged in"
REFUSED: Final = "refused"
PASSWORD: Final = "wonderland"
LIMIT_SECONDS: Final = 10.0

Say = Callable[[bytes], Awaitable[bytes]]
"""Sends a token and returns the broker's."""
Words = Callable[[Say], Awaitable[None]]


class Refused(Exception):
    """The broker does not accept what was said."""


async def _plain(token: bytes, say: Say) -> None:
    await say(token)


async def _scram(mechanism: ScramMechanism, user: str, password: str, say: Say) -> None:
    client = ScramClient(mechanism, user, password)
    await say(client.final(await say(client.first)))


async def _scram_first(first: bytes, say: Say) -> None:
    """Say a first message and, if the broker responds to it, a final one with whatever nonce it has."""
    client = ScramClient(SCRAM_SHA_256, "alice", PASSWORD)
    await say(client.final(await say(first)))


async def _scram_final(change: Callable[[bytes], bytes], say: Say) -> None:
    client = ScramClient(SCRAM_SHA_256, "alice", PASSWORD)
    await say(change(client.final(await say(client.first))))


async def _other_nonce(nonce: Callable[[str], str], say: Say) -> None:
    client = ScramClient(SCRAM_SHA_256, "alice", PASSWORD)
    server_first = await say(client.first)
    issued = server_first.split(b",")[0][2:].decode()
    await say(client.final(server_first, nonce=nonce(issued)))


async def _other_header(header: bytes, say: Say) -> None:
    client = ScramClient(SCRAM_SHA_256, "alice", PASSWORD)
    await say(client.final(await say(client.first), header=header))


async def _final_of_another(say: Say) -> None:
    """Repeat the proof of an exchange that another client has had."""
    client = ScramClient(SCRAM_SHA_256, "alice", PASSWORD)
    server_first = b"r=" + NONCE.encode() + b"recorded,s=" + base64.b64encode(b"salt") + b",i=4096"
    await say(client.first)
    await say(client.final(server_first))


async def _first_twice(say: Say) -> None:
    client = ScramClient(SCRAM_SHA_256, "alice", PASSWORD)
    await say(client.first)
    await say(client.first)


def _without_proof(final: bytes) -> bytes:
    return final.rpartition(b",p=")[0]


def _with_proof(proof: bytes) -> Callable[[bytes], bytes]:
    return lambda final: _without_proof(final) + b",p=" + proof


_ZEROS: Final = base64.b64encode(bytes(32))
_256, _512 = "SCRAM-SHA-256", "SCRAM-SHA-512"
LOGINS: Final[dict[str, tuple[str, str, Words]]] = {
    "PLAIN": ("PLAIN", LOGGED_IN, partial(_plain, b"\0alice\0wonderland")),
    "PLAIN as oneself": ("PLAIN", LOGGED_IN, partial(_plain, b"alice\0alice\0wonderland")),
    "PLAIN, wrong password": ("PLAIN", REFUSED, partial(_plain, b"\0alice\0wonderlanD")),
    "PLAIN, a part of the password": ("PLAIN", REFUSED, partial(_plain, b"\0alice\0wonder")),
    "PLAIN, unknown user": ("PLAIN", REFUSED, partial(_plain, b"\0mallory\0wonderland")),
    "PLAIN as another": ("PLAIN", REFUSED, partial(_plain, b"admin\0alice\0wonderland")),
    "PLAIN, no password": ("PLAIN", REFUSED, partial(_plain, b"\0alice\0")),
    "PLAIN, no user": ("PLAIN", REFUSED, partial(_plain, b"\0\0wonderland")),
    "PLAIN, two parts": ("PLAIN", REFUSED, partial(_plain, b"alice\0wonderland")),
    "PLAIN, four parts": ("PLAIN", REFUSED, partial(_plain, b"\0alice\0wonderland\0")),
    "PLAIN, nothing": ("PLAIN", REFUSED, partial(_plain, b"")),
    "PLAIN, no text": ("PLAIN", REFUSED, partial(_plain, b"\0\xff\xfe\0\xff")),
    "PLAIN, 500 KiB": ("PLAIN", REFUSED, partial(_plain, b"\0alice\0" + bytes(1) * 500_000)),
    "PLAIN with the words of SCRAM": ("PLAIN", REFUSED, partial(_scram, SCRAM_SHA_256, "alice", PASSWORD)),
    "SCRAM-SHA-256": (_256, LOGGED_IN, partial(_scram, SCRAM_SHA_256, "alice", PASSWORD)),
    "SCRAM-SHA-512": (_512, LOGGED_IN, partial(_scram, SCRAM_SHA_512, "alice", PASSWORD)),
    "SCRAM, wrong password": (_256, REFUSED, partial(_scram, SCRAM_SHA_256, "alice", "wonder")),
    "SCRAM, unknown user": (_256, REFUSED, partial(_scram, SCRAM_SHA_256, "mallory", PASSWORD)),
    "SCRAM, hash of the other mechanism": (_512, REFUSED, partial(_scram, SCRAM_SHA_256, "alice", PASSWORD)),
    "SCRAM as another": (_256, REFUSED, partial(_scram_first, b"n,a=admin,n=alice,r=" + NONCE.encode())),
    "SCRAM as oneself": (
        _256,
        REFUSED,  # The header differs from the one that the final message repeats.
        partial(_scram_first, b"n,a=alice,n=alice,r=" + NONCE.encode()),
    ),
    "SCRAM that could bind a channel": (_256, REFUSED, partial(_scram_first, b"y,,n=alice,r=" + NONCE.encode())),
    "SCRAM that binds a channel": (
        _256,
        REFUSED,
        partial(_scram_first, b"p=tls-unique,,n=alice,r=" + NONCE.encode()),
    ),
    "SCRAM with the reserved extension": (_256, REFUSED, partial(_scram_first, b"n,,m=x,n=alice,r=" + NONCE.encode())),
    "SCRAM without a nonce": (_256, REFUSED, partial(_scram_first, b"n,,n=alice")),
    "SCRAM with an empty nonce": (_256, REFUSED, partial(_scram_first, b"n,,n=alice,r=")),
    "SCRAM without a name": (_256, REFUSED, partial(_scram_first, b"n,,n=,r=" + NONCE.encode())),
    "SCRAM with a bad escape": (_256, REFUSED, partial(_scram_first, b"n,,n=al=2Xice,r=" + NONCE.encode())),
    "SCRAM with NUL in the name": (_256, REFUSED, partial(_scram_first, b"n,,n=al\0ice,r=" + NONCE.encode())),
    "SCRAM with a name of 100 KB": (
        _256,
        REFUSED,
        partial(_scram_first, b"n,,n=" + b"a" * 100_000 + b",r=" + NONCE.encode()),
    ),
    "SCRAM, nothing": (_256, REFUSED, partial(_scram_first, b"")),
    "SCRAM, garbage": (_256, REFUSED, partial(_scram_first, bytes(range(256)) * 40)),
    "SCRAM, final message first": (
        _256,
        REFUSED,
        partial(_scram_first, b"c=biws,r=" + NONCE.encode() + b",p=" + _ZEROS),
    ),
    "SCRAM, first message twice": (_256, REFUSED, _first_twice),
    "SCRAM, another nonce": (_256, REFUSED, partial(_other_nonce, lambda _: "anothernonce")),
    "SCRAM, only the client's nonce": (_256, REFUSED, partial(_other_nonce, lambda _: NONCE)),
    "SCRAM, a longer nonce": (_256, REFUSED, partial(_other_nonce, lambda issued: issued + "x")),
    "SCRAM, the proof of another exchange": (_256, REFUSED, _final_of_another),
    "SCRAM, another header at the end": (_256, REFUSED, partial(_other_header, b"y,,")),
    "SCRAM without a proof": (_256, REFUSED, partial(_scram_final, _without_proof)),
    "SCRAM, an empty proof": (_256, REFUSED, partial(_scram_final, _with_proof(b""))),
    "SCRAM, a proof of zeros": (_256, REFUSED, partial(_scram_final, _with_proof(_ZEROS))),
    "SCRAM, a short proof": (_256, REFUSED, partial(_scram_final, _with_proof(_ZEROS[:8]))),
    "SCRAM, a proof that is no base64": (_256, REFUSED, partial(_scram_final, _with_proof(b"!" * 44))),
    "SCRAM, a proof of 1 MB": (_256, REFUSED, partial(_scram_final, _with_proof(b"A" * 400_000))),
    "a mechanism in lower case": ("plain", REFUSED, partial(_plain, b"\0alice\0wonderland")),
    "GSSAPI": ("GSSAPI", REFUSED, partial(_plain, b"x")),
    "EXTERNAL": ("EXTERNAL", REFUSED, partial(_plain, b"alice")),
    "ANONYMOUS": ("ANONYMOUS", REFUSED, partial(_plain, b"alice")),
    "a mechanism without a name": ("", REFUSED, partial(_plain, b"\0alice\0wonderland")),
}


@asynccontextmanager
async def authenticated(port: int, mechanism: str, words: Words) -> AsyncIterator[Connection]:
    """Log in on the port of this machine, and close the connection afterwards. Raises ``Refused``."""
    connection = await connect(Address("localhost", port), request_seconds=LIMIT_SECONDS)
    try:
        await authenticate(connection, mechanism, words)
        yield connection
    finally:
        connection.close()


async def authenticate(connection: Connection, mechanism: str, words: Words) -> None:
    """Log in over a connection. Raises ``Refused`` if the broker does not accept the mechanism or the words."""
    handshake = await connection.send(SaslHandshakeRequest(mechanism=mechanism), SaslHandshakeResponse, at_least=1)
    if handshake.error_code:
        raise Refused
    await words(partial(say, connection))


async def login(port: int, mechanism: str, words: Words) -> str:
    """Return what comes of a login."""
    try:
        async with authenticated(port, mechanism, words) as connection:
            metadata = await connection.send(MetadataRequest(topics=[]), MetadataResponse)
            return LOGGED_IN if metadata.brokers else "no brokers"
    except (Refused, ClientError):
        return REFUSED
    except ValueError as error:  # What the broker says is no good message of SCRAM either.
        return f"{type(error).__name__}: {error}"


async def say(connection: Connection, token: bytes) -> bytes:
    response = await connection.send(SaslAuthenticateRequest(auth_bytes=token), SaslAuthenticateResponse)
    if response.error_code != ErrorCode.NONE:
        raise Refused
    return response.auth_bytes


async def _all_logins(port: int) -> list[Cell]:
    return [
        Cell(name, expected, await login(port, mechanism, words))
        for name, (mechanism, expected, words) in LOGINS.items()
    ]


def login_cells(directory: Path) -> list[Cell]:
    """Try all of them on one broker."""
    port = free_port()
    settings = [
        f"listeners=SASL_PLAINTEXT://localhost:{port}",
        "sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        "sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required "
        f'user_alice="{PASSWORD}" user_admin="secret";',
        "connection.failed.authentication.delay.ms=10",
    ]
    login = directory / "admin.properties"
    login.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.username=admin\nsasl.password=secret\n"
    )
    with OncelogProcess(directory, settings, port) as process:
        oncelog = Oncelog(process.address)
        for mechanism in (_256, _512):
            oncelog(f"user add alice --mechanism {mechanism} --command-config {login}", text=f"{PASSWORD}\n")
        return asyncio.run(_all_logins(port))
