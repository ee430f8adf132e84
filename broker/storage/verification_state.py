"""``VerificationStateEntry``: a producer that is about to begin a transaction on a partition (KIP-890).

Before the first batch of a transaction is appended, the transaction's coordinator verifies, or adds, the partition.
``ProducerStateManager.start_verification`` makes an entry before that request is sent, and ``check_verified`` compares
it after the response, in the same step as the append. The entry is a *guard*: a batch whose guard is not the present
one is refused, because the transaction that the coordinator verified may have ended in between. An end-transaction
marker removes the entry, and so do a transactional append, a verification of a newer epoch and the loss of leadership.

A verification that fails leaves its entry behind, with the sequences of the batches that were refused: a later batch
of the producer must not be appended before them. A batch that is challenged for its connection, or that belongs to no
transaction, withdraws its own: it may be one that its client has given up. (Kafka: VerificationStateEntry.)
"""

import math
from collections.abc import Callable, Iterator
from typing import Final

from oncelog.broker.storage.awaited_batches import Place
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.records.record_batch import BatchHeader

FIRST_STRICT_VERSION: Final = 2
"""The first transaction protocol in which every transaction has an epoch of its own."""
MAX_EPOCH: Final = 32_767
_MOST_VERIFICATIONS: Final = 10_000
_MOST_SEQUENCES: Final = 64
"""Beyond it a batch that is withdrawn still holds back the others, as its sequence may be one that was not kept."""


class VerificationStateEntry:
    """The verification of one producer on one partition."""

    __slots__ = ("_batches", "adds_partitions", "lowest_sequence", "producer_epoch", "started_ms")

    def __init__(self, producer_epoch: int, base_sequence: int, *, adds_partitions: bool, started_ms: int) -> None:
        self.producer_epoch = producer_epoch
        self.lowest_sequence: float = base_sequence
        """Of the batches that were to be verified and are not withdrawn; infinite if there are none."""
        self._batches = {base_sequence: 1}
        """How many batches, by base sequence."""
        self.adds_partitions = adds_partitions
        """Whether this is a transaction of version 2, which adds its partitions by writing to them."""
        self.started_ms = started_ms

    def note_sequence(self, base_sequence: int) -> None:
        """Note another batch of this epoch that is to be verified."""
        if base_sequence < self.lowest_sequence:
            self.lowest_sequence = base_sequence
        if base_sequence in self._batches or len(self._batches) < _MOST_SEQUENCES:
            self._batches[base_sequence] = self._batches.get(base_sequence, 0) + 1

    def withdraw(self, base_sequence: int) -> None:
        """Let a batch hold back no others; one with the same sequence still does if it was verified, too."""
        if base_sequence not in self._batches or len(self._batches) == _MOST_SEQUENCES:
            return
        self._batches[base_sequence] -= 1
        if not self._batches[base_sequence]:
            del self._batches[base_sequence]
            self.lowest_sequence = min(self._batches, default=math.inf)

    def check_sequence(self, header: BatchHeader, *, follows_batches: bool) -> ErrorCode | None:
        """Return why a client's batch may not be the first of its transaction; None if it may.

        A transaction of version 2 has an epoch of its own, so it begins at sequence 0. A producer of version 1 may
        begin at any sequence on a partition that has no batch of it (``follows_batches`` is false).
        """
        if self.adds_partitions and header.base_sequence != 0 and not follows_batches:
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        if header.producer_epoch == self.producer_epoch and header.base_sequence > self.lowest_sequence:
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        return None

    def outlives_marker(self, marker_epoch: int, transaction_version: int) -> bool:
        """Return whether a marker belongs to an earlier transaction than the one that is about to begin.

        A marker of version 2 has the epoch after its own transaction's, which is the next transaction's. A marker of
        version 1 with this epoch may end this very transaction, and so may any marker with the last epoch.
        """
        if marker_epoch == self.producer_epoch:
            return transaction_version >= FIRST_STRICT_VERSION and marker_epoch != MAX_EPOCH
        return marker_epoch < self.producer_epoch


class PendingVerifications:
    """The verifications on one partition, by producer id. The oldest is dropped when there are 10,000."""

    __slots__ = ("_wall_clock", "entries")

    def __init__(self, wall_clock: Callable[[], int]) -> None:
        self._wall_clock = wall_clock
        self.entries: dict[int, VerificationStateEntry] = {}
        """By producer id, in the order in which they were started."""

    def first_batches(self) -> Iterator[tuple[int, Place]]:
        """Yield the first batch that is to be verified of each producer, by producer id."""
        for producer_id, entry in self.entries.items():
            if entry.lowest_sequence < math.inf:
                yield producer_id, Place(entry.producer_epoch, int(entry.lowest_sequence))

    def start(
        self, producer_id: int, producer_epoch: int, base_sequence: int, *, adds_partitions: bool
    ) -> VerificationStateEntry:
        """Return the producer's entry. Batches of one epoch share it; a newer epoch replaces it."""
        entries = self.entries
        entry = entries.get(producer_id)
        if entry is None or producer_epoch > entry.producer_epoch:
            entries.pop(producer_id, None)
            if len(entries) >= _MOST_VERIFICATIONS:
                del entries[next(iter(entries))]
            entries[producer_id] = entry = VerificationStateEntry(
                producer_epoch, base_sequence, adds_partitions=adds_partitions, started_ms=self._wall_clock()
            )
        elif producer_epoch == entry.producer_epoch:
            entry.note_sequence(base_sequence)
        return entry

    def check_sequence(self, header: BatchHeader, *, follows_batches: bool) -> ErrorCode | None:
        """Return why a batch may not be appended before batches that are being verified, or were refused; or None."""
        entry = self.entries.get(header.producer_id)
        return None if entry is None else entry.check_sequence(header, follows_batches=follows_batches)

    def check_guard(self, producer_id: int, producer_epoch: int, guard: VerificationStateEntry | None) -> ErrorCode:
        """Return NONE if the guard is the producer's present entry, else why the batch is refused."""
        present = self.entries.get(producer_id)
        if present is None or present is not guard:
            is_fenced = present is not None and producer_epoch < present.producer_epoch
            return ErrorCode.INVALID_PRODUCER_EPOCH if is_fenced else ErrorCode.INVALID_TXN_STATE
        return ErrorCode.NONE

    def end(self, producer_id: int, marker_epoch: int, transaction_version: int) -> None:
        """Remove the entry of a producer whose transaction a marker has ended."""
        entry = self.entries.get(producer_id)
        if entry is not None and not entry.outlives_marker(marker_epoch, transaction_version):
            del self.entries[producer_id]

    def expire(self, started_before_ms: int) -> None:
        """Remove the entries that were started at or before a time of the wall clock."""
        for producer_id in [key for key, entry in self.entries.items() if entry.started_ms <= started_before_ms]:
            del self.entries[producer_id]
