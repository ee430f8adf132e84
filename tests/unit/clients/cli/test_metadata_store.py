"""Changes that the metadata store has to keep, while brokers do not reach it. In virtual time."""

import asyncio

import pytest

from oncelog.clients.admin.configs import ConfigChange, Operation, Resource, ResourceType, alter_configs
from oncelog.clients.admin.topics import NewTopic, create_topics, delete_topics
from oncelog.clients.cli.metadata_store import StoreLost, unless_store_is_lost
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.create_topics import CreatableTopicResult, CreateTopicsRequest, CreateTopicsResponse
from oncelog.protocol.messages.delete_topics import DeletableTopicResult, DeleteTopicsRequest, DeleteTopicsResponse
from oncelog.protocol.messages.incremental_alter_configs import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from tests.unit.broker.virtual_time import in_virtual_time
from tests.unit.clients.scripted_broker import Reaction, ScriptedBroker
from tests.unit.clients.scripted_cluster import cluster_of

A_FEW_SECONDS = 4.0
REFUSED = ErrorCode.NOT_CONTROLLER


def broker(node_id: int, store: ErrorCode) -> ScriptedBroker:
    altered = AlterConfigsResourceResponse(error_code=store, resource_type=2, resource_name="t")
    return ScriptedBroker(
        {
            CreateTopicsRequest: CreateTopicsResponse(topics=[CreatableTopicResult(name="t", error_code=REFUSED)]),
            DeleteTopicsRequest: DeleteTopicsResponse(responses=[DeletableTopicResult(name="t", error_code=REFUSED)]),
            IncrementalAlterConfigsRequest: IncrementalAlterConfigsResponse(responses=[altered]),
        },
        node_id=node_id,
    )


@pytest.mark.parametrize("change", ["create", "delete", "alter"])
@in_virtual_time
async def test_change_without_a_store_ends_within_seconds_and_names_zookeeper(change: str) -> None:
    first, second = (broker(node_id, ErrorCode.REQUEST_TIMED_OUT) for node_id in (1, 2))
    async with cluster_of(first, second) as cluster:
        await cluster.refresh(())
        begun = asyncio.get_running_loop().time()
        work = {
            "create": lambda: create_topics(cluster, [NewTopic(name="t")]),
            "delete": lambda: delete_topics(cluster, ["t"]),
            "alter": lambda: alter_configs(
                cluster,
                {
                    Resource(type=ResourceType.TOPIC, name="t"): [
                        ConfigChange(name="retention.ms", operation=Operation.SET, value="1")
                    ]
                },
            ),
        }[change]
        with pytest.raises(StoreLost, match=r"broker 1, 2: its metadata store .* may be done as soon as") as lost:
            await unless_store_is_lost(cluster, work())
        assert "no topic, setting or ISR" not in str(lost.value)  # The broker may carry it out later.
        assert asyncio.get_running_loop().time() - begun < A_FEW_SECONDS


@in_virtual_time
async def test_change_that_takes_long_is_not_disturbed_by_looks_at_the_store() -> None:
    """Responses of a connection come in order: a look over that of the change would end it, and call the store lost."""
    lone = broker(1, ErrorCode.NONE)
    lone.script[DeleteTopicsRequest] = Reaction.HOLD
    async with cluster_of(lone) as cluster:
        await cluster.refresh(())
        done = DeleteTopicsResponse(responses=[DeletableTopicResult(name="t")])
        asyncio.get_running_loop().call_later(3 * A_FEW_SECONDS, lone.release, done)
        assert await unless_store_is_lost(cluster, delete_topics(cluster, ["t"])) == {"t": None}
        assert len(lone.seen(DeleteTopicsRequest)) == 1
        assert len(lone.seen(IncrementalAlterConfigsRequest)) > 1


@in_virtual_time
async def test_change_refused_while_the_store_is_reachable_is_retried() -> None:
    first, second = broker(1, ErrorCode.REQUEST_TIMED_OUT), broker(2, ErrorCode.NONE)
    async with cluster_of(first, second) as cluster:
        await cluster.refresh(())
        begun = asyncio.get_running_loop().time()
        outcomes = await unless_store_is_lost(cluster, create_topics(cluster, [NewTopic(name="t")]))
        assert outcomes["t"] is not None
        assert outcomes["t"].error is REFUSED
        assert asyncio.get_running_loop().time() - begun > 10 * A_FEW_SECONDS / 2
