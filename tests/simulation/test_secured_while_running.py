"""A cluster that gets a second listener, with logins, and then an authorizer, broker by broker, and goes back.

At each moment some brokers reach the others by one listener and some by the other. The steps are those of
``docs/how-to/secure-a-running-cluster.md``.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Final

import pytest

from tests.simulation.cluster_stories import assert_agreement, create, simulate, state_of
from tests.simulation.simulated_cluster import SESSION_SECONDS, ClusterBroker, SimulatedCluster

_MODULE: Final = "org.apache.kafka.common.security.plain.PlainLoginModule required"
_SECURED: Final = "listener.name.secured"
_OTHER_PORTS: Final = 100


def before(broker: ClusterBroker) -> dict[str, str]:
    return {"listeners": f"PLAINTEXT://127.0.0.1:{broker.port}"}


def with_listener(broker: ClusterBroker) -> dict[str, str]:
    return {
        "listeners": f"PLAINTEXT://127.0.0.1:{broker.port},SECURED://127.0.0.1:{broker.port + _OTHER_PORTS}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SECURED:SASL_PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
        f"{_SECURED}.sasl.enabled.mechanisms": "PLAIN",
        f"{_SECURED}.plain.sasl.jaas.config": f'{_MODULE} username="broker" password="b" user_broker="b";',
    }


def between_brokers(broker: ClusterBroker) -> dict[str, str]:
    return {
        **with_listener(broker),
        "inter.broker.listener.name": "SECURED",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
    }


def with_authorizer(broker: ClusterBroker) -> dict[str, str]:
    return {
        **between_brokers(broker),
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "super.users": "User:broker",
        "allow.everyone.if.no.acl.found": "true",
    }


def closed(broker: ClusterBroker) -> dict[str, str]:
    return {
        **with_authorizer(broker),
        "listeners": f"SECURED://127.0.0.1:{broker.port + _OTHER_PORTS}",
        "allow.everyone.if.no.acl.found": "false",
    }


STEPS: Final = (before, with_listener, between_brokers, with_authorizer, closed)


async def restart(broker: ClusterBroker, settings: Mapping[str, str], *, kill: bool) -> None:
    if kill:
        broker.kill()
    else:
        await broker.stop()
    steps = {key for step in STEPS for key in step(broker)}
    broker.settings = {key: value for key, value in broker.settings.items() if key not in steps} | settings
    assert await broker.try_to_start()


async def roll(cluster: SimulatedCluster, step: Callable[[ClusterBroker], Mapping[str, str]], *, kill: bool) -> None:
    for broker in cluster.brokers.values():
        await restart(broker, step(broker), kill=kill)
        await asyncio.sleep(SESSION_SECONDS)
        for partition in range(3):
            state = state_of(cluster, "t", partition)
            assert set(state.isr) == {1, 2, 3}, f"{partition} after broker {broker.broker_id} has {step.__name__}"
        assert_agreement(cluster)


@pytest.mark.parametrize("kill", [False, True])
def test_brokers_stay_in_sync_while_one_after_the_other_changes_its_listener(
    kill: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def story(cluster: SimulatedCluster) -> None:
        await create(cluster, "t", (1, 2, 3), (2, 3, 1), (3, 1, 2))
        for step in (*STEPS[1:], *reversed(STEPS[:-1])):
            await roll(cluster, step, kill=kill)

    with caplog.at_level(logging.INFO):
        simulate(story)
    assert "Denied" not in caplog.text
