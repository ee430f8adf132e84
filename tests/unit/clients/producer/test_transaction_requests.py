"""What every error means for every request: the table, cell by cell, and what each cell does to the producer.

``EXPECTED`` is written down from Kafka's handlers (``TransactionManager.java`` of 4.3 and trunk), independently of the
table in the code: for each request, the effect of every error that is not simply retriable or fatal. ``_OBJECTED`` is
where this producer is milder.
"""

from collections.abc import Mapping

import pytest

from oncelog.clients.errors import (
    ClientError,
    CommitFailed,
    FatalProducerError,
    NotAuthorized,
    ProducerFenced,
    Refusal,
    TransactionAbortable,
)
from oncelog.clients.group_metadata import ConsumerGroupMetadata
from oncelog.clients.offset_and_metadata import OffsetAndMetadata
from oncelog.clients.producer.coordinator_requests import CoordinatorRequests
from oncelog.clients.producer.pending_requests import PendingRequest
from oncelog.clients.producer.producer_config import ProducerConfig, TransactionProtocol
from oncelog.clients.producer.producer_id_and_epoch import ProducerIdAndEpoch
from oncelog.clients.producer.producer_state import State
from oncelog.clients.producer.request_effects import EFFECTS, Effect, RequestKind, effect_of
from oncelog.clients.producer.transaction_manager import TransactionManager
from oncelog.clients.producer.transaction_requests import (
    AddOffsetsToTxn,
    AddPartitionsToTxn,
    EndTxn,
    InitProducerId,
    TransactionRequest,
    TxnOffsetCommit,
)
from oncelog.protocol.errors import RETRIABLE, ErrorCode
from oncelog.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from oncelog.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from oncelog.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from oncelog.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from oncelog.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from oncelog.protocol.schema import Message, Versions
from oncelog.protocol.topic_partition import TopicPartition

ORDERS, OTHERS = TopicPartition("orders", 0), TopicPartition("orders", 1)
GROUP = ConsumerGroupMetadata(group_id="readers", generation_id=3, member_id="me")
PRODUCER = ProducerIdAndEpoch(7, 2)

E = ErrorCode
_COORDINATOR = {E.NOT_COORDINATOR: Effect.FIND_COORDINATOR, E.COORDINATOR_NOT_AVAILABLE: Effect.FIND_COORDINATOR}
_FENCED = {E.INVALID_PRODUCER_EPOCH: Effect.FENCED, E.PRODUCER_FENCED: Effect.FENCED}
_ABORTABLE = {E.TRANSACTION_ABORTABLE: Effect.ABORTABLE}
_BUMP = {E.UNKNOWN_PRODUCER_ID: Effect.ABORTABLE_BY_BUMP}
_REGROUPED = dict.fromkeys(
    (
        E.GROUP_AUTHORIZATION_FAILED,
        E.FENCED_INSTANCE_ID,
        E.UNKNOWN_MEMBER_ID,
        E.ILLEGAL_GENERATION,
        E.GROUP_ID_NOT_FOUND,
        E.STALE_MEMBER_EPOCH,
    ),
    Effect.ABORTABLE,
)
_OBJECTED = dict.fromkeys(
    (
        E.OFFSET_METADATA_TOO_LARGE,
        E.INVALID_COMMIT_OFFSET_SIZE,
        E.INVALID_GROUP_ID,
        E.TOPIC_AUTHORIZATION_FAILED,
    ),
    Effect.ABORTABLE,
)
_ADD_PARTITIONS_FATAL = dict.fromkeys(
    (E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, E.INVALID_TXN_STATE, E.INVALID_PRODUCER_ID_MAPPING), Effect.FATAL
)
EXPECTED: Mapping[RequestKind, Mapping[ErrorCode, Effect]] = {
    RequestKind.INIT_PRODUCER_ID: _COORDINATOR
    | _FENCED
    | dict.fromkeys(
        (E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, E.CLUSTER_AUTHORIZATION_FAILED, E.TRANSACTION_ABORTABLE),
        Effect.REFUSED,
    ),
    RequestKind.ADD_PARTITIONS_TO_TXN: {error: Effect.ABORTABLE for error in ErrorCode if error not in RETRIABLE}
    | _COORDINATOR
    | _FENCED
    | _ABORTABLE
    | _BUMP
    | _ADD_PARTITIONS_FATAL,
    RequestKind.ADD_OFFSETS_TO_TXN: _COORDINATOR
    | _FENCED
    | _ABORTABLE
    | _BUMP
    | {E.GROUP_AUTHORIZATION_FAILED: Effect.ABORTABLE, E.INVALID_GROUP_ID: Effect.ABORTABLE},
    RequestKind.TXN_OFFSET_COMMIT: _COORDINATOR
    | _FENCED
    | _ABORTABLE
    | _REGROUPED
    | _OBJECTED
    | {E.REQUEST_TIMED_OUT: Effect.FIND_COORDINATOR},
    RequestKind.COMMIT: _COORDINATOR | _FENCED | _ABORTABLE | _BUMP,
    RequestKind.ABORT: _COORDINATOR | _FENCED,
}


def expected(request: RequestKind, error: ErrorCode) -> Effect:
    if error == ErrorCode.NONE:
        return Effect.DONE
    default = Effect.RETRY if error in RETRIABLE else Effect.FATAL
    return EXPECTED[request].get(error, default)


def manager(protocol: TransactionProtocol = "1") -> TransactionManager:
    """A transactional producer that is ready."""
    made = TransactionManager(
        ProducerConfig(bootstrap="x", transactional_id="id", transaction_protocol=protocol, transaction_timeout_ms=500)
    )
    made.features = made.features._replace(epoch=1, levels={"transaction.version": 2})
    made.can_bump_epoch = True
    initialized = made.initialize()
    take(made, popped(made), InitProducerIdResponse(producer_id=PRODUCER.producer_id, producer_epoch=PRODUCER.epoch))
    initialized.acknowledge()
    return made


def requested(kind: RequestKind, protocol: TransactionProtocol = "1") -> tuple[TransactionManager, PendingRequest]:
    """A producer that has just sent the request."""
    if kind is RequestKind.INIT_PRODUCER_ID:
        made = TransactionManager(ProducerConfig(bootstrap="x", transactional_id="id"))
        made.initialize()
        return made, popped(made)
    made = manager(protocol)
    made.begin()
    if kind is RequestKind.ADD_OFFSETS_TO_TXN or (kind is RequestKind.TXN_OFFSET_COMMIT and protocol == "2"):
        made.send_offsets({ORDERS: OffsetAndMetadata(5), OTHERS: OffsetAndMetadata(6, 1, "mine")}, GROUP)
    elif kind is RequestKind.TXN_OFFSET_COMMIT:
        made.send_offsets({ORDERS: OffsetAndMetadata(5), OTHERS: OffsetAndMetadata(6, 1, "mine")}, GROUP)
        take(made, popped(made), AddOffsetsToTxnResponse())
    else:
        made.add_partition(ORDERS)
        made.add_partition(OTHERS)
    if kind in (RequestKind.COMMIT, RequestKind.ABORT):
        if protocol == "1":
            respond(made, popped(made), ErrorCode.NONE)
        made.commit() if kind is RequestKind.COMMIT else made.abort()
    return made, popped(made)


def popped(made: TransactionManager) -> PendingRequest:
    pending = CoordinatorRequests(made).next_request(has_incomplete=False)
    assert pending is not None
    return pending


def take(made: TransactionManager, pending: PendingRequest, response: Message) -> Effect:
    return CoordinatorRequests(made).handle_response(pending, response)


def lost(made: TransactionManager, pending: PendingRequest) -> None:
    CoordinatorRequests(made).handle_loss(pending, was_sent=True)


def respond(
    made: TransactionManager, pending: PendingRequest, error: ErrorCode, of_second: ErrorCode | None = None
) -> Effect:
    """Handle a response to ``pending``; those about partitions have two errors, and ``of_second`` may differ."""
    return take(made, pending, response_to(pending.request, error, error if of_second is None else of_second))


def response_to(request: TransactionRequest, *errors: ErrorCode) -> Message:
    error = errors[0]
    match request:
        case InitProducerId():
            return InitProducerIdResponse(error_code=error, producer_id=9, producer_epoch=0)
        case AddPartitionsToTxn():
            results = [
                AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=each)
                for index, each in enumerate(errors)
            ]
            topic = AddPartitionsToTxnTopicResult(name="orders", results_by_partition=results)
            return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=[topic])
        case AddOffsetsToTxn():
            return AddOffsetsToTxnResponse(error_code=error)
        case TxnOffsetCommit():
            return offsets_response(*errors)
        case EndTxn():
            return EndTxnResponse(error_code=error)
    raise AssertionError(request)


def offsets_response(*errors: ErrorCode) -> TxnOffsetCommitResponse:
    partitions = [
        TxnOffsetCommitResponsePartition(partition_index=index, error_code=each) for index, each in enumerate(errors)
    ]
    return TxnOffsetCommitResponse(topics=[TxnOffsetCommitResponseTopic(name="orders", partitions=partitions)])


@pytest.mark.parametrize("kind", EXPECTED, ids=lambda kind: kind.value)
@pytest.mark.parametrize("error", ErrorCode, ids=lambda error: error.name)
def test_error_of_each_request_has_the_expected_effect(kind: RequestKind, error: ErrorCode) -> None:
    made, request = requested(kind)
    effect = respond(made, request, error)
    assert effect is effect_of(kind, error) is expected(kind, error)
    result = request.result
    match effect:
        case Effect.DONE:
            assert result.error is None
            assert made.state.error() is None
        case Effect.RETRY | Effect.FIND_COORDINATOR:
            assert not result.is_done
            assert popped(made) is request
        case Effect.REFUSED:
            assert made.state.current is State.UNINITIALIZED
            assert result.error is not None
            assert not isinstance(result.error, ProducerFenced)
        case Effect.ABORTABLE | Effect.ABORTABLE_BY_BUMP:
            assert made.state.current is State.ABORTABLE_ERROR
            assert result.error is not None
            assert result.error.is_abortable
        case _:
            assert made.state.current is State.FATAL_ERROR
            assert isinstance(result.error, FatalProducerError)
            assert isinstance(result.error, ProducerFenced) == (effect is Effect.FENCED)


def test_effects_have_a_row_for_each_request() -> None:
    assert set(EXPECTED) | {RequestKind.FIND_TRANSACTION_COORDINATOR, RequestKind.FIND_GROUP_COORDINATOR} == set(
        EFFECTS
    )


@pytest.mark.parametrize("kind", EXPECTED, ids=lambda kind: kind.value)
def test_request_without_response_is_repeated(kind: RequestKind) -> None:
    made, request = requested(kind)
    lost(made, request)
    assert popped(made) is request
    assert request.attempts == 2


@pytest.mark.parametrize("kind", EXPECTED, ids=lambda kind: kind.value)
def test_request_in_no_supported_version_is_fatal(kind: RequestKind) -> None:
    made, request = requested(kind)
    CoordinatorRequests(made).handle_unsupported_version(request, ClientError("no such version"))
    assert made.state.current is State.FATAL_ERROR
    assert isinstance(request.result.error, FatalProducerError)


@pytest.mark.parametrize(
    ("kind", "error", "raised"),
    [
        (RequestKind.TXN_OFFSET_COMMIT, ErrorCode.ILLEGAL_GENERATION, CommitFailed),
        (RequestKind.TXN_OFFSET_COMMIT, ErrorCode.FENCED_INSTANCE_ID, CommitFailed),
        (RequestKind.TXN_OFFSET_COMMIT, ErrorCode.GROUP_AUTHORIZATION_FAILED, TransactionAbortable),
        (RequestKind.ADD_PARTITIONS_TO_TXN, ErrorCode.TOPIC_AUTHORIZATION_FAILED, TransactionAbortable),
        (RequestKind.COMMIT, ErrorCode.TRANSACTION_ABORTABLE, TransactionAbortable),
        (RequestKind.INIT_PRODUCER_ID, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, NotAuthorized),
        (RequestKind.COMMIT, ErrorCode.INVALID_PRODUCER_EPOCH, ProducerFenced),
    ],
)
def test_error_code_raises_the_exception_with_its_remedy(
    kind: RequestKind, error: ErrorCode, raised: type[ClientError]
) -> None:
    made, request = requested(kind)
    respond(made, request, error)
    assert type(request.result.error) is raised


# Whom, and in which versions


@pytest.mark.parametrize(
    ("kind", "protocol", "versions"),
    [
        (RequestKind.INIT_PRODUCER_ID, "1", Versions(0, 5)),
        (RequestKind.ADD_PARTITIONS_TO_TXN, "1", Versions(0, 3)),
        (RequestKind.ADD_OFFSETS_TO_TXN, "1", Versions(0, 4)),
        (RequestKind.TXN_OFFSET_COMMIT, "1", Versions(3, 4)),
        (RequestKind.TXN_OFFSET_COMMIT, "2", Versions(5, 5)),
        (RequestKind.COMMIT, "1", Versions(0, 4)),
        (RequestKind.COMMIT, "2", Versions(5, 5)),
        (RequestKind.ABORT, "2", Versions(5, 5)),
    ],
)
def test_request_versions_follow_the_transaction_protocol(
    kind: RequestKind, protocol: TransactionProtocol, versions: Versions
) -> None:
    """KIP-890: in version 2 the newer requests add partitions and bump epochs, in version 1 they must not."""
    _, request = requested(kind, protocol)
    assert request.request.versions == versions


def test_group_without_members_can_be_served_by_older_coordinators() -> None:
    made = manager()
    made.begin()
    made.send_offsets({ORDERS: OffsetAndMetadata(5)}, ConsumerGroupMetadata(group_id="readers"))
    take(made, popped(made), AddOffsetsToTxnResponse())
    assert popped(made).request.versions == Versions(0, 4)


def test_request_messages_hold_ids_epochs_and_partitions() -> None:
    _, init = requested(RequestKind.INIT_PRODUCER_ID)
    assert init.request.message() == InitProducerIdRequest(transactional_id="id", transaction_timeout_ms=60_000)
    _, add = requested(RequestKind.ADD_PARTITIONS_TO_TXN)
    message = add.request.message()
    assert isinstance(message, AddPartitionsToTxnRequest)
    assert (message.v3_and_below_producer_id, message.v3_and_below_producer_epoch) == PRODUCER
    assert [(topic.name, topic.partitions) for topic in message.v3_and_below_topics] == [("orders", [0, 1])]
    _, offsets = requested(RequestKind.ADD_OFFSETS_TO_TXN)
    assert offsets.request.message() == AddOffsetsToTxnRequest(
        transactional_id="id", producer_id=7, producer_epoch=2, group_id="readers"
    )
    _, end = requested(RequestKind.COMMIT)
    assert end.request.message() == EndTxnRequest(
        transactional_id="id", producer_id=7, producer_epoch=2, committed=True
    )


def test_offset_commit_names_its_member() -> None:
    """KIP-447."""
    _, request = requested(RequestKind.TXN_OFFSET_COMMIT)
    message = request.request.message()
    assert isinstance(message, TxnOffsetCommitRequest)
    assert (message.group_id, message.generation_id, message.member_id) == ("readers", 3, "me")
    (topic,) = message.topics
    assert [
        (each.partition_index, each.committed_offset, each.committed_leader_epoch, each.committed_metadata)
        for each in topic.partitions
    ] == [(0, 5, -1, ""), (1, 6, 1, "mine")]


# Answers about several partitions


def test_offset_commit_is_repeated_for_uncommitted_offsets_only() -> None:
    made, request = requested(RequestKind.TXN_OFFSET_COMMIT)
    assert respond(made, request, ErrorCode.NONE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS) is Effect.RETRY
    again = popped(made).request.message()
    assert isinstance(again, TxnOffsetCommitRequest)
    assert [each.partition_index for each in again.topics[0].partitions] == [1]
    take(made, request, offsets_response(ErrorCode.NONE))
    assert not request.result.is_done
    popped(made)
    take(
        made,
        request,
        TxnOffsetCommitResponse(
            topics=[
                TxnOffsetCommitResponseTopic(
                    name="orders", partitions=[TxnOffsetCommitResponsePartition(partition_index=1)]
                )
            ]
        ),
    )
    assert request.result.is_done


def test_most_severe_of_several_errors_decides() -> None:
    for errors in (
        (ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.PRODUCER_FENCED),
        (ErrorCode.PRODUCER_FENCED, ErrorCode.NONE),
        (ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.INVALID_TXN_STATE),
    ):
        made, request = requested(RequestKind.ADD_PARTITIONS_TO_TXN)
        respond(made, request, *errors)
        assert made.state.current is State.FATAL_ERROR


def test_partition_that_the_response_leaves_out_is_not_added() -> None:
    made, request = requested(RequestKind.ADD_PARTITIONS_TO_TXN)
    take(made, request, AddPartitionsToTxnResponse())
    assert made.state.current is State.ABORTABLE_ERROR


@pytest.mark.parametrize(
    ("kind", "error", "state"),
    [
        (RequestKind.COMMIT, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, State.FATAL_ERROR),
        (RequestKind.COMMIT, ErrorCode.TRANSACTION_ABORTABLE, State.ABORTABLE_ERROR),
        (RequestKind.COMMIT, ErrorCode.COORDINATOR_NOT_AVAILABLE, State.COMMITTING_TRANSACTION),
        (RequestKind.TXN_OFFSET_COMMIT, ErrorCode.GROUP_AUTHORIZATION_FAILED, State.ABORTABLE_ERROR),
        (RequestKind.TXN_OFFSET_COMMIT, ErrorCode.INVALID_GROUP_ID, State.ABORTABLE_ERROR),
        (RequestKind.TXN_OFFSET_COMMIT, ErrorCode.INVALID_REQUEST, State.FATAL_ERROR),
        (RequestKind.INIT_PRODUCER_ID, ErrorCode.TRANSACTION_ABORTABLE, State.UNINITIALIZED),
    ],
)
def test_lookup_error_of_a_coordinator_has_the_expected_effect(
    kind: RequestKind, error: ErrorCode, state: State
) -> None:
    made, request = requested(kind)
    CoordinatorRequests(made).handle_lookup_error(request, Refusal(error=error))
    assert made.state.current is state
    assert request.result.is_done == (state is not State.COMMITTING_TRANSACTION)
