import pytest

from oncelog.broker.handlers.describe_producers import handle_describe_producers
from oncelog.broker.storage.partition_log import AppendOrigin
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.describe_producers import DescribeProducersRequest, PartitionResponse, TopicRequest
from tests.unit.broker.batches import batch, marker
from tests.unit.broker.replica_side import ME, OTHER, OnlyTopics, ReplicaSide


def describe(broker: ReplicaSide, topic: str = "t", index: int = 0) -> PartitionResponse:
    request = DescribeProducersRequest(topics=[TopicRequest(name=topic, partition_indexes=[index])])
    (result,) = broker.respond(handle_describe_producers, request, 0).topics
    (partition,) = result.partitions
    assert isinstance(partition, PartitionResponse)
    return partition


@pytest.fixture
def broker() -> ReplicaSide:
    broker = ReplicaSide()
    broker.lead()
    return broker


def test_describe_producers_lists_producers_and_open_transactions(broker: ReplicaSide) -> None:
    broker.append(batch(b"a", b"b", producer_id=7, epoch=1, sequence=0, timestamp=500))
    broker.append(batch(producer_id=8, epoch=0, sequence=0, transactional=True, timestamp=600))
    first, second = sorted(describe(broker).active_producers, key=lambda producer: producer.producer_id)
    assert (first.producer_id, first.producer_epoch, first.last_sequence, first.last_timestamp) == (7, 1, 1, 500)
    assert (first.current_txn_start_offset, first.coordinator_epoch) == (-1, -1)
    assert (second.producer_id, second.last_sequence, second.current_txn_start_offset) == (8, 0, 2)
    broker.append(marker(8, commit=True, coordinator_epoch=3), origin=AppendOrigin.COORDINATOR)
    ended = describe(broker).active_producers[-1]
    assert (ended.current_txn_start_offset, ended.coordinator_epoch) == (-1, 3)


def test_describe_producers_of_a_follower_is_served(broker: ReplicaSide) -> None:
    broker.append(batch(producer_id=7, epoch=1, sequence=0))
    broker.lead(epoch=1, leader=OTHER, replicas=(ME, OTHER))
    assert [producer.producer_id for producer in describe(broker).active_producers] == [7]


def test_describe_producers_of_unavailable_partitions_has_their_errors(broker: ReplicaSide) -> None:
    assert describe(broker, "u").error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    broker.lead("v", leader=OTHER, replicas=(OTHER,))
    assert describe(broker, "v").error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    broker.authorizer = OnlyTopics()
    assert describe(broker).error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
