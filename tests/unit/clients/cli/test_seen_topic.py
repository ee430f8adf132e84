"""What ``oncelog topic describe`` sees while a leader has just failed: in time, and as of the moment of printing."""

import asyncio

from oncelog.clients.cli.seen_topic import see_topic
from oncelog.clients.cli.topic_description import about_unreached
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from oncelog.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from oncelog.protocol.messages.metadata import MetadataRequest
from oncelog.protocol.schema import Message
from oncelog.protocol.topic_partition import TopicPartition
from tests.unit.broker.virtual_time import in_virtual_time
from tests.unit.clients.scripted_broker import Reaction, ScriptedBroker, metadata, requested_only
from tests.unit.clients.scripted_cluster import cluster_of

SECONDS = 8.0


@in_virtual_time
async def test_topic_with_a_dead_leader_is_described_within_the_time_out() -> None:
    alive, dead = ScriptedBroker({}), ScriptedBroker({}, node_id=2)
    async with cluster_of(alive, dead, leaders={"t": [2]}) as cluster:
        dead.stop()
        began = asyncio.get_running_loop().time()
        seen = await see_topic(cluster, "t", SECONDS, offsets=True)
        assert asyncio.get_running_loop().time() - began <= SECONDS
        assert seen.ends == {}
        assert dict(seen.without_end) == {TopicPartition("t", 0): ErrorCode.NETWORK_EXCEPTION}
        (problem,) = about_unreached(seen.description, seen.unreached)
        await alive_again(dead)
    assert problem.startswith(f"broker 2 is not reached: {dead.address}: Connection refused; if it has ended, start it")
    assert "as leader of 1 partition" in problem


@in_virtual_time
async def test_topic_with_a_paused_leader_is_described_within_the_time_out() -> None:
    alive, paused = ScriptedBroker({}), ScriptedBroker({}, node_id=2)
    paused.api_versions = Reaction.SILENCE
    async with cluster_of(alive, paused, leaders={"t": [2]}) as cluster:
        began = asyncio.get_running_loop().time()
        seen = await see_topic(cluster, "t", SECONDS, offsets=True)
        assert asyncio.get_running_loop().time() - began <= SECONDS
        (problem,) = about_unreached(seen.description, seen.unreached)
    assert problem.startswith(f"broker 2 is not reached: {paused.address}: accepts connections, but does not respond")
    assert "`oncelog cluster resume 2`" in problem


@in_virtual_time
async def test_topic_whose_leader_changes_meanwhile_is_described_with_the_new_one() -> None:
    former, new = ScriptedBroker({}), ScriptedBroker({}, node_id=2)

    def change_leader(request: Message) -> ListOffsetsResponse:
        addresses = {1: former.address, 2: new.address}
        former.script[MetadataRequest] = requested_only(metadata(addresses, {"t": [2]}))
        found = ListOffsetsPartitionResponse(partition_index=0, offset=7)
        return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="t", partitions=[found])])

    former.script[ListOffsetsRequest] = change_leader
    async with cluster_of(former, new, leaders={"t": [1]}) as cluster:
        seen = await see_topic(cluster, "t", SECONDS, offsets=True)
    assert [each.leader for each in seen.description.partitions] == [2]
    assert seen.ends == {0: {"begin": 7, "end": 7}}
    assert seen.unreached == {}


@in_virtual_time
async def test_partition_below_the_minimum_is_said_to_refuse_writes() -> None:
    leader = ScriptedBroker({})
    entry = DescribeConfigsResourceResult(name="min.insync.replicas", value="2")
    result = DescribeConfigsResult(resource_type=2, resource_name="t", configs=[entry])
    leader.script[DescribeConfigsRequest] = lambda request: DescribeConfigsResponse(results=[result])
    async with cluster_of(leader, leaders={"t": [1]}) as cluster:
        response = metadata({1: leader.address}, {"t": [1]})
        response.topics[0].partitions[0].replica_nodes = [1, 2]
        response.topics[0].partitions[0].isr_nodes = [1]
        leader.script[MetadataRequest] = requested_only(response)
        seen = await see_topic(cluster, "t", SECONDS, offsets=False)
    assert seen.refusing == (
        "1 partition has fewer replicas in sync than min.insync.replicas: writes with acks=all are refused (t-0); "
        "start broker 2, as 1 more replica must be in sync"
    )


async def alive_again(broker: ScriptedBroker) -> None:
    """Have the broker listen again, so that the cluster can stop it."""
    await broker.start(port=broker.address.port)
