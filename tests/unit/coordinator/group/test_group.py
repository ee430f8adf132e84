"""Scripts of the classic group protocol, step by step."""

from oncelog.coordinator.group.group import APPEND_RETRY_MS, Group
from oncelog.coordinator.group.member import GroupImage
from oncelog.coordinator.group.state import GroupRules, GroupState
from oncelog.protocol.compiler import encode
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.internal.consumer_protocol import ConsumerProtocolSubscription
from tests.unit.coordinator.group.group_driver import REBALANCE_MS, SESSION_MS, Driver

SESSION = SESSION_MS / 1000
REBALANCE = REBALANCE_MS / 1000


def subscription(*topics: str, version: int = 0) -> bytes:
    return version.to_bytes(2, "big") + encode(ConsumerProtocolSubscription(topics=list(topics)), version)


# A generation


def test_members_that_join_together_share_a_generation() -> None:
    driver = Driver()
    first = driver.join(protocols=[("range", b"A")])
    leader = first.result.member_id
    assert first.result.generation == 1
    second = driver.join(protocols=[("range", b"B")])
    assert second.is_parked
    assert driver.heartbeat(leader) is ErrorCode.REBALANCE_IN_PROGRESS
    again = driver.join(leader, protocols=[("range", b"A")])
    follower = second.result.member_id
    assert again.result.generation == second.result.generation == 2
    assert again.result.leader == second.result.leader == leader
    assert again.result.protocol_name == "range"
    assert [(m.member_id, m.metadata) for m in again.result.members] == [(leader, b"A"), (follower, b"B")]
    assert second.result.members == ()

    waiting = driver.sync(follower)
    assert waiting.is_parked
    own = driver.sync(leader, {leader: b"1", follower: b"2", "nobody": b"3"})
    assert (own.result.assignment, waiting.result.assignment) == (b"1", b"2")
    assert waiting.result.protocol_type == "consumer"
    assert waiting.result.protocol_name == "range"
    assert driver.state is GroupState.STABLE
    assert [image.members[1].assignment for image in driver.log] == [b"2"]
    assert driver.sync(follower).result.assignment == b"2"


def test_assignments_count_only_when_the_leader_hands_them_in() -> None:
    driver = Driver()
    leader, follower = driver.stable(2)
    driver.join(leader)
    driver.join(follower)
    driver.sync(follower, {leader: b"stolen", follower: b"stolen"})
    assert driver.state is GroupState.COMPLETING_REBALANCE
    assert driver.sync(leader, {leader: b"x"}).result.assignment == b"x"
    assert driver.sync(follower).result.assignment == b"", "whom the leader forgets has an empty assignment"


def test_another_subscription_starts_another_generation() -> None:
    """B74: whoever of the members wants something else now, and however quiet the others are."""
    for changed in (0, 1):
        driver = Driver()
        members = driver.stable(2)
        call = driver.join(members[changed], protocols=[("range", b"other topics")])
        assert call.is_parked
        assert driver.heartbeat(members[1 - changed]) is ErrorCode.REBALANCE_IN_PROGRESS
        driver.join(members[1 - changed])
        assert call.result.generation == 3
        assert driver.group.roster[members[changed]].metadata("range") == b"other topics"


def test_protocol_with_most_votes_among_those_all_support_wins() -> None:
    driver = Driver()
    first = driver.join(protocols=("a", "b", "c"))
    second = driver.join(protocols=("c", "b"))
    third = driver.join(protocols=("b", "c"))
    assert second.is_parked
    assert third.is_parked
    driver.join(first.result.member_id, protocols=("a", "b", "c"))
    assert second.result.protocol_name == third.result.protocol_name == "b"


def test_member_that_shares_no_protocol_is_refused() -> None:
    driver = Driver()
    driver.stable(2)
    assert driver.join(protocols=("sticky",)).result.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert driver.join(protocol_type="connect").result.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert driver.join(protocols=()).result.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert driver.state is GroupState.STABLE
    assert Driver().join(protocols=()).result.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert Driver().join(protocol_type="").result.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_sync_checks_generation_member_and_protocol() -> None:
    driver = Driver()
    leader, follower = driver.stable(2)
    assert driver.sync(follower, generation=1).result.error is ErrorCode.ILLEGAL_GENERATION
    assert driver.sync("nobody").result.error is ErrorCode.UNKNOWN_MEMBER_ID
    wrong_type = driver.sync(follower, protocol_type="connect", protocol_name="range")
    wrong_name = driver.sync(follower, protocol_type="consumer", protocol_name="sticky")
    assert wrong_type.result.error is wrong_name.result.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    right = driver.sync(leader, protocol_type="consumer", protocol_name="range")
    assert right.result.error is ErrorCode.NONE


def test_dynamic_members_that_do_not_rejoin_in_time_are_out() -> None:
    driver = Driver()
    leader, follower, silent = driver.stable(3)
    driver.join(leader)
    rejoined = driver.join(follower)
    for _ in range(10):
        driver.pass_time(REBALANCE / 10 - 0.001)
        assert rejoined.is_parked
        driver.heartbeat(silent)
    driver.pass_time(1)
    assert rejoined.result.error is ErrorCode.NONE
    assert silent not in driver.group.roster
    assert driver.heartbeat(silent) is ErrorCode.UNKNOWN_MEMBER_ID


def test_another_member_leads_when_the_leader_does_not_rejoin() -> None:
    driver = Driver()
    leader, follower = driver.stable(2)
    rejoined = driver.join(follower, protocols=("range", "sticky"))
    driver.pass_time(REBALANCE)
    assert rejoined.result.leader == follower
    assert [member.member_id for member in rejoined.result.members] == [follower]
    assert leader not in driver.group.roster


# Sessions


def test_member_that_falls_silent_is_missed_when_its_session_ends() -> None:
    driver = Driver()
    leader, follower = driver.stable(2)
    for _ in range(4):
        driver.pass_time(SESSION * 0.9)
        assert driver.heartbeat(leader) is ErrorCode.NONE
        driver.heartbeat(follower)
    driver.pass_time(SESSION * 0.9)
    driver.heartbeat(leader)
    driver.pass_time(SESSION * 0.2)
    assert follower not in driver.group.roster
    assert driver.state is GroupState.PREPARING_REBALANCE
    assert driver.heartbeat(leader) is ErrorCode.REBALANCE_IN_PROGRESS
    assert driver.join(leader).result.generation == 3


def test_parked_members_outlive_their_sessions() -> None:
    driver = Driver()
    leader, follower = driver.stable(2)
    parked = driver.join(leader)
    for _ in range(4):
        driver.pass_time(SESSION / 2)
        driver.heartbeat(follower)
    assert parked.is_parked
    driver.join(follower)
    assert parked.result.error is ErrorCode.NONE
    waiting = driver.sync(follower)
    for _ in range(4):
        driver.pass_time(SESSION / 2)
        driver.heartbeat(leader)
    assert waiting.is_parked
    driver.sync(leader)
    assert waiting.result.error is ErrorCode.NONE


def test_first_join_that_is_parked_too_long_is_given_up() -> None:
    """B68: before JoinGroup 4 a new member cannot be told from a retry of a client that is gone (KAFKA-9752)."""
    driver = Driver(rules=GroupRules(initial_rebalance_delay_ms=0, new_member_join_timeout_ms=20_000))
    leader, slow = driver.stable(2)
    gone = driver.join()
    driver.join(leader)
    driver.pass_time(9)
    driver.heartbeat(slow)
    driver.pass_time(9)
    driver.heartbeat(slow)
    assert gone.is_parked
    driver.pass_time(3)
    assert gone.result.error is ErrorCode.UNKNOWN_MEMBER_ID
    assert gone.result.member_id == ""


def test_heartbeat_does_not_shorten_the_wait_of_a_parked_new_member() -> None:
    driver = Driver()
    leader, slow = driver.stable(2)
    new = driver.join(version=4).result.member_id
    parked = driver.join(new, version=4)
    driver.join(leader)
    driver.heartbeat(new)
    driver.pass_time(SESSION * 0.7)
    driver.heartbeat(slow)
    driver.pass_time(SESSION * 0.7)
    assert parked.is_parked


def test_last_members_end_empties_the_group() -> None:
    driver = Driver()
    driver.stable(2)
    driver.pass_time(SESSION + REBALANCE)
    assert driver.state is GroupState.EMPTY
    assert driver.group.generation == 3
    empty = driver.log[-1]
    assert (empty.generation, empty.members, empty.leader, empty.protocol_name) == (3, (), None, None)
    assert empty.protocol_type == "consumer"
    assert driver.group.next_deadline() is None


# B68: a way out of CompletingRebalance


def completing(driver: Driver) -> tuple[str, str]:
    leader, follower = driver.stable(2)
    driver.join(leader)
    driver.join(follower)
    assert driver.state is GroupState.COMPLETING_REBALANCE
    return leader, follower


def test_leader_that_heartbeats_but_never_syncs_is_removed() -> None:
    """B68: nobody else could end CompletingRebalance, and its heartbeats keep its session alive (KAFKA-12890)."""
    driver = Driver()
    leader, follower = completing(driver)
    waiting = driver.sync(follower)
    for _ in range(10):
        driver.pass_time(REBALANCE / 10)
        driver.heartbeat(leader)
    assert waiting.result.error is ErrorCode.REBALANCE_IN_PROGRESS
    assert leader not in driver.group.roster
    assert driver.join(follower).result.leader == follower


def test_follower_that_heartbeats_but_never_syncs_is_removed() -> None:
    """B68: also when the generation is stable already."""
    driver = Driver()
    leader, follower = completing(driver)
    driver.sync(leader)
    for _ in range(10):
        driver.pass_time(REBALANCE / 10)
        driver.heartbeat(leader)
        driver.heartbeat(follower)
    assert follower not in driver.group.roster
    assert driver.state is GroupState.PREPARING_REBALANCE


def test_leader_that_leaves_ends_the_wait_for_its_assignment() -> None:
    """B68: by LeaveGroup; those who waited are told to rejoin."""
    driver = Driver()
    leader, follower = completing(driver)
    waiting = driver.sync(follower)
    assert driver.leave((leader, None)) == [ErrorCode.NONE]
    assert waiting.result.error is ErrorCode.REBALANCE_IN_PROGRESS
    assert driver.join(follower).result.error is ErrorCode.NONE


def test_refused_assignment_leaves_the_generation_waiting_for_its_leader() -> None:
    """B68: the leader is told and may hand it in again; if it does not, it is removed like one that never did."""
    driver = Driver()
    leader, follower = completing(driver)
    before = driver.group.persisted
    waiting = driver.sync(follower)
    driver.refusal = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert driver.sync(leader, {follower: b"x"}).result.error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert driver.state is GroupState.COMPLETING_REBALANCE
    assert driver.group.persisted == before
    assert waiting.is_parked
    driver.refusal = None
    driver.sync(leader, {follower: b"x"})
    assert waiting.result.assignment == b"x"


def test_silent_leader_is_removed_after_refused_assignment() -> None:
    """B68: a refusal does not count as the leader's sync."""
    driver = Driver()
    leader, follower = completing(driver)
    waiting = driver.sync(follower)
    driver.refusal = ErrorCode.COORDINATOR_NOT_AVAILABLE
    driver.sync(leader)
    for _ in range(10):
        driver.pass_time(REBALANCE / 10)
        driver.heartbeat(leader)
    assert waiting.result.error is ErrorCode.REBALANCE_IN_PROGRESS
    assert leader not in driver.group.roster


def test_rebalance_in_which_no_member_rejoined_is_retried() -> None:
    """B68: static members that only heartbeat cannot hold up the one that rejoins too late."""
    driver = Driver()
    _, early, late = driver.stable(instances=[None, "a", "b"])
    driver.leave((driver.group.roster.leader or "", None))

    def only_heartbeats() -> None:
        for _ in range(10):
            driver.pass_time(REBALANCE / 10)
            for member_id, instance in ((early, "a"), (late, "b")):
                driver.heartbeat(member_id, instance=instance)

    only_heartbeats()
    only_heartbeats()
    assert driver.state is GroupState.PREPARING_REBALANCE
    rejoined = driver.join(late, instance="b")
    only_heartbeats()
    assert rejoined.result.leader == late


def test_member_that_leaves_while_parked_gets_response() -> None:
    """B68: no request of a member that is gone stays parked for ever."""
    driver = Driver()
    leader, follower = completing(driver)
    waiting = driver.sync(follower)
    driver.leave((follower, None))
    assert waiting.result.error is ErrorCode.UNKNOWN_MEMBER_ID
    rejoining = driver.join(leader)
    assert rejoining.result.error is ErrorCode.NONE
    newcomer = driver.join()
    driver.leave((newcomer_id(driver, leader), None))
    assert newcomer.result.error is ErrorCode.UNKNOWN_MEMBER_ID


def newcomer_id(driver: Driver, *known: str) -> str:
    (member_id,) = [m.member_id for m in driver.group.roster if m.member_id not in known]
    return member_id


def test_refused_emptying_is_tried_again() -> None:
    """B68: a group without members does not stay in PreparingRebalance because its log was refused once."""
    driver = Driver()
    (only,) = driver.stable(1)
    driver.refusal = ErrorCode.COORDINATOR_NOT_AVAILABLE
    driver.leave((only, None))
    assert driver.state is GroupState.PREPARING_REBALANCE
    assert driver.group.generation == 1
    driver.pass_time(APPEND_RETRY_MS / 1000 * 3)
    assert driver.state is GroupState.PREPARING_REBALANCE
    driver.refusal = None
    driver.pass_time(APPEND_RETRY_MS / 1000)
    assert driver.state is GroupState.EMPTY
    assert driver.group.generation == 2


def test_group_whose_emptying_was_refused_takes_new_members() -> None:
    driver = Driver()
    (only,) = driver.stable(1)
    driver.refusal = ErrorCode.COORDINATOR_NOT_AVAILABLE
    driver.leave((only, None))
    assert driver.join().result.generation == 2


# Member ids (KIP-394)


def test_new_dynamic_member_is_given_its_id_first() -> None:
    driver = Driver()
    requested = driver.join(version=4)
    assert requested.result.error is ErrorCode.MEMBER_ID_REQUIRED
    member_id = requested.result.member_id
    assert member_id
    assert driver.state is GroupState.EMPTY
    assert driver.join(member_id, version=4).result.member_id == member_id


def test_rebalance_waits_for_ids_that_were_given_out() -> None:
    driver = Driver()
    (leader,) = driver.stable(1)
    expected = driver.join(version=4).result.member_id
    rejoining = driver.join(leader)
    assert rejoining.is_parked
    driver.join(expected, version=4)
    assert len(rejoining.result.members) == 2


def test_member_id_that_does_not_rejoin_expires() -> None:
    driver = Driver()
    (leader,) = driver.stable(1)
    lapsed = driver.join(version=4, session_ms=3000).result.member_id
    rejoining = driver.join(leader)
    driver.pass_time(4)
    assert rejoining.result.error is ErrorCode.NONE
    assert driver.join(lapsed, version=4).result.error is ErrorCode.UNKNOWN_MEMBER_ID


def test_ids_that_lapse_or_leave_do_not_disturb_a_stable_group() -> None:
    driver = Driver()
    (leader,) = driver.stable(1)
    driver.join(version=4, session_ms=3000)
    leaving = driver.join(version=4).result.member_id
    assert driver.leave((leaving, None)) == [ErrorCode.NONE]
    driver.pass_time(4)
    assert driver.heartbeat(leader) is ErrorCode.NONE
    assert driver.state is GroupState.STABLE


# Static members (KIP-345)


def test_static_member_comes_back_without_a_rebalance() -> None:
    driver = Driver()
    leader, old = driver.stable(instances=["a", "b"])
    back = driver.join(instance="b", version=5)
    new = back.result.member_id
    assert new not in (old, "")
    assert back.result.generation == driver.group.generation == 2
    assert (back.result.leader, back.result.skip_assignment, back.result.members) == (leader, False, ())
    assert driver.state is GroupState.STABLE
    assert [member.member_id for member in driver.log[-1].members] == [leader, new]
    assert driver.sync(new, instance="b").result.assignment == b"1"
    assert driver.heartbeat(old, instance="b") is ErrorCode.FENCED_INSTANCE_ID
    assert driver.sync(old, instance="b").result.error is ErrorCode.FENCED_INSTANCE_ID
    assert driver.join(old, instance="b").result.error is ErrorCode.FENCED_INSTANCE_ID
    assert driver.leave((old, "b")) == [ErrorCode.FENCED_INSTANCE_ID]
    assert driver.heartbeat(new, instance="b") is ErrorCode.NONE


def test_static_leader_that_comes_back_does_not_assign_in_a_stable_group() -> None:
    """Before JoinGroup 9 it is told of the old leader; from 9 on that it leads, and to skip the assignment."""
    driver = Driver()
    old, _ = driver.stable(instances=["a", "b"])
    before = driver.join(instance="a", version=8).result
    assert (before.leader, before.skip_assignment, before.members) == (old, False, ())
    since = driver.join(instance="a", version=9).result
    assert (since.leader, since.skip_assignment, len(since.members)) == (since.member_id, True, 2)
    follower = driver.join(instance="b", version=9).result
    assert (follower.leader, follower.skip_assignment, follower.members) == (since.member_id, False, ())


def test_static_member_that_changes_the_chosen_protocol_rebalances() -> None:
    driver = Driver()
    first = driver.join(instance="a", protocols=("range", "sticky"))
    driver.sync(first.result.member_id)
    back = driver.join(instance="a", protocols=("sticky", "range"), version=9)
    assert back.result.generation == 2
    assert back.result.protocol_name == "sticky"


def test_old_process_of_a_static_member_is_fenced_while_it_is_parked() -> None:
    driver = Driver()
    leader, _ = driver.stable(instances=["a", "b"])
    parked = driver.join(leader, instance="a")
    driver.join(instance="a")
    assert parked.result.error is ErrorCode.FENCED_INSTANCE_ID


def test_static_member_that_comes_back_during_a_generation_starts_another() -> None:
    """The leader may be assigning to the old id at this moment."""
    driver = Driver()
    leader, old = driver.stable(instances=["a", "b"])
    driver.join(leader, instance="a")
    driver.join(old, instance="b")
    fenced = driver.sync(old, instance="b")
    back = driver.join(instance="b")
    assert fenced.result.error is ErrorCode.FENCED_INSTANCE_ID
    assert back.is_parked
    driver.join(leader, instance="a")
    assert back.result.generation == 4


def test_refused_replacement_leaves_the_old_member_in_place() -> None:
    driver = Driver()
    _, old = driver.stable(instances=["a", "b"])
    before = driver.group.persisted
    driver.refusal = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert driver.join(instance="b").result.error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert driver.heartbeat(old, instance="b") is ErrorCode.NONE
    assert driver.group.persisted == before


def test_static_members_keep_their_place_through_a_rebalance_that_they_miss() -> None:
    driver = Driver()
    leader, absent = driver.stable(instances=[None, "b"])
    rejoining = driver.join(leader)
    for _ in range(10):
        driver.pass_time(REBALANCE / 10)
        driver.heartbeat(absent, instance="b")
    assert [member.member_id for member in rejoining.result.members] == [leader, absent]


def test_member_that_changes_its_instance_id_leaves_no_trace_of_the_old_one() -> None:
    """B73: with a member gone, its instance id is free: whoever takes it next is neither fenced nor a replacement."""
    driver = Driver()
    leader, member = driver.stable(instances=[None, "a"])
    assert driver.join(member, instance="b").result.error is ErrorCode.UNKNOWN_MEMBER_ID
    changed = driver.join(instance="b")
    driver.join(leader)
    driver.leave((member, "a"))
    renamed = changed.result.member_id
    assert driver.group.roster.static_ids == {"b": renamed}
    fresh = driver.join(instance="a")
    assert fresh.is_parked, "it is new to the group, so it starts a rebalance"
    driver.join(leader)
    driver.join(renamed, instance="b")
    assert driver.group.roster.static_ids == {"b": renamed, "a": fresh.result.member_id}
    driver.pass_time(10 * SESSION + 2 * REBALANCE)
    assert driver.state is GroupState.EMPTY
    assert driver.group.roster.static_ids == {}


def test_replacing_a_static_member_renames_its_entry() -> None:
    """B73: the entry names the new process, also after a reload of the group."""
    driver = Driver()
    leader, _ = driver.stable(instances=["a", "b"])
    new = driver.join(instance="b").result.member_id
    loaded = Group.from_image("g", driver.log[-1], driver.rules)
    assert driver.group.roster.static_ids == loaded.roster.static_ids == {"a": leader, "b": new}


# Leaving


def test_several_members_leave_in_one_request() -> None:
    driver = Driver()
    leader, static, dynamic = driver.stable(instances=[None, "s", None])
    leavers = [("", "s"), (dynamic, None), ("nobody", None), ("", "unknown"), ("", None)]
    unknown = ErrorCode.UNKNOWN_MEMBER_ID
    assert driver.leave(*leavers) == [ErrorCode.NONE, ErrorCode.NONE, unknown, unknown, unknown]
    assert driver.group.roster.ids() == [leader]
    assert driver.state is GroupState.PREPARING_REBALANCE
    assert driver.leave((static, "s")) == [unknown]


def test_last_to_leave_empties_the_group_at_once() -> None:
    driver = Driver()
    leader, follower = driver.stable(2)
    assert driver.leave((leader, None), (follower, None)) == [ErrorCode.NONE] * 2
    assert driver.state is GroupState.EMPTY


def test_parked_join_completes_when_those_who_are_missing_leave() -> None:
    driver = Driver()
    leader, follower = driver.stable(2)
    parked = driver.join(leader)
    driver.leave((follower, None))
    assert parked.result.generation == 3


# The first rebalance


def test_empty_group_waits_for_company() -> None:
    driver = Driver(rules=GroupRules(initial_rebalance_delay_ms=3000))
    first = driver.join(rebalance_ms=7000)
    driver.pass_time(2.9)
    second = driver.join(rebalance_ms=7000)
    driver.pass_time(0.2)
    assert first.is_parked
    driver.pass_time(2.7)
    third = driver.join(rebalance_ms=7000)
    driver.pass_time(0.9)
    assert third.is_parked
    driver.pass_time(0.4)
    assert len(first.result.members) == 3, "no longer than the rebalance time-out"
    assert second.result.generation == third.result.generation == 1


def test_empty_group_does_not_wait_longer_when_no_member_joins() -> None:
    driver = Driver(rules=GroupRules(initial_rebalance_delay_ms=3000))
    first = driver.join()
    driver.pass_time(2.9)
    assert first.is_parked
    driver.pass_time(0.2)
    assert first.result.generation == 1


# Size


def test_full_group_takes_no_more_members() -> None:
    driver = Driver(rules=GroupRules(initial_rebalance_delay_ms=0, max_size=2))
    leader, follower = driver.stable(2)
    refused = driver.join()
    assert (refused.result.error, refused.result.member_id) == (ErrorCode.GROUP_MAX_SIZE_REACHED, "")
    assert driver.state is GroupState.STABLE
    driver.join(leader)
    driver.join(follower)
    assert driver.join().result.error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert driver.state is GroupState.COMPLETING_REBALANCE


def test_group_loaded_over_its_limit_turns_the_last_to_rejoin_away() -> None:
    big = Driver()
    members = big.stable(3)
    rules = GroupRules(initial_rebalance_delay_ms=0, max_size=2)
    driver = Driver(rules=rules, group=Group.from_image("g", big.log[-1], rules))
    driver.carry_out(driver.group.resume(driver.at))
    assert driver.state is GroupState.PREPARING_REBALANCE
    joins = [driver.join(member) for member in members]
    assert joins[2].result.error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert joins[0].result.error is joins[1].result.error is ErrorCode.NONE


# Retries and reloads


def test_earlier_request_of_parked_member_gets_error() -> None:
    driver = Driver()
    leader, follower = driver.stable(2)
    given_up = driver.join(leader)
    again = driver.join(leader)
    assert given_up.result.error is ErrorCode.REBALANCE_IN_PROGRESS
    driver.join(follower)
    assert again.result.error is ErrorCode.NONE
    first_sync = driver.sync(follower)
    second_sync = driver.sync(follower)
    assert first_sync.result.error is ErrorCode.REBALANCE_IN_PROGRESS
    driver.sync(leader)
    assert second_sync.result.error is ErrorCode.NONE


def test_member_that_lost_its_join_response_gets_it_again() -> None:
    driver = Driver()
    leader, _ = completing(driver)
    again = driver.join(leader)
    assert again.result.generation == driver.group.generation
    assert len(again.result.members) == 2
    assert driver.state is GroupState.COMPLETING_REBALANCE


def test_loaded_group_is_the_one_that_was_written() -> None:
    driver = Driver()
    leader, follower = driver.stable(2, instances=[None, "b"])
    loaded = Driver(group=Group.from_image("g", driver.log[-1], driver.rules))
    loaded.carry_out(loaded.group.resume(loaded.at))
    assert loaded.state is GroupState.STABLE
    assert loaded.heartbeat(leader) is loaded.heartbeat(follower, instance="b") is ErrorCode.NONE
    assert loaded.sync(follower, instance="b").result.assignment == b"1"
    loaded.pass_time(SESSION / 2)
    loaded.heartbeat(leader)
    loaded.pass_time(SESSION / 2 + 1)
    assert loaded.group.roster.ids() == [leader]


def test_record_whose_leader_is_gone_gets_another() -> None:
    image = Driver()
    image.stable(2)
    odd = GroupImage(
        protocol_type="consumer",
        generation=2,
        protocol_name="range",
        leader="gone",
        state_timestamp_ms=None,
        members=image.log[-1].members,
    )
    group = Group.from_image("g", odd, image.rules)
    assert group.roster.leader == image.log[-1].members[0].member_id


def test_retired_group_responds_to_all_parked_requests() -> None:
    driver = Driver()
    leader, follower = completing(driver)
    waiting = driver.sync(follower)
    joining = Driver()
    members = joining.stable(2)
    parked = joining.join(members[0])
    driver.carry_out(driver.group.retire())
    joining.carry_out(joining.group.retire())
    assert waiting.result.error is parked.result.error is ErrorCode.NOT_COORDINATOR
    assert driver.state is GroupState.DEAD
    assert leader


# Subscriptions


def test_consumer_group_knows_what_its_members_subscribe_to() -> None:
    driver = Driver()
    first = driver.join(protocols=[("range", subscription("x"))])
    driver.join(protocols=[("range", subscription("y", "z", version=3))])
    driver.join(first.result.member_id, protocols=[("range", subscription("x"))])
    assert [topic in driver.group.subscription.read(driver.group.protocol_type) for topic in "xyzw"] == [
        True,
        True,
        True,
        False,
    ]


def test_consumer_group_that_cannot_be_read_is_subscribed_to_everything() -> None:
    driver = Driver()
    for metadata in (b"", b"\0", b"\0\0\xff\xff\xff\x7f"):
        driver = Driver()
        driver.join(protocols=[("range", metadata)])
        assert "x" in driver.group.subscription.read(driver.group.protocol_type)
    driver = Driver()
    driver.join(protocols=[("v1", b"")], protocol_type="connect")
    assert "x" not in driver.group.subscription.read(driver.group.protocol_type)
