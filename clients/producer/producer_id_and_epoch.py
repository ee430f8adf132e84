"""The identity of a producer to brokers: an id from a coordinator, and the epoch that fences its predecessors."""

from typing import Final, NamedTuple

from oncelog.protocol.records.record_batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID

LAST_EPOCH: Final = 32_767
"""The largest epoch (16 bits), after which an idempotent producer requests a new id."""


class ProducerIdAndEpoch(NamedTuple):
    """A producer id with its epoch; epochs of different ids cannot be compared."""

    producer_id: int
    epoch: int

    @property
    def is_valid(self) -> bool:
        return self.producer_id != NO_PRODUCER_ID


NO_PRODUCER: Final = ProducerIdAndEpoch(NO_PRODUCER_ID, NO_PRODUCER_EPOCH)
