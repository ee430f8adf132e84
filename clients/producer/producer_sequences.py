"""The numbering of all partitions of one producer, and its identity: which batch may leave, and when to begin anew.

Pure. A batch may leave if its partition's order allows it: a first attempt while fewer than five are under way and
nothing is in doubt, a retry only as the oldest of those under way, which makes retries go one at a time. Without
idempotence there is nothing that keeps several in order, so there is at most one; nor, with it, before the first is
acknowledged, because a broker without memory of a producer accepts any sequence from it.

When an error shows that a partition's numbering cannot go on, it ends once none of its batches waits for an answer.
Batches that are known not to be in the log then become new ones; those that may be in it are given up, because numbers
are all that keeps them from being written twice. An idempotent producer bumps its epoch for that (KIP-360).
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
    """The numbering of one producer's batches."""

    def __init__(self, config: ProducerConfig) -> None:
        self.producer = NO_PRODUCER
        self._is_idempotent = config.enable_idempotence
        self._is_transactional = config.transactional_id is not None
        self._most_in_flight = min(config.max_in_flight, MOST_IN_FLIGHT)
        self._partitions: dict[TopicPartition, PartitionSequences] = {}
        self._unresolved: set[TopicPartition] = set()
        self._restarting: set[TopicPartition] = set()

    def of(self, topic_partition: TopicPartition) -> PartitionSequences:
        """The numbering of a partition."""
        found = self._partitions.get(topic_partition)
        if found is None:
            found = self._partitions[topic_partition] = PartitionSequences()
        return found

    def clear(self) -> None:
        """The producer has a new epoch, and nothing under way: every partition begins anew."""
        self._partitions.clear()
        self._unresolved.clear()
        self._restarting.clear()

    def may_send(self, batch: ProducerBatch) -> bool:
        """Whether the first batch in a partition's queue may leave now."""
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
            return False  # A broker that does not know the producer takes whichever batch it likes first.
        return sequences.producer == self.producer and len(sequences.in_flight) < self._most_in_flight

    def sending(self, batch: ProducerBatch) -> None:
        """A batch leaves: it gets its sequence, unless it has one."""
        sequences = self.of(batch.topic_partition)
        if not self._is_idempotent:
            if batch not in sequences.in_flight:
                sequences.in_flight.append(batch)
        elif not batch.has_sequence:
            if sequences.producer != self.producer:
                sequences.restart(self.producer)
            sequences.assign(batch, is_transactional=self._is_transactional)

    def completed(self, batch: ProducerBatch, base_offset: int) -> None:
        """A batch is written; maybe one that was given up."""
        sequences = self.of(batch.topic_partition)
        sequences.remove(batch)
        if batch.has_sequence:
            sequences.acknowledge(batch, base_offset)

    def can_retry(self, batch: ProducerBatch, error: ErrorCode, log_start_offset: int) -> bool:
        """Whether a batch that was refused may be sent again; may order its partition's numbering to begin anew."""
        sequences = self.of(batch.topic_partition)
        if error == ErrorCode.UNKNOWN_PRODUCER_ID:
            return self._can_retry_unknown(batch, sequences, log_start_offset)
        if error == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
            return self._can_retry_out_of_order(batch, sequences)
        return error in RETRIABLE

    def _can_retry_unknown(self, batch: ProducerBatch, sequences: PartitionSequences, log_start_offset: int) -> bool:
        """The broker has forgotten the producer: by retention, which is harmless, or by losing data."""
        if log_start_offset == _NOT_KNOWN:
            return True  # It did not know where its log starts either; it will.
        if not self._is_transactional or sequences.last_acked_offset < log_start_offset:
            self.restart(batch)
            return True
        return False

    def _can_retry_out_of_order(self, batch: ProducerBatch, sequences: PartitionSequences) -> bool:
        """Some batch before it is missing: one that is not written yet, or one that is lost."""
        if sequences.unresolved is None and not sequences.is_next(batch.base_sequence):
            return True
        if self._is_transactional:
            return False
        if sequences.unresolved is None or sequences.unresolved == batch.base_sequence:
            self.restart(batch)
        return True

    def remove(self, batch: ProducerBatch) -> None:
        """A batch is given up."""
        self.of(batch.topic_partition).remove(batch)

    def doubt(self, batch: ProducerBatch) -> None:
        """A batch that was sent is given up, and nobody knows whether it is written."""
        if batch.has_sequence:
            self.of(batch.topic_partition).give_up(batch)
            self._unresolved.add(batch.topic_partition)

    def restart(self, batch: ProducerBatch) -> None:
        """The numbering that a batch is part of cannot go on."""
        sequences = self.of(batch.topic_partition)
        if batch.has_sequence and batch.producer == sequences.producer:
            sequences.must_restart = True
            self._restarting.add(batch.topic_partition)

    def settle(self) -> list[ProducerBatch]:
        """Begin anew where that is due and safe; return the batches that are given up for it."""
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
        """Once nothing is under way any more, the last acknowledgement tells whether all before it is written."""
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
        """Without a transactional id no coordinator knows the epoch; after the last one a new id is needed."""
        if self.producer.is_valid:
            last = self.producer.epoch >= LAST_EPOCH
            self.producer = NO_PRODUCER if last else self.producer._replace(epoch=self.producer.epoch + 1)
