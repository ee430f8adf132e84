"""The health of a session is that of the simulated ensemble's client: an outage, an expiry, and a reconnection show."""

import asyncio
import random
from collections.abc import Awaitable, Callable

import pytest

from oncelog.coordinator.metadata_store.session_health import SessionHealth, SessionState
from tests.simulation.sim_zookeeper import Direction, SimStore, SimZooKeeper
from tests.unit.coordinator.metadata_store.contract import session_of
from tests.unit.coordinator.metadata_store.test_sim_zookeeper import SESSION_TIMEOUT, connect, in_virtual_time

Story = Callable[[SimZooKeeper, SimStore, SessionHealth], Awaitable[None]]


def tell(story: Story) -> None:
    async def scenario() -> None:
        ensemble = SimZooKeeper(random.Random(1))
        store = connect(ensemble)
        await story(ensemble, store, SessionHealth(store))

    in_virtual_time(scenario())


def assert_state(health: SessionHealth, expected: SessionState) -> None:
    assert health.state is expected


def test_session_with_a_store_that_responds_is_connected() -> None:
    async def story(ensemble: SimZooKeeper, store: SimStore, health: SessionHealth) -> None:
        await asyncio.sleep(60)
        assert_state(health, SessionState.CONNECTED)
        assert health.seconds_since_contact < SESSION_TIMEOUT / 2
        assert (health.expirations, health.disconnections) == (0, 0)

    tell(story)


@pytest.mark.parametrize("cut", [Direction.TO_CLIENT, Direction.TO_ENSEMBLE, Direction.BOTH])
def test_session_that_is_cut_off_is_disconnected_with_growing_age_until_it_is_healed(cut: Direction) -> None:
    async def story(ensemble: SimZooKeeper, store: SimStore, health: SessionHealth) -> None:
        store.cut = cut
        await asyncio.sleep(0.8 * SESSION_TIMEOUT)
        assert_state(health, SessionState.DISCONNECTED)
        first = health.seconds_since_contact
        await asyncio.sleep(1.0)
        assert health.seconds_since_contact == pytest.approx(first + 1.0)
        store.cut = Direction.NONE
        await asyncio.sleep(2 * SESSION_TIMEOUT)
        assert_state(health, SessionState.CONNECTED)
        assert health.seconds_since_contact < SESSION_TIMEOUT / 2

    tell(story)


def test_session_whose_ensemble_is_down_is_disconnected_at_once_and_counted() -> None:
    async def story(ensemble: SimZooKeeper, store: SimStore, health: SessionHealth) -> None:
        ensemble.is_up = False
        await asyncio.sleep(SESSION_TIMEOUT / 2)
        assert_state(health, SessionState.DISCONNECTED)
        assert health.disconnections == 1
        ensemble.is_up = True
        await asyncio.sleep(SESSION_TIMEOUT / 2)
        assert_state(health, SessionState.CONNECTED)
        assert health.expirations == 0

    tell(story)


def test_session_that_expires_is_counted_and_replaced() -> None:
    async def story(ensemble: SimZooKeeper, store: SimStore, health: SessionHealth) -> None:
        ensemble.expire(session_of(store).session_id)
        await asyncio.sleep(SESSION_TIMEOUT)
        assert health.expirations == 1
        assert_state(health, SessionState.CONNECTED)

    tell(story)


def test_session_that_is_over_without_a_successor_is_expired() -> None:
    async def story(ensemble: SimZooKeeper, store: SimStore, health: SessionHealth) -> None:
        await store.close()
        await asyncio.sleep(1.0)
        assert_state(health, SessionState.EXPIRED)
        assert health.seconds_since_contact >= 1.0

    tell(story)
