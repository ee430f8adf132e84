"""The follower's side of a fetch session: what each request tells, and which responses count."""

import pytest

from oncelog.broker.process.supervisor import Supervisor
from oncelog.broker.replication.followed_partition import FollowedPartition
from oncelog.broker.replication.follower_session import FetcherSettings, FollowerSession
from oncelog.broker.replication.partition import Partition
from oncelog.broker.replication.replica_host import ReplicaHost
from oncelog.broker.replication.topic_traffic import TopicTraffic
from oncelog.broker.storage.log_config import LogConfig
from oncelog.broker.storage.partition_log import AppendOrigin, PartitionLog
from oncelog.broker.storage.recovery import NotedLog
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from oncelog.protocol.messages.leader_and_isr import LeaderAndIsrPartitionState
from oncelog.protocol.schema import ZERO_UUID
from oncelog.protocol.topic_partition import TopicPartition
from tests.simulation.sim_disk import SimDisk
from tests.unit.broker.batches import batch, with_header
from tests.unit.broker.storage.logs import log_host

ME, LEADER = 1, 2
TOPIC_ID = b"topic id of t   "
SESSION = 77
EPOCH = 40


def partition(index: int, *, leader_epoch: int = 3) -> Partition:
    disk = SimDisk()
    disk.make_dirs("/data/t")
    name = TopicPartition("t", index)
    log = PartitionLog.open(log_host(disk, lambda: 1_000), "/data/t", name, LogConfig(), NotedLog())
    partition = Partition(name, ReplicaHost(broker_id=ME, spawn=Supervisor().spawn), TopicTraffic())
    partition.topic_id = TOPIC_ID
    partition.become_follower(
        LeaderAndIsrPartitionState(leader=LEADER, leader_epoch=leader_epoch, replicas=[ME, LEADER], isr=[LEADER]), log
    )
    return partition


def grow(followed: FollowedPartition) -> None:
    view, header = with_header(batch())
    followed.log.append_as_leader(view, header, 3, AppendOrigin.CLIENT)


def session(*indexes: int) -> FollowerSession:
    session = FollowerSession(FetcherSettings(replica_id=ME, max_wait_ms=500))
    for index in indexes:
        session.add(partition(index))
    return session


def request(session: FollowerSession) -> FetchRequest:
    requested = session.next_request(EPOCH)
    assert requested is not None
    return requested


def reported(requested: FetchRequest) -> list[tuple[int, int]]:
    """(partition, fetch offset) of each that a request names."""
    return [(each.partition, each.fetch_offset) for topic in requested.topics for each in topic.partitions]


def forgotten(requested: FetchRequest) -> list[int]:
    return [index for topic in requested.forgotten_topics_data for index in topic.partitions]


def respond(session: FollowerSession, *indexes: int, session_id: int = SESSION, error: int = 0) -> list[int]:
    """Respond to the oldest request; returns the partitions for which that counts."""
    data = [PartitionData(partition_index=index) for index in indexes]
    topics = [FetchableTopicResponse(topic_id=TOPIC_ID, partitions=data)]
    replies = session.take_response(FetchResponse(session_id=session_id, error_code=error, responses=topics))
    return [reply.partition_index for _, reply in replies]


def opened(*indexes: int) -> FollowerSession:
    new = session(*indexes)
    request(new)
    respond(new, *indexes)
    return new


def followed(session: FollowerSession, index: int) -> FollowedPartition:
    (found,) = (each for each in session if each.partition.topic_partition.partition == index)
    return found


def test_first_request_names_all_partitions_and_does_not_wait() -> None:
    """Whoever comes while it is under way could not overtake it."""
    requested = request(session(0, 1))
    assert reported(requested) == [(0, 0), (1, 0)]
    assert (requested.session_id, requested.session_epoch, requested.max_wait_ms) == (0, 0, 0)
    assert requested.replica_state is not None
    assert (requested.replica_state.replica_id, requested.replica_state.replica_epoch) == (ME, EPOCH)
    (topic,) = requested.topics
    assert (topic.topic_id, topic.partitions[0].current_leader_epoch) == (TOPIC_ID, 3)


def test_later_requests_name_what_has_changed() -> None:
    following = opened(0, 1)
    grow(followed(following, 1))
    for each in following:
        following.note(each)
    requested = request(following)
    assert reported(requested) == [(1, 1)]
    assert (requested.session_id, requested.session_epoch, requested.max_wait_ms) == (SESSION, 1, 500)
    respond(following)
    assert reported(request(following)) == []


def test_removed_partition_is_forgotten_once() -> None:
    following = opened(0, 1)
    following.remove(TopicPartition("t", 0))
    assert forgotten(request(following)) == [0]
    respond(following)
    assert forgotten(request(following)) == []


def test_partition_added_again_before_the_next_request_is_not_forgotten() -> None:
    following = opened(0, 1)
    following.remove(TopicPartition("t", 0))
    following.add(partition(0, leader_epoch=4))
    requested = request(following)
    assert (reported(requested), forgotten(requested)) == ([(0, 0)], [])
    assert requested.topics[0].partitions[0].current_leader_epoch == 4


def test_second_request_is_sent_only_if_urgent() -> None:
    following = opened(0)
    request(following)
    assert not following.may_send
    following.add(partition(1))
    assert following.may_send
    assert reported(request(following)) == [(1, 0)]
    following.add(partition(2))
    assert not following.may_send


def test_overtaken_request_may_fail_with_a_session_error() -> None:
    following = opened(0)
    request(following)
    following.add(partition(1))
    request(following)
    assert respond(following, error=ErrorCode.INVALID_FETCH_SESSION_EPOCH) == []
    assert respond(following, 0, 1) == [0, 1]
    assert request(following).session_epoch == 3


def test_response_that_crossed_the_overtaking_request_counts_for_partitions_not_sent_again() -> None:
    following = opened(0, 1)
    request(following)
    following.add(partition(1, leader_epoch=4))
    request(following)
    assert respond(following, 0, 1) == [0]
    grow(followed(following, 0))
    assert respond(following, 0, 1) == [1], "the leader has answered for 0 as it was before it grew"


@pytest.mark.parametrize(
    "error",
    [ErrorCode.FETCH_SESSION_ID_NOT_FOUND, ErrorCode.INVALID_FETCH_SESSION_EPOCH, ErrorCode.UNKNOWN_SERVER_ERROR],
)
def test_session_begins_anew_after_an_error(error: ErrorCode) -> None:
    following = opened(0, 1)
    request(following)
    assert respond(following, error=error) == []
    requested = request(following)
    assert (reported(requested), requested.session_id, requested.session_epoch) == ([(0, 0), (1, 0)], SESSION, 0)


def test_new_connection_begins_anew_and_closes_the_old_session() -> None:
    following = opened(0)
    request(following)
    following.connection_lost()
    requested = request(following)
    assert (reported(requested), requested.session_id, requested.session_epoch) == ([(0, 0)], SESSION, 0)
    assert respond(following, 0) == [0]
    assert request(following).session_epoch == 1


def test_leader_without_room_for_a_session_gets_full_requests_that_wait() -> None:
    following = session(0)
    request(following)
    assert respond(following, 0, session_id=0) == [0]
    requested = request(following)
    assert (reported(requested), requested.session_epoch, requested.max_wait_ms) == ([(0, 0)], 0, 500)


def test_resting_partition_is_left_out_until_it_resumes() -> None:
    following = opened(0, 1)
    resting = followed(following, 0)
    following.rest(resting)
    requested = request(following)
    assert forgotten(requested) == [0]
    following.resume(resting)
    assert following.may_send
    assert reported(request(following)) == [(0, 0)]


def test_last_partition_that_is_removed_closes_the_session() -> None:
    following = opened(0)
    following.remove(TopicPartition("t", 0))
    requested = request(following)
    assert (reported(requested), requested.session_id, requested.session_epoch) == ([], SESSION, -1)
    respond(following, session_id=0)
    assert following.next_request(EPOCH) is None
    following.add(partition(0))
    requested = request(following)
    assert (requested.session_id, requested.session_epoch, requested.max_wait_ms) == (0, 0, 0)


def test_partition_added_again_and_removed_at_once_is_forgotten() -> None:
    following = opened(0, 1)
    request(following)
    following.add(partition(1, leader_epoch=4))
    following.remove(TopicPartition("t", 1))
    respond(following)
    assert forgotten(request(following)) == [1]


def test_partition_that_resumes_and_is_removed_at_once_is_forgotten() -> None:
    following = opened(0, 1)
    request(following)
    following.rest(followed(following, 1))
    following.resume(followed(following, 1))
    following.remove(TopicPartition("t", 1))
    respond(following)
    assert forgotten(request(following)) == [1]


@pytest.mark.parametrize("rests", [False, True])
def test_partition_in_a_response_that_is_not_fetched_is_forgotten(rests: bool) -> None:
    """Whatever brought it into the leader's session."""
    following = opened(0, 1)
    if rests:
        following.rest(followed(following, 1))
    else:
        following.remove(TopicPartition("t", 1))
    assert forgotten(request(following)) == [1]
    assert respond(following, 1) == []
    assert forgotten(request(following)) == [1]


def test_partition_whose_log_changed_unnoticed_is_sent_again_after_its_next_response() -> None:
    following = opened(0)
    grow(followed(following, 0))
    assert reported(request(following)) == []
    assert respond(following, 0) == []
    assert reported(request(following)) == [(0, 1)]


def test_partition_is_forgotten_by_the_topic_id_under_which_it_was_fetched() -> None:
    following = session()
    created_again = partition(0)
    created_again.topic_id = bytes(15) + b"\x07"
    following.add(created_again)
    following.add(partition(1))
    request(following)
    respond(following)
    created_again.topic_id = TOPIC_ID
    following.add(created_again)
    requested = request(following)
    forgotten = [(topic.topic_id, topic.partitions) for topic in requested.forgotten_topics_data]
    assert forgotten == [(bytes(15) + b"\x07", [0])]
    assert reported(requested) == [(0, 0)]


def test_responses_are_in_vain_after_ten_in_a_row_of_which_nothing_counts() -> None:
    following = opened(0)
    for _ in range(9):
        request(following)
        respond(following, error=ErrorCode.UNKNOWN_SERVER_ERROR)
        assert not following.is_in_vain
    request(following)
    respond(following, 5)
    assert following.is_in_vain
    request(following)
    respond(following, 0)
    assert not following.is_in_vain


def test_responses_without_news_are_not_in_vain() -> None:
    following = opened(0)
    for _ in range(20):
        request(following)
        respond(following)
    assert not following.is_in_vain


def test_partitions_whose_topics_have_no_id_are_not_fetched_and_can_be_left() -> None:
    """B114: their keys are the same, and no request can name them."""
    session = FollowerSession(FetcherSettings(replica_id=ME))
    nameless = []
    for topic in ("clicks", "orders"):
        each = partition(0)
        each.topic_id, each.topic_partition = ZERO_UUID, TopicPartition(topic, 0)
        nameless.append(session.add(each))
    session.resume(nameless[0])
    assert session.next_request(EPOCH) is None
    session.add(partition(1))
    assert reported(request(session)) == [(1, 0)]
    for followed in nameless:
        assert session.remove(followed.partition.topic_partition) is followed
