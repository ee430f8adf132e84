"""ListPartitionReassignments (API key 46): version 0, flexible.

Which partitions are being moved to other brokers (KIP-455).
"""

from oncelog.protocol.schema import Message, array, array_of, int16, int32, string


class ListPartitionReassignmentsTopic(Message):
    name: str = string("0+", default="")
    partition_indexes: list[int] = array_of(int32, "0+", default_factory=list)


class ListPartitionReassignmentsRequest(Message, api_key=46, versions="0", flexible="0+"):
    timeout_ms: int = int32("0+", default=60_000)
    topics: list[ListPartitionReassignmentsTopic] | None = array(
        ListPartitionReassignmentsTopic, "0+", default=None, nullable="0+"
    )


class OngoingPartitionReassignment(Message):
    partition_index: int = int32("0+", default=0)
    replicas: list[int] = array_of(int32, "0+", default_factory=list)
    adding_replicas: list[int] = array_of(int32, "0+", default_factory=list)
    removing_replicas: list[int] = array_of(int32, "0+", default_factory=list)


class OngoingTopicReassignment(Message):
    name: str = string("0+", default="")
    partitions: list[OngoingPartitionReassignment] = array(OngoingPartitionReassignment, "0+", default_factory=list)


class ListPartitionReassignmentsResponse(Message, api_key=46, versions="0", flexible="0+"):
    throttle_time_ms: int = int32("0+", default=0)
    error_code: int = int16("0+", default=0)
    error_message: str | None = string("0+", default=None, nullable="0+")
    topics: list[OngoingTopicReassignment] = array(OngoingTopicReassignment, "0+", default_factory=list)
