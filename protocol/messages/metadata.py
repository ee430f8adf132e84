"""Metadata (API key 3): versions 0-13, flexible from 9.

Brokers, and for topics their partitions with leaders and replicas.

0: an empty list asks for all topics; from 1 on null does, and an empty list asks for none. 1: racks, controller,
internal topics. 2: cluster id. 3: throttle time. 4: whether a topic may be created by asking. 5: offline replicas.
6: throttling moves to the client. 7: leader epochs. 8: authorized operations on request; of the cluster until 10.
10: topic ids in responses; 12: in requests. 13: an error code for the whole response.
"""

from oncelog.protocol.schema import ZERO_UUID, Message, array, array_of, boolean, int16, int32, string, uuid


class MetadataRequestTopic(Message):
    topic_id: bytes = uuid("10+", default=ZERO_UUID)
    name: str | None = string("0+", default="", nullable="10+")


class MetadataRequest(Message, api_key=3, versions="0-13", flexible="9+"):
    topics: list[MetadataRequestTopic] | None = array(MetadataRequestTopic, "0+", default_factory=list, nullable="1+")
    allow_auto_topic_creation: bool = boolean("4+", default=True)
    include_cluster_authorized_operations: bool = boolean("8-10", default=False)
    include_topic_authorized_operations: bool = boolean("8+", default=False)


class MetadataResponseBroker(Message):
    node_id: int = int32("0+", default=0)
    host: str = string("0+", default="")
    port: int = int32("0+", default=0)
    rack: str | None = string("1+", default=None, nullable="1+")


class MetadataResponsePartition(Message):
    error_code: int = int16("0+", default=0)
    partition_index: int = int32("0+", default=0)
    leader_id: int = int32("0+", default=0)
    leader_epoch: int = int32("7+", default=-1)
    replica_nodes: list[int] = array_of(int32, "0+", default_factory=list)
    isr_nodes: list[int] = array_of(int32, "0+", default_factory=list)
    offline_replicas: list[int] = array_of(int32, "5+", default_factory=list)


class MetadataResponseTopic(Message):
    error_code: int = int16("0+", default=0)
    name: str | None = string("0+", default="", nullable="12+")
    topic_id: bytes = uuid("10+", default=ZERO_UUID)
    is_internal: bool = boolean("1+", default=False)
    partitions: list[MetadataResponsePartition] = array(MetadataResponsePartition, "0+", default_factory=list)
    topic_authorized_operations: int = int32("8+", default=-2147483648)


class MetadataResponse(Message, api_key=3, versions="0-13", flexible="9+"):
    throttle_time_ms: int = int32("3+", default=0)
    brokers: list[MetadataResponseBroker] = array(MetadataResponseBroker, "0+", default_factory=list)
    cluster_id: str | None = string("2+", default=None, nullable="2+")
    controller_id: int = int32("1+", default=-1)
    topics: list[MetadataResponseTopic] = array(MetadataResponseTopic, "0+", default_factory=list)
    cluster_authorized_operations: int = int32("8-10", default=-2147483648)
    error_code: int = int16("13+", default=0)
