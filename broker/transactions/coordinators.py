"""Verification requests of this broker's partitions to the coordinator of a transactional id, local or remote.

The local coordinator is called first, without a network request. Only if it returns NOT_COORDINATOR is the coordinator
looked up in the cluster's metadata (the leader of the transactional id's partition of ``__transaction_state``) and sent
a request. So a single-node cluster has no cost for remote coordinators.
"""

import asyncio
from typing import Final, TypeAlias

from oncelog.broker.transactions.add_partitions_to_txn_sender import (
    AddPartitionsToTxnSender,
    PartitionErrors,
    VerificationRequest,
)
from oncelog.broker.transactions.verification_metrics import VerificationMetrics
from oncelog.coordinator.ports import BrokerChannel, ClientConnection, TopicMetadata
from oncelog.coordinator.promise import Response, Undecided
from oncelog.coordinator.transaction.coordinator import TransactionCoordinator
from oncelog.coordinator.transaction.state import ProducerIdAndEpoch
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.internal.placement import partition_for
from oncelog.protocol.internal.topics import TRANSACTION_STATE_TOPIC_NAME
from oncelog.protocol.topic_partition import TopicPartition

_CLIENT_VERSION: Final = 2
"""The version of the transaction protocol in which the first write to a partition adds it to the transaction."""

_Outcome: TypeAlias = PartitionErrors | asyncio.Future[PartitionErrors] | Response[ErrorCode]
"""One error stands for all partitions."""


class SentVerification:
    """A verification request that was sent to its coordinator, with its result or the future of its result."""

    __slots__ = ("_began", "_is_recorded", "_metrics", "_outcome", "_request", "is_here")

    def __init__(
        self,
        request: VerificationRequest,
        outcome: _Outcome,
        metrics: VerificationMetrics,
        *,
        began: float,
        is_here: bool,
    ) -> None:
        self._request = request
        self._outcome = outcome
        self._metrics = metrics
        self._began = began
        self._is_recorded = False
        self.is_here = is_here
        """Whether the coordinator is in this broker."""

    @property
    def seconds(self) -> float:
        """Seconds since the request was sent."""
        return asyncio.get_running_loop().time() - self._began

    def at_once(self) -> PartitionErrors | None:
        """Return the result; None if it is not known yet."""
        outcome = self._outcome
        return self._recorded(outcome) if isinstance(outcome, dict | ErrorCode) else None

    def withdraw(self) -> bool:
        """Return whether the local coordinator has not begun the request. Then the caller must send it again."""
        return isinstance(self._outcome, Undecided)

    async def result(self) -> PartitionErrors:
        outcome = self._outcome
        if isinstance(outcome, Undecided):
            return self._recorded(await outcome.decide())
        return self._recorded(outcome if isinstance(outcome, dict | ErrorCode) else await outcome)

    def _recorded(self, outcome: PartitionErrors | ErrorCode) -> PartitionErrors:
        errors = self._request.error_of_all(outcome) if isinstance(outcome, ErrorCode) else outcome
        if not self._is_recorded:
            self._is_recorded = True
            self._metrics.record(self.seconds * 1000, sum(map(bool, errors.values())))
        return errors


class TransactionCoordinators:
    """The transaction coordinators of the cluster, as the partitions of one broker call them."""

    def __init__(
        self,
        local: TransactionCoordinator,
        *,
        broker_id: int,
        metadata: TopicMetadata,
        channel: BrokerChannel,
        request_timeout_ms: int,
    ) -> None:
        self.metrics = VerificationMetrics()
        self._local = local
        self._broker_id = broker_id
        self._metadata = metadata
        self._sender = AddPartitionsToTxnSender(channel, request_timeout_ms=request_timeout_ms)

    def stop(self) -> None:
        self._sender.stop()

    def is_owner(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        connection: ClientConnection,
        *,
        marker_epoch: int,
        since_ms: int,
    ) -> bool:
        """Return whether the coordinator is in this broker and its last request of a producer came over a connection.

        Then whatever comes over the connection was sent later than that request, which is of the present transaction.
        ``since_ms``: the request must have come later, by the loop's clock.
        """
        return self._local.is_owner(
            transactional_id, producer, connection, marker_epoch=marker_epoch, since_ms=since_ms
        )

    def add_or_verify(self, request: VerificationRequest) -> SentVerification:
        began = asyncio.get_running_loop().time()
        outcome, is_here = self._add_or_verify_here(request), True
        if outcome is ErrorCode.NOT_COORDINATOR:
            leader = self._coordinator_of(request.transactional_id)
            if leader is None:
                outcome = ErrorCode.COORDINATOR_NOT_AVAILABLE
            elif leader != self._broker_id:
                outcome, is_here = self._sender.add_or_verify(leader, request), False
        return SentVerification(request, outcome, self.metrics, began=began, is_here=is_here)

    def _add_or_verify_here(self, request: VerificationRequest) -> _Outcome:
        transactional_id, producer, partitions, adds_partitions = request
        if adds_partitions:
            return self._local.add_partitions(transactional_id, producer, partitions, client_version=_CLIENT_VERSION)
        errors = self._local.verify_partitions(transactional_id, producer, partitions)
        if ErrorCode.NOT_COORDINATOR in errors.values():
            return ErrorCode.NOT_COORDINATOR
        return errors

    def _coordinator_of(self, transactional_id: str) -> int | None:
        """Return the broker that coordinates an id; None if there is none at the moment."""
        count = self._metadata.partition_count(TRANSACTION_STATE_TOPIC_NAME)
        if count is None:
            return None
        index = partition_for(transactional_id, count)
        leader = self._metadata.leader(TopicPartition(TRANSACTION_STATE_TOPIC_NAME, index))
        return None if leader is None else leader.broker_id
