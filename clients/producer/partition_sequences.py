"""The sequences of one partition: the next one, those in flight, and the last one known to be written. Pure.

Brokers accept a batch of an idempotent producer only if its base sequence follows the last one of the same producer id
and epoch, and recognise a retry by its sequences. So a batch's sequences stay while it may be written, and numbering
begins anew, at 0, only under another id or epoch, and only once nothing of the old numbering is in flight.
"""

from typing import Final

from oncelog.clients.producer.producer_batch import ProducerBatch
from oncelog.clients.producer.producer_id_and_epoch import NO_PRODUCER, ProducerIdAndEpoch
from oncelog.clients.producer.record_metadata import NO_OFFSET
from oncelog.protocol.records.record_batch import NO_SEQUENCE, increment_sequence

_HALF: Final = 2**30


class PartitionSequences:
    """The numbering of one partition under one producer id and epoch."""

    __slots__ = (
        "in_flight",
        "last_acked_offset",
        "last_acked_sequence",
        "must_restart",
        "next_sequence",
        "producer",
        "unresolved",
    )

    def __init__(self) -> None:
        self.producer = NO_PRODUCER
        self.next_sequence = 0
        """The sequence of the next batch that has none yet."""
        self.last_acked_sequence = NO_SEQUENCE
        self.last_acked_offset = NO_OFFSET
        """Distinguishes loss from retention: a broker may have forgotten batches below the start of its log."""
        self.in_flight: list[ProducerBatch] = []
        """Batches with a sequence that are not done, sent or waiting for a retry, in the order of their sequences."""
        self.unresolved: int | None = None
        """The sequence after a batch that was given up and may be written; None if there is none."""
        self.must_restart = False
        """Whether an error has shown that the numbering cannot go on."""

    def restart(self, producer: ProducerIdAndEpoch) -> None:
        """Begin again with sequence 0, under ``producer``."""
        assert not self.in_flight
        self.producer = producer
        self.next_sequence = 0
        self.last_acked_sequence = NO_SEQUENCE
        self.unresolved = None
        self.must_restart = False

    def assign(self, batch: ProducerBatch, *, is_transactional: bool) -> None:
        """Set the sequence of a batch that is sent for the first time."""
        batch.assign(self.producer, self.next_sequence, is_transactional=is_transactional)
        self.next_sequence = batch.next_sequence
        self.in_flight.append(batch)

    def replace(self, batch: ProducerBatch, parts: list[ProducerBatch]) -> None:
        """Put the parts of a batch in its place."""
        at = self.in_flight.index(batch)
        self.in_flight[at : at + 1] = parts

    def remove(self, batch: ProducerBatch) -> None:
        """Forget a batch that is done."""
        if batch in self.in_flight:
            self.in_flight.remove(batch)

    def acknowledge(self, batch: ProducerBatch, base_offset: int) -> None:
        """Record that a batch is written, maybe one that was given up. ``base_offset`` is -1 if it is not known."""
        last = increment_sequence(batch.base_sequence, batch.record_count - 1)
        if batch.producer == self.producer and _is_after(last, self.last_acked_sequence):
            self.last_acked_sequence = last
        if base_offset != NO_OFFSET:
            self.last_acked_offset = max(self.last_acked_offset, base_offset + batch.record_count - 1)

    def is_next(self, sequence: int) -> bool:
        """Return whether ``sequence`` follows the last one that is known to be written."""
        return sequence == increment_sequence(self.last_acked_sequence, 1)

    def give_up(self, batch: ProducerBatch) -> None:
        """Give up a batch that was sent: no other may follow it until it is known whether it is written."""
        if batch.producer == self.producer and (
            self.unresolved is None or _is_after(batch.next_sequence, self.unresolved)
        ):
            self.unresolved = batch.next_sequence

    @property
    def is_quiet(self) -> bool:
        """Whether no batch waits for a response."""
        return not any(batch.is_on_wire for batch in self.in_flight)

    def release(self) -> list[ProducerBatch]:
        """End the numbering: make batches that are not written new ones, and return those that may be written."""
        assert self.is_quiet
        doubtful = [batch for batch in self.in_flight if batch.maybe_written]
        for batch in self.in_flight:
            if not batch.maybe_written:
                batch.forget_sequence()
        self.in_flight = []
        return doubtful


def _is_after(sequence: int, other: int) -> bool:
    """Return whether ``sequence`` comes later, given that sequences wrap to 0."""
    return other == NO_SEQUENCE or 0 < sequence - other < _HALF or sequence - other < -_HALF
