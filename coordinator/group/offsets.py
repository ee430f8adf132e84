"""The committed offsets of all groups of one ``__consumer_offsets`` partition, and those that wait for a marker.

What a plain commit says is true at once. What a producer commits inside a transaction waits under its producer id until
the marker comes: a commit marker makes it true, an abort marker forgets it, so that the position is again the one that
was committed before the transaction. The marker concerns what was appended before it and nothing else.

The order of the log decides between plain and transactional commits of one partition: whichever record stands later
wins, also when an earlier transactional one is materialised after a later plain one. Compaction may remove the earlier
record, so every offset remembers where its record stands.

A tombstone removes a partition's offset and whatever waits for it. ``_open`` says, for a group's partition, which
producers have something waiting; it always names exactly what ``_pending`` holds.

A leader epoch in a commit lets the next consumer notice that the log was truncated under it, and keeps it from asking a
broker that does not know the epoch yet (KIP-320). Many clients commit without one; ``epoch_for_epochless_commit`` keeps
that from erasing what the partition's committed offset already knew.
"""

import sys
import weakref
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import count
from typing import Final, NamedTuple

from oncelog.protocol.records.record_batch import NO_PARTITION_LEADER_EPOCH, NO_PRODUCER_ID
from oncelog.protocol.schema import ZERO_UUID
from oncelog.protocol.topic_partition import TopicPartition


class CommittedOffset(NamedTuple):
    """A position that a group has committed for a partition."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int | None = None
    """Set only by OffsetCommit 2-4, whose requests bring their own retention."""
    topic_id: bytes = ZERO_UUID


class StoredOffset(NamedTuple):
    """A committed offset, and where its record stands in the log."""

    committed: CommittedOffset
    record_offset: int


Offsets = dict[TopicPartition, StoredOffset]
_NOTHING: Final[Offsets] = {}


def size_of_metadata(metadata: str) -> int:
    """Return the bytes of memory that an offset's metadata takes; none is nothing."""
    return sys.getsizeof(metadata) if metadata else 0


class Learnt:
    """What a store has learnt since this was made: changed partitions of one group, and deleted topics."""

    __slots__ = ("__weakref__", "deleted_topics", "group_id", "partitions")

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.partitions: set[TopicPartition] = set()
        self.deleted_topics: set[str] = set()


class OffsetStore:
    """See the module's text. Changes come from records and markers only, in the order of the log."""

    def __init__(self) -> None:
        self._committed: dict[str, Offsets] = {}
        self._pending: dict[int, dict[str, Offsets]] = {}
        self._open: dict[str, dict[TopicPartition, set[int]]] = {}
        self.count = 0
        """Offsets, those that are pending too."""
        self.metadata_bytes = 0
        """Memory that the metadata of all offsets takes, of those that are pending too."""
        self._watching: list[weakref.ref[Learnt]] = []
        """The changes that large commits watch, as long as those exist."""

    # What records and markers do

    def commit(
        self,
        group_id: str,
        partition: TopicPartition,
        committed: CommittedOffset,
        *,
        record_offset: int,
        producer_id: int = NO_PRODUCER_ID,
    ) -> None:
        offsets = self._offsets_of(group_id, producer_id)
        self._weigh(offsets.get(partition), -1)
        offsets[partition] = stored = StoredOffset(committed, record_offset)
        self._weigh(stored, 1)
        if producer_id != NO_PRODUCER_ID:
            self._open.setdefault(group_id, {}).setdefault(partition, set()).add(producer_id)
        if self._watching:
            self._note(group_id, (partition,))

    def commit_all(
        self,
        group_id: str,
        partitions: Sequence[TopicPartition],
        committed: Sequence[CommittedOffset],
        *,
        record_offset: int,
        producer_id: int = NO_PRODUCER_ID,
    ) -> None:
        """Commit many at once; their records stand one after the other from ``record_offset`` on."""
        stored = dict(zip(partitions, map(StoredOffset, committed, count(record_offset)), strict=True))
        offsets = self._offsets_of(group_id, producer_id)
        for partition, offset in stored.items():
            self._weigh(offsets.get(partition), -1)
            self._weigh(offset, 1)
        offsets.update(stored)
        if producer_id != NO_PRODUCER_ID:
            producers_of = self._open.setdefault(group_id, {}).setdefault
            for partition in stored:
                producers_of(partition, set()).add(producer_id)
        if self._watching:
            self._note(group_id, stored)

    def remove(self, group_id: str, partition: TopicPartition) -> None:
        """Apply a tombstone."""
        offsets = self._committed.get(group_id)
        if offsets is not None:
            self._weigh(offsets.pop(partition, None), -1)
            if not offsets:
                del self._committed[group_id]
        for producer_id in list(self._open.get(group_id, {}).get(partition, ())):
            self._forget_pending(producer_id, group_id, partition)
        if self._watching:
            self._note(group_id, (partition,))

    def end_transaction(self, producer_id: int, *, commit: bool) -> set[str]:
        """Apply a marker, and return the groups that it concerns."""
        pending = self._pending.pop(producer_id, {})
        for group_id, offsets in pending.items():
            for partition, stored in offsets.items():
                self._close(producer_id, group_id, partition)
                self._weigh(stored, -1)
                if commit:
                    self._materialise(group_id, partition, stored)
            if self._watching:
                self._note(group_id, offsets)
        return set(pending)

    # What is known

    def watch(self, group_id: str) -> Learnt:
        """Note from now on, as long as the result exists, what is learnt of the group's partitions and of topics."""
        learnt = Learnt(group_id)
        self._watching.append(weakref.ref(learnt, self._watching.remove))
        return learnt

    def note_deletions(self, topics: Iterable[str]) -> None:
        """Note topics that exist no more, or are others of the same name."""
        for reference in list(self._watching):
            learnt = reference()
            if learnt is not None:
                learnt.deleted_topics.update(topics)

    def _note(self, group_id: str, partitions: Iterable[TopicPartition]) -> None:
        for reference in list(self._watching):
            learnt = reference()
            if learnt is not None and learnt.group_id == group_id:
                learnt.partitions.update(partitions)

    @property
    def group_count(self) -> int:
        """Groups with committed offsets, those apart that only wait for a marker."""
        return len(self._committed)

    def committed(self, group_id: str) -> Offsets:
        return self._committed.get(group_id, _NOTHING)

    def is_unstable(self, group_id: str, partition: TopicPartition) -> bool:
        """Return whether a transaction may still change the partition's offset."""
        return partition in self._open.get(group_id, _NOTHING)

    def unstable(self, group_id: str) -> Collection[TopicPartition]:
        """Return the partitions whose offsets a transaction may still change."""
        return self._open.get(group_id, _NOTHING)

    def known_partitions(self, group_id: str) -> list[TopicPartition]:
        """Return the partitions that need a tombstone to forget the group."""
        return list({**self._committed.get(group_id, {}), **self._open.get(group_id, {})})

    def partitions_of_topics(self, topic_ids: Mapping[str, bytes]) -> Iterator[tuple[str, TopicPartition]]:
        """Yield (group id, partition) of all that is committed or pending for these topics, given with their ids.

        An offset that knows its topic's id is passed over if the name meant another topic when it was committed.
        """
        for group_id in self.group_ids():
            for partition in self.known_partitions(group_id):
                topic_id = topic_ids.get(partition.topic)
                if topic_id is None:
                    continue
                latest = self._latest(group_id, partition)
                if latest is None or latest.topic_id in (topic_id, ZERO_UUID):
                    yield group_id, partition

    def group_ids(self) -> list[str]:
        return list({**self._committed, **self._open})

    def pending_of(self, producer_id: int) -> dict[str, Offsets]:
        return self._pending.get(producer_id, {})

    def epoch_for_epochless_commit(
        self, group_id: str, partition: TopicPartition, offset: int, current_epoch: Callable[[], int]
    ) -> int:
        """Return the leader epoch to write with a commit that brought none: never less than was known before.

        At or before the offset known so far its epoch is still right: the records there are of that epoch or an older
        one. Beyond it they may be of a newer epoch, and an epoch that is too small would make the next consumer believe
        that the log was truncated and go back. So beyond it the partition's current epoch is taken.
        """
        known = self._latest(group_id, partition)
        if known is None or known.leader_epoch == NO_PARTITION_LEADER_EPOCH:
            return NO_PARTITION_LEADER_EPOCH
        if offset <= known.offset:
            return known.leader_epoch
        return max(known.leader_epoch, current_epoch())

    def _latest(self, group_id: str, partition: TopicPartition) -> CommittedOffset | None:
        """Return the newest commit of a partition, pending ones included."""
        known = [self._committed.get(group_id, _NOTHING).get(partition)]
        for producer_id in self._open.get(group_id, {}).get(partition, ()):
            known.append(self._pending[producer_id][group_id][partition])
        newest = max((stored for stored in known if stored), key=lambda stored: stored.record_offset, default=None)
        return None if newest is None else newest.committed

    def metadata_bytes_of(self, group_id: str, partition: TopicPartition) -> int:
        """Return what the metadata of a partition's committed offset takes."""
        stored = self._committed.get(group_id, _NOTHING).get(partition)
        return 0 if stored is None else size_of_metadata(stored.committed.metadata)

    # Bookkeeping

    def _offsets_of(self, group_id: str, producer_id: int) -> Offsets:
        """Return where a commit belongs: to the group, or to a producer's transaction."""
        if producer_id == NO_PRODUCER_ID:
            return self._committed.setdefault(group_id, {})
        return self._pending.setdefault(producer_id, {}).setdefault(group_id, {})

    def _weigh(self, stored: StoredOffset | None, by: int) -> None:
        """Count an offset that is added (1) or removed (-1)."""
        if stored is None:
            return
        self.count += by
        if stored.committed.metadata:
            self.metadata_bytes += by * size_of_metadata(stored.committed.metadata)

    def _materialise(self, group_id: str, partition: TopicPartition, stored: StoredOffset) -> None:
        offsets = self._committed.setdefault(group_id, {})
        current = offsets.get(partition)
        if current is None or stored.record_offset > current.record_offset:
            self._weigh(current, -1)
            offsets[partition] = stored
            self._weigh(stored, 1)

    def _forget_pending(self, producer_id: int, group_id: str, partition: TopicPartition) -> None:
        groups = self._pending[producer_id]
        self._weigh(groups[group_id].pop(partition), -1)
        if not groups[group_id]:
            del groups[group_id]
        if not groups:
            del self._pending[producer_id]
        self._close(producer_id, group_id, partition)

    def _close(self, producer_id: int, group_id: str, partition: TopicPartition) -> None:
        partitions = self._open[group_id]
        partitions[partition].discard(producer_id)
        if not partitions[partition]:
            del partitions[partition]
        if not partitions:
            del self._open[group_id]
