"""CreatePartitions (API key 37): versions 0-3, flexible from 2.

Adds partitions to existing topics.

1: throttling moves to the client. 3: THROTTLING_QUOTA_EXCEEDED may be returned (KIP-599).
"""

from oncelog.protocol.schema import Message, array, array_of, boolean, int16, int32, string


class CreatePartitionsAssignment(Message):
    broker_ids: list[int] = array_of(int32, "0+", default_factory=list)


class CreatePartitionsTopic(Message):
    name: str = string("0+", default="")
    count: int = int32("0+", default=0)
    assignments: list[CreatePartitionsAssignment] | None = array(
        CreatePartitionsAssignment, "0+", default_factory=list, nullable="0+"
    )


class CreatePartitionsRequest(Message, api_key=37, versions="0-3", flexible="2+"):
    topics: list[CreatePartitionsTopic] = array(CreatePartitionsTopic, "0+", default_factory=list)
    timeout_ms: int = int32("0+", default=0)
    validate_only: bool = boolean("0+", default=False)


class CreatePartitionsTopicResult(Message):
    name: str = string("0+", default="")
    error_code: int = int16("0+", default=0)
    error_message: str | None = string("0+", default=None, nullable="0+")


class CreatePartitionsResponse(Message, api_key=37, versions="0-3", flexible="2+"):
    throttle_time_ms: int = int32("0+", default=0)
    results: list[CreatePartitionsTopicResult] = array(CreatePartitionsTopicResult, "0+", default_factory=list)
