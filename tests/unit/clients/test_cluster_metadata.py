"""What is believed of a cluster when brokers tell different things."""

from oncelog.clients.cluster_metadata import ClusterMetadata
from oncelog.clients.connection import Address
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from oncelog.protocol.schema import ZERO_UUID
from oncelog.protocol.topic_partition import TopicPartition

ORDERS = TopicPartition("orders", 0)
SOME_ID = bytes(range(16))
OTHER_ID = bytes(range(1, 17))


def reported(leader: int, epoch: int, *, topic_id: bytes = SOME_ID, nodes: int = 3) -> MetadataResponse:
    """A response of a cluster with some brokers and one topic of one partition."""
    partition = MetadataResponsePartition(partition_index=0, leader_id=leader, leader_epoch=epoch)
    return MetadataResponse(
        brokers=[MetadataResponseBroker(node_id=node, host="here", port=9000 + node) for node in range(1, nodes + 1)],
        controller_id=1,
        topics=[MetadataResponseTopic(name="orders", topic_id=topic_id, partitions=[partition])],
    )


def knowing(*responses: MetadataResponse) -> ClusterMetadata:
    metadata = ClusterMetadata()
    for second, response in enumerate(responses):
        metadata.update(response, float(second))
    return metadata


def test_newest_leader_epoch_wins_over_the_latest_response() -> None:
    assert knowing(reported(1, 5), reported(2, 6)).leader(ORDERS) == 2
    metadata = knowing(reported(2, 6), reported(1, 5))
    assert (metadata.leader(ORDERS), metadata.leader_epoch(ORDERS)) == (2, 6)
    assert metadata.updated_at["orders"] == 1.0


def test_topic_that_is_requested_anew_does_not_go_back_to_an_earlier_leader() -> None:
    """The leader was not reached, and the broker that is asked then lags behind."""
    metadata = knowing(reported(2, 6))
    metadata.forget("orders")
    assert metadata.leader(ORDERS) is None
    metadata.update(reported(1, 5), 1.0)
    assert (metadata.leader(ORDERS), metadata.leader_epoch(ORDERS)) == (2, 6)
    metadata.forget("orders")
    metadata.update(reported(3, 7), 2.0)
    assert (metadata.leader(ORDERS), metadata.leader_epoch(ORDERS)) == (3, 7)
    metadata.forget("orders")
    metadata.update(reported(1, 0, topic_id=OTHER_ID), 3.0)
    assert (metadata.leader(ORDERS), metadata.leader_epoch(ORDERS)) == (1, 0)


def test_topic_without_an_id_that_is_requested_anew_may_be_another() -> None:
    metadata = knowing(reported(2, 6, topic_id=ZERO_UUID))
    metadata.forget("orders")
    metadata.update(reported(1, 0, topic_id=ZERO_UUID), 1.0)
    assert metadata.leader(ORDERS) == 1


def test_another_topic_of_the_same_name_begins_its_epochs_anew() -> None:
    metadata = knowing(reported(2, 6), reported(1, 0, topic_id=OTHER_ID))
    assert (metadata.leader(ORDERS), metadata.leader_epoch(ORDERS)) == (1, 0)
    assert metadata.topic_name(OTHER_ID) == "orders"
    assert metadata.topic_name(SOME_ID) is None


def test_brokers_that_know_no_epochs_are_believed() -> None:
    assert knowing(reported(1, -1), reported(2, -1)).leader(ORDERS) == 2
    assert knowing(reported(1, 5), reported(2, -1)).leader(ORDERS) == 2


def test_leader_outside_of_the_cluster_is_none() -> None:
    assert knowing(reported(9, 5)).leader(ORDERS) is None


def test_error_of_a_topic_keeps_its_metadata() -> None:
    metadata = knowing(reported(1, 5))
    unavailable = MetadataResponseTopic(name="orders", error_code=ErrorCode.LEADER_NOT_AVAILABLE)
    metadata.update(MetadataResponse(topics=[unavailable]), 1.0)
    assert metadata.leader(ORDERS) == 1
    assert metadata.updated_at["orders"] == 0.0


def test_deleted_topic_is_removed_entirely() -> None:
    metadata = knowing(reported(1, 5))
    gone = MetadataResponseTopic(name="orders", error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    metadata.update(MetadataResponse(topics=[gone]), 1.0)
    assert metadata.leader(ORDERS) is None
    assert metadata.partition_count("orders") == 0
    assert metadata.topic_id("orders") == ZERO_UUID
    assert metadata.topic_name(SOME_ID) is None


def test_leader_named_in_an_error_is_applied_if_it_is_newer() -> None:
    """KIP-951."""
    metadata = knowing(reported(1, 5))
    new_broker = (7, Address("there", 9999))
    assert metadata.take_leaders({ORDERS: (7, 6)}, [new_broker]) == {ORDERS}
    assert (metadata.leader(ORDERS), metadata.brokers[7]) == (7, Address("there", 9999))
    assert metadata.take_leaders({ORDERS: (1, 6)}, []) == set()
    assert metadata.take_leaders({ORDERS: (1, 4)}, []) == set()
    assert metadata.leader(ORDERS) == 7


def test_leader_without_an_address_is_not_applied() -> None:
    metadata = knowing(reported(1, 5))
    assert metadata.take_leaders({ORDERS: (9, 6), TopicPartition("other", 0): (2, 6)}, []) == set()
    assert metadata.leader(ORDERS) == 1


def test_response_without_brokers_keeps_the_known_ones() -> None:
    metadata = knowing(reported(1, 5), MetadataResponse())
    assert metadata.leader(ORDERS) == 1
