"""The coordinator around its groups: leadership, loading, waiting for the high watermark, timers."""

import pytest

from oncelog.coordinator.group.coordinator import GroupDescription
from oncelog.coordinator.group.log_records import GroupChanged
from oncelog.coordinator.group.offset_requests import Committer
from oncelog.coordinator.group.settings import GroupSettings
from oncelog.coordinator.group.state import GroupState
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.internal.placement import partition_for
from oncelog.protocol.records.record_batch import NewRecord, build_batch
from tests.unit.coordinator.group.group_world import GROUP, GroupWorld, group_world

NO_DELAY = GroupSettings(group_initial_rebalance_delay_ms=0)
COMMIT_TIMEOUT = NO_DELAY.offsets_commit_timeout_ms / 1000


def test_members_that_join_together_share_a_generation() -> None:
    with group_world() as w:
        first = w.join().response
        second = w.join()
        assert second.is_waiting
        assert w.heartbeat(first.member_id) is ErrorCode.REBALANCE_IN_PROGRESS
        again = w.join(first.member_id)
        assert again.response.generation == second.response.generation == 2
        waiting = w.sync(second.response.member_id, generation=2)
        w.sync(first.member_id, {second.response.member_id: b"half"}, generation=2)
        assert waiting.response.assignment == b"half"
        assert w.heartbeat(second.response.member_id, generation=2) is ErrorCode.NONE


def test_members_are_named_by_client_or_instance_and_chance() -> None:
    with group_world() as w:
        named = [w.join(version=4).response.member_id for _ in range(2)]
        named.append(w.join(instance="one").response.member_id)
        assert len(set(named)) == 3
        assert [name[:4] for name in named] == ["clie", "clie", "one-"]


# Time


def test_silent_member_is_removed_by_the_groups_timer() -> None:
    with group_world() as w:
        member = w.member()
        for _ in range(5):
            w.sleep(8)
            assert w.heartbeat(member) is ErrorCode.NONE
        w.sleep(11)
        assert w.heartbeat(member) is ErrorCode.UNKNOWN_MEMBER_ID
        assert w.group.state is GroupState.EMPTY
        (_, (says,)) = w.batches()[-1]
        assert isinstance(says, GroupChanged)
        assert says.image is not None
        assert says.image.members == ()


def test_group_has_one_timer_whatever_its_members_do() -> None:
    with group_world() as w:
        member = w.member()
        for _ in range(100):
            w.heartbeat(member)
        assert len(w.shard._timers) == 1
        w.leave(member)
        assert not w.shard._timers


def test_join_of_closed_connection_is_given_up() -> None:
    """B68: the connection of a parked member may be gone; that breaks nothing, and the others go on."""
    settings = GroupSettings(group_initial_rebalance_delay_ms=0, group_new_member_join_timeout_ms=5_000)
    with group_world(settings=settings) as w:
        member = w.member()
        gone = w.join()
        w.sleep(6)
        assert gone.response.error is ErrorCode.UNKNOWN_MEMBER_ID
        assert w.join(member).response.generation == 2


def test_session_time_outs_have_bounds() -> None:
    with group_world() as w:
        for session_ms in (5_999, 1_800_001):
            assert w.join(session_ms=session_ms).response.error is ErrorCode.INVALID_SESSION_TIMEOUT
        assert w.join(session_ms=6_000).response.error is ErrorCode.NONE


def test_empty_group_waits_for_company() -> None:
    with group_world(settings=GroupSettings(group_initial_rebalance_delay_ms=3_000)) as w:
        first, second = w.join(), w.join()
        w.sleep(2.9)
        assert first.is_waiting
        w.sleep(3.2)
        assert first.response.generation == second.response.generation == 1


# The high watermark


def test_assignment_is_sent_when_it_is_replicated() -> None:
    with group_world() as w:
        w.hold_replication()
        joined = w.join().response
        sync = w.sync(joined.member_id, {joined.member_id: b"all"})
        assert w.group.state is GroupState.STABLE, "it is applied at once"
        retried = w.sync(joined.member_id)
        assert sync.is_waiting
        assert retried.is_waiting, "also a later reader of it waits"
        w.replicate()
        assert sync.response.assignment == retried.response.assignment == b"all"


def test_assignment_that_is_not_replicated_is_not_sent() -> None:
    with group_world() as w:
        w.hold_replication()
        joined = w.join().response
        sync = w.sync(joined.member_id)
        w.sleep(COMMIT_TIMEOUT + 0.1)
        assert sync.response.error is ErrorCode.COORDINATOR_NOT_AVAILABLE
        w.replicate()
        assert sync.response.error is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert w.sync(joined.member_id).response.error is ErrorCode.NONE, "there is no failure, only not yet"


def test_refused_assignment_changes_nothing() -> None:
    with group_world() as w:
        joined = w.join().response
        w.refuse()
        assert w.sync(joined.member_id).response.error is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert w.group.state is GroupState.COMPLETING_REBALANCE
        assert not w.batches()
        assert w.sync(joined.member_id).response.error is ErrorCode.NONE


def test_static_member_learns_its_new_name_when_that_is_replicated() -> None:
    with group_world() as w:
        first = w.join(instance="one").response
        w.sync(first.member_id, instance="one")
        w.hold_replication()
        back = w.join(instance="one")
        assert back.is_waiting
        w.replicate()
        assert back.response.member_id in w.group.roster
        w.refuse()
        assert w.join(instance="one").response.error is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert back.response.member_id in w.group.roster


def test_leave_group_returns_when_the_empty_group_is_replicated() -> None:
    with group_world() as w:
        member = w.member()
        w.hold_replication()
        leave = w.leave(member, "nobody")
        assert leave.is_waiting
        w.replicate()
        assert leave.response == [ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID]


def test_group_whose_emptiness_was_refused_offers_it_again() -> None:
    with group_world() as w:
        member = w.member()
        w.refuse()
        assert w.leave(member).response is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert w.group.state is GroupState.PREPARING_REBALANCE
        w.sleep(1)
        assert w.group.state is GroupState.EMPTY


# Leadership


def test_coordinator_without_leadership_responds_not_coordinator() -> None:
    with group_world() as w:
        member = w.member()
        w.do(w.log.depose)
        w.do(lambda: w.coordinator.on_resigned(0))
        assert w.join().response.error is ErrorCode.NOT_COORDINATOR
        assert w.sync(member).response.error is ErrorCode.NOT_COORDINATOR
        assert w.heartbeat(member) is ErrorCode.NOT_COORDINATOR
        assert w.leave(member).response is ErrorCode.NOT_COORDINATOR
        assert w.fetch().response is ErrorCode.NOT_COORDINATOR
        assert set(w.commit().response.values()) == {ErrorCode.NOT_COORDINATOR}
        assert set(w.txn_commit().response.values()) == {ErrorCode.NOT_COORDINATOR}
        assert w.delete_groups(GROUP).response == {GROUP: ErrorCode.NOT_COORDINATOR}
        assert w.coordinator.describe_group(GROUP) is ErrorCode.NOT_COORDINATOR
        assert w.coordinator.list_groups() == (ErrorCode.NONE, [])


def test_unknown_offsets_topic_means_no_coordinator() -> None:
    with group_world() as w:
        w.metadata.counts.clear()
        assert w.join().response.error is ErrorCode.NOT_COORDINATOR


def test_parked_requests_get_an_error_when_leadership_ends() -> None:
    with group_world() as w:
        member = w.member()
        parked = w.join()
        w.hold_replication()
        commit = w.commit(committer=Committer(GROUP, member, None, 1))
        fetch = w.fetch()
        w.elect()
        assert parked.response.error is ErrorCode.NOT_COORDINATOR
        assert set(commit.response.values()) == {ErrorCode.NOT_COORDINATOR}
        assert fetch.response is ErrorCode.NOT_COORDINATOR


def test_resigned_shards_timers_are_silent() -> None:
    with group_world() as w:
        w.member()
        before = len(w.log.batches)
        w.do(lambda: w.coordinator.on_resigned(0))
        w.sleep(100)
        assert len(w.log.batches) == before


def test_groups_of_loading_partition_are_not_served() -> None:
    with group_world() as w:
        member = w.member()
        w.hold_replication()
        w.commit(committer=Committer("another"))
        w.elect()
        w.load()
        assert w.join(member).response.error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert w.heartbeat(member) is ErrorCode.NONE
        assert w.sync(member).response.error is ErrorCode.REBALANCE_IN_PROGRESS, "older clients know no other error"
        assert w.fetch().response is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert w.leave(member).response is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert w.coordinator.list_groups()[0] is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


def test_loaded_member_goes_on_as_if_nothing_had_happened() -> None:
    with group_world() as w:
        member = w.member()
        w.elect()
        w.load()
        assert w.heartbeat(member) is ErrorCode.NONE
        assert w.sync(member).response.assignment == b"all"
        w.sleep(11)
        assert w.group.state is GroupState.EMPTY, "sessions begin anew when a partition is loaded"


def test_unreplicated_record_is_loaded_but_not_served() -> None:
    """Also for groups (see B83): records above the high watermark may be kept or lost; nobody may know them yet."""
    with group_world() as w:
        w.hold_replication()
        joined = w.join().response
        w.sync(joined.member_id)
        w.elect()
        w.load()
        assert w.heartbeat(joined.member_id, generation=9) is ErrorCode.NONE, "still loading"
        w.replicate()
        w.load()
        assert w.heartbeat(joined.member_id, generation=9) is ErrorCode.ILLEGAL_GENERATION
        w.hold_replication()
        w.leave(joined.member_id)
        w.elect(lost_records=1)
        w.load()
        assert w.group.state is GroupState.STABLE


def test_log_that_cannot_be_read_is_read_again_later() -> None:
    with group_world() as w:
        epoch_log = w.log.epoch_log
        assert epoch_log is not None
        epoch_log.append(build_batch([NewRecord(0, b"\0\1", b"")]))
        w.elect()
        w.load()
        assert w.join().response.error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert w.coordinator.list_groups() == (ErrorCode.NONE, [])
        assert [failure.partition(":")[0] for failure in w.tasks.failures] == ["load __consumer_offsets-0"]


def test_records_of_other_kinds_are_passed_over(caplog: pytest.LogCaptureFixture) -> None:
    with group_world() as w:
        epoch_log = w.log.epoch_log
        assert epoch_log is not None
        epoch_log.append(build_batch([NewRecord(0, b"\0\5\0\1", b"")]))
        w.commit(5)
        w.elect()
        w.load()
        assert w.fetched().offset == 5
        assert "type 5" in caplog.text


def test_group_is_served_by_the_partition_of_its_hash() -> None:
    with group_world(partitions=5) as w:
        for group in ("a", "b", "group-17"):
            w.member(group=group)
            home = partition_for(group, 5)
            assert w.batches(home), group
        with_groups = {index for index in range(5) if w.batches(index)}
        assert with_groups == {partition_for(group, 5) for group in ("a", "b", "group-17")}
        _, groups = w.coordinator.list_groups()
        assert sorted(group.group_id for group in groups) == ["a", "b", "group-17"]


# Looking at groups, and deleting them


def test_stable_group_is_described_with_its_members() -> None:
    with group_world() as w:
        member = w.member(topics=b"topics")
        stable = w.coordinator.describe_group(GROUP)
        assert isinstance(stable, GroupDescription)
        assert (stable.state, stable.protocol_type, stable.protocol_name) == (GroupState.STABLE, "consumer", "range")
        (described,) = stable.members
        assert (described.member_id, described.subscription, described.assignment) == (member, b"topics", b"all")
        assert (described.client_id, described.client_host) == ("client", "/127.0.0.1")
        w.join()
        rebalancing = w.coordinator.describe_group(GROUP)
        assert isinstance(rebalancing, GroupDescription)
        assert rebalancing.protocol_name == ""
        assert {(m.subscription, m.assignment) for m in rebalancing.members} == {(b"", b"")}
        assert w.coordinator.describe_group("other") is ErrorCode.GROUP_ID_NOT_FOUND


def test_group_with_members_is_not_deleted() -> None:
    with group_world() as w:
        member = w.member()
        assert w.delete_groups(GROUP, "other").response == {
            GROUP: ErrorCode.NON_EMPTY_GROUP,
            "other": ErrorCode.GROUP_ID_NOT_FOUND,
        }
        w.commit(committer=Committer(GROUP, member, None, 1))
        w.leave(member)
        assert w.delete_groups(GROUP).response == {GROUP: ErrorCode.NONE}
        assert w.coordinator.describe_group(GROUP) is ErrorCode.GROUP_ID_NOT_FOUND
        assert w.fetched().offset == -1
        w.elect()
        w.load()
        assert w.coordinator.describe_group(GROUP) is ErrorCode.GROUP_ID_NOT_FOUND


def test_deletion_gets_response_when_replicated_and_is_refused_whole() -> None:
    with group_world() as w:
        w.commit()
        w.refuse()
        assert w.delete_groups(GROUP).response == {GROUP: ErrorCode.COORDINATOR_NOT_AVAILABLE}
        assert w.fetched().offset == 1
        w.hold_replication()
        deletion = w.delete_groups(GROUP)
        assert deletion.is_waiting
        w.replicate()
        assert deletion.response == {GROUP: ErrorCode.NONE}


def test_groups_of_several_partitions_are_deleted_together() -> None:
    with group_world(partitions=5) as w:
        groups = ["a", "b", "c", "group-17"]
        for group in groups:
            w.leave(w.member(group=group), group=group)
        assert w.delete_groups(*groups, "a").response == dict.fromkeys(groups, ErrorCode.NONE)
        assert w.delete_groups().response == {}


def test_group_ids_may_be_empty_only_where_there_are_no_members() -> None:
    with group_world() as w:
        for error in (
            w.join(group="").response.error,
            w.sync("m", group="").response.error,
            w.heartbeat("m", group=""),
            w.leave("m", group="").response,
            w.delete_offsets(group="").response,
        ):
            assert error is ErrorCode.INVALID_GROUP_ID
        assert w.fetch(group="").response == {}
        assert w.coordinator.describe_group("") is ErrorCode.GROUP_ID_NOT_FOUND
        assert w.delete_groups("").response == {"": ErrorCode.GROUP_ID_NOT_FOUND}


def test_unknown_groups_have_unknown_members() -> None:
    with group_world() as w:
        assert w.join("m").response.error is ErrorCode.UNKNOWN_MEMBER_ID
        assert w.sync("m").response.error is ErrorCode.UNKNOWN_MEMBER_ID
        assert w.heartbeat("m") is ErrorCode.UNKNOWN_MEMBER_ID
        assert w.leave("m").response == [ErrorCode.UNKNOWN_MEMBER_ID]
        assert w.coordinator.list_groups() == (ErrorCode.NONE, [])


def test_group_that_never_came_to_be_leaves_nothing() -> None:
    with group_world() as w:
        w.join(protocols=())
        assert w.coordinator.list_groups() == (ErrorCode.NONE, [])
        w.join(version=4)
        assert len(w.coordinator.list_groups()[1]) == 1
        w.sleep(11)
        assert w.coordinator.list_groups() == (ErrorCode.NONE, [])
        assert not w.batches()


def test_stopped_coordinator_has_responded_to_parked_requests() -> None:
    world = GroupWorld()
    world.elect()
    world.load()
    world.member()
    parked = world.join()
    world.stop()
    assert parked.response.error is ErrorCode.NOT_COORDINATOR
