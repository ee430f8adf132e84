"""What every client of the simulated workload does: send until an answer comes, and wait out what passes."""

import asyncio
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from protocol.errors import ErrorCode
from protocol.schema import Message
from protocol.topic_partition import TopicPartition
from tests.simulation import requests
from tests.simulation.requests import RETRIABLE
from tests.simulation.wire_client import NoAnswer, WireClient


class Broken(Exception):
    """The transaction cannot go on: fenced, timed out, or the broker forgot the producer."""


class PatientClient:
    """One connection at a time; a request is repeated over as many of them as it takes."""

    def __init__(self, port: int, rng: random.Random, *, answer_within: float = 5.0) -> None:
        self._port = port
        self._rng = rng
        self._answer_within = answer_within
        self._client: WireClient | None = None

    async def connection(self) -> WireClient:
        """The present connection, or a new one. Raises NoAnswer."""
        if self._client is None or self._client.closed:
            self._client = await WireClient.connect(self._port, answer_within=self._answer_within)
        return self._client

    async def disconnect(self) -> None:
        """Give the connection up, and wait a moment."""
        if self._client is not None:
            self._client.close()
        self._client = None
        await asyncio.sleep(self._rng.uniform(0.01, 0.2))

    async def pause(self) -> None:
        """Back off before the same request is sent again."""
        await asyncio.sleep(self._rng.uniform(0.005, 0.05))

    async def call(self, request: Message, version: int) -> Any:
        while True:
            try:
                return await (await self.connection()).call(request, version)
            except NoAnswer:
                await self.disconnect()

    async def succeed(self, request: Message, version: int, errors: Callable[[Any], set[ErrorCode]]) -> Any:
        """Repeat a request until nothing in its answer is an error. Raises Broken if waiting does not help."""
        while True:
            answer = await self.call(request, version)
            codes = errors(answer)
            if codes <= {ErrorCode.NONE}:
                return answer
            if not codes & RETRIABLE:
                raise Broken(str(codes))
            await self.pause()


class TransactionalSession:
    """The steps of a transactional producer. Each returns when it is done; Broken ends the session."""

    def __init__(self, transactional_id: str, client: PatientClient, *, timeout_ms: int = 5_000) -> None:
        self.client = client
        self._transactional_id = transactional_id
        self._timeout_ms = timeout_ms
        self._producer_id = -1
        self._epoch = -1
        self._sequences: dict[TopicPartition, int] = {}

    async def begin(self) -> None:
        """Fence whoever had this transactional id."""
        find = requests.find_coordinator(self._transactional_id, transactional=True)
        await self.client.succeed(find, requests.FIND_COORDINATOR_VERSION, _error)
        request = requests.init_producer_id(self._transactional_id, timeout_ms=self._timeout_ms)
        answer = await self.client.succeed(request, requests.INIT_PRODUCER_ID_VERSION, _error)
        self._producer_id, self._epoch = answer.producer_id, answer.producer_epoch
        self._sequences.clear()

    async def add_partitions(self, partitions: Sequence[TopicPartition]) -> None:
        request = requests.add_partitions(self._transactional_id, self._producer_id, self._epoch, partitions)
        await self.client.succeed(
            request, requests.ADD_PARTITIONS_VERSION, lambda answer: set(requests.added_partitions(answer).values())
        )

    async def produce(self, partition: TopicPartition, values: Sequence[bytes]) -> None:
        sequence = self._sequences.get(partition, 0)
        batch = requests.batch(
            values, producer_id=self._producer_id, epoch=self._epoch, sequence=sequence, transactional=True
        )
        request = requests.produce(partition, batch, transactional_id=self._transactional_id)
        await self.client.succeed(request, requests.PRODUCE_VERSION, produce_errors)
        self._sequences[partition] = sequence + len(values)

    async def commit_offsets(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        add = requests.add_offsets(self._transactional_id, self._producer_id, self._epoch, group)
        await self.client.succeed(add, requests.ADD_OFFSETS_VERSION, _error)
        commit = requests.txn_offset_commit(self._transactional_id, self._producer_id, self._epoch, group, offsets)
        await self.client.succeed(
            commit,
            requests.TXN_OFFSET_COMMIT_VERSION,
            lambda answer: set(requests.committed_partitions(answer).values()),
        )

    async def end(self, *, commit: bool) -> None:
        request = requests.end_txn(self._transactional_id, self._producer_id, self._epoch, commit=commit)
        await self.client.succeed(request, requests.END_TXN_VERSION, _error)


def _error(answer: Any) -> set[ErrorCode]:
    return {ErrorCode(answer.error_code)}


def produce_errors(answer: Any) -> set[ErrorCode]:
    return {ErrorCode(partition.error_code) for topic in answer.responses for partition in topic.partition_responses}
