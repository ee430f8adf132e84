"""Verification requests to other brokers: which share an AddPartitionsToTxn request, wait, and get which result."""

import asyncio

import pytest

from oncelog.broker.transactions.add_partitions_to_txn_sender import (
    MOST_ID_BYTES,
    MOST_PARTITIONS,
    AddPartitionsToTxnSender,
    PartitionErrors,
    VerificationRequest,
)
from oncelog.coordinator.ports import OnResponse
from oncelog.coordinator.transaction.state import ProducerIdAndEpoch
from oncelog.protocol.compiler import decoder, encode
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
)
from oncelog.protocol.schema import Message
from oncelog.protocol.topic_partition import TopicPartition
from tests.unit.broker.virtual_time import in_virtual_time

COORDINATOR, OTHER = 7, 8
NONE, FENCED, NETWORK = ErrorCode.NONE, ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.NETWORK_EXCEPTION


class Wire:
    """A ``BrokerChannel`` whose other ends respond when the test calls ``respond``."""

    def __init__(self) -> None:
        self.sent: list[tuple[int, AddPartitionsToTxnRequest, OnResponse]] = []

    def send(self, broker_id: int, request: Message, on_response: OnResponse) -> None:
        assert isinstance(request, AddPartitionsToTxnRequest)
        self.sent.append((broker_id, request, on_response))

    def sent_transactions(self) -> list[list[tuple[str, int, bool]]]:
        """(transactional id, epoch, whether to verify only) of each request."""
        return [
            [(t.transactional_id, t.producer_epoch, t.verify_only) for t in request.transactions]
            for _, request, _ in self.sent
        ]

    def respond(self, number: int = -1, error: ErrorCode = NONE, *, top: ErrorCode = NONE) -> None:
        """The same error for every partition of a request, or one for all of it."""
        _, request, on_response = self.sent[number]
        results = [
            AddPartitionsToTxnResult(
                transactional_id=transaction.transactional_id,
                topic_results=[
                    AddPartitionsToTxnTopicResult(
                        name=topic.name,
                        results_by_partition=[
                            AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=error)
                            for index in topic.partitions
                        ],
                    )
                    for topic in transaction.topics
                ],
            )
            for transaction in request.transactions
        ]
        on_response(AddPartitionsToTxnResponse(error_code=top, results_by_transaction=[] if top else results))


def verification(
    transactional_id: str = "a", *, producer_id: int = 1, epoch: int = 0, partition: int = 0, adds: bool = False
) -> VerificationRequest:
    producer = ProducerIdAndEpoch(producer_id, epoch)
    return VerificationRequest(transactional_id, producer, frozenset({TopicPartition("t", partition)}), adds)


def only(future: asyncio.Future[PartitionErrors]) -> ErrorCode:
    (error,) = future.result().values()
    return error


def world() -> tuple[Wire, AddPartitionsToTxnSender]:
    wire = Wire()
    return wire, AddPartitionsToTxnSender(wire, request_timeout_ms=1_000)


@in_virtual_time
async def test_sender_without_request_in_flight_sends_at_once_grouped_by_topic() -> None:
    wire, sender = world()
    partitions = frozenset({TopicPartition("t", 1), TopicPartition("u", 0), TopicPartition("t", 0)})
    result = sender.add_or_verify(COORDINATOR, VerificationRequest("a", ProducerIdAndEpoch(4, 2), partitions, True))
    ((broker_id, request, _),) = wire.sent
    (transaction,) = request.transactions
    assert broker_id == COORDINATOR
    assert (transaction.producer_id, transaction.producer_epoch, transaction.verify_only) == (4, 2, False)
    assert [(topic.name, topic.partitions) for topic in transaction.topics] == [("t", [0, 1]), ("u", [0])]
    wire.respond()
    assert result.result() == dict.fromkeys(partitions, NONE)


@in_virtual_time
async def test_sender_with_request_in_flight_queues_others_for_the_next_request() -> None:
    wire, sender = world()
    first = sender.add_or_verify(COORDINATOR, verification("a"))
    gathered = [sender.add_or_verify(COORDINATOR, verification(name, adds=name == "c")) for name in "bcd"]
    sender.add_or_verify(OTHER, verification("e"))
    assert wire.sent_transactions() == [[("a", 0, True)], [("e", 0, True)]]
    wire.respond(0)
    assert only(first) is NONE
    assert wire.sent_transactions()[2] == [("b", 0, True), ("c", 0, False), ("d", 0, True)]
    wire.respond(2, ErrorCode.TRANSACTION_ABORTABLE)
    assert [only(result) for result in gathered] == [ErrorCode.TRANSACTION_ABORTABLE] * 3
    assert len(wire.sent) == 3


@in_virtual_time
async def test_requests_of_one_transactional_id_are_sent_one_after_the_other() -> None:
    wire, sender = world()
    sender.add_or_verify(COORDINATOR, verification("x"))
    first, second = (sender.add_or_verify(COORDINATOR, verification("a", partition=index)) for index in (0, 1))
    sender.add_or_verify(COORDINATOR, verification("b"))
    wire.respond()
    assert wire.sent_transactions()[1] == [("a", 0, True), ("b", 0, True)]
    wire.respond()
    assert first.result() == {TopicPartition("t", 0): NONE}
    assert not second.done()
    wire.respond(error=ErrorCode.CONCURRENT_TRANSACTIONS)
    assert second.result() == {TopicPartition("t", 1): ErrorCode.CONCURRENT_TRANSACTIONS}


@in_virtual_time
async def test_request_of_newer_epoch_fences_queued_ones_of_older_epochs() -> None:
    """B09: no request is sent for a zombie, whichever of the two comes first."""
    wire, sender = world()
    sender.add_or_verify(COORDINATOR, verification("x"))
    zombie = sender.add_or_verify(COORDINATOR, verification("a", epoch=3))
    successor = sender.add_or_verify(COORDINATOR, verification("a", epoch=4))
    late_zombie = sender.add_or_verify(COORDINATOR, verification("a", epoch=3))
    assert (only(zombie), only(late_zombie)) == (FENCED, FENCED)
    wire.respond()
    assert wire.sent_transactions()[1] == [("a", 4, True)]
    wire.respond()
    assert only(successor) is NONE


@in_virtual_time
async def test_requests_of_different_producer_ids_do_not_fence_each_other() -> None:
    wire, sender = world()
    sender.add_or_verify(COORDINATOR, verification("x"))
    exhausted = sender.add_or_verify(COORDINATOR, verification("a", producer_id=1, epoch=32_766))
    renewed = sender.add_or_verify(COORDINATOR, verification("a", producer_id=2, epoch=0))
    wire.respond()
    wire.respond(error=FENCED)
    wire.respond()
    assert (only(exhausted), only(renewed)) == (FENCED, NONE)


@in_virtual_time
async def test_request_on_lost_connection_ends_with_network_exception_and_next_is_sent() -> None:
    wire, sender = world()
    first, second = (
        sender.add_or_verify(COORDINATOR, verification("a")),
        sender.add_or_verify(COORDINATOR, verification("b")),
    )
    wire.sent[0][2](None)
    assert only(first) is NETWORK
    assert wire.sent_transactions()[1] == [("b", 0, True)]
    wire.respond()
    assert only(second) is NONE


@in_virtual_time
async def test_response_after_the_timeout_is_ignored() -> None:
    wire, sender = world()
    first, second = (
        sender.add_or_verify(COORDINATOR, verification("a")),
        sender.add_or_verify(COORDINATOR, verification("b")),
    )
    await first
    assert only(first) is NETWORK
    assert len(wire.sent) == 2
    wire.respond(0)
    assert not second.done()
    wire.respond(1)
    assert only(second) is NONE


@pytest.mark.parametrize(
    ("top", "expected"),
    [
        (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ErrorCode.INVALID_TXN_STATE),
        (ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
@in_virtual_time
async def test_error_of_whole_response_is_that_of_every_transaction(top: ErrorCode, expected: ErrorCode) -> None:
    wire, sender = world()
    sender.add_or_verify(COORDINATOR, verification("x"))
    results = [sender.add_or_verify(COORDINATOR, verification(name)) for name in "ab"]
    wire.respond()
    wire.respond(top=top)
    assert [only(result) for result in results] == [expected, expected]


@in_virtual_time
async def test_partition_that_response_omits_ends_with_network_exception() -> None:
    """B02: a partition without a result must not count as verified."""
    wire, sender = world()
    result = sender.add_or_verify(COORDINATOR, verification("a"))
    wire.sent[0][2](AddPartitionsToTxnResponse(results_by_transaction=[AddPartitionsToTxnResult(transactional_id="a")]))
    assert only(result) is NETWORK


@in_virtual_time
async def test_unknown_error_code_becomes_unknown_server_error() -> None:
    wire, sender = world()
    result = sender.add_or_verify(COORDINATOR, verification("a"))
    partition = AddPartitionsToTxnPartitionResult(partition_index=0, partition_error_code=999)
    topic = AddPartitionsToTxnTopicResult(name="t", results_by_partition=[partition])
    transaction = AddPartitionsToTxnResult(transactional_id="a", topic_results=[topic])
    wire.sent[0][2](AddPartitionsToTxnResponse(results_by_transaction=[transaction]))
    assert only(result) is ErrorCode.UNKNOWN_SERVER_ERROR


@in_virtual_time
async def test_stop_completes_pending_requests_with_network_exception() -> None:
    wire, sender = world()
    results = [sender.add_or_verify(COORDINATOR, verification(name)) for name in "aab"]
    sender.stop()
    assert [only(result) for result in results] == [NETWORK] * 3
    wire.respond(0)
    assert len(wire.sent) == 1


LEAST_ELEMENTS = 7_000
"""What a broker accepts in AddPartitionsToTxn if ``oncelog.request.max.elements`` is set to the least."""
LEAST_BYTES = 16 << 20


def assert_accepted(request: AddPartitionsToTxnRequest) -> None:
    buffer = encode(request, 5)
    assert len(buffer) <= LEAST_BYTES
    decoder(AddPartitionsToTxnRequest, 5)(buffer, 0, LEAST_ELEMENTS)


def respond_to_all(wire: Wire) -> int:
    """Respond to every request, including those that follow. Return how many there were."""
    count = 0
    while count < len(wire.sent):
        assert_accepted(wire.sent[count][1])
        wire.respond(count)
        count += 1
    return count


@in_virtual_time
async def test_request_for_12000_partitions_is_sent_in_parts_with_one_result() -> None:
    wire, sender = world()
    partitions = frozenset(TopicPartition(f"t{index}", 0) for index in range(12_000))
    result = sender.add_or_verify(COORDINATOR, VerificationRequest("a", ProducerIdAndEpoch(4, 2), partitions, True))
    assert len(wire.sent) == 1, "one request at a time"
    assert respond_to_all(wire) == 12_000 // MOST_PARTITIONS
    assert await result == dict.fromkeys(partitions, NONE)


@in_virtual_time
async def test_parts_of_a_request_keep_their_own_errors() -> None:
    wire, sender = world()
    partitions = frozenset(TopicPartition("t", index) for index in range(MOST_PARTITIONS + 1))
    result = sender.add_or_verify(COORDINATOR, VerificationRequest("a", ProducerIdAndEpoch(4, 2), partitions, True))
    wire.respond(0, ErrorCode.CONCURRENT_TRANSACTIONS)
    wire.respond(1)
    errors = await result
    assert errors.keys() == partitions
    assert errors[TopicPartition("t", 0)] is ErrorCode.CONCURRENT_TRANSACTIONS
    assert errors[TopicPartition("t", MOST_PARTITIONS)] is NONE


@in_virtual_time
async def test_requests_of_many_transactions_are_split_to_fit_the_limits() -> None:
    wire, sender = world()
    results = [sender.add_or_verify(COORDINATOR, verification(f"id-{number}")) for number in range(5_000)]
    assert respond_to_all(wire) == 4
    assert {only(result) for result in results} == {NONE}


@in_virtual_time
async def test_requests_of_long_transactional_ids_are_split_to_fit_the_limits() -> None:
    wire, sender = world()
    results = [
        sender.add_or_verify(COORDINATOR, verification(f"{number:032000}"))
        for number in range(MOST_ID_BYTES // 32_000 + 2)
    ]
    assert respond_to_all(wire) == 3
    assert {only(result) for result in results} == {NONE}


@in_virtual_time
async def test_transactional_id_with_many_partitions_does_not_delay_others() -> None:
    wire, sender = world()
    sender.add_or_verify(COORDINATOR, verification("first"))
    many = frozenset(TopicPartition(f"t{index}", 0) for index in range(MOST_PARTITIONS))
    greedy = [
        sender.add_or_verify(COORDINATOR, VerificationRequest("a", ProducerIdAndEpoch(4, 2), many, False))
        for _ in range(3)
    ]
    others = [sender.add_or_verify(COORDINATOR, verification(f"id-{n}", partition=n)) for n in range(1_000)]
    wire.respond(0)
    wire.respond(1)
    assert greedy[0].done()
    wire.respond(2)
    assert all(other.done() for other in others)
