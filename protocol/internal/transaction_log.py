"""The records of ``__transaction_state``: one key and value a transactional id.

Versions of the value: 0 is read by every Kafka since 0.11. 1 adds tagged fields and is written as soon as
``transaction.version`` 1 is finalised (KIP-890). Its tag 10000 is ours alone, and skipped by Kafka.
"""

from oncelog.protocol.schema import Message, array, array_of, int8, int16, int32, int64, string


class TransactionLogKey(Message, versions="0", flexible="none"):
    transactional_id: str = string("0", default="")


class PartitionsSchema(Message):
    topic: str = string("0+", default="")
    partition_ids: list[int] = array_of(int32, "0+", default_factory=list)


class TransactionLogValue(Message, versions="0-1", flexible="1+"):
    producer_id: int = int64("0+", default=0)
    previous_producer_id: int = int64("1+", default=-1, tag=0)
    next_producer_id: int = int64("1+", default=-1, tag=1)
    producer_epoch: int = int16("0+", default=0)
    next_producer_epoch: int = int16("1+", default=-1, tag=3)
    transaction_timeout_ms: int = int32("0+", default=0)
    transaction_status: int = int8("0+", default=0)
    transaction_partitions: list[PartitionsSchema] | None = array(
        PartitionsSchema, "0+", default_factory=list, nullable="0+"
    )
    transaction_last_update_timestamp_ms: int = int64("0+", default=0)
    transaction_start_timestamp_ms: int = int64("0+", default=0)
    client_transaction_version: int = int16("1+", default=0, tag=2)
    cause: str | None = string("1+", nullable="1+", default=None, tag=10_000)
    """Why, and for which client, the epoch was bumped or the transaction ended without a request of its producer."""
