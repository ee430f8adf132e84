"""A version-1 transactional producer that remembers what it was promised.

It keeps to the protocol as a careful client does: sequences continue, a produce whose answer was lost is sent again as
it was, an EndTxn whose answer was lost is repeated until the coordinator says how the transaction ended. What it cannot
learn it writes down as unknown. One writer is one transactional id; each transaction writes distinct values to several
partitions.
"""

import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from protocol.errors import ErrorCode
from protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from protocol.messages.end_txn import EndTxnRequest
from protocol.messages.find_coordinator import FindCoordinatorRequest
from protocol.messages.init_producer_id import InitProducerIdRequest
from protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol.records.record_batch import NewRecord, build_batch
from protocol.schema import Message
from protocol.topic_partition import TopicPartition
from tests.simulation.wire_client import NoAnswer, WireClient

_WAIT = {
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.NOT_ENOUGH_REPLICAS,
}


class Fate(Enum):
    """How a transaction ended, as far as its writer knows."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    UNKNOWN = "unknown"


class Broken(Exception):
    """The transaction cannot go on: fenced, timed out, or the broker forgot the producer."""


@dataclass
class Transaction:
    """The values that one transaction wrote, and its fate."""

    values: list[tuple[TopicPartition, bytes]]
    fate: Fate = Fate.UNKNOWN


class TransactionalWriter:
    """Runs transactions one after the other until it is told to stop."""

    def __init__(self, name: str, port: int, partitions: Sequence[TopicPartition], rng: random.Random) -> None:
        self.name = name
        self.transactions: list[Transaction] = []
        self.stopping = False
        self._port = port
        self._partitions = partitions
        self._rng = rng
        self._client: WireClient | None = None
        self._producer_id = -1
        self._epoch = -1
        self._sequences: dict[TopicPartition, int] = {}

    async def run(self) -> None:
        while not self.stopping:
            try:
                await self._initialise()
                while not self.stopping:
                    await self._one_transaction()
            except Broken:
                continue

    async def _call(self, request: Message, version: int) -> Any:
        """Send until an answer comes, over as many connections as it takes."""
        while True:
            try:
                if self._client is None or self._client.closed:
                    self._client = await WireClient.connect(self._port, answer_within=5.0)
                return await self._client.call(request, version)
            except NoAnswer:
                if self._client is not None:
                    self._client.close()
                self._client = None
                await asyncio.sleep(self._rng.uniform(0.01, 0.2))

    async def _pause(self) -> None:
        await asyncio.sleep(self._rng.uniform(0.005, 0.05))

    async def _initialise(self) -> None:
        find = FindCoordinatorRequest(key=self.name, key_type=1)
        while (await self._call(find, 2)).error_code != ErrorCode.NONE:
            await self._pause()
        request = InitProducerIdRequest(transactional_id=self.name, transaction_timeout_ms=5_000)
        while True:
            answer = await self._call(request, 4)
            if answer.error_code == ErrorCode.NONE:
                break
            assert ErrorCode(answer.error_code) in _WAIT, ErrorCode(answer.error_code)
            await self._pause()
        self._producer_id = answer.producer_id
        self._epoch = answer.producer_epoch
        self._sequences = {}

    async def _one_transaction(self) -> None:
        chosen = self._rng.sample(list(self._partitions), self._rng.randint(1, len(self._partitions)))
        transaction = Transaction([])
        self.transactions.append(transaction)
        await self._add_partitions(chosen)
        for number in range(self._rng.randint(1, 4)):
            partition = chosen[number % len(chosen)]
            await self._produce(partition, transaction)
            if self._rng.random() < 0.2:
                await self._pause()
        commit = self._rng.random() < 0.7
        await self._end(commit)
        transaction.fate = Fate.COMMITTED if commit else Fate.ABORTED

    async def _add_partitions(self, chosen: Sequence[TopicPartition]) -> None:
        topics: dict[str, list[int]] = {}
        for partition in chosen:
            topics.setdefault(partition.topic, []).append(partition.partition)
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.name,
            v3_and_below_producer_id=self._producer_id,
            v3_and_below_producer_epoch=self._epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=t, partitions=p) for t, p in topics.items()],
        )
        while True:
            answer = await self._call(request, 2)
            topics_of = answer.results_by_topic_v3_and_below
            codes = {ErrorCode(p.partition_error_code) for t in topics_of for p in t.results_by_partition}
            if codes == {ErrorCode.NONE}:
                return
            if not codes & _WAIT:
                raise Broken(str(codes))
            await self._pause()

    async def _produce(self, partition: TopicPartition, transaction: Transaction) -> None:
        values = [
            b"%s/%d/%d" % (self.name.encode(), len(self.transactions), len(transaction.values) + n)
            for n in range(self._rng.randint(1, 3))
        ]
        transaction.values += [(partition, value) for value in values]
        sequence = self._sequences.get(partition, 0)
        batch = build_batch(
            [NewRecord(timestamp=1_750_000_000_000, key=None, value=value) for value in values],
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            base_sequence=sequence,
            is_transactional=True,
        )
        data = TopicProduceData(
            name=partition.topic, partition_data=[PartitionProduceData(index=partition.partition, records=batch)]
        )
        request = ProduceRequest(transactional_id=self.name, acks=-1, timeout_ms=5000, topic_data=[data])
        while True:
            answer = await self._call(request, 9)
            code = ErrorCode(answer.responses[0].partition_responses[0].error_code)
            if code == ErrorCode.NONE:
                self._sequences[partition] = sequence + len(values)
                return
            if code not in _WAIT:
                raise Broken(code.name)
            await self._pause()

    async def _end(self, commit: bool) -> None:
        request = EndTxnRequest(
            transactional_id=self.name, producer_id=self._producer_id, producer_epoch=self._epoch, committed=commit
        )
        while True:
            answer = await self._call(request, 1)
            code = ErrorCode(answer.error_code)
            if code == ErrorCode.NONE:
                return
            if code not in _WAIT:
                raise Broken(code.name)
            await self._pause()
