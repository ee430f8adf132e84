"""What a partition remembers of one producer, and what it allows that producer to append next."""

from typing import Final, NamedTuple

from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.records.record_batch import (
    NO_PRODUCER_EPOCH,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    BatchHeader,
    increment_sequence,
)

FIRST_STRICT_VERSION: Final = 2
"""The first transaction protocol in which every transaction has an epoch of its own."""
MAX_EPOCH: Final = 32_767

BATCHES_RETAINED: Final = 5
"""An idempotent producer has at most five requests in flight, so any of the last five batches may be a retry."""

_TRANSACTIONAL: Final = 0x10


class BatchMetadata(NamedTuple):
    """One of a producer's last batches."""

    base_sequence: int
    last_sequence: int
    first_offset: int
    last_offset: int
    timestamp: int

    @classmethod
    def ending(cls, last_sequence: int, last_offset: int, offset_delta: int, timestamp: int) -> "BatchMetadata":
        """From what a snapshot has."""
        base = NO_SEQUENCE if last_sequence == NO_SEQUENCE else increment_sequence(last_sequence, -offset_delta)
        return cls(base, last_sequence, last_offset - offset_delta, last_offset, timestamp)


class ProducerStateEntry:
    """One producer's epoch, last batches, and open transaction on this partition."""

    __slots__ = (
        "batches",
        "coordinator_epoch",
        "last_active_ms",
        "last_timestamp",
        "producer_epoch",
        "producer_id",
        "txn_first_offset",
    )

    def __init__(self, producer_id: int, producer_epoch: int = NO_PRODUCER_EPOCH) -> None:
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.coordinator_epoch = -1
        self.last_timestamp = NO_TIMESTAMP
        """Of the last batch or marker, as its writer says. Says little about when that was."""
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
        """The batch that was appended before with exactly these sequences in this epoch."""
        if header.producer_epoch != self.producer_epoch:
            return None
        base_sequence, last_sequence = header.base_sequence, header.last_sequence
        for batch in self.batches:
            if batch.base_sequence == base_sequence and batch.last_sequence == last_sequence:
                return batch
        return None

    def check_sequence(self, header: BatchHeader) -> ErrorCode | None:
        """Whether this batch of a client (whose epoch is not older) comes right after what came last."""
        base_sequence = header.base_sequence
        if header.producer_epoch != self.producer_epoch:
            # A new epoch begins at 0, unless nothing is known of the old one.
            if base_sequence == 0 or self.producer_epoch == NO_PRODUCER_EPOCH:
                return None
        elif base_sequence == increment_sequence(self.last_sequence, 1):
            return None
        return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER

    def accepts_marker(self, marker_epoch: int, transaction_version: int) -> bool:
        """Whether a marker of this epoch can be meant for the producer's present transaction (KIP-1228).

        Up to version 1 a marker has the epoch of its transaction, or a newer one that fences. In version 2 it has a
        newer one always, so a marker with the present epoch belongs to a transaction before this one: its coordinator
        sends it again, which is harmless if no transaction is open (KAFKA-19999) and must not end the one that is. With
        the last epoch that there is, an open transaction must be ended by its own epoch: there is no newer one.
        """
        if transaction_version < FIRST_STRICT_VERSION or marker_epoch != self.producer_epoch:
            return marker_epoch >= self.producer_epoch
        return self.txn_first_offset is None or marker_epoch == MAX_EPOCH

    def add_batch(self, header: BatchHeader, first_offset: int) -> bool:
        """Remember an appended data batch. True if a transaction begins with it."""
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
