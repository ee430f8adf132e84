"""AddPartitionsToTxn (API key 24): versions 0-5, flexible from 3.

Adds partitions to a transaction before they are written to, or asks whether they are in one.

1: throttling moves to the client. 2: PRODUCER_FENCED may be returned. 0-3 are for clients and hold one transaction.
4: for brokers: a batch of transactions, ``verify_only``, and an error code for the whole request (KIP-890).
5: TRANSACTION_ABORTABLE may be returned.
"""

from oncelog.protocol.schema import Message, array, array_of, boolean, int16, int32, int64, string


class AddPartitionsToTxnTopic(Message):
    name: str = string("0+", default="")
    partitions: list[int] = array_of(int32, "0+", default_factory=list)


class AddPartitionsToTxnTransaction(Message):
    transactional_id: str = string("4+", default="")
    producer_id: int = int64("4+", default=0)
    producer_epoch: int = int16("4+", default=0)
    verify_only: bool = boolean("4+", default=False)
    topics: list[AddPartitionsToTxnTopic] = array(AddPartitionsToTxnTopic, "4+", default_factory=list)


class AddPartitionsToTxnRequest(Message, api_key=24, versions="0-5", flexible="3+"):
    transactions: list[AddPartitionsToTxnTransaction] = array(AddPartitionsToTxnTransaction, "4+", default_factory=list)
    v3_and_below_transactional_id: str = string("0-3", default="")
    v3_and_below_producer_id: int = int64("0-3", default=0)
    v3_and_below_producer_epoch: int = int16("0-3", default=0)
    v3_and_below_topics: list[AddPartitionsToTxnTopic] = array(AddPartitionsToTxnTopic, "0-3", default_factory=list)


class AddPartitionsToTxnPartitionResult(Message):
    partition_index: int = int32("0+", default=0)
    partition_error_code: int = int16("0+", default=0)


class AddPartitionsToTxnTopicResult(Message):
    name: str = string("0+", default="")
    results_by_partition: list[AddPartitionsToTxnPartitionResult] = array(
        AddPartitionsToTxnPartitionResult, "0+", default_factory=list
    )


class AddPartitionsToTxnResult(Message):
    transactional_id: str = string("4+", default="")
    topic_results: list[AddPartitionsToTxnTopicResult] = array(
        AddPartitionsToTxnTopicResult, "4+", default_factory=list
    )


class AddPartitionsToTxnResponse(Message, api_key=24, versions="0-5", flexible="3+"):
    throttle_time_ms: int = int32("0+", default=0)
    error_code: int = int16("4+", default=0)
    results_by_transaction: list[AddPartitionsToTxnResult] = array(AddPartitionsToTxnResult, "4+", default_factory=list)
    results_by_topic_v3_and_below: list[AddPartitionsToTxnTopicResult] = array(
        AddPartitionsToTxnTopicResult, "0-3", default_factory=list
    )
