"""What has been fetched and not been polled yet, in the order in which it came. Pure.

Answers of one partition form a chain: each begins where the one before it ends, and the first one where the partition's
position is. That is checked when an answer comes and again when it is taken, so a seek, a reset or a rebalance in
between makes the chain worthless without anybody having to say so.

``take`` gives records out and moves positions. What belongs to a paused partition, or to one whose position is being
validated, is passed over and stays.

The rules are those of Kafka's ``FetchCollector.java``.
"""

from collections import deque
from collections.abc import Collection

from clients.consumer.completed_fetch import CompletedFetch
from clients.consumer.consumer_errors import OffsetOutOfRange
from clients.consumer.consumer_record import ConsumerRecord
from clients.consumer.subscription_state import (
    NO_RESET,
    AssignedPartition,
    FetchPosition,
    Phase,
    SubscriptionState,
)
from clients.errors import BrokerRefused, Refusal
from protocol.errors import ErrorCode
from protocol.topic_partition import TopicPartition


class FetchBuffer:
    """The answers that wait to be polled."""

    def __init__(self, subscription: SubscriptionState) -> None:
        self._subscription = subscription
        self._waiting: deque[CompletedFetch] = deque()
        self._chains: dict[TopicPartition, deque[CompletedFetch]] = {}
        self.size = 0
        """Bytes that wait, but for those of paused partitions: they must not keep others from being fetched."""

    def __len__(self) -> int:
        return len(self._waiting)

    def next_offset(self, topic_partition: TopicPartition) -> int | None:
        """Where the next fetch of an assigned partition begins; None if what waits must be polled first."""
        position = self._subscription[topic_partition].position.offset
        chain = self._chains.get(topic_partition)
        if chain and chain[0].position != position:
            self.drop([topic_partition])
            chain = None
        if not chain:
            return position
        return None if chain[-1].blocks else chain[-1].next_offset

    def add(self, fetch: CompletedFetch) -> bool:
        """Keep an answer, if its partition is still at the place that was asked for."""
        topic_partition = fetch.topic_partition
        partition = self._subscription.get(topic_partition)
        if partition is None or partition.phase is not Phase.FETCHING:
            return False
        if self.next_offset(topic_partition) != fetch.fetch_offset:
            return False
        self._waiting.append(fetch)
        self._chains.setdefault(topic_partition, deque()).append(fetch)
        if not partition.paused:
            self.size += fetch.size
        return True

    @property
    def has_any(self) -> bool:
        """Whether ``take`` would find something."""
        return any(self._subscription.is_fetchable(fetch.topic_partition) for fetch in self._waiting)

    def take(self, limit: int) -> list[ConsumerRecord]:
        """Up to ``limit`` records, as they came; moves the positions.

        Raises ``OffsetOutOfRange`` without a reset policy, ``UnreadableRecords``, ``BrokerRefused``, and what decoding
        raises (``MemoryError``); never after it took some.
        """
        records: list[ConsumerRecord] = []
        passed_over: list[CompletedFetch] = []
        try:
            while self._waiting and len(records) < limit:
                fetch = self._waiting[0]
                partition = self._subscription.get(fetch.topic_partition)
                if partition is None or _has_no_position(partition):
                    self._remove_first()
                elif not self._subscription.is_fetchable(fetch.topic_partition):
                    passed_over.append(self._waiting.popleft())
                elif partition.position.offset != fetch.position:
                    self._remove_first()
                elif fetch.error is not ErrorCode.NONE:
                    if records:
                        break
                    self._remove_first()
                    self._judge(fetch, partition)
                else:
                    records += self._take_from(fetch, partition, limit - len(records))
        except Exception:  # Whatever it is, it comes again with the next call. These records would not.
            if not records:
                raise
        finally:
            self._waiting.extendleft(reversed(passed_over))
        return records

    def _take_from(self, fetch: CompletedFetch, partition: AssignedPartition, limit: int) -> list[ConsumerRecord]:
        before = fetch.position
        try:
            return fetch.take(limit)
        finally:
            if fetch.position != before:
                partition.position = FetchPosition(fetch.position, fetch.leader_epoch, partition.position.leader)
            if fetch.is_drained:
                self._remove_first()

    def _judge(self, fetch: CompletedFetch, partition: AssignedPartition) -> None:
        """An error in the place of records."""
        topic_partition, error = fetch.topic_partition, fetch.error
        if error is not ErrorCode.OFFSET_OUT_OF_RANGE:
            raise BrokerRefused(f"{topic_partition} at position {fetch.fetch_offset}", Refusal(error=error))
        if partition.preferred_replica is not None:  # A follower may lag behind: the leader knows.
            partition.preferred_replica = None
        elif self._subscription.default_reset == NO_RESET:
            raise OffsetOutOfRange(topic_partition, fetch.fetch_offset)
        else:
            partition.reset(self._subscription.default_reset)

    def _remove_first(self) -> None:
        fetch = self._waiting.popleft()
        chain = self._chains[fetch.topic_partition]
        chain.popleft()
        if not chain:
            del self._chains[fetch.topic_partition]
        partition = self._subscription.get(fetch.topic_partition)
        if partition is None or not partition.paused:
            self.size -= fetch.size

    def drop(self, partitions: Collection[TopicPartition]) -> None:
        """Forget what waits of these."""
        self._waiting = deque(fetch for fetch in self._waiting if fetch.topic_partition not in partitions)
        for topic_partition in partitions:
            self._chains.pop(topic_partition, None)
        self.recount()

    def drop_unassigned(self) -> None:
        """The assignment has changed."""
        self.drop([topic_partition for topic_partition in self._chains if topic_partition not in self._subscription])

    def recount(self) -> None:
        """Partitions have been paused or resumed."""
        self.size = sum(fetch.size for fetch in self._waiting if not self._is_paused(fetch.topic_partition))

    def _is_paused(self, topic_partition: TopicPartition) -> bool:
        partition = self._subscription.get(topic_partition)
        return partition is not None and partition.paused


def _has_no_position(partition: AssignedPartition) -> bool:
    return partition.phase in (Phase.INITIALIZING, Phase.AWAITING_RESET)
