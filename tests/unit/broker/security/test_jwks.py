"""The keys of an issuer over time, fetched by a script."""

import asyncio
import logging

import pytest

from oncelog.broker.config.oauth_config import JwksConfig
from oncelog.broker.process.supervisor import Supervisor
from oncelog.broker.security.jwks import Jwks, JwksUnavailable
from tests.token_issuer import jwks_of, new_key

FIRST, SECOND = jwks_of(new_key("k1")), jwks_of(new_key("k2"))
CONFIG = JwksConfig(
    key="sasl.oauthbearer.jwks.endpoint.url",
    url="https://issuer.example/jwks",
    path="",
    refresh_seconds=3600,
    backoff_seconds=0.1,
    max_backoff_seconds=10,
)


class Issuer:
    """Fetches what it has; ``at`` are the times of the fetches."""

    def __init__(self, content: bytes | None) -> None:
        self.content = content
        self.at: list[float] = []

    async def fetch(self) -> bytes:
        loop = asyncio.get_running_loop()
        self.at.append(round(loop.time(), 3))
        await asyncio.sleep(0.01)
        if self.content is None:
            raise JwksUnavailable("cannot be fetched: no response")
        return self.content


async def begin(issuer: Issuer) -> tuple[Jwks, Supervisor]:
    jwks, supervisor = Jwks(CONFIG, issuer.fetch), Supervisor()
    await jwks.refresh()
    supervisor.supervise(jwks.run, "keys")
    return jwks, supervisor


def kids(jwks: Jwks) -> list[str]:
    return [key.kid for key in jwks.keys]


async def test_keys_are_fetched_at_the_interval() -> None:
    issuer = Issuer(FIRST)
    jwks, supervisor = await begin(issuer)
    issuer.content = SECOND
    await asyncio.sleep(3590)
    assert kids(jwks) == ["k1"]
    await asyncio.sleep(20)
    assert kids(jwks) == ["k2"]
    assert len(issuer.at) == 2
    await supervisor.stop()


async def test_missing_keys_of_any_number_cause_one_fetch_a_minute() -> None:
    issuer = Issuer(FIRST)
    jwks, supervisor = await begin(issuer)
    issuer.content = SECOND
    for _ in range(1000):
        jwks.note_missing_key()
    await asyncio.sleep(1)
    assert kids(jwks) == ["k2"]
    assert len(issuer.at) == 2
    for _ in range(590):
        await asyncio.sleep(0.1)
        jwks.note_missing_key()
    assert len(issuer.at) == 2
    await asyncio.sleep(2)
    jwks.note_missing_key()
    await asyncio.sleep(1)
    assert len(issuer.at) == 3
    await supervisor.stop()


@pytest.mark.parametrize("content", [None, b"<html>", b'{"keys":[]}'])
async def test_fetch_that_fails_keeps_the_last_good_keys_and_is_retried_with_backoff(
    content: bytes | None, caplog: pytest.LogCaptureFixture
) -> None:
    issuer = Issuer(FIRST)
    jwks, supervisor = await begin(issuer)
    issuer.content, issuer.at = content, []
    with caplog.at_level(logging.INFO):
        await asyncio.sleep(3600.02)
        began = issuer.at[0]
        await asyncio.sleep(60)
        assert kids(jwks) == ["k1"]
        pauses = [round(after - before - 0.01, 2) for before, after in zip(issuer.at, issuer.at[1:], strict=False)]
        assert pauses[:8] == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10]
        assert issuer.at[0] == began
        before = len(issuer.at)
        for _ in range(100):
            jwks.note_missing_key()  # While fetches fail the backoff decides.
        await asyncio.sleep(0.05)
        assert len(issuer.at) <= before + 1
        issuer.content = SECOND
        await asyncio.sleep(11)
    assert kids(jwks) == ["k2"]
    assert "the keys stay as they are (attempt 1)" in caplog.text
    assert "(attempt 3)" not in caplog.text
    assert "has 1 keys that verify tokens" in caplog.text
    await supervisor.stop()


async def test_start_without_the_issuer_has_no_keys_and_gets_them_later(caplog: pytest.LogCaptureFixture) -> None:
    issuer = Issuer(None)
    jwks, supervisor = await begin(issuer)
    assert jwks.keys == ()
    assert "there are no keys, and no token is accepted (attempt 1)" in caplog.text
    issuer.content = FIRST
    await asyncio.sleep(0.2)
    assert kids(jwks) == ["k1"]
    await supervisor.stop()
