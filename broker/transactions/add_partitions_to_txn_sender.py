"""AddPartitionsToTxn requests to transaction coordinators on other brokers, from version 4 on (KIP-890).

Each coordinator has at most one request in flight. Verification requests that arrive meanwhile are queued, and the next
AddPartitionsToTxn request carries one for each transactional id; so the number of requests does not grow with the
number of producers. A verification request fails here with INVALID_PRODUCER_EPOCH while one of a newer epoch of the
same producer is queued. Those of one epoch are sent one after the other.

No request is larger than the smallest limit that a receiver can be configured with: what does not fit waits for the
next request, and a verification request of many partitions is sent in several parts.

A request that is lost, or takes longer than ``request.timeout.ms``, completes its verification requests with
NETWORK_EXCEPTION; the caller retries, possibly with another coordinator. A response after that time-out is ignored.
NETWORK_EXCEPTION is also the result for a partition that a response omits, and for a broker that does not serve
version 4: Kafka appends the batch in the latter case. (Kafka: AddPartitionsToTxnManager.)

The connections of producers bound the queue: each has at most one verification request in it.
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
"""In one part of a verification request."""
MOST_ELEMENTS: Final = 6_000
"""Transactions, topics and partitions in one request: a broker that is set to the least accepts 7,000 elements."""
MOST_ID_BYTES: Final = 4 << 20
"""Of all transactional ids in one request; a broker accepts 16 MiB."""

PartitionErrors: TypeAlias = dict[TopicPartition, ErrorCode]
"""The coordinator's error, or NONE, for each partition of a verification request."""


class VerificationRequest(NamedTuple):
    """Verify that the partitions are in the producer's transaction or, if ``adds_partitions``, add them."""

    transactional_id: str
    producer: ProducerIdAndEpoch
    partitions: frozenset[TopicPartition]
    adds_partitions: bool

    def error_of_all(self, error: ErrorCode) -> PartitionErrors:
        return dict.fromkeys(self.partitions, error)

    @property
    def elements(self) -> int:
        """The number of array elements that this takes in an AddPartitionsToTxn request."""
        return 1 + len({partition.topic for partition in self.partitions}) + len(self.partitions)

    def parts(self) -> "list[VerificationRequest]":
        """Return requests for at most ``MOST_PARTITIONS`` each that together are this one."""
        partitions = sorted(self.partitions)
        starts = range(0, len(partitions), MOST_PARTITIONS)
        return [self._replace(partitions=frozenset(partitions[start : start + MOST_PARTITIONS])) for start in starts]


class _PendingVerification:
    """A verification request and the future of its result."""

    __slots__ = ("request", "result")

    def __init__(self, request: VerificationRequest) -> None:
        self.request = request
        self.result: asyncio.Future[PartitionErrors] = asyncio.get_running_loop().create_future()

    def complete(self, errors: PartitionErrors) -> None:
        if not self.result.done():  # Cancelled if the caller's task was.
            self.result.set_result(errors)


class _InFlightRequest:
    """An AddPartitionsToTxn request without a response, and the verification requests that it carries."""

    __slots__ = ("timer", "verifications")

    def __init__(self, verifications: list[_PendingVerification], timer: asyncio.TimerHandle) -> None:
        self.verifications = verifications
        self.timer = timer


class _Coordinator:
    """The verification requests to one broker."""

    __slots__ = ("in_flight", "waiting")

    def __init__(self) -> None:
        self.in_flight: _InFlightRequest | None = None
        self.waiting: dict[str, list[_PendingVerification]] = {}
        """By transactional id."""


class AddPartitionsToTxnSender:
    """The verification requests of this broker to other brokers."""

    def __init__(self, channel: BrokerChannel, *, request_timeout_ms: int) -> None:
        self._channel = channel
        self._request_timeout = request_timeout_ms / 1000
        self._coordinators: dict[int, _Coordinator] = {}

    def add_or_verify(self, broker_id: int, request: VerificationRequest) -> asyncio.Future[PartitionErrors]:
        """Send a verification request. The future's result is the error, or NONE, of every partition.

        An error of the whole response applies to every partition. NETWORK_EXCEPTION: there was no response.
        """
        if len(request.partitions) <= MOST_PARTITIONS:
            return self._enqueue(broker_id, request)
        return _all_of([self._enqueue(broker_id, part) for part in request.parts()])

    def _enqueue(self, broker_id: int, request: VerificationRequest) -> asyncio.Future[PartitionErrors]:
        verification = _PendingVerification(request)
        coordinator = self._coordinators.setdefault(broker_id, _Coordinator())
        if _is_fenced_by(coordinator.waiting.get(request.transactional_id, ()), request):
            verification.complete(request.error_of_all(ErrorCode.INVALID_PRODUCER_EPOCH))
            return verification.result
        _fence(coordinator, request)
        coordinator.waiting.setdefault(request.transactional_id, []).append(verification)
        if coordinator.in_flight is None:
            self._send(broker_id, coordinator)
        return verification.result

    def stop(self) -> None:
        """Send no more requests, and fail those that wait."""
        for coordinator in self._coordinators.values():
            waiting = [verification for several in coordinator.waiting.values() for verification in several]
            coordinator.waiting.clear()
            in_flight, coordinator.in_flight = coordinator.in_flight, None
            if in_flight is not None:
                in_flight.timer.cancel()
                waiting += in_flight.verifications
            _complete_all(waiting, ErrorCode.NETWORK_EXCEPTION)
        self._coordinators.clear()

    def _send(self, broker_id: int, coordinator: _Coordinator) -> None:
        """Send one verification request of each transactional id that fits; the next call begins with the others."""
        batch = _take(coordinator.waiting)

        def give_up() -> None:
            logger.warning("Broker %d did not respond to AddPartitionsToTxn within request.timeout.ms", broker_id)
            self._complete(broker_id, coordinator, in_flight, None)

        timer = asyncio.get_running_loop().call_later(self._request_timeout, give_up)
        in_flight = coordinator.in_flight = _InFlightRequest(batch, timer)
        message = AddPartitionsToTxnRequest(transactions=[_transaction(verification.request) for verification in batch])
        self._channel.send(
            broker_id, message, lambda response: self._complete(broker_id, coordinator, in_flight, response)
        )

    def _complete(
        self, broker_id: int, coordinator: _Coordinator, in_flight: _InFlightRequest, response: Message | None
    ) -> None:
        if coordinator.in_flight is not in_flight:
            return  # It has timed out.
        coordinator.in_flight = None
        in_flight.timer.cancel()
        if response is None:
            _complete_all(in_flight.verifications, ErrorCode.NETWORK_EXCEPTION)
        else:
            assert isinstance(response, AddPartitionsToTxnResponse)
            _complete_from_response(broker_id, in_flight.verifications, response)
        if coordinator.waiting:
            self._send(broker_id, coordinator)


def _take(waiting: dict[str, list[_PendingVerification]]) -> list[_PendingVerification]:
    """Remove and return those of the next request. A transactional id that has more of them goes to the back."""
    batch: list[_PendingVerification] = []
    elements = id_bytes = 0
    for transactional_id, several in list(waiting.items()):
        elements += several[0].request.elements
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


def _is_fenced_by(waiting: Iterable[_PendingVerification], request: VerificationRequest) -> bool:
    producer_id, epoch = request.producer
    return any(
        verification.request.producer.id == producer_id and verification.request.producer.epoch > epoch
        for verification in waiting
    )


def _fence(coordinator: _Coordinator, request: VerificationRequest) -> None:
    """Complete queued verification requests of older epochs of this producer with INVALID_PRODUCER_EPOCH."""
    producer_id, epoch = request.producer
    waiting = coordinator.waiting.get(request.transactional_id, [])
    for verification in [
        v for v in waiting if v.request.producer.id == producer_id and v.request.producer.epoch < epoch
    ]:
        waiting.remove(verification)
        verification.complete(verification.request.error_of_all(ErrorCode.INVALID_PRODUCER_EPOCH))


def _transaction(request: VerificationRequest) -> AddPartitionsToTxnTransaction:
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(request.partitions):
        topics.setdefault(topic, []).append(partition)
    return AddPartitionsToTxnTransaction(
        transactional_id=request.transactional_id,
        producer_id=request.producer.id,
        producer_epoch=request.producer.epoch,
        verify_only=not request.adds_partitions,
        topics=[AddPartitionsToTxnTopic(name=topic, partitions=partitions) for topic, partitions in topics.items()],
    )


def _complete_from_response(
    broker_id: int, batch: list[_PendingVerification], response: AddPartitionsToTxnResponse
) -> None:
    if response.error_code:
        error = error_of(response.error_code)
        logger.error("Broker %d refused AddPartitionsToTxn: %s", broker_id, error.name)
        if error is ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
            # The error is about the broker, not the producer, whose transaction cannot continue.
            error = ErrorCode.INVALID_TXN_STATE
        _complete_all(batch, error)
        return
    results = {result.transactional_id: _partition_errors(result) for result in response.results_by_transaction}
    for verification in batch:
        errors = results.get(verification.request.transactional_id, {})
        verification.complete(
            {
                partition: errors.get(partition, ErrorCode.NETWORK_EXCEPTION)
                for partition in verification.request.partitions
            }
        )


def _complete_all(batch: Iterable[_PendingVerification], error: ErrorCode) -> None:
    for verification in batch:
        verification.complete(verification.request.error_of_all(error))


def _partition_errors(result: AddPartitionsToTxnResult) -> PartitionErrors:
    return {
        TopicPartition(topic.name, partition.partition_index): error_of(partition.partition_error_code)
        for topic in result.topic_results
        for partition in topic.results_by_partition
    }
