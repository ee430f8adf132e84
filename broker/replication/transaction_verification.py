"""Before the first batch of a transaction enters a partition: does the coordinator know that it belongs there?

A batch that arrives late, after its transaction has ended, would open a transaction that nobody ever ends (KIP-890). So
the leader asks the coordinator of the transactional id whether the partition is in an ongoing transaction of this
producer. It asks for the first batch only: the later ones find the transaction open in the producer's state, and a
batch of an older epoch than the log has seen is left to the append, which fences it.

The coordinator is asked and the batch appended in one step, so that no marker can come between. While the coordinator
cannot say (it is loading, or the transaction is just being ended) the request waits, and with it the whole connection;
in the end it is refused with NOT_ENOUGH_REPLICAS, which every producer takes for "again". A later batch of the same
producer must then not slip in before the refused one: the lowest refused sequence is kept until its batch has come.

The coordinator is the one in this broker; others are not asked yet.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Iterator
from struct import Struct
from typing import Final, NamedTuple

from broker.replication.replica_manager import ReplicaManager
from coordinator.transaction.coordinator import TransactionCoordinator
from coordinator.transaction.state import ProducerIdAndEpoch
from protocol.errors import ErrorCode
from protocol.messages.produce import ProduceRequest
from protocol.records.record_batch import ATTRIBUTES_POSITION, HEADER_SIZE, TRANSACTIONAL_BIT
from protocol.topic_partition import TopicPartition

_LONGEST_WAIT_SECONDS: Final = 5.0
_FIRST_PAUSE_SECONDS: Final = 0.001
_LONGEST_PAUSE_SECONDS: Final = 0.05
_MOST_REFUSALS: Final = 10_000

_ATTRIBUTES: Final = ATTRIBUTES_POSITION + 1
_PRODUCER: Final = Struct(">qhi")
_PRODUCER_POSITION: Final = 43
"""Where a batch has its producer id, epoch and base sequence."""

_UNDECIDED: Final = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.CONCURRENT_TRANSACTIONS,
    }
)
"""The coordinator cannot say yet."""
_FIRST_VERSION_WITH_TRANSACTION_ABORTABLE: Final = 11


class _FirstBatch(NamedTuple):
    """What a partition's batch says of its producer, where it is the first of its transaction."""

    partition: TopicPartition
    producer: ProducerIdAndEpoch
    base_sequence: int


Errors = dict[tuple[str, int], ErrorCode]
"""Why batches must not be appended, by (topic, partition)."""


class TransactionVerifier:
    """Asks for one broker's partitions."""

    def __init__(self, replicas: ReplicaManager, coordinator: TransactionCoordinator) -> None:
        self._replicas = replicas
        self._coordinator = coordinator
        self._refused: OrderedDict[tuple[TopicPartition, int], tuple[int, int]] = OrderedDict()
        """(epoch, lowest sequence) of batches that were refused undecided, by (partition, producer id)."""

    def verify(self, transactional_id: str, request: ProduceRequest, version: int) -> Errors | None:
        """What may not be appended, and why; None while that cannot be said."""
        first = list(self._first_batches(request))
        if not first:
            return {}
        errors = self._ask(transactional_id, first)
        if any(error in _UNDECIDED for error in errors.values()):
            return None
        return {batch.partition: error for batch in first if (error := self._verdict(batch, errors, version))}

    async def verify_patiently(self, transactional_id: str, request: ProduceRequest, version: int) -> Errors:
        """The same, after waiting for the coordinator. What stays undecided is refused.

        The last question and what the caller appends after this are one step: nothing is awaited between them.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + min(request.timeout_ms / 1000, _LONGEST_WAIT_SECONDS)
        pause = _FIRST_PAUSE_SECONDS
        while (errors := self.verify(transactional_id, request, version)) is None:
            if loop.time() >= deadline:
                return self._refuse(transactional_id, request, version)
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)
        return errors

    def _first_batches(self, request: ProduceRequest) -> Iterator[_FirstBatch]:
        for topic in request.topic_data:
            for data in topic.partition_data:
                records = data.records
                if not isinstance(records, memoryview) or len(records) < HEADER_SIZE:
                    continue
                if not records[_ATTRIBUTES] & TRANSACTIONAL_BIT:
                    continue
                partition = self._replicas.led_partition((topic.name, data.index))
                if isinstance(partition, ErrorCode) or partition.led_log is None:
                    continue
                producer_id, epoch, sequence = _PRODUCER.unpack_from(records, _PRODUCER_POSITION)
                entry = partition.led_log.producer_state.producers.get(producer_id)
                if entry is not None and (
                    entry.producer_epoch > epoch
                    or (entry.producer_epoch == epoch and entry.txn_first_offset is not None)
                ):
                    continue
                name = TopicPartition(topic.name, data.index)
                yield _FirstBatch(name, ProducerIdAndEpoch(producer_id, epoch), sequence)

    def _ask(self, transactional_id: str, first: list[_FirstBatch]) -> dict[TopicPartition, ErrorCode]:
        """One request carries the batches of one producer, as was checked before."""
        partitions = frozenset(batch.partition for batch in first)
        return self._coordinator.verify_partitions(transactional_id, first[0].producer, partitions)

    def _verdict(self, batch: _FirstBatch, errors: dict[TopicPartition, ErrorCode], version: int) -> ErrorCode:
        error = errors[batch.partition]
        if error:
            return _told(error, version)
        key = batch.partition, batch.producer.id
        epoch, lowest = self._refused.get(key, (batch.producer.epoch, batch.base_sequence))
        if epoch == batch.producer.epoch and batch.base_sequence > lowest:
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        self._refused.pop(key, None)
        return ErrorCode.NONE

    def _refuse(self, transactional_id: str, request: ProduceRequest, version: int) -> Errors:
        first = list(self._first_batches(request))
        errors = self._ask(transactional_id, first)
        for batch in first:
            if errors[batch.partition] in _UNDECIDED:
                self._remember(batch)
        return {batch.partition: error for batch in first if (error := self._verdict(batch, errors, version))}

    def _remember(self, batch: _FirstBatch) -> None:
        key = batch.partition, batch.producer.id
        epoch, lowest = self._refused.get(key, (batch.producer.epoch, batch.base_sequence))
        if epoch == batch.producer.epoch:
            lowest = min(lowest, batch.base_sequence)
        else:
            lowest = batch.base_sequence
        self._refused[key] = batch.producer.epoch, lowest
        self._refused.move_to_end(key)
        if len(self._refused) > _MOST_REFUSALS:
            self._refused.popitem(last=False)


def _told(error: ErrorCode, version: int) -> ErrorCode:
    """The coordinator's error as a producer of this version understands it."""
    if error in _UNDECIDED:
        return ErrorCode.NOT_ENOUGH_REPLICAS
    if error is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if error is ErrorCode.TRANSACTION_ABORTABLE and version < _FIRST_VERSION_WITH_TRANSACTION_ABORTABLE:
        return ErrorCode.INVALID_TXN_STATE
    return error
