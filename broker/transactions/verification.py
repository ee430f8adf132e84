"""Verification that a partition belongs to the coordinator's transaction, before its first batch is appended.

A batch that arrives after its transaction has ended would open a transaction that no producer ends (KIP-890). So the
leader sends a verification request to the coordinator of the transactional id before the first batch. Later batches
find the transaction open in the producer state, and a batch of an older epoch than the log has seen is refused without
a request. The request depends on the client:

* version 1 of the transaction protocol adds partitions beforehand, so the coordinator verifies that it has this one;
* version 2 does not, so the coordinator adds it. Every transaction has an epoch of its own there, and a batch of the
  next transaction may arrive while the coordinator still completes the previous one.

Offsets of a group are verified in the same way; their partition is the group's.

If this broker is the coordinator, it is called directly, and where it decides at once the append happens in the same
step: no marker can come between. Otherwise the handler becomes a coroutine, no later request of its connection begins
before it, and a guard in the producer state shows whether the result is still valid (``start_verification`` and
``check_verified`` of ``ProducerStateManager``). The last check of the guard and the append are one step again.

Waiting. While the coordinator is loading or unreachable, a batch waits for at most ``_LONGEST_WAIT_SECONDS`` and is
then refused with an error on which every producer retries; later batches of that producer are refused too. While the
previous transaction completes, version 2 waits ``add.partitions.to.txn.retry.backoff.max.ms``. A local coordinator
resumes the request when it has completed; a remote one responds at once, and the request is repeated after 1 ms, and
then with a doubled pause each time, up to ``add.partitions.to.txn.retry.backoff.ms``.

(Kafka: ReplicaManager.maybeSendPartitionsToTransactionCoordinator and handleProduceAppend, AddPartitionsToTxnManager.)
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, TypeAlias

from oncelog.broker.replication.replica_manager import ReplicaManager
from oncelog.broker.storage.producer_state import ProducerStateManager
from oncelog.broker.storage.verification_state import VerificationStateEntry
from oncelog.broker.transactions.add_partitions_to_txn_sender import PartitionErrors, VerificationRequest
from oncelog.broker.transactions.batch_challenge import BatchChallenges
from oncelog.broker.transactions.coordinators import SentVerification, TransactionCoordinators
from oncelog.broker.transactions.offset_commit_challenge import OffsetCommitChallenges
from oncelog.broker.transactions.verification_errors import (
    UNDECIDED,
    TransactionSupportedOperation,
    offset_commit_error,
    operation_of_produce,
    operation_of_txn_offset_commit,
    produce_error,
)
from oncelog.broker.transactions.verification_metrics import VerificationMetrics
from oncelog.coordinator.transaction.state import ProducerIdAndEpoch
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.records.record_batch import NO_SEQUENCE
from oncelog.protocol.topic_partition import TopicPartition

_LONGEST_WAIT_SECONDS: Final = 5.0
_FIRST_PAUSE_SECONDS: Final = 0.001
_LONGEST_PAUSE_SECONDS: Final = 0.05
_OF_NO_TRANSACTION: Final = frozenset({ErrorCode.INVALID_TXN_STATE, ErrorCode.TRANSACTION_ABORTABLE})
"""The batch belongs to no open transaction that has its partition."""


Errors: TypeAlias = PartitionErrors
"""Why batches must not be appended."""
MayWrite: TypeAlias = Callable[[str], bool]
"""Whether the client may write to a topic."""
WrittenBatch: TypeAlias = tuple[str, int, tuple[int, int, int]]
"""A topic, the index of its partition, and producer id, epoch and base sequence of a transactional batch for it."""
ClientError: TypeAlias = Callable[[ErrorCode, TransactionSupportedOperation], ErrorCode]
"""Maps a coordinator's error to one that the client's version knows."""


class VerificationSettings(NamedTuple):
    """With Kafka's defaults."""

    enabled: bool = True
    """Whether version 1 is verified; version 2 adds its partitions in any case."""
    retry_backoff_ms: int = 20
    retry_backoff_max_ms: int = 100
    request_timeout_ms: int = 30_000
    challenges_connections: bool = True
    """Whether a version-1 batch or offset commit over another connection than the last one must be repeated. Never
    replaced."""


class _Batch(NamedTuple):
    """What a transactional batch says of its producer. Offsets have no sequence."""

    partition: TopicPartition
    producer: ProducerIdAndEpoch
    base_sequence: int


class _Request(NamedTuple):
    """The batches of one request, which are all of one producer."""

    transactional_id: str
    batches: list[_Batch]
    operation: TransactionSupportedOperation
    wait_seconds: float
    """Seconds to wait for an unreachable coordinator."""
    client_error: ClientError

    def client_errors(self, errors: Errors) -> Errors:
        return {partition: self.client_error(error, self.operation) for partition, error in errors.items()}


class TransactionVerifier:
    """Verifies batches for the partitions of one broker.

    Its methods return either the errors of batches that must not be appended, and the append of the rest must follow in
    the same step; or a ``Pending`` while the coordinator has not decided.
    """

    def __init__(
        self, replicas: ReplicaManager, coordinators: TransactionCoordinators, settings: VerificationSettings
    ) -> None:
        self._replicas = replicas
        self._coordinators = coordinators
        self.settings = settings
        """May be replaced while the broker runs; a pending request keeps those that it began with."""
        self.offset_commits = OffsetCommitChallenges(replicas, coordinators, is_enabled=settings.challenges_connections)
        self.batches = BatchChallenges(coordinators, is_enabled=settings.challenges_connections)

    @property
    def metrics(self) -> VerificationMetrics:
        return self._coordinators.metrics

    def stop(self) -> None:
        self._coordinators.stop()

    def verify_produce(
        self, transactional_id: str, written: Sequence[WrittenBatch], timeout_ms: int, version: int, may_write: MayWrite
    ) -> "Errors | Pending":
        """Verify a request whose batches are all of one producer. Topics that may not be written to are left out."""
        if not self._begins_transaction(written):
            return {}
        operation = operation_of_produce(version)
        if not self._applies(operation):
            return {}
        batches = [_batch(*each) for each in written if may_write(each[0])]
        wait_seconds = min(timeout_ms / 1000, _LONGEST_WAIT_SECONDS)
        return self._verify(_Request(transactional_id, batches, operation, wait_seconds, produce_error))

    def verify_offsets(
        self, transactional_id: str, producer: ProducerIdAndEpoch, offsets_partition: TopicPartition, version: int
    ) -> "Errors | Pending":
        """Verify offsets that are committed in a transaction; ``offsets_partition`` is their group's, led here."""
        operation = operation_of_txn_offset_commit(version)
        if not self._applies(operation):
            return {}
        batch = _Batch(offsets_partition, producer, NO_SEQUENCE)
        return self._verify(_Request(transactional_id, [batch], operation, 0, offset_commit_error))

    def _applies(self, operation: TransactionSupportedOperation) -> bool:
        return operation.adds_partitions or self.settings.enabled

    def _begins_transaction(self, written: Sequence[WrittenBatch]) -> bool:
        """Return whether there is a batch whose transaction is not open on its partition. Most requests end here."""
        for topic, index, (producer_id, epoch, _) in written:
            partition = self._replicas.led_partition((topic, index))
            if not isinstance(partition, ErrorCode):  # Else the append returns the error.
                if not partition.log.producer_state.has_ongoing_transaction(producer_id, epoch):
                    return True
        return False

    def _verify(self, request: _Request) -> "Errors | Pending":
        attempt = _Attempt(self._replicas, request)
        if not attempt.guards:
            return request.client_errors(attempt.errors)
        sent = self._coordinators.add_or_verify(attempt.verification_request)
        results = sent.at_once()
        if results is not None and UNDECIDED.isdisjoint(results.values()):
            return request.client_errors(attempt.final_errors(results))
        begun = None if sent.withdraw() else (attempt, sent)
        return Pending(self._replicas, self._coordinators, self.settings, request, begun)


class Pending:
    """A request that waits for its coordinator's decision."""

    __slots__ = ("_begun", "_coordinators", "_longest_retry", "_next_pause", "_replicas", "_request", "_settings")

    def __init__(
        self,
        replicas: ReplicaManager,
        coordinators: TransactionCoordinators,
        settings: VerificationSettings,
        request: _Request,
        begun: "tuple[_Attempt, SentVerification] | None",
    ) -> None:
        self._replicas = replicas
        self._coordinators = coordinators
        self._settings = settings
        self._request = request
        self._begun = begun
        """The attempt in progress, with its verification request."""
        self._longest_retry = min(settings.retry_backoff_max_ms, settings.request_timeout_ms) / 1000
        self._next_pause = _FIRST_PAUSE_SECONDS

    async def decided(self) -> Errors:
        """Repeat the request until it is decided or times out. Await nothing after the last check of the guards."""
        loop = asyncio.get_running_loop()
        started = loop.time()
        while True:
            attempt, sent = self._begun or self._begin()
            if sent is None:
                return self._request.client_errors(attempt.errors)
            results = await sent.result()
            pause = self._pause(results, sent, loop.time() - started)
            if pause is None:
                return self._request.client_errors(attempt.final_errors(results))
            await asyncio.sleep(pause)
            self._begun = None

    def _begin(self) -> "tuple[_Attempt, SentVerification | None]":
        """Read the producer state again, and send a verification request if a batch still needs one."""
        attempt = _Attempt(self._replicas, self._request)
        return attempt, self._coordinators.add_or_verify(attempt.verification_request) if attempt.guards else None

    def _pause(self, results: PartitionErrors, sent: SentVerification, waited: float) -> float | None:
        """Return the seconds until the next attempt; None if these results are final."""
        request = self._request
        if request.operation.adds_partitions and ErrorCode.CONCURRENT_TRANSACTIONS in results.values():
            if waited >= self._longest_retry:
                return None
            if sent.is_here and sent.seconds >= _FIRST_PAUSE_SECONDS:
                return 0  # The coordinator has waited itself.
            pause = min(self._next_pause, self._settings.retry_backoff_ms / 1000)
            self._next_pause = 2 * pause
            return pause
        if UNDECIDED.isdisjoint(results.values()) or waited >= request.wait_seconds:
            return None
        pause = self._next_pause
        self._next_pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)
        return pause


class _Attempt:
    """The batches of a request by their present producer state: refused, already verified, or to be verified."""

    __slots__ = ("_adds_partitions", "_open", "_replicas", "_transactional_id", "errors", "guards")

    def __init__(self, replicas: ReplicaManager, request: _Request) -> None:
        self._replicas = replicas
        self._transactional_id = request.transactional_id
        self._adds_partitions = request.operation.adds_partitions
        self.errors: Errors = {}
        """Of batches that are refused without a verification request: fenced, or their partition is not led here."""
        self.guards: dict[_Batch, VerificationStateEntry] = {}
        self._open: list[_Batch] = []
        """Batches whose transaction is open on their partition."""
        for batch in request.batches:
            self._start(batch)

    def _start(self, batch: _Batch) -> None:
        state = self._state(batch)
        if isinstance(state, ErrorCode):
            self.errors[batch.partition] = state
            return
        partition, (producer_id, epoch), base_sequence = batch
        guard = state.start_verification(producer_id, epoch, base_sequence, adds_partitions=self._adds_partitions)
        if guard is None:
            self._open.append(batch)
        elif isinstance(guard, ErrorCode):
            self.errors[partition] = guard
        else:
            self.guards[batch] = guard

    def _state(self, batch: _Batch) -> ProducerStateManager | ErrorCode:
        partition = self._replicas.led_partition(batch.partition)
        if isinstance(partition, ErrorCode):
            return partition
        return partition.log.producer_state

    @property
    def verification_request(self) -> VerificationRequest:
        producer = next(iter(self.guards)).producer
        partitions = frozenset(batch.partition for batch in self.guards)
        return VerificationRequest(self._transactional_id, producer, partitions, self._adds_partitions)

    def final_errors(self, results: PartitionErrors) -> Errors:
        """Return the errors of batches that must not be appended, by the results and the present producer state."""
        errors = self.errors
        for batch in self._open:
            self._check(batch, None)
        for batch, guard in self.guards.items():
            error = results[batch.partition]
            if error:
                errors[batch.partition] = error
                if error in _OF_NO_TRANSACTION:  # Its client does not send it again: it may be late.
                    guard.withdraw(batch.base_sequence)
            else:
                self._check(batch, guard)
        return errors

    def _check(self, batch: _Batch, guard: VerificationStateEntry | None) -> None:
        state = self._state(batch)
        error = state if isinstance(state, ErrorCode) else state.check_verified(*batch.producer, guard)
        if error:
            self.errors[batch.partition] = error


def _batch(topic: str, index: int, producer: tuple[int, int, int]) -> _Batch:
    producer_id, epoch, sequence = producer
    return _Batch(TopicPartition(topic, index), ProducerIdAndEpoch(producer_id, epoch), sequence)
