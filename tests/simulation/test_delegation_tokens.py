"""Delegation tokens in a cluster: every broker knows them within a second, whichever has changed them."""

import asyncio
import random
from typing import Final

from oncelog.coordinator.controller.delegation_tokens import TokenLimits, TokenRequest, issue, new_token_id, renew
from oncelog.protocol.delegation_token import TokenInformation
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.principal import Principal
from tests.simulation.cluster_stories import simulate
from tests.simulation.sim_zookeeper import Direction
from tests.simulation.simulated_cluster import SESSION_SECONDS, ClusterBroker, SimulatedCluster

SETTINGS: Final = {
    "delegation.token.secret.key": "sesame-open",
    "delegation.token.expiry.time.ms": "4000",
    "delegation.token.expiry.check.interval.ms": "2000",
}
LIMITS: Final = TokenLimits(max_lifetime_ms=600_000, expiry_time_ms=4_000)
ALICE: Final = Principal("User", "alice")
SECONDS: Final = 5.0


async def create(broker: ClusterBroker, rng: random.Random, max_lifetime_ms: int = -1) -> TokenInformation:
    request = TokenRequest(owner=ALICE, requester=ALICE, renewers=(), max_lifetime_ms=max_lifetime_ms)
    token = issue(request, LIMITS, new_token_id(rng), broker.wall_clock())
    assert isinstance(token, TokenInformation)
    assert broker.running.tokens is not None
    assert await broker.running.tokens.create(token, timeout_seconds=SECONDS) is ErrorCode.NONE
    return token


async def renewed(broker: ClusterBroker, token: TokenInformation) -> TokenInformation | ErrorCode | None:
    assert broker.running.tokens is not None
    return await broker.running.tokens.change(
        token.token_id,
        lambda stored: renew(stored, ALICE, -1, LIMITS, broker.wall_clock()),
        timeout_seconds=SECONDS,
    )


def known(broker: ClusterBroker) -> dict[str, TokenInformation]:
    assert broker.running.tokens is not None
    return dict(broker.running.tokens.tokens)


def secret(broker: ClusterBroker, token_id: str) -> bytes:
    assert broker.running.tokens is not None
    return broker.running.tokens.hmac_of(token_id)


def test_token_and_its_renewal_are_known_to_every_broker_within_a_second() -> None:
    async def story(cluster: SimulatedCluster) -> None:
        rng = random.Random(1)
        token = await create(cluster[1], rng)
        await asyncio.sleep(1)
        assert all(known(broker) == {token.token_id: token} for broker in cluster.brokers.values())
        assert len({secret(broker, token.token_id) for broker in cluster.brokers.values()}) == 1
        later = await renewed(cluster[3], token)
        assert isinstance(later, TokenInformation)
        await asyncio.sleep(1)
        assert all(known(broker) == {token.token_id: later} for broker in cluster.brokers.values())
        cluster[2].kill()
        await cluster[2].start()
        assert known(cluster[2]) == {token.token_id: later}

    simulate(story, settings=SETTINGS)


def test_expired_token_is_removed_also_after_the_controller_is_gone() -> None:
    async def story(cluster: SimulatedCluster) -> None:
        rng = random.Random(2)
        token = await create(cluster[2], rng)
        cluster[cluster.controllers[0]].kill()
        await asyncio.sleep(3 * SESSION_SECONDS)
        assert [known(broker) for broker in cluster.alive] == [{}, {}]
        assert await renewed(cluster.alive[0], token) is ErrorCode.DELEGATION_TOKEN_NOT_FOUND

    simulate(story, settings=SETTINGS)


def test_token_that_is_renewed_through_changing_brokers_is_never_removed() -> None:
    async def story(cluster: SimulatedCluster) -> None:
        rng = random.Random(3)
        token = await create(cluster[1], rng)
        for number in range(30):
            await asyncio.sleep(1 + rng.random() * 2)
            broker = cluster[number % 3 + 1]
            assert isinstance(await renewed(broker, token), TokenInformation)
        await asyncio.sleep(1)
        assert all(list(known(broker)) == [token.token_id] for broker in cluster.brokers.values())

    simulate(story, settings=SETTINGS)


def test_broker_whose_session_expired_reads_the_tokens_again() -> None:
    async def story(cluster: SimulatedCluster) -> None:
        rng = random.Random(4)
        cluster[3].cut_from_ensemble()
        await asyncio.sleep(2 * SESSION_SECONDS)
        token = await create(cluster[1], rng)
        assert cluster[3].store is not None
        cluster[3].store.cut = Direction.NONE
        await asyncio.sleep(2 * SESSION_SECONDS)
        assert known(cluster[3]) == known(cluster[1]) == {token.token_id: token}

    simulate(story, settings=SETTINGS | {"delegation.token.expiry.check.interval.ms": "600000"})
