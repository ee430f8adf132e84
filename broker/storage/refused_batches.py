"""``RefusedBatches``: the batches in sequence that a log could not append, because its disk was full, say.

Their producers retry them. Until then the batches that were in flight behind a refused one must not be appended before
it; they are refused with the same retriable error. OUT_OF_ORDER_SEQUENCE_NUMBER would be true as well, but a producer
may take it for a loss of records and begin anew with batches that have been appended.
"""

from collections import OrderedDict
from collections.abc import Callable
from typing import Final, NamedTuple

from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.records.record_batch import BatchHeader

_MOST_REFUSED: Final = 1000
_RETRY_MS: Final = 120_000
"""How long a producer may retry a batch by default (``delivery.timeout.ms``)."""


class _Refusal(NamedTuple):
    """The first batch of a producer that was refused."""

    producer_epoch: int
    base_sequence: int
    at_ms: int
    """When a batch of the producer was refused last."""


class RefusedBatches:
    """The refused batches of one log that were not retried yet: the first one of each of the last 1,000 producers.

    When a refusal is dropped to keep that bound, any producer without one may have been refused: its batches count as
    refused from sequence 0 on, for as long as the log would remember the producer (``producer_expiration_ms``).
    """

    __slots__ = ("_dropped_ms", "_wall_clock", "by_producer")

    def __init__(self, wall_clock: Callable[[], int]) -> None:
        self._wall_clock = wall_clock
        self._dropped_ms: int | None = None
        """When the latest refusal that was dropped was made."""
        self.by_producer: OrderedDict[int, _Refusal] = OrderedDict()
        """By producer id; the latest refused last."""

    @property
    def has_dropped(self) -> bool:
        """Whether a refusal was dropped."""
        return self._dropped_ms is not None

    def refuse(self, header: BatchHeader, producer_expiration_ms: int) -> None:
        """Note a batch that was not appended, although it was in sequence or has not been checked.

        An older epoch of a producer does not replace a newer one.
        """
        if header.base_sequence < 0:
            return
        first_sequence = header.base_sequence
        before = self.by_producer.get(header.producer_id)
        if before is not None and before.producer_epoch > header.producer_epoch:
            return
        if before is not None and before.producer_epoch == header.producer_epoch:
            first_sequence = min(first_sequence, before.base_sequence)
        elif self._dropped_before_ms(header, producer_expiration_ms) is not None:
            first_sequence = 0
        self.by_producer[header.producer_id] = _Refusal(header.producer_epoch, first_sequence, self._wall_clock())
        self.by_producer.move_to_end(header.producer_id)
        if len(self.by_producer) > _MOST_REFUSED:
            _, dropped = self.by_producer.popitem(last=False)
            self._dropped_ms = dropped.at_ms

    def error_behind(self, header: BatchHeader, producer_expiration_ms: int) -> ErrorCode | None:
        """Return why a batch must not be appended before one of its producer that was refused; None if there is none.

        KAFKA_STORAGE_ERROR while the refused batch may still be retried, then OUT_OF_ORDER_SEQUENCE_NUMBER.
        """
        refusal = self.by_producer.get(header.producer_id)
        if refusal is not None and refusal.producer_epoch == header.producer_epoch:
            refused_ms = refusal.at_ms if refusal.base_sequence < header.base_sequence else None
        else:
            refused_ms = self._dropped_before_ms(header, producer_expiration_ms)
        if refused_ms is None:
            return None
        may_be_retried = self._wall_clock() - refused_ms < _RETRY_MS
        return ErrorCode.KAFKA_STORAGE_ERROR if may_be_retried else ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER

    def _dropped_before_ms(self, header: BatchHeader, producer_expiration_ms: int) -> int | None:
        """Return when a batch that precedes this one may have been refused, by a refusal that was dropped."""
        dropped_ms = self._dropped_ms
        if dropped_ms is None or header.base_sequence <= 0:
            return None
        return dropped_ms if self._wall_clock() - dropped_ms < producer_expiration_ms else None

    def forget(self, header: BatchHeader) -> None:
        """Forget the refused batch of a producer, one of whose batches was appended; not one of a newer epoch."""
        refusal = self.by_producer.get(header.producer_id)
        if refusal is not None and refusal.producer_epoch <= header.producer_epoch:
            del self.by_producer[header.producer_id]

    def clear(self) -> None:
        """Forget all, the dropped ones included."""
        self.by_producer.clear()
        self._dropped_ms = None
