"""The embedded consumer protocol: what members of a consumer group exchange through JoinGroup and SyncGroup."""

from oncelog.protocol.schema import Message, array, array_of, binary, int32, string


class TopicPartition(Message):
    topic: str = string("1+", default="")
    partitions: list[int] = array_of(int32, "1+", default_factory=list)


class ConsumerProtocolSubscription(Message, versions="0-3", flexible="none"):
    topics: list[str] = array_of(string, "0+", default_factory=list)
    user_data: bytes | None = binary("0+", default=None, nullable="0+")
    owned_partitions: list[TopicPartition] = array(TopicPartition, "1+", default_factory=list)
    generation_id: int = int32("2+", default=-1)
    rack_id: str | None = string("3+", default=None, nullable="3+")


class AssignedTopicPartition(Message):
    topic: str = string("0+", default="")
    partitions: list[int] = array_of(int32, "0+", default_factory=list)


class ConsumerProtocolAssignment(Message, versions="0-3", flexible="none"):
    assigned_partitions: list[AssignedTopicPartition] = array(AssignedTopicPartition, "0+", default_factory=list)
    user_data: bytes | None = binary("0+", default=None, nullable="0+")
