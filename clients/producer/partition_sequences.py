"""The sequences of one partition: which comes next, which are under way, what is known to be written. Pure.

Brokers accept a batch of an idempotent producer only if its base sequence follows the last one of the same producer id
and epoch, and recognise a retry by its sequences. So a batch's sequences stay while it may be written, and numbering
begins anew, at 0, only under another id or epoch, and only once nothing of the old numbering is under way.
"""

from typing import Final

from oncelog.clients.producer.producer_batch import ProducerBatch
from oncelog.clients.producer.producer_id_and_epoch import NO_PRODUCER, ProducerIdAndEpoch
from oncelog.clients.producer.record_metadata import NO_OFFSET
from oncelog.protocol.records.record_batch import NO_SEQUENCE, increment_sequence

_HALF: Final = 2**30


class PartitionSequences:
    """One partition's numbering under one producer id and epoch."""

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
        """Of the next batch that has none yet."""
        self.last_acked_sequence = NO_SEQUENCE
        self.last_acked_offset = NO_OFFSET
        """Tells a loss from retention: what is below the log's start need not be known to a broker any more."""
        self.in_flight: list[ProducerBatch] = []
        """Batches with a sequence that are not done, on the wire or waiting to be sent again, by sequence."""
        self.unresolved: int | None = None
        """The sequence after a batch that was given up without knowing whether it is written; None if there is none."""
        self.must_restart = False
        """Whether an error has shown that the numbering cannot go on."""

    def restart(self, producer: ProducerIdAndEpoch) -> None:
        """Number from 0, under ``producer``."""
        assert not self.in_flight
        self.producer = producer
        self.next_sequence = 0
        self.last_acked_sequence = NO_SEQUENCE
        self.unresolved = None
        self.must_restart = False

    def assign(self, batch: ProducerBatch, *, is_transactional: bool) -> None:
        """Give a batch that is sent for the first time its sequence."""
        batch.assign(self.producer, self.next_sequence, is_transactional=is_transactional)
        self.next_sequence = batch.next_sequence
        self.in_flight.append(batch)

    def replace(self, batch: ProducerBatch, parts: list[ProducerBatch]) -> None:
        """Put the parts of a batch in its place."""
        at = self.in_flight.index(batch)
        self.in_flight[at : at + 1] = parts

    def remove(self, batch: ProducerBatch) -> None:
        """It is done."""
        if batch in self.in_flight:
            self.in_flight.remove(batch)

    def acknowledge(self, batch: ProducerBatch, base_offset: int) -> None:
        """It is written; also said of batches that were given up before. ``base_offset`` is -1 if it is not known."""
        last = increment_sequence(batch.base_sequence, batch.record_count - 1)
        if batch.producer == self.producer and _is_after(last, self.last_acked_sequence):
            self.last_acked_sequence = last
        if base_offset != NO_OFFSET:
            self.last_acked_offset = max(self.last_acked_offset, base_offset + batch.record_count - 1)

    def is_next(self, sequence: int) -> bool:
        """Whether ``sequence`` follows what is known to be written."""
        return sequence == increment_sequence(self.last_acked_sequence, 1)

    def give_up(self, batch: ProducerBatch) -> None:
        """A batch that was sent is given up: nothing may follow it until it is known whether it is written."""
        if batch.producer == self.producer and (
            self.unresolved is None or _is_after(batch.next_sequence, self.unresolved)
        ):
            self.unresolved = batch.next_sequence

    @property
    def is_quiet(self) -> bool:
        """Whether no batch waits for an answer."""
        return not any(batch.is_on_wire for batch in self.in_flight)

    def release(self) -> list[ProducerBatch]:
        """End the numbering: batches that cannot be written become new ones; those that may be, come back."""
        assert self.is_quiet
        doubtful = [batch for batch in self.in_flight if batch.maybe_written]
        for batch in self.in_flight:
            if not batch.maybe_written:
                batch.forget_sequence()
        self.in_flight = []
        return doubtful


def _is_after(sequence: int, other: int) -> bool:
    """Whether ``sequence`` comes later, given that sequences wrap to 0."""
    return other == NO_SEQUENCE or 0 < sequence - other < _HALF or sequence - other < -_HALF
