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
from oncelog.clients.producer.producer_config import ProducerConfig, TransactionProtocol
from oncelog.clients.producer.producer_id_and_epoch import ProducerIdAndEpoch
from oncelog.clients.producer.transaction_manager import State, TransactionManager
from oncelog.clients.producer.transaction_requests import (
    EFFECTS,
    AddOffsetsToTxn,
    AddPartitionsToTxn,
    Effect,
    EndTxn,
    InitProducerId,
    TransactionRequest,
    TxnOffsetCommit,
    effect_of,
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
from oncelog.protocol.schema import Versions
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
EXPECTED: Mapping[str, Mapping[ErrorCode, Effect]] = {
    "InitProducerId": _COORDINATOR
    | _FENCED
    | dict.fromkeys(
        (E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, E.CLUSTER_AUTHORIZATION_FAILED, E.TRANSACTION_ABORTABLE),
        Effect.REFUSED,
    ),
    "AddPartitionsToTxn": {error: Effect.ABORTABLE for error in ErrorCode if error not in RETRIABLE}
    | _COORDINATOR
    | _FENCED
    | _ABORTABLE
    | _BUMP
    | _ADD_PARTITIONS_FATAL,
    "AddOffsetsToTxn": _COORDINATOR
    | _FENCED
    | _ABORTABLE
    | _BUMP
    | {E.GROUP_AUTHORIZATION_FAILED: Effect.ABORTABLE, E.INVALID_GROUP_ID: Effect.ABORTABLE},
    "TxnOffsetCommit": _COORDINATOR
    | _FENCED
    | _ABORTABLE
    | _REGROUPED
    | _OBJECTED
    | {E.REQUEST_TIMED_OUT: Effect.FIND_COORDINATOR},
    "EndTxn to commit": _COORDINATOR | _FENCED | _ABORTABLE | _BUMP,
    "EndTxn to abort": _COORDINATOR | _FENCED,
}


def expected(request: str, error: ErrorCode) -> Effect:
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
    made.initialize()
    request = made.next_request(has_incomplete=False)
    assert request is not None
    request.take(InitProducerIdResponse(producer_id=PRODUCER.producer_id, producer_epoch=PRODUCER.epoch))
    assert made._pending is not None
    made._pending[1].acknowledge()
    return made


def requested(name: str, protocol: TransactionProtocol = "1") -> tuple[TransactionManager, TransactionRequest]:
    """A producer that has just sent the request."""
    if name == "InitProducerId":
        made = TransactionManager(ProducerConfig(bootstrap="x", transactional_id="id"))
        made.initialize()
        return made, popped(made)
    made = manager(protocol)
    made.begin()
    if name == "AddOffsetsToTxn" or (name == "TxnOffsetCommit" and protocol == "2"):
        made.send_offsets({ORDERS: OffsetAndMetadata(5), OTHERS: OffsetAndMetadata(6, 1, "mine")}, GROUP)
    elif name == "TxnOffsetCommit":
        made.send_offsets({ORDERS: OffsetAndMetadata(5), OTHERS: OffsetAndMetadata(6, 1, "mine")}, GROUP)
        popped(made).take(AddOffsetsToTxnResponse())
    else:
        made.add_partition(ORDERS)
        made.add_partition(OTHERS)
    if name.startswith("EndTxn"):
        if protocol == "1":
            answer(popped(made), ErrorCode.NONE)
        made.commit() if name == "EndTxn to commit" else made.abort()
    return made, popped(made)


def popped(made: TransactionManager) -> TransactionRequest:
    request = made.next_request(has_incomplete=False)
    assert request is not None
    return request


def answer(request: TransactionRequest, error: ErrorCode, of_second: ErrorCode | None = None) -> Effect:
    """An answer to ``request``; those about partitions have two, and ``of_second`` may differ."""
    errors = (error, error if of_second is None else of_second)
    match request:
        case InitProducerId():
            return request.take(InitProducerIdResponse(error_code=error, producer_id=9, producer_epoch=0))
        case AddPartitionsToTxn():
            results = [
                AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=each)
                for index, each in enumerate(errors)
            ]
            topic = AddPartitionsToTxnTopicResult(name="orders", results_by_partition=results)
            return request.take(AddPartitionsToTxnResponse(results_by_topic_v3_and_below=[topic]))
        case AddOffsetsToTxn():
            return request.take(AddOffsetsToTxnResponse(error_code=error))
        case TxnOffsetCommit():
            return request.take(offsets_answer(*errors))
        case EndTxn():
            return request.take(EndTxnResponse(error_code=error))
    raise AssertionError(request)


def offsets_answer(*errors: ErrorCode) -> TxnOffsetCommitResponse:
    partitions = [
        TxnOffsetCommitResponsePartition(partition_index=index, error_code=each) for index, each in enumerate(errors)
    ]
    return TxnOffsetCommitResponse(topics=[TxnOffsetCommitResponseTopic(name="orders", partitions=partitions)])


@pytest.mark.parametrize("request_name", EXPECTED)
@pytest.mark.parametrize("error", ErrorCode, ids=lambda error: error.name)
def test_every_cell(request_name: str, error: ErrorCode) -> None:
    made, request = requested(request_name)
    effect = answer(request, error)
    assert effect is effect_of(request_name, error) is expected(request_name, error)
    result = request.result
    match effect:
        case Effect.DONE:
            assert result.error is None
            assert made.current_error() is None
        case Effect.RETRY | Effect.FIND_COORDINATOR:
            assert not result.is_done
            assert popped(made) is request
        case Effect.REFUSED:
            assert made.state is State.UNINITIALIZED
            assert result.error is not None
            assert not isinstance(result.error, ProducerFenced)
        case Effect.ABORTABLE | Effect.ABORTABLE_BY_BUMP:
            assert made.state is State.ABORTABLE_ERROR
            assert result.error is not None
            assert result.error.is_abortable
        case _:
            assert made.state is State.FATAL_ERROR
            assert isinstance(result.error, FatalProducerError)
            assert isinstance(result.error, ProducerFenced) == (effect is Effect.FENCED)


def test_the_table_has_a_row_for_each_request() -> None:
    assert set(EXPECTED) | {"FindCoordinator of a transactional id", "FindCoordinator of a group"} == set(EFFECTS)


@pytest.mark.parametrize("request_name", EXPECTED)
def test_an_answer_that_is_lost_is_asked_for_again(request_name: str) -> None:
    made, request = requested(request_name)
    request.lost()
    assert popped(made) is request
    assert request.attempts == 2


@pytest.mark.parametrize("request_name", EXPECTED)
def test_what_a_coordinator_cannot_do_is_fatal(request_name: str) -> None:
    made, request = requested(request_name)
    request.unsupported(ClientError("no such version"))
    assert made.state is State.FATAL_ERROR
    assert isinstance(request.result.error, FatalProducerError)


@pytest.mark.parametrize(
    ("request_name", "error", "kind"),
    [
        ("TxnOffsetCommit", ErrorCode.ILLEGAL_GENERATION, CommitFailed),
        ("TxnOffsetCommit", ErrorCode.FENCED_INSTANCE_ID, CommitFailed),
        ("TxnOffsetCommit", ErrorCode.GROUP_AUTHORIZATION_FAILED, TransactionAbortable),
        ("AddPartitionsToTxn", ErrorCode.TOPIC_AUTHORIZATION_FAILED, TransactionAbortable),
        ("EndTxn to commit", ErrorCode.TRANSACTION_ABORTABLE, TransactionAbortable),
        ("InitProducerId", ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, NotAuthorized),
        ("EndTxn to commit", ErrorCode.INVALID_PRODUCER_EPOCH, ProducerFenced),
    ],
)
def test_errors_have_names_that_say_what_to_do(request_name: str, error: ErrorCode, kind: type[ClientError]) -> None:
    _, request = requested(request_name)
    answer(request, error)
    assert type(request.result.error) is kind


# Whom, and in which versions


@pytest.mark.parametrize(
    ("request_name", "protocol", "versions"),
    [
        ("InitProducerId", "1", Versions(0, 5)),
        ("AddPartitionsToTxn", "1", Versions(0, 3)),
        ("AddOffsetsToTxn", "1", Versions(0, 4)),
        ("TxnOffsetCommit", "1", Versions(3, 4)),
        ("TxnOffsetCommit", "2", Versions(5, 5)),
        ("EndTxn to commit", "1", Versions(0, 4)),
        ("EndTxn to commit", "2", Versions(5, 5)),
        ("EndTxn to abort", "2", Versions(5, 5)),
    ],
)
def test_versions_that_mean_what_they_must(
    request_name: str, protocol: TransactionProtocol, versions: Versions
) -> None:
    """KIP-890: in version 2 the newer requests add partitions and bump epochs, in version 1 they must not."""
    _, request = requested(request_name, protocol)
    assert request.versions == versions


def test_a_group_without_members_can_be_served_by_older_coordinators() -> None:
    made = manager()
    made.begin()
    made.send_offsets({ORDERS: OffsetAndMetadata(5)}, ConsumerGroupMetadata(group_id="readers"))
    popped(made).take(AddOffsetsToTxnResponse())
    assert popped(made).versions == Versions(0, 4)


def test_what_is_asked() -> None:
    _, init = requested("InitProducerId")
    assert init.message() == InitProducerIdRequest(transactional_id="id", transaction_timeout_ms=60_000)
    _, add = requested("AddPartitionsToTxn")
    message = add.message()
    assert isinstance(message, AddPartitionsToTxnRequest)
    assert (message.v3_and_below_producer_id, message.v3_and_below_producer_epoch) == PRODUCER
    assert [(topic.name, topic.partitions) for topic in message.v3_and_below_topics] == [("orders", [0, 1])]
    _, offsets = requested("AddOffsetsToTxn")
    assert offsets.message() == AddOffsetsToTxnRequest(
        transactional_id="id", producer_id=7, producer_epoch=2, group_id="readers"
    )
    _, end = requested("EndTxn to commit")
    assert end.message() == EndTxnRequest(transactional_id="id", producer_id=7, producer_epoch=2, committed=True)


def test_offsets_go_with_the_member_that_commits_them() -> None:
    """KIP-447."""
    _, request = requested("TxnOffsetCommit")
    message = request.message()
    assert isinstance(message, TxnOffsetCommitRequest)
    assert (message.group_id, message.generation_id, message.member_id) == ("readers", 3, "me")
    (topic,) = message.topics
    assert [
        (each.partition_index, each.committed_offset, each.committed_leader_epoch, each.committed_metadata)
        for each in topic.partitions
    ] == [(0, 5, -1, ""), (1, 6, 1, "mine")]


# Answers about several partitions


def test_only_offsets_that_are_not_committed_are_asked_for_again() -> None:
    made, request = requested("TxnOffsetCommit")
    assert answer(request, ErrorCode.NONE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS) is Effect.RETRY
    again = popped(made).message()
    assert isinstance(again, TxnOffsetCommitRequest)
    assert [each.partition_index for each in again.topics[0].partitions] == [1]
    request.take(offsets_answer(ErrorCode.NONE))
    assert not request.result.is_done
    popped(made)
    request.take(
        TxnOffsetCommitResponse(
            topics=[
                TxnOffsetCommitResponseTopic(
                    name="orders", partitions=[TxnOffsetCommitResponsePartition(partition_index=1)]
                )
            ]
        )
    )
    assert request.result.is_done


def test_the_worst_of_several_errors_decides() -> None:
    for errors in (
        (ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.PRODUCER_FENCED),
        (ErrorCode.PRODUCER_FENCED, ErrorCode.NONE),
        (ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.INVALID_TXN_STATE),
    ):
        made, request = requested("AddPartitionsToTxn")
        answer(request, *errors)
        assert made.state is State.FATAL_ERROR


def test_a_partition_that_the_answer_leaves_out_is_not_taken_for_added() -> None:
    made, request = requested("AddPartitionsToTxn")
    request.take(AddPartitionsToTxnResponse())
    assert made.state is State.ABORTABLE_ERROR


@pytest.mark.parametrize(
    ("request_name", "error", "state"),
    [
        ("EndTxn to commit", ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, State.FATAL_ERROR),
        ("EndTxn to commit", ErrorCode.TRANSACTION_ABORTABLE, State.ABORTABLE_ERROR),
        ("EndTxn to commit", ErrorCode.COORDINATOR_NOT_AVAILABLE, State.COMMITTING_TRANSACTION),
        ("TxnOffsetCommit", ErrorCode.GROUP_AUTHORIZATION_FAILED, State.ABORTABLE_ERROR),
        ("TxnOffsetCommit", ErrorCode.INVALID_GROUP_ID, State.ABORTABLE_ERROR),
        ("TxnOffsetCommit", ErrorCode.INVALID_REQUEST, State.FATAL_ERROR),
        ("InitProducerId", ErrorCode.TRANSACTION_ABORTABLE, State.UNINITIALIZED),
    ],
)
def test_a_coordinator_that_cannot_be_found(request_name: str, error: ErrorCode, state: State) -> None:
    made, request = requested(request_name)
    request.coordinator_refused(Refusal(error=error))
    assert made.state is state
    assert request.result.is_done == (state is not State.COMMITTING_TRANSACTION)
