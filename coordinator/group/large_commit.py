"""A commit of many offsets: made in slices, committed in one step.

What the step needs of each offset is made beforehand: whether it is refused by itself, its record as it stands in the
batch, what is remembered of it. While that is done other requests go on. What they change is noted from the beginning
(``offsets.Learnt``), and looked at in the step:

* A commit that brings no leader epoch takes over what was known of its partition. Where another commit came in between,
  the record is made anew. That is part of the step, so where it is more than ``_MOST_AGAIN`` the request is refused by
  an error that has the client repeat it.
* Where a topic was deleted, its offsets would stay for ever. The request is refused by the same error; the next one
  finds no such topic.
"""

from collections.abc import Generator, Sequence

from oncelog.coordinator.group.log_records import encode_offset_commit
from oncelog.coordinator.group.offset_metadata import OffsetMetadataRules
from oncelog.coordinator.group.offset_requests import (
    Committer,
    OffsetToCommit,
    OnPartitionErrors,
    PartitionErrors,
    change_of,
    expiry,
    refusal_of,
    reply_when_replicated,
    why_refused,
)
from oncelog.coordinator.group.offsets import CommittedOffset
from oncelog.coordinator.group.shard import NO_PRODUCER, GroupShard
from oncelog.coordinator.ports import TopicMetadata
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.records.record_batch import NO_PARTITION_LEADER_EPOCH, NewRecord, encode_record
from oncelog.protocol.records.record_walk import WorkBudget
from oncelog.protocol.topic_partition import TopicPartition

_UNITS_PER_OFFSET = 15
_MOST_AGAIN = 2_000
"""Records that are made anew in the step, which takes some milliseconds."""


class LargeCommit:
    """The offsets of one request. It begins before the request is looked at; then ``encode``, and ``commit`` once."""

    def __init__(
        self,
        shard: GroupShard,
        metadata: TopicMetadata,
        group_id: str,
        *,
        metadata_rules: OffsetMetadataRules,
        retention_ms: int,
    ) -> None:
        self.shard = shard
        self._metadata = metadata
        self._group_id = group_id
        self._metadata_rules = metadata_rules
        self._now_ms = shard.now().wall_ms
        self._expire_ms = expiry(self._now_ms, retention_ms)
        self._learnt = shard.offsets.watch(group_id)
        self._errors: PartitionErrors = {}
        self._accepted: list[OffsetToCommit] = []
        self._partitions: list[TopicPartition] = []
        self._committed: list[CommittedOffset] = []
        self._records: list[bytes] = []

    def encode(self, offsets: Sequence[OffsetToCommit], budget: WorkBudget) -> Generator[None, object, None]:
        """Make what will be committed of the offsets; yields when the budget is used up."""
        self._errors = self._metadata_rules.refused(self.shard.offsets, self._group_id, offsets)
        for offset in offsets:
            if offset.partition in self._errors:
                continue
            committed, record = self._encoded(len(self._records), offset)
            self._accepted.append(offset)
            self._partitions.append(offset.partition)
            self._committed.append(committed)
            self._records.append(record)
            budget.left -= _UNITS_PER_OFFSET
            if budget.left <= 0:
                yield None

    def _encoded(self, slot: int, offset: OffsetToCommit) -> tuple[CommittedOffset, bytes]:
        """Return what is remembered of an offset, and its record as it stands in the batch."""
        change = change_of(self.shard, self._metadata, self._group_id, offset, self._now_ms, self._expire_ms)
        assert change.committed is not None, "this is no tombstone"
        key, value = encode_offset_commit(*change)
        return change.committed, encode_record(slot, self._now_ms, NewRecord(self._now_ms, key, value))

    def _outdated(self) -> list[int]:
        """Return the slots whose leader epoch this broker chose, and may choose otherwise by now."""
        learnt = self._learnt.partitions
        return [
            slot
            for slot, partition in enumerate(self._partitions)
            if partition in learnt and self._accepted[slot].leader_epoch == NO_PARTITION_LEADER_EPOCH
        ]

    def commit(self, committer: Committer, reply: OnPartitionErrors) -> None:
        """Commit in this step what the group's rules allow; see ``offset_requests.commit``."""
        error = why_refused(self.shard, committer)
        if error is not ErrorCode.NONE:
            self.refuse(error, reply)
            return
        if self._has_deleted():
            self.refuse(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, reply)
            return
        if not self._accepted:
            reply(self._errors)
            return
        outdated = self._outdated() if self._learnt.partitions else ()
        if len(outdated) > _MOST_AGAIN:
            self.refuse(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, reply)
            return
        for slot in outdated:
            self._committed[slot], self._records[slot] = self._encoded(slot, self._accepted[slot])
        producer = committer.producer or NO_PRODUCER
        end = self.shard.write_commit(
            self._group_id, self._partitions, self._committed, self._records, self._now_ms, producer
        )
        if isinstance(end, ErrorCode):
            reply(self._outcome(refusal_of(end)))
            return
        reply_when_replicated(self.shard, committer, end, lambda outcome: reply(self._outcome(outcome)))

    def _has_deleted(self) -> bool:
        deleted = self._learnt.deleted_topics
        return bool(deleted) and any(partition.topic in deleted for partition in self._partitions)

    def refuse(self, error: ErrorCode, reply: OnPartitionErrors) -> None:
        """Reply with the same error for every partition."""
        reply(dict.fromkeys([*self._partitions, *self._errors], error))

    def _outcome(self, error: ErrorCode) -> PartitionErrors:
        return dict.fromkeys(self._partitions, error) | self._errors
