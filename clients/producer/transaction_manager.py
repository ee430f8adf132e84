"""What a producer's transactions and sequences have come to, and what has to happen next. Pure: no socket, no clock.

One object knows the state of the producer (``NEXT_STATES`` is its table), the numbering of its batches
(``ProducerSequences``), and the requests that are to be made of coordinators. The sender asks it for the
next request, tells it every answer and every fate of a batch, and does what it says. It follows Kafka's
``TransactionManager`` (KIP-98, KIP-360, KIP-890), and differs where that is not safe or leaves a producer stuck:

* A batch that may be in the log is never numbered anew, because that could write it twice: it fails instead. Numbering
  begins anew only when none of the partition's batches waits for an answer.
* At most five batches of a partition are under way at a time, over all connections, since brokers remember five; and
  only one until the first is acknowledged, since a broker that knows nothing of a producer accepts any sequence.
* A failed batch ends its transaction, whose successor has another epoch; so what follows it in its partition is not
  numbered anew to be written into a transaction that will be aborted.
* An abort is not held up by offsets that cannot be committed, nor by partitions that cannot be added.
* The epoch is bumped at the end of a version 1 transaction when the cluster's features say 2 by then.

**Protocol versions.** In version 1 a partition is added to a transaction by a request, and one epoch serves for many
transactions. In version 2 writing adds the partition, and each end bumps the epoch, so that nothing that arrives late
can become part of another transaction. The cluster's finalised ``transaction.version`` decides, at the first
InitProducerId and at each end of a transaction; never within one.
"""

from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from typing import Final, TypeVar

from oncelog.clients.errors import (
    ClientError,
    FatalProducerError,
    IllegalState,
    ProducerFenced,
    TransactionAbortable,
    TransactionAborted,
    VersionNotSupported,
)
from oncelog.clients.group_metadata import ConsumerGroupMetadata
from oncelog.clients.negotiation import NO_FEATURES, FinalizedFeatures
from oncelog.clients.offset_and_metadata import OffsetAndMetadata
from oncelog.clients.producer.producer_batch import ProducerBatch
from oncelog.clients.producer.producer_config import ProducerConfig
from oncelog.clients.producer.producer_id_and_epoch import NO_PRODUCER, ProducerIdAndEpoch
from oncelog.clients.producer.producer_sequences import ProducerSequences
from oncelog.clients.producer.transaction_requests import (
    AddOffsetsToTxn,
    AddPartitionsToTxn,
    EndTxn,
    InitProducerId,
    TransactionRequest,
    TxnOffsetCommit,
)
from oncelog.clients.producer.transactional_result import TransactionalResult
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.topic_partition import TopicPartition

E = TypeVar("E", bound=ClientError)


class State(Enum):
    """Where a producer is; an idempotent one only knows the first three, and the last."""

    UNINITIALIZED = "it has no producer id"
    INITIALIZING = "it has asked for a producer id, or for its next epoch"
    READY = "a transaction may begin"
    IN_TRANSACTION = "records and offsets become part of the transaction"
    COMMITTING_TRANSACTION = "it commits once all is written"
    ABORTING_TRANSACTION = "it aborts once all that was sent is answered"
    ABORTABLE_ERROR = "the transaction cannot be committed any more"
    FATAL_ERROR = "the producer is of no more use"


_WHAT_TO_CALL: Final[Mapping[State, str]] = {
    State.UNINITIALIZED: "call init_transactions first",
    State.INITIALIZING: "init_transactions has not ended",
    State.READY: "call begin_transaction first",
    State.IN_TRANSACTION: "commit or abort the transaction first",
    State.COMMITTING_TRANSACTION: "commit_transaction has not ended",
    State.ABORTING_TRANSACTION: "abort_transaction has not ended",
    State.ABORTABLE_ERROR: "call abort_transaction first",
    State.FATAL_ERROR: "begin anew with another producer",
}
"""What a caller does whose call is not possible in a state."""

NEXT_STATES: Final[Mapping[State, frozenset[State]]] = {
    State.UNINITIALIZED: frozenset({State.INITIALIZING, State.FATAL_ERROR}),
    State.INITIALIZING: frozenset({State.READY, State.UNINITIALIZED, State.FATAL_ERROR}),
    State.READY: frozenset({State.IN_TRANSACTION, State.UNINITIALIZED, State.FATAL_ERROR}),
    State.IN_TRANSACTION: frozenset(
        {State.COMMITTING_TRANSACTION, State.ABORTING_TRANSACTION, State.ABORTABLE_ERROR, State.FATAL_ERROR}
    ),
    State.COMMITTING_TRANSACTION: frozenset(
        {State.READY, State.INITIALIZING, State.ABORTABLE_ERROR, State.FATAL_ERROR}
    ),
    State.ABORTING_TRANSACTION: frozenset({State.READY, State.INITIALIZING, State.FATAL_ERROR}),
    State.ABORTABLE_ERROR: frozenset({State.ABORTING_TRANSACTION, State.FATAL_ERROR}),
    State.FATAL_ERROR: frozenset(),
}

FATAL_TO_PRODUCE: Final = frozenset(
    {
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.UNSUPPORTED_VERSION,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    }
)
"""What ends the producer when it is the answer to a batch; everything else ends at most the transaction."""

MAYBE_WRITTEN: Final = frozenset(
    {
        ErrorCode.NETWORK_EXCEPTION,  # No answer at all.
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,  # It was the leader when it appended (KAFKA-13574).
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    }
)
"""Answers to a batch that do not exclude that it was appended."""


class TransactionManager:
    """The state of one producer."""

    def __init__(self, config: ProducerConfig) -> None:
        self.transactional_id = config.transactional_id
        self.transaction_timeout_ms = config.transaction_timeout_ms
        self.is_idempotent = config.enable_idempotence
        self.state = State.UNINITIALIZED
        self.accepts_records = self.transactional_id is None
        """Whether a record may be sent now."""
        self.sequences = ProducerSequences(config)
        self.protocol = 1
        """The version of the transaction protocol that the present transaction follows."""
        self.features: FinalizedFeatures = NO_FEATURES
        """The newest that is known of the cluster; whoever speaks to brokers keeps it so."""
        self.can_bump_epoch = False
        """Whether the coordinator bumps epochs for a client (InitProducerId 3, KIP-360)."""
        self.error: ClientError | None = None
        """Why the state is one of the two error states."""
        self.refusal: ClientError | None = None
        """Why there is no producer id, for the records that wait for one; whoever tells them clears it."""
        self._wanted_protocol = config.transaction_protocol
        self._queue: list[TransactionRequest] = []
        self._pending: tuple[State, TransactionalResult] | None = None
        """The latest change of state that somebody waits for."""
        self._calls = 0
        """Of ``send_offsets``."""
        self._needs_bump = False
        self._is_started = False
        """Whether the coordinator may know of the transaction, so that it has to be ended there."""
        self._new_partitions: set[TopicPartition] = set()
        self._adding_partitions: frozenset[TopicPartition] = frozenset()
        self._partitions: set[TopicPartition] = set()

    # What the application asks for

    @property
    def is_transactional(self) -> bool:
        return self.transactional_id is not None

    def initialize(self) -> TransactionalResult:
        """Get a producer id for the transactional id, which ends whatever was open under it."""
        return self._begin(State.INITIALIZING, "init_transactions", self._initialize)

    def begin(self) -> None:
        """Begin a transaction. Raises ``IllegalState`` unless the last one has ended."""
        self._require_transactional()
        self._require_nothing_pending("begin_transaction")
        self.require_no_error()
        self._move(State.IN_TRANSACTION, "begin_transaction")

    def commit(self) -> TransactionalResult:
        """Commit, once every record and offset of the transaction is written."""
        return self._begin(State.COMMITTING_TRANSACTION, "commit_transaction", self._commit)

    def abort(self) -> TransactionalResult:
        """Abort. Records that were not sent yet are not sent."""
        return self._begin(State.ABORTING_TRANSACTION, "abort_transaction", self._abort)

    def send_offsets(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: ConsumerGroupMetadata
    ) -> TransactionalResult:
        """Commit a group's offsets with the transaction."""
        self._require_transactional()
        self._require_nothing_pending("send_offsets_to_transaction")
        self.require_no_error()
        if self.state is not State.IN_TRANSACTION:
            raise IllegalState(f"there is no transaction to send offsets to: {_WHAT_TO_CALL[self.state]}")
        result = TransactionalResult("send_offsets_to_transaction")
        if self.protocol == 2:
            self._is_started = True
        kind = TxnOffsetCommit if self.protocol == 2 else AddOffsetsToTxn
        request = kind(self, result, offsets, group)
        self._calls += 1
        request.call = self._calls
        self._enqueue(request)
        return result

    def add_partition(self, topic_partition: TopicPartition) -> None:
        """A record for a partition is about to be accepted."""
        if not self.is_transactional or topic_partition in self._partitions:
            return
        if self.protocol == 2:
            self._partitions.add(topic_partition)
            self._is_started = True
        elif topic_partition not in self._adding_partitions:
            self._new_partitions.add(topic_partition)

    def require_records_accepted(self) -> None:
        """Raises why no record may be sent now."""
        self.require_no_error()
        if not self.accepts_records:
            raise IllegalState(f"no record can be sent outside of a transaction: {_WHAT_TO_CALL[self.state]}")

    def require_no_error(self) -> None:
        """Raises the error of an error state: fatal ones as such, others as ``TransactionAbortable``."""
        error = self.current_error()
        if error is not None:
            raise error from self.error

    def current_error(self) -> ClientError | None:
        """What everybody gets who wants something of the producer in an error state."""
        if self.state is State.ABORTABLE_ERROR:
            return _caused(TransactionAbortable(f"the transaction must be aborted: {self.error}"), self.error)
        if self.state is not State.FATAL_ERROR:
            return None
        kind = type(self.error) if isinstance(self.error, FatalProducerError) else FatalProducerError
        return _caused(kind(f"the producer cannot go on: {self.error}"), self.error)

    def _begin(self, state: State, operation: str, begin: Callable[[TransactionalResult], None]) -> TransactionalResult:
        """Begin a change of state, or find the one that is under way and that its caller gave up waiting for."""
        self._require_transactional()
        if self._pending is not None:
            pending_state, result = self._pending
            if not result.is_acknowledged and pending_state is state:
                return result
            self._require_nothing_pending(operation)
        result = TransactionalResult(operation)
        begin(result)
        self._pending = (state, result)
        return result

    def _initialize(self, result: TransactionalResult) -> None:
        self.require_no_error()
        self._move(State.INITIALIZING, result.operation)
        self._enqueue(InitProducerId(self, result))

    def _commit(self, result: TransactionalResult) -> None:
        self.require_no_error()
        self._move(State.COMMITTING_TRANSACTION, result.operation)
        self._enqueue(EndTxn(self, result, commit=True))

    def _abort(self, result: TransactionalResult) -> None:
        if self.state is State.FATAL_ERROR:
            self.require_no_error()
        self._move(State.ABORTING_TRANSACTION, result.operation)
        self._new_partitions.clear()
        for request in [each for each in self._queue if self._may_drop(each)]:
            self._queue.remove(request)
            self._drop(request, TransactionAborted("the transaction was aborted"))
        self._enqueue(EndTxn(self, result, commit=False))

    def _require_transactional(self) -> None:
        if not self.is_transactional:
            raise IllegalState("the producer has no transactional_id")

    def _require_nothing_pending(self, operation: str) -> None:
        if self._pending is None:
            return
        result = self._pending[1]
        if not result.is_acknowledged:
            raise IllegalState(f"{operation} must wait: {result.operation} timed out and has to be called again")
        self._pending = None

    # Requests

    def next_request(self, *, has_incomplete: bool) -> TransactionRequest | None:
        """The request to send now; None if there is none. ``has_incomplete``: batches are not done."""
        self._enqueue_what_is_due(has_incomplete)
        while self._queue:
            request = self._queue[0]
            if isinstance(request, EndTxn) and has_incomplete and self.current_error() is None:
                return None
            self._queue.pop(0)
            if self._ends_without_being_sent(request):
                continue
            request.attempts += 1
            return request
        return None

    def _enqueue_what_is_due(self, has_incomplete: bool) -> None:
        if self._new_partitions and self.state in (State.IN_TRANSACTION, State.COMMITTING_TRANSACTION):
            self._adding_partitions = frozenset(self._new_partitions)
            self._new_partitions.clear()
            result = TransactionalResult("adding partitions")
            self._enqueue(AddPartitionsToTxn(self, result, self._adding_partitions))
        if self.is_idempotent and not self.is_transactional and self.state is State.UNINITIALIZED and has_incomplete:
            self._move(State.INITIALIZING, "the first record")
            self._enqueue(InitProducerId(self, TransactionalResult("getting a producer id")))

    def _ends_without_being_sent(self, request: TransactionRequest) -> bool:
        error = self.current_error()
        if error is not None and (self.state is State.FATAL_ERROR or not self._has_to_be_answered(request)):
            self._drop(request, error)
            return True
        if isinstance(request, EndTxn) and not self._is_started:
            self.ended(NO_PRODUCER, request.result)
            return True
        return False

    def _has_to_be_answered(self, request: TransactionRequest) -> bool:
        """Whether it may have begun the transaction at the coordinator, and the abort has to know that."""
        in_doubt = request.is_undecided or (request.maybe_applied and not self.can_bump_epoch)
        return request.begins_transaction and in_doubt

    def _may_drop(self, request: TransactionRequest) -> bool:
        """Whether an abort can do without its outcome."""
        if request.begins_transaction:
            return not self._has_to_be_answered(request)
        return request.may_be_dropped or not request.attempts

    def _drop(self, request: TransactionRequest, error: ClientError) -> None:
        self._needs_bump |= request.begins_transaction and request.maybe_applied
        request.result.fail(error)

    @property
    def pending_result(self) -> TransactionalResult | None:
        """The change of state that is under way."""
        return None if self._pending is None or self._pending[1].is_done else self._pending[1]

    def repeat(self, request: TransactionRequest) -> None:
        """Put a request that was not carried out, as far as is known, back in its place."""
        if self.state is State.ABORTING_TRANSACTION and self._may_drop(request):
            self._drop(request, TransactionAborted("the transaction was aborted"))
        else:
            self._enqueue(request)

    def _enqueue(self, request: TransactionRequest) -> None:
        """Behind all of its priority, but for those that it precedes."""
        behind = (i for i, each in enumerate(self._queue) if each.priority > request.priority or request.precedes(each))
        self._queue.insert(next(behind, len(self._queue)), request)

    def fail_requests(self, error: ClientError) -> None:
        """Nothing more will be asked: whoever waits is told."""
        for request in self._queue:
            request.result.fail(error)
        self._queue.clear()
        if self._pending is not None:
            self._pending[1].fail(error)

    # What answers mean

    def initialized(self, producer: ProducerIdAndEpoch, result: TransactionalResult) -> None:
        """There is a producer id, or a new epoch."""
        if self._is_too_late(result):
            return
        if self._wanted_protocol == "2" and self.features.transaction_version < 2:
            missing = "transaction_protocol is 2, and the cluster has not finalised transaction.version 2"
            self.refuse(VersionNotSupported(missing))
            result.fail(VersionNotSupported(missing))
            return
        self._adopt_protocol()
        self.sequences.producer = producer
        if self.is_transactional:
            self.sequences.clear()
        self._move(State.READY, "a producer id")
        result.succeed()

    def partitions_added(self, partitions: Iterable[TopicPartition]) -> None:
        """The coordinator has the partitions in the transaction."""
        self._adding_partitions = frozenset()
        self._partitions.update(partitions)
        self._is_started = True

    def offsets_added(self, commit: TxnOffsetCommit) -> None:
        """The coordinator has the group in the transaction; its offsets follow."""
        self._is_started = True
        self.repeat(commit)

    def ended(self, producer: ProducerIdAndEpoch, result: TransactionalResult) -> None:
        """The transaction is over; ``producer`` is who the next one is of, ``NO_PRODUCER`` if that was not said."""
        if self._is_too_late(result):
            return
        if producer.is_valid:
            self.sequences.producer = producer
            self.sequences.clear()
        was = self.protocol
        self._adopt_protocol()
        needs_bump = self._needs_bump or was < self.protocol
        self._needs_bump = self._is_started = False
        self._new_partitions.clear()
        self._adding_partitions = frozenset()
        self._partitions.clear()
        if needs_bump:
            self._move(State.INITIALIZING, "the end of a transaction")
            self._enqueue(InitProducerId(self, result, self.producer))
        else:
            self._move(State.READY, "the end of a transaction")
            result.succeed()

    def _is_too_late(self, result: TransactionalResult) -> bool:
        error = self.current_error()
        if error is not None:
            result.fail(error)
        return error is not None

    def _adopt_protocol(self) -> None:
        wanted = self._wanted_protocol
        self.protocol = min(self.features.transaction_version, 2) if wanted == "auto" else int(wanted)
        self.protocol = max(self.protocol, 1)

    def refuse(self, error: ClientError) -> None:
        """There is no producer id, but the same may be asked again."""
        self._move(State.UNINITIALIZED, "a refusal")
        self.refusal = error

    def fail_transaction(self, error: ClientError, *, needs_bump: bool = False) -> None:
        """The transaction must be aborted; with ``needs_bump``, under another epoch afterwards."""
        if needs_bump and self.protocol == 1:
            if not self.can_bump_epoch:
                self.fail_fatally(_caused(FatalProducerError(f"it is not safe to go on: {error}"), error))
                return
            self._needs_bump = True
        if self.state in (State.IN_TRANSACTION, State.COMMITTING_TRANSACTION):
            self._move(State.ABORTABLE_ERROR, "an error")
            self.error = error

    def fail_fatally(self, error: ClientError) -> None:
        """The producer is of no more use."""
        if self.state is State.FATAL_ERROR:
            return
        self._move(State.FATAL_ERROR, "an error")
        self.error = error
        final = self.current_error()
        assert final is not None
        self.fail_requests(final)

    # Batches

    @property
    def producer(self) -> ProducerIdAndEpoch:
        """Who the producer is to brokers."""
        return self.sequences.producer

    def may_send(self, batch: ProducerBatch) -> bool:
        """Whether the first batch in a partition's queue may leave now."""
        if self.is_transactional and batch.topic_partition not in self._partitions:
            return False
        return self.sequences.may_send(batch)

    def can_retry(self, batch: ProducerBatch, error: ErrorCode, log_start_offset: int) -> bool:
        """Whether a batch that was refused is to be sent again."""
        doomed = self.state in (State.ABORTABLE_ERROR, State.ABORTING_TRANSACTION)
        if doomed and error not in MAYBE_WRITTEN:
            return False  # It is not in the log, and need not be.
        return self.sequences.can_retry(batch, error, log_start_offset)

    def failed(self, batch: ProducerBatch, code: ErrorCode, error: ClientError) -> None:
        """A batch that was refused is given up. Its sequence was not used, or nobody can tell any more."""
        self.sequences.remove(batch)
        if code == ErrorCode.PRODUCER_FENCED:
            self.fail_fatally(ProducerFenced(str(error)))
        elif code in FATAL_TO_PRODUCE:
            self.fail_fatally(_caused(FatalProducerError(str(error)), error))
        elif self.is_transactional:
            self.fail_transaction(error, needs_bump=True)
        else:
            self.sequences.restart(batch)

    def expired(self, batch: ProducerBatch, error: ClientError) -> None:
        """A batch ran out of time."""
        self.sequences.remove(batch)
        if self.is_transactional:
            self.fail_transaction(error, needs_bump=batch.has_sequence)
        else:
            self.sequences.doubt(batch)

    def settle(self) -> list[ProducerBatch]:
        """Begin numbering anew where that is due and safe; return the batches that are given up for it."""
        doubtful = self.sequences.settle()
        if self.is_idempotent and self.state is State.READY and not self.producer.is_valid:
            self._move(State.UNINITIALIZED, "the last epoch")
        return doubtful

    # States

    def _move(self, state: State, cause: str) -> None:
        if state not in NEXT_STATES[self.state]:
            has_begun = state is State.INITIALIZING and self.state is State.READY
            what = "it is called once, before the first transaction" if has_begun else _WHAT_TO_CALL[self.state]
            raise IllegalState(f"{cause} is not possible now: {what} ({self.state.name} to {state.name})")
        self.state = state
        self.error = None
        self.accepts_records = state is State.IN_TRANSACTION or (
            not self.is_transactional and state is not State.FATAL_ERROR
        )


def _caused(error: E, cause: ClientError | None) -> E:
    error.__cause__ = cause
    return error
