"""OAUTHBEARER on a broker in virtual time: what a token allows, and until when."""

import asyncio
import tempfile
from pathlib import Path
from typing import Any, Final

import pytest

from oncelog.clients.connection import Address, Connection, connect
from oncelog.clients.errors import AuthenticationFailed, ConnectionLost
from oncelog.clients.sasl import SaslClient
from oncelog.protocol.messages.metadata import MetadataRequest, MetadataResponse
from oncelog.protocol.sasl.login import OauthLogin
from tests.scenarios.sasl_states import PLAINTEXT_PORT, SASL_PORT
from tests.scenarios.stage import Stage, scenario
from tests.token_issuer import AUDIENCE, ISSUER, claims_at, jwks_of, new_key, sign

SASL: Final = Address("127.0.0.1", SASL_PORT)
KEY: Final = new_key()
_DIRECTORY: Final = tempfile.TemporaryDirectory()
_JWKS: Final = Path(_DIRECTORY.name) / "jwks.json"
_JWKS.write_bytes(jwks_of(KEY))
_PREFIX: Final = "listener.name.sasl_plaintext.oauthbearer"
SETTINGS: Final = {
    "listeners": f"PLAINTEXT://127.0.0.1:{PLAINTEXT_PORT},SASL_PLAINTEXT://127.0.0.1:{SASL_PORT}",
    "listener.name.sasl_plaintext.sasl.enabled.mechanisms": "OAUTHBEARER",
    f"{_PREFIX}.oncelog.sasl.oauthbearer.allow.files": "true",
    f"{_PREFIX}.sasl.oauthbearer.jwks.endpoint.url": f"file://{_JWKS}",
    f"{_PREFIX}.sasl.oauthbearer.expected.audience": AUDIENCE,
    f"{_PREFIX}.sasl.oauthbearer.expected.issuer": ISSUER,
}
LIFETIME_SECONDS: Final = 100


def client(stage: Stage, **changes: Any) -> SaslClient:
    """Return a client whose tokens are valid for ``LIFETIME_SECONDS`` from each authentication."""

    async def provide() -> str:
        now = stage.broker.wall_clock() / 1000
        return sign(KEY, claims_at(now, **{"exp": now + LIFETIME_SECONDS, **changes}))

    return SaslClient(OauthLogin(token_provider=provide))


def request(connection: Connection) -> "asyncio.Future[MetadataResponse]":
    return connection.send(MetadataRequest(topics=[]), MetadataResponse)


@scenario(settings=SETTINGS)
async def test_connection_outlives_many_tokens_without_losing_a_request(stage: Stage) -> None:
    connection = await connect(SASL, sasl=client(stage))
    end = stage.loop.time() + 5 * LIFETIME_SECONDS
    while stage.loop.time() < end:
        assert (await request(connection)).brokers
        await asyncio.sleep(1)
    assert connection.is_open
    connection.close()


@scenario(settings=SETTINGS)
async def test_session_ends_with_its_token_for_a_client_that_has_no_other(stage: Stage) -> None:
    began = stage.broker.wall_clock() / 1000
    sasl = client(stage, iat=began, exp=began + LIFETIME_SECONDS)
    connection = await connect(SASL, sasl=sasl)
    assert connection.session is not None
    connection.session.end()  # It does not authenticate again.
    await asyncio.sleep(LIFETIME_SECONDS - 2)
    assert (await request(connection)).brokers
    await asyncio.sleep(3)
    with pytest.raises(ConnectionLost):
        await request(connection)


@scenario(settings={**SETTINGS, "connections.max.reauth.ms": "10000"})
async def test_shorter_setting_ends_the_session_before_its_token(stage: Stage) -> None:
    connection = await connect(SASL, sasl=client(stage))
    assert connection.session is not None
    connection.session.end()
    await asyncio.sleep(11)
    with pytest.raises(ConnectionLost):
        await request(connection)


@scenario(settings=SETTINGS)
async def test_other_user_does_not_take_over_the_session(stage: Stage) -> None:
    users = ["alice", "bob"]

    async def provide() -> str:
        now = stage.broker.wall_clock() / 1000
        return sign(KEY, claims_at(now, users.pop(0), exp=now + LIFETIME_SECONDS))

    connection = await connect(SASL, sasl=SaslClient(OauthLogin(token_provider=provide)))
    await asyncio.sleep(LIFETIME_SECONDS)
    assert not connection.is_open
    assert "Cannot change principals during re-authentication" in str(connection.end)


@scenario(settings=SETTINGS)
async def test_bad_token_is_refused_with_the_text_of_kafka(stage: Stage) -> None:
    for changes in ({"aud": "others"}, {"iss": "others"}, {"iat": 1, "exp": 2}):
        with pytest.raises(AuthenticationFailed, match=r'127\.0\.0\.1:9093: \{"status":"invalid_token"\}'):
            await connect(SASL, sasl=client(stage, **changes))


@scenario(settings=SETTINGS)
async def test_token_that_has_just_expired_makes_a_session_without_requests(stage: Stage) -> None:
    now = stage.broker.wall_clock() / 1000
    connection = await connect(SASL, sasl=client(stage, iat=now - 100, exp=now - 10))
    await asyncio.sleep(0.5)
    with pytest.raises(ConnectionLost):
        await request(connection)
