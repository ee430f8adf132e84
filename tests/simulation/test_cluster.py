"""Brokers of a cluster that lose each other, or the ensemble, in virtual time: which one is the controller then.

Real brokers on the simulated network and ensemble; the store's tree is the judge.
"""

import asyncio
import random

import pytest

from oncelog.coordinator.controller.api_error import ApiError
from oncelog.coordinator.controller.membership import BrokerIdTaken
from oncelog.coordinator.controller.topic_plan import NewTopic
from oncelog.coordinator.metadata_store import paths
from oncelog.coordinator.metadata_store.store import Session, SessionEvent
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from oncelog.protocol.messages.find_coordinator import FindCoordinatorRequest
from oncelog.protocol.messages.leader_and_isr import LeaderAndIsrRequest
from oncelog.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from oncelog.protocol.messages.stop_replica import StopReplicaRequest
from oncelog.protocol.messages.update_metadata import UpdateMetadataRequest
from oncelog.protocol.topic_partition import TopicPartition
from tests.simulation.cluster_stories import (
    NOTICED_SECONDS,
    assert_agreement,
    controller_epoch,
    create,
    session_of,
    simulate,
    state_of,
    tree,
)
from tests.simulation.sim_zookeeper import Direction
from tests.simulation.simulated_cluster import SESSION_SECONDS, SimulatedCluster


class TestMembership:
    def test_brokers_know_one_another_and_one_is_controller(self) -> None:
        async def story(cluster: SimulatedCluster) -> None:
            await create(cluster, "t", (1,), (2,), (3,))
            assert_agreement(cluster)
            for broker in cluster.alive:
                index = broker.broker_id - 1
                assert broker.running.replica_manager.led_partition(("t", index)) is not None

        simulate(story)

    def test_brokers_know_the_epochs_of_registrations_and_followers_fetch_as_such(self) -> None:
        async def story(cluster: SimulatedCluster) -> None:
            await create(cluster, "t", (1, 2, 3), (2, 3, 1), (3, 1, 2))
            cluster[2].kill()
            await asyncio.sleep(1.0)
            await cluster[2].start()
            await asyncio.sleep(5.0)
            epochs = {each.broker_id: each.running.controller.broker_epoch for each in cluster.alive}
            for broker in cluster.alive:
                image = broker.running.metadata.image
                assert {other.id: other.epoch for other in image.brokers.values()} == epochs
            led = next(index for index in range(3) if state_of(cluster, "t", index).leader == 1)
            assert set(state_of(cluster, "t", led).isr) == {1, 2, 3}
            places = cluster[1].running.replica_manager.follower_connections._places
            named = {follower: epoch for follower, held in places.items() for c, epoch in held.items() if c.is_open}
            assert named == {2: epochs[2], 3: epochs[3]}

        simulate(story)

    def test_killed_broker_comes_back_at_once(self) -> None:
        """Its session file lets it end the session of its former incarnation."""

        async def story(cluster: SimulatedCluster) -> None:
            await create(cluster, "t", (1,), (2,), (3,))
            cluster[2].kill()
            await asyncio.sleep(0.5)
            began = cluster.loop.time()
            await cluster[2].start()
            assert cluster.loop.time() - began < 0.5
            await asyncio.sleep(0.5)
            assert_agreement(cluster)
            assert cluster[2].running.replica_manager.find(("t", 1)).leading  # type: ignore[union-attr]

        simulate(story)

    def test_killed_broker_without_its_session_file_waits_for_its_session_to_expire(self) -> None:
        """B64"""

        async def story(cluster: SimulatedCluster) -> None:
            cluster[2].ends_old_session = False
            cluster[2].kill()
            began = cluster.loop.time()
            await cluster[2].start()
            assert 0.8 * SESSION_SECONDS < cluster.loop.time() - began < 1.2 * SESSION_SECONDS
            await asyncio.sleep(0.5)
            assert_agreement(cluster)

        simulate(story)

    def test_broker_id_of_a_live_broker_is_not_taken(self) -> None:
        """B64"""

        async def story(cluster: SimulatedCluster) -> None:
            impostor = SimulatedCluster(cluster.loop, random.Random(5), [2])[2]
            impostor.ensemble = cluster.ensemble
            impostor.settings["listeners"] = "PLAINTEXT://127.0.0.1:9999"
            began = cluster.loop.time()
            with pytest.raises(BrokerIdTaken, match=r"broker.id=2 is taken by a live broker, at PLAINTEXT://\S+:\d+:"):
                await impostor.start()
            assert cluster.loop.time() - began < 1.0, "a live broker is no reason to wait"
            assert_agreement(cluster)

        simulate(story)

    def test_expired_session_is_replaced_and_the_broker_registers_anew(self) -> None:
        """B64, B66"""

        async def story(cluster: SimulatedCluster) -> None:
            await create(cluster, "t", (3,), (2,))
            for broker_id in (3, 1):  # A follower, then the controller.
                before = cluster[broker_id].running.controller.broker_epoch
                cluster.ensemble.expire(session_of(cluster[broker_id]).session_id)
                await asyncio.sleep(SESSION_SECONDS)
                assert cluster[broker_id].running.controller.broker_epoch > before
                assert_agreement(cluster)
            assert state_of(cluster, "t").leader == 3

        simulate(story)

    def test_connection_that_breaks_while_the_broker_registers_anew_is_only_a_delay(self) -> None:
        """B67"""

        async def story(cluster: SimulatedCluster) -> None:
            store, resumed = cluster[2].store, 0
            assert store is not None

            def lose_responses(event: SessionEvent, session: Session) -> None:
                """Those to whatever is looked at first, and in the end those to the registration."""
                nonlocal resumed
                resumed += event is SessionEvent.RESUMED
                if event is SessionEvent.STARTED or 1 <= resumed < 5:
                    cluster[2].cut_from_ensemble(Direction.TO_CLIENT)

            store.add_session_listener(lose_responses)
            cluster.ensemble.expire(session_of(cluster[2]).session_id)
            for _ in range(5):
                await asyncio.sleep(0.6 * SESSION_SECONDS)
                cluster[2].cut_from_ensemble(Direction.NONE)
            await asyncio.sleep(2 * SESSION_SECONDS)
            assert resumed == 5
            assert store.session is not None
            assert store.session.generation == 2
            assert_agreement(cluster)

        simulate(story)

    @pytest.mark.parametrize("seed", range(10))
    def test_ensemble_that_flaps_leaves_a_cluster_that_agrees(self, seed: int) -> None:
        """B66, B67: whatever is under way when sessions end, everybody is registered again in the end."""

        async def story(cluster: SimulatedCluster) -> None:
            rng = random.Random(seed)
            await create(cluster, "t", (1, 2), (2, 3), (3, 1))
            for _ in range(15):
                broker = cluster[rng.choice([1, 2, 3])]
                match rng.choice(["expire", "cut", "down"]):
                    case "expire":
                        session = broker.store.session if broker.store is not None else None
                        if session is not None:
                            cluster.ensemble.expire(session.session_id)
                    case "cut":
                        broker.cut_from_ensemble(
                            rng.choice([Direction.TO_CLIENT, Direction.TO_ENSEMBLE, Direction.BOTH])
                        )
                    case "down":
                        cluster.ensemble.is_up = not cluster.ensemble.is_up
                await asyncio.sleep(rng.uniform(0, SESSION_SECONDS / 2))
            cluster.ensemble.is_up = True
            for broker in cluster.brokers.values():
                broker.cut_from_ensemble(Direction.NONE)
            await asyncio.sleep(4 * SESSION_SECONDS)
            assert_agreement(cluster)

        simulate(story, seed=seed)


class TestControllerFailover:
    def test_killed_controller_is_replaced_before_its_session_ends(self) -> None:
        async def story(cluster: SimulatedCluster) -> None:
            await create(cluster, "t", (1, 2, 3), (2, 3, 1))
            cluster[1].kill()
            await asyncio.sleep(0.5)
            assert cluster.controllers in ([2], [3])
            assert state_of(cluster, "t", 0).leader == 2
            assert 1 not in state_of(cluster, "t", 1).isr
            assert cluster.ensemble.tree.get(paths.broker(1)) is not None  # The store does not know yet.
            assert_agreement(cluster)
            await asyncio.sleep(2 * SESSION_SECONDS)
            assert_agreement(cluster)

        simulate(story)

    def test_paused_controller_is_replaced_and_steps_back(self) -> None:
        async def story(cluster: SimulatedCluster) -> None:
            await create(cluster, "t", (1, 2, 3))
            assert cluster[1].process is not None
            cluster[1].process.pause()
            await asyncio.sleep(NOTICED_SECONDS)
            assert state_of(cluster, "t").leader == 2
            cluster[1].process.resume()
            await asyncio.sleep(2.0)
            assert_agreement(cluster)

        simulate(story)

    @pytest.mark.parametrize("seconds", [1.0, 3.0, 1.5 * SESSION_SECONDS])
    def test_zombie_changes_no_znode(self, seconds: float) -> None:
        """B62, B65: paused in the middle of its work, it finds another controller when it goes on.

        What it had begun is either done before the pause, or not at all.
        """

        async def story(cluster: SimulatedCluster) -> None:
            await create(cluster, "t", (1, 2, 3))
            zombie = cluster[1].running.controller_apis
            creating = cluster[1].process.run(  # type: ignore[union-attr]
                zombie.create_topics([NewTopic(name="late", partition_count=5, replication_factor=1)])
            )
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            cluster[1].process.pause()  # type: ignore[union-attr]
            await asyncio.sleep(seconds + NOTICED_SECONDS)
            (controller_id,) = cluster.controllers
            assert controller_id != 1 or seconds < NOTICED_SECONDS
            await asyncio.sleep(0.5)
            before = tree(cluster)
            cluster[1].process.resume()  # type: ignore[union-attr]
            await creating
            changed = {path for path, content in tree(cluster).items() if before.get(path) != content}
            assert not {path for path in changed if not path.startswith(paths.BROKER_IDS)}, changed
            await asyncio.sleep(SESSION_SECONDS)
            assert_agreement(cluster)

        simulate(story)

    def test_controller_that_is_cut_off_from_the_ensemble_does_nothing_until_it_knows(self) -> None:
        """B62, B65: it cannot hear that its session has ended, and its own deadline says that it may have."""

        async def story(cluster: SimulatedCluster) -> None:
            await create(cluster, "t", (1, 2, 3))
            cluster[1].cut_from_ensemble()
            await asyncio.sleep(1.5 * SESSION_SECONDS)
            assert cluster.controllers in ([2], [3])
            before = tree(cluster)
            responses = await cluster[1].running.controller_apis.create_topics([NewTopic(name="late")])
            assert [response.code for response in responses if isinstance(response, ApiError)] == [
                ErrorCode.NOT_CONTROLLER
            ]
            cluster[1].cut_from_ensemble(Direction.NONE)
            await asyncio.sleep(SESSION_SECONDS)
            after = tree(cluster)
            assert {p for p in after if before.get(p) != after[p]} <= {
                paths.broker(1),
                paths.last_registration(1),
                paths.partition_state(TopicPartition("t", 0)),  # The new controller takes it back into the ISR.
            }
            assert_agreement(cluster)

        simulate(story)

    def test_controller_cut_off_from_the_others_is_replaced_once_and_takes_nothing_back(self) -> None:
        """It still reaches the ensemble, but only the majority judges by silence: there is no tug-of-war."""

        async def story(cluster: SimulatedCluster) -> None:
            await create(cluster, "t", (1, 2, 3))
            cluster.isolate(1)
            await asyncio.sleep(NOTICED_SECONDS)
            assert cluster.controllers in ([2], [3])
            assert (state_of(cluster, "t").leader, set(state_of(cluster, "t").isr)) == (2, {2, 3})
            await asyncio.sleep(60)
            assert (controller_epoch(cluster), state_of(cluster, "t").leader_epoch) == (2, 1)
            cluster.loop.network.heal()
            await asyncio.sleep(10)
            assert_agreement(cluster)

        simulate(story)

    @pytest.mark.parametrize("fifths", range(12))
    def test_broker_that_reaches_the_others_again_is_not_elected_for_it(self, fifths: int) -> None:
        """Whenever the cut is healed: what was silence a moment ago is looked at once more."""

        async def story(cluster: SimulatedCluster) -> None:
            cluster.isolate(1)
            await asyncio.sleep(60 + fifths / 5)
            cluster.loop.network.heal()
            await asyncio.sleep(5)
            assert controller_epoch(cluster) == 2
            assert_agreement(cluster)

        simulate(story)

    def test_cluster_of_two_leaves_a_silent_controller_to_the_ensemble(self) -> None:
        async def story(cluster: SimulatedCluster) -> None:
            await create(cluster, "t", (1, 2))
            cluster.isolate(1)
            await asyncio.sleep(60)
            assert (controller_epoch(cluster), state_of(cluster, "t").leader) == (1, 1)
            cluster[1].kill()
            await asyncio.sleep(2 * SESSION_SECONDS)
            cluster.loop.network.heal()
            assert_agreement(cluster)

        simulate(story, brokers=2)


class TestOrders:
    """What a broker obeys."""

    def test_control_requests_for_a_former_incarnation_are_refused(self) -> None:
        """B63"""

        async def story(cluster: SimulatedCluster) -> None:
            await create(cluster, "t", (2,))
            broker, epoch = cluster[2].running, cluster[2].running.controller.broker_epoch
            client = await cluster[2].client()
            for request, version in (
                (LeaderAndIsrRequest(controller_id=1, controller_epoch=9, broker_epoch=epoch - 1), 7),
                (StopReplicaRequest(controller_id=1, controller_epoch=9, broker_epoch=epoch - 1), 4),
                (UpdateMetadataRequest(controller_id=1, controller_epoch=9, broker_epoch=epoch - 1), 8),
            ):
                response = await client.call(request, version)
                assert response.error_code == ErrorCode.STALE_BROKER_EPOCH
            assert broker.metadata.controller_epoch == 1

        simulate(story)

    def test_orders_of_a_former_controller_are_refused(self) -> None:
        """B65"""

        async def story(cluster: SimulatedCluster) -> None:
            await create(cluster, "t", (2,))
            client = await cluster[2].client()
            for request, version in (
                (LeaderAndIsrRequest(controller_id=1, controller_epoch=0), 7),
                (StopReplicaRequest(controller_id=1, controller_epoch=0), 4),
                (UpdateMetadataRequest(controller_id=1, controller_epoch=0), 8),
            ):
                response = await client.call(request, version)
                assert response.error_code == ErrorCode.STALE_CONTROLLER_EPOCH
            assert_agreement(cluster)

        simulate(story)


class TestTopicsFromAnyBroker:
    def test_topic_requested_from_any_broker_is_created_by_the_controller(self) -> None:
        async def story(cluster: SimulatedCluster) -> None:
            client = await cluster[3].client()
            response = await client.call(MetadataRequest(topics=[MetadataRequestTopic(name="wanted")]), 12)
            (topic,) = response.topics
            assert (topic.error_code, len(topic.partitions)) == (ErrorCode.NONE, 2)
            response = await client.call(FindCoordinatorRequest(coordinator_keys=["g"], key_type=0), 4)
            assert response.coordinators[0].error_code == ErrorCode.NONE
            await asyncio.sleep(0.1)
            assert_agreement(cluster)

        simulate(story)

    def test_request_to_a_broker_that_is_not_the_controller_learns_the_controller(self) -> None:
        async def story(cluster: SimulatedCluster) -> None:
            client = await cluster[3].client()
            request = CreateTopicsRequest(topics=[CreatableTopic(name="t", num_partitions=1, replication_factor=1)])
            assert (await client.call(request, 7)).topics[0].error_code == ErrorCode.NOT_CONTROLLER
            assert (await client.call(MetadataRequest(topics=[]), 12)).controller_id == 1

        simulate(story)

    def test_internal_topics_wait_for_enough_brokers(self) -> None:
        """Their replication factor is never lowered; clients receive a retriable error."""

        async def story(cluster: SimulatedCluster) -> None:
            for broker_id in (2, 3):
                await cluster[broker_id].stop()
            client = await cluster[1].client()
            request = FindCoordinatorRequest(coordinator_keys=["g"], key_type=1)
            response = await client.call(request, 4)
            assert response.coordinators[0].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
            assert cluster.ensemble.tree.get(paths.topic("__transaction_state")) is None
            for broker_id in (2, 3):
                await cluster[broker_id].start()
            response = await client.call(request, 4)
            assert response.coordinators[0].error_code == ErrorCode.NONE
            assert len(state_of(cluster, "__transaction_state").isr) == 3

        simulate(story, settings={"transaction.state.log.replication.factor": "3"})
