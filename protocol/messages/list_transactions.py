"""ListTransactions (API key 66): versions 0-2, flexible from 0.

The transactions that a broker coordinates, filtered by state and producer id (KIP-664).

1: filter by age (KIP-994). 2: filter by a pattern of transactional ids (KIP-1152); INVALID_REGULAR_EXPRESSION may be
returned.
"""

from oncelog.protocol.schema import Message, array, array_of, int16, int32, int64, string


class ListTransactionsRequest(Message, api_key=66, versions="0-2", flexible="0+"):
    state_filters: list[str] = array_of(string, "0+", default_factory=list)
    producer_id_filters: list[int] = array_of(int64, "0+", default_factory=list)
    duration_filter: int = int64("1+", default=-1)
    transactional_id_pattern: str | None = string("2+", default=None, nullable="2+")


class TransactionState(Message):
    transactional_id: str = string("0+", default="")
    producer_id: int = int64("0+", default=0)
    transaction_state: str = string("0+", default="")


class ListTransactionsResponse(Message, api_key=66, versions="0-2", flexible="0+"):
    throttle_time_ms: int = int32("0+", default=0)
    error_code: int = int16("0+", default=0)
    unknown_state_filters: list[str] = array_of(string, "0+", default_factory=list)
    transaction_states: list[TransactionState] = array(TransactionState, "0+", default_factory=list)
