"""The numbering of all partitions of one producer, and its id and epoch: which batch may be sent, and when to restart.

Pure. A batch may be sent if the order of its partition allows it: a first attempt while fewer than five are in flight
and none is unresolved, a retry only as the oldest in flight, so that retries go one at a time. Without idempotence
nothing keeps several batches in order, so at most one is in flight; with idempotence that holds until the first is
acknowledged, because a broker without state of a producer accepts any sequence.

When an error shows that the numbering of a partition cannot continue, it ends once none of its batches waits for a
response. Batches that are known not to be in the log then become new ones; those that may be in it are given up,
because only their sequences keep them from being written twice. An idempotent producer bumps its epoch for that
(KIP-360).
"""

from oncelog.clients.producer.partition_sequences import PartitionSequences
from oncelog.clients.producer.producer_batch import ProducerBatch
from oncelog.clients.producer.producer_config import MOST_IN_FLIGHT, ProducerConfig
from oncelog.clients.producer.producer_id_and_epoch import LAST_EPOCH, NO_PRODUCER
from oncelog.protocol.errors import RETRIABLE, ErrorCode
from oncelog.protocol.records.record_batch import NO_SEQUENCE
from oncelog.protocol.topic_partition import TopicPartition

_NOT_KNOWN = -1


class ProducerSequences:
    """The numbering of the batches of one producer."""

    def __init__(self, config: ProducerConfig) -> None:
        self.producer = NO_PRODUCER
        self._is_idempotent = config.enable_idempotence
        self._is_transactional = config.transactional_id is not None
        self._most_in_flight = min(config.max_in_flight, MOST_IN_FLIGHT)
        self._partitions: dict[TopicPartition, PartitionSequences] = {}
        self._unresolved: set[TopicPartition] = set()
        self._restarting: set[TopicPartition] = set()

    def of(self, topic_partition: TopicPartition) -> PartitionSequences:
        """Return the numbering of a partition."""
        found = self._partitions.get(topic_partition)
        if found is None:
            found = self._partitions[topic_partition] = PartitionSequences()
        return found

    def clear(self) -> None:
        """Restart every partition: the producer has a new epoch, and nothing in flight."""
        self._partitions.clear()
        self._unresolved.clear()
        self._restarting.clear()

    def may_send(self, batch: ProducerBatch) -> bool:
        """Return whether the first batch in a partition's queue may be sent now."""
        sequences = self.of(batch.topic_partition)
        if not self._is_idempotent:
            return sequences.is_quiet
        if not self.producer.is_valid:
            return False
        if batch.has_sequence:
            return batch is sequences.in_flight[0]
        if sequences.unresolved is not None or sequences.must_restart:
            return False
        if not sequences.in_flight:
            return True
        if sequences.last_acked_sequence == NO_SEQUENCE and not self._is_transactional:
            return False  # A broker without state of the producer would accept any sequence.
        return sequences.producer == self.producer and len(sequences.in_flight) < self._most_in_flight

    def sending(self, batch: ProducerBatch) -> None:
        """Note that a batch is being sent: give it a sequence, unless it has one."""
        sequences = self.of(batch.topic_partition)
        if not self._is_idempotent:
            if batch not in sequences.in_flight:
                sequences.in_flight.append(batch)
        elif not batch.has_sequence:
            if sequences.producer != self.producer:
                sequences.restart(self.producer)
            sequences.assign(batch, is_transactional=self._is_transactional)

    def completed(self, batch: ProducerBatch, base_offset: int) -> None:
        """Record that a batch is written, maybe one that was given up."""
        sequences = self.of(batch.topic_partition)
        sequences.remove(batch)
        if batch.has_sequence:
            sequences.acknowledge(batch, base_offset)

    def can_retry(self, batch: ProducerBatch, error: ErrorCode, log_start_offset: int) -> bool:
        """Return whether a batch that was refused may be sent again; may have its partition restart."""
        sequences = self.of(batch.topic_partition)
        if error == ErrorCode.UNKNOWN_PRODUCER_ID:
            return self._can_retry_unknown(batch, sequences, log_start_offset)
        if error == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
            return self._can_retry_out_of_order(batch, sequences)
        return error in RETRIABLE

    def _can_retry_unknown(self, batch: ProducerBatch, sequences: PartitionSequences, log_start_offset: int) -> bool:
        """Decide a retry after the broker has forgotten the producer: by retention, which is harmless, or by a loss."""
        if log_start_offset == _NOT_KNOWN:
            return True  # The broker did not know where its log starts either; a retry will find out.
        if not self._is_transactional or sequences.last_acked_offset < log_start_offset:
            self.restart(batch)
            return True
        return False

    def _can_retry_out_of_order(self, batch: ProducerBatch, sequences: PartitionSequences) -> bool:
        """Decide a retry while an earlier batch is missing: one that is not written yet, or one that is lost."""
        if sequences.unresolved is None and not sequences.is_next(batch.base_sequence):
            return True
        if self._is_transactional:
            return False
        if sequences.unresolved is None or sequences.unresolved == batch.base_sequence:
            self.restart(batch)
        return True

    def remove(self, batch: ProducerBatch) -> None:
        """Forget a batch that is given up."""
        self.of(batch.topic_partition).remove(batch)

    def give_up(self, batch: ProducerBatch) -> None:
        """Give up a batch that was sent, and may be written."""
        if batch.has_sequence:
            self.of(batch.topic_partition).give_up(batch)
            self._unresolved.add(batch.topic_partition)

    def restart(self, batch: ProducerBatch) -> None:
        """Have the partition of a batch restart, because the numbering of the batch cannot continue."""
        sequences = self.of(batch.topic_partition)
        if batch.has_sequence and batch.producer == sequences.producer:
            sequences.must_restart = True
            self._restarting.add(batch.topic_partition)

    def settle(self) -> list[ProducerBatch]:
        """Restart partitions where that is due and safe; return the batches that have to be given up for it."""
        if not self._unresolved and not self._restarting:
            return []
        for topic_partition in sorted(self._unresolved):
            self._resolve(topic_partition)
        quiet = sorted(each for each in self._restarting if self.of(each).is_quiet)
        if not quiet:
            return []
        self._restarting.difference_update(quiet)
        if not self._is_transactional:
            self._bump_epoch()
        doubtful = []
        for topic_partition in quiet:
            sequences = self.of(topic_partition)
            doubtful += sequences.release()
            sequences.restart(self.producer)
        return doubtful

    def _resolve(self, topic_partition: TopicPartition) -> None:
        """Decide from the last acknowledgement, once nothing is in flight, whether every batch before is written."""
        sequences = self.of(topic_partition)
        if sequences.in_flight and not sequences.must_restart:
            return
        self._unresolved.discard(topic_partition)
        if sequences.is_next(sequences.next_sequence):
            sequences.unresolved = None
        else:
            sequences.must_restart = True
            self._restarting.add(topic_partition)

    def _bump_epoch(self) -> None:
        """Bump the epoch without a coordinator (it knows only transactional ids); drop the id after the last epoch."""
        if self.producer.is_valid:
            last = self.producer.epoch >= LAST_EPOCH
            self.producer = NO_PRODUCER if last else self.producer._replace(epoch=self.producer.epoch + 1)
