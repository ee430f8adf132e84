"""The controller over an embedded store: what it writes, what it tells brokers, and when it stops doing either."""

import asyncio
import json
import random
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, cast

import pytest

from oncelog.coordinator.controller.api_error import NO_ERROR, NOT_CONTROLLER, ApiError
from oncelog.coordinator.controller.cluster_image import LEADER_DURING_DELETE
from oncelog.coordinator.controller.controller_election import Elected, replace_controller, stand_for_election
from oncelog.coordinator.controller.membership import BrokerIdTaken, cluster_id, register
from oncelog.coordinator.controller.topic_plan import NewPartitions, NewTopic, TopicPlan
from oncelog.coordinator.metadata_store import paths, znodes
from oncelog.coordinator.metadata_store.store import MultiResult, Operation, Session
from oncelog.coordinator.metadata_store.znodes import BrokerRegistration, PartitionState
from oncelog.coordinator.ports import LastRegistration, UnknownLogs
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.leader_and_isr import LeaderAndIsrRequest
from oncelog.protocol.messages.stop_replica import StopReplicaRequest
from oncelog.protocol.messages.update_metadata import UpdateMetadataRequest
from oncelog.protocol.topic_partition import TopicPartition
from tests.unit.coordinator.controller.cluster import ClusterUnderTest, running_cluster


async def data(session: Session, path: str) -> bytes | None:
    znode = await session.get(path)
    return None if znode is None else znode.data


async def state_of(cluster: ClusterUnderTest, topic: str, partition: int) -> PartitionState:
    session = next(iter(cluster.members.values())).session
    content = await data(session, paths.partition_state(TopicPartition(topic, partition)))
    assert content is not None
    return znodes.decode_partition_state(content)


async def create(cluster: ClusterUnderTest, *topics: NewTopic, validate_only: bool = False) -> list[ErrorCode]:
    results = await cluster.apis.create_topics(topics, validate_only=validate_only)
    return [ErrorCode.NONE if isinstance(result, TopicPlan) else result.code for result in results]


def manual(name: str, *replicas: tuple[int, ...]) -> NewTopic:
    return NewTopic(name=name, assignments=list(enumerate(replicas)))


async def tree(cluster: ClusterUnderTest, path: str = "/") -> dict[str, bytes]:
    """Everything in the store except who lives: epochs, sessions and time stamps."""
    contents = {}
    for name in cluster.ensemble.tree.children(path) or ():
        child = f"{path.rstrip('/')}/{name}"
        znode = cluster.ensemble.tree.get(child)
        assert znode is not None
        contents[child] = znode.data
        contents |= await tree(cluster, child)
    return contents


class LogsWithRegistrations(UnknownLogs):
    """Records which registrations began."""

    def __init__(self) -> None:
        self.begun: list[tuple[int, LastRegistration | None]] = []

    async def begin_registration(self, session_id: int, last: LastRegistration | None) -> None:
        self.begun.append((session_id, last))


class InterruptedBeforeMulti:
    """A session in which something else happens just before the first multi."""

    def __init__(self, session: Session, interruption: Callable[[], Awaitable[None]]) -> None:
        self._session = session
        self._interruption: Callable[[], Awaitable[None]] | None = interruption

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)

    async def multi(self, operations: Sequence[Operation]) -> MultiResult:
        interruption, self._interruption = self._interruption, None
        if interruption is not None:
            await interruption()
        return await self._session.multi(operations)


class TestControllerEpoch:
    async def test_first_broker_is_registered_and_elected(self) -> None:
        async with running_cluster(1) as cluster:
            session = cluster.members[1].session
            registered = await session.get(paths.broker(1))
            assert registered is not None
            assert registered.stat.ephemeral_owner == session.session_id
            assert registered.stat.czxid == cluster.controller.broker_epoch
            assert json.loads(registered.data)["endpoints"] == ["PLAINTEXT://host1:9092"]
            assert json.loads(await data(session, paths.CONTROLLER) or b"")["brokerid"] == 1
            assert await data(session, paths.CONTROLLER_EPOCH) == b"1"
            assert json.loads(await data(session, paths.FEATURE) or b"") == {
                "version": 2,
                "status": 1,
                "features": {"transaction.version": {"max_version_level": 2}},
            }
            image = cluster.brokers[1].metadata.image
            assert image.controller_id == 1
            endpoint = image.endpoint(1, "PLAINTEXT")
            assert endpoint is not None
            assert (endpoint.host, endpoint.port) == ("host1", 9092)

    async def test_cluster_has_one_controller_and_brokers_know_each_other(self) -> None:
        async with running_cluster(1, 2, 3) as cluster:
            assert [m.controller.is_active for m in cluster.members.values()] == [True, False, False]
            assert [m.controller.controller_id for m in cluster.members.values()] == [1, 1, 1]
            for broker in cluster.brokers.values():
                assert sorted(broker.metadata.image.brokers) == [1, 2, 3]
                assert broker.metadata.image.controller_id == 1

    async def test_another_broker_is_elected_when_the_controller_dies(self) -> None:
        """B67"""
        async with running_cluster(1, 2) as cluster:
            await cluster.kill(1)
            assert cluster.controller.broker_id == 2
            assert cluster.brokers[2].metadata.image.controller_id == 2
            assert cluster.brokers[2].metadata.controller_epoch == 2
            assert sorted(cluster.brokers[2].metadata.image.brokers) == [2]

    async def test_death_of_broker_behind_queued_creations_moves_leaderships_first(self) -> None:
        async with running_cluster(1, 2, 3) as cluster:
            await create(cluster, manual("t", (2, 3)))
            loop, known = asyncio.get_running_loop(), cluster.active.context.state
            topics = [NewTopic(name=f"new{number}") for number in range(200)]
            creations = [loop.create_task(cluster.apis.create_topics([topic])) for topic in topics]
            await asyncio.sleep(0)
            cluster.ensemble.close_session(cluster.members[2].session.session_id)
            for _ in range(30):
                if known.topics["t"].states[0].state.leader == 3:
                    break
                await asyncio.sleep(0)
            assert known.topics["t"].states[0].state.leader == 3
            assert sum(f"new{number}" in known.topics for number in range(200)) < 10
            for task in creations:
                task.cancel()

    async def test_expired_controller_registers_and_is_elected_again(self) -> None:
        """B66: one expiry, one re-registration with a larger epoch, and requests are served as before."""
        async with running_cluster(1) as cluster:
            assert await create(cluster, NewTopic(name="t")) == [ErrorCode.NONE]
            epoch = cluster.controller.broker_epoch
            cluster.ensemble.close_session(cluster.members[1].session.session_id)
            assert not cluster.members[1].controller.is_active
            await cluster.settle()
            assert cluster.controller.broker_epoch > epoch
            assert cluster.brokers[1].metadata.controller_epoch == 2
            assert await create(cluster, NewTopic(name="t"), NewTopic(name="u")) == [
                ErrorCode.TOPIC_ALREADY_EXISTS,
                ErrorCode.NONE,
            ]

    async def test_flapping_session_ends_with_one_controller_epoch(self) -> None:
        """B67"""
        async with running_cluster(1, 2) as cluster:
            for _ in range(5):
                for broker_id in (1, 2):
                    cluster.ensemble.close_session(cluster.members[broker_id].session.session_id)
            await cluster.settle()
            assert cluster.controller.broker_id in (1, 2)
            for broker in cluster.brokers.values():
                assert sorted(broker.metadata.image.brokers) == [1, 2]

    async def test_zombie_controller_changes_nothing(self) -> None:
        """B62: it still believes in its epoch and its session; the store does not, whatever it tries."""
        async with running_cluster(1) as cluster:
            await create(cluster, manual("t", (1,)))
            zombie = cluster.apis
            usurper = cluster.ensemble.connect().session
            assert usurper is not None
            # Another session deletes the znode and wins the next election; the zombie has not been notified yet.
            cluster.lose_notifications()
            await usurper.delete(paths.CONTROLLER)
            await stand_for_election(usurper, 9, 0, lambda: None)
            assert zombie.controller.is_active
            before = await tree(cluster)
            reported = len(cluster.brokers[1].requests)
            created = zombie.create_topics([NewTopic(name="u")])
            deleted = zombie.delete_topics(["t"], timeout_seconds=1)
            extended = zombie.create_partitions([NewPartitions(topic="t", total_count=3)])
            assert [await created, await deleted, await extended] == [[NOT_CONTROLLER]] * 3
            assert await tree(cluster) == before
            assert len(cluster.brokers[1].requests) == reported
            assert not zombie.controller.is_active

    async def test_former_controller_does_nothing_more(self) -> None:
        """B65: work that waits for the store when its session ends writes nothing and tells nobody."""
        async with running_cluster(1) as cluster:
            zombie = cluster.apis
            requests = asyncio.get_running_loop().create_task(zombie.create_topics([NewTopic(name="t")]))
            await asyncio.sleep(0)
            cluster.ensemble.close_session(cluster.members[1].session.session_id)
            reported = len(cluster.brokers[1].requests)
            assert await requests == [NOT_CONTROLLER]
            await cluster.settle()
            later = cluster.brokers[1].requests[reported:]
            assert {request.controller_epoch for request in later} == {2}  # type: ignore[attr-defined]
            assert "t" not in cluster.brokers[1].metadata.image.topics

    async def test_broker_that_is_not_controller_refuses_requests(self) -> None:
        async with running_cluster(1, 2) as cluster:
            other = cluster.members[2].apis
            assert await other.create_topics([NewTopic(name="t")]) == [NOT_CONTROLLER]
            assert await other.delete_topics(["t"], timeout_seconds=1) == [NOT_CONTROLLER]
            assert await other.create_partitions([NewPartitions(topic="t", total_count=2)]) == [NOT_CONTROLLER]

    async def test_election_won_without_a_response_is_held_again(self) -> None:
        cluster = ClusterUnderTest()
        store = cluster.ensemble.connect()
        session = store.session
        assert session is not None
        first = await stand_for_election(session, 1, 0, lambda: None)
        again = await stand_for_election(session, 1, 0, lambda: None)
        assert first != again
        assert await data(session, paths.CONTROLLER_EPOCH) == b"2"

    async def test_controller_epoch_belongs_to_one_election(self) -> None:
        """B62: another broker wins and loses between the candidate's reading of the epoch and its raising it."""
        cluster = ClusterUnderTest()
        candidate, other = cluster.ensemble.connect(), cluster.ensemble.connect()
        assert candidate.session is not None
        assert other.session is not None
        earlier = await stand_for_election(other.session, 9, 0, lambda: None)
        await other.session.delete(paths.CONTROLLER)

        async def another_controller() -> None:
            assert other.session is not None
            await stand_for_election(other.session, 9, 0, lambda: None)
            await other.session.delete(paths.CONTROLLER)

        interrupted = cast(Session, InterruptedBeforeMulti(candidate.session, another_controller))
        elected = await stand_for_election(interrupted, 1, 0, lambda: None)
        assert isinstance(earlier, Elected)
        assert isinstance(elected, Elected)
        assert elected.epoch == earlier.epoch + 2

    async def test_registration_is_recognised_by_its_session(self) -> None:
        """B64"""
        cluster = ClusterUnderTest()
        mine, other = cluster.ensemble.connect().session, cluster.ensemble.connect().session
        assert mine is not None
        assert other is not None
        await cluster_id(mine, random.Random(1))
        registration = BrokerRegistration(broker_id=1, endpoints=())
        epoch = await register(mine, registration, 0, UnknownLogs())
        assert await register(mine, registration, 0, UnknownLogs()) == epoch
        with pytest.raises(BrokerIdTaken):
            await register(other, registration, 0, UnknownLogs())

    async def test_registration_made_meanwhile_is_read_before_the_next_one(self) -> None:
        """B105"""
        cluster = ClusterUnderTest()
        first, second, third = [cast(Session, cluster.ensemble.connect().session) for _ in range(3)]
        await cluster_id(first, random.Random(1))
        registration, logs, epochs = BrokerRegistration(broker_id=1, endpoints=()), LogsWithRegistrations(), []

        async def registers(session: Session) -> None:
            epochs.append(await register(session, registration, 0, UnknownLogs()))
            cluster.ensemble.close_session(session.session_id)

        await registers(first)
        interrupted = cast(Session, InterruptedBeforeMulti(third, lambda: registers(second)))
        assert await register(interrupted, registration, 0, logs) > epochs[1]
        assert logs.begun == [
            (third.session_id, (first.session_id, epochs[0])),
            (third.session_id, (second.session_id, epochs[1])),
        ]

    async def test_cluster_id_is_generated_once(self) -> None:
        cluster = ClusterUnderTest()
        first, second = cluster.ensemble.connect().session, cluster.ensemble.connect().session
        assert first is not None
        assert second is not None
        given = await cluster_id(first, random.Random(1))
        assert len(given) == 22
        assert await cluster_id(second, random.Random(2)) == given

    async def test_broker_that_is_replaced_as_controller_while_it_starts_joins_again(self) -> None:
        async with running_cluster(1, 2) as cluster:
            await create(cluster, manual("t", (1,)))
            await cluster.kill(1)
            await cluster.kill(2)
            outsider = cluster.ensemble.connect().session
            assert outsider is not None
            member = cluster.member(1)
            replaced = []

            class ReplacedBeforeItWrites:
                """The session of a controller in place of which another one is elected before its first decisions."""

                def __getattr__(self, name: str) -> Any:
                    return getattr(session, name)

                async def multi_many(self, batches: Any) -> Any:
                    if member.controller.active is not None and not replaced:
                        replaced.append(await replace_controller(outsider, 9, 1, 0, lambda: None))
                    return await session.multi_many(batches)

            session, member.store._session = member.session, cast(Any, ReplacedBeforeItWrites())
            await member.controller.start()
            assert isinstance(replaced[0], Elected)
            assert not member.controller.is_active
            member.task = asyncio.get_running_loop().create_task(member.controller.run())
            await asyncio.sleep(1)
            assert member.controller.controller_id == 9


class TestTopicCreation:
    async def test_created_topic_is_stored_led_and_known(self) -> None:
        async with running_cluster(1) as cluster:
            results = await cluster.apis.create_topics(
                [NewTopic(name="t", partition_count=3, configs={"cleanup.policy": "compact"})]
            )
            plan = results[0]
            assert isinstance(plan, TopicPlan)
            assert (plan.partition_count, plan.replication_factor) == (3, 1)
            stored = json.loads(await data(cluster.members[1].session, paths.topic("t")) or b"")
            assert stored == {
                "version": 3,
                "partitions": {"0": [1], "1": [1], "2": [1]},
                "adding_replicas": {},
                "removing_replicas": {},
                "topic_id": znodes.encode_uuid(plan.assignment.topic_id),
            }
            config = json.loads(await data(cluster.members[1].session, paths.topic_config("t")) or b"")
            assert config == {"version": 1, "config": {"cleanup.policy": "compact"}}
            assert await state_of(cluster, "t", 2) == PartitionState(
                leader=1, leader_epoch=0, isr=(1,), controller_epoch=1
            )
            image = cluster.brokers[1].metadata.image.topic("t")
            assert image is not None
            assert image.topic_id == plan.assignment.topic_id
            assert [partition.leader for partition in image.partitions.values()] == [1, 1, 1]
            assert cluster.members[1].configs.topic_overrides("t") == {"cleanup.policy": "compact"}

    async def test_brokers_lead_before_metadata_names_them(self) -> None:
        async with running_cluster(1, 2) as cluster:
            broker = cluster.brokers[1]
            broker.requests.clear()
            await create(cluster, manual("t", (1, 2), (2, 1)))
            kinds = [type(request) for request in broker.requests]
            assert kinds.index(LeaderAndIsrRequest) < kinds.index(UpdateMetadataRequest)
            reported = broker.of_type(LeaderAndIsrRequest)[0]
            assert (reported.controller_id, reported.controller_epoch) == (1, 1)
            assert reported.broker_epoch == cluster.members[1].controller.broker_epoch
            states = reported.topic_states[0].partition_states
            assert [(s.leader, s.isr, s.replicas, s.is_new) for s in states] == [
                (1, [1, 2], [1, 2], True),
                (2, [2, 1], [2, 1], True),
            ]
            assert {leader.broker_id: leader.host_name for leader in reported.live_leaders} == {1: "host1", 2: "host2"}

    async def test_overrides_are_known_before_the_first_log_is_made(self) -> None:
        async with running_cluster(1) as cluster:
            member, order = cluster.members[1], []
            member.configs.add_listener(lambda resource, overrides: order.append("configuration"))
            cluster.brokers[1].metadata.add_listener(lambda change: order.append("metadata"))
            await create(cluster, NewTopic(name="t", configs={"retention.ms": "5"}))
            assert order == ["configuration", "metadata"]

    async def test_validate_only_changes_nothing(self) -> None:
        async with running_cluster(1) as cluster:
            before = await tree(cluster)
            assert await create(cluster, NewTopic(name="t"), validate_only=True) == [ErrorCode.NONE]
            assert await create(cluster, NewTopic(name="a b"), validate_only=True) == [
                ErrorCode.INVALID_TOPIC_EXCEPTION
            ]
            assert await tree(cluster) == before

    @pytest.mark.parametrize(
        ("topic", "code"),
        [
            (NewTopic(name="exists.already"), ErrorCode.TOPIC_ALREADY_EXISTS),
            (NewTopic(name="exists_already"), ErrorCode.INVALID_TOPIC_EXCEPTION),
            (NewTopic(name="."), ErrorCode.INVALID_TOPIC_EXCEPTION),
            (NewTopic(name="x" * 250), ErrorCode.INVALID_TOPIC_EXCEPTION),
            (NewTopic(name="t", partition_count=0), ErrorCode.INVALID_PARTITIONS),
            (NewTopic(name="t", partition_count=-2), ErrorCode.INVALID_PARTITIONS),
            (NewTopic(name="t", partition_count=10_001), ErrorCode.POLICY_VIOLATION),
            (NewTopic(name="t", replication_factor=0), ErrorCode.INVALID_REPLICATION_FACTOR),
            (NewTopic(name="t", replication_factor=3), ErrorCode.INVALID_REPLICATION_FACTOR),
            (NewTopic(name="t", configs={"no.such.key": "1"}), ErrorCode.INVALID_CONFIG),
            (NewTopic(name="t", configs={"retention.ms": "soon"}), ErrorCode.INVALID_CONFIG),
            (NewTopic(name="t", configs={"retention.ms": None}), ErrorCode.INVALID_CONFIG),
            (manual("t", (1, 9)), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
            (manual("t", (1, 1)), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
            (manual("t", ()), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
            (manual("t", (1,), (1, 2)), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
            (NewTopic(name="t", assignments=[(1, (1,))]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
            (NewTopic(name="t", assignments=[(0, (1,)), (0, (2,))]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
            (NewTopic(name="t", partition_count=1, assignments=[(0, (1,))]), ErrorCode.INVALID_REQUEST),
            (NewTopic(name="t", replication_factor=1, assignments=[(0, (1,))]), ErrorCode.INVALID_REQUEST),
        ],
    )
    async def test_topic_that_cannot_be_created_leaves_nothing(self, topic: NewTopic, code: ErrorCode) -> None:
        async with running_cluster(1, 2) as cluster:
            await create(cluster, NewTopic(name="exists.already"))
            before = await tree(cluster)
            assert await create(cluster, topic) == [code]
            assert await tree(cluster) == before

    async def test_invalid_topic_does_not_prevent_the_others(self) -> None:
        async with running_cluster(1) as cluster:
            assert await create(
                cluster, NewTopic(name="a.b"), NewTopic(name=""), NewTopic(name="a_b"), NewTopic(name="c")
            ) == [
                ErrorCode.NONE,
                ErrorCode.INVALID_TOPIC_EXCEPTION,
                ErrorCode.INVALID_TOPIC_EXCEPTION,
                ErrorCode.NONE,
            ]
            assert sorted(cluster.brokers[1].metadata.image.topics) == ["a.b", "c"]

    async def test_same_topic_created_by_two_clients_exists_once(self) -> None:
        async with running_cluster(1) as cluster:
            results = await asyncio.gather(create(cluster, NewTopic(name="t")), create(cluster, NewTopic(name="t")))
            assert sorted(results) == [[ErrorCode.NONE], [ErrorCode.TOPIC_ALREADY_EXISTS]]

    async def test_large_topic_is_written_in_several_multis(self) -> None:
        async with running_cluster(1) as cluster:
            assert await create(cluster, NewTopic(name="large", partition_count=950)) == [ErrorCode.NONE]
            assert cluster.brokers[1].metadata.partition_count("large") == 950
            assert len(cluster.brokers[1].led) == 950
            assert (await state_of(cluster, "large", 949)).leader == 1

    async def test_configuration_left_over_from_a_former_topic_is_replaced(self) -> None:
        async with running_cluster(1) as cluster:
            await cluster.members[1].session.create(
                paths.topic_config("t"), znodes.encode_config({"retention.ms": "1"})
            )
            assert await create(cluster, NewTopic(name="t")) == [ErrorCode.NONE]
            assert cluster.members[1].configs.topic_overrides("t") == {}
            assert json.loads(await data(cluster.members[1].session, paths.topic_config("t")) or b"")["config"] == {}


class TestPartitionsAreAdded:
    async def test_new_partitions_are_led_and_known(self) -> None:
        async with running_cluster(1, 2) as cluster:
            await create(cluster, manual("t", (2, 1)))
            assert await cluster.apis.create_partitions([NewPartitions(topic="t", total_count=3)]) == [NO_ERROR]
            stored = json.loads(await data(cluster.members[1].session, paths.topic("t")) or b"")["partitions"]
            assert stored["0"] == [2, 1]
            assert sorted(stored["1"]) == sorted(stored["2"]) == [1, 2]
            assert cluster.brokers[2].metadata.partition_count("t") == 3
            assert (await state_of(cluster, "t", 2)).leader == stored["2"][0]

    async def test_replicas_chosen_by_the_client_are_assigned(self) -> None:
        async with running_cluster(1, 2) as cluster:
            await create(cluster, manual("t", (2,)))
            added = NewPartitions(topic="t", total_count=3, assignments=[(1,), (2,)])
            assert await cluster.apis.create_partitions([added]) == [NO_ERROR]
            assert [(await state_of(cluster, "t", index)).leader for index in range(3)] == [2, 1, 2]

    @pytest.mark.parametrize(
        ("request_", "code"),
        [
            (NewPartitions(topic="unknown", total_count=3), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            (NewPartitions(topic="t", total_count=2), ErrorCode.INVALID_PARTITIONS),
            (NewPartitions(topic="t", total_count=1), ErrorCode.INVALID_PARTITIONS),
            (NewPartitions(topic="t", total_count=2**31 - 1), ErrorCode.POLICY_VIOLATION),
            (NewPartitions(topic="t", total_count=3, assignments=[]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
            (NewPartitions(topic="t", total_count=3, assignments=[(1,)]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
            (NewPartitions(topic="t", total_count=3, assignments=[(1, 9)]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ],
    )
    async def test_partitions_that_cannot_be_added_are_refused(self, request_: NewPartitions, code: ErrorCode) -> None:
        async with running_cluster(1, 2) as cluster:
            await create(cluster, manual("t", (1, 2), (2, 1)))
            before = await tree(cluster)
            errors = await cluster.apis.create_partitions([request_])
            assert [error.code for error in errors] == [code]
            assert await tree(cluster) == before

    async def test_validate_only_changes_nothing(self) -> None:
        async with running_cluster(1) as cluster:
            await create(cluster, manual("t", (1,)))
            before = await tree(cluster)
            request = NewPartitions(topic="t", total_count=5)
            assert await cluster.apis.create_partitions([request], validate_only=True) == [NO_ERROR]
            assert await tree(cluster) == before


class TestTopicDeletion:
    async def test_deleted_topic_leaves_nothing_behind(self) -> None:
        async with running_cluster(1, 2) as cluster:
            empty = await tree(cluster)
            await create(cluster, NewTopic(name="t", partition_count=4, replication_factor=2))
            assert await cluster.apis.delete_topics(["t"], timeout_seconds=5) == [NO_ERROR]
            assert await tree(cluster) == empty
            for broker in cluster.brokers.values():
                assert not broker.metadata.image.topics
                assert broker.deleted == {TopicPartition("t", index) for index in range(4)}

    async def test_metadata_forgets_it_before_replicas_go(self) -> None:
        async with running_cluster(1) as cluster:
            await create(cluster, manual("t", (1,)))
            cluster.brokers[1].requests.clear()
            await cluster.apis.delete_topics(["t"], timeout_seconds=5)
            metadata, stop = cluster.brokers[1].requests
            assert isinstance(metadata, UpdateMetadataRequest)
            assert metadata.topic_states[0].partition_states[0].leader == LEADER_DURING_DELETE
            assert isinstance(stop, StopReplicaRequest)
            state = stop.topic_states[0].partition_states[0]
            assert (state.partition_index, state.leader_epoch, state.delete_partition) == (0, -2, True)

    async def test_deleted_topic_can_be_created_again(self) -> None:
        async with running_cluster(1) as cluster:
            ids = set()
            for _ in range(3):
                plan = (await cluster.apis.create_topics([NewTopic(name="t", configs={"retention.ms": "1"})]))[0]
                assert isinstance(plan, TopicPlan)
                ids.add(plan.assignment.topic_id)
                assert await cluster.apis.delete_topics(["t"], timeout_seconds=5) == [NO_ERROR]
            assert len(ids) == 3
            assert await create(cluster, NewTopic(name="t")) == [ErrorCode.NONE]
            assert cluster.members[1].configs.topic_overrides("t") == {}

    async def test_unknown_and_repeated_names(self) -> None:
        async with running_cluster(1) as cluster:
            await create(cluster, NewTopic(name="t"))
            errors = await cluster.apis.delete_topics(["t", "unknown", "t"], timeout_seconds=5)
            assert [error.code for error in errors] == [
                ErrorCode.NONE,
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                ErrorCode.NONE,
            ]

    async def test_deletion_waits_for_replica_of_stopped_broker(self) -> None:
        async with running_cluster(1, 2) as cluster:
            await create(cluster, manual("t", (1, 2)))
            await cluster.kill(2)
            late = await cluster.apis.delete_topics(["t"], timeout_seconds=0)
            assert [error.code for error in late] == [ErrorCode.REQUEST_TIMED_OUT]
            assert not cluster.brokers[1].metadata.image.topics
            assert await create(cluster, NewTopic(name="t")) == [ErrorCode.TOPIC_ALREADY_EXISTS]
            (later,) = await cluster.apis.delete_topics(["t"], timeout_seconds=1)
            assert later.message == "The topic will be deleted when all of its replicas are reachable (on broker 2)."
            for validate_only in (False, True):
                (taken,) = await cluster.apis.create_topics([NewTopic(name="t")], validate_only=validate_only)
                assert isinstance(taken, ApiError)
                assert taken.message == "Topic 't' is marked for deletion, which waits for broker 2."
            again = asyncio.get_running_loop().create_task(cluster.apis.delete_topics(["t"], timeout_seconds=60))
            await cluster.settle()
            assert not again.done()
            await cluster.restart(2)
            assert await again == [NO_ERROR]
            assert cluster.brokers[2].deleted == {TopicPartition("t", 0)}
            assert not cluster.brokers[2].led
            assert await create(cluster, NewTopic(name="t")) == [ErrorCode.NONE]

    async def test_deletion_waits_for_a_late_response(self) -> None:
        async with running_cluster(1, 2) as cluster:
            await create(cluster, manual("t", (1, 2)))
            cluster.brokers[2].responds = False
            deletion = asyncio.get_running_loop().create_task(cluster.apis.delete_topics(["t"], timeout_seconds=60))
            await cluster.settle()
            assert not deletion.done()
            cluster.brokers[2].respond_to_all()
            assert await deletion == [NO_ERROR]

    async def test_accepted_deletion_survives_a_crash_of_everything(self) -> None:
        async with running_cluster(1, 2) as cluster:
            await create(cluster, manual("t", (1, 2)), manual("u", (1, 2)))
            cluster.brokers[2].delete_error = ErrorCode.KAFKA_STORAGE_ERROR
            late = await cluster.apis.delete_topics(["t"], timeout_seconds=0)
            assert [error.code for error in late] == [ErrorCode.REQUEST_TIMED_OUT]
            await cluster.crash()
            await cluster.start(1, 2)
            assert sorted(cluster.brokers[1].metadata.image.topics) == ["u"]
            assert cluster.brokers[1].deleted == cluster.brokers[2].deleted == {TopicPartition("t", 0)}
            assert await cluster.members[1].session.children(paths.DELETE_TOPICS) == []
            assert await cluster.members[1].session.children(paths.TOPICS) == ["u"]

    async def test_deletion_pending_at_end_of_epoch_is_refused(self) -> None:
        async with running_cluster(1, 2) as cluster:
            await create(cluster, manual("t", (1, 2)))
            cluster.brokers[2].responds = False
            deletion = asyncio.get_running_loop().create_task(cluster.apis.delete_topics(["t"], timeout_seconds=60))
            await cluster.settle()
            cluster.ensemble.close_session(cluster.members[1].session.session_id)
            assert await deletion == [NOT_CONTROLLER]


class TestBrokersComeAndGo:
    async def test_leadership_moves_to_a_replica_in_sync_and_everybody_hears(self) -> None:
        async with running_cluster(1, 2, 3) as cluster:
            await create(cluster, manual("t", (2, 3), (3, 2)))
            await cluster.kill(2)
            assert await state_of(cluster, "t", 0) == PartitionState(
                leader=3, leader_epoch=1, isr=(3,), controller_epoch=1
            )
            assert await state_of(cluster, "t", 1) == PartitionState(
                leader=3, leader_epoch=1, isr=(3,), controller_epoch=1
            )
            assert cluster.brokers[3].led[TopicPartition("t", 0)].leader == 3
            partition = cluster.brokers[1].metadata.image.partition(TopicPartition("t", 0))
            assert partition is not None
            assert (partition.leader, partition.leader_epoch, partition.offline_replicas) == (3, 1, (2,))
            assert sorted(cluster.brokers[1].metadata.image.brokers) == [1, 3]

    async def test_last_in_sync_replica_gets_its_leadership_back(self) -> None:
        async with running_cluster(1, 2) as cluster:
            await create(cluster, manual("t", (2,)))
            await cluster.kill(2)
            assert (await state_of(cluster, "t", 0)).leader == -1
            assert cluster.brokers[1].metadata.leader(TopicPartition("t", 0)) is None
            await cluster.restart(2)
            assert await state_of(cluster, "t", 0) == PartitionState(
                leader=2, leader_epoch=2, isr=(2,), controller_epoch=1
            )
            assert cluster.brokers[2].led[TopicPartition("t", 0)].leader_epoch == 2
            assert cluster.brokers[2].metadata.partition_count("t") == 1

    async def test_replica_out_of_sync_leads_only_where_unclean_election_is_allowed(self) -> None:
        async with running_cluster(1, 2, 3) as cluster:
            unclean = NewTopic(
                name="unclean", assignments=[(0, (2, 3))], configs={"unclean.leader.election.enable": "true"}
            )
            await create(cluster, manual("clean", (2, 3)), unclean)
            await cluster.kill(3)
            await cluster.restart(3)
            await cluster.kill(2)
            assert (await state_of(cluster, "clean", 0)).leader == -1
            state = await state_of(cluster, "unclean", 0)
            assert (state.leader, state.isr) == (3, (3,))

    async def test_broker_that_restarted_unnoticed_leaves_the_isr(self) -> None:
        """The controller only ever sees the second registration; its epoch shows that the broker restarted."""
        async with running_cluster(1, 2, 3) as cluster:
            await create(cluster, manual("t", (2, 3)), manual("alone", (2,)))
            before = cluster.members[2].controller.broker_epoch
            cluster.ensemble.close_session(cluster.members[2].session.session_id)
            registration = BrokerRegistration(broker_id=2, endpoints=())
            again = await register(cluster.members[2].session, registration, 0, UnknownLogs())
            assert again > before
            await cluster.settle()
            assert cluster.members[2].controller.broker_epoch == again
            assert await state_of(cluster, "t", 0) == PartitionState(
                leader=3, leader_epoch=1, isr=(3,), controller_epoch=1
            )
            assert await state_of(cluster, "alone", 0) == PartitionState(
                leader=2, leader_epoch=2, isr=(2,), controller_epoch=1
            )

    async def test_control_request_carries_the_epoch_of_its_receiver(self) -> None:
        """B63"""
        async with running_cluster(1, 2) as cluster:
            await create(cluster, manual("t", (1, 2)))
            await cluster.kill(2)
            await cluster.restart(2)
            for broker_id in (1, 2):
                epoch = cluster.members[broker_id].controller.broker_epoch
                for request in cluster.brokers[broker_id].requests:
                    assert isinstance(request, LeaderAndIsrRequest | UpdateMetadataRequest | StopReplicaRequest)
                    assert request.broker_epoch == epoch

    async def test_racks_are_registered_and_used(self) -> None:
        cluster = ClusterUnderTest()
        for broker_id, rack in ((1, "a"), (2, "a"), (3, "b")):
            member = cluster.member(broker_id, rack=rack)
            await member.controller.start()
            member.task = asyncio.get_running_loop().create_task(member.controller.run())
        await cluster.settle()
        await create(cluster, NewTopic(name="t", partition_count=6, replication_factor=2))
        topic = cluster.brokers[1].metadata.image.topic("t")
        assert topic is not None
        assert all(3 in partition.replicas for partition in topic.partitions.values())
        broker = cluster.brokers[1].metadata.image.broker(3)
        assert broker is not None
        assert broker.rack == "b"
        await cluster.stop()


class TestRestart:
    async def test_restarted_cluster_reads_everything_back(self) -> None:
        async with running_cluster(1) as cluster:
            first = await cluster.apis.create_topics(
                [NewTopic(name="t", partition_count=3, configs={"retention.ms": "7"})]
            )
            assert isinstance(first[0], TopicPlan)
            await cluster.crash()
            await cluster.start(1)
            topic = cluster.brokers[1].metadata.image.topic("t")
            assert topic is not None
            assert topic.topic_id == first[0].assignment.topic_id
            assert len(topic.partitions) == 3
            assert cluster.members[1].configs.topic_overrides("t") == {"retention.ms": "7"}
            assert set(cluster.brokers[1].led) == {TopicPartition("t", index) for index in range(3)}
            assert cluster.brokers[1].metadata.controller_epoch == 2

    async def test_restarted_leader_leads_at_a_new_epoch(self) -> None:
        """What a crash took from its log must not be told apart from what it writes next by offset alone."""
        async with running_cluster(1) as cluster:
            await create(cluster, manual("t", (1,)))
            epochs = []
            for _ in range(3):
                await cluster.crash()
                await cluster.start(1)
                epochs.append((await state_of(cluster, "t", 0)).leader_epoch)
                assert cluster.brokers[1].led[TopicPartition("t", 0)].leader_epoch == epochs[-1]
            assert epochs == [1, 2, 3]

    async def test_new_controller_alone_changes_no_leadership(self) -> None:
        async with running_cluster(1, 2) as cluster:
            await create(cluster, manual("t", (2,)))
            before = await state_of(cluster, "t", 0)
            await cluster.kill(1)
            assert cluster.controller.broker_id == 2
            assert await state_of(cluster, "t", 0) == before

    async def test_creation_cut_short_is_completed(self) -> None:
        """The topic's znode is there, but only some of its partitions have a state."""
        async with running_cluster(1) as cluster:
            await create(cluster, NewTopic(name="t", partition_count=4))
            session = cluster.members[1].session
            for index in (1, 3):
                await session.delete(paths.partition_state(TopicPartition("t", index)))
            await session.delete(paths.partition(TopicPartition("t", 3)))
            await cluster.crash()
            await cluster.start(1)
            assert [(await state_of(cluster, "t", index)).leader for index in range(4)] == [1, 1, 1, 1]
            assert cluster.brokers[1].metadata.partition_count("t") == 4

    async def test_topic_that_cannot_be_read_is_left_alone(self) -> None:
        async with running_cluster(1) as cluster:
            await create(cluster, manual("good", (1,)))
            await cluster.members[1].session.create(paths.topic("strange"), b"not json")
            await cluster.crash()
            await cluster.start(1)
            assert sorted(cluster.brokers[1].metadata.image.topics) == ["good"]
            assert await data(cluster.members[1].session, paths.topic("strange")) == b"not json"

    async def test_conflicting_state_is_decided_again(self) -> None:
        """Somebody else wrote the partition's state between reading and writing."""
        async with running_cluster(1, 2, 3) as cluster:
            await create(cluster, manual("t", (2, 3)))
            path = paths.partition_state(TopicPartition("t", 0))
            shrunk = PartitionState(leader=2, leader_epoch=4, isr=(2,), controller_epoch=1)
            await cluster.members[1].session.set(path, znodes.encode_partition_state(shrunk))
            await cluster.kill(3)
            assert await state_of(cluster, "t", 0) == shrunk
            await cluster.kill(2)
            assert await state_of(cluster, "t", 0) == PartitionState(
                leader=-1, leader_epoch=5, isr=(2,), controller_epoch=1
            )


def test_errors_are_values() -> None:
    assert ApiError(ErrorCode.NONE, None) == NO_ERROR
