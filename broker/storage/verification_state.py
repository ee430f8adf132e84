"""``VerificationStateEntry``: a producer that is about to begin a transaction here, while its coordinator is asked.

It lives from the question to the append, and one thing hangs on its identity: whoever began with an entry and does not
find the same one after the answer must not append, because the transaction that the answer speaks of may have ended
meanwhile. So the entry is the *guard* of that time. A marker takes it away, and so do a transactional append, a
question of a newer epoch and the loss of leadership (``ProducerStateManager``).

A question that brought no decision leaves the entry behind, because it has kept the lowest sequence of those that were
refused: what the producer sent after that batch must not enter before it. (Kafka: VerificationStateEntry.)
"""

from oncelog.broker.storage.producer_state_entry import FIRST_STRICT_VERSION, MAX_EPOCH
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.records.record_batch import BatchHeader


class VerificationStateEntry:
    """One producer's, on one partition."""

    __slots__ = ("adds_partitions", "lowest_sequence", "producer_epoch", "started_ms")

    def __init__(self, producer_epoch: int, base_sequence: int, *, adds_partitions: bool, started_ms: int) -> None:
        self.producer_epoch = producer_epoch
        self.lowest_sequence = base_sequence
        self.adds_partitions = adds_partitions
        """Whether this is a transaction of version 2, which adds its partitions by writing to them."""
        self.started_ms = started_ms

    def saw(self, base_sequence: int) -> None:
        """Another batch of this epoch wants to begin."""
        if base_sequence < self.lowest_sequence:
            self.lowest_sequence = base_sequence

    def check_sequence(self, header: BatchHeader, *, follows_batches: bool) -> ErrorCode | None:
        """Whether a client's batch may be the first; ``follows_batches``: the partition knows some of its producer.

        Every transaction of version 2 has an epoch of its own, so it begins at 0. A producer of version 1 may begin
        anywhere where nothing is known of it.
        """
        if self.adds_partitions and header.base_sequence != 0 and not follows_batches:
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        if header.producer_epoch == self.producer_epoch and header.base_sequence > self.lowest_sequence:
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        return None

    def outlives_marker(self, marker_epoch: int, transaction_version: int) -> bool:
        """Whether a marker belongs to an earlier transaction than the one that is about to begin.

        Version 2 has its markers say the epoch after the transaction's own, which is the next transaction's. A marker
        of version 1 with this epoch may be meant for this very transaction, however its batches were sent; and so may
        any with the last epoch that there is.
        """
        if marker_epoch == self.producer_epoch:
            return transaction_version >= FIRST_STRICT_VERSION and marker_epoch != MAX_EPOCH
        return marker_epoch < self.producer_epoch
