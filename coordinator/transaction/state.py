"""The state machine of a transactional id: what each request does in each state. Pure: no clock, log or loop.

*Decide → append → apply.* The ``decide_…`` functions look at a ``Transaction`` and a request and return a
``Transition``, or the ``ErrorCode`` of the response where there is none; they change nothing. The caller sets
``pending`` in the same step, appends the transition to the transaction log, and applies it when the log's high
watermark has passed the record. Until then the id is busy: requests get CONCURRENT_TRANSACTIONS.

A transition is simply the ``TransactionMetadata`` that it leads to; the log holds exactly that, once per transition.
Because nothing changes before the record is durable, a failed append needs no repair: deciding again gives the same
result, and in particular a fence that could not be written does not bump the epoch twice. (Apache Kafka bumps in memory
first and keeps a mark, ``hasFailedEpochFence``, to undo it; there is nothing to mark here.)

Two protocols (KIP-890). In version 1 every EndTxn keeps the epoch, so "the same epoch and the same result" is what
tells a retry, and nothing tells a late request of the transaction before. In version 2 every end bumps the epoch in the
record that decides it: a retry has the epoch before the present one, and a late request has one that fences it. A
client's protocol follows from the version of its request; what the coordinator ends by itself, it ends by the finalised
level of ``transaction.version``. Version 2 also lets a producer abort without a transaction, because it may not know
whether its first batch has opened one.

Fencing. An ongoing transaction that the coordinator itself aborts, because it timed out or because a new incarnation of
the producer calls InitProducerId, passes through PrepareEpochFence: the epoch is bumped in the *same record* that
aborts, so that no crash can separate the two; and once, in version 2 too. The markers carry the bumped epoch to every
partition.

Epochs. A live producer never has an epoch above ``LAST_LIVE_EPOCH``; the one above it exists only to fence a producer
that has the last one. An exhausted id gets a new producer id with epoch 0: from its next InitProducerId in version 1;
in version 2 from the end of the transaction, where Prepare* sets the id aside (``next_producer_id``) and Complete*
changes over to it. Both ids are in the log, so a retry is recognised after a failover too.
"""

from collections.abc import Callable
from enum import Enum, auto
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

from oncelog.coordinator.ports import NEVER, NO_OFFSET
from oncelog.coordinator.transaction.transaction_state import (
    COMPLETE_STATES,
    EXPIRING_STATES,
    PREPARED_STATES,
    TRANSITIONS,
    TransactionState,
)
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.topic_partition import TopicPartition

NO_PRODUCER_ID: Final = -1
NO_PRODUCER_EPOCH: Final = -1
NO_TIMESTAMP: Final = -1
MAX_EPOCH: Final = 32_767
LAST_LIVE_EPOCH: Final = MAX_EPOCH - 1
EPOCH_BUMP_VERSION: Final = 2
"""The transaction version from which on every end of a transaction bumps the epoch (KIP-890 part 2)."""
NO_PARTITIONS: Final[frozenset[TopicPartition]] = frozenset()


class ProducerIdAndEpoch(NamedTuple):
    """The identity that a producer sends with each request."""

    id: int
    epoch: int


NO_PRODUCER: Final = ProducerIdAndEpoch(NO_PRODUCER_ID, NO_PRODUCER_EPOCH)


class TransactionMetadata(NamedTuple):
    """A transactional id at one point of its log. A tuple, because each transaction copies it three times."""

    producer_id: int
    producer_epoch: int
    timeout_ms: int
    state: TransactionState
    partitions: frozenset[TopicPartition]
    """Those that have, or may have, records of this transaction; kept until it is complete on all of them."""
    start_ms: int
    last_update_ms: int
    previous_producer_id: int = NO_PRODUCER_ID
    """The producer id before this transition. Version 0 of the log's values has neither this nor what follows."""
    next_producer_id: int = NO_PRODUCER_ID
    """In Prepare*, if this end exhausts the epochs: the producer id that Complete* changes over to."""
    client_transaction_version: int = 0
    """Which protocol the last partitions were added by, or the transaction was ended by."""
    cause: str | None = None
    """Why this transition bumped the epoch or ended the transaction, if its producer did not ask for it."""
    last_producer_epoch: int = NO_PRODUCER_EPOCH
    """The epoch before the last bump, if its producer knew it (KIP-360). In memory only: lost by a reload."""

    @property
    def producer(self) -> ProducerIdAndEpoch:
        return ProducerIdAndEpoch(self.producer_id, self.producer_epoch)

    @property
    def is_epoch_exhausted(self) -> bool:
        return self.producer_epoch >= LAST_LIVE_EPOCH

    @property
    def exists_in_log(self) -> bool:
        """Return whether a record of the id is durable: not while its first one is being written."""
        return self.producer_epoch != NO_PRODUCER_EPOCH


Transition: TypeAlias = TransactionMetadata
"""What the next record of the log will say, if it is appended."""


class Missing(Enum):
    """What a request lacks to be decided."""

    PRODUCER_ID = auto()


_D = TypeVar("_D")


def decide_with_producer_id(decide: Callable[[int], _D], at_hand: int, next_nowait: Callable[[], int | None]) -> _D:
    """Decide with the producer id at hand, if any, or with the next one if one is missing."""
    decision = decide(at_hand)
    if decision is not Missing.PRODUCER_ID:
        return decision
    producer_id = next_nowait()
    return decision if producer_id is None else decide(producer_id)


class Transaction:
    """A transactional id in memory: what is durable, and what is on its way to be."""

    __slots__ = ("acted_at", "last_offset", "metadata", "pending", "transactional_id", "unknown_since_ms", "waiters")

    def __init__(self, transactional_id: str, metadata: TransactionMetadata) -> None:
        self.transactional_id = transactional_id
        self.metadata = metadata
        self.pending: Transition | None = None
        """Set from the decision until it is applied, or until its record was refused by the log."""
        self.waiters: dict[Callable[[], None], None] = {}
        """Called when nothing is pending any more."""
        self.last_offset = NO_OFFSET
        """Of its last record in the log."""
        self.acted_at = NEVER
        """When a request of a client last changed it, by the loop's clock; ``NEVER``: not since it was loaded."""
        self.unknown_since_ms = NO_TIMESTAMP
        """When its producer first added a partition that does not exist, if no transition has begun since."""

    def __repr__(self) -> str:
        pending = "" if self.pending is None else f" → {self.pending.state.label}"
        return f"<{self.transactional_id!r} {self.metadata.state.label}{pending} {self.metadata.producer}>"

    def begin(self, transition: Transition) -> None:
        """Set ``pending``: nothing else may be decided until the transition is applied or withdrawn."""
        assert self.pending is None, f"{self} cannot begin another transition"
        assert transition.state in TRANSITIONS[self.metadata.state], f"{self} cannot become {transition.state.label}"
        self.pending = transition
        self.unknown_since_ms = NO_TIMESTAMP

    def withdraw(self) -> None:
        """Clear ``pending``: the log refused the record, so nothing has happened."""
        self.pending = None

    def apply(self) -> TransactionMetadata:
        """Make a durable transition the metadata, and return that."""
        transition = self.pending
        assert transition is not None, f"{self} has nothing to apply"
        self.metadata = transition
        self.pending = None
        return transition

    def notify(self) -> None:
        """Wake the waiters if the id is idle: nothing is pending, and no completion is about to begin."""
        if self.waiters and self.pending is None and self.metadata.state not in PREPARED_STATES:
            waiters, self.waiters = self.waiters, {}
            for waiter in waiters:
                waiter()


def first_metadata(producer_id: int, timeout_ms: int, now_ms: int) -> TransactionMetadata:
    """Return the metadata of an id that the log does not know; its first InitProducerId leads to epoch 0."""
    return TransactionMetadata(
        producer_id=producer_id,
        producer_epoch=NO_PRODUCER_EPOCH,
        timeout_ms=timeout_ms,
        state=TransactionState.EMPTY,
        partitions=NO_PARTITIONS,
        start_ms=NO_TIMESTAMP,
        last_update_ms=now_ms,
    )


def decide_init_producer_id(
    txn: Transaction,
    timeout_ms: int,
    expected: ProducerIdAndEpoch | None,
    new_producer_id: int,
    now_ms: int,
    *,
    transaction_version: int = 0,
) -> Transition | ErrorCode | Missing:
    """Decide an InitProducerId; ``expected`` is what the producer believes to have (KIP-360), None for a new one.

    A transition to Empty is what the producer gets. One to PrepareAbort means that the transaction of a predecessor has
    to be aborted first, with the predecessor's epoch fenced off: afterwards the request is decided again.
    ``new_producer_id`` is used where the epochs of the present one are exhausted; NO_PRODUCER_ID if none is at hand.
    ``transaction_version`` is the finalised level.
    """
    metadata = txn.metadata
    if txn.pending is not None:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    if expected is not None and not _may_be_its_producer(metadata, expected):
        return ErrorCode.PRODUCER_FENCED
    match metadata.state:
        case TransactionState.PREPARE_COMMIT | TransactionState.PREPARE_ABORT:
            return ErrorCode.CONCURRENT_TRANSACTIONS
        case TransactionState.ONGOING:
            if expected is not None and expected.epoch != metadata.producer_epoch:
                # It would be fenced after the abort anyway; Kafka lets it abort its successor's transaction first.
                return ErrorCode.PRODUCER_FENCED
            return _fence_and_abort(metadata, now_ms, transaction_version, new_producer_id)
        case TransactionState.EMPTY | TransactionState.COMPLETE_COMMIT | TransactionState.COMPLETE_ABORT:
            return _initialise(metadata, timeout_ms, expected, new_producer_id, now_ms)
        case _:
            raise AssertionError(f"{txn} is in a state that is never applied")


def _may_be_its_producer(metadata: TransactionMetadata, expected: ProducerIdAndEpoch) -> bool:
    """Return whether the producer id is the present one, or the last one before a rotation."""
    if not metadata.exists_in_log or expected.id == metadata.producer_id:
        return True
    return expected.id == metadata.previous_producer_id and expected.epoch >= LAST_LIVE_EPOCH


def _initialise(
    metadata: TransactionMetadata,
    timeout_ms: int,
    expected: ProducerIdAndEpoch | None,
    new_producer_id: int,
    now_ms: int,
) -> Transition | ErrorCode | Missing:
    epoch = metadata.producer_epoch
    continues = expected is None or expected.epoch == epoch or not metadata.exists_in_log
    if not continues:
        assert expected is not None
        if expected.epoch != metadata.last_producer_epoch or epoch > LAST_LIVE_EPOCH:
            return ErrorCode.PRODUCER_FENCED
        # The response to its last request was lost: it gets the same one again. Had another producer come in between,
        # the last epoch would have been forgotten.
        producer, last_epoch = metadata.producer, metadata.last_producer_epoch
    elif not metadata.is_epoch_exhausted:
        producer = ProducerIdAndEpoch(metadata.producer_id, epoch + 1)
        last_epoch = NO_PRODUCER_EPOCH if expected is None else epoch
    elif new_producer_id == NO_PRODUCER_ID:
        return Missing.PRODUCER_ID
    else:
        producer = ProducerIdAndEpoch(new_producer_id, 0)
        last_epoch = NO_PRODUCER_EPOCH if expected is None else epoch
    return _advance(
        metadata,
        TransactionState.EMPTY,
        producer_id=producer.id,
        producer_epoch=producer.epoch,
        last_producer_epoch=last_epoch,
        timeout_ms=timeout_ms,
        partitions=NO_PARTITIONS,
        start_ms=NO_TIMESTAMP,
        last_update_ms=now_ms,
    )


def decide_add_partitions(
    txn: Transaction,
    producer: ProducerIdAndEpoch,
    partitions: frozenset[TopicPartition],
    now_ms: int,
    *,
    client_version: int = 0,
) -> Transition | ErrorCode:
    """Decide an AddPartitionsToTxn. The first partitions of a transaction open it.

    NONE: they are all in the transaction already. What is pending comes first: it may be the very transition that gives
    the producer the id and epoch that it has from the response to its EndTxn.
    """
    metadata = txn.metadata
    if txn.pending is not None:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    error = check_producer(metadata, producer)
    if error is not ErrorCode.NONE:
        return error
    if metadata.state in PREPARED_STATES:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    is_ongoing = metadata.state is TransactionState.ONGOING
    if is_ongoing and partitions <= metadata.partitions:
        return ErrorCode.NONE
    return _advance(
        metadata,
        TransactionState.ONGOING,
        partitions=metadata.partitions | partitions,
        start_ms=metadata.start_ms if is_ongoing else now_ms,
        client_transaction_version=client_version,
        last_update_ms=now_ms,
    )


def verify_partitions(
    txn: Transaction, producer: ProducerIdAndEpoch, partitions: frozenset[TopicPartition]
) -> dict[TopicPartition, ErrorCode] | ErrorCode:
    """Return by partition whether its leader may append a first batch of this transaction.

    Read from what is durable, also while a transition is pending: a pending AddPartitions must not turn away batches of
    partitions that were added before.
    """
    metadata = txn.metadata
    error = check_producer(metadata, producer)
    if error is not ErrorCode.NONE:
        return error
    if metadata.state in PREPARED_STATES:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    return {
        partition: ErrorCode.NONE if partition in metadata.partitions else ErrorCode.TRANSACTION_ABORTABLE
        for partition in partitions
    }


def decide_end_txn(
    txn: Transaction,
    producer: ProducerIdAndEpoch,
    commit: bool,
    now_ms: int,
    new_producer_id: int = NO_PRODUCER_ID,
    *,
    client_version: int = 0,
) -> Transition | ErrorCode | Missing:
    """Decide an EndTxn.

    NONE: the transaction ended this way before, and the response was lost. ``new_producer_id`` is used in version 2
    where the epochs of the present one are exhausted; NO_PRODUCER_ID if none is at hand.
    """
    if client_version >= EPOCH_BUMP_VERSION:
        return _decide_end_txn_2(txn, producer, commit, now_ms, new_producer_id)
    metadata = txn.metadata
    error = check_producer(metadata, producer)
    if error is not ErrorCode.NONE:
        return error
    if txn.pending is not None:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    match metadata.state, commit:
        case TransactionState.ONGOING, True:
            return _prepare(metadata, TransactionState.PREPARE_COMMIT, now_ms)
        case TransactionState.ONGOING, False:
            return _prepare(metadata, TransactionState.PREPARE_ABORT, now_ms)
        case (TransactionState.COMPLETE_COMMIT, True) | (TransactionState.COMPLETE_ABORT, False):
            return ErrorCode.NONE
        case (TransactionState.PREPARE_COMMIT, True) | (TransactionState.PREPARE_ABORT, False):
            return ErrorCode.CONCURRENT_TRANSACTIONS
        case _:
            return ErrorCode.INVALID_TXN_STATE


def _decide_end_txn_2(
    txn: Transaction, producer: ProducerIdAndEpoch, commit: bool, now_ms: int, new_producer_id: int
) -> Transition | ErrorCode | Missing:
    """Decide by version 2. What is pending comes first: it may give the producer the id and epoch that it has."""
    if txn.pending is not None:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    metadata = txn.metadata
    state = metadata.state
    if producer != (metadata.producer_id, metadata.producer_epoch):
        return _decide_retry(metadata, producer, commit)
    if state is TransactionState.ONGOING and not (commit and metadata.producer_epoch == MAX_EPOCH):
        return _prepare_and_bump(metadata, commit, now_ms, new_producer_id)
    if state is TransactionState.ONGOING or state in PREPARED_STATES:
        return ErrorCode.PRODUCER_FENCED  # No producer has the epoch of the markers, nor the last one of all.
    return ErrorCode.INVALID_TXN_STATE if commit else _prepare_and_bump(metadata, False, now_ms, new_producer_id)


def _decide_retry(metadata: TransactionMetadata, producer: ProducerIdAndEpoch, commit: bool) -> ErrorCode:
    """Decide an EndTxn of a former producer: it can only be a retry by one that ended its transaction.

    That is so after an end of version 2. Version 1 bumps no epoch: there, the epoch before the present one is that of
    a producer that was replaced, which must not get the epoch of its successor. (Kafka does not tell them apart.)
    """
    state = metadata.state
    was_bumped = metadata.client_transaction_version >= EPOCH_BUMP_VERSION
    is_bumped = was_bumped and producer == (metadata.producer_id, metadata.producer_epoch - 1)
    is_rotated = metadata.producer_epoch == 0 and producer == (metadata.previous_producer_id, LAST_LIVE_EPOCH)
    if producer.id != metadata.producer_id and not is_rotated:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if is_bumped and state in PREPARED_STATES:
        is_same_end = commit is (state is TransactionState.PREPARE_COMMIT)
        return ErrorCode.CONCURRENT_TRANSACTIONS if is_same_end else ErrorCode.INVALID_TXN_STATE
    is_live = metadata.producer_epoch != MAX_EPOCH  # Else the response would be an epoch that no producer may have.
    if state in COMPLETE_STATES and is_live and (is_bumped or is_rotated):
        is_same_end = commit is (state is TransactionState.COMPLETE_COMMIT)
        return ErrorCode.NONE if is_same_end else ErrorCode.INVALID_TXN_STATE
    return ErrorCode.PRODUCER_FENCED


def _prepare(metadata: TransactionMetadata, state: TransactionState, now_ms: int) -> Transition:
    """Prepare an end by version 1: the epoch is kept."""
    return _advance(
        metadata, state, next_producer_id=NO_PRODUCER_ID, client_transaction_version=0, last_update_ms=now_ms
    )


def _prepare_and_bump(
    metadata: TransactionMetadata, commit: bool, now_ms: int, new_producer_id: int
) -> Transition | Missing:
    """Prepare an end by version 2: the markers have the next epoch, and so has the producer, or a new producer id."""
    is_exhausted = metadata.is_epoch_exhausted
    if is_exhausted and new_producer_id == NO_PRODUCER_ID:
        return Missing.PRODUCER_ID
    return _advance(
        metadata,
        TransactionState.PREPARE_COMMIT if commit else TransactionState.PREPARE_ABORT,
        producer_epoch=min(metadata.producer_epoch + 1, MAX_EPOCH),
        last_producer_epoch=metadata.producer_epoch,
        next_producer_id=new_producer_id if is_exhausted else NO_PRODUCER_ID,
        client_transaction_version=EPOCH_BUMP_VERSION,
        start_ms=metadata.start_ms if metadata.state is TransactionState.ONGOING else now_ms,
        last_update_ms=now_ms,
    )


def decide_timeout(
    txn: Transaction, now_ms: int, *, transaction_version: int = 0, new_producer_id: int = NO_PRODUCER_ID
) -> Transition | Missing | None:
    """Abort a transaction that was open for longer than its producer allowed. None: there is no reason to.

    ``transaction_version`` is the finalised level.
    """
    metadata = txn.metadata
    if txn.pending is not None or metadata.state is not TransactionState.ONGOING:
        return None
    if metadata.start_ms + metadata.timeout_ms >= now_ms:
        return None
    return _fence_and_abort(metadata, now_ms, transaction_version, new_producer_id)


def decide_completion(txn: Transaction, now_ms: int) -> Transition:
    """Decide Complete*: every partition has its marker."""
    metadata = txn.metadata
    assert metadata.state in PREPARED_STATES, f"{txn} has nothing to complete"
    commit = metadata.state is TransactionState.PREPARE_COMMIT
    producer = producer_when_complete(metadata)
    return _advance(
        metadata,
        TransactionState.COMPLETE_COMMIT if commit else TransactionState.COMPLETE_ABORT,
        producer_id=producer.id,
        producer_epoch=producer.epoch,
        partitions=NO_PARTITIONS,
        next_producer_id=NO_PRODUCER_ID,
        cause=metadata.cause,
        last_update_ms=now_ms,
    )


def producer_when_complete(prepared: TransactionMetadata) -> ProducerIdAndEpoch:
    """Return the producer id and epoch for the next transaction, once this prepared one is complete."""
    rotates = prepared.next_producer_id != NO_PRODUCER_ID
    if rotates and prepared.client_transaction_version >= EPOCH_BUMP_VERSION:
        return ProducerIdAndEpoch(prepared.next_producer_id, 0)
    return prepared.producer


def decide_expiration(txn: Transaction, expiration_ms: int, now_ms: int) -> Transition | None:
    """Decide whether an unused transactional id expires. None: it stays."""
    metadata = txn.metadata
    if txn.pending is not None or metadata.state not in EXPIRING_STATES:
        return None
    if metadata.last_update_ms > now_ms - expiration_ms:
        return None
    return _advance(metadata, TransactionState.DEAD, partitions=NO_PARTITIONS)


def check_producer(metadata: TransactionMetadata, producer: ProducerIdAndEpoch) -> ErrorCode:
    """Check that a request comes from the present producer of its transactional id, at its present epoch."""
    if producer.id != metadata.producer_id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if producer.epoch != metadata.producer_epoch:
        return ErrorCode.PRODUCER_FENCED
    return ErrorCode.NONE


def _fence_and_abort(
    metadata: TransactionMetadata, now_ms: int, transaction_version: int, new_producer_id: int
) -> Transition | Missing:
    """Decide in one record the next epoch, which fences the producer, and the abort."""
    if transaction_version >= EPOCH_BUMP_VERSION:
        return _prepare_and_bump(metadata, False, now_ms, new_producer_id)
    fenced = _advance(
        metadata,
        TransactionState.PREPARE_EPOCH_FENCE,
        producer_epoch=min(metadata.producer_epoch + 1, MAX_EPOCH),
        last_producer_epoch=NO_PRODUCER_EPOCH,
    )
    return _prepare(fenced, TransactionState.PREPARE_ABORT, now_ms)


def _advance(
    metadata: TransactionMetadata, state: TransactionState, *, cause: str | None = None, **changes: Any
) -> Transition:
    assert state in TRANSITIONS[metadata.state], f"{metadata.state.label} cannot become {state.label}"
    return metadata._replace(state=state, previous_producer_id=metadata.producer_id, cause=cause, **changes)
