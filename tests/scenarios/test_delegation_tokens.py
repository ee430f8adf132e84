"""Delegation tokens over the wire, in virtual time: a client logs in by one, and its session ends with it."""

import asyncio
import base64
import logging
from collections.abc import Callable
from typing import Any, Final

import pytest

from oncelog.clients.connection import Address, Connection, connect
from oncelog.clients.errors import AuthenticationFailed, ConnectionLost
from oncelog.clients.sasl import SaslClient
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from oncelog.protocol.messages.describe_delegation_token import (
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from oncelog.protocol.messages.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)
from oncelog.protocol.messages.metadata import MetadataRequest, MetadataResponse
from oncelog.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest, RenewDelegationTokenResponse
from oncelog.protocol.sasl.login import SaslLogin
from oncelog.protocol.sasl.mechanisms import SCRAM_MECHANISMS
from tests.scenarios.sasl_states import SASL_PORT, SETTINGS
from tests.scenarios.stage import Stage, scenario

SASL: Final = Address("127.0.0.1", SASL_PORT)
KEY: Final = "sesame-open"
WITH_TOKENS: Final = {
    **SETTINGS,
    "delegation.token.secret.key": KEY,
    "delegation.token.expiry.time.ms": "20000",
    "delegation.token.max.lifetime.ms": "60000",
    "delegation.token.expiry.check.interval.ms": "5000",
}
PASSWORD: Final = "wonderland"


def by_password() -> SaslClient:
    return SaslClient(SaslLogin(mechanism="PLAIN", username="alice", password=PASSWORD))


def by_token(token: CreateDelegationTokenResponse, mechanism: str = "SCRAM-SHA-256") -> SaslClient:
    password = base64.b64encode(token.hmac).decode()
    return SaslClient(SaslLogin(mechanism=mechanism, username=token.token_id, password=password, is_token=True))


async def log_in(stage: Stage, sasl: SaslClient) -> Connection:
    """Connect, with the slow computation of SCRAM on the loop of the simulation."""

    async def compute(executor: None, function: Callable[..., Any], *arguments: Any) -> Any:
        return function(*arguments)

    stage.loop.run_in_executor = compute  # type: ignore[method-assign]
    return await connect(SASL, sasl=sasl)


async def create(connection: Connection, max_lifetime_ms: int = -1) -> CreateDelegationTokenResponse:
    request = CreateDelegationTokenRequest(max_lifetime_ms=max_lifetime_ms)
    response = await connection.send(request, CreateDelegationTokenResponse)
    assert response.error_code == ErrorCode.NONE
    return response


async def renew(connection: Connection, token: CreateDelegationTokenResponse) -> None:
    response = await connection.send(
        RenewDelegationTokenRequest(hmac=token.hmac, renew_period_ms=-1), RenewDelegationTokenResponse
    )
    assert response.error_code == ErrorCode.NONE


async def tokens_seen(connection: Connection) -> list[str]:
    response = await connection.send(DescribeDelegationTokenRequest(owners=None), DescribeDelegationTokenResponse)
    assert response.error_code == ErrorCode.NONE
    return [each.token_id for each in response.tokens]


async def ask(connection: Connection) -> None:
    assert (await connection.send(MetadataRequest(topics=[]), MetadataResponse)).brokers


@scenario(settings=WITH_TOKENS)
async def test_client_logs_in_by_token_with_each_mechanism_and_cannot_request_tokens(stage: Stage) -> None:
    admin = await connect(SASL, sasl=by_password())
    token = await create(admin)
    for mechanism in SCRAM_MECHANISMS:
        connection = await log_in(stage, by_token(token, mechanism))
        await ask(connection)
        response = await connection.send(CreateDelegationTokenRequest(), CreateDelegationTokenResponse)
        assert response.error_code == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
        assert response.principal_name == "alice"
        connection.close()
    admin.close()


@scenario(settings=WITH_TOKENS)
async def test_wrong_hmac_and_unknown_token_are_refused_alike(stage: Stage) -> None:
    admin = await connect(SASL, sasl=by_password())
    token = await create(admin)
    wrong = CreateDelegationTokenResponse(token_id=token.token_id, hmac=token.hmac[:-1] + b"x")
    unknown = CreateDelegationTokenResponse(token_id="ua5cey91Qx2ffVPJ39yBcw", hmac=token.hmac)
    texts = set()
    for each in (wrong, unknown):
        with pytest.raises(AuthenticationFailed) as caught:
            await log_in(stage, by_token(each))
        texts.add(str(caught.value))
    as_user = SaslLogin(mechanism="SCRAM-SHA-256", username=token.token_id, password=by_token(token).login.password)
    with pytest.raises(AuthenticationFailed) as caught:
        await log_in(stage, SaslClient(as_user))
    assert texts == {str(caught.value)}
    admin.close()


@scenario(settings=WITH_TOKENS)
async def test_session_ends_with_its_token_although_the_client_tries_to_go_on(stage: Stage) -> None:
    admin = await connect(SASL, sasl=by_password())
    token = await create(admin)
    connection = await log_in(stage, by_token(token))
    await asyncio.sleep(15)
    await ask(connection)
    await asyncio.sleep(6)
    while connection.is_open:
        with pytest.raises(ConnectionLost):
            await ask(connection)
    with pytest.raises(AuthenticationFailed):
        await log_in(stage, by_token(token))
    await ask(admin)
    admin.close()


@scenario(settings=WITH_TOKENS)
async def test_renewed_token_prolongs_the_session_until_its_maximum(stage: Stage) -> None:
    admin = await connect(SASL, sasl=by_password())
    token = await create(admin)
    connection = await log_in(stage, by_token(token))
    for _ in range(5):
        await asyncio.sleep(11)
        await ask(connection)
        await renew(admin, token)
    await asyncio.sleep(6)
    while connection.is_open:
        with pytest.raises(ConnectionLost):
            await ask(connection)
    admin.close()


@scenario(settings={**WITH_TOKENS, "connections.max.reauth.ms": "4000"})
async def test_session_by_token_ends_no_later_than_the_setting_says(stage: Stage) -> None:
    admin = await connect(SASL, sasl=by_password())
    token = await create(admin)
    connection = await log_in(stage, by_token(token))
    response = await admin.send(
        ExpireDelegationTokenRequest(hmac=token.hmac, expiry_time_period_ms=-1), ExpireDelegationTokenResponse
    )
    assert response.error_code == ErrorCode.NONE
    await ask(connection)
    await asyncio.sleep(4.5)
    assert not connection.is_open
    await ask(admin)
    admin.close()


@scenario(settings=WITH_TOKENS)
async def test_expired_tokens_are_removed(stage: Stage) -> None:
    admin = await connect(SASL, sasl=by_password())
    short, other = await create(admin, 2_000), await create(admin)
    assert sorted(await tokens_seen(admin)) == sorted([short.token_id, other.token_id])
    await asyncio.sleep(8)
    assert await tokens_seen(admin) == [other.token_id]
    await asyncio.sleep(20)
    assert await tokens_seen(admin) == []
    admin.close()


@scenario(settings=WITH_TOKENS)
async def test_token_is_accepted_after_a_kill(stage: Stage) -> None:
    admin = await connect(SASL, sasl=by_password())
    token = await create(admin)
    await stage.restart()
    connection = await log_in(stage, by_token(token))
    await ask(connection)
    connection.close()


def test_log_contains_no_secret_of_a_token(caplog: pytest.LogCaptureFixture) -> None:
    secrets: list[bytes] = []

    @scenario(settings=WITH_TOKENS)
    async def story(stage: Stage) -> None:
        admin = await connect(SASL, sasl=by_password())
        token = await create(admin)
        secrets.append(token.hmac)
        connection = await log_in(stage, by_token(token))
        await renew(admin, token)
        await tokens_seen(admin)
        wrong = CreateDelegationTokenResponse(token_id=token.token_id, hmac=b"x" + token.hmac[1:])
        with pytest.raises(AuthenticationFailed):
            await log_in(stage, by_token(wrong))
        connection.close()
        admin.close()

    with caplog.at_level(logging.DEBUG):
        story()
    assert "is created for User:alice" in caplog.text
    assert secrets
    for secret in secrets:
        for text in (base64.b64encode(secret).decode(), secret.hex(), repr(secret)[2:-1], KEY):
            assert text not in caplog.text
