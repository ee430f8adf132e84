"""Fetch (API key 1): versions 0-18, flexible from 12.

Reads batches, for consumers and for followers, or messages of the formats before them.

0: sets of messages of magic 0. 1: throttle time. 2: messages of magic 1. 3: the maximum size of the whole response. 4:
batches of magic 2, the isolation level and aborted transactions. 5: log start offset, for followers' own. 6:
KAFKA_STORAGE_ERROR may be returned. 7: incremental sessions (KIP-227). 8: throttling moves to the client. 9: the leader
epoch known to the client (KIP-320). 10: zstd may be received (KIP-110). 11: rack and preferred replica (KIP-392). 12:
diverging epochs for truncation, and the current leader as tagged fields. 13: topic ids instead of names (KIP-516). 14:
OFFSET_MOVED_TO_TIERED_STORAGE may be returned. 15: the replica id moves into ``replica_state``, with the broker's epoch
(KIP-903). 16: endpoints of new leaders (KIP-951). 17: directory ids (KIP-853). 18: the follower's high watermark
(KIP-1166).
"""

from oncelog.protocol.schema import (
    ZERO_UUID,
    Message,
    Records,
    array,
    array_of,
    int8,
    int16,
    int32,
    int64,
    records,
    string,
    struct,
    uuid,
)


class ReplicaState(Message):
    replica_id: int = int32("15+", default=-1)
    replica_epoch: int = int64("15+", default=-1)


class FetchPartition(Message):
    partition: int = int32("0+", default=0)
    current_leader_epoch: int = int32("9+", default=-1)
    fetch_offset: int = int64("0+", default=0)
    last_fetched_epoch: int = int32("12+", default=-1)
    log_start_offset: int = int64("5+", default=-1)
    partition_max_bytes: int = int32("0+", default=0)
    replica_directory_id: bytes = uuid("17+", default=ZERO_UUID, tag=0)
    high_watermark: int = int64("18+", default=9223372036854775807, tag=1)


class FetchTopic(Message):
    topic: str = string("0-12", default="")
    topic_id: bytes = uuid("13+", default=ZERO_UUID)
    partitions: list[FetchPartition] = array(FetchPartition, "0+", default_factory=list)


class ForgottenTopic(Message):
    topic: str = string("7-12", default="")
    topic_id: bytes = uuid("13+", default=ZERO_UUID)
    partitions: list[int] = array_of(int32, "7+", default_factory=list)


class FetchRequest(Message, api_key=1, versions="0-18", flexible="12+"):
    cluster_id: str | None = string("12+", default=None, nullable="12+", tag=0)
    replica_id: int = int32("0-14", default=-1)
    replica_state: ReplicaState | None = struct(ReplicaState, "15+", default=None, tag=1)
    max_wait_ms: int = int32("0+", default=0)
    min_bytes: int = int32("0+", default=0)
    max_bytes: int = int32("3+", default=2147483647)
    isolation_level: int = int8("4+", default=0)
    session_id: int = int32("7+", default=0)
    session_epoch: int = int32("7+", default=-1)
    topics: list[FetchTopic] = array(FetchTopic, "0+", default_factory=list)
    forgotten_topics_data: list[ForgottenTopic] = array(ForgottenTopic, "7+", default_factory=list)
    rack_id: str = string("11+", default="")


class EpochEndOffset(Message):
    epoch: int = int32("12+", default=-1)
    end_offset: int = int64("12+", default=-1)


class LeaderIdAndEpoch(Message):
    leader_id: int = int32("12+", default=-1)
    leader_epoch: int = int32("12+", default=-1)


class SnapshotId(Message):
    end_offset: int = int64("0+", default=-1)
    epoch: int = int32("0+", default=-1)


class AbortedTransaction(Message):
    producer_id: int = int64("4+", default=0)
    first_offset: int = int64("4+", default=0)


class PartitionData(Message):
    partition_index: int = int32("0+", default=0)
    error_code: int = int16("0+", default=0)
    high_watermark: int = int64("0+", default=0)
    last_stable_offset: int = int64("4+", default=-1)
    log_start_offset: int = int64("5+", default=-1)
    diverging_epoch: EpochEndOffset | None = struct(EpochEndOffset, "12+", default=None, tag=0)
    current_leader: LeaderIdAndEpoch | None = struct(LeaderIdAndEpoch, "12+", default=None, tag=1)
    snapshot_id: SnapshotId | None = struct(SnapshotId, "12+", default=None, tag=2)
    aborted_transactions: list[AbortedTransaction] | None = array(
        AbortedTransaction, "4+", default_factory=list, nullable="4+"
    )
    preferred_read_replica: int = int32("11+", default=-1)
    records: Records | None = records("0+", default=None, nullable="0+")


class FetchableTopicResponse(Message):
    topic: str = string("0-12", default="")
    topic_id: bytes = uuid("13+", default=ZERO_UUID)
    partitions: list[PartitionData] = array(PartitionData, "0+", default_factory=list)


class NodeEndpoint(Message):
    node_id: int = int32("16+", default=0)
    host: str = string("16+", default="")
    port: int = int32("16+", default=0)
    rack: str | None = string("16+", default=None, nullable="16+")


class FetchResponse(Message, api_key=1, versions="0-18", flexible="12+"):
    throttle_time_ms: int = int32("1+", default=0)
    error_code: int = int16("7+", default=0)
    session_id: int = int32("7+", default=0)
    responses: list[FetchableTopicResponse] = array(FetchableTopicResponse, "0+", default_factory=list)
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, "16+", default_factory=list, tag=0)
