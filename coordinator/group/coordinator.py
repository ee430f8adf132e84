"""The group coordinator of one broker: what the requests of members and of their administrators do.

A group belongs to the partition of ``__consumer_offsets`` that its id hashes to, and its coordinator is that
partition's leader. Requests are plain calls that take a ``reply``; it is called exactly once, before the call returns
where nothing has to be replicated first. A parked JoinGroup or SyncGroup is nothing but its reply, kept with its
member, so a closed connection leaves no trace: the member stays until its session or the rebalance ends it.

A coordinator whose followers are silent may have a successor that it does not know of (``ReplicatedLog.is_deserted``).
It goes on with its groups all the same, because a member that is refused for a session's time has lost its session:

* It responds to Heartbeat, JoinGroup, SyncGroup and LeaveGroup. Membership is soft state; what is written of it is in a
  response only once it is replicated, so a successor's groups differ from these by nothing that a member was promised.
* It dismisses no member and refuses none, neither by a response nor by time: the successor may know better
  (``GroupShard.verdict``). COORDINATOR_NOT_AVAILABLE has the client ask again.
* Commits are appended, and get their response when they are replicated; under a successor they never are.
* Committed offsets are not given out, and nothing is deleted: those responses would need no replication.
"""

import logging
import random
from collections.abc import Callable, Generator, Sequence
from typing import Final, NamedTuple

from oncelog.coordinator.controller.cluster_image import MetadataChange, TopicImage
from oncelog.coordinator.group import membership, offset_requests
from oncelog.coordinator.group.group import Group
from oncelog.coordinator.group.joining_member import LONGEST_INSTANCE_ID, JoiningMember
from oncelog.coordinator.group.large_commit import LargeCommit
from oncelog.coordinator.group.log_lines import log_refusal, log_request
from oncelog.coordinator.group.log_records import OffsetCommitted
from oncelog.coordinator.group.member import (
    UNKNOWN_MEMBER_ID,
    JoinReply,
    JoinResult,
    MemberImage,
    SyncReply,
    SyncResult,
)
from oncelog.coordinator.group.memory import GroupMemory
from oncelog.coordinator.group.offset_counts import OffsetCounts
from oncelog.coordinator.group.offset_metadata import OffsetMetadataRules
from oncelog.coordinator.group.offset_requests import (
    DEFAULT_RETENTION,
    Committer,
    OffsetToCommit,
    OnFetchedOffsets,
    OnPartitionErrors,
    PartitionErrors,
)
from oncelog.coordinator.group.offset_sweeps import OffsetSweeps
from oncelog.coordinator.group.settings import GroupSettings
from oncelog.coordinator.group.shard import GroupShard
from oncelog.coordinator.group.shards import GroupShards
from oncelog.coordinator.group.state import GroupState, SyncRequest
from oncelog.coordinator.load_times import LoadTimes
from oncelog.coordinator.ports import ReplicatedLog, TaskOwner, TopicMetadata, WallClock
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.records.record_walk import WorkBudget
from oncelog.protocol.schema import ZERO_UUID
from oncelog.protocol.topic_partition import TopicPartition

logger = logging.getLogger(__name__)

CLASSIC_GROUP_TYPE: Final = "classic"


class LeavingMember(NamedTuple):
    """One member of a LeaveGroup request."""

    member_id: str
    group_instance_id: str | None = None
    reason: str | None = None


class GroupOverview(NamedTuple):
    """A group in a list."""

    group_id: str
    protocol_type: str
    state: GroupState


class GroupDescription(NamedTuple):
    """A group in detail. Only a stable group has metadata and assignments here."""

    state: GroupState
    protocol_type: str
    protocol_name: str
    members: tuple[MemberImage, ...]


class GroupCoordinator:
    """See the module's text."""

    def __init__(
        self,
        *,
        settings: GroupSettings,
        metadata: TopicMetadata,
        tasks: TaskOwner,
        wall_clock: WallClock,
        rng: random.Random,
    ) -> None:
        self._settings = settings
        self._metadata = metadata
        self._rng = rng
        self.memory = GroupMemory(settings.memory_limits())
        """What the groups of this coordinator take."""
        self._shards = GroupShards(settings, self.memory, metadata=metadata, tasks=tasks, wall_clock=wall_clock)
        self._sweeps = OffsetSweeps(settings, self._shards.open)
        self._metadata_rules = OffsetMetadataRules(
            longest=settings.offset_metadata_max_bytes,
            most_bytes=settings.offsets_metadata_max_bytes,
            most_offsets=settings.offsets_max_count,
            stores=lambda: (shard.offsets for shard in self._shards.owned.values()),
        )

    def start(self) -> None:
        """Begin to search for expired offsets now and then."""
        self._sweeps.start()

    def stop(self) -> None:
        """Respond to the parked requests, and run no more timers."""
        self._sweeps.stop()
        self._shards.stop()

    def on_elected(self, partition: int, log: ReplicatedLog) -> None:
        """Load a partition of ``__consumer_offsets`` that this broker leads from now on."""
        self._shards.elect(partition, log)

    def on_resigned(self, partition: int) -> None:
        """Drop a partition of ``__consumer_offsets`` that this broker does not lead any more."""
        self._shards.resign(partition)

    def on_metadata_change(self, change: MetadataChange) -> None:
        """Delete the committed offsets of topics that are gone, or replaced by others of the same name."""
        deleted = {}
        for name in change.topics:
            before, after = change.before.topic(name), change.after.topic(name)
            if before is not None and (after is None or _is_another(before, after)):
                deleted[name] = before.topic_id
        if not deleted:
            return
        for shard in self._shards.open():
            shard.offsets.note_deletions(deleted)
            changes = [OffsetCommitted(*owner, None) for owner in shard.offsets.partitions_of_topics(deleted)]
            if changes:
                shard.write_tombstones(changes, ())

    def on_txn_marker(self, partition: int, producer_id: int, *, commit: bool) -> None:
        """End a transaction: its marker was appended to this partition's log, and is not acknowledged yet.

        A shard that is still loading will meet the marker in the log.
        """
        shard = self._shards.owned.get(partition)
        if shard is not None and shard.is_open:
            shard.end_transaction(producer_id, commit=commit)

    # Membership

    def join_group(self, joining: JoiningMember, reply: JoinReply) -> None:
        shard = self._shards.find_named(joining.group_id)
        if isinstance(shard, ErrorCode):
            reply(JoinResult(error=shard, member_id=joining.member_id))
            return
        if joining.group_instance_id is not None and len(joining.group_instance_id) > LONGEST_INSTANCE_ID:
            reply(JoinResult(error=ErrorCode.INVALID_REQUEST, member_id=joining.member_id))
            return
        settings = self._settings
        timeout_ms = joining.session_timeout_ms
        if not settings.group_min_session_timeout_ms <= timeout_ms <= settings.group_max_session_timeout_ms:
            reply(JoinResult(error=ErrorCode.INVALID_SESSION_TIMEOUT, member_id=joining.member_id))
            return
        if joining.member_id != UNKNOWN_MEMBER_ID and joining.group_id not in shard.groups:
            reply(JoinResult(error=shard.verdict(ErrorCode.UNKNOWN_MEMBER_ID), member_id=joining.member_id))
            return
        group = shard.group_or_new(joining.group_id)
        state = group.state
        request = joining.to_request(self._rng)
        refusal = self.memory.validate_join(group, request)
        if refusal is None:
            step = membership.join(group, request, reply, shard.now())
        else:
            log_refusal("JoinGroup", group, refusal)
            step = membership.turn_away(group, request, reply, refusal.error, shard.now())
        log_request(group, state, f"{joining.client_id or joining.member_id} joins", joining.reason)
        shard.carry_out(group, step)

    def sync_group(self, group_id: str, request: SyncRequest, reply: SyncReply) -> None:
        shard = self._shards.find_named(group_id)
        if shard is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            # Older clients do not expect that error here; and the rebalance under way is lost, so they must rejoin.
            reply(SyncResult(error=ErrorCode.REBALANCE_IN_PROGRESS))
        elif isinstance(shard, ErrorCode):
            reply(SyncResult(error=shard))
        elif group_id not in shard.groups:
            reply(SyncResult(error=shard.verdict(ErrorCode.UNKNOWN_MEMBER_ID)))
        else:
            group, open_shard, member_id = shard.groups[group_id], shard, request.member_id
            refusal = self.memory.validate_sync(group, request)
            if refusal is not None:
                log_refusal("SyncGroup", group, refusal)
                reply(SyncResult(error=refusal.error))
                return

            def respond(result: SyncResult) -> None:
                """Begin the session now: a client that waits for its assignment sends no heartbeats.

                This is kept while the request is parked, and must not keep the request.
                """
                if result.error is ErrorCode.NONE and member_id in group.roster:
                    group.keep_alive(member_id, open_shard.now())
                reply(result)

            shard.carry_out(group, membership.sync(group, request, respond, shard.now()))

    def heartbeat(self, group_id: str, member_id: str, group_instance_id: str | None, generation: int) -> ErrorCode:
        shard = self._shards.find_named(group_id)
        if shard is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            return ErrorCode.NONE  # Sessions start anew when the group is loaded.
        if isinstance(shard, ErrorCode):
            return shard
        group = shard.groups.get(group_id)
        if group is None:
            return shard.verdict(ErrorCode.UNKNOWN_MEMBER_ID)
        return shard.verdict(membership.heartbeat(group, member_id, group_instance_id, generation, shard.now()))

    def leave_group(
        self, group_id: str, leavers: Sequence[LeavingMember], reply: Callable[[list[ErrorCode] | ErrorCode], None]
    ) -> None:
        """Remove members; the reply gets one error code per member, or one for all of them."""
        shard = self._shards.find_named(group_id)
        if isinstance(shard, ErrorCode):
            reply(shard)
            return
        group = shard.groups.get(group_id)
        if group is None:
            reply([shard.verdict(ErrorCode.UNKNOWN_MEMBER_ID)] * len(leavers))
            return
        state = group.state
        identities = [(leaver.member_id, leaver.group_instance_id) for leaver in leavers]
        errors, step = membership.leave(group, identities, shard.now())
        if group.state is not state:
            for leaver, error in zip(leavers, errors, strict=True):
                if error is ErrorCode.NONE:
                    what = f"{leaver.member_id or leaver.group_instance_id} leaves"
                    log_request(group, state, what, leaver.reason)
        if shard.log.is_deserted:
            errors = [shard.verdict(error) for error in errors]
        outcome = shard.carry_out(group, step)
        if isinstance(outcome, ErrorCode):
            reply(outcome)
        else:
            shard.waits.when_replicated(outcome, lambda error: reply(error if error else errors))

    # Offsets

    def commit_offsets(
        self,
        committer: Committer,
        offsets: Sequence[OffsetToCommit],
        reply: OnPartitionErrors,
        *,
        retention_ms: int = DEFAULT_RETENTION,
    ) -> None:
        """Commit offsets; those of a producer count when the commit marker of its transaction comes."""
        shard = self._shards.find_for_commit(committer.group_id, committer.producer)
        if isinstance(shard, ErrorCode):
            reply({offset.partition: shard for offset in offsets})
            return
        offset_requests.commit(
            shard,
            self._metadata,
            committer,
            offsets,
            reply,
            metadata_rules=self._metadata_rules,
            retention_ms=retention_ms,
        )

    def begin_commit(self, group_id: str, *, retention_ms: int = DEFAULT_RETENTION) -> LargeCommit | ErrorCode:
        """Begin a commit of many offsets, which is made in slices and then given to ``commit_at_once``."""
        shard = self._shards.find(group_id)
        if isinstance(shard, ErrorCode):
            return shard
        return LargeCommit(
            shard, self._metadata, group_id, metadata_rules=self._metadata_rules, retention_ms=retention_ms
        )

    def commit_at_once(self, committer: Committer, made: LargeCommit, reply: OnPartitionErrors) -> None:
        """Commit what was made, as ``commit_offsets`` would."""
        shard = self._shards.find_for_commit(committer.group_id, committer.producer)
        if isinstance(shard, ErrorCode):
            made.refuse(shard, reply)
        elif shard is not made.shard:  # It was resigned in a pause, and loaded anew.
            made.refuse(ErrorCode.NOT_COORDINATOR, reply)
        else:
            made.commit(committer, reply)

    def fetch_offsets(
        self,
        group_id: str,
        partitions: Sequence[tuple[TopicPartition, bytes]] | None,
        reply: OnFetchedOffsets,
        budget: WorkBudget,
        *,
        require_stable: bool,
    ) -> Generator[None, object, int]:
        """Fetch offsets in slices and return how many; yields when the budget is used up.

        ``reply`` is called once, possibly later. Partitions come with their topic's id, or ZERO_UUID; None asks for all
        that the group has committed.
        """
        shard = self._shards.find(group_id)
        if isinstance(shard, ErrorCode):
            reply(shard)
            return 0
        if shard.log.is_deserted:
            reply(ErrorCode.NOT_COORDINATOR)  # All that consumers before 3.9 expect of a coordinator that is away.
            return 0
        fetched = yield from offset_requests.fetch(shard, group_id, partitions, budget, require_stable=require_stable)
        if self._shards.find(group_id) is shard:
            offset_requests.reply_fetched_when_replicated(shard, group_id, fetched, reply)
        else:  # It was resigned in a pause.
            reply(ErrorCode.NOT_COORDINATOR)
        return len(fetched)

    def delete_offsets(
        self,
        group_id: str,
        partitions: Sequence[TopicPartition],
        reply: Callable[[PartitionErrors | ErrorCode], None],
    ) -> None:
        shard = self._shards.find_named(group_id)
        if isinstance(shard, ErrorCode):
            reply(shard)
        elif shard.log.is_deserted:
            reply(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        else:
            offset_requests.delete(shard, group_id, partitions, reply)

    # Groups as a whole

    def open_shards(self) -> list[GroupShard]:
        """Return the shards that are loaded, for reading only."""
        return self._shards.open()

    @property
    def load_times(self) -> LoadTimes:
        """How long the loads of partitions took."""
        return self._shards.load_times

    @property
    def offset_counts(self) -> OffsetCounts:
        """How many offsets were committed, expired and deleted."""
        return self._shards.offset_counts

    def list_groups(self) -> tuple[ErrorCode, list[GroupOverview]]:
        """Return all groups of this coordinator. With COORDINATOR_LOAD_IN_PROGRESS: those that are loaded so far.

        A partition that could not be read does not keep the others from being listed.
        """
        error = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if self._shards.is_loading else ErrorCode.NONE
        groups = [group for shard in self._shards.open() for group in shard.groups.values()]
        return error, [
            GroupOverview(group_id=group.group_id, protocol_type=group.protocol_type or "", state=group.state)
            for group in groups
        ]

    def describe_group(self, group_id: str) -> GroupDescription | ErrorCode:
        """Return a group in detail; GROUP_ID_NOT_FOUND for a group that does not exist."""
        shard = self._shards.find(group_id)
        if isinstance(shard, ErrorCode):
            return shard
        group = shard.groups.get(group_id)
        return shard.verdict(ErrorCode.GROUP_ID_NOT_FOUND) if group is None else _describe(group)

    def delete_groups(self, group_ids: Sequence[str], reply: Callable[[dict[str, ErrorCode]], None]) -> None:
        """Delete groups; each gets its own error code. Groups of one shard are deleted as one batch."""
        errors: dict[str, ErrorCode] = {}
        by_shard: dict[int, tuple[GroupShard, list[str]]] = {}
        for group_id in dict.fromkeys(group_ids):
            shard = self._shards.find(group_id)
            if isinstance(shard, ErrorCode):
                errors[group_id] = shard
            elif shard.log.is_deserted:
                errors[group_id] = ErrorCode.COORDINATOR_NOT_AVAILABLE
            else:
                by_shard.setdefault(shard.partition, (shard, []))[1].append(group_id)
        waiting = len(by_shard)

        def on_deleted(outcome: dict[str, ErrorCode]) -> None:
            nonlocal waiting
            waiting -= 1
            errors.update(outcome)
            if waiting == 0:
                reply(errors)

        for shard, ids in by_shard.values():
            offset_requests.delete_groups(shard, ids, on_deleted)
        if not by_shard:
            reply(errors)

    def partition_for(self, group_id: str) -> int | None:
        """Return the partition of ``__consumer_offsets`` of a group; None while that topic is not known."""
        return self._shards.partition_for(group_id)

    def availability(self, group_id: str) -> ErrorCode:
        """Return why this broker does not serve the members of a group now; NONE if it does."""
        shard = self._shards.find_named(group_id)
        return shard if isinstance(shard, ErrorCode) else ErrorCode.NONE


def _is_another(before: TopicImage, after: TopicImage) -> bool:
    return before.topic_id != after.topic_id and ZERO_UUID not in (before.topic_id, after.topic_id)


def _describe(group: Group) -> GroupDescription:
    name = group.protocol_name if group.state is GroupState.STABLE else None
    members = []
    for member in group.roster:
        subscription, assignment = (b"", b"") if name is None else (member.metadata(name), member.assignment)
        members.append(member.image(subscription, assignment))
    return GroupDescription(
        state=group.state,
        protocol_type=group.protocol_type or "",
        protocol_name=name or "",
        members=tuple(members),
    )
