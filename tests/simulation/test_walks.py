"""The walks of ``docs/explanation/walks.md`` are true: a simulated cluster calls their functions in that order."""

import asyncio
from collections.abc import Sequence
from types import CodeType
from typing import Final

from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.topic_partition import TopicPartition
from tests.house.walks import REPLICA_FETCH, TRANSACTION, Stop, read_walks, recorded, unreached
from tests.simulation import requests
from tests.simulation.cluster_stories import create, simulate, state_of
from tests.simulation.patient_client import produce_errors
from tests.simulation.simulated_cluster import SimulatedCluster
from tests.simulation.test_cluster_transactions import REPLICATED, coordinator_of, make_log

T0: Final = TopicPartition("t", 0)
LEADER: Final = 1
FETCH_SECONDS: Final = 0.55
"""More than ``replica.fetch.wait.max.ms`` (500): a follower without news sends a fetch in that time."""


async def write_transaction(cluster: SimulatedCluster) -> list[CodeType]:
    """Commit a transaction whose coordinator is another broker than the partition's leader; return the calls."""
    await create(cluster, T0.topic, (LEADER, 2, 3))
    await make_log(cluster)
    leader = cluster[state_of(cluster, *T0).leader]
    names = (f"id-{number}" for number in range(100))
    transactional_id = next(name for name in names if coordinator_of(cluster, name) is not leader)
    to_leader, to_coordinator = await leader.client(), await coordinator_of(cluster, transactional_id).client()
    request = requests.init_producer_id(transactional_id)
    producer = await to_coordinator.call(request, requests.INIT_PRODUCER_ID_VERSION)
    assert producer.error_code == ErrorCode.NONE
    identity = producer.producer_id, producer.producer_epoch
    batch = requests.batch([b"v"], producer_id=identity[0], epoch=identity[1], sequence=0, transactional=True)
    produce = requests.produce(T0, batch, transactional_id=transactional_id)
    end = requests.end_txn(transactional_id, *identity, commit=True)
    with recorded() as calls:
        produced = await to_leader.call(produce, requests.TRANSACTION_2_PRODUCE_VERSION)
        ended = await to_coordinator.call(end, requests.TRANSACTION_2_END_TXN_VERSION)
        await asyncio.sleep(FETCH_SECONDS)
    assert produce_errors(produced) == {ErrorCode.NONE}
    assert ended.error_code == ErrorCode.NONE
    return calls


async def replicate_record(cluster: SimulatedCluster) -> list[CodeType]:
    """Have a follower fetch, wait and receive one record; return the calls."""
    await create(cluster, T0.topic, (LEADER, 2))
    client = await cluster[LEADER].client()
    produce = requests.produce(T0, requests.batch([b"v"]))
    with recorded() as calls:
        await asyncio.sleep(FETCH_SECONDS)
        produced = await client.call(produce, requests.PRODUCE_VERSION)
    assert produce_errors(produced) == {ErrorCode.NONE}
    return calls


def test_transaction_calls_the_stops_of_its_walk_in_order() -> None:
    found: list[Sequence[Stop]] = []

    async def story(cluster: SimulatedCluster) -> None:
        found.append(unreached(TRANSACTION, await write_transaction(cluster)))

    simulate(story, settings=REPLICATED)
    assert found == [[]]


def test_replica_fetch_calls_the_stops_of_its_walk_in_order() -> None:
    found: list[Sequence[Stop]] = []

    async def story(cluster: SimulatedCluster) -> None:
        found.append(unreached(REPLICA_FETCH, await replicate_record(cluster)))

    simulate(story, brokers=2, settings={"min.insync.replicas": "2"})
    assert found == [[]]


def test_unreached_walk_in_another_order_returns_the_remaining_stops() -> None:
    assert unreached(TRANSACTION, []) == [entry.stop for entry in read_walks()[TRANSACTION]]
