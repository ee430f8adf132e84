"""The requests for committed offsets: commit, commit inside a transaction, fetch, delete; and their expiry.

Each function decides on one shard in one synchronous step. Commits of one request go into one batch, so either all of
those that were not refused one by one are committed, or none.

A fetch returns what is applied, once that is replicated: a position that a new coordinator might not know is never
given out. ``require_stable`` (KIP-447) refuses partitions whose position a transaction may still change, so that a new
member cannot start from where the old one's unfinished transaction started. That wait is bounded by the producer's
transaction time-out: then the transaction coordinator aborts it, and a marker arrives here.

Positions after an abort: the group's committed offset is what it was before the transaction. What the consumer that
took part in it has in memory is its own affair; it must go back to the committed offset itself.
"""

from collections.abc import Callable, Container, Generator, Sequence
from typing import Final, NamedTuple

from oncelog.coordinator.group.group import Group
from oncelog.coordinator.group.log_records import OffsetCommitted
from oncelog.coordinator.group.membership import validate_offset_commit
from oncelog.coordinator.group.offset_metadata import OffsetMetadataRules
from oncelog.coordinator.group.offsets import CommittedOffset, StoredOffset
from oncelog.coordinator.group.replication_waits import OnOutcome
from oncelog.coordinator.group.shard import NO_PRODUCER, SESSION_PARTS, GroupShard, Producer
from oncelog.coordinator.group.state import GroupState
from oncelog.coordinator.group.subscription import CONSUMER_PROTOCOL_TYPE
from oncelog.coordinator.log_errors import coordinator_error
from oncelog.coordinator.ports import TopicMetadata
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.records.record_batch import NO_PARTITION_LEADER_EPOCH
from oncelog.protocol.records.record_walk import WorkBudget
from oncelog.protocol.schema import ZERO_UUID
from oncelog.protocol.topic_partition import TopicPartition

INVALID_OFFSET: Final = -1
DEFAULT_RETENTION: Final = -1
_NEVER_MS: Final = 2**63 - 1
"""The latest time that a record can say."""
MANY_OFFSETS: Final = 1_000
"""A commit of more is made in slices (``large_commit``)."""
MAX_TOMBSTONES: Final = 1000
"""How many tombstones go into one batch when offsets expire."""


class Committer(NamedTuple):
    """In whose name offsets are committed. A simple consumer has no member id and generation -1."""

    group_id: str
    member_id: str = ""
    group_instance_id: str | None = None
    generation: int = -1
    producer: Producer | None = None
    """The producer in whose transaction they are committed."""
    unknown_group: ErrorCode = ErrorCode.ILLEGAL_GENERATION
    """The error for a member of a group that does not exist; any other client's commit creates the group."""


class OffsetToCommit(NamedTuple):
    """One partition of a commit."""

    partition: TopicPartition
    offset: int
    leader_epoch: int = NO_PARTITION_LEADER_EPOCH
    metadata: str = ""
    topic_id: bytes = ZERO_UUID


class FetchedOffset(NamedTuple):
    """One partition of an OffsetFetch response; without a committed offset, -1 and no error."""

    offset: int = INVALID_OFFSET
    leader_epoch: int = NO_PARTITION_LEADER_EPOCH
    metadata: str = ""
    error: ErrorCode = ErrorCode.NONE


PartitionErrors = dict[TopicPartition, ErrorCode]
OnPartitionErrors = Callable[[PartitionErrors], None]
FetchedOffsets = dict[TopicPartition, FetchedOffset]
OnFetchedOffsets = Callable[[FetchedOffsets | ErrorCode], None]

_NO_OFFSET: Final = FetchedOffset()
_UNSTABLE: Final = FetchedOffset(error=ErrorCode.UNSTABLE_OFFSET_COMMIT)


def expiry(now_ms: int, retention_ms: int) -> int | None:
    """Return until when a commit with a retention of its own is kept; None without one."""
    return None if retention_ms == DEFAULT_RETENTION else min(now_ms + retention_ms, _NEVER_MS)


def commit(
    shard: GroupShard,
    metadata: TopicMetadata,
    committer: Committer,
    offsets: Sequence[OffsetToCommit],
    reply: OnPartitionErrors,
    *,
    metadata_rules: OffsetMetadataRules,
    retention_ms: int = DEFAULT_RETENTION,
) -> None:
    """Commit what the group's rules allow."""
    error = why_refused(shard, committer)
    if error is not ErrorCode.NONE:
        reply({offset.partition: error for offset in offsets})
        return
    errors = metadata_rules.refused(shard.offsets, committer.group_id, offsets)
    accepted = [offset for offset in offsets if offset.partition not in errors]
    if not accepted:
        reply(errors)
        return
    now_ms = shard.now().wall_ms
    expire_ms = expiry(now_ms, retention_ms)
    changes = [change_of(shard, metadata, committer.group_id, offset, now_ms, expire_ms) for offset in accepted]
    end = shard.write_offsets(changes, committer.producer or NO_PRODUCER)
    if isinstance(end, ErrorCode):
        refusal = refusal_of(end)
        reply(errors | {offset.partition: refusal for offset in accepted})
        return
    reply_when_replicated(
        shard,
        committer,
        end,
        lambda outcome: reply(errors | {offset.partition: outcome for offset in accepted}),
    )


def why_refused(shard: GroupShard, committer: Committer) -> ErrorCode:
    """Return why the group's rules refuse this commit, or NONE. A commit prolongs its member's session."""
    if committer.group_id not in shard.groups:
        error = ErrorCode.NONE if committer.generation < 0 else committer.unknown_group
    else:
        error = _validate(shard, committer, transactional=committer.producer is not None)
    return error if error is ErrorCode.NONE else shard.verdict(error)


def reply_when_replicated(shard: GroupShard, committer: Committer, end: int, outcome: OnOutcome) -> None:
    """Call back when a commit that ends there is replicated, or when that takes too long."""
    at_most_ms = _patience_ms(shard, committer) if committer.producer is None else None
    shard.waits.when_replicated(end, outcome, at_most_ms=at_most_ms)


def _patience_ms(shard: GroupShard, committer: Committer) -> int | None:
    """Return how long a commit may hold up the heartbeats of its member; None if it is not a member's."""
    member = shard.groups[committer.group_id].roster.get(committer.member_id)
    return None if member is None else member.session_timeout_ms // SESSION_PARTS


def _validate(shard: GroupShard, committer: Committer, *, transactional: bool) -> ErrorCode:
    group = shard.groups[committer.group_id]
    error = validate_offset_commit(
        group, committer.member_id, committer.group_instance_id, committer.generation, transactional=transactional
    )
    if error is ErrorCode.NONE and not transactional and group.state is not GroupState.EMPTY:
        group.keep_alive(committer.member_id, shard.now())
    return error


def change_of(
    shard: GroupShard,
    metadata: TopicMetadata,
    group_id: str,
    offset: OffsetToCommit,
    now_ms: int,
    expire_ms: int | None,
) -> OffsetCommitted:
    """Return what a commit of an offset changes, by what is known of its partition now."""
    leader_epoch = offset.leader_epoch
    if leader_epoch == NO_PARTITION_LEADER_EPOCH:
        leader_epoch = shard.offsets.epoch_for_epochless_commit(
            group_id, offset.partition, offset.offset, lambda: _current_epoch(metadata, offset.partition)
        )
    if expire_ms is not None:  # The record version that can hold it holds neither of these.
        return OffsetCommitted(
            group_id,
            offset.partition,
            CommittedOffset(offset.offset, NO_PARTITION_LEADER_EPOCH, offset.metadata, now_ms, expire_ms),
        )
    return OffsetCommitted(
        group_id,
        offset.partition,
        CommittedOffset(offset.offset, leader_epoch, offset.metadata, now_ms, None, offset.topic_id),
    )


def _current_epoch(metadata: TopicMetadata, partition: TopicPartition) -> int:
    leader = metadata.leader(partition)
    return NO_PARTITION_LEADER_EPOCH if leader is None else leader.epoch


def refusal_of(log_error: ErrorCode) -> ErrorCode:
    """Return the error of a commit that the log refused."""
    if log_error is ErrorCode.MESSAGE_TOO_LARGE:
        return ErrorCode.INVALID_COMMIT_OFFSET_SIZE
    return coordinator_error(log_error)


def fetch(
    shard: GroupShard,
    group_id: str,
    partitions: Sequence[tuple[TopicPartition, bytes]] | None,
    budget: WorkBudget,
    *,
    require_stable: bool,
) -> Generator[None, object, FetchedOffsets]:
    """Return offsets of ``partitions``, each with its topic's id if the client gave one; None: all that the group has.

    Yields when the budget is used up. All are of the moment when it begins.
    """
    committed = shard.offsets.committed(group_id)
    unstable = shard.offsets.unstable(group_id) if require_stable else ()
    is_long = len(committed if partitions is None else partitions) > MANY_OFFSETS
    if is_long:
        committed, unstable = dict(committed), frozenset(unstable)
    fetched: FetchedOffsets = {}
    for partition, topic_id in ((each, ZERO_UUID) for each in committed) if partitions is None else partitions:
        fetched[partition] = _UNSTABLE if partition in unstable else _fetched(committed.get(partition), topic_id)
        budget.left -= 1
        if is_long and budget.left <= 0:
            yield None
    return fetched


def reply_fetched_when_replicated(
    shard: GroupShard, group_id: str, fetched: FetchedOffsets, reply: OnFetchedOffsets
) -> None:
    """Reply with what was fetched when it is durable, or with the group's error.

    Consumers before 3.9 know only NOT_COORDINATOR here, so that is what a high watermark that does not move is called.
    """
    shard.waits.when_replicated(
        shard.written(group_id), lambda error: reply(ErrorCode.NOT_COORDINATOR if error else fetched)
    )


def _fetched(stored: StoredOffset | None, topic_id: bytes) -> FetchedOffset:
    """Return an offset as it is fetched: none if it was committed for another topic of the same name."""
    if stored is None:
        return _NO_OFFSET
    committed = stored.committed
    if ZERO_UUID not in (topic_id, committed.topic_id) and topic_id != committed.topic_id:
        return _NO_OFFSET
    return FetchedOffset(committed.offset, committed.leader_epoch, committed.metadata)


def delete(
    shard: GroupShard,
    group_id: str,
    partitions: Sequence[TopicPartition],
    reply: Callable[[PartitionErrors | ErrorCode], None],
) -> None:
    """Forget offsets that no member's subscription covers. An error concerns the whole request."""
    group = shard.groups.get(group_id)
    if group is None:
        reply(ErrorCode.GROUP_ID_NOT_FOUND)
        return
    if group.state is not GroupState.EMPTY and group.protocol_type != CONSUMER_PROTOCOL_TYPE:
        reply(ErrorCode.NON_EMPTY_GROUP)
        return
    subscribed = group.subscription.read(group.protocol_type)
    errors = {p: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC for p in partitions if p.topic in subscribed}
    known = frozenset(shard.offsets.known_partitions(group_id))
    doomed = [partition for partition in partitions if partition not in errors]
    changes = [OffsetCommitted(group_id, partition, None) for partition in doomed if partition in known]
    end = shard.write_tombstones(changes, ()) if changes else shard.written(group_id)
    if isinstance(end, ErrorCode):
        reply(coordinator_error(end))
        return
    shard.offset_counts.deleted += len(changes)
    deleted = errors | dict.fromkeys(doomed, ErrorCode.NONE)
    shard.waits.when_replicated(end, lambda error: reply(error if error else deleted))


def delete_groups(shard: GroupShard, group_ids: Sequence[str], reply: Callable[[dict[str, ErrorCode]], None]) -> None:
    """Forget groups that have no members, with all their offsets."""
    errors = {group_id: _deletable(shard.groups.get(group_id)) for group_id in group_ids}
    doomed = [group_id for group_id, error in errors.items() if error is ErrorCode.NONE]
    end: int | ErrorCode = 0
    changes: list[OffsetCommitted] = []
    if doomed:
        changes = [
            OffsetCommitted(group_id, partition, None)
            for group_id in doomed
            for partition in shard.offsets.known_partitions(group_id)
        ]
        end = shard.write_tombstones(changes, doomed)
    if isinstance(end, ErrorCode):
        reply(errors | dict.fromkeys(doomed, coordinator_error(end)))
        return
    shard.offset_counts.deleted += len(changes)
    shard.waits.when_replicated(end, lambda outcome: reply(errors | dict.fromkeys(doomed, outcome)))


def _deletable(group: Group | None) -> ErrorCode:
    if group is None:
        return ErrorCode.GROUP_ID_NOT_FOUND
    return ErrorCode.NONE if group.state is GroupState.EMPTY else ErrorCode.NON_EMPTY_GROUP


def expire(shard: GroupShard, retention_ms: int, budget: WorkBudget) -> Generator[None]:
    """Expire offsets that were not used for ``retention_ms``, and groups of which nothing is left.

    Yields between two groups when the budget is used up.
    """
    now_ms = shard.now().wall_ms
    for group in list(shard.groups.values()):
        if not shard.is_open:
            return
        if shard.groups.get(group.group_id) is not group:
            continue  # It was deleted in a pause.
        expired = expired_partitions(shard, group, now_ms, retention_ms, budget)
        changes = [OffsetCommitted(group.group_id, partition, None) for partition in expired]
        doomed = [group.group_id] if _is_dead(shard, group, expired) else []
        budget.left -= 1 + len(changes)
        if (changes or doomed) and isinstance(_write_in_batches(shard, changes, doomed), ErrorCode):
            return  # The next sweep finds the same.
        shard.offset_counts.expired += len(expired)
        if budget.left <= 0:
            yield
    shard.forget_replicated()


def _write_in_batches(shard: GroupShard, changes: list[OffsetCommitted], doomed: list[str]) -> int | ErrorCode:
    while len(changes) > MAX_TOMBSTONES:
        end = shard.write_tombstones(changes[:MAX_TOMBSTONES], ())
        if isinstance(end, ErrorCode):
            return end
        del changes[:MAX_TOMBSTONES]
    return shard.write_tombstones(changes, doomed)


def _is_dead(shard: GroupShard, group: Group, expired: Sequence[TopicPartition]) -> bool:
    """Return whether nothing will be left of the group."""
    if group.state is not GroupState.EMPTY or group.pending_members or shard.offsets.unstable(group.group_id):
        return False
    return shard.offsets.committed(group.group_id).keys() <= set(expired)


def expired_partitions(
    shard: GroupShard, group: Group, now_ms: int, retention_ms: int, budget: WorkBudget
) -> list[TopicPartition]:
    """Return the group's offsets whose time is up, and charge the budget for the search.

    While a group rebalances nothing expires, and while it is stable nothing that its members subscribe to: they may
    just have nothing new to commit. For an empty group the time runs from its last member's leaving or from the commit,
    whichever is later. A partition with an unfinished transaction is left alone.
    """
    committed_offsets = shard.offsets.committed(group.group_id)
    if not committed_offsets or group.state not in (GroupState.EMPTY, GroupState.STABLE):
        return []
    subscribed: Container[str] = ()
    since = 0
    if group.state is GroupState.STABLE:
        subscribed = topics = group.subscription.read(group.protocol_type)
        budget.left -= len(topics)
        if not topics.are_known:
            return []
    elif group.persisted is not None:
        since = group.persisted.state_timestamp_ms or 0
    budget.left -= len(committed_offsets)
    expired = []
    for partition, (committed, _) in committed_offsets.items():
        if partition.topic in subscribed or shard.offsets.is_unstable(group.group_id, partition):
            continue
        if committed.expire_timestamp_ms is not None:
            is_expired = now_ms >= committed.expire_timestamp_ms
        else:
            is_expired = now_ms - max(committed.commit_timestamp_ms, since) >= retention_ms
        if is_expired:
            expired.append(partition)
    return expired
