"""The transactions and sequences of one producer: what the application's calls and the fates of batches change. Pure.

One object holds the state of the producer (``ProducerState``), its transaction (``OpenTransaction``), the numbering of
its batches (``ProducerSequences``) and the requests that coordinators have to be sent (``PendingRequests``).
``CoordinatorRequests`` chooses among these and applies responses. It follows Kafka's ``TransactionManager`` (KIP-98,
KIP-360, KIP-890), and differs where that is not safe or leaves a producer stuck:

* A batch that may be in the log is never numbered anew, because that could write it twice: it fails instead. Numbering
  begins anew only when none of the partition's batches waits for a response.
* At most five batches of a partition are in flight at a time, over all connections, since brokers remember five; and
  only one until the first is acknowledged, since a broker that does not know a producer accepts any sequence.
* A failed batch ends its transaction, and the next one has another epoch; so batches that follow it in its partition
  are not numbered anew to be written into a transaction that will be aborted.
* An abort does not wait for offsets that cannot be committed, nor for partitions that cannot be added.
* The epoch is bumped at the end of a version 1 transaction when the cluster has finalised version 2 by then.

**Protocol versions.** In version 1 a partition is added to a transaction by a request, and one epoch serves for many
transactions. In version 2 writing adds the partition, and each end bumps the epoch, so that no late request can become
part of another transaction. The cluster's finalised ``transaction.version`` decides, at the first InitProducerId and at
each end of a transaction; never within one.
"""

from collections.abc import Mapping
from typing import Final

from oncelog.clients.errors import (
    ClientError,
    FatalProducerError,
    IllegalState,
    ProducerFenced,
    TransactionAborted,
    VersionNotSupported,
)
from oncelog.clients.group_metadata import ConsumerGroupMetadata
from oncelog.clients.negotiation import NO_FEATURES, FinalizedFeatures
from oncelog.clients.offset_and_metadata import OffsetAndMetadata
from oncelog.clients.producer.open_transaction import OpenTransaction
from oncelog.clients.producer.pending_requests import PendingRequest, PendingRequests
from oncelog.clients.producer.producer_batch import ProducerBatch
from oncelog.clients.producer.producer_config import ProducerConfig, TransactionProtocol
from oncelog.clients.producer.producer_id_and_epoch import NO_PRODUCER, ProducerIdAndEpoch
from oncelog.clients.producer.producer_sequences import ProducerSequences
from oncelog.clients.producer.producer_state import ProducerState, State, caused
from oncelog.clients.producer.refusal_causes import RefusalCauses
from oncelog.clients.producer.transaction_requests import (
    AddOffsetsToTxn,
    EndTxn,
    InitProducerId,
    TransactionalProducer,
    TxnOffsetCommit,
)
from oncelog.clients.producer.transactional_calls import INITIALIZE, TransactionalCalls
from oncelog.clients.producer.transactional_result import TransactionalResult
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.topic_partition import TopicPartition

FATAL_TO_PRODUCE: Final = frozenset(
    {
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.UNSUPPORTED_VERSION,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    }
)
"""Errors of a batch that end the producer; every other one ends at most the transaction."""

MAYBE_WRITTEN: Final = frozenset(
    {
        ErrorCode.NETWORK_EXCEPTION,  # No response at all.
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,  # It was the leader when it appended (KAFKA-13574).
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    }
)
"""Errors of a batch that may have been appended all the same."""


class TransactionManager:
    """The transactions of one producer."""

    def __init__(self, config: ProducerConfig) -> None:
        self.transactional_id = config.transactional_id
        self.is_transactional = config.transactional_id is not None
        self.is_idempotent = config.enable_idempotence
        self.causes = RefusalCauses(config)
        self.state = ProducerState(is_transactional=self.is_transactional)
        self.sequences = ProducerSequences(config)
        self.transaction = OpenTransaction()
        self.requests = PendingRequests()
        self.calls = TransactionalCalls()
        self.protocol = 1
        """The version of the transaction protocol that the current transaction follows."""
        self.features: FinalizedFeatures = NO_FEATURES
        """The newest finalised features that brokers have reported; the sender keeps them current."""
        self.can_bump_epoch = False
        """Whether the transaction coordinator bumps epochs for a client (InitProducerId 3, KIP-360)."""
        self.refusal: ClientError | None = None
        """Why no producer id was given, until ``BatchDelivery`` has failed the records that wait for one."""
        self._wanted_protocol: TransactionProtocol = config.transaction_protocol
        self._transaction_timeout_ms = config.transaction_timeout_ms
        self._offset_calls = 0

    # The application's calls

    def initialize(self) -> TransactionalResult:
        """Get a producer id for the transactional id, which ends the transaction that is open under it."""
        self._require_transactional()
        repeated = self.calls.repeated(INITIALIZE)
        if repeated is not None:
            return repeated
        self.state.require_no_error()
        self.state.move(State.INITIALIZING, INITIALIZE)
        result = self.calls.begin(INITIALIZE)
        self.request_producer_id(result)
        return result

    def begin(self) -> None:
        """Begin a transaction. Raises ``IllegalState`` unless the last one has ended."""
        self._require_transactional()
        self.calls.require_acknowledged("begin_transaction")
        self.state.require_no_error()
        self.state.move(State.IN_TRANSACTION, "begin_transaction")

    def commit(self) -> TransactionalResult:
        """Commit, once every record and offset of the transaction is written."""
        self._require_transactional()
        repeated = self.calls.repeated("commit_transaction")
        if repeated is not None:
            return repeated
        self.state.require_no_error()
        self.state.move(State.COMMITTING_TRANSACTION, "commit_transaction")
        result = self.calls.begin("commit_transaction")
        self.requests.add(PendingRequest(EndTxn(producer=self.transactional_producer, commit=True), result))
        return result

    def abort(self) -> TransactionalResult:
        """Abort. Records that were not sent yet are not sent."""
        self._require_transactional()
        repeated = self.calls.repeated("abort_transaction")
        if repeated is not None:
            return repeated
        if self.state.current is State.FATAL_ERROR:
            self.state.require_no_error()
        self.state.move(State.ABORTING_TRANSACTION, "abort_transaction")
        result = self.calls.begin("abort_transaction")
        self.transaction.forget_new_partitions()
        for pending in list(self.requests):
            if pending.may_be_dropped(can_bump_epoch=self.can_bump_epoch):
                self.requests.remove(pending)
                self.drop(pending, TransactionAborted("the transaction was aborted"))
        self.requests.add(PendingRequest(EndTxn(producer=self.transactional_producer, commit=False), result))
        return result

    def send_offsets(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: ConsumerGroupMetadata
    ) -> TransactionalResult:
        """Commit a group's offsets with the transaction."""
        self._require_transactional()
        self.calls.require_acknowledged("send_offsets_to_transaction")
        self.state.require_no_error()
        if self.state.current is not State.IN_TRANSACTION:
            raise IllegalState(f"there is no transaction to send offsets to: {self.state.what_to_call}")
        kind: type[TxnOffsetCommit] | type[AddOffsetsToTxn] = AddOffsetsToTxn
        if self.protocol == 2:
            self.transaction.is_started = True
            kind = TxnOffsetCommit
        self._offset_calls += 1
        request = kind(
            producer=self.transactional_producer, offsets=dict(offsets), group=group, call=self._offset_calls
        )
        result = TransactionalResult("send_offsets_to_transaction")
        self.requests.add(PendingRequest(request, result))
        return result

    def add_partition(self, topic_partition: TopicPartition) -> None:
        """Make a partition part of the transaction, because a record for it is about to be accepted."""
        if self.is_transactional and topic_partition not in self.transaction.partitions:
            self.transaction.write_to(topic_partition, self.protocol)

    def _require_transactional(self) -> None:
        if not self.is_transactional:
            raise IllegalState("the producer has no transactional_id")

    # Requests to coordinators

    @property
    def transactional_producer(self) -> TransactionalProducer:
        """The producer as the requests of the current transaction name it."""
        assert self.transactional_id is not None
        return TransactionalProducer(self.transactional_id, self.producer, self.protocol)

    def request_producer_id(self, result: TransactionalResult, bumped: ProducerIdAndEpoch = NO_PRODUCER) -> None:
        """Request a producer id, or the next epoch of ``bumped``."""
        request = InitProducerId(
            transactional_id=self.transactional_id,
            transaction_timeout_ms=self._transaction_timeout_ms,
            bumped=bumped,
        )
        self.requests.add(PendingRequest(request, result))

    def drop(self, pending: PendingRequest, error: ClientError) -> None:
        """Fail a request that will not be sent again."""
        self.transaction.needs_epoch_bump |= pending.request.begins_transaction and pending.maybe_applied
        pending.result.fail(error)

    def fail_requests(self, error: ClientError) -> None:
        """Fail every result that is not done; no request is sent any more."""
        self.requests.fail_all(error)
        self.calls.fail(error)

    # The outcomes of requests

    def initialized(self, producer: ProducerIdAndEpoch, result: TransactionalResult) -> None:
        """Take over a producer id, or a new epoch."""
        if self._fails_late(result):
            return
        if self._wanted_protocol == "2" and self.features.transaction_version < 2:
            missing = "transaction_protocol is 2, and the cluster has not finalised transaction.version 2"
            self.refuse(VersionNotSupported(missing))
            result.fail(VersionNotSupported(missing))
            return
        self.protocol = _protocol(self._wanted_protocol, self.features)
        self.sequences.producer = producer
        if self.is_transactional:
            self.sequences.clear()
        self.state.move(State.READY, "a producer id")
        result.succeed()

    def ended(self, producer: ProducerIdAndEpoch, result: TransactionalResult) -> None:
        """End the transaction. ``producer`` is that of the next one; ``NO_PRODUCER`` if it stays the same."""
        if self._fails_late(result):
            return
        if producer.is_valid:
            self.sequences.producer = producer
            self.sequences.clear()
        former, self.protocol = self.protocol, _protocol(self._wanted_protocol, self.features)
        needs_epoch_bump = self.transaction.needs_epoch_bump or former < self.protocol
        self.transaction = OpenTransaction()
        if needs_epoch_bump:
            self.state.move(State.INITIALIZING, "the end of a transaction")
            self.request_producer_id(result, self.producer)
        else:
            self.state.move(State.READY, "the end of a transaction")
            result.succeed()

    def _fails_late(self, result: TransactionalResult) -> bool:
        """Return whether an error came before the response; then fail its result."""
        error = self.state.error()
        if error is not None:
            result.fail(error)
        return error is not None

    def refuse(self, error: ClientError) -> None:
        """Go back to having no producer id; the same call may be repeated."""
        self.state.move(State.UNINITIALIZED, "a refusal")
        self.refusal = error

    def fail_transaction(self, error: ClientError, *, needs_epoch_bump: bool = False) -> None:
        """Require that the transaction is aborted; with ``needs_epoch_bump``, continue under another epoch after it."""
        if needs_epoch_bump and self.protocol == 1:
            if not self.can_bump_epoch:
                self.fail_fatally(caused(FatalProducerError(f"it is not safe to go on: {error}"), error))
                return
            self.transaction.needs_epoch_bump = True
        if self.state.current in (State.IN_TRANSACTION, State.COMMITTING_TRANSACTION):
            self.state.move(State.ABORTABLE_ERROR, "an error")
            self.state.cause = error

    def fail_fatally(self, error: ClientError) -> None:
        """End the producer; the first fatal error stays."""
        if self.state.current is State.FATAL_ERROR:
            return
        self.state.move(State.FATAL_ERROR, "an error")
        self.state.cause = error
        final = self.state.error()
        assert final is not None
        self.fail_requests(final)

    # Batches

    @property
    def producer(self) -> ProducerIdAndEpoch:
        """The id and epoch that brokers know the producer by."""
        return self.sequences.producer

    def may_send(self, batch: ProducerBatch) -> bool:
        """Return whether the first batch in a partition's queue may be sent now."""
        if self.is_transactional and batch.topic_partition not in self.transaction.partitions:
            return False
        return self.sequences.may_send(batch)

    def can_retry(self, batch: ProducerBatch, error: ErrorCode, log_start_offset: int) -> bool:
        """Return whether a batch that failed with ``error`` is to be sent again."""
        doomed = self.state.current in (State.ABORTABLE_ERROR, State.ABORTING_TRANSACTION)
        if doomed and error not in MAYBE_WRITTEN:
            return False  # It is not in the log, and need not be.
        return self.sequences.can_retry(batch, error, log_start_offset)

    def failed(self, batch: ProducerBatch, code: ErrorCode, error: ClientError) -> None:
        """Give up a batch after an error. Whether its sequence was used may not be known."""
        self.sequences.remove(batch)
        if code == ErrorCode.PRODUCER_FENCED:
            self.fail_fatally(ProducerFenced(str(error)))
        elif code in FATAL_TO_PRODUCE:
            self.fail_fatally(caused(FatalProducerError(str(error)), error))
        elif self.is_transactional:
            self.fail_transaction(error, needs_epoch_bump=True)
        else:
            self.sequences.restart(batch)

    def expired(self, batch: ProducerBatch, error: ClientError) -> None:
        """Give up a batch whose delivery timed out."""
        self.sequences.remove(batch)
        if self.is_transactional:
            self.fail_transaction(error, needs_epoch_bump=batch.has_sequence)
        else:
            self.sequences.give_up(batch)

    def settle(self) -> list[ProducerBatch]:
        """Restart sequences where that is due and safe; return the batches that have to be given up for it."""
        doubtful = self.sequences.settle()
        if self.is_idempotent and self.state.current is State.READY and not self.producer.is_valid:
            self.state.move(State.UNINITIALIZED, "the last epoch")
        return doubtful


def _protocol(wanted: TransactionProtocol, features: FinalizedFeatures) -> int:
    """Return the version of the transaction protocol for the next transaction."""
    version = min(features.transaction_version, 2) if wanted == "auto" else int(wanted)
    return max(version, 1)
