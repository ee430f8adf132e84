"""``ProducerStateEntry``: one producer's epoch, last batches and open transaction in one log."""

from typing import Final, NamedTuple

from oncelog.broker.storage.verification_state import FIRST_STRICT_VERSION, MAX_EPOCH
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.records.record_batch import (
    NO_PRODUCER_EPOCH,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    BatchHeader,
    increment_sequence,
)

BATCHES_RETAINED: Final = 5
"""An idempotent producer has at most five requests in flight, so any of the last five batches may be a retry."""
_TRANSACTIONAL: Final = 0x10


class Decision(NamedTuple):
    """The record of the transaction log that decided the end of a transaction; a later one is greater."""

    coordinator_epoch: int
    """Of the coordinator that sent the marker."""
    offset: int
    """Negative if it is not known."""


NO_DECISION: Final = Decision(-1, -1)


class BatchMetadata(NamedTuple):
    """One of a producer's last batches."""

    base_sequence: int
    last_sequence: int
    first_offset: int
    last_offset: int
    timestamp: int

    @classmethod
    def ending(cls, last_sequence: int, last_offset: int, offset_delta: int, timestamp: int) -> "BatchMetadata":
        """Return the batch that a snapshot entry describes."""
        base = NO_SEQUENCE if last_sequence == NO_SEQUENCE else increment_sequence(last_sequence, -offset_delta)
        return cls(base, last_sequence, last_offset - offset_delta, last_offset, timestamp)


class ProducerStateEntry:
    """One producer's epoch, last batches, and open transaction on this partition."""

    __slots__ = (
        "abort_offset",
        "aborted_epoch",
        "aborted_ms",
        "batches",
        "coordinator_epoch",
        "decision",
        "last_active_ms",
        "last_timestamp",
        "producer_epoch",
        "producer_id",
        "txn_first_offset",
        "unknown_until_ms",
    )

    def __init__(self, producer_id: int, producer_epoch: int = NO_PRODUCER_EPOCH, *, unknown_until_ms: int = 0) -> None:
        self.unknown_until_ms = unknown_until_ms
        """When the log had last forgotten a producer before it knew this one, which may have been the same one."""
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.abort_offset = -1
        """Of the last marker that aborted; -1 if none is known. Not persisted."""
        self.aborted_epoch = -1
        """Of that marker. From a snapshot it is the producer's last epoch."""
        self.aborted_ms = 0
        """When this broker wrote that marker as the leader, by the loop's clock; 0 if it did not. Not persisted."""
        self.coordinator_epoch = -1
        self.decision = NO_DECISION
        """The latest that this broker wrote the marker of; NO_DECISION if it wrote none. Not persisted."""
        self.last_timestamp = NO_TIMESTAMP
        """Of the last batch or marker, by its writer's clock."""
        self.last_active_ms = 0
        """When this broker last saw the producer; not persisted."""
        self.txn_first_offset: int | None = None
        """Where the open transaction began; None when there is none."""
        self.batches: list[BatchMetadata] = []
        """Of the current epoch, oldest first; at most ``BATCHES_RETAINED``."""

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    @property
    def last_data_offset(self) -> int:
        return self.batches[-1].last_offset if self.batches else -1

    def find_duplicate(self, header: BatchHeader) -> BatchMetadata | None:
        """Return the batch that was appended before with exactly these sequences in this epoch.

        A batch of a transaction that has ended is none: a producer ends a transaction when it has the outcome of every
        batch, or has given it up. In the second case it may use the numbers again, for other records.
        """
        if header.producer_epoch != self.producer_epoch:
            return None
        base_sequence = header.base_sequence
        for batch in self.batches:
            if batch.base_sequence == base_sequence and batch.last_sequence == header.last_sequence:
                return None if header.attributes & _TRANSACTIONAL and self._has_ended(batch) else batch
        return None

    def _has_ended(self, batch: BatchMetadata) -> bool:
        """Return whether a batch does not belong to the open transaction."""
        return self.txn_first_offset is None or batch.first_offset < self.txn_first_offset

    def check_sequence(self, header: BatchHeader) -> ErrorCode | None:
        """Return why a client's batch, whose epoch is not older, does not follow the last one; None if it does."""
        base_sequence = header.base_sequence
        if header.producer_epoch != self.producer_epoch:
            # A new epoch begins at 0, unless nothing is known of the old one.
            if base_sequence == 0 or self.producer_epoch == NO_PRODUCER_EPOCH:
                return None
        elif base_sequence == increment_sequence(self.last_sequence, 1):
            return None
        return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER

    def accepts_marker(self, marker_epoch: int, transaction_version: int) -> bool:
        """Return whether a marker of this epoch can be meant for the producer's present transaction (KIP-1228).

        Up to version 1 a marker has the epoch of its transaction, or a newer one that fences. In version 2 it always
        has a newer one, so a marker with the present epoch is the retry of an earlier transaction's marker: it is
        harmless if no transaction is open (KAFKA-19999) and must not end the one that is. An open transaction of the
        last epoch is ended by its own epoch: there is no newer one.
        """
        if transaction_version < FIRST_STRICT_VERSION or marker_epoch != self.producer_epoch:
            return marker_epoch >= self.producer_epoch
        return self.txn_first_offset is None or marker_epoch == MAX_EPOCH

    def add_batch(self, header: BatchHeader, first_offset: int) -> bool:
        """Remember an appended data batch. Return whether a transaction begins with it."""
        batches = self.batches
        if self.producer_epoch != header.producer_epoch:
            self.producer_epoch = header.producer_epoch
            batches.clear()
        delta = header.last_offset_delta
        base_sequence = header.base_sequence
        last_sequence = base_sequence if base_sequence < 0 else base_sequence + delta & 0x7FFFFFFF
        timestamp = header.max_timestamp
        batches.append(BatchMetadata(base_sequence, last_sequence, first_offset, first_offset + delta, timestamp))
        if len(batches) > BATCHES_RETAINED:
            del batches[0]
        self.last_timestamp = timestamp
        if self.txn_first_offset is None and header.attributes & _TRANSACTIONAL:
            self.txn_first_offset = first_offset
            return True
        return False

    def end_transaction(self, producer_epoch: int, coordinator_epoch: int, timestamp: int) -> None:
        """Remember an appended marker."""
        if self.producer_epoch != producer_epoch:
            self.producer_epoch = producer_epoch
            self.batches.clear()
        self.coordinator_epoch = coordinator_epoch
        self.last_timestamp = timestamp
        self.txn_first_offset = None
