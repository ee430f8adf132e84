"""EndTxn (API key 26): versions 0-5, flexible from 3.

A producer commits or aborts its transaction.

1: throttling moves to the client. 2: PRODUCER_FENCED may be returned. 4: TRANSACTION_ABORTABLE may be returned.
5: every transaction ends with a new epoch, which the response carries with the producer id (KIP-890 part 2).
"""

from oncelog.protocol.schema import Message, boolean, int16, int32, int64, string


class EndTxnRequest(Message, api_key=26, versions="0-5", flexible="3+"):
    transactional_id: str = string("0+", default="")
    producer_id: int = int64("0+", default=0)
    producer_epoch: int = int16("0+", default=0)
    committed: bool = boolean("0+", default=False)


class EndTxnResponse(Message, api_key=26, versions="0-5", flexible="3+"):
    throttle_time_ms: int = int32("0+", default=0)
    error_code: int = int16("0+", default=0)
    producer_id: int = int64("5+", default=-1)
    producer_epoch: int = int16("5+", default=-1)
