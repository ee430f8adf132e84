"""Fetched records that have not been polled yet. Pure.

Responses of one partition form a chain: each begins where the one before it ends, and the first one at the partition's
position. All are from the log of the leader that the position is to be read from, by its epoch. That is checked when a
response comes and again when records are taken from it, so a chain is dropped after a seek, a reset, a rebalance or a
new leader without a notification. A chain has two links at most: one whose records are being returned, and one behind.

A new leader confirms a position, not the records fetched beyond it: its log may end there and go on with other records.
So fetched records of an earlier leader are dropped and fetched again, one chain at most for each change of the leader.

``take`` returns records and moves positions. The partitions have turns: one ends with the first batch that reaches the
limit of a poll, or with the response. (A turn does not end within a batch, so at most one partition has decoded
records.) So a partition waits for one turn of each of the others, however much has been fetched of them.

Partitions whose records cannot be returned are *set aside*: those that are paused or about to be revoked, and those
whose next batch cannot be read. They stay, but they do not count, so that they keep no others from being fetched; their
records are copied, so that they do not keep whole responses in memory.

The rules are those of Kafka's ``FetchCollector.java``.
"""

from collections import deque
from collections.abc import Collection

from oncelog.clients.consumer.assigned_partitions import NO_RESET, AssignedPartition, FetchPosition, Phase
from oncelog.clients.consumer.completed_fetch import CompletedFetch
from oncelog.clients.consumer.consumer_errors import OffsetOutOfRange, UnreadableRecords
from oncelog.clients.consumer.consumer_record import ConsumerRecord
from oncelog.clients.consumer.read_ahead import MAX_UNREAD_RESPONSES
from oncelog.clients.consumer.subscription_state import SubscriptionState
from oncelog.clients.errors import BrokerRefused, Refusal
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.topic_partition import TopicPartition


class FetchBuffer:
    """The responses that wait to be polled, each with the records of one partition."""

    def __init__(self, subscription: SubscriptionState) -> None:
        self._subscription = subscription
        self._partitions = subscription.partitions
        self._chains: dict[TopicPartition, deque[CompletedFetch]] = {}
        self._turns: deque[TopicPartition] = deque()
        """The partitions that have a chain; the first one has its turn."""
        self.size = 0
        """Bytes that wait, but for those of partitions that are set aside."""

    def __len__(self) -> int:
        return sum(map(len, self._chains.values()))

    def next_offset(self, topic_partition: TopicPartition) -> int | None:
        """Return the offset of an assigned partition's next fetch; None if buffered records must be polled first."""
        partition = self._partitions[topic_partition]
        chain = self._chains.get(topic_partition)
        if chain and not _continues(partition, chain[0]):
            self.drop([topic_partition])
            chain = None
        if not chain:
            return partition.position.offset
        return None if chain[-1].blocks or len(chain) >= MAX_UNREAD_RESPONSES else chain[-1].next_offset

    def add(self, fetch: CompletedFetch) -> bool:
        """Keep the records of a partition if they are still wanted: at its next offset, under the same leader."""
        topic_partition = fetch.topic_partition
        partition = self._partitions.get(topic_partition)
        if partition is None or partition.phase is not Phase.FETCHING:
            return False
        if fetch.current_leader_epoch != partition.position.leader.epoch:
            return False
        if self.next_offset(topic_partition) != fetch.fetch_offset:
            return False
        chain = self._chains.get(topic_partition)
        if chain is None:
            chain = self._chains[topic_partition] = deque()
            self._turns.append(topic_partition)
        is_set_aside = not (chain[0].counts if chain else self._subscription.is_fetchable(topic_partition))
        chain.append(fetch)
        if is_set_aside:
            self._set_aside(chain)
        else:
            self._count(chain, True)
        return True

    @property
    def has_any(self) -> bool:
        """Return whether ``take`` would return records or raise an error."""
        return any(self._subscription.is_fetchable(topic_partition) for topic_partition in self._turns)

    def take(self, limit: int) -> list[ConsumerRecord]:
        """Return up to ``limit`` records of the partitions in turn, and move the positions.

        Raises ``OffsetOutOfRange`` without a reset policy, ``UnreadableRecords``, ``BrokerRefused``, ``MemoryError``,
        each only if no records come before it. After any other exception, which is a defect, the positions are where
        they were, so that the records are fetched again.
        """
        records: list[ConsumerRecord] = []
        before: list[tuple[AssignedPartition, FetchPosition]] = []
        is_done = False
        try:
            self._take_into(records, limit, before)
            is_done = True
        finally:
            if not is_done:
                for partition, position in reversed(before):
                    partition.position = position
        return records

    def _take_into(
        self, records: list[ConsumerRecord], limit: int, before: list[tuple[AssignedPartition, FetchPosition]]
    ) -> None:
        """Append to ``records``, and to ``before`` the positions to restore after an exception."""
        passed_over = 0
        while len(records) < limit and passed_over < len(self._turns):
            topic_partition = self._turns[0]
            chain = self._chains[topic_partition]
            fetch = chain[0]
            partition = self._partitions.get(topic_partition)
            if partition is None or _has_no_position(partition) or not _continues(partition, fetch):
                self._remove_first()
            elif not self._subscription.is_fetchable(topic_partition):
                self._set_aside(chain)
                self._turns.rotate(-1)
                passed_over += 1
            elif fetch.error is not ErrorCode.NONE:
                if records:
                    break
                before.clear()
                self._remove_first()
                self._judge(fetch, partition)
            else:
                if not fetch.counts:
                    self._count(chain, True)
                before.append((partition, partition.position))
                try:
                    records += self._take_from(fetch, partition, limit - len(records))
                except (UnreadableRecords, MemoryError):
                    if records:  # They would be lost. A later call raises the same.
                        break
                    before.clear()
                    self._set_aside(chain)
                    self._turns.rotate(-1)
                    raise
                passed_over = 0

    def _take_from(self, fetch: CompletedFetch, partition: AssignedPartition, limit: int) -> list[ConsumerRecord]:
        before = fetch.position
        try:
            records = fetch.take(limit)
        finally:
            if fetch.position != before:
                partition.position = FetchPosition(fetch.position, fetch.leader_epoch, partition.position.leader)
        if fetch.is_drained:
            self._remove_first()
        elif fetch.is_between_batches:
            self._turns.rotate(-1)
        return records

    def _judge(self, fetch: CompletedFetch, partition: AssignedPartition) -> None:
        """Reset the position, or raise, for an error that came in place of records."""
        topic_partition, error = fetch.topic_partition, fetch.error
        if error is not ErrorCode.OFFSET_OUT_OF_RANGE:
            raise BrokerRefused(f"{topic_partition} at position {fetch.fetch_offset}", Refusal(error=error))
        if partition.preferred_replica is not None:  # A follower may lag behind: the leader knows.
            partition.preferred_replica = None
        elif self._partitions.default_reset == NO_RESET:
            raise OffsetOutOfRange(topic_partition, fetch.fetch_offset)
        else:
            partition.reset(self._partitions.default_reset)

    def _remove_first(self) -> None:
        """Remove the first response of the partition whose turn it is, and end the turn."""
        topic_partition = self._turns[0]
        chain = self._chains[topic_partition]
        self._count([chain.popleft()], False)
        if chain:
            self._turns.rotate(-1)
        else:
            del self._chains[topic_partition]
            self._turns.popleft()

    def _set_aside(self, chain: Collection[CompletedFetch]) -> None:
        self._count(chain, False)
        for fetch in chain:
            fetch.detach()

    def _count(self, fetches: Collection[CompletedFetch], counts: bool) -> None:
        """Note whether these are among what can be given out now."""
        for fetch in fetches:
            if fetch.counts is not counts:
                fetch.counts = counts
                change = 1 if counts else -1
                self.size += change * fetch.size
                fetch.response.unread += change

    def drop(self, partitions: Collection[TopicPartition]) -> None:
        """Drop what has been fetched of these."""
        for topic_partition in partitions:
            self._count(self._chains.pop(topic_partition, ()), False)
        self._turns = deque(topic_partition for topic_partition in self._turns if topic_partition in self._chains)

    def drop_unassigned(self) -> None:
        """Drop what has been fetched of partitions that are not assigned any more."""
        self.drop([topic_partition for topic_partition in self._chains if topic_partition not in self._partitions])

    def recount(self) -> None:
        """Set partitions that are paused aside, and count those again that are not."""
        for topic_partition, chain in self._chains.items():
            if self._subscription.is_fetchable(topic_partition):
                self._count(chain, True)
            else:
                self._set_aside(chain)


def _has_no_position(partition: AssignedPartition) -> bool:
    return partition.phase in (Phase.INITIALIZING, Phase.AWAITING_RESET)


def _continues(partition: AssignedPartition, fetch: CompletedFetch) -> bool:
    """Return whether a response goes on at the position, with the log of the leader that it is to be read from."""
    position = partition.position
    return fetch.position == position.offset and fetch.current_leader_epoch == position.leader.epoch
