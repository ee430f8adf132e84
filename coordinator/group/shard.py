"""One partition of ``__consumer_offsets`` under one leadership: its groups, their offsets, its log and its timers.

Changes are decided elsewhere, written here, and applied as soon as the local log has them, by the same functions that
replay the log when a partition is loaded. If the log refuses a batch, nothing of it happened. A response waits
until the high watermark has passed what it depends on (``ReplicationWaits``): that of a commit its own records, that
of an OffsetFetch the last change of its group, that of a SyncGroup the record with the assignment. So no response says
what a new leader might not know. When the leadership ends the shard is dropped whole, and parked requests get an error.

Every group has at most one timer, for its nearest deadline. Heartbeats only move deadlines away, so they leave the
timer alone; it fires too early now and then and is set again. While the log is deserted it changes nothing.

Responses leave a connection in the order of their requests, so a commit that waits for replication holds up the
heartbeats behind it, and a client without heartbeat responses ends its session by itself. A member's commit therefore
waits for a quarter of the member's session time-out at most.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Final, NamedTuple

from oncelog.coordinator.group.group import Group
from oncelog.coordinator.group.log_lines import log_deadline, log_transition
from oncelog.coordinator.group.log_records import (
    EncodedRecord,
    GroupRecord,
    OffsetCommitted,
    decode_record,
    encode_group_metadata,
    encode_offset_commit,
)
from oncelog.coordinator.group.member import UNKNOWN_MEMBER_ID, Instant, JoinReply, JoinResult, SyncReply, SyncResult
from oncelog.coordinator.group.memory import GroupMemory
from oncelog.coordinator.group.offset_counts import OffsetCounts
from oncelog.coordinator.group.offsets import CommittedOffset, OffsetStore
from oncelog.coordinator.group.replication_waits import ReplicationWaits
from oncelog.coordinator.group.settings import GroupSettings
from oncelog.coordinator.group.state import GroupState, Step
from oncelog.coordinator.log_errors import coordinator_error
from oncelog.coordinator.ports import ReplicatedLog, WallClock
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.records.control_records import parse_end_txn_marker
from oncelog.protocol.records.record_batch import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    BatchHeader,
    NewRecord,
    batch_of_encoded,
    build_batch,
    iter_records,
)
from oncelog.protocol.schema import Buffer
from oncelog.protocol.topic_partition import TopicPartition

logger = logging.getLogger(__name__)

SESSION_PARTS: Final = 4
"""A member's commit holds up its heartbeats for one of these parts of its session time-out at most."""
_LOOK_MS: Final = 500
"""How often the deadlines of groups whose log is deserted are looked at again."""
_RESPONSES_IN_A_TURN: Final = 500
"""Members of one group whose parked requests get their responses in one turn of the loop."""
_DISMISSALS: Final = frozenset(
    {
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
        ErrorCode.GROUP_MAX_SIZE_REACHED,
        ErrorCode.GROUP_ID_NOT_FOUND,
    }
)
"""Errors after which a client gives up its membership, or ends."""

MAX_DECOMPRESSED_BYTES: Final = 256 * 1024 * 1024
"""Batches in this log are our own or another Kafka's: the bound only keeps a corrupt one from taking all memory."""


class Producer(NamedTuple):
    """The producer that commits offsets inside a transaction."""

    id: int
    epoch: int


NO_PRODUCER: Final = Producer(NO_PRODUCER_ID, NO_PRODUCER_EPOCH)


class GroupShard:
    """The groups of one partition. It serves no request before it is ``open``."""

    def __init__(
        self,
        partition: int,
        log: ReplicatedLog,
        settings: GroupSettings,
        wall_clock: WallClock,
        memory: GroupMemory,
        offset_counts: OffsetCounts,
    ) -> None:
        self.partition = partition
        self.log = log
        self.groups: dict[str, Group] = {}
        self.offsets = OffsetStore()
        self.offset_counts = offset_counts
        """Of the whole coordinator."""
        self.is_open = False
        self._settings = settings
        self._rules = settings.rules()
        self._wall_clock = wall_clock
        self._memory = memory
        self._had_offsets: set[str] = set()
        """Groups that offsets were committed for: without any, too, they exist until they are deleted or swept."""
        self._written: dict[str, int] = {}
        """Group id → the end of the last record or marker that changed the group."""
        self._timers: dict[str, tuple[float, asyncio.TimerHandle]] = {}
        self.waits = ReplicationWaits(log, settings.offsets_commit_timeout_ms)

    # Becoming and ceasing to be the coordinator

    def replay(self, buffer: Buffer, position: int, header: BatchHeader) -> None:
        """Replay one batch of the log."""
        if header.is_control:
            marker = parse_end_txn_marker(buffer, position, header)
            if marker is not None:
                self.offsets.end_transaction(header.producer_id, commit=marker.commit)
            return
        producer_id = header.producer_id if header.is_transactional else NO_PRODUCER_ID
        for record in iter_records(buffer, position, header, max_decompressed_bytes=MAX_DECOMPRESSED_BYTES):
            says = decode_record(record)
            if isinstance(says, int):
                logger.warning("Passed over a record of type %d in __consumer_offsets-%d", says, self.partition)
            else:
                self._replay_record(says, record.offset, producer_id)

    def _replay_record(self, says: GroupRecord, record_offset: int, producer_id: int) -> None:
        if isinstance(says, OffsetCommitted):
            self._apply_offset(says, record_offset, producer_id)
        elif says.image is None:
            self.groups.pop(says.group_id, None)
            self._had_offsets.discard(says.group_id)
        else:
            self.groups[says.group_id] = Group.from_image(says.group_id, says.image, self._rules)

    def open(self) -> None:
        """Serve: all of the log is replayed and replicated."""
        for group_id in self._had_offsets:
            self.group_or_new(group_id)
        self.is_open = True
        for group in list(self.groups.values()):
            self.carry_out(group, group.resume(self.now()))

    def close(self) -> None:
        """End with the leadership: members with parked requests must find the next coordinator."""
        self.is_open = False
        self.waits.stop()
        for _, timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        for group in self.groups.values():
            self._respond(group, group.retire(), 0)
            self._memory.forget(group)
        self.groups.clear()

    # Writing

    def append(self, records: Iterable[EncodedRecord], producer: Producer = NO_PRODUCER) -> int | ErrorCode:
        """Append a batch; return its end offset, or the log's refusal. A producer's batch has no sequence."""
        now_ms = self._wall_clock()
        batch = build_batch(
            [NewRecord(now_ms, key, value) for key, value in records],
            compression=self._settings.offsets_topic_compression_codec,
            producer_id=producer.id,
            producer_epoch=producer.epoch,
            is_transactional=producer.id != NO_PRODUCER_ID,
        )
        return self.log.append(batch)

    def write_offsets(self, changes: Sequence[OffsetCommitted], producer: Producer = NO_PRODUCER) -> int | ErrorCode:
        """Write commits and tombstones of offsets as one batch, and apply them."""
        end = self.append([encode_offset_commit(*change) for change in changes], producer)
        if isinstance(end, ErrorCode):
            return end
        for record_offset, change in enumerate(changes, end - len(changes)):
            self._apply_offset(change, record_offset, producer.id)
            if change.committed is not None:
                self.group_or_new(change.group_id)
                self.offset_counts.committed += 1
            self._written[change.group_id] = end
        return end

    def write_commit(
        self,
        group_id: str,
        partitions: Sequence[TopicPartition],
        committed: Sequence[CommittedOffset],
        records: Sequence[bytes],
        timestamp_ms: int,
        producer: Producer,
    ) -> int | ErrorCode:
        """Write a commit of many offsets as one batch, and apply it. ``records`` are encoded, all of that time."""
        batch = batch_of_encoded(
            records,
            timestamp=timestamp_ms,
            compression=self._settings.offsets_topic_compression_codec,
            producer_id=producer.id,
            producer_epoch=producer.epoch,
            is_transactional=producer.id != NO_PRODUCER_ID,
        )
        end = self.log.append(batch)
        if isinstance(end, ErrorCode):
            return end
        first = end - len(records)
        self.offset_counts.committed += len(records)
        self.offsets.commit_all(group_id, partitions, committed, record_offset=first, producer_id=producer.id)
        self._had_offsets.add(group_id)
        self.group_or_new(group_id)
        self._written[group_id] = end
        return end

    def write_tombstones(self, changes: Sequence[OffsetCommitted], group_ids: Sequence[str]) -> int | ErrorCode:
        """Forget offsets and whole groups, as one batch. Groups that a reload would not find need no record."""
        written = [
            group_id
            for group_id in group_ids
            if self.groups[group_id].persisted is not None or group_id in self._had_offsets
        ]
        records = [encode_offset_commit(*change) for change in changes]
        records += [encode_group_metadata(group_id, None) for group_id in written]
        end = self.append(records) if records else self.log.log_end_offset
        if isinstance(end, ErrorCode):
            return end
        for change in changes:
            self.offsets.remove(change.group_id, change.partition)
            self._written[change.group_id] = end
        for group_id in group_ids:
            self._drop(self.groups[group_id])
        for change in changes:
            self._drop_if_void(change.group_id)
        return end

    def end_transaction(self, producer_id: int, *, commit: bool) -> None:
        """Apply a marker that has just been appended to this log."""
        for group_id in self.offsets.end_transaction(producer_id, commit=commit):
            self._written[group_id] = self.log.log_end_offset
            self._drop_if_void(group_id)

    def _apply_offset(self, change: OffsetCommitted, record_offset: int, producer_id: int) -> None:
        group_id, partition, committed = change
        if committed is None:
            self.offsets.remove(group_id, partition)
        else:
            self.offsets.commit(group_id, partition, committed, record_offset=record_offset, producer_id=producer_id)
            self._had_offsets.add(group_id)

    # Groups

    def group_or_new(self, group_id: str) -> Group:
        group = self.groups.get(group_id)
        if group is None:
            group = self.groups[group_id] = Group(group_id, self._rules)
        return group

    def carry_out(self, group: Group, step: Step) -> int | ErrorCode:
        """Write the transition of a step, and send its responses.

        Returns the end offset that a promise about this step depends on (0: none), or the error of a refused record.
        """
        outcome: int | ErrorCode = 0
        self._respond(group, step, 0)
        if step.transition is not None:
            outcome = self.append([encode_group_metadata(group.group_id, step.transition.image)])
            if isinstance(outcome, ErrorCode):
                outcome = coordinator_error(outcome)
                self._respond(group, group.refuse(step.transition, outcome, self.now()), 0)
            else:
                self._written[group.group_id] = outcome
                state = group.state
                applied = group.apply(step.transition, self.now())
                log_transition(group, state, step.transition)
                self._respond(group, applied, outcome)
        self._memory.note(group)
        self._set_timer(group)
        self._drop_if_void(group.group_id)
        return outcome

    def _respond(self, group: Group, step: Step, end_offset: int) -> None:
        written = self.written(group.group_id)
        responses = [partial(self._respond_to_join, reply, joined, end_offset) for reply, joined in step.joins]
        responses += [partial(self._respond_to_sync, reply, synced, written) for reply, synced in step.syncs]
        _call_in_slices(responses)

    def _respond_to_join(self, reply: JoinReply, result: JoinResult, end_offset: int) -> None:
        if result.error is not ErrorCode.NONE:
            reply(replace(result, error=self.verdict(result.error)))
            return
        self.waits.when_replicated(
            end_offset,
            lambda error: reply(JoinResult(error=error, member_id=UNKNOWN_MEMBER_ID) if error else result),
        )

    def _respond_to_sync(self, reply: SyncReply, result: SyncResult, end_offset: int) -> None:
        if result.error is not ErrorCode.NONE:
            reply(replace(result, error=self.verdict(result.error)))
            return
        self.waits.when_replicated(end_offset, lambda error: reply(SyncResult(error=error) if error else result))

    def verdict(self, error: ErrorCode) -> ErrorCode:
        """Return the error for a member. A deserted coordinator dismisses no member: its successor may know it."""
        return ErrorCode.COORDINATOR_NOT_AVAILABLE if error in _DISMISSALS and self.log.is_deserted else error

    def _drop_if_void(self, group_id: str) -> None:
        """Forget a group of which nothing is left that a reload would find."""
        group = self.groups.get(group_id)
        if group is None or group.state is not GroupState.EMPTY or group.persisted is not None:
            return
        if not group.pending_members and group_id not in self._had_offsets:
            self._drop(group)

    def _drop(self, group: Group) -> None:
        self._respond(group, group.retire(), 0)
        self._memory.forget(group)
        del self.groups[group.group_id]
        self._had_offsets.discard(group.group_id)
        self._cancel_timer(group.group_id)

    # Time

    def now(self) -> Instant:
        return Instant(asyncio.get_running_loop().time(), self._wall_clock())

    def _set_timer(self, group: Group) -> None:
        deadline = group.next_deadline()
        if deadline is None:
            self._cancel_timer(group.group_id)
            return
        timer = self._timers.get(group.group_id)
        if timer is None or deadline < timer[0]:
            self._cancel_timer(group.group_id)
            handle = asyncio.get_running_loop().call_at(deadline, self._on_timer, group)
            self._timers[group.group_id] = (deadline, handle)

    def _cancel_timer(self, group_id: str) -> None:
        timer = self._timers.pop(group_id, None)
        if timer is not None:
            timer[1].cancel()

    def _on_timer(self, group: Group) -> None:
        """Do what is due, unless the log is deserted: what becomes of the group then is not for this broker to say."""
        del self._timers[group.group_id]
        if self.log.is_deserted:
            loop = asyncio.get_running_loop()
            due = loop.time() + _LOOK_MS / 1000
            self._timers[group.group_id] = (due, loop.call_at(due, self._on_timer, group))
        else:
            state = group.state
            step = group.expire(self.now())
            log_deadline(group, state, step.expired)
            self.carry_out(group, step)

    # Waiting for the high watermark

    def written(self, group_id: str) -> int:
        """Return the offset that must be replicated before a response may rest on the group's state."""
        return self._written.get(group_id, 0)

    def forget_replicated(self) -> None:
        """Drop the bookkeeping of what is replicated."""
        high_watermark = self.log.high_watermark
        self._written = {group_id: end for group_id, end in self._written.items() if end > high_watermark}


def _call_in_slices(calls: Sequence[Callable[[], None]]) -> None:
    """Call some now and the others in the next turns of the loop: each has a response encoded and sent."""
    for call in calls[:_RESPONSES_IN_A_TURN]:
        call()
    if len(calls) > _RESPONSES_IN_A_TURN:
        asyncio.get_running_loop().call_soon(_call_in_slices, calls[_RESPONSES_IN_A_TURN:])
