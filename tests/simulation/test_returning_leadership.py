"""The leadership of a group's partition goes to another broker, and comes back, within one transaction of version 1."""

import asyncio
from collections.abc import Sequence

from oncelog.coordinator.controller.leader_elections import ElectionType
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.internal.topics import GROUP_METADATA_TOPIC_NAME
from oncelog.protocol.topic_partition import TopicPartition
from tests.scenarios.greeted_client import HELLO, HELLO_VERSION
from tests.simulation import requests
from tests.simulation.cluster_stories import create, simulate, state_of
from tests.simulation.simulated_cluster import SimulatedCluster
from tests.simulation.wire_client import WireClient

GROUP = TRANSACTIONAL_ID = "billing"
INPUTS = TopicPartition("inputs", 0)
OFFSETS = TopicPartition(GROUP_METADATA_TOPIC_NAME, 0)
ONE_PARTITION = {
    "transaction.state.log.min.isr": "1",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
}
A_MOMENT = 0.1


async def greeted(cluster: SimulatedCluster, broker_id: int) -> WireClient:
    client = await WireClient.connect(cluster[broker_id].port, response_within=10)
    await client.call(HELLO, HELLO_VERSION)
    await asyncio.sleep(A_MOMENT)
    return client


async def commit(client: WireClient, producer: tuple[int, int], offset: int) -> ErrorCode:
    request = requests.txn_offset_commit(TRANSACTIONAL_ID, *producer, GROUP, {INPUTS: offset})
    response = await client.call(request, requests.TXN_OFFSET_COMMIT_VERSION)
    await asyncio.sleep(A_MOMENT)
    return ErrorCode(response.topics[0].partitions[0].error_code)


async def lead(cluster: SimulatedCluster, order: Sequence[int]) -> None:
    """Make the first of the replicas the leader of the group's partition."""
    apis = cluster[cluster.controllers[0]].running.controller_apis
    await apis.alter_reassignments({OFFSETS: list(order)})
    await apis.elect_leaders([OFFSETS], ElectionType.PREFERRED)
    await asyncio.sleep(1.5)
    assert state_of(cluster, OFFSETS.topic).leader == order[0]


async def new_producer(client: WireClient) -> tuple[int, int]:
    """Its id and epoch."""
    for _ in range(100):
        response = await client.call(
            requests.init_producer_id(TRANSACTIONAL_ID, timeout_ms=60_000), requests.INIT_PRODUCER_ID_VERSION
        )
        if response.error_code == ErrorCode.NONE:
            return response.producer_id, response.producer_epoch
        await asyncio.sleep(A_MOMENT)
    raise AssertionError("no producer id")


def test_late_offsets_over_the_coordinators_owner_do_not_overtake_those_of_another_leader() -> None:
    """B108: what the former leader has done was sent later than what comes over that connection now."""

    async def story(cluster: SimulatedCluster) -> None:
        for topic in ("__transaction_state", OFFSETS.topic, INPUTS.topic):
            await create(cluster, topic, (1, 2))
        await asyncio.sleep(2)
        late = await greeted(cluster, 1)
        producer = await new_producer(late)
        added = await late.call(requests.add_offsets(TRANSACTIONAL_ID, *producer, GROUP), requests.ADD_OFFSETS_VERSION)
        assert added.error_code == ErrorCode.NONE
        assert await commit(late, producer, 3) is ErrorCode.NONE
        await lead(cluster, (2, 1))
        live = await greeted(cluster, 2)
        assert [await commit(live, producer, offset) for offset in (5, 7)] == [ErrorCode.NONE] * 2
        await lead(cluster, (1, 2))
        assert await commit(late, producer, 5) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        live = await greeted(cluster, 1)
        ended = await live.call(requests.end_txn(TRANSACTIONAL_ID, *producer, commit=True), requests.END_TXN_VERSION)
        assert ended.error_code == ErrorCode.NONE
        fetched = await live.call(
            requests.offset_fetch(GROUP, INPUTS, require_stable=True), requests.OFFSET_FETCH_VERSION
        )
        assert requests.fetched_position(fetched).offset == 7

    simulate(story, brokers=2, settings=ONE_PARTITION)
