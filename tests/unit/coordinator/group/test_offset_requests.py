"""Commits, transactional commits, fetches, deletions and expiry of offsets, on a coordinator and its log."""

from functools import partial

import pytest

from oncelog.coordinator.group.log_records import OffsetCommitted
from oncelog.coordinator.group.offset_requests import Committer, OffsetToCommit, expired_partitions
from oncelog.coordinator.group.settings import GroupSettings
from oncelog.coordinator.group.shard import Producer
from oncelog.coordinator.group.state import GroupState
from oncelog.coordinator.log_loading import LOAD_SLICE_BYTES
from oncelog.protocol.compiler import encode
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.internal.consumer_protocol import ConsumerProtocolSubscription
from oncelog.protocol.records.record_walk import WorkBudget
from oncelog.protocol.schema import ZERO_UUID
from oncelog.protocol.topic_partition import TopicPartition
from tests.unit.coordinator.group.group_world import GROUP, P0, P1, PRODUCER, TOPIC_ID, GroupWorld, group_world

OK = ErrorCode.NONE
HOUR_MS = 3_600_000
RETENTION = GroupSettings(
    group_initial_rebalance_delay_ms=0,
    offsets_retention_ms=24 * HOUR_MS,
    offsets_retention_check_interval_ms=HOUR_MS,
)
HOUR, DAY = 3600, 24 * 3600
LONG_SESSION_MS = 1_800_000
ELSEWHERE = TopicPartition("u", 0)


def subscribed(*topics: str) -> bytes:
    return b"\0\0" + encode(ConsumerProtocolSubscription(topics=list(topics)), 0)


# Commits


def test_simple_consumer_commits_and_fetches() -> None:
    with group_world() as w:
        assert w.fetched() == (-1, -1, "", OK)
        offsets = [OffsetToCommit(P0, 5, 2, "note", TOPIC_ID), OffsetToCommit(P1, 7)]
        assert w.commit_all(offsets).response == {P0: OK, P1: OK}
        assert w.fetched() == (5, 2, "note", OK)
        assert w.fetch().response == {P0: (5, 2, "note", OK), P1: (7, -1, "", OK)}
        assert len(w.batches()) == 1, "one request, one batch"


def test_members_commit_in_their_own_generation() -> None:
    with group_world() as w:
        assert w.commit(committer=Committer(GROUP, "m", None, 1)).response == {P0: ErrorCode.ILLEGAL_GENERATION}
        member = w.member()
        assert w.commit(committer=Committer(GROUP, member, None, 1)).response == {P0: OK}
        assert w.commit(committer=Committer(GROUP, member, None, 2)).response == {P0: ErrorCode.ILLEGAL_GENERATION}
        assert w.commit(committer=Committer(GROUP, "other", None, 1)).response == {P0: ErrorCode.UNKNOWN_MEMBER_ID}
        assert w.commit(committer=Committer(GROUP, member, "i", 1)).response == {P0: ErrorCode.UNKNOWN_MEMBER_ID}
        assert w.commit().response == {P0: ErrorCode.UNKNOWN_MEMBER_ID}, "simple consumers must wait until it is empty"
        w.leave(member)
        assert w.commit(9).response == {P0: OK}


def test_commit_extends_the_session_of_its_member() -> None:
    with group_world() as w:
        member = w.member()
        for _ in range(5):
            w.sleep(8)
            assert w.commit(committer=Committer(GROUP, member, None, 1)).response == {P0: OK}


def test_members_of_a_group_that_is_gone_may_get_group_id_not_found() -> None:
    with group_world() as w:
        call = w.begin(
            lambda reply: w.coordinator.commit_offsets(
                Committer(GROUP, "m", None, 3, unknown_group=ErrorCode.GROUP_ID_NOT_FOUND),
                [OffsetToCommit(P0, 1)],
                reply,
            )
        )
        assert call.response == {P0: ErrorCode.GROUP_ID_NOT_FOUND}


def test_offset_may_be_kept_for_ever() -> None:
    with group_world() as w:
        call = w.begin(
            lambda reply: w.coordinator.commit_offsets(
                Committer(GROUP, "", None, -1), [OffsetToCommit(P0, 1)], reply, retention_ms=2**63 - 1
            )
        )
        assert call.response == {P0: OK}
        w.sleep(2 * DAY)
        assert w.fetched() == (1, -1, "", OK)


def test_metadata_has_a_size_limit_for_each_partition() -> None:
    with group_world() as w:
        too_large = OffsetToCommit(P0, 1, -1, "x" * 4097)
        fits = OffsetToCommit(P1, 2, -1, "x" * 4096)
        assert w.commit_all([too_large, fits]).response == {P0: ErrorCode.OFFSET_METADATA_TOO_LARGE, P1: OK}
        assert w.commit_all([too_large]).response == {P0: ErrorCode.OFFSET_METADATA_TOO_LARGE}
        assert (w.fetched(P0).offset, w.fetched(P1).offset) == (-1, 2)


@pytest.mark.parametrize(
    ("refusal", "reported"),
    [
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.INVALID_COMMIT_OFFSET_SIZE),
    ],
)
def test_refused_commit_changes_nothing(refusal: ErrorCode, reported: ErrorCode) -> None:
    with group_world() as w:
        w.refuse(refusal)
        assert w.commit(5).response == {P0: reported}
        assert w.fetched().offset == -1
        w.refuse(refusal)
        assert w.txn_commit(5).response == {P0: reported}
        assert w.fetched(stable=True).error is OK, "and nothing waits for a marker"
        assert w.coordinator.list_groups() == (OK, []), "nor was a group made for it"


def test_epoch_is_not_lost_by_commits_without_one() -> None:
    """B70: the next consumer still notices a truncation, and does not imagine one."""
    with group_world() as w:
        w.commit(10, leader_epoch=3)
        w.commit(10)
        assert w.fetched().leader_epoch == 3
        w.metadata.epochs[P0] = 5
        w.commit(11)
        assert w.fetched().leader_epoch == 5
        w.txn_commit(12)
        w.marker()
        assert w.fetched()[:2] == (12, 5)
        w.elect()
        w.load()
        assert w.fetched()[:2] == (12, 5), "it is written, not only remembered"


def test_epoch_that_is_given_is_taken_as_it_is() -> None:
    with group_world() as w:
        w.commit(10, leader_epoch=3)
        w.commit(4, leader_epoch=1)
        assert w.fetched()[:2] == (4, 1)


# The high watermark


def test_commit_gets_response_when_it_is_replicated() -> None:
    with group_world() as w:
        w.hold_replication()
        first, second = w.commit(1), w.commit(2)
        assert first.is_waiting
        w.replicate(1)
        assert first.response == {P0: OK}
        assert second.is_waiting
        w.replicate()
        assert second.response == {P0: OK}


def test_commit_that_takes_too_long_is_not_a_failure() -> None:
    with group_world() as w:
        w.hold_replication()
        commit = w.commit(1)
        w.sleep(5.1)
        assert commit.response == {P0: ErrorCode.COORDINATOR_NOT_AVAILABLE}
        w.replicate()
        assert w.fetched().offset == 1


def test_fetch_returns_nothing_that_could_still_be_lost() -> None:
    with group_world() as w:
        w.commit(1)
        w.hold_replication()
        w.commit(2)
        fetch = w.fetch(P0)
        other = w.fetch(P0, group="another")
        assert fetch.is_waiting
        assert not other.is_waiting, "other groups do not wait for it"
        w.replicate()
        assert fetch.response == {P0: (2, -1, "", OK)}


def test_fetch_that_takes_too_long_looks_for_another_coordinator() -> None:
    with group_world() as w:
        w.hold_replication()
        w.commit(2)
        fetch = w.fetch(P0)
        w.sleep(5.1)
        assert fetch.response is ErrorCode.NOT_COORDINATOR


def test_offset_lost_in_failover_was_never_returned() -> None:
    with group_world() as w:
        w.commit(1)
        w.hold_replication()
        commit, fetch = w.commit(2), w.fetch(P0)
        w.elect(lost_records=1)
        w.load()
        assert commit.response == {P0: ErrorCode.NOT_COORDINATOR}
        assert fetch.response is ErrorCode.NOT_COORDINATOR
        assert w.fetched().offset == 1


# Transactions


def test_offsets_of_a_transaction_count_when_its_marker_is_appended() -> None:
    """B17: the marker is acknowledged after this call, so whoever knows of the commit sees its offsets."""
    with group_world() as w:
        w.commit(1)
        assert w.txn_commit(5).response == {P0: OK}
        assert w.fetched().offset == 1
        w.marker(commit=True)
        assert w.fetched().offset == 5


def test_offsets_of_an_aborted_transaction_never_count() -> None:
    """B72: after the abort the group is where it was before the transaction."""
    with group_world() as w:
        w.commit(1)
        w.txn_commit(5)
        w.txn_commit(9, partition=P1)
        w.marker(commit=False)
        assert w.fetched(stable=True) == (1, -1, "", OK)
        assert w.fetched(P1, stable=True) == (-1, -1, "", OK)


def test_positions_that_a_transaction_may_change_are_unstable() -> None:
    """B71: until its marker, and no longer; without require_stable the last certain position is told."""
    with group_world() as w:
        w.commit(1)
        w.txn_commit(5)
        unstable = (-1, -1, "", ErrorCode.UNSTABLE_OFFSET_COMMIT)
        assert w.fetched(stable=True) == unstable
        assert w.fetch(stable=True).response == {P0: unstable}
        assert w.fetched(P1, stable=True).error is OK
        assert w.fetched(stable=False) == (1, -1, "", OK)
        w.marker(commit=True)
        assert w.fetched(stable=True) == (5, -1, "", OK)


@pytest.mark.parametrize("commit", [True, False])
def test_pending_offset_is_resolved_by_its_marker_also_after_a_failover(commit: bool) -> None:
    """B71: whichever coordinator has the partition when the marker comes."""
    with group_world() as w:
        w.txn_commit(5)
        w.elect()
        w.load()
        assert w.fetched(stable=True).error is ErrorCode.UNSTABLE_OFFSET_COMMIT
        w.marker(commit=commit)
        assert w.fetched(stable=True) == (5 if commit else -1, -1, "", OK)
        w.elect()
        w.load()
        assert w.fetched(stable=True) == (5 if commit else -1, -1, "", OK)


def test_marker_that_comes_while_the_partition_loads_is_found_in_the_log() -> None:
    """B71"""
    with group_world() as w:
        w.txn_commit(5)
        w.elect()
        w.marker(commit=True)
        w.load()
        assert w.fetched(stable=True).offset == 5


def test_marker_that_comes_while_the_partition_loads_waits_for_its_turn() -> None:
    """B72: the half of the log that is read by then may hold offsets that an older marker, further on, has aborted."""
    with group_world() as w:
        w.txn_commit(5)
        large = [OffsetToCommit(TopicPartition("t", index), 1, -1, "x" * 4096) for index in range(10)]
        while w.log_size() < 10 * LOAD_SLICE_BYTES:
            w.commit_all(large, committer=Committer("another"))
        w.marker(commit=False)
        w.elect()
        assert w.shard.offsets.is_unstable(GROUP, P0), "the beginning of the log is read"
        assert not w.shard.is_open, "its end is not"
        w.marker(commit=True)
        w.load()
        assert w.fetched(stable=True) == (-1, -1, "", OK)


def test_marker_ends_what_came_before_it_and_nothing_else() -> None:
    with group_world() as w:
        other = Producer(8, 0)
        w.txn_commit(5)
        w.txn_commit(6, producer=other, partition=P1)
        w.marker(PRODUCER.id)
        w.txn_commit(7)
        assert w.fetched().offset == 5
        assert w.fetched(P1, stable=True).error is ErrorCode.UNSTABLE_OFFSET_COMMIT
        w.marker(other.id, commit=False)
        w.marker(PRODUCER.id, commit=False)
        assert w.fetch(stable=True).response == {P0: (5, -1, "", OK)}


def test_materialised_offsets_are_returned_when_the_marker_is_replicated() -> None:
    """B17: a marker that could still be lost has not decided anything yet."""
    with group_world() as w:
        w.txn_commit(5)
        w.hold_replication()
        w.marker(commit=True)
        fetch = w.fetch(P0, stable=True)
        assert fetch.is_waiting
        w.replicate()
        assert fetch.response == {P0: (5, -1, "", OK)}


def test_transactional_commit_is_the_producers_own_batch() -> None:
    with group_world() as w:
        w.txn_commit(5, producer=Producer(7, 3))
        ((header, (says,)),) = w.batches()
        assert header.is_transactional
        assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 3, -1)
        assert isinstance(says, OffsetCommitted)
        assert not w.batches()[0][0].is_control


def test_producer_whose_consumer_fell_out_of_the_group_is_fenced() -> None:
    """KIP-447: the group's metadata, as the consumer knows it, comes along with the offsets."""
    with group_world() as w:
        assert w.txn_commit(committer=Committer(GROUP, "m", None, 1)).response == {P0: ErrorCode.ILLEGAL_GENERATION}
        first = w.join(instance="i").response.member_id
        w.sync(first, instance="i")
        second = w.join(instance="i").response.member_id
        fenced = Committer(GROUP, first, "i", 1)
        assert w.txn_commit(committer=fenced).response == {P0: ErrorCode.FENCED_INSTANCE_ID}
        unknown = Committer(GROUP, "other", None, 1)
        assert w.txn_commit(committer=unknown).response == {P0: ErrorCode.UNKNOWN_MEMBER_ID}
        stale = Committer(GROUP, second, "i", 0)
        assert w.txn_commit(committer=stale).response == {P0: ErrorCode.ILLEGAL_GENERATION}
        assert w.txn_commit(committer=Committer(GROUP, second, "i", 1)).response == {P0: OK}
        assert w.txn_commit(committer=Committer(GROUP)).response == {P0: OK}, "a producer of before KIP-447"


def test_fenced_producers_commit_is_the_logs_to_refuse() -> None:
    with group_world() as w:
        w.refuse(ErrorCode.INVALID_PRODUCER_EPOCH)
        assert w.txn_commit().response == {P0: ErrorCode.INVALID_PRODUCER_EPOCH}
        assert w.txn_commit(producer=Producer(-1, -1)).response == {P0: ErrorCode.INVALID_PRODUCER_ID_MAPPING}
        assert not w.batches()


# Deletion


def test_offsets_are_deleted_unless_they_are_subscribed_to() -> None:
    with group_world() as w:
        assert w.delete_offsets(P0).response is ErrorCode.GROUP_ID_NOT_FOUND
        w.commit_all([OffsetToCommit(P0, 1), OffsetToCommit(P1, 2), OffsetToCommit(ELSEWHERE, 3)])
        member = w.member(topics=subscribed("t"))
        subscribed_error = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
        assert w.delete_offsets(P0, ELSEWHERE).response == {P0: subscribed_error, ELSEWHERE: OK}
        w.leave(member)
        assert w.delete_offsets(P0, TopicPartition("t", 9)).response == {P0: OK, TopicPartition("t", 9): OK}
        assert w.fetch().response == {P1: (2, -1, "", OK)}
        w.elect()
        w.load()
        assert w.fetch().response == {P1: (2, -1, "", OK)}


def test_group_whose_last_offset_is_deleted_stays_empty_until_it_is_deleted() -> None:
    """As in Kafka: `--delete-offsets` of the last offset leaves a group that `--delete` finds, after a reload, too."""
    with group_world() as w:
        w.commit(1)
        assert w.delete_offsets(P0).response == {P0: OK}
        assert [group.group_id for group in w.coordinator.list_groups()[1]] == [GROUP]
        assert w.group.state is GroupState.EMPTY
        assert w.delete_offsets(P0).response == {P0: OK}
        w.elect()
        w.load()
        assert w.group.state is GroupState.EMPTY
        assert w.delete_groups(GROUP).response == {GROUP: OK}
        assert w.delete_groups(GROUP).response == {GROUP: ErrorCode.GROUP_ID_NOT_FOUND}
        w.commit(1)
        assert w.delete_groups(GROUP).response == {GROUP: OK}
        w.elect()
        w.load()
        assert w.coordinator.list_groups() == (OK, [])


def test_group_without_offsets_and_members_is_forgotten_by_the_next_sweep() -> None:
    with group_world(settings=RETENTION) as w:
        w.commit(1)
        w.delete_offsets(P0)
        w.sleep(2 * HOUR)
        assert w.coordinator.list_groups() == (OK, [])


def test_offsets_of_a_live_group_of_another_kind_are_not_deleted() -> None:
    with group_world() as w:
        w.member()
        w.group.protocol_type = "connect"
        assert w.delete_offsets(P0).response is ErrorCode.NON_EMPTY_GROUP


def test_refused_deletion_changes_nothing() -> None:
    with group_world() as w:
        w.commit(1)
        w.refuse()
        assert w.delete_offsets(P0).response is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert w.fetched().offset == 1
        w.hold_replication()
        deletion = w.delete_offsets(P0)
        assert deletion.is_waiting
        w.replicate()
        assert deletion.response == {P0: OK}


def test_deleted_topic_removes_its_offsets() -> None:
    with group_world() as w:
        w.commit_all([OffsetToCommit(P0, 1, topic_id=TOPIC_ID), OffsetToCommit(ELSEWHERE, 3)])
        w.txn_commit(5, partition=P1)
        w.delete_topic("t")
        assert w.fetch(stable=True).response == {ELSEWHERE: (3, -1, "", OK)}
        w.marker(commit=True)
        w.elect()
        w.load()
        assert w.fetch(stable=True).response == {ELSEWHERE: (3, -1, "", OK)}


def test_recreated_topic_begins_without_offsets() -> None:
    with group_world() as w:
        successor = b"s" * 16
        w.commit_all([OffsetToCommit(P0, 1, topic_id=TOPIC_ID), OffsetToCommit(P1, 2, topic_id=successor)])
        fetch = w.fetch(P0, topic_id=successor).response
        assert fetch == {P0: (-1, -1, "", OK)}
        assert w.fetch(P0, topic_id=TOPIC_ID).response == {P0: (1, -1, "", OK)}
        w.delete_topic("t", successor=successor)
        assert w.fetch().response == {P1: (2, -1, "", OK)}
        w.delete_topic("t", successor, successor=ZERO_UUID)
        assert w.fetch().response == {P1: (2, -1, "", OK)}, "an id that is not known says nothing"


# Expiry


def test_offsets_of_a_simple_consumer_expire_after_their_last_commit() -> None:
    with group_world(settings=RETENTION) as w:
        w.commit(1)
        w.sleep(20 * HOUR)
        w.commit(2, partition=P1)
        w.sleep(5 * HOUR)
        assert w.fetch().response == {P1: (2, -1, "", OK)}
        w.sleep(21 * HOUR)
        assert w.fetch().response == {}
        assert w.coordinator.list_groups() == (OK, [])


def keep_alive(w: GroupWorld, seconds: int, *members: tuple[str, str | None]) -> None:
    """Sessions of half an hour, and heartbeats as rare as they allow."""
    for _ in range(seconds // 1200):
        w.sleep(1200)
        for member_id, instance in members:
            generation = w.group.generation
            w.do(partial(w.coordinator.heartbeat, GROUP, member_id, instance, generation))


def test_offsets_of_an_empty_group_expire_after_its_last_member_left() -> None:
    with group_world(settings=RETENTION) as w:
        member = w.member(session_ms=LONG_SESSION_MS)
        w.commit(committer=Committer(GROUP, member, None, 1))
        keep_alive(w, 2 * DAY, (member, None))
        w.leave(member)
        w.sleep(23 * HOUR)
        assert w.fetched().offset == 1
        w.sleep(2 * HOUR)
        assert w.fetch().response == {}
        assert w.coordinator.describe_group(GROUP) is ErrorCode.GROUP_ID_NOT_FOUND
        w.elect()
        w.load()
        assert w.coordinator.list_groups() == (OK, [])


def test_offsets_committed_to_an_empty_group_count_from_their_commit() -> None:
    with group_world(settings=RETENTION) as w:
        member = w.member()
        w.commit(9, partition=P1, committer=Committer(GROUP, member, None, 1))
        w.leave(member)
        w.sleep(23 * HOUR)
        w.commit(1)
        w.sleep(23 * HOUR)
        assert w.fetch().response == {P0: (1, -1, "", OK)}
        w.sleep(2 * HOUR)
        assert w.fetch().response == {}


def test_offsets_that_are_subscribed_to_do_not_expire() -> None:
    """B69: a stable group may have nothing to commit for days; what it left behind expires all the same."""
    with group_world(settings=RETENTION) as w:
        w.commit_all([OffsetToCommit(P0, 1), OffsetToCommit(ELSEWHERE, 2)])
        member = w.member(topics=subscribed("t"), session_ms=LONG_SESSION_MS)
        keep_alive(w, 2 * DAY, (member, None))
        assert w.group.state is GroupState.STABLE
        assert w.fetch().response == {P0: (1, -1, "", OK)}


def test_offsets_do_not_expire_while_group_rebalances() -> None:
    """B69: however long that takes: here two static members heartbeat and never rejoin."""
    with group_world(settings=RETENTION) as w:
        w.commit_all([OffsetToCommit(P0, 1), OffsetToCommit(ELSEWHERE, 2)])
        leader = w.join(session_ms=LONG_SESSION_MS).response.member_id
        statics = [w.join(instance=name, session_ms=LONG_SESSION_MS) for name in ("a", "b")]
        w.join(leader)
        w.leave(leader)
        keep_alive(w, 2 * DAY, *[(call.response.member_id, name) for call, name in zip(statics, "ab", strict=True)])
        assert w.group.state is GroupState.PREPARING_REBALANCE
        assert w.fetch().response == {P0: (1, -1, "", OK), ELSEWHERE: (2, -1, "", OK)}


@pytest.mark.parametrize(
    ("state", "expired"),
    [
        (GroupState.EMPTY, [P0, ELSEWHERE]),
        (GroupState.PREPARING_REBALANCE, []),
        (GroupState.COMPLETING_REBALANCE, []),
        (GroupState.STABLE, [ELSEWHERE]),
    ],
)
def test_expiry_depends_on_state_of_group(state: GroupState, expired: list[TopicPartition]) -> None:
    """B69"""
    with group_world() as w:
        w.commit_all([OffsetToCommit(P0, 1), OffsetToCommit(ELSEWHERE, 2)])
        member = w.member(topics=subscribed("t"))
        match state:
            case GroupState.EMPTY:
                w.leave(member)
            case GroupState.PREPARING_REBALANCE:
                w.join(protocols=[("range", subscribed("t"))])
            case GroupState.COMPLETING_REBALANCE:
                w.join(member, protocols=[("range", subscribed("t"))])
        assert w.group.state is state
        later = w.wall_clock() + 30 * DAY * 1000
        assert expired_partitions(w.shard, w.group, later, RETENTION.offsets_retention_ms, WorkBudget(0)) == expired


def test_offset_with_an_open_transaction_does_not_expire() -> None:
    with group_world(settings=RETENTION) as w:
        w.commit(1)
        w.txn_commit(2)
        w.sleep(3 * DAY)
        assert w.fetched().offset == 1
        w.marker(commit=False)
        w.sleep(2 * HOUR)
        assert w.fetch().response == {}


def test_commit_may_bring_its_own_retention() -> None:
    with group_world(settings=RETENTION) as w:
        w.begin(
            lambda reply: w.coordinator.commit_offsets(
                Committer(GROUP), [OffsetToCommit(P0, 1)], reply, retention_ms=2 * HOUR_MS
            )
        )
        w.sleep(1.5 * HOUR)
        w.elect()
        w.load()
        assert w.fetched().offset == 1
        w.sleep(1.5 * HOUR)
        assert w.fetch().response == {}


def test_refused_expiry_is_tried_again() -> None:
    with group_world(settings=RETENTION) as w:
        w.commit(1)
        w.refuse()
        w.sleep(24.5 * HOUR)
        assert w.fetched().offset == 1
        w.sleep(HOUR)
        assert w.fetch().response == {}


def test_many_expired_offsets_go_in_several_batches() -> None:
    with group_world(settings=RETENTION) as w:
        w.commit_all([OffsetToCommit(TopicPartition("t", index), 1) for index in range(2500)])
        before = len(w.batches())
        w.sleep(25 * HOUR)
        sizes = [header.records_count for header, _ in w.batches()[before:]]
        assert sizes == [1000, 1000, 501], "the last one has the group, too"
        assert w.coordinator.list_groups() == (OK, [])
