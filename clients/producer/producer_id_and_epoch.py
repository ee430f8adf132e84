"""Who a producer is to brokers: the id that a coordinator gave it, and the epoch that fences its predecessors."""

from typing import Final, NamedTuple

from oncelog.protocol.records.record_batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID

LAST_EPOCH: Final = 32_767
"""Epochs are 16-bit; after the last, an idempotent producer asks for a new id."""


class ProducerIdAndEpoch(NamedTuple):
    """Both together; equal epochs of different ids mean nothing."""

    producer_id: int
    epoch: int

    @property
    def is_valid(self) -> bool:
        return self.producer_id != NO_PRODUCER_ID


NO_PRODUCER: Final = ProducerIdAndEpoch(NO_PRODUCER_ID, NO_PRODUCER_EPOCH)
