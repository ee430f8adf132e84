"""Stories of replicas in a cluster, most of them found by its histories: who is in sync, and who may lead."""

import asyncio

import pytest

from oncelog.coordinator.controller.leader_elections import ElectionType
from oncelog.coordinator.metadata_store import paths
from oncelog.coordinator.metadata_store.znodes import decode_topic
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from oncelog.protocol.topic_partition import TopicPartition
from tests.simulation import requests
from tests.simulation.acknowledged_writer import AcknowledgedWriter
from tests.simulation.cluster_stories import assert_agreement, create, simulate, state_of
from tests.simulation.sim_zookeeper import Direction
from tests.simulation.simulated_cluster import SESSION_SECONDS, SimulatedCluster

T0 = TopicPartition("t", 0)
PRODUCE_WITH_HINTS = 12
FETCH_WITH_HINTS = 16


def expire(cluster: SimulatedCluster, broker_id: int) -> None:
    store = cluster[broker_id].store
    assert store is not None
    assert store.session is not None
    cluster.ensemble.expire(store.session.session_id)


class TestInSync:
    """Who is."""

    def test_brokers_that_registered_anew_come_back_also_where_nothing_is_written(self) -> None:
        """B56: a leader takes no follower back by the broker epoch of a former incarnation, so it learns each new one.

        Broker 1 stays in the ISR, as it is its own successor as controller, and finds broker 3 there again.
        """

        async def story(cluster: SimulatedCluster) -> None:
            await create(cluster, "t", (2, 3, 1))
            await asyncio.sleep(1.0)
            for other in (2, 3):
                cluster[other].cut_from_ensemble()
            expire(cluster, 3)
            await asyncio.sleep(0.2)
            assert set(state_of(cluster, "t").isr) == {1, 2}
            expire(cluster, 1)
            await asyncio.sleep(0.01)
            for other in (2, 3):
                cluster[other].cut_from_ensemble(Direction.NONE)
            await asyncio.sleep(SESSION_SECONDS)
            assert cluster.controllers == [1]
            assert set(state_of(cluster, "t").isr) == {1, 2, 3}
            assert_agreement(cluster)

        simulate(story)

    @pytest.mark.parametrize(
        "cuts", [(("2", "3"), ("3", "2")), (("2", "3"),), (("3", "2"),)], ids=["both", "to the follower", "from it"]
    )
    def test_follower_that_its_leader_cannot_reach_soon_leaves_the_isr(self, cuts: tuple[tuple[str, str], ...]) -> None:
        """The controller reaches both, so nothing else would happen before `replica.lag.time.max.ms`."""

        async def story(cluster: SimulatedCluster) -> None:
            await create(cluster, "t", (2, 3, 1))
            await create(cluster, "idle", (2, 3, 1))
            writer = AcknowledgedWriter(cluster, T0)
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(writer.run())
                await asyncio.sleep(2.0)
                assert cluster.controllers == [1]
                cut_at = cluster.loop.time()
                for sender, receiver in cuts:
                    cluster.loop.network.sever(f"broker {sender}", f"broker {receiver}")
                await asyncio.sleep(6.0)
                resumed = next(time for time in writer.times if time > cut_at + 1.0)
                assert resumed - cut_at <= 3.0
                assert state_of(cluster, "t").leader == 2
                assert set(state_of(cluster, "t").isr) == set(state_of(cluster, "idle").isr) == {1, 2}
                cluster.loop.network.heal()
                await asyncio.sleep(4.0)
                assert set(state_of(cluster, "t").isr) == set(state_of(cluster, "idle").isr) == {1, 2, 3}
                writer.stop()
            assert_agreement(cluster)

        simulate(story)

    def test_leader_that_hears_no_broker_proposes_no_smaller_isr(self) -> None:
        """B90: it may be the one that is cut off; the others decide, and it loses nothing but the lead."""

        async def story(cluster: SimulatedCluster) -> None:
            await create(cluster, "t", (2, 3, 1))
            await asyncio.sleep(1.0)
            for other in (1, 3):
                cluster.loop.network.sever("broker 2", f"broker {other}")
                cluster.loop.network.sever(f"broker {other}", "broker 2")
            broker = cluster[2].broker
            assert broker is not None
            partition = broker.replica_manager.partition(T0)
            assert partition is not None
            for _ in range(60):
                await asyncio.sleep(0.1)
                leading = partition.leading
                assert leading is None or leading.progress.in_sync.proposed is None
            assert state_of(cluster, "t").leader != 2

        simulate(story)


class TestElections:
    """Who may lead."""

    def test_follower_that_lost_its_tail_does_not_lead_while_another_has_it(self) -> None:
        """B57: its leader dies, and the controller with it, so that it is not removed from the ISR before."""

        async def story(cluster: SimulatedCluster) -> None:
            await create(cluster, "t", (2, 3, 1))
            writer = AcknowledgedWriter(cluster, T0)
            await writer.write(20)
            await asyncio.sleep(1.0)
            assert set(state_of(cluster, "t").isr) == {1, 2, 3}
            assert cluster[1].process is not None
            cluster[1].process.pause()
            cluster[3].crash("power")
            cluster[2].kill()
            await cluster[3].start()
            await asyncio.sleep(0.5)
            cluster[1].process.resume()
            await asyncio.sleep(SESSION_SECONDS)
            await cluster[2].start()
            await asyncio.sleep(2 * SESSION_SECONDS)
            assert_agreement(cluster)
            assert len(state_of(cluster, "t").isr) == 3
            writer.assert_nothing_is_lost(cluster[3].content(writer.partition))

        simulate(story, settings={"min.insync.replicas": "2"})


class TestLostLeaderships:
    """What a former leader responds to a client."""

    def test_batch_unacknowledged_by_a_former_leader_is_written_once(self) -> None:
        """B61, B34: its successor has the batch, and knows it when it comes again. B80: and is named at once."""

        async def story(cluster: SimulatedCluster) -> None:
            await create(cluster, "t", (3, 1, 2))
            await cluster[3].stop()
            await cluster[3].start()
            await asyncio.sleep(SESSION_SECONDS)
            state = state_of(cluster, "t")
            assert (state.leader, set(state.isr), cluster.controllers) == (1, {1, 2, 3}, [1])
            old, new = await cluster[1].client(), await cluster[3].client()
            response = await old.call(requests.init_producer_id(None), requests.INIT_PRODUCER_ID_VERSION)
            sent = requests.batch([b"once"], producer_id=response.producer_id, epoch=0, sequence=0)
            assert cluster[2].process is not None
            cluster[2].process.pause()  # So that the batch is written, and not acknowledged.
            waiting = old.send(requests.produce(T0, bytearray(sent)), PRODUCE_WITH_HINTS)
            await asyncio.sleep(0.3)
            await cluster[1].running.controller_apis.elect_leaders([T0], ElectionType.PREFERRED)
            response = await old.response_to(requests.produce(T0, None), PRODUCE_WITH_HINTS, waiting)
            refused = response.responses[0].partition_responses[0]
            leader = refused.current_leader
            assert refused.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
            assert (leader.leader_id, leader.leader_epoch) == (3, state.leader_epoch + 1)
            assert [(node.node_id, node.port) for node in response.node_endpoints] == [(3, cluster[3].port)]
            cluster[2].process.resume()
            response = await new.call(requests.produce(T0, bytearray(sent)), PRODUCE_WITH_HINTS)
            accepted = response.responses[0].partition_responses[0]
            assert (accepted.error_code, accepted.base_offset) == (ErrorCode.NONE, 0)
            assert cluster[3].content(T0).count(b"once") == 1

        simulate(story)

    def test_reader_of_a_former_leader_learns_the_current_leader(self) -> None:
        """B80"""

        async def story(cluster: SimulatedCluster) -> None:
            await create(cluster, "t", (3, 1, 2))
            await cluster[3].stop()
            await cluster[3].start()
            await asyncio.sleep(0.5)
            znode = cluster.ensemble.tree.get(paths.topic("t"))
            assert znode is not None
            partition = FetchPartition(partition=0, current_leader_epoch=0, fetch_offset=0, partition_max_bytes=1_000)
            topic = FetchTopic(topic_id=decode_topic(znode.data).topic_id, partitions=[partition])
            client = await cluster[3].client()
            response = await client.call(FetchRequest(max_wait_ms=0, topics=[topic]), FETCH_WITH_HINTS)
            refused = response.responses[0].partitions[0]
            assert refused.error_code == ErrorCode.FENCED_LEADER_EPOCH
            assert refused.current_leader.leader_id == 1
            assert [(node.node_id, node.port) for node in response.node_endpoints] == [(1, cluster[1].port)]

        simulate(story)
