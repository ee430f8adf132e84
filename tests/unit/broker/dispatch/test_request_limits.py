"""Honest requests of the largest clusters and clients, decoded under the limits of their APIs."""

from collections.abc import Callable
from typing import Any, Final

import pytest

from oncelog.broker.dispatch.dispatcher import DEFAULT_MAX_ELEMENTS
from oncelog.broker.dispatch.request_limits import limit_of
from oncelog.broker.replication.isr_changes import MOST_PARTITIONS
from oncelog.protocol.compiler import decoder, encode
from oncelog.protocol.messages import offset_commit as offset_commits
from oncelog.protocol.messages import txn_offset_commit as txn_offset_commits
from oncelog.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from oncelog.protocol.messages.alter_partition import (
    AlterPartitionData,
    AlterPartitionRequest,
    AlterPartitionTopic,
    BrokerState,
)
from oncelog.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from oncelog.protocol.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from oncelog.protocol.messages.create_topics import CreatableReplicaAssignment, CreatableTopic, CreateTopicsRequest
from oncelog.protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from oncelog.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from oncelog.protocol.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from oncelog.protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from oncelog.protocol.messages.elect_leaders import ElectLeadersRequest, ElectLeadersTopic
from oncelog.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from oncelog.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from oncelog.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from oncelog.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from oncelog.protocol.schema import Message

_PARTITIONS: Final = 20_000
_RESOURCES: Final = 10_000
_REPLICAS: Final = (1, 2, 3)
_TOPIC: Final = "t" * 249


def _assert_decoded(request: Message, version: int, *, setting: int = DEFAULT_MAX_ELEMENTS) -> None:
    api_key = type(request).api_key
    assert api_key is not None
    limit = limit_of(api_key)
    encoded = encode(request, version)
    assert len(encoded) <= limit.max_bytes
    decoded, _ = decoder(type(request), version)(encoded, 0, int(limit.elements_factor * setting))
    assert decoded == request


def alter_partition(partitions: int) -> AlterPartitionRequest:
    """Every partition in a topic of its own, as everything here: that has the most elements."""
    isr = [BrokerState(broker_id=broker, broker_epoch=9) for broker in _REPLICAS]
    return AlterPartitionRequest(
        topics=[
            AlterPartitionTopic(
                topic_id=index.to_bytes(16, "big"), partitions=[AlterPartitionData(new_isr_with_epochs=isr)]
            )
            for index in range(partitions)
        ]
    )


def offset_for_leader_epoch() -> OffsetForLeaderEpochRequest:
    topic = OffsetForLeaderTopic(topic=_TOPIC, partitions=[OffsetForLeaderPartition()])
    return OffsetForLeaderEpochRequest(topics=[topic] * _PARTITIONS)


def add_partitions_to_txn() -> AddPartitionsToTxnRequest:
    """A transaction for each partition."""
    return AddPartitionsToTxnRequest(
        transactions=[
            AddPartitionsToTxnTransaction(
                transactional_id="x" * 249, topics=[AddPartitionsToTxnTopic(name=_TOPIC, partitions=[0])]
            )
        ]
        * _PARTITIONS
    )


def write_txn_markers() -> WriteTxnMarkersRequest:
    """A transaction for each partition."""
    topic = WritableTxnMarkerTopic(name=_TOPIC, partition_indexes=[0])
    return WriteTxnMarkersRequest(markers=[WritableTxnMarker(topics=[topic])] * _PARTITIONS)


def fetch() -> FetchRequest:
    """Every partition is new in the session."""
    return FetchRequest(
        topics=[
            FetchTopic(topic_id=index.to_bytes(16, "big"), partitions=[FetchPartition()])
            for index in range(_PARTITIONS)
        ]
    )


def fetch_of_nothing() -> FetchRequest:
    """Every partition has left the session."""
    forgotten = [ForgottenTopic(topic_id=index.to_bytes(16, "big"), partitions=[0]) for index in range(_PARTITIONS)]
    return FetchRequest(forgotten_topics_data=forgotten)


@pytest.mark.parametrize(
    ("make", "version"),
    [
        (lambda: alter_partition(_PARTITIONS), 3),
        (offset_for_leader_epoch, 4),
        (add_partitions_to_txn, 5),
        (write_txn_markers, 1),
        (fetch, 15),
        (fetch_of_nothing, 15),
    ],
    ids=["alter partition", "offset for leader epoch", "add partitions to txn", "markers", "fetch", "forgotten"],
)
def test_broker_requests_for_20000_partitions_are_decoded(make: Callable[[], Any], version: int) -> None:
    """What a controller sends has its own test; AlterPartition in one piece is what older brokers send."""
    _assert_decoded(make(), version)


def offset_commit() -> offset_commits.OffsetCommitRequest:
    topic = offset_commits.OffsetCommitRequestTopic(
        name=_TOPIC, partitions=[offset_commits.OffsetCommitRequestPartition()]
    )
    return offset_commits.OffsetCommitRequest(topics=[topic] * _PARTITIONS)


def txn_offset_commit() -> txn_offset_commits.TxnOffsetCommitRequest:
    topic = txn_offset_commits.TxnOffsetCommitRequestTopic(
        name=_TOPIC, partitions=[txn_offset_commits.TxnOffsetCommitRequestPartition()]
    )
    return txn_offset_commits.TxnOffsetCommitRequest(topics=[topic] * _PARTITIONS)


def reassignment() -> AlterPartitionReassignmentsRequest:
    topic = ReassignableTopic(name=_TOPIC, partitions=[ReassignablePartition(replicas=list(_REPLICAS))])
    return AlterPartitionReassignmentsRequest(topics=[topic] * _RESOURCES)


def creation() -> CreateTopicsRequest:
    assignment = CreatableReplicaAssignment(broker_ids=list(_REPLICAS))
    return CreateTopicsRequest(topics=[CreatableTopic(name=_TOPIC, assignments=[assignment])] * _RESOURCES)


def alteration() -> IncrementalAlterConfigsRequest:
    resource = AlterConfigsResource(resource_name=_TOPIC, configs=[AlterableConfig(name="retention.ms", value="5")])
    return IncrementalAlterConfigsRequest(resources=[resource] * _RESOURCES)


def description() -> DescribeConfigsRequest:
    resource = DescribeConfigsResource(resource_name=_TOPIC, configuration_keys=["retention.ms"])
    return DescribeConfigsRequest(resources=[resource] * _RESOURCES)


def growth() -> CreatePartitionsRequest:
    assignments = [CreatePartitionsAssignment(broker_ids=list(_REPLICAS))] * _RESOURCES
    topic = CreatePartitionsTopic(name=_TOPIC, count=_RESOURCES + 1, assignments=assignments)
    return CreatePartitionsRequest(topics=[topic])


def of_topics(count: int) -> list[int]:
    """As many partitions in each of some topics, 10,000 in all."""
    return list(range(_RESOURCES // count))


def record_deletion() -> DeleteRecordsRequest:
    partitions = [DeleteRecordsPartition(partition_index=index, offset=1) for index in of_topics(1_000)]
    return DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=_TOPIC, partitions=partitions)] * 1_000)


def producers_description() -> DescribeProducersRequest:
    topic = TopicRequest(name=_TOPIC, partition_indexes=of_topics(1))
    return DescribeProducersRequest(topics=[topic])


def log_dirs_description() -> DescribeLogDirsRequest:
    return DescribeLogDirsRequest(topics=[DescribableLogDirTopic(topic=_TOPIC, partitions=of_topics(1))])


def elections() -> ElectLeadersRequest:
    return ElectLeadersRequest(topic_partitions=[ElectLeadersTopic(topic=_TOPIC, partitions=of_topics(1))])


@pytest.mark.parametrize(
    ("make", "version"),
    [
        (offset_commit, 9),
        (growth, 3),
        (record_deletion, 2),
        (producers_description, 0),
        (log_dirs_description, 4),
        (elections, 2),
        (txn_offset_commit, 5),
        (reassignment, 1),
        (creation, 7),
        (alteration, 1),
        (description, 4),
    ],
    ids=[
        "offset commit",
        "create partitions",
        "delete records",
        "describe producers",
        "describe log dirs",
        "elect leaders",
        "txn offset commit",
        "reassignment",
        "creation",
        "alter configs",
        "describe configs",
    ],
)
def test_client_and_administrator_requests_of_large_clusters_are_decoded(make: Callable[[], Any], version: int) -> None:
    """20,000 partitions, or 10,000 with their replicas, or 10,000 resources."""
    _assert_decoded(make(), version)


def test_alter_partition_is_decoded_under_the_least_setting() -> None:
    _assert_decoded(alter_partition(MOST_PARTITIONS), 3, setting=1_000)
