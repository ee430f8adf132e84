"""DeleteRecords (API key 21): versions 0-2, flexible from 2.

Advances the log start offset of partitions; what is below it is deleted.

1: throttling moves to the client.
"""

from oncelog.protocol.schema import Message, array, int16, int32, int64, string


class DeleteRecordsPartition(Message):
    partition_index: int = int32("0+", default=0)
    offset: int = int64("0+", default=0)


class DeleteRecordsTopic(Message):
    name: str = string("0+", default="")
    partitions: list[DeleteRecordsPartition] = array(DeleteRecordsPartition, "0+", default_factory=list)


class DeleteRecordsRequest(Message, api_key=21, versions="0-2", flexible="2+"):
    topics: list[DeleteRecordsTopic] = array(DeleteRecordsTopic, "0+", default_factory=list)
    timeout_ms: int = int32("0+", default=0)


class DeleteRecordsPartitionResult(Message):
    partition_index: int = int32("0+", default=0)
    low_watermark: int = int64("0+", default=0)
    error_code: int = int16("0+", default=0)


class DeleteRecordsTopicResult(Message):
    name: str = string("0+", default="")
    partitions: list[DeleteRecordsPartitionResult] = array(DeleteRecordsPartitionResult, "0+", default_factory=list)


class DeleteRecordsResponse(Message, api_key=21, versions="0-2", flexible="2+"):
    throttle_time_ms: int = int32("0+", default=0)
    topics: list[DeleteRecordsTopicResult] = array(DeleteRecordsTopicResult, "0+", default_factory=list)
