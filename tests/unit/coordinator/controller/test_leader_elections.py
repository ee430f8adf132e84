"""Leaders elected on request, leadership that returns by itself, and brokers that leave in an orderly way."""

import asyncio
from dataclasses import replace

import pytest

from oncelog.coordinator.controller.api_error import NO_ERROR, NOT_CONTROLLER, ApiError
from oncelog.coordinator.controller.config_changes import (
    ConfigAlteration,
    ConfigOperation,
    ConfigResource,
    OperationType,
    ResourceType,
)
from oncelog.coordinator.controller.election import preferred_state
from oncelog.coordinator.controller.leader_elections import ElectionType
from oncelog.coordinator.metadata_store.znodes import PartitionState
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.controlled_shutdown import ControlledShutdownRequest, ControlledShutdownResponse
from oncelog.protocol.messages.leader_and_isr import LeaderAndIsrRequest
from oncelog.protocol.topic_partition import TopicPartition
from tests.unit.broker.virtual_time import in_virtual_time
from tests.unit.coordinator.controller.cluster import ClusterUnderTest, running_cluster
from tests.unit.coordinator.controller.test_controller import create, manual, state_of
from tests.unit.coordinator.controller.test_isr_changes import only, request, wanting

STATE = PartitionState(leader=2, leader_epoch=5, isr=(2, 1), controller_epoch=1)


class TestPreferredState:
    def test_first_replica_leads_again(self) -> None:
        wanted = replace(STATE, leader=1, leader_epoch=6, controller_epoch=9)
        assert preferred_state(STATE, (1, 2), {1, 2}, 9) == wanted

    @pytest.mark.parametrize(
        ("replicas", "isr", "reliable"),
        [((2, 1), (2, 1), {1, 2}), ((1, 2), (2,), {1, 2}), ((1, 2), (2, 1), {2})],
        ids=["it leads already", "it is not in sync", "it is not to be relied on"],
    )
    def test_otherwise_nothing_changes(
        self, replicas: tuple[int, ...], isr: tuple[int, ...], reliable: set[int]
    ) -> None:
        assert preferred_state(replace(STATE, isr=isr), replicas, reliable, 9) is None


async def after_an_absence(cluster: ClusterUnderTest, *topics: str) -> None:
    """Broker 1 was away, and is back in every ISR; broker 2 leads what 1 should."""
    await create(cluster, *(manual(topic, (1, 2), (2, 1)) for topic in topics))
    await cluster.kill(1)
    await cluster.restart(1)
    for topic in topics:
        requested = request(cluster, topic, leader=2)
        for index in (0, 1):
            state = await state_of(cluster, topic, index)
            znode = cluster.brokers[2].led[TopicPartition(topic, index)]
            requested.topics[0].partitions.append(
                wanting(index, [2, 1], leader_epoch=state.leader_epoch, partition_epoch=znode.partition_epoch)
            )
        assert {p.error_code for p in only(await cluster.apis.alter_partition(requested))} == {0}


async def leaders(cluster: ClusterUnderTest, topic: str) -> list[int]:
    return [(await state_of(cluster, topic, index)).leader for index in (0, 1)]


async def elect(
    cluster: ClusterUnderTest, election: ElectionType, *partitions: tuple[str, int]
) -> dict[tuple[str, int], ErrorCode]:
    requested = [TopicPartition(*partition) for partition in partitions] or None
    results = await cluster.apis.elect_leaders(requested, election)
    assert not isinstance(results, ApiError)
    return {tuple(partition): error.code for partition, error in results.items()}  # type: ignore[misc]


class TestPreferredElection:
    async def test_leadership_returns_and_everybody_hears(self) -> None:
        async with running_cluster(1, 2) as cluster:
            await after_an_absence(cluster, "t")
            assert await leaders(cluster, "t") == [2, 2]
            results = await elect(cluster, ElectionType.PREFERRED, ("t", 0), ("t", 1))
            assert results == {("t", 0): ErrorCode.NONE, ("t", 1): ErrorCode.ELECTION_NOT_NEEDED}
            assert await leaders(cluster, "t") == [1, 2]
            assert cluster.brokers[1].led[TopicPartition("t", 0)].leader == 1
            assert cluster.brokers[2].led[TopicPartition("t", 0)].leader == 1
            for broker in cluster.brokers.values():
                assert broker.metadata.image.topics["t"].partitions[0].leader == 1

    async def test_election_for_all_partitions_returns_only_those_that_needed_one(self) -> None:
        async with running_cluster(1, 2) as cluster:
            await after_an_absence(cluster, "t", "u")
            results = await elect(cluster, ElectionType.PREFERRED)
            assert results == {("t", 0): ErrorCode.NONE, ("u", 0): ErrorCode.NONE}

    async def test_preferred_leader_that_is_not_in_sync_is_not_elected(self) -> None:
        async with running_cluster(1, 2) as cluster:
            await create(cluster, manual("t", (1, 2), (2, 1)))
            await cluster.kill(1)
            await cluster.restart(1)
            results = await elect(cluster, ElectionType.PREFERRED, ("t", 0))
            assert results == {("t", 0): ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE}
            assert await leaders(cluster, "t") == [2, 2]

    async def test_election_of_unknown_partition_is_refused(self) -> None:
        async with running_cluster(1, 2) as cluster:
            await create(cluster, manual("t", (1, 2)), manual("going", (1, 2)))
            cluster.brokers[2].responds = False
            deletion = asyncio.ensure_future(cluster.apis.delete_topics(["going"], timeout_seconds=60))  # noqa: TID251
            await cluster.settle()
            results = await elect(cluster, ElectionType.PREFERRED, ("t", 9), ("u", 0), ("going", 0))
            assert results == {
                ("t", 9): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                ("u", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                ("going", 0): ErrorCode.INVALID_TOPIC_EXCEPTION,
            }
            cluster.brokers[2].respond_to_all()
            await deletion

    async def test_election_on_another_broker_is_refused(self) -> None:
        async with running_cluster(1, 2) as cluster:
            follower = cluster.members[2].apis
            assert await follower.elect_leaders(None, ElectionType.PREFERRED) == NOT_CONTROLLER


class TestUncleanElection:
    async def test_unclean_election_elects_a_replica_out_of_sync(self) -> None:
        async with running_cluster(1, 2) as cluster:
            await create(cluster, manual("t", (1, 2), (2, 1)))
            await cluster.kill(2)
            await cluster.restart(2)
            await cluster.kill(1)
            assert await leaders(cluster, "t") == [-1, -1]
            results = await elect(cluster, ElectionType.UNCLEAN, ("t", 0))
            assert results == {("t", 0): ErrorCode.NONE}
            assert await leaders(cluster, "t") == [2, -1]
            assert (await state_of(cluster, "t", 0)).isr == (2,)

    async def test_replica_out_of_sync_leads_as_soon_as_its_topic_allows_it(self) -> None:
        async with running_cluster(1, 2) as cluster:
            await create(cluster, manual("t", (1, 2), (2, 1)))
            await cluster.kill(2)
            await cluster.restart(2)
            await cluster.kill(1)
            assert await leaders(cluster, "t") == [-1, -1]
            allow = ConfigOperation("unclean.leader.election.enable", OperationType.SET, "true")
            alteration = ConfigAlteration(resource=ConfigResource(ResourceType.TOPIC, "t"), operations=(allow,))
            assert await cluster.members[2].configs.alter([alteration]) == [NO_ERROR]
            await cluster.settle()
            assert await leaders(cluster, "t") == [2, 2]
            assert cluster.brokers[2].led[TopicPartition("t", 0)].leader == 2

    async def test_leader_that_is_up_stays(self) -> None:
        async with running_cluster(1, 2) as cluster:
            await create(cluster, manual("t", (1, 2)))
            results = await elect(cluster, ElectionType.UNCLEAN, ("t", 0))
            assert results == {("t", 0): ErrorCode.ELECTION_NOT_NEEDED}

    async def test_unclean_election_without_live_replica_fails(self) -> None:
        async with running_cluster(1, 2) as cluster:
            await create(cluster, manual("t", (2,)))
            await cluster.kill(2)
            results = await elect(cluster, ElectionType.UNCLEAN, ("t", 0))
            assert results == {("t", 0): ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE}


async def stop(cluster: ClusterUnderTest, broker_id: int, *, epoch: int | None = None) -> ControlledShutdownResponse:
    known = cluster.members[broker_id].controller.broker_epoch
    requested = ControlledShutdownRequest(broker_id=broker_id, broker_epoch=known if epoch is None else epoch)
    return await cluster.apis.controlled_shutdown(requested)


class TestControlledShutdown:
    async def test_leaderships_move_away_and_the_broker_is_in_no_isr(self) -> None:
        async with running_cluster(1, 2, 3) as cluster:
            await create(cluster, manual("t", (2, 3), (3, 2), (2, 1)))
            response = await stop(cluster, 2)
            assert (response.error_code, response.remaining_partitions) == (ErrorCode.NONE, [])
            assert [(await state_of(cluster, "t", i)).leader for i in range(3)] == [3, 3, 1]
            assert [(await state_of(cluster, "t", i)).isr for i in range(3)] == [(3,), (3,), (1,)]
            assert cluster.brokers[2].led[TopicPartition("t", 0)].leader == 3

    async def test_stopping_broker_leads_nothing_before_it_registers_anew(self) -> None:
        async with running_cluster(1, 2) as cluster:
            await create(cluster, manual("t", (1, 2)))
            await stop(cluster, 2)
            requested = request(cluster, "t", wanting(0, [1, 2], leader_epoch=1, partition_epoch=1))
            assert only(await cluster.apis.alter_partition(requested))[0].error_code == ErrorCode.INELIGIBLE_REPLICA
            await create(cluster, manual("u", (2, 1)))
            assert (await state_of(cluster, "u", 0)).leader == 1
            await cluster.kill(2)
            await cluster.restart(2)
            epochs = {"leader_epoch": 1, "partition_epoch": 1}
            requested = request(cluster, "t", wanting(0, [1, 2], **epochs))
            assert only(await cluster.apis.alter_partition(requested))[0].error_code == ErrorCode.NONE

    async def test_partition_that_no_other_broker_can_lead_remains(self) -> None:
        async with running_cluster(1, 2) as cluster:
            await create(cluster, manual("alone", (2,)), manual("t", (2, 1)))
            requested = request(cluster, "t", wanting(0, [2]), leader=2)
            await cluster.apis.alter_partition(requested)
            response = await stop(cluster, 2)
            assert [(p.topic_name, p.partition_index) for p in response.remaining_partitions] == [("t", 0)]
            assert (await state_of(cluster, "t", 0)).leader == 2
            assert (await state_of(cluster, "alone", 0)).leader == 2

    async def test_controlled_shutdown_of_unknown_broker_is_refused(self) -> None:
        async with running_cluster(1, 2) as cluster:
            epoch = cluster.members[2].controller.broker_epoch
            assert (await stop(cluster, 2, epoch=epoch - 1)).error_code == ErrorCode.STALE_BROKER_EPOCH
            gone = ControlledShutdownRequest(broker_id=7, broker_epoch=1)
            response = await cluster.apis.controlled_shutdown(gone)
            assert response.error_code == ErrorCode.BROKER_NOT_AVAILABLE
            response = await cluster.members[2].apis.controlled_shutdown(gone)
            assert response.error_code == ErrorCode.NOT_CONTROLLER

    async def test_controlled_shutdown_returns_when_the_new_leaders_know(self) -> None:
        async with running_cluster(1, 2, 3) as cluster:
            await create(cluster, manual("t", (2, 3)))
            cluster.brokers[3].responds = False
            stopping = asyncio.ensure_future(stop(cluster, 2))  # noqa: TID251
            await cluster.settle()
            assert not stopping.done()
            assert len(cluster.brokers[3].of_type(LeaderAndIsrRequest)) == 2
            cluster.brokers[3].respond_to_all()
            await cluster.settle()
            assert stopping.done()


async def balanced(percentage: int) -> list[int]:
    """Who leads after a minute in which leadership may return."""
    async with running_cluster(1, 2, balance=(10, percentage)) as cluster:
        await after_an_absence(cluster, "t", "u")
        assert await leaders(cluster, "t") == [2, 2]
        await asyncio.sleep(60)
        return await leaders(cluster, "t")


@in_virtual_time
async def test_leadership_returns_by_itself() -> None:
    assert await balanced(10) == [1, 2]


@in_virtual_time
async def test_leadership_does_not_return_while_the_imbalance_is_tolerated() -> None:
    assert await balanced(100) == [2, 2]
