"""OffsetDelete (API key 47): versions 0.

Deletes committed offsets of topics that no member of the group subscribes to (KIP-496).
"""

from oncelog.protocol.schema import Message, array, int16, int32, string


class OffsetDeleteRequestPartition(Message):
    partition_index: int = int32("0+", default=0)


class OffsetDeleteRequestTopic(Message):
    name: str = string("0+", default="")
    partitions: list[OffsetDeleteRequestPartition] = array(OffsetDeleteRequestPartition, "0+", default_factory=list)


class OffsetDeleteRequest(Message, api_key=47, versions="0", flexible="none"):
    group_id: str = string("0+", default="")
    topics: list[OffsetDeleteRequestTopic] = array(OffsetDeleteRequestTopic, "0+", default_factory=list)


class OffsetDeleteResponsePartition(Message):
    partition_index: int = int32("0+", default=0)
    error_code: int = int16("0+", default=0)


class OffsetDeleteResponseTopic(Message):
    name: str = string("0+", default="")
    partitions: list[OffsetDeleteResponsePartition] = array(OffsetDeleteResponsePartition, "0+", default_factory=list)


class OffsetDeleteResponse(Message, api_key=47, versions="0", flexible="none"):
    error_code: int = int16("0+", default=0)
    throttle_time_ms: int = int32("0+", default=0)
    topics: list[OffsetDeleteResponseTopic] = array(OffsetDeleteResponseTopic, "0+", default_factory=list)
