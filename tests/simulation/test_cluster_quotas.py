"""Quotas in a cluster: every broker goes by them, whichever took the change, and followers are exempt."""

import asyncio

from oncelog.coordinator.controller.api_error import NO_ERROR
from oncelog.coordinator.controller.config_changes import ConfigAlteration, ConfigOperation, OperationType
from oncelog.coordinator.controller.quota_entities import resource_of_entity
from oncelog.protocol.client_quotas import DEFAULT, QuotaEntity
from oncelog.protocol.errors import ErrorCode
from tests.simulation.cluster_stories import assert_agreement, create, simulate, state_of
from tests.simulation.simulated_cluster import SESSION_SECONDS, SimulatedCluster

ALL_CLIENTS = QuotaEntity(user=DEFAULT, client_id=DEFAULT)


async def limit(cluster: SimulatedCluster, broker_id: int, value: str | None) -> None:
    keys = ("producer_byte_rate", "consumer_byte_rate", "request_percentage")
    kind = OperationType.DELETE if value is None else OperationType.SET
    operations = tuple(ConfigOperation(key, kind, value) for key in keys)
    alteration = ConfigAlteration(resource_of_entity(ALL_CLIENTS), operations)
    assert [error.code for error in await cluster[broker_id].running.configs.alter([alteration])] == [ErrorCode.NONE]


def limits(cluster: SimulatedCluster) -> dict[int, float | None]:
    """The limit of a client's produce, by broker."""
    found = {each: cluster[each].running.quotas.produce.limits.find("alice", "c") for each in (1, 2, 3)}
    return {broker: None if limit is None else limit.value for broker, limit in found.items()}


def test_quotas_reach_every_broker_and_those_that_start_later() -> None:
    async def story(cluster: SimulatedCluster) -> None:
        await limit(cluster, 1, "5")
        await asyncio.sleep(1)
        assert limits(cluster) == {1: 5, 2: 5, 3: 5}
        cluster[2].kill()
        await limit(cluster, 3, "6")
        await asyncio.sleep(SESSION_SECONDS)
        await cluster[2].start()
        await asyncio.sleep(SESSION_SECONDS)
        assert limits(cluster) == {1: 6, 2: 6, 3: 6}
        await limit(cluster, 2, None)
        await asyncio.sleep(1)
        assert limits(cluster) == {1: None, 2: None, 3: None}

    simulate(story)


def test_followers_keep_up_whatever_clients_may_use() -> None:
    async def story(cluster: SimulatedCluster) -> None:
        await limit(cluster, 1, "1")
        await create(cluster, "t", (2, 3, 1))
        await asyncio.sleep(1)
        cluster[3].kill()
        await asyncio.sleep(SESSION_SECONDS)
        await cluster[3].start()
        await asyncio.sleep(2 * SESSION_SECONDS)
        assert set(state_of(cluster, "t").isr) == {1, 2, 3}
        assert_agreement(cluster)

    simulate(story)


def test_broker_that_may_create_no_more_topics_still_changes_its_isr() -> None:
    """Without an authorizer the controller takes a broker for a client, and throttles the connection with topics."""

    async def story(cluster: SimulatedCluster) -> None:
        (controller,) = cluster.controllers
        leader, follower = (each for each in (1, 2, 3) if each != controller)
        operations = (ConfigOperation("controller_mutation_rate", OperationType.SET, "0.01"),)
        alteration = ConfigAlteration(resource_of_entity(ALL_CLIENTS), operations)
        assert await cluster[1].running.configs.alter([alteration]) == [NO_ERROR]
        await create(cluster, "t", (leader, follower, controller))
        await cluster[leader].running.auto_topics.create(["__consumer_offsets"])
        errors = await cluster[leader].running.auto_topics.create(["__transaction_state"])
        assert errors == {"__transaction_state": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        cluster[follower].kill()
        await asyncio.sleep(SESSION_SECONDS)
        await cluster[follower].start()
        await asyncio.sleep(2 * SESSION_SECONDS)
        assert (state_of(cluster, "t").leader, set(state_of(cluster, "t").isr)) == (leader, {1, 2, 3})
        assert_agreement(cluster)

    simulate(story)
