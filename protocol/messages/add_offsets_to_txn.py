"""AddOffsetsToTxn (API key 25): versions 0-4, flexible from 3.

A producer tells its transaction coordinator that offsets of a consumer group will be part of the transaction.

1: throttling moves to the client. 2: a fenced producer may get PRODUCER_FENCED instead of INVALID_PRODUCER_EPOCH.
4: TRANSACTION_ABORTABLE may be returned (KIP-890).
"""

from oncelog.protocol.schema import Message, int16, int32, int64, string


class AddOffsetsToTxnRequest(Message, api_key=25, versions="0-4", flexible="3+"):
    transactional_id: str = string("0+", default="")
    producer_id: int = int64("0+", default=0)
    producer_epoch: int = int16("0+", default=0)
    group_id: str = string("0+", default="")


class AddOffsetsToTxnResponse(Message, api_key=25, versions="0-4", flexible="3+"):
    throttle_time_ms: int = int32("0+", default=0)
    error_code: int = int16("0+", default=0)
