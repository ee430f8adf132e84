"""Authentication of a client: against our server, and against servers that cheat."""

import asyncio
import random
from collections.abc import Awaitable, Callable

import pytest

from oncelog.broker.security.plain_server import PlainServer
from oncelog.broker.security.sasl_server import Refusal, SaslServer
from oncelog.broker.security.scram_server import ScramServer
from oncelog.clients import sasl as sasl_module
from oncelog.clients.errors import AuthenticationFailed
from oncelog.clients.sasl import SaslClient
from oncelog.protocol.sasl.login import SaslLogin
from oncelog.protocol.sasl.mechanisms import SCRAM_MECHANISMS
from oncelog.protocol.sasl.scram import ScramMechanism, new_credential, salt_password
from oncelog.protocol.sasl.scram_messages import encode_server_first, parse_client_first

pytestmark = pytest.mark.real_loop
SALT = b"0123456789"


def scram_server(mechanism: ScramMechanism, *, iterations: int = 4096) -> ScramServer:
    salted = salt_password(mechanism, "wonderland", SALT, iterations)
    credential = new_credential(mechanism, salted, salt=SALT, iterations=iterations)
    return ScramServer(mechanism, {"al,i=ce": credential}.get, rng=random.Random(1), fake_salt_key=b"")


def line(server: SaslServer) -> Callable[[bytes], Awaitable[bytes]]:
    async def send(token: bytes) -> bytes:
        step = server.respond(token)
        if isinstance(step, Refusal):
            raise AuthenticationFailed(step.message)
        return step.token

    return send


def login(mechanism: str, password: str = "wonderland") -> SaslLogin:
    return SaslLogin(mechanism=mechanism, username="al,i=ce", password=password)


@pytest.mark.parametrize("mechanism", SCRAM_MECHANISMS.values(), ids=lambda each: each.name)
async def test_scram_accepts_the_right_password_and_refuses_another(mechanism: ScramMechanism) -> None:
    client = SaslClient(login(mechanism.name))
    await client.authenticate(line(scram_server(mechanism)))
    await client.authenticate(line(scram_server(mechanism, iterations=8192)))
    with pytest.raises(AuthenticationFailed, match="invalid credentials"):
        await SaslClient(login(mechanism.name, "wrong")).authenticate(line(scram_server(mechanism)))


async def test_plain_sends_name_and_password() -> None:
    await SaslClient(login("PLAIN")).authenticate(line(PlainServer({"al,i=ce": "wonderland"})))


async def test_salted_password_is_computed_once_and_off_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    mechanism = SCRAM_MECHANISMS["SCRAM-SHA-256"]
    threads = []

    def salt(*arguments: object) -> bytes:
        try:
            asyncio.get_running_loop()
            threads.append("loop")
        except RuntimeError:
            threads.append("thread")
        return salt_password(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(sasl_module, "salt_password", salt)
    client = SaslClient(login(mechanism.name))
    for _ in range(3):
        await client.authenticate(line(scram_server(mechanism)))
    assert threads == ["thread"]


@pytest.mark.parametrize("iterations", [0, 1, 4095, 16385, 2**31 - 1])
async def test_iterations_beyond_the_bounds_are_refused_without_computing(
    iterations: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(sasl_module, "salt_password")

    async def send(token: bytes) -> bytes:
        return encode_server_first(parse_client_first(token).nonce + "x", SALT, iterations)

    with pytest.raises(AuthenticationFailed, match=f"{iterations} iterations: expected 4096 to 16384"):
        await SaslClient(login("SCRAM-SHA-256")).authenticate(send)


@pytest.mark.parametrize("change", ["another", "same"])
async def test_nonce_that_does_not_continue_the_clients_is_refused(change: str) -> None:
    async def send(token: bytes) -> bytes:
        nonce = parse_client_first(token).nonce
        return encode_server_first("x" + nonce if change == "another" else nonce, SALT, 4096)

    with pytest.raises(AuthenticationFailed, match="nonce does not continue"):
        await SaslClient(login("SCRAM-SHA-256")).authenticate(send)


@pytest.mark.parametrize("final", [b"v=" + b"A" * 43 + b"=", b"e=other-error", b"", b"v="])
async def test_server_that_does_not_know_the_password_is_refused(final: bytes) -> None:
    tokens = iter([None, final])

    async def send(token: bytes) -> bytes:
        return next(tokens) or encode_server_first(parse_client_first(token).nonce + "x", SALT, 4096)

    with pytest.raises(AuthenticationFailed):
        await SaslClient(login("SCRAM-SHA-256")).authenticate(send)
