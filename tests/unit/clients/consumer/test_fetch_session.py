"""Incremental fetch sessions: what is said when, and back to the beginning whenever something is odd."""

import pytest

from oncelog.clients.consumer.fetch_session import FetchSession, SessionRequest, Wanted
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from oncelog.protocol.schema import ZERO_UUID
from oncelog.protocol.topic_partition import TopicPartition

ORDERS_ID, CLICKS_ID, NEW_ID = bytes([1] * 16), bytes([2] * 16), bytes([3] * 16)
ORDERS = [TopicPartition("orders", index) for index in range(3)]
CLICKS = TopicPartition("clicks", 0)


def at(offset: int, topic_id: bytes = ORDERS_ID) -> Wanted:
    return Wanted(topic_id, offset, 0, 1000)


def respond(*partitions: TopicPartition, session_id: int = 7, error: ErrorCode = ErrorCode.NONE) -> FetchResponse:
    """From version 13 on: topics by their ids."""
    ids = {"orders": ORDERS_ID, "clicks": CLICKS_ID}
    topics = [
        FetchableTopicResponse(topic_id=ids[topic], partitions=[PartitionData(partition_index=index)])
        for topic, index in partitions
    ]
    return FetchResponse(session_id=session_id, error_code=error, responses=topics)


def named(request: SessionRequest) -> dict[str, dict[int, int]]:
    return {topic.topic: {p.partition: p.fetch_offset for p in topic.partitions} for topic in request.topics}


def forgotten(request: SessionRequest) -> dict[tuple[str, bytes], list[int]]:
    return {(topic.topic, topic.topic_id): topic.partitions for topic in request.forgotten}


def begun(*partitions: TopicPartition) -> FetchSession:
    session = FetchSession()
    session.next_request({tp: at(0) for tp in partitions})
    assert session.take(respond(*partitions)) is not None
    return session


def test_session_begins_with_everything_and_continues_with_changes() -> None:
    session = FetchSession()
    first = session.next_request({ORDERS[0]: at(0), ORDERS[1]: at(0)})
    assert (first.session_id, first.session_epoch, first.at_most) == (0, 0, None)
    assert named(first) == {"orders": {0: 0, 1: 0}}
    assert set(session.take(respond(ORDERS[0], ORDERS[1])) or ()) == {ORDERS[0], ORDERS[1]}

    second = session.next_request({ORDERS[0]: at(5), ORDERS[1]: at(0), ORDERS[2]: at(0)})
    assert (second.session_id, second.session_epoch) == (7, 1)
    assert named(second) == {"orders": {0: 5, 2: 0}}
    assert session.take(respond()) == {}

    third = session.next_request({ORDERS[0]: at(5), ORDERS[2]: at(0)})
    assert third.session_epoch == 2
    assert named(third) == {}
    assert forgotten(third) == {("orders", ORDERS_ID): [1]}


def test_topic_created_anew_replaces_the_old_one() -> None:
    session = begun(ORDERS[0])
    request = session.next_request({ORDERS[0]: at(0, NEW_ID)})
    assert forgotten(request) == {("orders", ORDERS_ID): [0]}
    assert [(topic.topic_id, len(topic.partitions)) for topic in request.topics] == [(NEW_ID, 1)]


def test_names_are_used_where_an_id_is_not_known() -> None:
    session = FetchSession()
    assert session.next_request({ORDERS[0]: at(0), CLICKS: at(0, ZERO_UUID)}).at_most == 12
    by_name = FetchResponse(
        session_id=7,
        responses=[
            FetchableTopicResponse(topic=topic, partitions=[PartitionData(partition_index=0)])
            for topic in ("orders", "clicks")
        ],
    )
    assert set(session.take(by_name) or ()) == {ORDERS[0], CLICKS}
    assert session.next_request({ORDERS[0]: at(0)}).at_most == 12  # The one to be forgotten has no id.
    session.take(respond())
    assert session.next_request({ORDERS[0]: at(1)}).at_most is None


def test_request_without_a_session_is_full() -> None:
    session = FetchSession()
    for _ in range(2):
        request = session.next_request({ORDERS[0]: at(0)})
        assert (request.session_id, request.session_epoch, named(request)) == (0, 0, {"orders": {0: 0}})
        assert session.take(respond(ORDERS[0], session_id=0)) is not None
    assert session.closing_request() is None


@pytest.mark.parametrize(
    ("error", "kept_id"),
    [
        (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0),
        (ErrorCode.INVALID_FETCH_SESSION_EPOCH, 7),
        (ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR, 7),
    ],
)
def test_session_after_an_error_is_closed_and_replaced(error: ErrorCode, kept_id: int) -> None:
    session = begun(ORDERS[0], ORDERS[1])
    session.next_request({ORDERS[0]: at(0), ORDERS[1]: at(0)})
    assert session.take(respond(error=error, session_id=0)) is None
    request = session.next_request({ORDERS[0]: at(0), ORDERS[1]: at(0)})
    assert (request.session_id, request.session_epoch) == (kept_id, 0)
    assert named(request) == {"orders": {0: 0, 1: 0}}
    assert request.forgotten == []


def test_session_without_a_response_is_replaced() -> None:
    session = begun(ORDERS[0])
    session.next_request({ORDERS[0]: at(0)})
    session.fail()
    request = session.next_request({ORDERS[0]: at(0)})
    assert (request.session_id, request.session_epoch, named(request)) == (7, 0, {"orders": {0: 0}})


def test_full_response_must_have_all_partitions_and_no_others() -> None:
    session = FetchSession()
    session.next_request({ORDERS[0]: at(0), ORDERS[1]: at(0)})
    assert session.take(respond(ORDERS[0])) is None
    session = begun(ORDERS[0])
    session.next_request({ORDERS[0]: at(0)})
    assert session.take(respond(ORDERS[1])) is None
    assert session.next_request({ORDERS[0]: at(0)}).session_epoch == 0


def test_session_is_closed_by_its_last_epoch() -> None:
    closing = begun(ORDERS[0]).closing_request()
    assert closing is not None
    assert (closing.session_id, closing.session_epoch, closing.topics) == (7, -1, [])


def test_epochs_go_round() -> None:
    session = begun(ORDERS[0])
    session._epoch = 2**31 - 1
    assert session.next_request({ORDERS[0]: at(0)}).session_epoch == 2**31 - 1
    session.take(respond())
    assert session.next_request({ORDERS[0]: at(0)}).session_epoch == 1
