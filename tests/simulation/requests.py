"""The requests of a transactional client, each from the few values that matter to a test.

Beside each builder is the version that the tests send, and what its response says in short. Where transaction version 2
asks for a later version of a request, that one has a name of its own.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from oncelog.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from oncelog.protocol.messages.api_versions import ApiVersionsRequest
from oncelog.protocol.messages.end_txn import EndTxnRequest
from oncelog.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from oncelog.protocol.messages.find_coordinator import FindCoordinatorRequest
from oncelog.protocol.messages.init_producer_id import InitProducerIdRequest
from oncelog.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from oncelog.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics
from oncelog.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from oncelog.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from oncelog.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from oncelog.protocol.messages.write_txn_markers import WritableTxnMarker, WritableTxnMarkerTopic
from oncelog.protocol.records.record_batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE, NewRecord, build_batch
from oncelog.protocol.schema import ZERO_UUID, Buffer
from oncelog.protocol.topic_partition import TopicPartition

FIND_COORDINATOR_VERSION: Final = 2
INIT_PRODUCER_ID_VERSION: Final = 4
ADD_PARTITIONS_VERSION: Final = 3
ADD_OFFSETS_VERSION: Final = 3
TXN_OFFSET_COMMIT_VERSION: Final = 3
END_TXN_VERSION: Final = 3
PRODUCE_VERSION: Final = 9
TRANSACTION_2_TXN_OFFSET_COMMIT_VERSION: Final = 5
TRANSACTION_2_END_TXN_VERSION: Final = 5
TRANSACTION_2_PRODUCE_VERSION: Final = 12
PRODUCE_BY_TOPIC_ID_VERSION: Final = 13
OFFSET_FETCH_VERSION: Final = 8
FETCH_VERSION: Final = 11
API_VERSIONS_VERSION: Final = 4
METADATA_VERSION: Final = 9
UPDATE_FEATURES_VERSION: Final = 1
WRITE_TXN_MARKERS_VERSION: Final = 2
TRANSACTION_FEATURE: Final = "transaction.version"
RECORD_TIMESTAMP: Final = 1_750_000_000_000

RETRIABLE: Final = frozenset(
    {
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.OFFSET_NOT_AVAILABLE,
    }
)
"""What a client waits out; the last four are of clusters only."""


def find_coordinator(key: str, *, transactional: bool) -> FindCoordinatorRequest:
    return FindCoordinatorRequest(key=key, key_type=int(transactional))


def init_producer_id(
    transactional_id: str | None,
    *,
    timeout_ms: int = 60_000,
    producer_id: int = NO_PRODUCER_ID,
    epoch: int = NO_PRODUCER_EPOCH,
) -> InitProducerIdRequest:
    return InitProducerIdRequest(
        transactional_id=transactional_id,
        transaction_timeout_ms=timeout_ms,
        producer_id=producer_id,
        producer_epoch=epoch,
    )


def add_partitions(
    transactional_id: str, producer_id: int, epoch: int, partitions: Iterable[TopicPartition]
) -> AddPartitionsToTxnRequest:
    topics: dict[str, list[int]] = {}
    for topic, partition in partitions:
        topics.setdefault(topic, []).append(partition)
    return AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=transactional_id,
        v3_and_below_producer_id=producer_id,
        v3_and_below_producer_epoch=epoch,
        v3_and_below_topics=[AddPartitionsToTxnTopic(name=t, partitions=p) for t, p in topics.items()],
    )


def added_partitions(response: Any) -> dict[TopicPartition, ErrorCode]:
    return {
        TopicPartition(topic.name, partition.partition_index): ErrorCode(partition.partition_error_code)
        for topic in response.results_by_topic_v3_and_below
        for partition in topic.results_by_partition
    }


def add_offsets(transactional_id: str, producer_id: int, epoch: int, group: str) -> AddOffsetsToTxnRequest:
    return AddOffsetsToTxnRequest(
        transactional_id=transactional_id, producer_id=producer_id, producer_epoch=epoch, group_id=group
    )


def txn_offset_commit(
    transactional_id: str,
    producer_id: int,
    epoch: int,
    group: str,
    offsets: Mapping[TopicPartition, int],
    *,
    generation: int = -1,
    member_id: str = "",
) -> TxnOffsetCommitRequest:
    topics: dict[str, list[TxnOffsetCommitRequestPartition]] = {}
    for (topic, partition), offset in offsets.items():
        partition_request = TxnOffsetCommitRequestPartition(partition_index=partition, committed_offset=offset)
        topics.setdefault(topic, []).append(partition_request)
    return TxnOffsetCommitRequest(
        transactional_id=transactional_id,
        group_id=group,
        producer_id=producer_id,
        producer_epoch=epoch,
        generation_id=generation,
        member_id=member_id,
        topics=[TxnOffsetCommitRequestTopic(name=t, partitions=p) for t, p in topics.items()],
    )


def committed_partitions(response: Any) -> dict[TopicPartition, ErrorCode]:
    """Of TxnOffsetCommit, and of OffsetCommit."""
    return {
        TopicPartition(topic.name, partition.partition_index): ErrorCode(partition.error_code)
        for topic in response.topics
        for partition in topic.partitions
    }


def end_txn(transactional_id: str, producer_id: int, epoch: int, *, commit: bool) -> EndTxnRequest:
    return EndTxnRequest(
        transactional_id=transactional_id, producer_id=producer_id, producer_epoch=epoch, committed=commit
    )


def marker(
    producer_id: int, epoch: int, partitions: Iterable[TopicPartition], *, commit: bool, coordinator_epoch: int = 0
) -> WritableTxnMarker:
    """Of transaction version 2."""
    topics: dict[str, list[int]] = {}
    for topic, partition in partitions:
        topics.setdefault(topic, []).append(partition)
    return WritableTxnMarker(
        producer_id=producer_id,
        producer_epoch=epoch,
        transaction_result=commit,
        topics=[WritableTxnMarkerTopic(name=t, partition_indexes=p) for t, p in topics.items()],
        coordinator_epoch=coordinator_epoch,
        transaction_version=2,
    )


def metadata(topic: str) -> MetadataRequest:
    return MetadataRequest(topics=[MetadataRequestTopic(name=topic)])


def leader_epochs(response: Any) -> dict[int, int]:
    """Return the leader epochs of the one requested topic, by partition."""
    return {partition.partition_index: partition.leader_epoch for partition in response.topics[0].partitions}


def batch(
    values: Sequence[bytes],
    *,
    producer_id: int = NO_PRODUCER_ID,
    epoch: int = NO_PRODUCER_EPOCH,
    sequence: int = NO_SEQUENCE,
    transactional: bool = False,
) -> bytearray:
    return build_batch(
        [NewRecord(timestamp=RECORD_TIMESTAMP, key=None, value=value) for value in values],
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        is_transactional=transactional,
    )


def produce(
    partition: TopicPartition,
    records: Buffer | None,
    *,
    transactional_id: str | None = None,
    acks: int = -1,
    topic_id: bytes = ZERO_UUID,
) -> ProduceRequest:
    """By name, and by topic id if there is one: its version says which of them goes over the wire."""
    data = PartitionProduceData(index=partition.partition, records=records)
    return ProduceRequest(
        transactional_id=transactional_id,
        acks=acks,
        timeout_ms=5_000,
        topic_data=[TopicProduceData(name=partition.topic, topic_id=topic_id, partition_data=[data])],
    )


def fetch(
    partition: TopicPartition,
    offset: int,
    *,
    read_committed: bool,
    max_wait_ms: int = 0,
    min_bytes: int = 0,
    max_bytes: int = 1 << 20,
    topic_id: bytes = ZERO_UUID,
    rack: str = "",
) -> FetchRequest:
    """By name, and by topic id if there is one: its version says which of them goes over the wire."""
    wanted = FetchPartition(partition=partition.partition, fetch_offset=offset, partition_max_bytes=max_bytes)
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        isolation_level=int(read_committed),
        topics=[FetchTopic(topic=partition.topic, topic_id=topic_id, partitions=[wanted])],
        rack_id=rack,
    )


def offset_fetch(group: str, partition: TopicPartition, *, require_stable: bool) -> OffsetFetchRequest:
    topics = [OffsetFetchRequestTopics(name=partition.topic, partition_indexes=[partition.partition])]
    return OffsetFetchRequest(
        groups=[OffsetFetchRequestGroup(group_id=group, topics=topics)], require_stable=require_stable
    )


def api_versions() -> ApiVersionsRequest:
    return ApiVersionsRequest(client_software_name="simulation", client_software_version="1")


def finalized_transaction_version(response: Any) -> int:
    """Of ApiVersions: the level of ``transaction.version`` that holds."""
    levels: dict[str, int] = {feature.name: feature.max_version_level for feature in response.finalized_features}
    return levels.get(TRANSACTION_FEATURE, 0)


def finalize_transaction_version(level: int, present: int) -> UpdateFeaturesRequest:
    upgrade, safe_downgrade = 1, 2
    update = FeatureUpdateKey(
        feature=TRANSACTION_FEATURE,
        max_version_level=level,
        upgrade_type=upgrade if level > present else safe_downgrade,
    )
    return UpdateFeaturesRequest(timeout_ms=5_000, feature_updates=[update])


class FetchedPosition(NamedTuple):
    """What OffsetFetch says of one partition."""

    error: ErrorCode
    offset: int
    """-1 if nothing is committed."""


def fetched_position(response: Any) -> FetchedPosition:
    """Return the position of the one requested partition."""
    group = response.groups[0]
    if group.error_code:
        return FetchedPosition(ErrorCode(group.error_code), -1)
    partition = group.topics[0].partitions[0]
    return FetchedPosition(ErrorCode(partition.error_code), partition.committed_offset)
