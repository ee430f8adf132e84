"""The requests of a producer to coordinators, as values: their messages, and the error that a response holds. Pure.

A request is complete when it is made: id, epoch and protocol version of the producer cannot change before its
transaction has ended. ``request_effects`` maps the error of a response to an effect, and ``CoordinatorRequests``
applies that to the producer.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum, IntEnum
from typing import ClassVar, Final, NamedTuple

from oncelog.clients.errors import Refusal, error_code
from oncelog.clients.group_metadata import ConsumerGroupMetadata
from oncelog.clients.offset_and_metadata import OffsetAndMetadata
from oncelog.clients.producer.producer_id_and_epoch import NO_PRODUCER, ProducerIdAndEpoch
from oncelog.clients.producer.request_effects import Effect, RequestKind, effect_of, severity
from oncelog.protocol.errors import ErrorCode
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

_MAX_INT32: Final = 2**31 - 1
_NO_ERROR: Final = Refusal(error=ErrorCode.NONE)


class CoordinatorKind(Enum):
    """The two kinds of coordinators that a producer sends requests to."""

    TRANSACTION = "transactional id"
    GROUP = "group"


class CoordinatorKey(NamedTuple):
    """Identifies one coordinator."""

    kind: CoordinatorKind
    key: str


class Priority(IntEnum):
    """The order of pending requests: a transaction ends after everything that belongs to it."""

    INIT_PRODUCER_ID = 0
    ADD_TO_TRANSACTION = 1
    END_TXN = 2


class TransactionalProducer(NamedTuple):
    """A producer as the requests of one transaction name it, and the protocol version of that transaction."""

    transactional_id: str
    identity: ProducerIdAndEpoch
    protocol: int


class TransactionRequest(ABC):
    """One request to a coordinator, or to any broker."""

    __slots__ = ()

    priority: ClassVar[Priority]
    response_type: ClassVar[type[Message]]
    may_be_dropped: ClassVar[bool] = False
    """Whether an abort undoes whatever the request did."""
    begins_transaction: ClassVar[bool] = False
    """Whether the request may be the first of the transaction that the transaction coordinator sees."""

    @property
    @abstractmethod
    def kind(self) -> RequestKind:
        """The row of the request in ``EFFECTS``."""

    @property
    @abstractmethod
    def coordinator(self) -> CoordinatorKey | None:
        """The coordinator to send the request to; None if any broker will do."""

    @property
    @abstractmethod
    def versions(self) -> Versions:
        """The versions in which the request means what the transaction protocol requires."""

    @abstractmethod
    def message(self) -> Message:
        """Return the message to send."""

    @abstractmethod
    def error_in(self, response: Message) -> Refusal:
        """Return the error of a response; of those of several partitions the most severe, ``NONE`` for success."""

    def effect_of(self, error: ErrorCode) -> Effect:
        """Return the effect of an error in the response."""
        return effect_of(self.kind, error)

    def effect_of_lookup(self, error: ErrorCode) -> Effect:
        """Return the effect of an error of FindCoordinator, which was sent to find the coordinator of this request."""
        assert self.coordinator is not None
        if self.coordinator.kind is CoordinatorKind.GROUP:
            return effect_of(RequestKind.FIND_GROUP_COORDINATOR, error)
        return effect_of(RequestKind.FIND_TRANSACTION_COORDINATOR, error)

    def precedes(self, other: "TransactionRequest") -> bool:
        """Return whether the request must be sent before ``other``, which has the same priority."""
        return False


@dataclass(frozen=True, slots=True, kw_only=True)
class InitProducerId(TransactionRequest):
    """Requests a producer id, or the next epoch of a producer id (KIP-360)."""

    kind = RequestKind.INIT_PRODUCER_ID
    priority = Priority.INIT_PRODUCER_ID
    response_type = InitProducerIdResponse

    transactional_id: str | None
    transaction_timeout_ms: int
    bumped: ProducerIdAndEpoch = NO_PRODUCER
    """The id and epoch to bump; ``NO_PRODUCER`` to get an id."""

    @property
    def coordinator(self) -> CoordinatorKey | None:
        if self.transactional_id is None:
            return None
        return CoordinatorKey(CoordinatorKind.TRANSACTION, self.transactional_id)

    @property
    def versions(self) -> Versions:
        return Versions(3 if self.bumped.is_valid else 0, 5)

    def message(self) -> InitProducerIdRequest:
        return InitProducerIdRequest(
            transactional_id=self.transactional_id,
            transaction_timeout_ms=_MAX_INT32 if self.transactional_id is None else self.transaction_timeout_ms,
            producer_id=self.bumped.producer_id,
            producer_epoch=self.bumped.epoch,
        )

    def error_in(self, response: Message) -> Refusal:
        assert isinstance(response, InitProducerIdResponse)
        return Refusal(error=error_code(response.error_code))

    def effect_of(self, error: ErrorCode) -> Effect:
        return self._without_transaction(effect_of(self.kind, error))

    def effect_of_lookup(self, error: ErrorCode) -> Effect:
        return self._without_transaction(TransactionRequest.effect_of_lookup(self, error))

    def _without_transaction(self, effect: Effect) -> Effect:
        """Return the effect while there is no transaction to abort.

        A first InitProducerId may be repeated by the application. One that bumps the epoch is part of ending a
        transaction, and a repeated call would begin with ending that again.
        """
        if effect not in (Effect.REFUSED, Effect.ABORTABLE):
            return effect
        return Effect.FATAL if self.bumped.is_valid else Effect.REFUSED


@dataclass(frozen=True, slots=True, kw_only=True)
class _RequestInTransaction(TransactionRequest):
    """A request that belongs to a transaction; sent to the transaction coordinator unless a subclass differs."""

    producer: TransactionalProducer

    @property
    def coordinator(self) -> CoordinatorKey:
        return CoordinatorKey(CoordinatorKind.TRANSACTION, self.producer.transactional_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class AddPartitionsToTxn(_RequestInTransaction):
    """Adds partitions to the transaction before they are written to, in protocol version 1."""

    kind = RequestKind.ADD_PARTITIONS_TO_TXN
    priority = Priority.ADD_TO_TRANSACTION
    begins_transaction = True
    response_type = AddPartitionsToTxnResponse
    versions = Versions(0, 3)  # Later versions are for brokers.

    partitions: frozenset[TopicPartition]

    def message(self) -> AddPartitionsToTxnRequest:
        topics: dict[str, AddPartitionsToTxnTopic] = {}
        for name, partition in sorted(self.partitions):
            topics.setdefault(name, AddPartitionsToTxnTopic(name=name)).partitions.append(partition)
        return AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.producer.transactional_id,
            v3_and_below_producer_id=self.producer.identity.producer_id,
            v3_and_below_producer_epoch=self.producer.identity.epoch,
            v3_and_below_topics=list(topics.values()),
        )

    def error_in(self, response: Message) -> Refusal:
        assert isinstance(response, AddPartitionsToTxnResponse)
        errors = {
            TopicPartition(topic.name, partition.partition_index): error_code(partition.partition_error_code)
            for topic in response.results_by_topic_v3_and_below
            for partition in topic.results_by_partition
        }
        missing = self.partitions - errors.keys()
        errors |= dict.fromkeys(missing, ErrorCode.UNKNOWN_SERVER_ERROR)
        return _most_severe(self.kind, errors)


@dataclass(frozen=True, slots=True, kw_only=True)
class _OffsetsRequest(_RequestInTransaction):
    """A request that commits offsets of a consumer group. Those of one group keep the order of the calls."""

    priority = Priority.ADD_TO_TRANSACTION

    offsets: Mapping[TopicPartition, OffsetAndMetadata]
    """The offsets that are not committed yet."""
    group: ConsumerGroupMetadata
    call: int
    """The number of the application's call, counted from 1."""

    def precedes(self, other: TransactionRequest) -> bool:
        """Return whether ``other`` is of a later call for the same group."""
        if not isinstance(other, _OffsetsRequest):
            return False
        return other.group.group_id == self.group.group_id and self.call < other.call


@dataclass(frozen=True, slots=True, kw_only=True)
class TxnOffsetCommit(_OffsetsRequest):
    """Commits a group's offsets as part of the transaction; in protocol version 2 it adds the group as well."""

    kind = RequestKind.TXN_OFFSET_COMMIT
    response_type = TxnOffsetCommitResponse
    may_be_dropped = True

    @property
    def coordinator(self) -> CoordinatorKey:
        return CoordinatorKey(CoordinatorKind.GROUP, self.group.group_id)

    @property
    def versions(self) -> Versions:
        if self.producer.protocol == 2:
            return Versions(5, 5)
        names_member = self.group.member_id != "" or self.group.generation_id != -1
        return Versions(3 if names_member else 0, 4)

    def message(self) -> TxnOffsetCommitRequest:
        topics: dict[str, TxnOffsetCommitRequestTopic] = {}
        for (name, partition), committed in sorted(self.offsets.items()):
            topic = topics.setdefault(name, TxnOffsetCommitRequestTopic(name=name))
            topic.partitions.append(_offset_to_commit(partition, committed))
        return TxnOffsetCommitRequest(
            transactional_id=self.producer.transactional_id,
            group_id=self.group.group_id,
            producer_id=self.producer.identity.producer_id,
            producer_epoch=self.producer.identity.epoch,
            generation_id=self.group.generation_id,
            member_id=self.group.member_id,
            group_instance_id=self.group.group_instance_id,
            topics=list(topics.values()),
        )

    def error_in(self, response: Message) -> Refusal:
        assert isinstance(response, TxnOffsetCommitResponse)
        errors = _offset_errors(response)
        failed = {
            each: error
            for each in self.offsets
            if (error := errors.get(each, ErrorCode.REQUEST_TIMED_OUT)) is not ErrorCode.NONE
        }
        return _most_severe(self.kind, failed) if failed else _NO_ERROR

    def without_committed(self, response: TxnOffsetCommitResponse) -> "TxnOffsetCommit":
        """Return the request for the offsets that a response does not report as committed."""
        errors = _offset_errors(response)
        left = {each: offset for each, offset in self.offsets.items() if errors.get(each) is not ErrorCode.NONE}
        return replace(self, offsets=left)


def _offset_to_commit(partition: int, committed: OffsetAndMetadata) -> TxnOffsetCommitRequestPartition:
    return TxnOffsetCommitRequestPartition(
        partition_index=partition,
        committed_offset=committed.offset,
        committed_leader_epoch=committed.leader_epoch,
        committed_metadata=committed.metadata,
    )


def _offset_errors(response: TxnOffsetCommitResponse) -> dict[TopicPartition, ErrorCode]:
    return {
        TopicPartition(topic.name, partition.partition_index): error_code(partition.error_code)
        for topic in response.topics
        for partition in topic.partitions
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class AddOffsetsToTxn(_OffsetsRequest):
    """Adds a consumer group to the transaction before its offsets are committed, in protocol version 1."""

    kind = RequestKind.ADD_OFFSETS_TO_TXN
    begins_transaction = True
    response_type = AddOffsetsToTxnResponse
    versions = Versions(0, 4)

    def message(self) -> AddOffsetsToTxnRequest:
        return AddOffsetsToTxnRequest(
            transactional_id=self.producer.transactional_id,
            producer_id=self.producer.identity.producer_id,
            producer_epoch=self.producer.identity.epoch,
            group_id=self.group.group_id,
        )

    def error_in(self, response: Message) -> Refusal:
        assert isinstance(response, AddOffsetsToTxnResponse)
        return Refusal(error=error_code(response.error_code))

    def offset_commit(self) -> TxnOffsetCommit:
        """Return the request that follows this one."""
        return TxnOffsetCommit(producer=self.producer, offsets=self.offsets, group=self.group, call=self.call)


@dataclass(frozen=True, slots=True, kw_only=True)
class EndTxn(_RequestInTransaction):
    """Commits or aborts. In protocol version 2 the response holds the id and epoch of the next transaction."""

    priority = Priority.END_TXN
    response_type = EndTxnResponse

    commit: bool

    @property
    def kind(self) -> RequestKind:
        return RequestKind.COMMIT if self.commit else RequestKind.ABORT

    @property
    def versions(self) -> Versions:
        return Versions(5, 5) if self.producer.protocol == 2 else Versions(0, 4)

    def message(self) -> EndTxnRequest:
        return EndTxnRequest(
            transactional_id=self.producer.transactional_id,
            producer_id=self.producer.identity.producer_id,
            producer_epoch=self.producer.identity.epoch,
            committed=self.commit,
        )

    def error_in(self, response: Message) -> Refusal:
        assert isinstance(response, EndTxnResponse)
        return Refusal(error=error_code(response.error_code))


def _most_severe(kind: RequestKind, errors: Mapping[TopicPartition, ErrorCode]) -> Refusal:
    """Return the error with the most severe effect, with the partition that it is about as its message."""
    topic_partition, error = max(errors.items(), key=lambda entry: severity(kind, entry[1]))
    return _NO_ERROR if error is ErrorCode.NONE else Refusal(error=error, message=str(topic_partition))
