"""InitProducerId (API key 22): versions 0-6, flexible from 2.

Gives out a producer id and epoch, for idempotence alone or for a transactional id, which it fences.

1: throttling moves to the client. 3: a producer may name its id and epoch, to bump the epoch after an error (KIP-360).
4: PRODUCER_FENCED may be returned (KIP-588). 5: TRANSACTION_ABORTABLE may be returned.
6: two-phase commit: transactions without a time-out, and a prepared one may be kept (KIP-939).
"""

from oncelog.protocol.schema import Message, boolean, int16, int32, int64, string


class InitProducerIdRequest(Message, api_key=22, versions="0-6", flexible="2+"):
    transactional_id: str | None = string("0+", default="", nullable="0+")
    transaction_timeout_ms: int = int32("0+", default=0)
    producer_id: int = int64("3+", default=-1)
    producer_epoch: int = int16("3+", default=-1)
    enable2_pc: bool = boolean("6+", default=False)
    keep_prepared_txn: bool = boolean("6+", default=False)


class InitProducerIdResponse(Message, api_key=22, versions="0-6", flexible="2+"):
    throttle_time_ms: int = int32("0+", default=0)
    error_code: int = int16("0+", default=0)
    producer_id: int = int64("0+", default=-1)
    producer_epoch: int = int16("0+", default=0)
    ongoing_txn_producer_id: int = int64("6+", default=-1)
    ongoing_txn_producer_epoch: int = int16("6+", default=-1)
