"""LeaderAndIsr (API key 4): versions 0-7, flexible from 4.

The controller tells brokers which partitions they lead or follow. Gone since Kafka 4.0.

1: whether the replica is new; KAFKA_STORAGE_ERROR may be returned. 2: broker epoch; partitions grouped by topic. 3:
replicas being added and removed. 5: topic ids, whether this is the full state; the response is by topic id (KIP-516).
6: recovery state of the leader (KIP-704). 7: whether the controller is a KRaft one (KIP-866).

Some tagged fields are our own: ``sequence`` is the position of the request among those of one controller epoch, and
``eligible_leader_replicas`` names the replicas that may lead although they are not in sync (KIP-966). In the response,
``last_leader_epoch`` and ``log_end_offset`` say where the log of a partition without a leader ends.
"""

from oncelog.protocol.schema import (
    OWN_TAGS,
    ZERO_UUID,
    Message,
    array,
    array_of,
    boolean,
    int8,
    int16,
    int32,
    int64,
    string,
    uuid,
)


class LeaderAndIsrPartitionState(Message):
    topic_name: str = string("0-1", default="")
    partition_index: int = int32("0+", default=0)
    controller_epoch: int = int32("0+", default=0)
    leader: int = int32("0+", default=0)
    leader_epoch: int = int32("0+", default=0)
    isr: list[int] = array_of(int32, "0+", default_factory=list)
    partition_epoch: int = int32("0+", default=0)
    replicas: list[int] = array_of(int32, "0+", default_factory=list)
    adding_replicas: list[int] = array_of(int32, "3+", default_factory=list)
    removing_replicas: list[int] = array_of(int32, "3+", default_factory=list)
    is_new: bool = boolean("1+", default=False)
    leader_recovery_state: int = int8("6+", default=0)
    eligible_leader_replicas: list[int] = array_of(int32, "4+", default_factory=list, tag=OWN_TAGS)


class LeaderAndIsrTopicState(Message):
    topic_name: str = string("2+", default="")
    topic_id: bytes = uuid("5+", default=ZERO_UUID)
    partition_states: list[LeaderAndIsrPartitionState] = array(LeaderAndIsrPartitionState, "2+", default_factory=list)


class LeaderAndIsrLiveLeader(Message):
    broker_id: int = int32("0+", default=0)
    host_name: str = string("0+", default="")
    port: int = int32("0+", default=0)


class LeaderAndIsrRequest(Message, api_key=4, versions="0-7", flexible="4+"):
    controller_id: int = int32("0+", default=0)
    is_k_raft_controller: bool = boolean("7+", default=False)
    controller_epoch: int = int32("0+", default=0)
    broker_epoch: int = int64("2+", default=-1)
    type: int = int8("5+", default=0)
    ungrouped_partition_states: list[LeaderAndIsrPartitionState] = array(
        LeaderAndIsrPartitionState, "0-1", default_factory=list
    )
    topic_states: list[LeaderAndIsrTopicState] = array(LeaderAndIsrTopicState, "2+", default_factory=list)
    live_leaders: list[LeaderAndIsrLiveLeader] = array(LeaderAndIsrLiveLeader, "0+", default_factory=list)
    sequence: int = int64("4+", default=-1, tag=OWN_TAGS)


class LeaderAndIsrPartitionError(Message):
    topic_name: str = string("0-4", default="")
    partition_index: int = int32("0+", default=0)
    error_code: int = int16("0+", default=0)
    last_leader_epoch: int = int32("4+", default=-1, tag=OWN_TAGS)
    log_end_offset: int = int64("4+", default=-1, tag=OWN_TAGS + 1)


class LeaderAndIsrTopicError(Message):
    topic_id: bytes = uuid("5+", default=ZERO_UUID)
    partition_errors: list[LeaderAndIsrPartitionError] = array(LeaderAndIsrPartitionError, "5+", default_factory=list)


class LeaderAndIsrResponse(Message, api_key=4, versions="0-7", flexible="4+"):
    error_code: int = int16("0+", default=0)
    partition_errors: list[LeaderAndIsrPartitionError] = array(LeaderAndIsrPartitionError, "0-4", default_factory=list)
    topics: list[LeaderAndIsrTopicError] = array(LeaderAndIsrTopicError, "5+", default_factory=list)
