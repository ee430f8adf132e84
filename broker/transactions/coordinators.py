"""Whoever coordinates a transactional id, in this broker or another: asked on behalf of this broker's partitions.

This broker is tried first, by a plain call. Only if it is not the coordinator is the cluster's metadata looked at, and
the leader of the transactional id's partition of ``__transaction_state`` asked over the network. So the broker that is
alone pays nothing for the others.
"""

import asyncio
from typing import Final, TypeAlias

from oncelog.broker.transactions.add_partitions_to_txn_sender import AddPartitionsToTxnSender, PartitionErrors, Question
from oncelog.broker.transactions.verification_metrics import VerificationMetrics
from oncelog.coordinator.ports import BrokerChannel, TopicMetadata
from oncelog.coordinator.promise import Response, Undecided
from oncelog.coordinator.transaction.coordinator import TransactionCoordinator
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.internal.placement import partition_for
from oncelog.protocol.internal.topics import TRANSACTION_STATE_TOPIC_NAME
from oncelog.protocol.topic_partition import TopicPartition

_CLIENT_VERSION: Final = 2
"""The transaction protocol of clients whose partitions are added by writing to them."""

_Answer: TypeAlias = PartitionErrors | asyncio.Future[PartitionErrors] | Response[ErrorCode]
"""One error stands for all partitions."""


class Asked:
    """A question that was put to its coordinator, and the answer or what it will come from."""

    __slots__ = ("_answer", "_began", "_is_noted", "_metrics", "_question", "is_here")

    def __init__(
        self, question: Question, answer: _Answer, metrics: VerificationMetrics, *, began: float, is_here: bool
    ) -> None:
        self._question = question
        self._answer = answer
        self._metrics = metrics
        self._began = began
        self._is_noted = False
        self.is_here = is_here
        """Whether the coordinator is in this broker."""

    @property
    def seconds(self) -> float:
        """Since it was asked."""
        return asyncio.get_running_loop().time() - self._began

    def at_once(self) -> PartitionErrors | None:
        """Return the result, if it is there."""
        answer = self._answer
        return self._noted(answer) if isinstance(answer, dict | ErrorCode) else None

    def withdraw(self) -> bool:
        """Take the question back, if nothing has been done about it yet; whoever does, asks again."""
        return isinstance(self._answer, Undecided)

    async def answers(self) -> PartitionErrors:
        answer = self._answer
        if isinstance(answer, Undecided):
            return self._noted(await answer.decide())
        return self._noted(answer if isinstance(answer, dict | ErrorCode) else await answer)

    def _noted(self, answer: PartitionErrors | ErrorCode) -> PartitionErrors:
        errors = self._question.all_answered(answer) if isinstance(answer, ErrorCode) else answer
        if not self._is_noted:
            self._is_noted = True
            self._metrics.record(self.seconds * 1000, sum(map(bool, errors.values())))
        return errors


class TransactionCoordinators:
    """All of the cluster's, as one broker sees them."""

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

    def ask(self, question: Question) -> Asked:
        began = asyncio.get_running_loop().time()
        answer, is_here = self._ask_here(question), True
        if answer is ErrorCode.NOT_COORDINATOR:
            leader = self._coordinator_of(question.transactional_id)
            if leader is None:
                answer = ErrorCode.COORDINATOR_NOT_AVAILABLE
            elif leader != self._broker_id:
                answer, is_here = self._sender.ask(leader, question), False
        return Asked(question, answer, self.metrics, began=began, is_here=is_here)

    def _ask_here(self, question: Question) -> _Answer:
        transactional_id, producer, partitions, adds_partitions = question
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
