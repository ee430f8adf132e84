"""A version-1 producer that does what a scenario says, step by step, and hides nothing.

Each step sends one request and returns what the broker answered; only answers that mean "not yet" are waited out, as
every client does. A step that must succeed is wrapped in ``ok``. ``unheard`` sends a request whose response gets lost:
the broker has done its work, the producer does not know.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence, Set
from typing import Any

from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.produce import PartitionProduceResponse
from oncelog.protocol.schema import Message
from oncelog.protocol.topic_partition import TopicPartition
from tests.simulation import requests
from tests.simulation.wire_client import NoResponse, WireClient

_NOT_YET = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
    }
)
_OFFSETS_NOT_YET = _NOT_YET | {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
_BATCH_NOT_YET = _NOT_YET | {ErrorCode.NOT_ENOUGH_REPLICAS}
_PAUSE_SECONDS = 0.01
_PATIENCE = 2_000


class ScriptedProducer:
    """One producer session. A second one with the same transactional id is its successor, and makes it a zombie."""

    def __init__(
        self, connect: Callable[[], Awaitable[WireClient]], transactional_id: str | None, *, timeout_ms: int
    ) -> None:
        self.transactional_id = transactional_id
        self.timeout_ms = timeout_ms
        self.producer_id = -1
        self.epoch = -1
        self.sequences: dict[TopicPartition, int] = {}
        self.client: WireClient | None = None
        self._connect = connect

    # Steps

    async def init(self, *, keep: bool = False) -> ErrorCode:
        """InitProducerId; with ``keep`` it names the id and epoch that it has (KIP-360)."""
        known = {"producer_id": self.producer_id, "epoch": self.epoch} if keep else {}
        request = requests.init_producer_id(self.transactional_id, timeout_ms=self.timeout_ms, **known)
        if self.transactional_id is not None:
            await self._find_coordinator()
        response = await self._settled(request, requests.INIT_PRODUCER_ID_VERSION, lambda response: response.error_code)
        if response.error_code == ErrorCode.NONE:
            self.producer_id, self.epoch = response.producer_id, response.producer_epoch
            self.sequences.clear()
        return ErrorCode(response.error_code)

    async def add(self, *partitions: TopicPartition) -> ErrorCode:
        """AddPartitionsToTxn; the error of the first partition, which all of them share in these tests."""
        response = await self._settled(
            self.add_request(*partitions),
            requests.ADD_PARTITIONS_VERSION,
            lambda response: next(iter(requests.added_partitions(response).values())),
        )
        return next(iter(requests.added_partitions(response).values()))

    async def send(self, partition: TopicPartition, *values: bytes) -> PartitionProduceResponse:
        """Produce one batch, and count its sequences if the log has it now."""
        response = await self.produce(self.batch(partition, *values), partition)
        if response.error_code == ErrorCode.NONE:
            self.advance(partition, len(values))
        return response

    async def produce(self, batch: bytearray, partition: TopicPartition) -> PartitionProduceResponse:
        """Produce a batch as it is."""
        settled = await self._settled(
            requests.produce(partition, bytearray(batch), transactional_id=self.transactional_id),
            requests.PRODUCE_VERSION,
            lambda settled: settled.responses[0].partition_responses[0].error_code,
            _BATCH_NOT_YET,
        )
        response: PartitionProduceResponse = settled.responses[0].partition_responses[0]
        return response

    async def add_offsets(self, group: str) -> ErrorCode:
        assert self.transactional_id is not None
        request = requests.add_offsets(self.transactional_id, self.producer_id, self.epoch, group)
        response = await self._settled(request, requests.ADD_OFFSETS_VERSION, lambda response: response.error_code)
        return ErrorCode(response.error_code)

    async def commit_offsets(
        self, group: str, offsets: Mapping[TopicPartition, int], *, generation: int = -1, member_id: str = ""
    ) -> ErrorCode:
        """TxnOffsetCommit; the error of the first partition."""
        assert self.transactional_id is not None
        request = requests.txn_offset_commit(
            self.transactional_id,
            self.producer_id,
            self.epoch,
            group,
            offsets,
            generation=generation,
            member_id=member_id,
        )
        response = await self._settled(
            request,
            requests.TXN_OFFSET_COMMIT_VERSION,
            lambda response: next(iter(requests.committed_partitions(response).values())),
            _OFFSETS_NOT_YET,
        )
        return next(iter(requests.committed_partitions(response).values()))

    async def end(self, *, commit: bool) -> ErrorCode:
        """EndTxn, repeated while the coordinator is busy."""
        response = await self._settled(
            self.end_request(commit=commit), requests.END_TXN_VERSION, lambda response: response.error_code
        )
        return ErrorCode(response.error_code)

    async def transaction(self, values: Mapping[TopicPartition, Sequence[bytes]], *, commit: bool = True) -> None:
        """A whole transaction, every step of which succeeds."""
        await self.open_transaction(values)
        ok(await self.end(commit=commit))

    async def open_transaction(self, values: Mapping[TopicPartition, Sequence[bytes]]) -> None:
        """A transaction up to its end."""
        ok(await self.add(*values))
        for partition, batch in values.items():
            ok(await self.send(partition, *batch))

    # Their requests

    def add_request(self, *partitions: TopicPartition) -> Message:
        assert self.transactional_id is not None
        return requests.add_partitions(self.transactional_id, self.producer_id, self.epoch, partitions)

    def end_request(self, *, commit: bool) -> Message:
        assert self.transactional_id is not None
        return requests.end_txn(self.transactional_id, self.producer_id, self.epoch, commit=commit)

    def batch(self, partition: TopicPartition, *values: bytes, sequence: int | None = None) -> bytearray:
        """The next batch of the partition; its sequences are not counted yet."""
        return requests.batch(
            values,
            producer_id=self.producer_id,
            epoch=self.epoch,
            sequence=self.sequences.get(partition, 0) if sequence is None else sequence,
            transactional=self.transactional_id is not None,
        )

    def advance(self, partition: TopicPartition, count: int) -> None:
        self.sequences[partition] = self.sequences.get(partition, 0) + count

    # Connections

    async def unheard(self, request: Message, version: int) -> None:
        """Send a request; the broker responds, and the response is lost."""
        client = await self.connection()
        await client.response_to(request, version, client.send(request, version))
        self.disconnect()

    async def abandoned(self, request: Message, version: int) -> "asyncio.Future[memoryview]":
        """Send a request and wait for nothing."""
        return (await self.connection()).send(request, version)

    def disconnect(self) -> None:
        if self.client is not None:
            self.client.close()
            self.client = None

    async def connection(self) -> WireClient:
        if self.client is None or self.client.closed:
            self.client = await self._connect()
        return self.client

    async def _find_coordinator(self) -> None:
        request = requests.find_coordinator(self.transactional_id or "", transactional=True)
        await self._settled(request, requests.FIND_COORDINATOR_VERSION, lambda response: response.error_code)

    async def _settled(
        self, request: Message, version: int, code: Callable[[Any], int], not_yet: Set[ErrorCode] = _NOT_YET
    ) -> Any:
        """The first response that is not "not yet"."""
        said = "nothing"
        for _ in range(_PATIENCE):
            try:
                response = await (await self.connection()).call(request, version)
            except NoResponse:
                self.disconnect()
            else:
                if code(response) not in not_yet:
                    return response
                said = ErrorCode(code(response)).name
            await asyncio.sleep(_PAUSE_SECONDS)
        raise AssertionError(f"{type(request).__name__} was answered {said} for ever")


def ok(outcome: ErrorCode | PartitionProduceResponse) -> None:
    """The step succeeded."""
    code = outcome if isinstance(outcome, ErrorCode) else ErrorCode(outcome.error_code)
    assert code is ErrorCode.NONE, code.name
