"""The requests that a producer makes of coordinators, and what each answer means for it. Pure.

What an error means depends on the request. ``EFFECTS`` is that as a table; errors that it does not list are fatal. It
follows the handlers of Kafka's ``TransactionManager``, with these differences: an abort that cannot be carried out is
fatal whatever the error, a producer whose first InitProducerId is refused may ask again, and what a broker objects to
in offsets (their metadata, their topic, the group's name) ends the transaction, not the producer.

Requests wait in the manager's queue by ``priority`` and go out one at a time. An abort drops what belongs to the
transaction: ``TxnOffsetCommit``, since an abort takes back whatever it did, and requests that were refused each time.
One that adds to the transaction and may have been carried out (``maybe_applied``) is repeated as long as that may tell
its outcome. If that does not help, it is dropped, too, and the epoch bumped, which ends whatever it began.

Offsets of one group are committed in the order of the calls (``call``), repetitions included.
"""

from collections.abc import Iterable, Mapping
from enum import Enum, IntEnum
from typing import TYPE_CHECKING, ClassVar, Final, NamedTuple

from oncelog.clients.errors import (
    BrokerRefused,
    ClientError,
    CommitFailed,
    FatalProducerError,
    NotAuthorized,
    ProducerFenced,
    Refusal,
    TransactionAbortable,
    error_code,
)
from oncelog.clients.group_metadata import ConsumerGroupMetadata
from oncelog.clients.offset_and_metadata import OffsetAndMetadata
from oncelog.clients.producer.producer_id_and_epoch import NO_PRODUCER, ProducerIdAndEpoch
from oncelog.clients.producer.transactional_result import TransactionalResult
from oncelog.protocol.errors import RETRIABLE, ErrorCode
from oncelog.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from oncelog.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from oncelog.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from oncelog.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from oncelog.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from oncelog.protocol.schema import Message, Versions
from oncelog.protocol.topic_partition import TopicPartition

if TYPE_CHECKING:
    from oncelog.clients.producer.transaction_manager import TransactionManager

_MAX_INT32: Final = 2**31 - 1


class Effect(Enum):
    """What an error code does to a request and to the producer, from the mildest to the worst."""

    DONE = "it is done"
    RETRY = "ask the same coordinator again, after a pause"
    FIND_COORDINATOR = "find the coordinator, then ask again"
    REFUSED = "the call fails, and may be repeated"
    ABORTABLE = "the transaction must be aborted"
    ABORTABLE_BY_BUMP = "the transaction must be aborted, and the epoch bumped after it; fatal if it cannot be"
    FENCED = "fatal: another producer has taken over"
    FATAL = "fatal"


class CoordinatorKind(Enum):
    """Whom a request is for."""

    TRANSACTION = "transactional id"
    GROUP = "group"


class CoordinatorKey(NamedTuple):
    """Names one coordinator."""

    kind: CoordinatorKind
    key: str


class Priority(IntEnum):
    """Which of several waiting requests goes first: a transaction ends after all that belongs to it."""

    INIT_PRODUCER_ID = 0
    ADD_TO_TRANSACTION = 1
    END_TXN = 2


_FATAL: Final = dict.fromkeys(
    (
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    ),
    Effect.FATAL,
)
_EVERYWHERE: Final[Mapping[ErrorCode, Effect]] = {
    **dict.fromkeys(RETRIABLE, Effect.RETRY),
    ErrorCode.NONE: Effect.DONE,
    ErrorCode.NOT_COORDINATOR: Effect.FIND_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: Effect.FIND_COORDINATOR,
    ErrorCode.INVALID_PRODUCER_EPOCH: Effect.FENCED,  # What older coordinators say for the next.
    ErrorCode.PRODUCER_FENCED: Effect.FENCED,
    ErrorCode.TRANSACTION_ABORTABLE: Effect.ABORTABLE,
    **_FATAL,
}
_IN_TRANSACTION: Final[Mapping[ErrorCode, Effect]] = {
    **_EVERYWHERE,
    ErrorCode.UNKNOWN_PRODUCER_ID: Effect.ABORTABLE_BY_BUMP,
}
EFFECTS: Final[Mapping[str, Mapping[ErrorCode, Effect]]] = {
    "InitProducerId": {
        **_EVERYWHERE,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: Effect.REFUSED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED: Effect.REFUSED,
        ErrorCode.TRANSACTION_ABORTABLE: Effect.REFUSED,
    },
    "AddPartitionsToTxn": {
        **dict.fromkeys(ErrorCode, Effect.ABORTABLE),
        **_IN_TRANSACTION,
    },
    "AddOffsetsToTxn": {
        **_IN_TRANSACTION,
        ErrorCode.GROUP_AUTHORIZATION_FAILED: Effect.ABORTABLE,
        ErrorCode.INVALID_GROUP_ID: Effect.ABORTABLE,
    },
    "TxnOffsetCommit": {
        **_IN_TRANSACTION,
        ErrorCode.UNKNOWN_PRODUCER_ID: Effect.FATAL,
        ErrorCode.REQUEST_TIMED_OUT: Effect.FIND_COORDINATOR,
        ErrorCode.GROUP_AUTHORIZATION_FAILED: Effect.ABORTABLE,
        ErrorCode.FENCED_INSTANCE_ID: Effect.ABORTABLE,
        ErrorCode.UNKNOWN_MEMBER_ID: Effect.ABORTABLE,
        ErrorCode.ILLEGAL_GENERATION: Effect.ABORTABLE,
        ErrorCode.GROUP_ID_NOT_FOUND: Effect.ABORTABLE,
        ErrorCode.STALE_MEMBER_EPOCH: Effect.ABORTABLE,
        ErrorCode.OFFSET_METADATA_TOO_LARGE: Effect.ABORTABLE,
        ErrorCode.INVALID_COMMIT_OFFSET_SIZE: Effect.ABORTABLE,
        ErrorCode.INVALID_GROUP_ID: Effect.ABORTABLE,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED: Effect.ABORTABLE,
    },
    "EndTxn to commit": _IN_TRANSACTION,
    "EndTxn to abort": {
        **_IN_TRANSACTION,
        ErrorCode.UNKNOWN_PRODUCER_ID: Effect.FATAL,
        ErrorCode.TRANSACTION_ABORTABLE: Effect.FATAL,
    },
    "FindCoordinator of a transactional id": {
        **dict.fromkeys(RETRIABLE, Effect.RETRY),
        ErrorCode.TRANSACTION_ABORTABLE: Effect.ABORTABLE,
    },
    "FindCoordinator of a group": {
        **dict.fromkeys(RETRIABLE, Effect.RETRY),
        ErrorCode.TRANSACTION_ABORTABLE: Effect.ABORTABLE,
        ErrorCode.GROUP_AUTHORIZATION_FAILED: Effect.ABORTABLE,
        ErrorCode.INVALID_GROUP_ID: Effect.ABORTABLE,
    },
}
_MAYBE_APPLIED: Final = frozenset(
    {
        ErrorCode.COORDINATOR_NOT_AVAILABLE,  # What a coordinator says while its record is not replicated.
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    }
)
"""Answers to a request that do not exclude that it was carried out."""
_GROUP_HAS_MOVED_ON: Final = frozenset(
    {
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.GROUP_ID_NOT_FOUND,
        ErrorCode.STALE_MEMBER_EPOCH,
        ErrorCode.FENCED_INSTANCE_ID,
    }
)
_UNAUTHORIZED: Final = frozenset(
    {ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, ErrorCode.CLUSTER_AUTHORIZATION_FAILED}
)


def effect_of(request: str, error: ErrorCode) -> Effect:
    """The entry of ``EFFECTS``."""
    return EFFECTS[request].get(error, Effect.FATAL)


def client_error(subject: str, refused: Refusal, effect: Effect) -> ClientError:
    """The exception for an error code that a coordinator answered."""
    if effect is Effect.FENCED:
        return ProducerFenced(f"{subject}: {refused}")
    if refused.error in _GROUP_HAS_MOVED_ON and effect is Effect.ABORTABLE:
        return CommitFailed(f"{subject}: {refused}")
    if refused.error in _UNAUTHORIZED:
        return NotAuthorized(f"{subject}: {refused}")
    if refused.error == ErrorCode.TRANSACTION_ABORTABLE and effect is not Effect.FATAL:
        return TransactionAbortable(f"{subject}: {refused}")
    if effect is Effect.FATAL:
        return FatalProducerError(f"{subject}: {refused}")
    return BrokerRefused(subject, refused)


class TransactionRequest:
    """One request and its repetitions."""

    priority: ClassVar[Priority]
    response_type: ClassVar[type[Message]]
    may_be_dropped: ClassVar[bool] = False
    """Whether an abort takes back whatever it did."""
    begins_transaction: ClassVar[bool] = False
    """Whether it may be what begins the transaction at its coordinator."""

    def __init__(self, manager: "TransactionManager", result: TransactionalResult) -> None:
        self.manager = manager
        self.result = result
        self.attempts = 0
        """How often it was sent."""
        self.maybe_applied = False
        """Whether an attempt without success may have been carried out all the same."""
        self.last_error = ErrorCode.NONE

    @property
    def name(self) -> str:
        """Its row in ``EFFECTS``."""
        return self.__class__.__name__

    @property
    def coordinator(self) -> CoordinatorKey | None:
        """Who must answer; None if any broker may."""
        return CoordinatorKey(CoordinatorKind.TRANSACTION, self.transactional_id)

    @property
    def transactional_id(self) -> str:
        assert self.manager.transactional_id is not None
        return self.manager.transactional_id

    @property
    def versions(self) -> Versions:
        """The versions in which it means what it must."""
        raise NotImplementedError

    def message(self) -> Message:
        """What to send."""
        raise NotImplementedError

    def take(self, response: Message) -> Effect:
        """Take over an answer; RETRY and FIND_COORDINATOR mean that it waits in the queue again."""
        raise NotImplementedError

    def take_error(self, error: ErrorCode, message: str | None = None) -> Effect:
        """Apply what ``EFFECTS`` says of an error to the request and the manager; DONE is left to the caller."""
        return self.apply(effect_of(self.name, error), Refusal(error=error, message=message))

    def apply(self, effect: Effect, refused: Refusal) -> Effect:
        """Let an effect happen."""
        self.last_error = refused.error
        self.maybe_applied |= refused.error in _MAYBE_APPLIED
        match effect:
            case Effect.DONE:
                pass
            case Effect.RETRY | Effect.FIND_COORDINATOR:
                self.manager.repeat(self)
            case _:
                self._fail(effect, client_error(self.name, refused, effect))
        return effect

    def _fail(self, effect: Effect, error: ClientError) -> None:
        match effect:
            case Effect.REFUSED:
                self.manager.refuse(error)
            case Effect.ABORTABLE:
                began = self.begins_transaction and self.maybe_applied and self.manager.can_bump_epoch
                self.manager.fail_transaction(error, needs_bump=began)
            case Effect.ABORTABLE_BY_BUMP:
                self.manager.fail_transaction(error, needs_bump=True)
            case _:
                self.manager.fail_fatally(error)
        self.result.fail(error if error.is_abortable else self.manager.current_error() or error)

    def unsupported(self, error: ClientError) -> None:
        """Its coordinator serves none of its versions."""
        self.manager.fail_fatally(error)
        self.result.fail(self.manager.current_error() or error)

    def lost(self, *, maybe_applied: bool = True) -> None:
        """No answer came: whether it was carried out is unknown, if it was sent at all."""
        self.last_error = ErrorCode.NETWORK_EXCEPTION
        self.maybe_applied |= maybe_applied
        self.manager.repeat(self)

    @property
    def is_undecided(self) -> bool:
        """Whether the next answer may tell that it was carried out."""
        undecided = self.last_error in (ErrorCode.NETWORK_EXCEPTION, ErrorCode.CONCURRENT_TRANSACTIONS, *_MAYBE_APPLIED)
        return self.maybe_applied and undecided

    def precedes(self, other: "TransactionRequest") -> bool:
        """Whether it must be done before ``other``, which has the same priority."""
        return False

    def coordinator_refused(self, refused: Refusal) -> Effect:
        """Nobody is known to send it to, for a reason that does not pass."""
        key = self.coordinator
        assert key is not None
        return self.apply(effect_of(f"FindCoordinator of a {key.kind.value}", refused.error), refused)


class InitProducerId(TransactionRequest):
    """Asks for a producer id, or for the next epoch of the one that it has (KIP-360)."""

    priority = Priority.INIT_PRODUCER_ID
    response_type = InitProducerIdResponse

    def __init__(
        self, manager: "TransactionManager", result: TransactionalResult, bumped: ProducerIdAndEpoch = NO_PRODUCER
    ) -> None:
        super().__init__(manager, result)
        self.bumped = bumped

    @property
    def coordinator(self) -> CoordinatorKey | None:
        return None if self.manager.transactional_id is None else super().coordinator

    @property
    def versions(self) -> Versions:
        return Versions(3 if self.bumped.is_valid else 0, 5)

    def message(self) -> InitProducerIdRequest:
        transactional = self.manager.transactional_id is not None
        return InitProducerIdRequest(
            transactional_id=self.manager.transactional_id,
            transaction_timeout_ms=self.manager.transaction_timeout_ms if transactional else _MAX_INT32,
            producer_id=self.bumped.producer_id,
            producer_epoch=self.bumped.epoch,
        )

    def take(self, response: Message) -> Effect:
        assert isinstance(response, InitProducerIdResponse)
        effect = self.take_error(error_code(response.error_code))
        if effect is Effect.DONE:
            self.manager.initialized(ProducerIdAndEpoch(response.producer_id, response.producer_epoch), self.result)
        return effect

    def apply(self, effect: Effect, refused: Refusal) -> Effect:
        """There is no transaction to abort. If one has just ended, asking again would begin with ending it again."""
        if effect in (Effect.REFUSED, Effect.ABORTABLE):
            effect = Effect.FATAL if self.bumped.is_valid else Effect.REFUSED
        return super().apply(effect, refused)


class AddPartitionsToTxn(TransactionRequest):
    """Version 1: adds partitions to the transaction before they are written to."""

    priority = Priority.ADD_TO_TRANSACTION
    begins_transaction = True
    response_type = AddPartitionsToTxnResponse
    versions = Versions(0, 3)  # Later ones are for brokers.

    def __init__(
        self, manager: "TransactionManager", result: TransactionalResult, partitions: frozenset[TopicPartition]
    ) -> None:
        super().__init__(manager, result)
        self.partitions = partitions

    def message(self) -> AddPartitionsToTxnRequest:
        topics: dict[str, AddPartitionsToTxnTopic] = {}
        for name, partition in sorted(self.partitions):
            topics.setdefault(name, AddPartitionsToTxnTopic(name=name)).partitions.append(partition)
        return AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self.manager.producer.producer_id,
            v3_and_below_producer_epoch=self.manager.producer.epoch,
            v3_and_below_topics=list(topics.values()),
        )

    def take(self, response: Message) -> Effect:
        assert isinstance(response, AddPartitionsToTxnResponse)
        errors = {
            TopicPartition(topic.name, partition.partition_index): error_code(partition.partition_error_code)
            for topic in response.results_by_topic_v3_and_below
            for partition in topic.results_by_partition
        }
        missing = self.partitions - errors.keys()
        errors |= dict.fromkeys(missing, ErrorCode.UNKNOWN_SERVER_ERROR)
        topic_partition, error = _worst(self.name, errors)
        effect = self.take_error(error, None if error == ErrorCode.NONE else str(topic_partition))
        if effect is Effect.DONE:
            self.manager.partitions_added(self.partitions)
            self.result.succeed()
        return effect


class OffsetsRequest(TransactionRequest):
    """One of the requests that commit a group's offsets."""

    priority = Priority.ADD_TO_TRANSACTION

    def __init__(
        self,
        manager: "TransactionManager",
        result: TransactionalResult,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        group: ConsumerGroupMetadata,
    ) -> None:
        super().__init__(manager, result)
        self.offsets = dict(offsets)
        """Those that are not committed yet."""
        self.group = group
        self.call = 0
        """Which call of the application it carries out, by number."""

    def precedes(self, other: TransactionRequest) -> bool:
        """Whether ``other`` carries out a later call for the same group."""
        if not isinstance(other, OffsetsRequest):
            return False
        return other.group.group_id == self.group.group_id and self.call < other.call


class AddOffsetsToTxn(OffsetsRequest):
    """Version 1: tells the transaction coordinator that a group's offsets will be part of the transaction."""

    begins_transaction = True
    response_type = AddOffsetsToTxnResponse
    versions = Versions(0, 4)

    def message(self) -> AddOffsetsToTxnRequest:
        return AddOffsetsToTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.manager.producer.producer_id,
            producer_epoch=self.manager.producer.epoch,
            group_id=self.group.group_id,
        )

    def take(self, response: Message) -> Effect:
        assert isinstance(response, AddOffsetsToTxnResponse)
        effect = self.take_error(error_code(response.error_code))
        if effect is Effect.DONE:
            commit = TxnOffsetCommit(self.manager, self.result, self.offsets, self.group)
            commit.call = self.call
            self.manager.offsets_added(commit)
        return effect


class TxnOffsetCommit(OffsetsRequest):
    """Commits a group's offsets as part of the transaction; in version 2 it adds them to it as well."""

    response_type = TxnOffsetCommitResponse
    may_be_dropped = True

    @property
    def coordinator(self) -> CoordinatorKey:
        return CoordinatorKey(CoordinatorKind.GROUP, self.group.group_id)

    @property
    def versions(self) -> Versions:
        if self.manager.protocol == 2:
            return Versions(5, 5)
        names_member = self.group.member_id != "" or self.group.generation_id != -1
        return Versions(3 if names_member else 0, 4)

    def message(self) -> TxnOffsetCommitRequest:
        topics: dict[str, TxnOffsetCommitRequestTopic] = {}
        for (name, partition), committed in sorted(self.offsets.items()):
            topic = topics.setdefault(name, TxnOffsetCommitRequestTopic(name=name))
            topic.partitions.append(_offset_to_commit(partition, committed))
        return TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            group_id=self.group.group_id,
            producer_id=self.manager.producer.producer_id,
            producer_epoch=self.manager.producer.epoch,
            generation_id=self.group.generation_id,
            member_id=self.group.member_id,
            group_instance_id=self.group.group_instance_id,
            topics=list(topics.values()),
        )

    def take(self, response: Message) -> Effect:
        assert isinstance(response, TxnOffsetCommitResponse)
        errors = {
            TopicPartition(topic.name, partition.partition_index): error_code(partition.error_code)
            for topic in response.topics
            for partition in topic.partitions
        }
        for topic_partition, error in errors.items():
            if error == ErrorCode.NONE:
                self.offsets.pop(topic_partition, None)
        if not self.offsets:
            self.result.succeed()
            return Effect.DONE
        left = {each: errors.get(each, ErrorCode.REQUEST_TIMED_OUT) for each in self.offsets}
        topic_partition, error = _worst(self.name, left)
        return self.take_error(error, str(topic_partition))


def _offset_to_commit(partition: int, committed: OffsetAndMetadata) -> TxnOffsetCommitRequestPartition:
    return TxnOffsetCommitRequestPartition(
        partition_index=partition,
        committed_offset=committed.offset,
        committed_leader_epoch=committed.leader_epoch,
        committed_metadata=committed.metadata,
    )


class EndTxn(TransactionRequest):
    """Commits or aborts. In version 2 the answer holds the id and epoch of the next transaction."""

    priority = Priority.END_TXN
    response_type = EndTxnResponse

    def __init__(self, manager: "TransactionManager", result: TransactionalResult, *, commit: bool) -> None:
        super().__init__(manager, result)
        self.commit = commit

    @property
    def name(self) -> str:
        return "EndTxn to commit" if self.commit else "EndTxn to abort"

    @property
    def versions(self) -> Versions:
        return Versions(5, 5) if self.manager.protocol == 2 else Versions(0, 4)

    def message(self) -> EndTxnRequest:
        return EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.manager.producer.producer_id,
            producer_epoch=self.manager.producer.epoch,
            committed=self.commit,
        )

    def take(self, response: Message) -> Effect:
        assert isinstance(response, EndTxnResponse)
        effect = self.take_error(error_code(response.error_code))
        if effect is Effect.DONE:
            self.manager.ended(ProducerIdAndEpoch(response.producer_id, response.producer_epoch), self.result)
        return effect


def _worst(request: str, errors: Mapping[TopicPartition, ErrorCode]) -> tuple[TopicPartition, ErrorCode]:
    """Of several partitions, the one whose error decides."""
    severity = list(Effect)

    def rank(entry: tuple[TopicPartition, ErrorCode]) -> int:
        return severity.index(effect_of(request, entry[1]))

    entries: Iterable[tuple[TopicPartition, ErrorCode]] = errors.items()
    return max(entries, key=rank)
