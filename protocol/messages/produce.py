"""Produce (API key 0): versions 0-13, flexible from 9.

Appends batches, or messages of the formats before them.

0: sets of messages of magic 0. 1: throttle time. 2: messages of magic 1, and the append time in the response.
3: the transactional id, and record batches of magic 2. 4: KAFKA_STORAGE_ERROR may be returned. 5: log start offset,
with which a client tells a harmless sequence error from a loss. 7: zstd (KIP-110). 8: errors of single records
(KIP-467). 10: current leader and its endpoint, tagged (KIP-951). 11: TRANSACTION_ABORTABLE may be returned.
12: in a transaction, partitions are added by writing to them (KIP-890 part 2). 13: topic ids, not names (KIP-516).
"""

from oncelog.protocol.schema import (
    ZERO_UUID,
    Message,
    Records,
    array,
    int16,
    int32,
    int64,
    records,
    string,
    struct,
    uuid,
)


class PartitionProduceData(Message):
    index: int = int32("0+", default=0)
    records: Records | None = records("0+", default=None, nullable="0+")


class TopicProduceData(Message):
    name: str = string("0-12", default="")
    topic_id: bytes = uuid("13+", default=ZERO_UUID)
    partition_data: list[PartitionProduceData] = array(PartitionProduceData, "0+", default_factory=list)


class ProduceRequest(Message, api_key=0, versions="0-13", flexible="9+"):
    transactional_id: str | None = string("3+", default=None, nullable="3+")
    acks: int = int16("0+", default=0)
    timeout_ms: int = int32("0+", default=0)
    topic_data: list[TopicProduceData] = array(TopicProduceData, "0+", default_factory=list)


class BatchIndexAndErrorMessage(Message):
    batch_index: int = int32("8+", default=0)
    batch_index_error_message: str | None = string("8+", default=None, nullable="8+")


class LeaderIdAndEpoch(Message):
    leader_id: int = int32("10+", default=-1)
    leader_epoch: int = int32("10+", default=-1)


class PartitionProduceResponse(Message):
    index: int = int32("0+", default=0)
    error_code: int = int16("0+", default=0)
    base_offset: int = int64("0+", default=0)
    log_append_time_ms: int = int64("2+", default=-1)
    log_start_offset: int = int64("5+", default=-1)
    record_errors: list[BatchIndexAndErrorMessage] = array(BatchIndexAndErrorMessage, "8+", default_factory=list)
    error_message: str | None = string("8+", default=None, nullable="8+")
    current_leader: LeaderIdAndEpoch | None = struct(LeaderIdAndEpoch, "10+", default=None, tag=0)


class TopicProduceResponse(Message):
    name: str = string("0-12", default="")
    topic_id: bytes = uuid("13+", default=ZERO_UUID)
    partition_responses: list[PartitionProduceResponse] = array(PartitionProduceResponse, "0+", default_factory=list)


class NodeEndpoint(Message):
    node_id: int = int32("10+", default=0)
    host: str = string("10+", default="")
    port: int = int32("10+", default=0)
    rack: str | None = string("10+", default=None, nullable="10+")


class ProduceResponse(Message, api_key=0, versions="0-13", flexible="9+"):
    responses: list[TopicProduceResponse] = array(TopicProduceResponse, "0+", default_factory=list)
    throttle_time_ms: int = int32("1+", default=0)
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, "10+", default_factory=list, tag=0)
