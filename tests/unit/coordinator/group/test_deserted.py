"""A coordinator whose followers are silent: its groups go on; nothing is told that a successor may know better."""

from collections.abc import Callable
from typing import Any

import pytest

from oncelog.coordinator.group.offset_requests import Committer
from oncelog.coordinator.group.settings import GroupSettings
from oncelog.coordinator.group.shard import SESSION_PARTS
from oncelog.coordinator.group.state import GroupState
from oncelog.protocol.errors import ErrorCode
from tests.unit.coordinator.group.group_world import GROUP, P0, GroupWorld, group_world

AWAY = ErrorCode.COORDINATOR_NOT_AVAILABLE
SESSION_MS = 6_000
COMMIT_TIMEOUT = GroupSettings().offsets_commit_timeout_ms / 1000


def desert(w: GroupWorld) -> None:
    """The followers fall silent: nothing is replicated any more."""
    w.hold_replication()
    w.log.is_deserted = True


def attend(w: GroupWorld) -> None:
    """They fetch again."""
    w.log.replicates_at_once = True
    w.log.is_deserted = False
    w.replicate()


def of(member_id: str, generation: int = 1) -> Committer:
    return Committer(GROUP, member_id, None, generation)


# Members stay


def test_heartbeats_get_responses_and_keep_the_session() -> None:
    with group_world() as w:
        member = w.member(session_ms=SESSION_MS)
        desert(w)
        for _ in range(10):
            w.sleep(2)
            assert w.heartbeat(member) is ErrorCode.NONE
        attend(w)
        assert w.heartbeat(member) is ErrorCode.NONE


def test_silent_member_is_expelled_only_when_followers_fetch_again() -> None:
    with group_world() as w:
        member = w.member(session_ms=SESSION_MS)
        desert(w)
        w.sleep(20)
        assert member in w.group.roster
        attend(w)
        w.sleep(1)
        assert w.group.state is GroupState.EMPTY


def test_member_that_was_not_heard_meanwhile_keeps_its_session_by_the_next_heartbeat() -> None:
    with group_world() as w:
        member = w.member(session_ms=SESSION_MS)
        desert(w)
        w.sleep(20)
        assert w.heartbeat(member) is ErrorCode.NONE
        attend(w)
        w.sleep(SESSION_MS / 1000 - 1)
        assert w.heartbeat(member) is ErrorCode.NONE


def test_new_generation_is_sent_when_followers_fetch_again_and_sessions_begin_then() -> None:
    settings = GroupSettings(group_initial_rebalance_delay_ms=0, offsets_commit_timeout_ms=60_000)
    with group_world(settings=settings) as w:
        first = w.member(session_ms=SESSION_MS)
        desert(w)
        second = w.join(session_ms=SESSION_MS)
        assert w.heartbeat(first) is ErrorCode.REBALANCE_IN_PROGRESS
        assert w.join(first, session_ms=SESSION_MS).response.generation == 2
        follower = w.sync(second.response.member_id, generation=2)
        leader = w.sync(first, {second.response.member_id: b"half"}, generation=2)
        w.sleep(20)
        assert leader.is_waiting
        assert follower.is_waiting
        attend(w)
        assert follower.response.assignment == b"half"
        assert leader.response.error is ErrorCode.NONE
        w.sleep(SESSION_MS / 1000 - 1)
        assert (
            w.heartbeat(first, generation=2) is w.heartbeat(second.response.member_id, generation=2) is ErrorCode.NONE
        )


def test_session_begins_when_assignment_is_sent() -> None:
    """Also without silence: the record took almost as long as the session lasts."""
    with group_world() as w:
        joined = w.join(session_ms=SESSION_MS).response
        w.hold_replication()
        sync = w.sync(joined.member_id, {joined.member_id: b"all"})
        w.sleep(COMMIT_TIMEOUT - 0.1)
        w.replicate()
        assert sync.response.error is ErrorCode.NONE
        w.sleep(SESSION_MS / 1000 - 1)
        assert w.heartbeat(joined.member_id) is ErrorCode.NONE


def test_member_of_deserted_coordinator_may_leave() -> None:
    with group_world() as w:
        member = w.member()
        desert(w)
        leave = w.leave(member)
        assert leave.is_waiting, "until the emptiness is replicated"
        attend(w)
        assert leave.response == [ErrorCode.NONE]


# Commits


def test_commit_gets_response_when_followers_fetch_again() -> None:
    with group_world() as w:
        member = w.member(session_ms=45_000)
        desert(w)
        commit = w.commit(7, committer=of(member))
        w.sleep(COMMIT_TIMEOUT - 1)
        assert commit.is_waiting
        attend(w)
        assert commit.response == {P0: ErrorCode.NONE}
        assert w.fetched().offset == 7


def test_commit_holds_up_its_members_heartbeats_for_a_part_of_the_session() -> None:
    """Whoever waits for a heartbeat's response for a whole session gives its membership up."""
    with group_world() as w:
        member = w.member(session_ms=SESSION_MS)
        w.hold_replication()
        commit = w.commit(7, committer=of(member))
        simple = w.commit(8)
        w.sleep(SESSION_MS / 1000 / SESSION_PARTS - 0.1)
        assert commit.is_waiting
        w.sleep(0.2)
        assert commit.response == {P0: ErrorCode.REQUEST_TIMED_OUT}
        assert simple.response == {P0: ErrorCode.UNKNOWN_MEMBER_ID}
        w.replicate()
        assert commit.response == {P0: ErrorCode.REQUEST_TIMED_OUT}, "it is answered once"
        assert w.fetched().offset == 7, "and it is no failure"


def test_commit_without_a_member_waits_for_the_whole_time() -> None:
    with group_world() as w:
        w.hold_replication()
        commit = w.commit(7)
        w.sleep(COMMIT_TIMEOUT - 0.1)
        assert commit.is_waiting
        w.sleep(0.2)
        assert commit.response == {P0: AWAY}


def test_commit_under_a_successor_is_never_acknowledged() -> None:
    with group_world() as w:
        assert w.commit(1).response == {P0: ErrorCode.NONE}
        desert(w)
        commit = w.commit(2)
        assert commit.is_waiting
        w.log.is_deserted = False
        w.elect(lost_records=1)
        w.load()
        assert commit.response == {P0: ErrorCode.NOT_COORDINATOR}
        assert w.fetched().offset == 1


# What a successor may know better


def test_offsets_are_not_given_out() -> None:
    """NOT_COORDINATOR is the one error by which consumers before 3.9 look for the coordinator again."""
    with group_world() as w:
        assert w.commit(1).response == {P0: ErrorCode.NONE}
        desert(w)
        assert w.fetch(P0).response is ErrorCode.NOT_COORDINATOR
        assert w.fetch().response is ErrorCode.NOT_COORDINATOR
        attend(w)
        assert w.fetched().offset == 1


def test_deserted_coordinator_deletes_nothing() -> None:
    with group_world() as w:
        w.commit(1)
        desert(w)
        assert w.delete_groups(GROUP).response == {GROUP: AWAY}
        assert w.delete_groups("nobody").response == {"nobody": AWAY}
        assert w.delete_offsets(P0).response is AWAY
        attend(w)
        assert w.fetched().offset == 1


@pytest.mark.parametrize(
    "ask",
    [
        lambda w, member: w.heartbeat("stranger"),
        lambda w, member: w.heartbeat(member, generation=7),
        lambda w, member: w.heartbeat(member, group="another"),
        lambda w, member: w.join("stranger").response.error,
        lambda w, member: w.join("stranger", instance="one").response.error,
        lambda w, member: w.join("stranger", group="another").response.error,
        lambda w, member: w.join(protocols=[("unknown", b"")]).response.error,
        lambda w, member: w.sync("stranger").response.error,
        lambda w, member: w.sync("stranger", instance="one").response.error,
        lambda w, member: w.sync(member, generation=7).response.error,
        lambda w, member: w.sync(member, group="another").response.error,
        lambda w, member: w.leave("stranger").response[0],
        lambda w, member: w.leave("stranger", group="another").response[0],
        lambda w, member: w.commit(committer=of("stranger")).response[P0],
        lambda w, member: w.commit(committer=of(member, 7)).response[P0],
        lambda w, member: w.commit(committer=Committer("another", "stranger", None, 7)).response[P0],
        lambda w, member: w.txn_commit(committer=of("stranger")).response[P0],
        lambda w, member: w.do(lambda: w.coordinator.describe_group("another")),
    ],
)
def test_deserted_coordinator_dismisses_no_member(ask: Callable[[GroupWorld, str], Any]) -> None:
    """A member that has joined at the successor must not be told that it is none: for a static one that is the end."""
    with group_world() as w:
        joined = w.join(instance="one").response
        w.sync(joined.member_id, {joined.member_id: b"all"}, instance="one")
        refused = ask(w, joined.member_id)
        assert refused not in (ErrorCode.NONE, AWAY)
        w.do(lambda: setattr(w.log, "is_deserted", True))
        assert ask(w, joined.member_id) is AWAY
