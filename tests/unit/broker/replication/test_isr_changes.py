"""Proposals on their way to the controller, over a channel that a test answers."""

import asyncio
import logging

import pytest

from oncelog.broker.replication.isr_changes import AlterPartitionSender, IsrProposal
from oncelog.coordinator.ports import OnResponse
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.alter_partition import (
    AlteredPartition,
    AlteredTopic,
    AlterPartitionRequest,
    AlterPartitionResponse,
)
from oncelog.protocol.schema import Message
from oncelog.protocol.topic_partition import TopicPartition
from tests.unit.broker.virtual_time import end_of_turn, in_virtual_time

ME, CONTROLLER = 1, 3
TOPIC_ID = b"topic id of t   "


class Channel:
    """Keeps what was sent until the test answers."""

    def __init__(self) -> None:
        self.sent: list[tuple[int, AlterPartitionRequest, OnResponse]] = []

    def send(self, broker_id: int, request: Message, on_response: OnResponse) -> None:
        assert isinstance(request, AlterPartitionRequest)
        self.sent.append((broker_id, request, on_response))

    def requested(self) -> list[list[int]]:
        """The partitions of each request so far."""
        return [
            [requested.partition_index for topic in request.topics for requested in topic.partitions]
            for _, request, _ in self.sent
        ]

    def respond(self, *errors: ErrorCode, top: ErrorCode = ErrorCode.NONE) -> None:
        """Respond to the last request, partition by partition."""
        _, request, on_response = self.sent[-1]
        (topic,) = request.topics
        altered = [
            AlteredPartition(partition_index=requested.partition_index, error_code=error, partition_epoch=7)
            for requested, error in zip(
                topic.partitions, errors or [ErrorCode.NONE] * len(topic.partitions), strict=True
            )
        ]
        on_response(
            AlterPartitionResponse(error_code=top, topics=[AlteredTopic(topic_id=topic.topic_id, partitions=altered)])
        )


class Fixture:
    """A sender, and what was decided."""

    def __init__(self) -> None:
        self.channel = Channel()
        self.controller_id = CONTROLLER
        self.decided: list[tuple[int, ErrorCode]] = []
        self.sender = AlterPartitionSender(
            self.channel, broker_id=ME, broker_epoch=lambda: 55, controller_id=lambda: self.controller_id
        )

    def submit(self, index: int = 0) -> IsrProposal:
        proposal = IsrProposal(
            TopicPartition("t", index),
            TOPIC_ID,
            leader_epoch=4,
            partition_epoch=6,
            isr=[(1, 55), (2, -1)],
            on_decided=lambda _, response: self.decided.append((index, ErrorCode(response.error_code))),
        )
        self.sender.submit(proposal)
        return proposal


@in_virtual_time
async def test_proposals_of_one_turn_share_a_request() -> None:
    fixture = Fixture()
    fixture.submit(0)
    fixture.submit(1)
    await end_of_turn()
    ((broker_id, request, _),) = fixture.channel.sent
    assert (broker_id, request.broker_id, request.broker_epoch) == (CONTROLLER, ME, 55)
    (topic,) = request.topics
    assert (topic.topic_name, topic.topic_id) == ("t", TOPIC_ID)
    first, _ = topic.partitions
    assert (first.leader_epoch, first.partition_epoch, first.new_isr) == (4, 6, [1, 2])
    assert [(broker.broker_id, broker.broker_epoch) for broker in first.new_isr_with_epochs] == [(1, 55), (2, -1)]
    fixture.channel.respond()
    assert fixture.decided == [(0, ErrorCode.NONE), (1, ErrorCode.NONE)]


@in_virtual_time
async def test_exception_of_one_partition_holds_up_no_other(caplog: pytest.LogCaptureFixture) -> None:
    """What waits for a high watermark runs within the decision, and may fail."""
    fixture = Fixture()
    failing = fixture.submit(0)
    failing.on_decided = lambda *_: ["no such index"][1]
    fixture.submit(1)
    await end_of_turn()
    fixture.submit(2)
    fixture.channel.respond()
    fixture.channel.respond()
    assert fixture.decided == [(1, ErrorCode.NONE), (2, ErrorCode.NONE)]
    assert "could not act on the controller's decision" in caplog.text


@in_virtual_time
async def test_second_request_waits_for_the_response_to_the_first() -> None:
    fixture = Fixture()
    fixture.submit(0)
    await end_of_turn()
    fixture.submit(1)
    fixture.submit(2)
    await end_of_turn()
    assert fixture.channel.requested() == [[0]]
    fixture.channel.respond()
    assert fixture.channel.requested() == [[0], [1, 2]]


@pytest.mark.parametrize("failure", ["no answer", "stale broker epoch", "not controller"])
@in_virtual_time
async def test_undecided_proposal_is_sent_to_the_controller_of_that_time(failure: str) -> None:
    fixture = Fixture()
    fixture.submit(0)
    await end_of_turn()
    fixture.controller_id = 2
    match failure:
        case "no answer":
            fixture.channel.sent[-1][2](None)
        case "stale broker epoch":
            fixture.channel.respond(top=ErrorCode.STALE_BROKER_EPOCH)
        case _:
            fixture.channel.respond(top=ErrorCode.NOT_CONTROLLER)
    fixture.submit(1)
    await end_of_turn()
    assert fixture.channel.requested() == [[0]]
    await asyncio.sleep(0.1)
    assert [sorted(indexes) for indexes in fixture.channel.requested()] == [[0], [0, 1]]
    assert fixture.channel.sent[-1][0] == 2
    fixture.channel.respond()
    assert sorted(fixture.decided) == [(0, ErrorCode.NONE), (1, ErrorCode.NONE)]


@in_virtual_time
async def test_proposal_waits_while_there_is_no_controller() -> None:
    fixture = Fixture()
    fixture.controller_id = -1
    fixture.submit(0)
    await asyncio.sleep(1)
    assert fixture.channel.sent == []
    fixture.controller_id = CONTROLLER
    await asyncio.sleep(0.1)
    assert fixture.channel.requested() == [[0]]


@pytest.mark.parametrize(
    "error",
    [
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.INELIGIBLE_REPLICA,
        ErrorCode.OPERATION_NOT_ATTEMPTED,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INVALID_REQUEST,
    ],
)
@in_virtual_time
async def test_refusal_is_a_decision(error: ErrorCode) -> None:
    fixture = Fixture()
    fixture.submit(0)
    await end_of_turn()
    fixture.channel.respond(error)
    await asyncio.sleep(1)
    assert fixture.decided == [(0, error)]
    assert len(fixture.channel.sent) == 1


@in_virtual_time
async def test_withdrawn_proposal_is_neither_sent_nor_decided() -> None:
    """B59"""
    fixture = Fixture()
    proposal = fixture.submit(0)
    await end_of_turn()
    proposal.withdrawn = True
    fixture.channel.respond()
    assert fixture.decided == []
    fixture.submit(1).withdrawn = True
    await asyncio.sleep(1)
    assert len(fixture.channel.sent) == 1


@in_virtual_time
async def test_many_proposals_travel_in_requests_of_some_hundred_partitions() -> None:
    """A leader of 20,000 partitions lost a follower: no request may be too large for the controller."""
    fixture = Fixture()
    for index in range(20_000):
        fixture.submit(index)
    await end_of_turn()
    while len(fixture.decided) < 20_000:
        fixture.channel.respond()
    sizes = [len(indexes) for indexes in fixture.channel.requested()]
    assert max(sizes) <= 500
    assert sum(sizes) == 20_000


@in_virtual_time
async def test_proposals_that_cannot_be_decided_do_not_hold_up_the_others() -> None:
    fixture = Fixture()
    for index in range(1_000):
        fixture.submit(index)
    await end_of_turn()
    fixture.channel.respond(*[ErrorCode.UNKNOWN_SERVER_ERROR] * 500)
    await asyncio.sleep(0.1)
    fixture.channel.respond()
    assert [index for index, _ in fixture.decided] == list(range(500, 1_000))


@pytest.mark.parametrize("error", [None, ErrorCode.NOT_CONTROLLER, ErrorCode.UNKNOWN_SERVER_ERROR])
@in_virtual_time
async def test_controller_that_does_not_decide_gets_requests_with_growing_backoff(
    error: ErrorCode | None, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    fixture = Fixture()
    fixture.submit(0)
    await end_of_turn()
    requested = 0
    for _ in range(6_000):
        if len(fixture.channel.sent) > requested:
            requested = len(fixture.channel.sent)
            if error is None:
                fixture.channel.sent[-1][2](None)
            elif error is ErrorCode.NOT_CONTROLLER:
                fixture.channel.respond(top=error)
            else:
                fixture.channel.respond(error)
        await asyncio.sleep(0.01)
    assert 50 <= requested <= 100
    lines = [record.getMessage() for record in caplog.records]
    assert 1 <= len(lines) <= 13
    assert all(("no response" if error is None else error.name) in line for line in lines)
    fixture.controller_id = 2
    await asyncio.sleep(0.1)
    assert fixture.channel.sent[-1][0] == 2


@in_virtual_time
async def test_proposal_does_not_wait_for_an_undecided_one_of_another_partition() -> None:
    fixture = Fixture()
    fixture.submit(0)
    for _ in range(8):
        await asyncio.sleep(2)
        fixture.channel.respond(ErrorCode.UNKNOWN_SERVER_ERROR)
    fixture.submit(1)
    await end_of_turn()
    assert fixture.channel.requested()[-1] == [1]
    fixture.channel.respond()
    await asyncio.sleep(2)
    fixture.channel.respond()
    assert fixture.decided == [(1, ErrorCode.NONE), (0, ErrorCode.NONE)]
    fixture.submit(2)
    await end_of_turn()
    fixture.channel.respond(ErrorCode.UNKNOWN_SERVER_ERROR)
    await asyncio.sleep(0.06)
    assert fixture.channel.requested()[-1] == [2]
    assert len(fixture.channel.sent) == 12


@in_virtual_time
async def test_stopped_sender_sends_nothing() -> None:
    fixture = Fixture()
    fixture.submit(0)
    await end_of_turn()
    fixture.channel.sent[-1][2](None)
    fixture.sender.stop()
    fixture.submit(1)
    await asyncio.sleep(1)
    assert len(fixture.channel.sent) == 1
