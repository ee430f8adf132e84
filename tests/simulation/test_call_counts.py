"""What an operation costs brokers and their client, in calls of Python functions: the same number on every machine.

A call is a hundredth of what a benchmark of the same operation can tell apart while other work runs. So a bound stands
here for each path that clients take all the time; a commit that exceeds one says what the calls are for.
"""

import asyncio
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, Final

import pytest

from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.produce import ProduceRequest
from oncelog.protocol.schema import Message
from oncelog.protocol.topic_partition import TopicPartition
from tests.simulation import requests
from tests.simulation.cluster_stories import create, simulate, state_of
from tests.simulation.patient_client import produce_errors
from tests.simulation.simulated_cluster import ClusterBroker, SimulatedCluster
from tests.simulation.test_cluster_transactions import REPLICATED, coordinator_of, make_log
from tests.simulation.wire_client import WireClient

REPOSITORY: Final = Path(__file__).resolve().parents[2]
COUNTED: Final = (f"{REPOSITORY}/", "<encode ", "<decode ", "<init of ")
NOT_COUNTED: Final = (f"{REPOSITORY}/tests/", f"{REPOSITORY}/.")
T0: Final = TopicPartition("t", 0)
OPERATIONS: Final = 50


class Calls:
    """A count of the calls of this project's functions, generated ones included."""

    def __init__(self) -> None:
        self.total = 0

    def __call__(self, frame: FrameType, event: str, argument: object) -> None:
        if event == "call":
            name = frame.f_code.co_filename
            self.total += name.startswith(COUNTED) and not name.startswith(NOT_COUNTED)


@contextmanager
def counted() -> Iterator[Calls]:
    calls, previous = Calls(), sys.getprofile()
    sys.setprofile(calls)
    try:
        yield calls
    finally:
        sys.setprofile(previous)


class TransactionalClient:
    """A producer of one transactional id, whose connections stay."""

    def __init__(self, cluster: SimulatedCluster, transactional_id: str) -> None:
        self.transactional_id = transactional_id
        self._coordinator = coordinator_of(cluster, transactional_id)
        self._leader = cluster[state_of(cluster, *T0).leader]
        self._clients: dict[ClusterBroker, WireClient] = {}
        self._identity = (-1, -1)
        self._sequence = 0

    async def ask(self, broker: ClusterBroker, request: Message, version: int) -> Any:
        if broker not in self._clients:
            self._clients[broker] = await broker.client()
            await self._clients[broker].call(requests.api_versions(), requests.API_VERSIONS_VERSION)
        return await self._clients[broker].call(request, version)

    async def init(self) -> None:
        request = requests.init_producer_id(self.transactional_id)
        response = await self._ask_coordinator(request, requests.INIT_PRODUCER_ID_VERSION)
        self._identity = response.producer_id, response.producer_epoch

    async def commit_one(self) -> None:
        """One transaction with one record."""
        add = requests.add_partitions(self.transactional_id, *self._identity, [T0])
        added = await self._ask_coordinator(add, requests.ADD_PARTITIONS_VERSION)
        assert set(requests.added_partitions(added).values()) == {ErrorCode.NONE}
        producer_id, epoch = self._identity
        batch = requests.batch(
            [b"v"], producer_id=producer_id, epoch=epoch, sequence=self._sequence, transactional=True
        )
        self._sequence += 1
        await self.produce(requests.produce(T0, batch, transactional_id=self.transactional_id))
        end = requests.end_txn(self.transactional_id, *self._identity, commit=True)
        assert (await self._ask_coordinator(end, requests.END_TXN_VERSION)).error_code == ErrorCode.NONE

    async def produce_one(self) -> None:
        """One record, without a producer id, that all in-sync replicas acknowledge."""
        await self.produce(requests.produce(T0, requests.batch([b"v"])))

    async def produce(self, request: ProduceRequest) -> None:
        assert produce_errors(await self.ask(self._leader, request, requests.PRODUCE_VERSION)) == {ErrorCode.NONE}

    async def fetch_one(self) -> None:
        """The first batch, in a fetch without a session."""
        response = await self.ask(
            self._leader, requests.fetch(T0, 0, read_committed=False, max_bytes=100), requests.FETCH_VERSION
        )
        assert len(response.responses[0].partitions[0].records) > 0

    async def _ask_coordinator(self, request: Message, version: int) -> Any:
        return await self.ask(self._coordinator, request, version)


async def play(cluster: SimulatedCluster, operation: Callable[[TransactionalClient], Awaitable[None]]) -> float:
    """The calls of one operation."""
    await create(cluster, "t", tuple(broker.broker_id for broker in cluster.alive))
    await make_log(cluster)
    client = TransactionalClient(cluster, "id")
    await client.init()
    await client.produce_one()
    for _ in range(OPERATIONS):
        await operation(client)
    await asyncio.sleep(1.0)
    with counted() as calls:
        for _ in range(OPERATIONS):
            await operation(client)
    return calls.total / OPERATIONS


@pytest.mark.parametrize(
    ("brokers", "operation", "most"),
    [
        (1, TransactionalClient.produce_one, 73),
        (1, TransactionalClient.fetch_one, 86),
        (1, TransactionalClient.commit_one, 455),
        (3, TransactionalClient.produce_one, 566),
        (3, TransactionalClient.commit_one, 3_180),
    ],
)
def test_operation_takes_few_calls(
    brokers: int, operation: Callable[[TransactionalClient], Awaitable[None]], most: int
) -> None:
    found: list[float] = []

    async def story(cluster: SimulatedCluster) -> None:
        found.append(await play(cluster, operation))

    factor = {"transaction.state.log.replication.factor": str(brokers), "transaction.state.log.min.isr": "1"}
    simulate(story, brokers=brokers, settings={**REPLICATED, **factor, "min.insync.replicas": "1"})
    assert found[0] <= most, f"{found[0]:.1f} calls for each of {OPERATIONS}"
