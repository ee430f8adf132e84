"""A cluster whose brokers log in to each other by tokens.

Files of tokens and keys are read in a thread in production; here at once, which is deterministic.
"""

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.simulation.cluster_stories import assert_agreement, create, simulate, state_of
from tests.simulation.simulated_broker import EPOCH_MS
from tests.simulation.simulated_cluster import SESSION_SECONDS, SimulatedCluster
from tests.simulation.virtual_loop import VirtualLoop
from tests.token_issuer import AUDIENCE, ISSUER, claims_at, jwks_of, new_key, sign

_PREFIX = "listener.name.plaintext"
_OAUTH = f"{_PREFIX}.oauthbearer.sasl.oauthbearer"


@pytest.fixture(autouse=True)
def read_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(loop: VirtualLoop, executor: object, function: Callable[..., Any], *arguments: Any) -> Any:
        assert function.__name__ == "_content", function
        future = loop.create_future()
        future.set_result(function(*arguments))
        return future

    monkeypatch.setattr(VirtualLoop, "run_in_executor", run)


@pytest.fixture
def settings(tmp_path: Path) -> dict[str, str]:
    key = new_key()
    (tmp_path / "jwks.json").write_bytes(jwks_of(key))
    (tmp_path / "token").write_text(sign(key, claims_at(EPOCH_MS / 1000, "broker")))
    return {
        "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT",
        f"{_PREFIX}.sasl.enabled.mechanisms": "OAUTHBEARER",
        "sasl.mechanism.inter.broker.protocol": "OAUTHBEARER",
        "oncelog.sasl.oauthbearer.allow.files": "true",
        f"{_OAUTH}.jwks.endpoint.url": f"file://{tmp_path}/jwks.json",
        f"{_OAUTH}.expected.audience": AUDIENCE,
        f"{_OAUTH}.expected.issuer": ISSUER,
        f"{_OAUTH}.token.endpoint.url": f"file://{tmp_path}/token",
        "connections.max.reauth.ms": "5000",
    }


def test_sessions_between_brokers_are_renewed_and_a_failover_needs_no_other_login(
    settings: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    async def story(cluster: SimulatedCluster) -> None:
        await create(cluster, "t", (2, 3, 1))
        await asyncio.sleep(1)
        before = state_of(cluster, "t")
        await asyncio.sleep(30)
        assert state_of(cluster, "t") == before
        assert "is lost" not in caplog.text
        cluster[2].kill()
        await asyncio.sleep(SESSION_SECONDS)
        assert set(state_of(cluster, "t").isr) == {1, 3}
        await cluster[2].start()
        await asyncio.sleep(SESSION_SECONDS)
        assert set(state_of(cluster, "t").isr) == {1, 2, 3}
        assert_agreement(cluster)

    with caplog.at_level(logging.INFO):
        simulate(story, settings=settings)


def test_broker_whose_token_is_for_others_joins_no_isr(settings: dict[str, str], tmp_path: Path) -> None:
    async def story(cluster: SimulatedCluster) -> None:
        await create(cluster, "t", (2, 3, 1))
        await asyncio.sleep(1)
        cluster[3].kill()
        await asyncio.sleep(SESSION_SECONDS)
        (tmp_path / "other").write_text("a.b.c")
        cluster[3].settings[f"{_OAUTH}.token.endpoint.url"] = f"file://{tmp_path}/other"
        await cluster[3].try_to_start()
        await asyncio.sleep(2 * SESSION_SECONDS)
        assert set(state_of(cluster, "t").isr) == {1, 2}

    simulate(story, settings=settings)
