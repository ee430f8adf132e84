"""TxnOffsetCommit (API key 28): versions 0-5, flexible from 3.

A producer commits a group's offsets as part of its transaction.

1: throttling moves to the client. 2: leader epochs. 3: the group's generation and member, for fencing (KIP-447).
4: TRANSACTION_ABORTABLE may be returned. 5: the group is added to the transaction by this (KIP-890 part 2).
"""

from oncelog.protocol.schema import Message, array, int16, int32, int64, string


class TxnOffsetCommitRequestPartition(Message):
    partition_index: int = int32("0+", default=0)
    committed_offset: int = int64("0+", default=0)
    committed_leader_epoch: int = int32("2+", default=-1)
    committed_metadata: str | None = string("0+", default="", nullable="0+")


class TxnOffsetCommitRequestTopic(Message):
    name: str = string("0+", default="")
    partitions: list[TxnOffsetCommitRequestPartition] = array(
        TxnOffsetCommitRequestPartition, "0+", default_factory=list
    )


class TxnOffsetCommitRequest(Message, api_key=28, versions="0-5", flexible="3+"):
    transactional_id: str = string("0+", default="")
    group_id: str = string("0+", default="")
    producer_id: int = int64("0+", default=0)
    producer_epoch: int = int16("0+", default=0)
    generation_id: int = int32("3+", default=-1)
    member_id: str = string("3+", default="")
    group_instance_id: str | None = string("3+", default=None, nullable="3+")
    topics: list[TxnOffsetCommitRequestTopic] = array(TxnOffsetCommitRequestTopic, "0+", default_factory=list)


class TxnOffsetCommitResponsePartition(Message):
    partition_index: int = int32("0+", default=0)
    error_code: int = int16("0+", default=0)


class TxnOffsetCommitResponseTopic(Message):
    name: str = string("0+", default="")
    partitions: list[TxnOffsetCommitResponsePartition] = array(
        TxnOffsetCommitResponsePartition, "0+", default_factory=list
    )


class TxnOffsetCommitResponse(Message, api_key=28, versions="0-5", flexible="3+"):
    throttle_time_ms: int = int32("0+", default=0)
    topics: list[TxnOffsetCommitResponseTopic] = array(TxnOffsetCommitResponseTopic, "0+", default_factory=list)
