"""Questions to transaction coordinators on other brokers: AddPartitionsToTxn, from version 4 on (KIP-890).

To each coordinator one request is under way at a time. Meanwhile questions gather, and the next request takes along one
for each transactional id; so the number of requests does not grow with the number of producers. A question that meets
one of a newer epoch of the same producer is answered here: it is fenced. Of one epoch, they go one after the other.

No request is larger than the receiver may be set to accept: what does not fit waits for the next one, and a question of
many partitions is asked in several parts.

A request that is lost, or takes longer than ``request.timeout.ms``, leaves its questions without a decision
(NETWORK_EXCEPTION); whoever asked, asks again, and possibly somebody else. An answer that comes later than that is
ignored. The same holds for a question that an answer leaves out, and for a broker that is too old to be asked: Kafka
lets the batch in then. (Kafka: AddPartitionsToTxnManager.)

What waits here is bounded by the connections of producers: each waits for one question at most.
"""

import asyncio
import logging
from collections.abc import Iterable
from typing import Final, NamedTuple, TypeAlias

from oncelog.coordinator.ports import BrokerChannel
from oncelog.coordinator.transaction.state import ProducerIdAndEpoch
from oncelog.protocol.errors import ErrorCode, error_of
from oncelog.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from oncelog.protocol.schema import Message
from oncelog.protocol.topic_partition import TopicPartition

logger = logging.getLogger(__name__)

MOST_PARTITIONS: Final = 2_000
"""In one question."""
MOST_ELEMENTS: Final = 6_000
"""Transactions, topics and partitions in one request: a broker that is set to the least accepts 7,000 elements."""
MOST_ID_BYTES: Final = 4 << 20
"""Of all transactional ids in one request; a broker accepts 16 MiB."""

PartitionErrors: TypeAlias = dict[TopicPartition, ErrorCode]
"""The coordinator's word on each partition of a question."""


class Question(NamedTuple):
    """Are these partitions in the producer's transaction? Or, if ``adds_partitions``: put them in."""

    transactional_id: str
    producer: ProducerIdAndEpoch
    partitions: frozenset[TopicPartition]
    adds_partitions: bool

    def all_answered(self, error: ErrorCode) -> PartitionErrors:
        return dict.fromkeys(self.partitions, error)

    @property
    def elements(self) -> int:
        """Array elements of a request that this question is."""
        return 1 + len({partition.topic for partition in self.partitions}) + len(self.partitions)

    def parts(self) -> "list[Question]":
        """Return requests for at most ``MOST_PARTITIONS`` each that together are this one."""
        partitions = sorted(self.partitions)
        starts = range(0, len(partitions), MOST_PARTITIONS)
        return [self._replace(partitions=frozenset(partitions[start : start + MOST_PARTITIONS])) for start in starts]


class _Asked:
    """A question, and who waits for its answer."""

    __slots__ = ("answer", "question")

    def __init__(self, question: Question) -> None:
        self.question = question
        self.answer: asyncio.Future[PartitionErrors] = asyncio.get_running_loop().create_future()

    def settle(self, errors: PartitionErrors) -> None:
        if not self.answer.done():  # Else whoever asked has been stopped.
            self.answer.set_result(errors)


class _Request:
    """One request that is under way."""

    __slots__ = ("asked", "timer")

    def __init__(self, asked: list[_Asked], timer: asyncio.TimerHandle) -> None:
        self.asked = asked
        self.timer = timer


class _Coordinator:
    """A broker that is asked."""

    __slots__ = ("under_way", "waiting")

    def __init__(self) -> None:
        self.under_way: _Request | None = None
        self.waiting: dict[str, list[_Asked]] = {}
        """By transactional id."""


class AddPartitionsToTxnSender:
    """All questions of one broker to others."""

    def __init__(self, channel: BrokerChannel, *, request_timeout_ms: int) -> None:
        self._channel = channel
        self._request_timeout = request_timeout_ms / 1000
        self._coordinators: dict[int, _Coordinator] = {}

    def ask(self, broker_id: int, question: Question) -> asyncio.Future[PartitionErrors]:
        """Return the error of every partition; what another broker refused as a whole, it refused for each.

        Errors are the coordinator's, and NETWORK_EXCEPTION where it did not respond.
        """
        if len(question.partitions) <= MOST_PARTITIONS:
            return self._ask(broker_id, question)
        return _all_of([self._ask(broker_id, part) for part in question.parts()])

    def _ask(self, broker_id: int, question: Question) -> asyncio.Future[PartitionErrors]:
        asked = _Asked(question)
        coordinator = self._coordinators.setdefault(broker_id, _Coordinator())
        if _is_fenced_by(coordinator.waiting.get(question.transactional_id, ()), question):
            asked.settle(question.all_answered(ErrorCode.INVALID_PRODUCER_EPOCH))
            return asked.answer
        _fence(coordinator, question)
        coordinator.waiting.setdefault(question.transactional_id, []).append(asked)
        if coordinator.under_way is None:
            self._send(broker_id, coordinator)
        return asked.answer

    def stop(self) -> None:
        """Send no more requests, and fail those that wait."""
        for coordinator in self._coordinators.values():
            waiting = [asked for several in coordinator.waiting.values() for asked in several]
            coordinator.waiting.clear()
            request, coordinator.under_way = coordinator.under_way, None
            if request is not None:
                request.timer.cancel()
                waiting += request.asked
            _settle_all(waiting, ErrorCode.NETWORK_EXCEPTION)
        self._coordinators.clear()

    def _send(self, broker_id: int, coordinator: _Coordinator) -> None:
        """Send one request of each transactional id, as many as fit; the next one begins with those that do not."""
        batch = _take(coordinator.waiting)

        def give_up() -> None:
            logger.warning("Broker %d did not answer AddPartitionsToTxn in time", broker_id)
            self._answered(broker_id, coordinator, request, None)

        timer = asyncio.get_running_loop().call_later(self._request_timeout, give_up)
        request = coordinator.under_way = _Request(batch, timer)
        message = AddPartitionsToTxnRequest(transactions=[_transaction(asked.question) for asked in batch])
        self._channel.send(
            broker_id, message, lambda response: self._answered(broker_id, coordinator, request, response)
        )

    def _answered(self, broker_id: int, coordinator: _Coordinator, request: _Request, response: Message | None) -> None:
        if coordinator.under_way is not request:
            return  # Given up before.
        coordinator.under_way = None
        request.timer.cancel()
        if response is None:
            _settle_all(request.asked, ErrorCode.NETWORK_EXCEPTION)
        else:
            assert isinstance(response, AddPartitionsToTxnResponse)
            _settle(broker_id, request.asked, response)
        if coordinator.waiting:
            self._send(broker_id, coordinator)


def _take(waiting: dict[str, list[_Asked]]) -> list[_Asked]:
    """Remove and return the questions of the next request. An id that has more of them goes to the back."""
    batch: list[_Asked] = []
    elements = id_bytes = 0
    for transactional_id, several in list(waiting.items()):
        elements += several[0].question.elements
        id_bytes += len(transactional_id.encode())
        if batch and (elements > MOST_ELEMENTS or id_bytes > MOST_ID_BYTES):
            break
        batch.append(several.pop(0))
        del waiting[transactional_id]
        if several:
            waiting[transactional_id] = several
    return batch


def _all_of(parts: list[asyncio.Future[PartitionErrors]]) -> asyncio.Future[PartitionErrors]:
    """Return the results of all parts as one."""
    whole: asyncio.Future[PartitionErrors] = asyncio.get_running_loop().create_future()
    errors: PartitionErrors = {}
    left = len(parts)

    def take(part: asyncio.Future[PartitionErrors]) -> None:
        nonlocal left
        left -= 1
        errors.update(part.result())
        if not left and not whole.done():
            whole.set_result(errors)

    for part in parts:
        part.add_done_callback(take)
    return whole


def _is_fenced_by(waiting: Iterable[_Asked], question: Question) -> bool:
    producer_id, epoch = question.producer
    return any(asked.question.producer.id == producer_id and asked.question.producer.epoch > epoch for asked in waiting)


def _fence(coordinator: _Coordinator, question: Question) -> None:
    """Answer the questions of older epochs of this producer that have not left yet."""
    producer_id, epoch = question.producer
    waiting = coordinator.waiting.get(question.transactional_id, [])
    for asked in [a for a in waiting if a.question.producer.id == producer_id and a.question.producer.epoch < epoch]:
        waiting.remove(asked)
        asked.settle(asked.question.all_answered(ErrorCode.INVALID_PRODUCER_EPOCH))


def _transaction(question: Question) -> AddPartitionsToTxnTransaction:
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(question.partitions):
        topics.setdefault(topic, []).append(partition)
    return AddPartitionsToTxnTransaction(
        transactional_id=question.transactional_id,
        producer_id=question.producer.id,
        producer_epoch=question.producer.epoch,
        verify_only=not question.adds_partitions,
        topics=[AddPartitionsToTxnTopic(name=topic, partitions=partitions) for topic, partitions in topics.items()],
    )


def _settle(broker_id: int, batch: list[_Asked], response: AddPartitionsToTxnResponse) -> None:
    if response.error_code:
        error = error_of(response.error_code)
        logger.error("Broker %d refused AddPartitionsToTxn: %s", broker_id, error.name)
        if error is ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
            # That lies between two brokers; to the producer it only means that its transaction cannot go on.
            error = ErrorCode.INVALID_TXN_STATE
        _settle_all(batch, error)
        return
    results = {result.transactional_id: _partition_errors(result) for result in response.results_by_transaction}
    for asked in batch:
        told = results.get(asked.question.transactional_id, {})
        asked.settle(
            {partition: told.get(partition, ErrorCode.NETWORK_EXCEPTION) for partition in asked.question.partitions}
        )


def _settle_all(batch: Iterable[_Asked], error: ErrorCode) -> None:
    for asked in batch:
        asked.settle(asked.question.all_answered(error))


def _partition_errors(result: AddPartitionsToTxnResult) -> PartitionErrors:
    return {
        TopicPartition(topic.name, partition.partition_index): error_of(partition.partition_error_code)
        for topic in result.topic_results
        for partition in topic.results_by_partition
    }
