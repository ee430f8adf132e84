"""DescribeTransactions (API key 65): versions 0, flexible from 0.

State and partitions of transactions, by transactional id (KIP-664).
"""

from oncelog.protocol.schema import Message, array, array_of, int16, int32, int64, string


class DescribeTransactionsRequest(Message, api_key=65, versions="0", flexible="0+"):
    transactional_ids: list[str] = array_of(string, "0+", default_factory=list)


class TopicData(Message):
    topic: str = string("0+", default="")
    partitions: list[int] = array_of(int32, "0+", default_factory=list)


class TransactionState(Message):
    error_code: int = int16("0+", default=0)
    transactional_id: str = string("0+", default="")
    transaction_state: str = string("0+", default="")
    transaction_timeout_ms: int = int32("0+", default=0)
    transaction_start_time_ms: int = int64("0+", default=0)
    producer_id: int = int64("0+", default=0)
    producer_epoch: int = int16("0+", default=0)
    topics: list[TopicData] = array(TopicData, "0+", default_factory=list)


class DescribeTransactionsResponse(Message, api_key=65, versions="0", flexible="0+"):
    throttle_time_ms: int = int32("0+", default=0)
    transaction_states: list[TransactionState] = array(TransactionState, "0+", default_factory=list)
