"""Questions to coordinators on other brokers: what shares a request, what waits, and what an answer means."""

import asyncio

import pytest

from oncelog.broker.transactions.add_partitions_to_txn_sender import (
    MOST_ID_BYTES,
    MOST_PARTITIONS,
    AddPartitionsToTxnSender,
    PartitionErrors,
    Question,
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
    """A ``BrokerChannel`` whose other ends answer when the test says so."""

    def __init__(self) -> None:
        self.sent: list[tuple[int, AddPartitionsToTxnRequest, OnResponse]] = []

    def send(self, broker_id: int, request: Message, on_response: OnResponse) -> None:
        assert isinstance(request, AddPartitionsToTxnRequest)
        self.sent.append((broker_id, request, on_response))

    def asked(self) -> list[list[tuple[str, int, bool]]]:
        """(transactional id, epoch, whether to verify only) of each request."""
        return [
            [(t.transactional_id, t.producer_epoch, t.verify_only) for t in request.transactions]
            for _, request, _ in self.sent
        ]

    def answer(self, number: int = -1, error: ErrorCode = NONE, *, top: ErrorCode = NONE) -> None:
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


def question(
    transactional_id: str = "a", *, producer_id: int = 1, epoch: int = 0, partition: int = 0, adds: bool = False
) -> Question:
    producer = ProducerIdAndEpoch(producer_id, epoch)
    return Question(transactional_id, producer, frozenset({TopicPartition("t", partition)}), adds)


def only(future: asyncio.Future[PartitionErrors]) -> ErrorCode:
    (error,) = future.result().values()
    return error


def world() -> tuple[Wire, AddPartitionsToTxnSender]:
    wire = Wire()
    return wire, AddPartitionsToTxnSender(wire, request_timeout_ms=1_000)


@in_virtual_time
async def test_a_question_leaves_at_once_and_its_partitions_are_grouped_by_topic() -> None:
    wire, sender = world()
    partitions = frozenset({TopicPartition("t", 1), TopicPartition("u", 0), TopicPartition("t", 0)})
    answer = sender.ask(COORDINATOR, Question("a", ProducerIdAndEpoch(4, 2), partitions, True))
    ((broker_id, request, _),) = wire.sent
    (transaction,) = request.transactions
    assert broker_id == COORDINATOR
    assert (transaction.producer_id, transaction.producer_epoch, transaction.verify_only) == (4, 2, False)
    assert [(topic.name, topic.partitions) for topic in transaction.topics] == [("t", [0, 1]), ("u", [0])]
    wire.answer()
    assert answer.result() == dict.fromkeys(partitions, NONE)


@in_virtual_time
async def test_to_each_coordinator_one_request_is_under_way_and_the_next_takes_all_that_gathered() -> None:
    wire, sender = world()
    first = sender.ask(COORDINATOR, question("a"))
    gathered = [sender.ask(COORDINATOR, question(name, adds=name == "c")) for name in "bcd"]
    sender.ask(OTHER, question("e"))
    assert wire.asked() == [[("a", 0, True)], [("e", 0, True)]]
    wire.answer(0)
    assert only(first) is NONE
    assert wire.asked()[2] == [("b", 0, True), ("c", 0, False), ("d", 0, True)]
    wire.answer(2, ErrorCode.TRANSACTION_ABORTABLE)
    assert [only(answer) for answer in gathered] == [ErrorCode.TRANSACTION_ABORTABLE] * 3
    assert len(wire.sent) == 3


@in_virtual_time
async def test_questions_of_one_transactional_id_go_one_after_the_other() -> None:
    wire, sender = world()
    sender.ask(COORDINATOR, question("x"))
    first, second = (sender.ask(COORDINATOR, question("a", partition=index)) for index in (0, 1))
    sender.ask(COORDINATOR, question("b"))
    wire.answer()
    assert wire.asked()[1] == [("a", 0, True), ("b", 0, True)]
    wire.answer()
    assert first.result() == {TopicPartition("t", 0): NONE}
    assert not second.done()
    wire.answer(error=ErrorCode.CONCURRENT_TRANSACTIONS)
    assert second.result() == {TopicPartition("t", 1): ErrorCode.CONCURRENT_TRANSACTIONS}


@in_virtual_time
async def test_a_question_of_a_newer_epoch_fences_those_that_wait() -> None:
    """B09: a zombie is not asked about, whichever of the two comes first."""
    wire, sender = world()
    sender.ask(COORDINATOR, question("x"))
    zombie = sender.ask(COORDINATOR, question("a", epoch=3))
    successor = sender.ask(COORDINATOR, question("a", epoch=4))
    late_zombie = sender.ask(COORDINATOR, question("a", epoch=3))
    assert (only(zombie), only(late_zombie)) == (FENCED, FENCED)
    wire.answer()
    assert wire.asked()[1] == [("a", 4, True)]
    wire.answer()
    assert only(successor) is NONE


@in_virtual_time
async def test_epochs_of_different_producer_ids_say_nothing_about_each_other() -> None:
    wire, sender = world()
    sender.ask(COORDINATOR, question("x"))
    exhausted = sender.ask(COORDINATOR, question("a", producer_id=1, epoch=32_766))
    renewed = sender.ask(COORDINATOR, question("a", producer_id=2, epoch=0))
    wire.answer()
    wire.answer(error=FENCED)
    wire.answer()
    assert (only(exhausted), only(renewed)) == (FENCED, NONE)


@in_virtual_time
async def test_a_lost_connection_decides_nothing_and_the_next_request_goes_out() -> None:
    wire, sender = world()
    first, second = sender.ask(COORDINATOR, question("a")), sender.ask(COORDINATOR, question("b"))
    wire.sent[0][2](None)
    assert only(first) is NETWORK
    assert wire.asked()[1] == [("b", 0, True)]
    wire.answer()
    assert only(second) is NONE


@in_virtual_time
async def test_an_answer_that_takes_too_long_decides_nothing_and_is_ignored_later() -> None:
    wire, sender = world()
    first, second = sender.ask(COORDINATOR, question("a")), sender.ask(COORDINATOR, question("b"))
    await first
    assert only(first) is NETWORK
    assert len(wire.sent) == 2
    wire.answer(0)
    assert not second.done()
    wire.answer(1)
    assert only(second) is NONE


@pytest.mark.parametrize(
    ("top", "told"),
    [
        (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ErrorCode.INVALID_TXN_STATE),
        (ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
@in_virtual_time
async def test_an_error_of_the_whole_request_is_that_of_every_question(top: ErrorCode, told: ErrorCode) -> None:
    wire, sender = world()
    sender.ask(COORDINATOR, question("x"))
    answers = [sender.ask(COORDINATOR, question(name)) for name in "ab"]
    wire.answer()
    wire.answer(top=top)
    assert [only(answer) for answer in answers] == [told, told]


@in_virtual_time
async def test_what_an_answer_leaves_out_is_not_decided() -> None:
    """B02: silence is not consent."""
    wire, sender = world()
    answer = sender.ask(COORDINATOR, question("a"))
    wire.sent[0][2](AddPartitionsToTxnResponse(results_by_transaction=[AddPartitionsToTxnResult(transactional_id="a")]))
    assert only(answer) is NETWORK


@in_virtual_time
async def test_a_code_from_the_future_is_an_unknown_error() -> None:
    wire, sender = world()
    answer = sender.ask(COORDINATOR, question("a"))
    partition = AddPartitionsToTxnPartitionResult(partition_index=0, partition_error_code=999)
    topic = AddPartitionsToTxnTopicResult(name="t", results_by_partition=[partition])
    result = AddPartitionsToTxnResult(transactional_id="a", topic_results=[topic])
    wire.sent[0][2](AddPartitionsToTxnResponse(results_by_transaction=[result]))
    assert only(answer) is ErrorCode.UNKNOWN_SERVER_ERROR


@in_virtual_time
async def test_stopping_tells_everybody_who_waits() -> None:
    wire, sender = world()
    answers = [sender.ask(COORDINATOR, question(name)) for name in "aab"]
    sender.stop()
    assert [only(answer) for answer in answers] == [NETWORK] * 3
    wire.answer(0)
    assert len(wire.sent) == 1


LEAST_ELEMENTS = 7_000
"""What a broker accepts in AddPartitionsToTxn if ``oncelog.request.max.elements`` is set to the least."""
LEAST_BYTES = 16 << 20


def assert_accepted(request: AddPartitionsToTxnRequest) -> None:
    buffer = encode(request, 5)
    assert len(buffer) <= LEAST_BYTES
    decoder(AddPartitionsToTxnRequest, 5)(buffer, 0, LEAST_ELEMENTS)


def answer_all(wire: Wire) -> int:
    """Answer request after request, as long as there is another. Returns how many there were."""
    answered = 0
    while answered < len(wire.sent):
        assert_accepted(wire.sent[answered][1])
        wire.answer(answered)
        answered += 1
    return answered


@in_virtual_time
async def test_a_question_about_12000_partitions_is_asked_in_parts_and_answered_once() -> None:
    wire, sender = world()
    partitions = frozenset(TopicPartition(f"t{index}", 0) for index in range(12_000))
    answer = sender.ask(COORDINATOR, Question("a", ProducerIdAndEpoch(4, 2), partitions, True))
    assert len(wire.sent) == 1, "one request at a time"
    assert answer_all(wire) == 12_000 // MOST_PARTITIONS
    assert await answer == dict.fromkeys(partitions, NONE)


@in_virtual_time
async def test_each_part_of_a_question_has_its_own_answer() -> None:
    wire, sender = world()
    partitions = frozenset(TopicPartition("t", index) for index in range(MOST_PARTITIONS + 1))
    answer = sender.ask(COORDINATOR, Question("a", ProducerIdAndEpoch(4, 2), partitions, True))
    wire.answer(0, ErrorCode.CONCURRENT_TRANSACTIONS)
    wire.answer(1)
    errors = await answer
    assert errors.keys() == partitions
    assert errors[TopicPartition("t", 0)] is ErrorCode.CONCURRENT_TRANSACTIONS
    assert errors[TopicPartition("t", MOST_PARTITIONS)] is NONE


@in_virtual_time
async def test_questions_of_many_transactions_go_into_requests_that_fit() -> None:
    wire, sender = world()
    answers = [sender.ask(COORDINATOR, question(f"id-{number}")) for number in range(5_000)]
    assert answer_all(wire) == 4
    assert {only(answer) for answer in answers} == {NONE}


@in_virtual_time
async def test_long_transactional_ids_go_into_requests_that_fit() -> None:
    wire, sender = world()
    answers = [sender.ask(COORDINATOR, question(f"{number:032000}")) for number in range(MOST_ID_BYTES // 32_000 + 2)]
    assert answer_all(wire) == 3
    assert {only(answer) for answer in answers} == {NONE}


@in_virtual_time
async def test_an_id_that_asks_much_does_not_keep_others_from_the_next_request() -> None:
    wire, sender = world()
    sender.ask(COORDINATOR, question("first"))
    many = frozenset(TopicPartition(f"t{index}", 0) for index in range(MOST_PARTITIONS))
    greedy = [sender.ask(COORDINATOR, Question("a", ProducerIdAndEpoch(4, 2), many, False)) for _ in range(3)]
    others = [sender.ask(COORDINATOR, question(f"id-{n}", partition=n)) for n in range(1_000)]
    wire.answer(0)
    wire.answer(1)
    assert greedy[0].done()
    wire.answer(2)
    assert all(other.done() for other in others)
