"""The steps of a transactional producer, in the transaction version that the broker has finalised and it understands.

Version 1 adds partitions and offsets to the transaction before it writes them, and keeps its epoch. Version 2 just
writes, and learns its next epoch (or its next producer id) from the response to EndTxn. Between transactions a producer
of the newest kind looks which version holds now. Coming from version 1 it bumps its epoch first, so that whatever of
version 1 is still on its way belongs to the past; back to version 1 it goes with the epoch that it has.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from random import Random
from typing import Final

from oncelog.protocol.messages.end_txn import EndTxnRequest
from oncelog.protocol.messages.produce import ProduceRequest
from oncelog.protocol.schema import ZERO_UUID
from oncelog.protocol.topic_partition import TopicPartition
from tests.simulation import requests
from tests.simulation.patient_client import PatientClient, error_of, produce_errors

_LAST_LIVE_EPOCH: Final = 32_766
_LOOKS_AGAIN: Final = 0.3
"""How likely a producer asks, after a transaction, which version holds."""


class TransactionalSession:
    """Each step returns when it is done; Broken ends the session, Abortable the transaction."""

    def __init__(
        self,
        transactional_id: str,
        client: PatientClient,
        rng: Random,
        *,
        newest_version: int = 1,
        timeout_ms: int,
        topic_ids: Mapping[str, bytes] | None = None,
    ) -> None:
        """``newest_version``: of transactions, the newest that it understands. ``topic_ids``: by topic, if known."""
        self.client = client
        self.version = 1
        """The one that it uses now."""
        self.timeout_ms = timeout_ms
        self.events: Counter[str] = Counter()
        """What happened to it, for a test that wants to know whether it did."""
        self.transactional_id = transactional_id
        self.producer_ids: set[int] = set()
        """All that it ever had."""
        self._rng = rng
        self._newest_version = newest_version
        self._topic_ids = topic_ids or {}
        self._producer_id = -1
        self._epoch = -1
        self._sequences: dict[TopicPartition, int] = {}

    async def begin(self) -> None:
        """Fence the former producer of this transactional id."""
        find = requests.find_coordinator(self.transactional_id, transactional=True)
        await self.client.succeed(find, requests.FIND_COORDINATOR_VERSION, error_of)
        self.version = await self._version_that_holds()
        await self._initialise(-1, -1)

    async def follow_the_version_that_holds(self) -> None:
        """Between transactions, sometimes: go on in another version if there is reason to."""
        if self._newest_version == 1 or self._rng.random() >= _LOOKS_AGAIN:
            return
        before, self.version = self.version, await self._version_that_holds()
        self.events["changed version"] += self.version != before
        if self.version > before:
            await self._initialise(self._producer_id, self._epoch)

    async def add_partitions(self, partitions: Sequence[TopicPartition]) -> None:
        """In version 2 they are added by writing to them."""
        if self.version == 2:
            return
        request = requests.add_partitions(self.transactional_id, self._producer_id, self._epoch, partitions)
        await self.client.succeed(
            request, requests.ADD_PARTITIONS_VERSION, lambda response: set(requests.added_partitions(response).values())
        )

    async def produce(self, *batches: tuple[TopicPartition, Sequence[bytes]]) -> None:
        """Several batches are in flight at once, on one connection."""
        produces = [self._produce_request(partition, values) for partition, values in batches]
        await self.client.succeed_together(produces, self._produce_version(), produce_errors)

    def _produce_request(self, partition: TopicPartition, values: Sequence[bytes]) -> ProduceRequest:
        sequence = self._sequences.get(partition, 0)
        self._sequences[partition] = sequence + len(values)
        batch = requests.batch(
            values, producer_id=self._producer_id, epoch=self._epoch, sequence=sequence, transactional=True
        )
        topic_id = self._topic_ids.get(partition.topic, ZERO_UUID)
        return requests.produce(partition, batch, transactional_id=self.transactional_id, topic_id=topic_id)

    async def commit_offsets(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        if self.version == 1:
            add = requests.add_offsets(self.transactional_id, self._producer_id, self._epoch, group)
            await self.client.succeed(add, requests.ADD_OFFSETS_VERSION, error_of)
        commit = requests.txn_offset_commit(self.transactional_id, self._producer_id, self._epoch, group, offsets)
        versions = (requests.TXN_OFFSET_COMMIT_VERSION, requests.TRANSACTION_2_TXN_OFFSET_COMMIT_VERSION)
        await self.client.succeed(
            commit, versions[self.version - 1], lambda response: set(requests.committed_partitions(response).values())
        )

    async def end(self, *, commit: bool) -> None:
        request = requests.end_txn(self.transactional_id, self._producer_id, self._epoch, commit=commit)
        if self.version == 1:
            await self.client.succeed(request, requests.END_TXN_VERSION, error_of)
        else:
            await self._end_in_version_2(request)
        self.events[f"ended in version {self.version}"] += 1

    async def _end_in_version_2(self, request: EndTxnRequest) -> None:
        response = await self.client.succeed(request, requests.TRANSACTION_2_END_TXN_VERSION, error_of)
        self.events["new producer id"] += response.producer_id != self._producer_id
        if self._sequences:
            prepared = self._producer_id, self._epoch + 1
            self.client.repeat_marker(self.transactional_id, prepared, list(self._sequences), commit=request.committed)
        self._take_identity(response.producer_id, response.producer_epoch)

    async def _version_that_holds(self) -> int:
        if self._newest_version == 1:
            return 1
        response = await self.client.succeed(requests.api_versions(), requests.API_VERSIONS_VERSION, error_of)
        return 2 if requests.finalized_transaction_version(response) >= 2 else 1

    async def _initialise(self, producer_id: int, epoch: int) -> None:
        request = requests.init_producer_id(
            self.transactional_id, timeout_ms=self.timeout_ms, producer_id=producer_id, epoch=epoch
        )
        response = await self.client.succeed(request, requests.INIT_PRODUCER_ID_VERSION, error_of)
        self._take_identity(response.producer_id, response.producer_epoch)

    def _take_identity(self, producer_id: int, epoch: int) -> None:
        assert 0 <= epoch <= _LAST_LIVE_EPOCH, f"{self.transactional_id} was given epoch {epoch}"
        self._producer_id, self._epoch = producer_id, epoch
        self.producer_ids.add(producer_id)
        self._sequences.clear()

    def _produce_version(self) -> int:
        if self.version == 1:
            return requests.PRODUCE_VERSION
        by_topic_id = self._topic_ids and self._rng.random() < 0.5
        return requests.PRODUCE_BY_TOPIC_ID_VERSION if by_topic_id else requests.TRANSACTION_2_PRODUCE_VERSION
