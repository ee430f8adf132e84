"""A cluster whose only listener has SASL: brokers log in to each other, and all know every user."""

import asyncio
import logging
from typing import Final

import pytest

from oncelog.broker.security.scram_users import user_resource
from oncelog.coordinator.controller.config_changes import ConfigAlteration, ConfigOperation, OperationType
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.sasl.scram import SCRAM_SHA_256, format_credential, new_credential
from tests.simulation.cluster_stories import assert_agreement, create, simulate, state_of
from tests.simulation.simulated_cluster import SESSION_SECONDS, SimulatedCluster

_PREFIX: Final = "listener.name.plaintext"
_MODULE: Final = "org.apache.kafka.common.security.plain.PlainLoginModule required"
SETTINGS: Final = {
    "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT",
    f"{_PREFIX}.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    f"{_PREFIX}.plain.sasl.jaas.config": f'{_MODULE} username="broker" password="b" user_broker="b";',
}


def test_replicas_are_copied_and_led_by_others_when_a_broker_is_gone() -> None:
    async def story(cluster: SimulatedCluster) -> None:
        await create(cluster, "t", (2, 3, 1))
        await asyncio.sleep(1)
        cluster[2].kill()
        await asyncio.sleep(SESSION_SECONDS)
        assert state_of(cluster, "t").leader in (1, 3)
        assert set(state_of(cluster, "t").isr) == {1, 3}
        await cluster[2].start()
        await asyncio.sleep(SESSION_SECONDS)
        assert set(state_of(cluster, "t").isr) == {1, 2, 3}
        assert_agreement(cluster)

    simulate(story, settings=SETTINGS)


def test_broker_with_another_password_joins_no_isr() -> None:
    async def story(cluster: SimulatedCluster) -> None:
        await create(cluster, "t", (2, 3, 1))
        await asyncio.sleep(1)
        cluster[3].kill()
        await asyncio.sleep(SESSION_SECONDS)
        other = f'{_MODULE} username="broker" password="x" user_broker="b";'
        cluster[3].settings[f"{_PREFIX}.plain.sasl.jaas.config"] = other
        await cluster[3].try_to_start()
        await asyncio.sleep(2 * SESSION_SECONDS)
        assert set(state_of(cluster, "t").isr) == {1, 2}

    simulate(story, settings=SETTINGS)


def test_sessions_that_end_cost_no_connection_between_brokers(caplog: pytest.LogCaptureFixture) -> None:
    async def story(cluster: SimulatedCluster) -> None:
        await create(cluster, "t", (2, 3, 1))
        await asyncio.sleep(1)
        before = state_of(cluster, "t")
        await asyncio.sleep(60)
        assert state_of(cluster, "t") == before
        assert cluster.controllers == [1]

    with caplog.at_level(logging.INFO):
        simulate(story, settings={**SETTINGS, "connections.max.reauth.ms": "5000"})
    assert "is lost" not in caplog.text
    assert "Fetching from broker" not in caplog.text


def test_new_user_is_known_to_every_broker_within_a_second() -> None:
    async def story(cluster: SimulatedCluster) -> None:
        credential = new_credential(SCRAM_SHA_256, b"salted", salt=b"salt", iterations=4096)
        operation = ConfigOperation(SCRAM_SHA_256.name, OperationType.SET, format_credential(credential))
        alteration = ConfigAlteration(resource=user_resource("al ice"), operations=(operation,))
        (error,) = await cluster[1].running.configs.alter([alteration])
        assert error.code == ErrorCode.NONE
        await asyncio.sleep(1)
        for broker in cluster.brokers.values():
            assert broker.running.scram_users.find(SCRAM_SHA_256, "al ice") == credential
        cluster[3].kill()
        await cluster[3].start()
        assert cluster[3].running.scram_users.names() == ["al ice"]

    simulate(story, settings=SETTINGS)
