"""Partitions that move: the plans, every step in the store, and what brokers are told."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.coordinator.controller.api_error import NOT_CONTROLLER, ApiError
from oncelog.coordinator.controller.reassignment import (
    about_step,
    begun_state,
    completed_state,
    is_complete,
    is_moving,
    origin_of,
    plan,
    reassigned,
    refused_drop,
    target_of,
    waiting_state,
)
from oncelog.coordinator.metadata_store import paths, znodes
from oncelog.coordinator.metadata_store.znodes import PartitionState, ReplicaAssignment
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.stop_replica import StopReplicaRequest
from oncelog.protocol.topic_partition import TopicPartition
from tests.unit.broker.virtual_time import in_virtual_time
from tests.unit.coordinator.controller.cluster import ClusterUnderTest, NotingBroker, running_cluster
from tests.unit.coordinator.controller.test_controller import create, manual, state_of
from tests.unit.coordinator.controller.test_isr_changes import only, request, wanting

SETTLED = ReplicaAssignment(replicas=(1, 2, 3))
STATE = PartitionState(leader=1, leader_epoch=5, isr=(1, 2, 3), controller_epoch=1)
T0 = TopicPartition("t", 0)


class TestPlan:
    def test_step_of_a_reassignment_is_said_in_words(self) -> None:
        moving = about_step(reassigned(SETTLED, (4, 1)), STATE)
        assert moving == "replicas 4,1,2,3, adding 4, removing 2,3, leader 1 of epoch 5, ISR 1,2,3"
        leaderless = about_step(SETTLED, replace(STATE, leader=-1, isr=()))
        assert leaderless == "replicas 1,2,3, no leader of epoch 5, ISR none"

    def test_reassigned_lists_target_replicas_first_and_both_changes(self) -> None:
        moving = reassigned(SETTLED, (4, 1))
        assert moving == ReplicaAssignment(replicas=(4, 1, 2, 3), adding=(4,), removing=(2, 3))
        assert (origin_of(moving), target_of(moving)) == ((1, 2, 3), (4, 1))

    def test_another_target_forgets_the_one_before_and_keeps_the_origin(self) -> None:
        moving = reassigned(reassigned(SETTLED, (4, 5, 6)), (6, 1, 2))
        assert moving == ReplicaAssignment(replicas=(6, 1, 2, 3), adding=(6,), removing=(3,))

    def test_reassignment_without_target_is_cancelled(self) -> None:
        assert plan(reassigned(SETTLED, (4, 5, 6)), None, {1}) == SETTLED
        refused = plan(SETTLED, None, {1})
        assert isinstance(refused, ApiError)
        assert refused.code is ErrorCode.NO_REASSIGNMENT_IN_PROGRESS

    @pytest.mark.parametrize(
        ("target", "code"),
        [
            ([], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
            ([1, 1], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
            ([1, -2], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
            ([1, 2, 9], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
            ([1, 2], ErrorCode.INVALID_REPLICATION_FACTOR),
        ],
    )
    def test_alteration_is_refused_for_these_reasons(self, target: list[int], code: ErrorCode) -> None:
        refused = plan(SETTLED, target, {1, 2, 3, 4}, may_resize=False)
        assert isinstance(refused, ApiError)
        assert refused.code is code

    def test_replica_that_stays_need_not_be_alive(self) -> None:
        assert plan(SETTLED, (1, 2, 4), {4}) == reassigned(SETTLED, (1, 2, 4))

    @given(st.lists(st.permutations(range(1, 7)).map(lambda p: p[:3]), min_size=1, max_size=6))
    def test_however_often_it_is_redirected_origin_and_target_hold(self, targets: list[Sequence[int]]) -> None:
        assignment = SETTLED
        for target in targets:
            assignment = reassigned(assignment, target)
            assert target_of(assignment) == tuple(target)
            assert set(origin_of(assignment)) == {1, 2, 3}
            assert set(assignment.adding).isdisjoint(assignment.removing)
            assert is_moving(assignment) == (set(target) != {1, 2, 3})


class TestStates:
    def test_reassignment_begins_with_a_new_leader_epoch(self) -> None:
        state = begun_state(STATE, reassigned(SETTLED, (4, 5)), {1, 2, 3}, 9)
        assert state == replace(STATE, leader_epoch=6, controller_epoch=9)

    def test_redirected_reassignment_that_drops_the_leader_elects_one_in_sync(self) -> None:
        led_by_4 = replace(STATE, leader=4, isr=(4, 2, 3))
        state = begun_state(led_by_4, reassigned(reassigned(SETTLED, (4, 1)), (5, 1)), {1, 2, 3, 4, 5}, 9)
        assert state == replace(led_by_4, leader=2, isr=(2, 3), leader_epoch=6, controller_epoch=9)

    def test_reassignment_that_leaves_no_replica_in_sync_is_refused(self) -> None:
        assert begun_state(replace(STATE, leader=4, isr=(4,)), SETTLED, {1, 2, 3, 4}, 9) is None

    @pytest.mark.parametrize(
        ("isr", "elr", "min_isr", "is_refused"),
        [
            ((1, 4), (), 2, True),
            ((1, 4), (2,), 2, False),
            ((1, 2, 4), (), 2, False),
            ((1,), (), 2, False),
            ((1, 4), (), 1, False),
            ((1, 2, 3, 4), (), 5, False),
        ],
    )
    def test_reassignment_that_drops_replicas_below_the_minimum_is_refused(
        self, isr: tuple[int, ...], elr: tuple[int, ...], min_isr: int, is_refused: bool
    ) -> None:
        """B57: a cancelled one drops the replicas that it was adding, and they may be among those that acknowledged."""
        cancelled = reassigned(reassigned(SETTLED, (1, 4, 5)), (1, 2, 3))
        refused = refused_drop(replace(STATE, isr=isr, elr=elr), cancelled, min_isr)
        assert (refused is not None) is is_refused
        if refused is not None:
            assert refused.code is ErrorCode.INVALID_REPLICA_ASSIGNMENT
            assert "dropped: [4]. [1] would be left" in refused.message

    def test_partition_that_waits_keeps_what_it_waits_for_while_it_moves(self) -> None:
        waiting = replace(STATE, leader=-1, isr=(1,), elr=(2,), epochs={1: 7, 2: 8}, last_leader=1, last_known_elr=(3,))
        assert waiting_state(waiting, reassigned(SETTLED, (4, 5)), 9) == replace(
            waiting, leader_epoch=6, controller_epoch=9
        )

    @pytest.mark.parametrize("field", ["isr", "elr", "last_known_elr"])
    def test_partition_that_waits_for_a_replica_that_would_be_dropped_does_not_move(self, field: str) -> None:
        members: dict[str, Any] = {"isr": (1,), field: (4,)}
        waiting = replace(STATE, leader=-1, **members)
        refused = waiting_state(waiting, reassigned(reassigned(SETTLED, (4, 1)), (5, 1)), 9)
        assert isinstance(refused, ApiError)
        assert refused.code is ErrorCode.INVALID_REPLICA_ASSIGNMENT
        assert "would be dropped: [4]. Include them" in (refused.message or "")

    def test_reassignment_is_complete_when_the_whole_target_is_in_sync(self) -> None:
        moving = reassigned(SETTLED, (4, 1))
        assert not is_complete(moving, STATE)
        assert is_complete(moving, replace(STATE, isr=(1, 4)))

    def test_leader_in_the_target_stays_and_others_leave_the_isr(self) -> None:
        arrived = replace(STATE, isr=(1, 2, 3, 4))
        state = completed_state(arrived, (4, 1), {1, 4}, 9)
        assert state == replace(STATE, isr=(1, 4), leader_epoch=6, controller_epoch=9)

    def test_else_the_first_of_the_target_that_is_fit_leads(self) -> None:
        arrived = replace(STATE, isr=(1, 4, 5))
        assert completed_state(arrived, (4, 5), {5}, 9) == replace(
            STATE, leader=5, isr=(4, 5), leader_epoch=6, controller_epoch=9
        )
        assert completed_state(arrived, (4, 5), {1}, 9) is None


def test_replica_that_lost_its_log_does_not_count_as_kept_by_a_reassignment() -> None:
    cancelled = reassigned(reassigned(SETTLED, (1, 4, 5)), (1, 2, 3))
    state = replace(STATE, isr=(1, 4), elr=(2,))
    assert refused_drop(state, cancelled, 2) is None
    refused = refused_drop(state, cancelled, 2, broken=(2,))
    assert refused is not None
    assert "dropped: [4]. [1] would be left" in refused.message
    assert "more of [2, 3] are in sync" in refused.message
    assert refused_drop(state, cancelled, 2, broken=(2, 4)) is None


class SearchedThrough(list[int]):
    """Replicas that a client names; it may name tens of thousands."""

    def __contains__(self, replica: object) -> bool:
        raise AssertionError("for each replica all are looked through: 7 s of the loop for 50,000")


def test_assignment_of_very_many_replicas_is_planned_without_a_search_for_each() -> None:
    present = ReplicaAssignment(replicas=(1, 2))
    planned = plan(present, SearchedThrough([2, 3]), {1, 2, 3})
    assert planned == ReplicaAssignment(replicas=(2, 3, 1), adding=(3,), removing=(1,))


async def move(cluster: ClusterUnderTest, target: Sequence[int] | None, partition: TopicPartition = T0) -> ErrorCode:
    results = await cluster.apis.alter_reassignments({partition: target})
    assert not isinstance(results, ApiError)
    return results[partition].code


async def catch_up(cluster: ClusterUnderTest, isr: list[int], leader: int = 1) -> ErrorCode:
    """The leader reports who is in sync."""
    reported = cluster.brokers[leader].led[T0]
    epochs = {"leader_epoch": reported.leader_epoch, "partition_epoch": reported.partition_epoch}
    requested = request(cluster, "t", wanting(0, isr, **epochs), leader=leader)
    return ErrorCode(only(await cluster.apis.alter_partition(requested))[0].error_code)


def stored(cluster: ClusterUnderTest) -> ReplicaAssignment:
    znode = cluster.ensemble.tree.get(paths.topic("t"))
    assert znode is not None
    return znodes.decode_topic(znode.data).partitions[0]


def contents(cluster: ClusterUnderTest) -> dict[str, tuple[bytes, int]]:
    """Data and version of the znodes of the topic's assignment and state."""
    found = {}
    for path in (paths.topic("t"), paths.partition_state(T0)):
        znode = cluster.ensemble.tree.get(path)
        assert znode is not None
        found[path] = znode.data, znode.stat.version
    return found


def is_sent_deletion(broker: NotingBroker) -> bool:
    return T0 in broker.deleted


class TestMoves:
    async def test_partition_moves_when_its_new_replicas_are_in_sync(self) -> None:
        async with running_cluster(1, 2, 3, 4) as cluster:
            await create(cluster, manual("t", (1, 2)))
            assert await move(cluster, [3, 4]) is ErrorCode.NONE
            assert stored(cluster) == ReplicaAssignment(replicas=(3, 4, 1, 2), adding=(3, 4), removing=(1, 2))
            for broker_id in (1, 2, 3, 4):
                assert cluster.brokers[broker_id].led[T0].leader_epoch == 1
            assert (cluster.brokers[3].led[T0].is_new, cluster.brokers[1].led[T0].is_new) == (True, False)
            assert await catch_up(cluster, [1, 2, 3]) is ErrorCode.NONE
            assert stored(cluster).adding
            cluster.brokers[1].led[T0].partition_epoch += 1
            assert await catch_up(cluster, [1, 2, 3, 4]) is ErrorCode.NONE
            assert stored(cluster) == ReplicaAssignment(replicas=(3, 4))
            state = await state_of(cluster, "t", 0)
            assert (state.leader, state.isr, state.leader_epoch) == (3, (3, 4), 2)
            assert [is_sent_deletion(cluster.brokers[i]) for i in (1, 2, 3, 4)] == [True, True, False, False]
            image = cluster.brokers[1].metadata.image.topics["t"].partitions[0]
            assert (image.replicas, image.leader) == ((3, 4), 3)
            assert await cluster.apis.reassignments() == {}

    async def test_replicas_are_deleted_after_their_partition_can_do_without_them(self) -> None:
        async with running_cluster(1, 2) as cluster:
            await create(cluster, manual("t", (1, 2)))
            assert await move(cluster, [2]) is ErrorCode.NONE  # Complete at once: the target is in sync.
            stops = cluster.brokers[1].of_type(StopReplicaRequest)
            (partition,) = stops[-1].topic_states[0].partition_states
            assert (partition.delete_partition, partition.leader_epoch) == (True, 2)
            assert (await state_of(cluster, "t", 0)).leader_epoch == 2

    async def test_cancelled_reassignment_leaves_no_trace(self) -> None:
        async with running_cluster(1, 2, 3) as cluster:
            await create(cluster, manual("t", (1, 2)))
            await move(cluster, [3])
            assert await move(cluster, None) is ErrorCode.NONE
            assert stored(cluster) == ReplicaAssignment(replicas=(1, 2))
            assert [is_sent_deletion(cluster.brokers[i]) for i in (1, 2, 3)] == [False, False, True]
            assert await move(cluster, None) is ErrorCode.NO_REASSIGNMENT_IN_PROGRESS

    async def test_reassignment_under_way_can_be_redirected(self) -> None:
        async with running_cluster(1, 2, 3, 4) as cluster:
            await create(cluster, manual("t", (1, 2)))
            await move(cluster, [3, 2])
            await move(cluster, [4, 2])
            assert stored(cluster) == ReplicaAssignment(replicas=(4, 2, 1), adding=(4,), removing=(1,))
            assert is_sent_deletion(cluster.brokers[3])

    async def test_next_controller_continues_the_reassignment(self) -> None:
        async with running_cluster(1, 2, 3, 4) as cluster:
            await create(cluster, manual("t", (2, 3)))
            await move(cluster, [3, 4])
            await cluster.kill(1)
            assert await cluster.apis.reassignments() == {
                T0: ReplicaAssignment(replicas=(3, 4, 2), adding=(4,), removing=(2,))
            }
            assert await catch_up(cluster, [2, 3, 4], leader=2) is ErrorCode.NONE
            assert stored(cluster) == ReplicaAssignment(replicas=(3, 4))

    async def test_controller_that_finds_a_reassignment_complete_ends_it(self) -> None:
        async with running_cluster(1, 2, 3) as cluster:
            await create(cluster, manual("t", (2, 3)))
            session, path = cluster.members[2].session, paths.topic("t")
            await cluster.kill(1)
            znode = await session.get(path)
            assert znode is not None
            topic = znodes.decode_topic(znode.data)
            moving = replace(topic, partitions={0: reassigned(topic.partitions[0], (3,))})
            await session.set(path, znodes.encode_topic(moving))
            cluster.ensemble.close_session(cluster.members[2].session.session_id)
            await cluster.settle()
            assert stored(cluster) == ReplicaAssignment(replicas=(3,))
            assert (await state_of(cluster, "t", 0)).leader == 3

    async def test_returning_broker_gets_stop_replica_for_removed_replicas(self) -> None:
        async with running_cluster(1, 2, 3) as cluster:
            await create(cluster, manual("t", (1, 3)))
            await cluster.kill(3)
            assert await move(cluster, [1, 2]) is ErrorCode.NONE
            reported = cluster.brokers[1].led[T0]
            assert reported.removing_replicas == [3]
            assert await catch_up(cluster, [1, 2]) is ErrorCode.NONE
            await cluster.restart(3)
            assert is_sent_deletion(cluster.brokers[3])

    @in_virtual_time
    async def test_topic_that_was_created_again_meanwhile_is_not_deleted(self) -> None:
        async with running_cluster(1, 2, 3) as cluster:
            await create(cluster, manual("t", (1, 3)))
            cluster.brokers[3].connected = False
            assert await move(cluster, [1]) is ErrorCode.NONE
            assert [e.code for e in await cluster.apis.delete_topics(["t"], timeout_seconds=1)] == [0]
            await create(cluster, manual("t", (1, 3)))
            cluster.brokers[3].connected = True
            await asyncio.sleep(5)
            assert T0 in cluster.brokers[3].led
            assert not is_sent_deletion(cluster.brokers[3])

    @pytest.mark.parametrize("again", [False, True])
    async def test_reassigning_to_the_present_assignment_changes_and_tells_nothing(self, again: bool) -> None:
        async with running_cluster(1, 2, 3) as cluster:
            await create(cluster, manual("t", (1, 2)))
            target = [1, 2]
            if again:
                target = [1, 3]
                assert await move(cluster, target) is ErrorCode.NONE
            before, reported = dict(contents(cluster)), [len(broker.requests) for broker in cluster.brokers.values()]
            assert await move(cluster, target) is ErrorCode.NONE
            assert contents(cluster) == before
            assert [len(broker.requests) for broker in cluster.brokers.values()] == reported

    async def test_reassigning_to_another_order_keeps_leader_and_leader_epoch(self) -> None:
        async with running_cluster(1, 2, 3) as cluster:
            await create(cluster, manual("t", (1, 2)))
            assert await move(cluster, [2, 1]) is ErrorCode.NONE
            assert stored(cluster) == ReplicaAssignment(replicas=(2, 1))
            state = await state_of(cluster, "t", 0)
            assert (state.leader, state.leader_epoch, state.isr) == (1, 0, (1, 2))
            assert cluster.brokers[2].led[T0].replicas == [2, 1]
            assert cluster.brokers[3].metadata.image.topics["t"].partitions[0].replicas == (2, 1)

    async def test_invalid_partition_does_not_prevent_the_others(self) -> None:
        async with running_cluster(1, 2, 3) as cluster:
            await create(cluster, manual("t", (1, 2), (1, 2)))
            unknown, bad = TopicPartition("u", 0), TopicPartition("t", 1)
            results = await cluster.apis.alter_reassignments({unknown: [1], bad: [9], T0: [1, 3]})
            assert not isinstance(results, ApiError)
            assert {partition: error.code for partition, error in results.items()} == {
                unknown: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                bad: ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                T0: ErrorCode.NONE,
            }

    async def test_reassignment_on_another_broker_is_refused(self) -> None:
        async with running_cluster(1, 2) as cluster:
            other = cluster.members[2].apis
            assert await other.alter_reassignments({T0: [1]}) == NOT_CONTROLLER
            assert await other.reassignments() == NOT_CONTROLLER
