"""StopReplica (API key 5): versions 0-4, flexible from 2.

The controller tells a broker to stop following partitions, or to delete them. Gone since Kafka 4.0.

1: broker epoch; partitions grouped by topic. 3: a leader epoch for each partition (KIP-570), FENCED_LEADER_EPOCH may be
returned. 4: whether the controller is a KRaft one (KIP-866).

``topic_id`` and ``sequence`` are tagged fields of our own, which brokers of Apache Kafka skip: a request that arrives
late must not delete the log of a topic that was created again under the same name.
"""

from oncelog.protocol.schema import (
    OWN_TAGS,
    ZERO_UUID,
    Message,
    array,
    array_of,
    boolean,
    int16,
    int32,
    int64,
    string,
    uuid,
)


class StopReplicaPartitionV0(Message):
    topic_name: str = string("0", default="")
    partition_index: int = int32("0", default=0)


class StopReplicaTopicV1(Message):
    name: str = string("1-2", default="")
    partition_indexes: list[int] = array_of(int32, "1-2", default_factory=list)


class StopReplicaPartitionState(Message):
    partition_index: int = int32("3+", default=0)
    leader_epoch: int = int32("3+", default=-1)
    delete_partition: bool = boolean("3+", default=False)


class StopReplicaTopicState(Message):
    topic_name: str = string("3+", default="")
    partition_states: list[StopReplicaPartitionState] = array(StopReplicaPartitionState, "3+", default_factory=list)
    topic_id: bytes = uuid("3+", default=ZERO_UUID, tag=OWN_TAGS + 1)


class StopReplicaRequest(Message, api_key=5, versions="0-4", flexible="2+"):
    controller_id: int = int32("0+", default=0)
    is_k_raft_controller: bool = boolean("4+", default=False)
    controller_epoch: int = int32("0+", default=0)
    broker_epoch: int = int64("1+", default=-1)
    delete_partitions: bool = boolean("0-2", default=False)
    ungrouped_partitions: list[StopReplicaPartitionV0] = array(StopReplicaPartitionV0, "0", default_factory=list)
    topics: list[StopReplicaTopicV1] = array(StopReplicaTopicV1, "1-2", default_factory=list)
    topic_states: list[StopReplicaTopicState] = array(StopReplicaTopicState, "3+", default_factory=list)
    sequence: int = int64("2+", default=-1, tag=OWN_TAGS)


class StopReplicaPartitionError(Message):
    topic_name: str = string("0+", default="")
    partition_index: int = int32("0+", default=0)
    error_code: int = int16("0+", default=0)


class StopReplicaResponse(Message, api_key=5, versions="0-4", flexible="2+"):
    error_code: int = int16("0+", default=0)
    partition_errors: list[StopReplicaPartitionError] = array(StopReplicaPartitionError, "0+", default_factory=list)
