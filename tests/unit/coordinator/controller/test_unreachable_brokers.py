"""Brokers that cannot be reached: passed over where that costs nothing, trusted again, not suspected too often."""

import asyncio

import pytest

from oncelog.coordinator.controller.api_error import ApiError
from oncelog.coordinator.controller.controller_election import (
    Elected,
    OtherElected,
    replace_controller,
    stand_for_election,
)
from oncelog.coordinator.controller.topic_plan import NewTopic, TopicPlan
from oncelog.coordinator.controller.unreachable_backoff import (
    FIRST_PAUSE_SECONDS,
    FORGOTTEN_AFTER_SECONDS,
    LONGEST_PAUSE_SECONDS,
    UnreachableBackoff,
)
from oncelog.coordinator.metadata_store import paths
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.topic_partition import TopicPartition
from tests.unit.broker.virtual_time import in_virtual_time
from tests.unit.coordinator.controller.cluster import ClusterUnderTest, NotingBroker, running_cluster
from tests.unit.coordinator.controller.test_controller import create, data, manual, state_of
from tests.unit.coordinator.controller.test_isr_changes import only, request, wanting

T0 = TopicPartition("t", 0)


class TestLimit:
    def test_pauses_double_up_to_a_limit(self) -> None:
        limit, now, pauses = UnreachableBackoff(), 100.0, []
        for _ in range(9):
            assert limit.allows(1, now)
            limit.note(1, now)
            began = now
            while not limit.allows(1, now):
                now += 0.5
            pauses.append(now - began)
        assert pauses == [1, 2, 4, 8, 16, *[LONGEST_PAUSE_SECONDS] * 4]

    def test_backoff_starts_anew_after_quiet_time_and_expired_session(self) -> None:
        limit = UnreachableBackoff()
        limit.note(1, 0.0)
        limit.note(1, 1.0)
        assert not limit.allows(1, 2.5)
        limit.note(1, 3.0 + FORGOTTEN_AFTER_SECONDS)
        assert limit.allows(1, 4.0 + FORGOTTEN_AFTER_SECONDS)
        limit.note(2, 0.0)
        limit.forget(2)
        assert limit.allows(2, 0.0)

    def test_brokers_are_judged_one_by_one(self) -> None:
        limit = UnreachableBackoff()
        limit.note(1, 0.0)
        assert limit.allows(2, 0.0)


class TestUnreachableBrokers:
    async def test_others_lead_at_once_and_the_unreachable_broker_is_in_no_isr(self) -> None:
        async with running_cluster(1, 2, 3) as cluster:
            await create(cluster, manual("t", (2, 3), (3, 2), (1, 3)))
            cluster.brokers[2].connected = False
            cluster.controller.report_unreachable(2)
            await cluster.settle()
            states = [await state_of(cluster, "t", index) for index in range(3)]
            assert [(s.leader, s.isr, s.leader_epoch) for s in states] == [(3, (3,), 1), (3, (3,), 1), (1, (1, 3), 0)]
            assert cluster.brokers[3].led[T0].leader == 3
            image = cluster.brokers[3].metadata.image
            assert sorted(image.brokers) == [1, 3]  # Nobody should wait for it, although the store holds it alive.
            assert [p.offline_replicas for p in image.topics["t"].partitions.values()] == [(2,), (2,), ()]

    async def test_partition_that_only_the_unreachable_broker_can_lead_stays(self) -> None:
        async with running_cluster(1, 2) as cluster:
            await create(cluster, manual("alone", (2,)), manual("t", (2, 1)))
            requested = request(cluster, "t", wanting(0, [2]), leader=2)
            await cluster.apis.alter_partition(requested)
            cluster.controller.report_unreachable(2)
            await cluster.settle()
            assert [(await state_of(cluster, topic, 0)).leader for topic in ("alone", "t")] == [2, 2]

    @in_virtual_time
    async def test_unreachable_broker_is_trusted_after_it_accepts_leader_and_isr(self) -> None:
        async with running_cluster(1, 2, 3) as cluster:
            await create(cluster, manual("t", (2, 3)))
            cluster.brokers[2].connected = False
            cluster.controller.report_unreachable(2)
            await cluster.settle()
            state = await state_of(cluster, "t", 0)
            joining = wanting(0, [3, 2], leader_epoch=state.leader_epoch, partition_epoch=1)
            requested = request(cluster, "t", joining, leader=3)
            assert only(await cluster.apis.alter_partition(requested))[0].error_code
            cluster.brokers[2].connected = True
            await asyncio.sleep(5)
            assert not only(await cluster.apis.alter_partition(requested))[0].error_code
            assert cluster.brokers[2].led[T0].leader == 3
            image = cluster.brokers[3].metadata.image
            assert sorted(image.brokers) == [1, 2, 3]
            assert image.topics["t"].partitions[0].offline_replicas == ()

    @in_virtual_time
    async def test_broker_on_probation_that_is_unreachable_again_is_trusted_only_after_steady_seconds(self) -> None:
        async with running_cluster(1, 2, 3) as cluster:
            await create(cluster, manual("t", (2, 3)))
            cluster.controller.report_unreachable(2)  # It responds, so its probation begins at once.
            for _ in range(5):
                await asyncio.sleep(0.8 * FIRST_PAUSE_SECONDS)
                assert sorted(cluster.brokers[1].metadata.image.brokers) == [1, 3]
                cluster.controller.report_unreachable(2)
            await asyncio.sleep(1.2 * FIRST_PAUSE_SECONDS)
            assert sorted(cluster.brokers[1].metadata.image.brokers) == [1, 2, 3]
            assert (await state_of(cluster, "t", 0)).leader_epoch == 1

    @in_virtual_time
    async def test_broker_without_replicas_that_is_unreachable_again_on_probation_is_trusted_after_another(
        self,
    ) -> None:
        async with running_cluster(1, 2, 3) as cluster:
            await create(cluster, manual("t", (1, 2)))
            cluster.controller.report_unreachable(3)
            await asyncio.sleep(0.5 * FIRST_PAUSE_SECONDS)
            cluster.controller.report_unreachable(3)
            await asyncio.sleep(0.9 * FIRST_PAUSE_SECONDS)
            assert sorted(cluster.brokers[1].metadata.image.brokers) == [1, 2]
            await asyncio.sleep(0.2 * FIRST_PAUSE_SECONDS)
            assert sorted(cluster.brokers[1].metadata.image.brokers) == [1, 2, 3]

    @in_virtual_time
    async def test_broker_that_was_trusted_too_early_has_a_longer_probation(self) -> None:
        async with running_cluster(1, 2, 3) as cluster:
            await create(cluster, manual("t", (2, 3)))
            for seconds in (1, 2, 4, 8):
                cluster.controller.report_unreachable(2)
                await asyncio.sleep(0.9 * seconds)
                assert sorted(cluster.brokers[1].metadata.image.brokers) == [1, 3]
                await asyncio.sleep(0.2 * seconds)
                assert sorted(cluster.brokers[1].metadata.image.brokers) == [1, 2, 3]

    @in_virtual_time
    async def test_unreachable_broker_that_leads_alone_or_nothing_is_trusted_when_it_responds(self) -> None:
        async with running_cluster(1, 2, 3) as cluster:
            await create(cluster, manual("alone", (2,)))
            for broker_id in (2, 3):
                cluster.controller.report_unreachable(broker_id)
                await asyncio.sleep(1.1 * FIRST_PAUSE_SECONDS)
                assert sorted(cluster.brokers[1].metadata.image.brokers) == [1, 2, 3]
                assert (await state_of(cluster, "alone", 0)).leader_epoch == 0

    async def test_unreachable_broker_that_expires_and_returns_is_reachable(self) -> None:
        async with running_cluster(1, 2, 3) as cluster:
            await create(cluster, manual("t", (2, 3)))
            cluster.brokers[2].connected = False
            cluster.controller.report_unreachable(2)
            await cluster.settle()
            await cluster.kill(2)
            assert sorted(cluster.brokers[3].metadata.image.brokers) == [1, 3]
            cluster.brokers[2] = NotingBroker(responds=False)
            await cluster.start(2)
            assert sorted(cluster.brokers[3].metadata.image.brokers) == [1, 2, 3]
            cluster.brokers[2].respond_to_all()
            requested = request(cluster, "t", wanting(0, [3, 2], leader_epoch=1, partition_epoch=1), leader=3)
            assert not only(await cluster.apis.alter_partition(requested))[0].error_code
            cluster.controller.report_unreachable(2)
            await cluster.settle()
            assert (await state_of(cluster, "t", 0)).isr == (3,)

    async def test_broker_that_is_not_controller_replaces_only_the_controller(self) -> None:
        async with running_cluster(1, 2, 3) as cluster:
            await create(cluster, manual("t", (2, 3)))
            cluster.members[3].controller.report_unreachable(2)
            cluster.controller.report_unreachable(1)
            await cluster.settle()
            assert (await state_of(cluster, "t", 0)).leader == 2
            assert cluster.controller.controller_id == 1


class TestControllerThatCannotBeReached:
    async def test_unreachable_controller_is_replaced_as_controller_and_leader(self) -> None:
        async with running_cluster(1, 2, 3) as cluster:
            await create(cluster, manual("t", (1, 2)))
            deposed = cluster.members[1].apis
            cluster.brokers[1].connected = False
            cluster.members[2].controller.report_unreachable(1)
            await cluster.settle()
            assert cluster.controller.controller_id == 2
            assert not deposed.controller.is_active
            assert deposed.controller.controller_id == 2
            state = await state_of(cluster, "t", 0)
            assert (state.leader, state.isr, state.controller_epoch) == (2, (2,), 2)

    async def test_many_that_notice_elect_one(self) -> None:
        async with running_cluster(1, 2, 3) as cluster:
            for broker_id in (2, 3):
                cluster.members[broker_id].controller.report_unreachable(1)
            await cluster.settle()
            assert await data(cluster.members[1].session, paths.CONTROLLER_EPOCH) == b"2"
            assert {m.controller.controller_id for m in cluster.members.values()} == {cluster.controller.controller_id}

    async def test_replace_controller_replaces_only_the_named_controller(self) -> None:
        """The suspicion may be older than the election of another broker."""
        async with running_cluster(1, 2, 3) as cluster:
            session = cluster.members[3].session
            assert await replace_controller(session, 3, 2, 0, lambda: None) == OtherElected(controller_id=1)
            assert await replace_controller(session, 3, 1, 0, lambda: None) == Elected(epoch=2, epoch_version=1)

    async def test_concurrent_election_is_not_undone(self) -> None:
        async with running_cluster(1, 2, 3) as cluster:
            first, second = cluster.members[2].session, cluster.members[3].session

            class Late:
                """Asks for the controller before, and writes after, another broker was elected."""

                def __getattr__(self, name: str) -> object:
                    return getattr(second, name)

                async def multi(self, operations: object) -> object:
                    assert isinstance(await replace_controller(first, 2, 1, 0, lambda: None), Elected)
                    return await second.multi(operations)  # type: ignore[arg-type]

            assert await replace_controller(Late(), 3, 1, 0, lambda: None) == OtherElected(controller_id=2)  # type: ignore[arg-type]
            assert isinstance(await stand_for_election(first, 2, 0, lambda: None), Elected)


async def creation(cluster: ClusterUnderTest, topic: NewTopic, timeout_seconds: float) -> tuple[ErrorCode, float]:
    """What the creation of a topic returns, and after how many seconds."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    (result,) = await cluster.apis.create_topics([topic], timeout_seconds=timeout_seconds)
    assert await cluster.apis.create_topics([topic]) == [exists(topic)]
    return ErrorCode.NONE if isinstance(result, TopicPlan) else result.code, loop.time() - began


def exists(topic: NewTopic) -> ApiError:
    return ApiError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{topic.name}' already exists.")


class TestCreationBesideASilentBroker:
    """Broker 2 has a replica, and does not respond."""

    @pytest.mark.parametrize(
        ("responds_after", "timeout_seconds", "expected"),
        [
            (2.0, 30, (ErrorCode.NONE, 2.0)),
            (None, 5, (ErrorCode.REQUEST_TIMED_OUT, 5.0)),
            (0.5, 0, (ErrorCode.NONE, 0.5)),
            (None, -1, (ErrorCode.REQUEST_TIMED_OUT, 1.0)),
        ],
    )
    def test_creation_waits_until_the_broker_responds_or_the_timeout_passes(
        self, responds_after: float | None, timeout_seconds: float, expected: tuple[ErrorCode, float]
    ) -> None:
        @in_virtual_time
        async def play() -> None:
            async with running_cluster(1, 2) as cluster:
                cluster.brokers[2].responds = False
                if responds_after is not None:
                    asyncio.get_running_loop().call_later(responds_after, cluster.brokers[2].respond_to_all)
                error, seconds = await creation(cluster, manual("t", (1, 2)), timeout_seconds)
                assert (error, round(seconds, 2)) == expected

        play()

    @pytest.mark.parametrize("partitions", [1, 60])
    def test_creation_does_not_wait_for_an_unreachable_broker(self, partitions: int) -> None:
        @in_virtual_time
        async def play() -> None:
            async with running_cluster(1, 2) as cluster:
                cluster.brokers[2].responds = False
                asyncio.get_running_loop().call_later(0.5, cluster.controller.report_unreachable, 2)
                error, seconds = await creation(cluster, manual("t", *[(1, 2)] * partitions), 30)
                assert (error, round(seconds, 2)) == (ErrorCode.NONE, 0.5)

        play()
