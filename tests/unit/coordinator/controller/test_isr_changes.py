"""What leaders propose, decided on what the controller knows, and written without overwriting anybody."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from oncelog.coordinator.controller.cluster_state import ClusterState, LiveBroker, TopicState, VersionedState
from oncelog.coordinator.controller.isr_changes import IsrProposal, Outcome, decide
from oncelog.coordinator.metadata_store import paths, znodes
from oncelog.coordinator.metadata_store.znodes import (
    BrokerRegistration,
    LeaderRecoveryState,
    PartitionState,
    ReplicaAssignment,
    TopicAssignment,
)
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.alter_partition import (
    AlteredPartition,
    AlterPartitionData,
    AlterPartitionRequest,
    AlterPartitionResponse,
    AlterPartitionTopic,
    BrokerState,
)
from oncelog.protocol.messages.update_metadata import UpdateMetadataRequest
from oncelog.protocol.topic_partition import TopicPartition
from tests.unit.coordinator.controller.cluster import ClusterUnderTest, running_cluster
from tests.unit.coordinator.controller.test_controller import create, manual, state_of

PARTITION = TopicPartition("t", 0)
STATE = PartitionState(leader=1, leader_epoch=5, isr=(1, 2), controller_epoch=1)
VERSION = 7


def cluster_of(*live: int, state: PartitionState = STATE) -> ClusterState:
    """Broker n is alive with epoch 100 + n; the partition has replicas 1, 2, 3."""
    cluster = ClusterState()
    for broker_id in live:
        registration = BrokerRegistration(broker_id=broker_id, endpoints=())
        cluster.brokers[broker_id] = LiveBroker(registration=registration, epoch=100 + broker_id)
    assignment = TopicAssignment(topic_id=bytes(16), partitions={0: ReplicaAssignment(replicas=(1, 2, 3))})
    topic = TopicState(assignment=assignment, version=0)
    topic.states[0] = VersionedState(state=state, version=VERSION, mzxid=1)
    cluster.put_topic("t", topic)
    return cluster


def proposal(isr: Mapping[int, int], **changes: int) -> IsrProposal:
    usual = IsrProposal(leader=1, leader_epoch=5, partition_epoch=VERSION, isr=isr)
    return usual._replace(**changes)


def decided(requested: IsrProposal, cluster: ClusterState) -> PartitionState | Outcome:
    return decide(requested, PARTITION, cluster, 9)


ALL = {1: 101, 2: 102, 3: 103}


class TestDecision:
    def test_follower_that_caught_up_joins(self) -> None:
        assert decided(proposal(ALL), cluster_of(1, 2, 3)) == replace(STATE, isr=(1, 2, 3), controller_epoch=9)

    def test_follower_that_fell_behind_leaves_also_if_it_is_gone(self) -> None:
        assert decided(proposal({1: 101}), cluster_of(1)) == replace(STATE, isr=(1,), controller_epoch=9)

    def test_unknown_epochs_of_replicas_are_taken(self) -> None:
        assert isinstance(decided(proposal(dict.fromkeys(ALL, -1)), cluster_of(1, 2, 3)), PartitionState)

    @pytest.mark.parametrize(
        ("requested", "error"),
        [
            (proposal(ALL, leader_epoch=4), ErrorCode.FENCED_LEADER_EPOCH),
            (proposal(ALL, leader_epoch=6), ErrorCode.NOT_CONTROLLER),
            (proposal(ALL, partition_epoch=VERSION + 1), ErrorCode.NOT_CONTROLLER),
            (proposal(ALL, partition_epoch=VERSION - 1), ErrorCode.INVALID_UPDATE_VERSION),
            (proposal(ALL, leader=2), ErrorCode.INVALID_REQUEST),
            (proposal({2: 102, 3: 103}), ErrorCode.INVALID_REQUEST),
            (proposal(ALL | {4: 104}), ErrorCode.INVALID_REQUEST),
            (proposal(ALL, leader_recovery_state=LeaderRecoveryState.RECOVERING), ErrorCode.INVALID_REQUEST),
            (proposal({1: 101}, leader_recovery_state=LeaderRecoveryState.RECOVERING), ErrorCode.INVALID_REQUEST),
            (proposal({1: 101}, leader_recovery_state=2), ErrorCode.INVALID_REQUEST),
        ],
    )
    def test_proposal_is_refused_for_these_reasons(self, requested: IsrProposal, error: ErrorCode) -> None:
        assert decided(requested, cluster_of(1, 2, 3)) is error

    def test_replica_that_is_not_alive_cannot_be_in_sync(self) -> None:
        assert decided(proposal(ALL), cluster_of(1, 2)) is ErrorCode.INELIGIBLE_REPLICA

    def test_replica_that_restarted_is_not_the_one_that_caught_up(self) -> None:
        """B56"""
        assert decided(proposal(ALL | {3: 99}), cluster_of(1, 2, 3)) is ErrorCode.INELIGIBLE_REPLICA

    @pytest.mark.parametrize("reason", ["unreachable", "shutting_down"])
    def test_unreachable_or_stopping_broker_does_not_rejoin_the_isr(self, reason: str) -> None:
        cluster = cluster_of(1, 2, 3)
        getattr(cluster, reason).add(3)
        assert decided(proposal(ALL), cluster) is ErrorCode.INELIGIBLE_REPLICA

    def test_unreachable_in_sync_broker_does_not_keep_others_out(self) -> None:
        cluster = cluster_of(1, 2, 3)
        cluster.unreachable.add(2)
        assert isinstance(decided(proposal(ALL), cluster), PartitionState)

    def test_proposal_of_the_present_isr_succeeds_on_any_state(self) -> None:
        cluster = cluster_of(1, 2, 3)
        requested = proposal({2: 102, 1: 101}, partition_epoch=VERSION - 3)
        assert decided(requested, cluster) == cluster.state(PARTITION)

    def test_leader_that_has_recovered_says_so(self) -> None:
        recovering = replace(STATE, isr=(1,), leader_recovery_state=LeaderRecoveryState.RECOVERING)
        recovered = replace(recovering, controller_epoch=9, leader_recovery_state=LeaderRecoveryState.RECOVERED)
        assert decided(proposal({1: 101}), cluster_of(1, state=recovering)) == recovered

    def test_replica_that_leaves_an_isr_below_its_minimum_is_eligible(self) -> None:
        """B57"""
        cluster = cluster_of(1, 2, 3, state=replace(STATE, epochs={1: 101, 2: 102}))
        cluster.keeps_eligible, cluster.min_isr = lambda: True, lambda topic: 2
        state = decided(proposal({1: 101}), cluster)
        assert isinstance(state, PartitionState)
        assert (state.isr, state.elr, state.epochs) == ((1,), (2,), {1: 101, 2: 102})

    def test_member_that_lost_its_logs_does_not_stay_in_the_isr(self) -> None:
        """B57: it registered anew, and the leader counts it as in sync from before."""
        cluster = cluster_of(1, 2, 3, state=replace(STATE, epochs={1: 101, 2: 90}))
        cluster.keeps_eligible = lambda: True
        assert decided(proposal(ALL), cluster) is ErrorCode.INELIGIBLE_REPLICA
        assert isinstance(decided(proposal({1: 101, 3: 103}), cluster), PartitionState)

    @pytest.mark.parametrize("epoch", [-1, 99, 104])
    def test_replica_joins_only_in_the_incarnation_in_which_the_leader_saw_it_fetch(self, epoch: int) -> None:
        """B56: an unknown epoch proves nothing, where the state records who is whole."""
        cluster = cluster_of(1, 2, 3, state=replace(STATE, epochs={1: 101, 2: 102}))
        cluster.keeps_eligible = lambda: True
        assert decided(proposal(ALL | {3: epoch}), cluster) is ErrorCode.INELIGIBLE_REPLICA
        joined = decided(proposal({1: -1, 2: -1, 3: 103}), cluster)
        assert isinstance(joined, PartitionState)
        assert (joined.isr, joined.epochs) == ((1, 2, 3), ALL)

    def test_member_that_stays_is_recorded_in_a_later_incarnation_only_if_it_lost_nothing(self) -> None:
        """B56: its logs are intact from the recorded epoch on, by its registration."""
        cluster = cluster_of(1, 2, 3, state=replace(STATE, epochs={1: 101, 2: 90}))
        cluster.keeps_eligible = lambda: True
        assert decided(proposal({1: 101, 2: -1, 3: 103}), cluster) is ErrorCode.INELIGIBLE_REPLICA
        whole = BrokerRegistration(broker_id=2, endpoints=(), intact_since=80, intact_until=95)
        cluster.brokers[2] = LiveBroker(registration=whole, epoch=102)
        assert decided(proposal({1: 101, 2: 90, 3: 103}), cluster) is ErrorCode.INELIGIBLE_REPLICA
        joined = decided(proposal({1: 101, 2: -1, 3: 103}), cluster)
        assert isinstance(joined, PartitionState)
        assert joined.epochs == ALL

    def test_partitions_that_are_gone_or_going_are_unknown(self) -> None:
        cluster = cluster_of(1, 2, 3)
        cluster.topics_to_delete["t"] = None
        assert decided(proposal(ALL), cluster) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert decide(proposal(ALL), TopicPartition("t", 1), cluster, 9) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def request(
    cluster: ClusterUnderTest, topic: str, *wanted: AlterPartitionData, leader: int = 1
) -> AlterPartitionRequest:
    topic_id = cluster.brokers[leader].metadata.image.topics[topic].topic_id
    return AlterPartitionRequest(
        broker_id=leader,
        broker_epoch=cluster.members[leader].controller.broker_epoch,
        topics=[AlterPartitionTopic(topic_id=topic_id, partitions=list(wanted))],
    )


def wanting(index: int, isr: list[int], *, leader_epoch: int = 0, partition_epoch: int = 0) -> AlterPartitionData:
    return AlterPartitionData(
        partition_index=index,
        leader_epoch=leader_epoch,
        partition_epoch=partition_epoch,
        new_isr_with_epochs=[BrokerState(broker_id=broker_id) for broker_id in isr],
    )


def only(response: AlterPartitionResponse) -> list[AlteredPartition]:
    assert response.error_code == ErrorCode.NONE
    (topic,) = response.topics
    return topic.partitions


class TestRequest:
    async def test_accepted_change_is_written_returned_and_sent_to_all(self) -> None:
        async with running_cluster(1, 2, 3) as cluster:
            await create(cluster, manual("t", (1, 2, 3), (1, 2, 3)))
            for broker in cluster.brokers.values():
                broker.requests.clear()
            requested = request(cluster, "t", wanting(0, [1, 3]), wanting(1, [1]))
            first, second = only(await cluster.apis.alter_partition(requested))
            assert (first.error_code, first.isr, first.leader_epoch, first.partition_epoch) == (0, [1, 3], 0, 1)
            assert (second.error_code, second.isr, second.partition_epoch) == (0, [1], 1)
            assert (await state_of(cluster, "t", 0)).isr == (1, 3)
            assert (await state_of(cluster, "t", 1)).isr == (1,)
            for broker in cluster.brokers.values():
                assert broker.metadata.image.topics["t"].partitions[0].isr == (1, 3)
                assert len(broker.of_type(UpdateMetadataRequest)) == 1

    async def test_request_of_the_controllers_own_broker_names_incarnations_too(self) -> None:
        """B56: it is passed on as it is, with the fields of every version."""
        async with running_cluster(1, 2, 3) as cluster:
            await create(cluster, manual("t", (1, 2, 3)))
            only(await cluster.apis.alter_partition(request(cluster, "t", wanting(0, [1]))))
            again = wanting(0, [1, 3], partition_epoch=1)
            again.new_isr = [1, 3]
            again.new_isr_with_epochs[1].broker_epoch = cluster.members[3].controller.broker_epoch - 1
            (refused,) = only(await cluster.apis.alter_partition(request(cluster, "t", again)))
            assert refused.error_code == ErrorCode.INELIGIBLE_REPLICA
            again.new_isr_with_epochs[1].broker_epoch += 1
            (accepted,) = only(await cluster.apis.alter_partition(request(cluster, "t", again)))
            assert accepted.isr == [1, 3]

    async def test_repeated_request_gets_the_first_response(self) -> None:
        async with running_cluster(1, 2, 3) as cluster:
            await create(cluster, manual("t", (1, 2, 3)))
            requested = request(cluster, "t", wanting(0, [1, 3]))
            first = await cluster.apis.alter_partition(requested)
            assert await cluster.apis.alter_partition(requested) == first
            assert cluster.ensemble.tree.get(paths.partition_state(PARTITION)).stat.version == 1  # type: ignore[union-attr]

    async def test_concurrent_write_is_not_overwritten_and_affects_no_other_partition(self) -> None:
        """B59"""
        async with running_cluster(1, 2, 3) as cluster:
            await create(cluster, manual("t", (1, 2, 3), (1, 2, 3)))
            foreign = replace(await state_of(cluster, "t", 0), isr=(1, 2), controller_epoch=42)
            await cluster.members[2].session.set(
                paths.partition_state(PARTITION), znodes.encode_partition_state(foreign)
            )
            requested = request(cluster, "t", wanting(0, [1]), wanting(1, [1]))
            first, second = only(await cluster.apis.alter_partition(requested))
            assert (first.error_code, second.error_code) == (ErrorCode.INVALID_UPDATE_VERSION, ErrorCode.NONE)
            assert await state_of(cluster, "t", 0) == foreign
            again = request(cluster, "t", wanting(0, [1], partition_epoch=1))
            (third,) = only(await cluster.apis.alter_partition(again))
            assert (third.error_code, third.isr, third.partition_epoch) == (ErrorCode.NONE, [1], 2)

    async def test_unknown_topics_do_not_spoil_the_others(self) -> None:
        async with running_cluster(1, 2) as cluster:
            await create(cluster, manual("t", (1, 2)))
            requested = request(cluster, "t", wanting(0, [1]))
            unknown = AlterPartitionTopic(topic_id=bytes(15) + b"x", partitions=[wanting(0, [1])])
            requested.topics.insert(0, unknown)
            response = await cluster.apis.alter_partition(requested)
            assert [t.partitions[0].error_code for t in response.topics] == [ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.NONE]

    async def test_request_of_former_incarnation_of_a_leader_is_refused(self) -> None:
        """B63"""
        async with running_cluster(1, 2) as cluster:
            await create(cluster, manual("t", (1, 2)))
            requested = request(cluster, "t", wanting(0, [1]))
            requested.broker_epoch -= 1
            response = await cluster.apis.alter_partition(requested)
            assert response.error_code == ErrorCode.STALE_BROKER_EPOCH
            assert (await state_of(cluster, "t", 0)).isr == (1, 2)

    async def test_alter_partition_on_another_broker_is_refused(self) -> None:
        async with running_cluster(1, 2) as cluster:
            await create(cluster, manual("t", (1, 2)))
            requested = request(cluster, "t", wanting(0, [1]))
            response = await cluster.members[2].apis.alter_partition(requested)
            assert response.error_code == ErrorCode.NOT_CONTROLLER
