"""A partition on this broker: who leads it, how far it is replicated, and who waits for that.

``Partition`` wraps a ``PartitionLog`` and adds what a log does not know: leadership with its epochs, the in-sync
replicas, and everybody who must hear when data becomes visible. All calls are plain functions on the event loop, so an
append and all of its effects are one step; nothing can come between the check of leadership and the write.

An append, in order: leadership and, for acks=all, enough in-sync replicas; the log's own checks and the write; then the
high watermark moves if it may, which marks the fetch sessions that watch this partition and releases those who wait for
replication. Where this broker is the only replica all of that happens before ``append`` returns.

A log that fails ends the term: its manager calls ``stop`` from within the operation that failed.

Flush policy: with ``flush.messages=1`` nothing counts as written before it is fsynced. Appends of one turn of the loop
share one fsync, off the loop; the leader's share of the high watermark is then what is flushed, and acks=1 waits for
the flush too. Larger intervals start a flush in the background and hold nobody back.

Invariants:
* high watermark ≤ what every member of the maximal ISR has; it does not move while the ISR is below its minimum.
* A waiter is called exactly once: when its offset is reached, or with the reason why this broker cannot say any more.
* Waiters of one partition are called in the order of their offsets.
* A *term* is an unbroken time as leader. A new leader epoch of the same leader goes on with the term and its waiters.

What is left out for now: followers. The leader's side of their fetches will report their ends (``follower_ends``) and
call ``advance_high_watermark``; nothing else here changes.
"""

import logging
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeAlias

from broker.replication.fetch_session import FetchPosition
from broker.replication.isr import InSyncReplicas
from broker.replication.leader_term import LeaderTerm
from broker.replication.offset_waiters import OffsetWaiters, OnReached
from broker.storage.log_config import NO_LIMIT
from broker.storage.partition_log import AppendInfo, AppendOrigin, PartitionLog
from protocol.errors import ErrorCode
from protocol.messages.leader_and_isr import LeaderAndIsrPartitionState
from protocol.records.record_batch import BatchHeader
from protocol.schema import ZERO_UUID
from protocol.topic_partition import TopicPartition

logger = logging.getLogger(__name__)

NO_LEADER: Final = -1
NO_EPOCH: Final = -1
ACKS_ALL: Final = -1
_TO_HIGH_WATERMARK: Final = -1
_NOBODY: Final = InSyncReplicas(replicas=(), isr=frozenset())

Spawn: TypeAlias = Callable[[Coroutine[Any, Any, None], str], object]


class Partition:
    """One partition that has a replica here. `ReplicaManager` is the only one that changes its leadership."""

    __slots__ = (
        "_alone",
        "_broker_id",
        "_flush_waiters",
        "_flushing",
        "_led_log",
        "_replication_waiters",
        "_spawn",
        "_watchers",
        "bytes_in",
        "bytes_out",
        "epoch_start_offset",
        "follower_ends",
        "in_sync",
        "leader_epoch",
        "leader_id",
        "log",
        "messages_in",
        "partition_epoch",
        "term",
        "topic_id",
        "topic_partition",
    )

    def __init__(self, topic_partition: TopicPartition, *, broker_id: int, spawn: Spawn) -> None:
        self.topic_partition = topic_partition
        self.topic_id = ZERO_UUID
        self.log: PartitionLog | None = None
        self.leader_id = NO_LEADER
        self.leader_epoch = NO_EPOCH
        self.partition_epoch = NO_EPOCH
        self.in_sync = _NOBODY
        self.follower_ends: dict[int, int] = {}
        """Log end offsets that the followers reported, by broker."""
        self.epoch_start_offset = 0
        """Where this leader epoch began: until the high watermark is there, the end of the log is not known to all."""
        self.term: LeaderTerm | None = None
        self.messages_in = self.bytes_in = self.bytes_out = 0
        """Appended here as leader, and answered to fetches, since this broker has the replica."""
        self._led_log: PartitionLog | None = None
        """The log while this broker leads, else None: one look answers both questions on the hot path."""
        self._alone = False
        self._broker_id = broker_id
        self._spawn = spawn
        self._flushing = False
        self._replication_waiters = OffsetWaiters()
        self._flush_waiters = OffsetWaiters()
        self._watchers: dict[FetchPosition, None] = {}

    # Leadership

    @property
    def is_leader(self) -> bool:
        return self._led_log is not None

    @property
    def led_log(self) -> PartitionLog | None:
        """The log, if this broker leads and may write to it."""
        return self._led_log

    @property
    def failed(self) -> bool:
        return self.log is not None and self.log.failed

    @property
    def isr(self) -> frozenset[int]:
        return self.in_sync.isr

    @property
    def replicas(self) -> tuple[int, ...]:
        return self.in_sync.replicas

    @property
    def unavailable_error(self) -> ErrorCode:
        """What to answer while ``led_log`` is None."""
        return ErrorCode.KAFKA_STORAGE_ERROR if self.failed else ErrorCode.NOT_LEADER_OR_FOLLOWER

    def become_leader(self, state: LeaderAndIsrPartitionState, log: PartitionLog) -> bool:
        """Lead at the epoch of ``state``. Returns whether a new term began."""
        begins = self._led_log is None
        if state.leader_epoch > self.leader_epoch:
            # Followers that have records of a later epoch than ours must find this epoch's start to truncate to.
            log.assign_epoch(state.leader_epoch)
            self.epoch_start_offset = log.log_end_offset
            self.follower_ends.clear()
        self._take_state(state, log)
        if log.failed:
            return False
        self._led_log = log
        if begins:
            self.term = LeaderTerm(self, log, state.leader_epoch)
        self.advance_high_watermark()
        self._disturb_watchers()
        return begins

    def become_follower(self, state: LeaderAndIsrPartitionState, log: PartitionLog) -> bool:
        """Stop leading, if this broker did. Returns whether a term ended."""
        ended = self.is_leader
        self._take_state(state, log)
        self._end_term(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return ended

    def stop(self, error: ErrorCode) -> bool:
        """This broker has no replica any more, or cannot reach it. Returns whether a term ended."""
        ended = self.is_leader
        self._end_term(error)
        return ended

    def _take_state(self, state: LeaderAndIsrPartitionState, log: PartitionLog) -> None:
        self.log = log
        self.leader_id = state.leader
        self.leader_epoch = state.leader_epoch
        self.partition_epoch = state.partition_epoch
        self.in_sync = InSyncReplicas(replicas=tuple(state.replicas), isr=frozenset(state.isr))
        self._alone = self.in_sync.replicas == (self._broker_id,)

    def _end_term(self, error: ErrorCode) -> None:
        if self._led_log is not None:
            self._led_log.producer_state.forget_verifications()
        self._led_log = None
        self.term = None
        self._replication_waiters.fail(error)
        self._flush_waiters.fail(error)
        self._disturb_watchers()

    # Writing

    def append(
        self,
        batch: bytearray | memoryview,
        header: BatchHeader,
        *,
        origin: AppendOrigin,
        required_acks: int,
        transaction_version: int = 0,
    ) -> AppendInfo | ErrorCode:
        """Append one validated batch as leader, with all effects that need no waiting.

        ``transaction_version``: of the transaction that a marker ends.
        """
        log = self._led_log
        if log is None:
            return self.unavailable_error
        if required_acks == ACKS_ALL and not self._alone:
            if self.in_sync.is_under_min_isr(log.config.min_insync_replicas):
                log.producer_state.refuse(header)
                return ErrorCode.NOT_ENOUGH_REPLICAS
        info = log.append_as_leader(batch, header, self.leader_epoch, origin, transaction_version)
        if not isinstance(info, ErrorCode) and not info.duplicate:
            self.messages_in += header.records_count
            self.bytes_in += header.size
            flush_interval = log.config.flush_interval_messages
            if flush_interval != NO_LIMIT and log.log_end_offset - log.flushed_offset >= flush_interval:
                self._flush_soon(log)
            self.advance_high_watermark(info.base_offset, header.size)
        return info

    def delete_records(self, offset: int) -> int | ErrorCode:
        """Move the log's start to ``offset`` (-1: to the high watermark). Returns the lowest start of all replicas."""
        log = self._led_log
        if log is None:
            return self.unavailable_error
        if log.config.compacts and not log.config.deletes:
            return ErrorCode.POLICY_VIOLATION
        if offset == _TO_HIGH_WATERMARK:
            offset = log.high_watermark
        if offset < 0:
            return ErrorCode.OFFSET_OUT_OF_RANGE
        error = log.advance_log_start_offset(offset)
        if error:
            return error
        for position in self._watchers:
            position.session.progressed(position, -1, 0)
        return log.log_start_offset

    def advance_high_watermark(self, base_offset: int = -1, size: int = 0) -> None:
        """Let the high watermark go as far as it may; an append that caused this says what it wrote."""
        log = self._led_log
        assert log is not None
        end = _own_end(log)
        if not self._alone:
            if self.in_sync.is_under_min_isr(log.config.min_insync_replicas):
                return
            end = self.in_sync.replicated_end(self._broker_id, end, self.follower_ends)
        if end <= log.high_watermark:
            return
        log.update_high_watermark(end)
        for position in self._watchers:
            position.session.progressed(position, base_offset, size)
        if self._replication_waiters:
            self._replication_waiters.release(end)

    def is_acknowledged(self, end_offset: int, required_acks: int) -> bool:
        """Whether what ends at ``end_offset`` is as durable as ``required_acks`` asks."""
        log = self._led_log
        if log is None:
            return False
        return (log.high_watermark if required_acks == ACKS_ALL else _own_end(log)) >= end_offset

    def when_acknowledged(self, end_offset: int, required_acks: int, callback: OnReached) -> None:
        """Call back once: with NONE as soon as ``is_acknowledged`` (at once if it is), or with why it never will be."""
        if self._led_log is None:
            callback(self.unavailable_error)
        elif self.is_acknowledged(end_offset, required_acks):
            callback(ErrorCode.NONE)
        else:
            self._waiters(required_acks).add(end_offset, callback)

    def when_replicated(self, end_offset: int, callback: OnReached) -> None:
        """``when_acknowledged`` for acks=all."""
        self.when_acknowledged(end_offset, ACKS_ALL, callback)

    def forget_waiter(self, required_acks: int, callback: OnReached) -> None:
        self._waiters(required_acks).forget(callback)

    def _waiters(self, required_acks: int) -> OffsetWaiters:
        return self._replication_waiters if required_acks == ACKS_ALL else self._flush_waiters

    def _flush_soon(self, log: PartitionLog) -> None:
        if not self._flushing:
            self._flushing = True
            self._spawn(self._flush(log), f"flush of {self.topic_partition}")

    async def _flush(self, log: PartitionLog) -> None:
        """Starts in the next turn of the loop, so that all appends of this one share the fsync."""
        try:
            while (
                self._led_log is log and log.log_end_offset - log.flushed_offset >= log.config.flush_interval_messages
            ):
                await log.flush_off_loop()
                if self._led_log is log:
                    self._flush_waiters.release(_own_end(log))
                if self._led_log is log:  # A waiter's callback may have ended the term.
                    self.advance_high_watermark()
        finally:
            self._flushing = False

    # Reading

    @property
    def watcher_count(self) -> int:
        return len(self._watchers)

    def add_watcher(self, position: FetchPosition) -> None:
        self._watchers[position] = None

    def remove_watcher(self, position: FetchPosition) -> None:
        self._watchers.pop(position, None)

    def visible_end(self, read_committed: bool) -> int:
        """The offset below which a consumer of this isolation level may read."""
        log = self._led_log
        if log is None:
            return 0
        return log.last_stable_offset if read_committed else log.high_watermark

    def size_between(self, start_offset: int, end_offset: int) -> int:
        """About how many bytes the log has there."""
        return 0 if self._led_log is None else self._led_log.size_between(start_offset, end_offset)

    def _disturb_watchers(self) -> None:
        for position in self._watchers:
            position.session.disturbed(position)

    def check_leader_epoch(self, current_leader_epoch: int) -> ErrorCode:
        """Compare the epoch that a client believes in with ours (KIP-320); -1 means that it has no opinion."""
        if current_leader_epoch == NO_EPOCH or current_leader_epoch == self.leader_epoch:
            return ErrorCode.NONE
        if current_leader_epoch < self.leader_epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        return ErrorCode.UNKNOWN_LEADER_EPOCH

    @property
    def end_is_settled(self) -> bool:
        """Whether the high watermark has reached this leader epoch's start, so that it cannot appear to go back."""
        return self.log is not None and self.log.high_watermark >= self.epoch_start_offset


def _own_end(log: PartitionLog) -> int:
    """What this replica alone can answer for."""
    return log.flushed_offset if log.config.flush_interval_messages == 1 else log.log_end_offset
