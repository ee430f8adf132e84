"""Records that wait to be sent or acknowledged: a queue of batches for each partition, and their size. Pure.

``append`` is the hot path: it finds the partition's open batch and adds to it. A batch is ready to be sent when another
is open behind it, when it has waited for ``linger_ms``, or when everything has to be sent (a flush, the end of a
transaction, a full buffer, closing). Once one partition of a broker is ready, all batches for that broker are sent with
it, one for each partition and request, partitions in turn.

Records without key go to one partition of their topic until they have filled a batch there, then to another at random
(KIP-794 without the load statistics): batches fill sooner than if each record were dealt to the next partition.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from random import Random
from typing import Final

from oncelog.clients.cluster_metadata import ClusterMetadata
from oncelog.clients.errors import BufferFull, RecordTooLarge
from oncelog.clients.producer.future_record_metadata import FutureRecordMetadata
from oncelog.clients.producer.partitioner import partition_for_key
from oncelog.clients.producer.producer_batch import Headers, ProducerBatch
from oncelog.clients.producer.producer_config import Partitioner, ProducerConfig
from oncelog.clients.producer.producer_state import State
from oncelog.clients.producer.transaction_manager import TransactionManager
from oncelog.protocol.records.record_batch import HEADER_SIZE
from oncelog.protocol.topic_partition import TopicPartition

_NEVER: Final = float("inf")


class PartitionQueue:
    """The batches of one partition, in the order in which they have to be written."""

    __slots__ = ("batches", "open", "topic_partition")

    def __init__(self, topic_partition: TopicPartition) -> None:
        self.topic_partition = topic_partition
        self.batches: deque[ProducerBatch] = deque()
        self.open: ProducerBatch | None = None
        """The last batch, while records may be added to it."""


class TopicQueues:
    """The partitions of one topic."""

    __slots__ = ("available", "name", "queues", "sticky", "sticky_bytes")

    def __init__(self, name: str) -> None:
        self.name = name
        self.queues: list[PartitionQueue] = []
        self.available: list[PartitionQueue] = []
        """The queues of partitions that have a leader."""
        self.sticky: PartitionQueue | None = None
        """The queue that records without key go to now."""
        self.sticky_bytes = 0

    def queue_for(
        self, partitioner: Partitioner | None, key: bytes | None, value: bytes | None, partition: int | None
    ) -> PartitionQueue:
        """Return the queue for a record: of its partition, of its partitioner's choice, or of its key.

        Raises ``BufferFull`` for a partition that is not known yet, and ``ValueError`` for one that cannot exist.
        """
        count = len(self.queues)
        if partition is None:
            if partitioner is not None:
                partition = partitioner(self.name, key, value, count)
                if not isinstance(partition, int):
                    raise TypeError(f"the partitioner must return int, not {type(partition).__name__}")
                if not 0 <= partition < count:
                    raise ValueError(f"the partitioner chose partition {partition} of {self.name}, which has {count}")
            else:
                partition = partition_for_key(key or b"", count)
        if partition < 0:
            raise ValueError(f"partition {partition}")
        if partition >= count:
            raise BufferFull(f"partition {partition} of {self.name} is not known yet")
        return self.queues[partition]


@dataclass(slots=True)
class Readiness:
    """The queues that could be sent, and when to look again."""

    queues: dict[int, list[PartitionQueue]] = field(default_factory=dict)
    """All queues of each broker that something is ready for, by its id."""
    without_leader: set[str] = field(default_factory=set)
    """Topics with batches for partitions without a leader."""
    next_at: float = _NEVER
    """When the next batch becomes ready by time alone."""


class RecordAccumulator:
    """The queues of all partitions. Times are seconds of the loop's clock."""

    def __init__(
        self,
        config: ProducerConfig,
        manager: TransactionManager,
        *,
        rng: Random,
        now: Callable[[], float],
        on_batch: Callable[[], None],
        on_full_batch: Callable[[], None],
    ) -> None:
        self.topics: dict[str, TopicQueues] = {}
        self.incomplete: dict[ProducerBatch, None] = {}
        """Batches that are not done, the oldest first."""
        self.used_bytes = 0
        self.buffer_bytes = config.buffer_bytes
        self.is_closed = False
        self.flushes = 0
        """The number of ``flush`` calls that wait."""
        self._config = config
        self._manager = manager
        self._rng = rng
        self._now = now
        self._on_batch = on_batch
        """Called when a batch was begun."""
        self._on_full_batch = on_full_batch
        """Called when a batch was closed because it is full."""
        self._linger_seconds = config.linger_ms / 1000
        self._queues: dict[TopicPartition, PartitionQueue] = {}
        self._waiting: dict[TopicPartition, PartitionQueue] = {}
        """Queues that are not empty, the next one first."""

    @property
    def is_full(self) -> bool:
        """Whether records must wait for others to be acknowledged."""
        return self.used_bytes >= self.buffer_bytes

    # Filling

    def update_topic(self, name: str, partition_count: int, available: Collection[int]) -> TopicQueues:
        """Take over how many partitions a topic has, and which of them have a leader."""
        topic = self.topics.get(name)
        if topic is None:
            topic = self.topics[name] = TopicQueues(name)
        topic.queues = [self._queue(TopicPartition(name, index)) for index in range(partition_count)]
        topic.available = [topic.queues[index] for index in sorted(available) if index < partition_count]
        if topic.sticky is None or (topic.available and topic.sticky not in topic.available):
            self._switch(topic)
        return topic

    def forget_topic(self, name: str) -> None:
        """Accept no records for a topic that does not exist. Waiting ones wait for the topic, or for their time-out."""
        self.topics.pop(name, None)

    def topic_names(self) -> set[str]:
        """Return the topics that records are sent to, or wait for."""
        return {*self.topics, *(topic_partition.topic for topic_partition in self._waiting)}

    def _queue(self, topic_partition: TopicPartition) -> PartitionQueue:
        queue = self._queues.get(topic_partition)
        if queue is None:
            queue = self._queues[topic_partition] = PartitionQueue(topic_partition)
        return queue

    def _switch(self, topic: TopicQueues) -> PartitionQueue:
        topic.sticky = self._rng.choice(topic.available or topic.queues)
        topic.sticky_bytes = 0
        return topic.sticky

    def append(
        self, queue: PartitionQueue, timestamp: int, key: bytes | None, value: bytes | None, headers: Headers
    ) -> FutureRecordMetadata:
        """Add a record. Raises ``RecordTooLarge``; the caller has to check for space before."""
        batch = queue.open
        if batch is not None:
            size = batch.append(timestamp, key, value, headers)
            if size:
                self.used_bytes += size
                return FutureRecordMetadata(batch, batch.record_count - 1, timestamp)
            self._close_batch(queue)
        return self._append_to_new(queue, timestamp, key, value, headers)

    def append_sticky(
        self, topic: TopicQueues, timestamp: int, value: bytes | None, headers: Headers
    ) -> FutureRecordMetadata:
        """Add a record without key to the sticky partition: the hottest path."""
        queue = topic.sticky
        assert queue is not None
        batch = queue.open
        if batch is not None:
            size = batch.append(timestamp, None, value, headers)
            if size:
                self.used_bytes += size
                return FutureRecordMetadata(batch, batch.record_count - 1, timestamp)
            self._close_batch(queue)
            queue = self._switch(topic)
        return self.append(queue, timestamp, None, value, headers)

    def _close_batch(self, queue: PartitionQueue) -> None:
        """Close a batch that has no room for the next record."""
        queue.open = None
        self._on_full_batch()

    def _append_to_new(
        self, queue: PartitionQueue, timestamp: int, key: bytes | None, value: bytes | None, headers: Headers
    ) -> FutureRecordMetadata:
        batch = ProducerBatch(queue.topic_partition, self._config.batch_bytes, timestamp, self._now())
        size = batch.append(timestamp, key, value, headers)
        if HEADER_SIZE + size > self._config.max_request_bytes:
            raise RecordTooLarge(f"a record of {size} bytes; max_request_bytes is {self._config.max_request_bytes}")
        queue.open = batch
        self._enqueue(queue, batch, size)
        return FutureRecordMetadata(batch, 0, timestamp)

    def append_batch(self, batch: ProducerBatch) -> None:
        """Add a batch that was made elsewhere (``ProducerBatch.of_records``); its topic is known already."""
        queue = self._queue(batch.topic_partition)
        queue.open = None
        self._enqueue(queue, batch, batch.record_bytes)

    def _enqueue(self, queue: PartitionQueue, batch: ProducerBatch, size: int) -> None:
        self._manager.add_partition(queue.topic_partition)
        self.used_bytes += size
        self.incomplete[batch] = None
        queue.batches.append(batch)
        self._waiting[queue.topic_partition] = queue
        self._on_batch()

    # Emptying

    def readiness(self, metadata: ClusterMetadata, now: float) -> Readiness:
        """Return what is ready for each broker."""
        found = Readiness()
        everything = self._everything_must_be_sent()
        ready: set[int] = set()
        by_leader: dict[int, list[PartitionQueue]] = {}
        for topic_partition, queue in self._waiting.items():
            batch = queue.batches[0]
            leader = metadata.leader(topic_partition)
            if leader is None:
                found.without_leader.add(topic_partition.topic)
                continue
            ready_at = self._ready_at(queue, batch, everything)
            if batch.attempts and metadata.leader_epoch(topic_partition) <= batch.sent_to_epoch:
                ready_at = max(ready_at, batch.retry_at)
            if ready_at > now:
                found.next_at = min(found.next_at, ready_at)
                if batch.attempts:
                    continue
            elif self._manager.may_send(batch):
                ready.add(leader)
            by_leader.setdefault(leader, []).append(queue)
        found.queues = {leader: by_leader[leader] for leader in ready}
        return found

    def _ready_at(self, queue: PartitionQueue, batch: ProducerBatch, everything: bool) -> float:
        if everything or batch.attempts or batch is not queue.open or batch.is_full:
            return batch.created_at
        return batch.created_at + self._linger_seconds

    def _everything_must_be_sent(self) -> bool:
        completing = self._manager.state.current in (State.COMMITTING_TRANSACTION, State.ABORTING_TRANSACTION)
        return self.flushes > 0 or self.is_closed or self.is_full or completing

    def drain(self, queues: Iterable[PartitionQueue], metadata: ClusterMetadata) -> list[ProducerBatch]:
        """Take the batches for one request to one broker; those that were taken have their sequences."""
        taken: list[ProducerBatch] = []
        size = 0
        for queue in queues:
            if not queue.batches or not self._manager.may_send(queue.batches[0]):
                continue
            batch = queue.batches[0]
            size += batch.size
            if taken and size > self._config.max_request_bytes:
                break
            self._take(queue, batch)
            batch.sent_to_epoch = metadata.leader_epoch(queue.topic_partition)
            taken.append(batch)
        return taken

    def _take(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        queue.batches.popleft()
        if queue.open is batch:
            queue.open = None
            self._count_for_sticky(queue, batch.record_bytes)
        del self._waiting[queue.topic_partition]
        if queue.batches:  # Behind the others, so that each has its turn.
            self._waiting[queue.topic_partition] = queue
        self._manager.sequences.sending(batch)
        batch.is_on_wire = True

    def _count_for_sticky(self, queue: PartitionQueue, size: int) -> None:
        """Switch the sticky partition also when batches are sent before they are full."""
        topic = self.topics.get(queue.topic_partition.topic)
        if topic is not None and queue is topic.sticky:
            topic.sticky_bytes += size
            if topic.sticky_bytes >= self._config.batch_bytes:
                self._switch(topic)

    def enqueue_again(self, batch: ProducerBatch) -> None:
        """Put a batch that has a sequence back into its queue, in front of all that come after it."""
        queue = self._queues[batch.topic_partition]
        order = self._manager.sequences.of(batch.topic_partition).in_flight
        position = order.index(batch)
        at = 0
        while at < len(queue.batches) and queue.batches[at] in order[:position]:
            at += 1
        queue.batches.insert(at, batch)
        self._waiting[batch.topic_partition] = queue

    def replace(self, batch: ProducerBatch, parts: list[ProducerBatch]) -> None:
        """Put the parts of a batch that was too large in its place."""
        self.release(batch)
        self._manager.sequences.of(batch.topic_partition).replace(batch, parts)
        for part in parts:
            self.incomplete[part] = None
            self.used_bytes += part.record_bytes
            self.enqueue_again(part)
        self.incomplete = dict.fromkeys(sorted(self.incomplete, key=lambda each: each.created_at))

    def release(self, batch: ProducerBatch) -> None:
        """Free the space of a batch that is done, or replaced."""
        if batch in self.incomplete:
            del self.incomplete[batch]
            self.used_bytes -= batch.record_bytes

    def discard(self, batch: ProducerBatch) -> None:
        """Remove a batch that is given up from its queue, and free its space."""
        queue = self._queues[batch.topic_partition]
        if batch in queue.batches:
            queue.batches.remove(batch)
            if queue.open is batch:
                queue.open = None
            if not queue.batches:
                del self._waiting[batch.topic_partition]
        self.release(batch)
