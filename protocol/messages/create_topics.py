"""CreateTopics (API key 19): versions 2-7, flexible from 5.

Creates topics, from a number of partitions or from an assignment of replicas.

3: throttling moves to the client. 4: -1 stands for the broker's default of partitions and replicas (KIP-464).
5: the response has what was created: partitions, replicas and configuration (KIP-525).
6: THROTTLING_QUOTA_EXCEEDED may be returned (KIP-599). 7: the response has the topic's id.
"""

from oncelog.protocol.schema import ZERO_UUID, Message, array, array_of, boolean, int8, int16, int32, string, uuid


class CreatableReplicaAssignment(Message):
    partition_index: int = int32("0+", default=0)
    broker_ids: list[int] = array_of(int32, "0+", default_factory=list)


class CreatableTopicConfig(Message):
    name: str = string("0+", default="")
    value: str | None = string("0+", default="", nullable="0+")


class CreatableTopic(Message):
    name: str = string("0+", default="")
    num_partitions: int = int32("0+", default=0)
    replication_factor: int = int16("0+", default=0)
    assignments: list[CreatableReplicaAssignment] = array(CreatableReplicaAssignment, "0+", default_factory=list)
    configs: list[CreatableTopicConfig] = array(CreatableTopicConfig, "0+", default_factory=list)


class CreateTopicsRequest(Message, api_key=19, versions="2-7", flexible="5+"):
    topics: list[CreatableTopic] = array(CreatableTopic, "0+", default_factory=list)
    timeout_ms: int = int32("0+", default=60000)
    validate_only: bool = boolean("1+", default=False)


class CreatableTopicConfigs(Message):
    name: str = string("5+", default="")
    value: str | None = string("5+", default="", nullable="5+")
    read_only: bool = boolean("5+", default=False)
    config_source: int = int8("5+", default=-1)
    is_sensitive: bool = boolean("5+", default=False)


class CreatableTopicResult(Message):
    name: str = string("0+", default="")
    topic_id: bytes = uuid("7+", default=ZERO_UUID)
    error_code: int = int16("0+", default=0)
    error_message: str | None = string("1+", default="", nullable="0+")
    topic_config_error_code: int = int16("5+", default=0, tag=0)
    num_partitions: int = int32("5+", default=-1)
    replication_factor: int = int16("5+", default=-1)
    configs: list[CreatableTopicConfigs] | None = array(
        CreatableTopicConfigs, "5+", default_factory=list, nullable="5+", shared=True
    )


class CreateTopicsResponse(Message, api_key=19, versions="2-7", flexible="5+"):
    throttle_time_ms: int = int32("2+", default=0)
    topics: list[CreatableTopicResult] = array(CreatableTopicResult, "0+", default_factory=list)
