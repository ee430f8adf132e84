"""What requests do to the counts of a topic, and what replicas that come and go do."""

from oncelog.broker.handlers.fetch import handle_fetch
from oncelog.broker.handlers.produce import handle_produce
from oncelog.broker.replication.requested_states import EPOCH_DURING_DELETE
from oncelog.protocol.messages.stop_replica import StopReplicaPartitionState, StopReplicaRequest, StopReplicaTopicState
from tests.unit.broker.batches import batch
from tests.unit.broker.handlers.test_fetch import NAMES, fetch
from tests.unit.broker.handlers.test_produce import produce
from tests.unit.broker.replica_side import ME, ReplicaSide
from tests.unit.broker.virtual_time import in_virtual_time


@in_virtual_time
async def test_batches_and_fetched_partitions_are_counted_with_those_that_are_refused() -> None:
    side = ReplicaSide()
    side.lead("t", count=2)
    traffic = side.replica_manager.traffic["t"]
    side.call(handle_produce, produce(("t", 0, batch(b"a"))), 11)
    side.call(handle_produce, produce(("t", 1, batch(b"a")), acks=0), 11)
    side.call(handle_produce, produce(("t", 1, None)), 11)
    side.call(handle_produce, produce(("elsewhere", 0, batch(b"a"))), 11)
    assert (traffic.produced, traffic.refused_produces, traffic.messages_in) == (3, 1, 2)
    side.call(handle_fetch, fetch((0, 0), (1, 0)), NAMES)
    side.call(handle_fetch, fetch((0, 5)), NAMES)
    assert (traffic.fetched, traffic.refused_fetches) == (3, 1)
    assert traffic.bytes_out == 2 * len(batch(b"a"))


@in_virtual_time
async def test_counts_stay_until_the_last_replica_of_the_topic_has_gone() -> None:
    side = ReplicaSide()
    side.lead("t", count=2)
    side.call(handle_produce, produce(("t", 0, batch(b"a"))), 11)
    traffic = side.replica_manager.traffic["t"]
    stop(side, 0)
    assert side.replica_manager.traffic["t"] is traffic
    assert traffic.messages_in == 1
    stop(side, 1)
    assert "t" not in side.replica_manager.traffic
    assert traffic.replicas == 0


def stop(side: ReplicaSide, index: int) -> None:
    states = [StopReplicaPartitionState(partition_index=index, leader_epoch=EPOCH_DURING_DELETE, delete_partition=True)]
    topics = [StopReplicaTopicState(topic_name="t", partition_states=states)]
    side.replica_control.stop_replica(StopReplicaRequest(controller_id=ME, controller_epoch=1, topic_states=topics))
