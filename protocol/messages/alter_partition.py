"""AlterPartition (API key 56): versions 0-3, flexible from 0.

A leader asks the controller to change the in-sync replicas of partitions (KIP-497). The partition epoch of a cluster on
ZooKeeper is the version of the partition's state znode.

1: the recovery state of the leader (KIP-704). 2: topic ids instead of names (KIP-841). 3: the epoch of each broker that
is to be in sync, so that one that has restarted meanwhile is recognised (KIP-903).

From 2 on two tagged fields of our own, which Apache Kafka skips, let a broker ask another one, the controller or not,
whether it reaches the controller. A third names the replicas that may lead although they are not in sync (KIP-966), and
a fourth the topic, which may have no id in the metadata store.
"""

from oncelog.protocol.schema import Message, array, array_of, int8, int16, int32, int64, string, uuid


class BrokerState(Message):
    broker_id: int = int32("3+", default=0)
    broker_epoch: int = int64("3+", default=-1)


class AlterPartitionData(Message):
    partition_index: int = int32("0+", default=0)
    leader_epoch: int = int32("0+", default=0)
    new_isr: list[int] = array_of(int32, "0-2", default_factory=list)
    new_isr_with_epochs: list[BrokerState] = array(BrokerState, "3+", default_factory=list)
    leader_recovery_state: int = int8("1+", default=0)
    partition_epoch: int = int32("0+", default=0)


class AlterPartitionTopic(Message):
    topic_name: str = string("0-1", default="")
    topic_id: bytes = uuid("2+")
    name_beside_id: str = string("2+", default="", tag=10_000)
    partitions: list[AlterPartitionData] = array(AlterPartitionData, "0+", default_factory=list)


class AlterPartitionRequest(Message, api_key=56, versions="0-3", flexible="0+"):
    broker_id: int = int32("0+", default=0)
    broker_epoch: int = int64("0+", default=-1)
    topics: list[AlterPartitionTopic] = array(AlterPartitionTopic, "0+", default_factory=list)
    lost_controller_id: int = int32("2+", default=-1, tag=10_000)
    """Ours: the controller that the sender does not reach. It asks whether the receiver does."""


class AlteredPartition(Message):
    partition_index: int = int32("0+", default=0)
    error_code: int = int16("0+", default=0)
    leader_id: int = int32("0+", default=0)
    leader_epoch: int = int32("0+", default=0)
    isr: list[int] = array_of(int32, "0+", default_factory=list)
    leader_recovery_state: int = int8("1+", default=0)
    partition_epoch: int = int32("0+", default=0)
    eligible_leader_replicas: list[int] = array_of(int32, "2+", default_factory=list, tag=10_000)


class AlteredTopic(Message):
    topic_name: str = string("0-1", default="")
    topic_id: bytes = uuid("2+")
    name_beside_id: str = string("2+", default="", tag=10_000)
    partitions: list[AlteredPartition] = array(AlteredPartition, "0+", default_factory=list)


class AlterPartitionResponse(Message, api_key=56, versions="0-3", flexible="0+"):
    throttle_time_ms: int = int32("0+", default=0)
    error_code: int = int16("0+", default=0)
    topics: list[AlteredTopic] = array(AlteredTopic, "0+", default_factory=list)
    controller_contact: int = int8("2+", default=0, tag=10_000)
    """Ours: 1 if the receiver reaches the controller named in the request, 2 if it has lost it, 0 if it cannot say."""
