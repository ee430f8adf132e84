"""Which reported log ends hold: those of this incarnation, at the leader epoch of the state without a leader."""

from oncelog.coordinator.controller.log_ends import LogEnd, LogEnds
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.leader_and_isr import (
    LeaderAndIsrPartitionError,
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicError,
    LeaderAndIsrTopicState,
)
from oncelog.protocol.topic_partition import TopicPartition

T0 = TopicPartition("t", 0)
TOPIC_ID = bytes(15) + b"t"
NAMES = {TOPIC_ID: "t"}
NEXT, LAST = 30, 5


def request(leader_epoch: int = 6, leader: int = -1, broker_epoch: int = 12) -> LeaderAndIsrRequest:
    state = LeaderAndIsrPartitionState(partition_index=0, leader=leader, leader_epoch=leader_epoch)
    topic = LeaderAndIsrTopicState(topic_name="t", topic_id=TOPIC_ID, partition_states=[state])
    return LeaderAndIsrRequest(broker_epoch=broker_epoch, topic_states=[topic])


def response(
    offset: int = NEXT, *, error: ErrorCode = ErrorCode.NONE, topic_id: bytes = TOPIC_ID
) -> LeaderAndIsrResponse:
    partition = LeaderAndIsrPartitionError(partition_index=0, last_leader_epoch=LAST, log_end_offset=offset)
    if offset < 0:
        partition.last_leader_epoch = -1
    topic = LeaderAndIsrTopicError(topic_id=topic_id, partition_errors=[partition])
    return LeaderAndIsrResponse(error_code=error, topics=[topic])


def taken(sent: LeaderAndIsrRequest, received: LeaderAndIsrResponse) -> LogEnds:
    ends = LogEnds()
    assert ends.take(2, sent, received, NAMES) <= {T0}
    return ends


def test_log_end_holds_at_its_leader_epoch_and_for_its_incarnation() -> None:
    """B110"""
    ends = taken(request(), response())
    assert ends.of(T0, 6, {2: 12}) == {2: LogEnd(LAST, NEXT)}
    assert ends.of(T0, 7, {2: 12}) == {}
    assert ends.of(T0, 6, {2: 13}) == {}
    assert ends.of(T0, 6, {}) == {}
    ends.forget(T0)
    assert ends.of(T0, 6, {2: 12}) == {}


def test_log_end_that_is_not_reported_or_not_about_a_state_without_leader_is_unknown() -> None:
    for ends in (
        taken(request(), response(-1)),
        taken(request(leader=3), response()),
        taken(request(leader=-2), response()),
        taken(request(), response(error=ErrorCode.STALE_CONTROLLER_EPOCH)),
        taken(request(), response(topic_id=bytes(16))),
    ):
        assert ends.of(T0, 6, {2: 12}) == {}


def test_log_end_that_is_reported_again_is_not_new() -> None:
    ends = LogEnds()
    assert ends.take(2, request(), response(), NAMES) == {T0}
    assert ends.take(2, request(), response(), NAMES) == set()
    assert ends.take(3, request(broker_epoch=13), response(), NAMES) == {T0}
    assert ends.take(2, request(leader_epoch=8), response(NEXT - 1), NAMES) == {T0}
    assert ends.of(T0, 8, {2: 12, 3: 13}) == {2: LogEnd(LAST, NEXT - 1)}
