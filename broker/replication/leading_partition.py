"""A partition while this broker leads it: appends, acknowledgements, the high watermark.

The object lives as long as this broker leads without a break; a new leader epoch of the same leader goes on with it and
its waiters. Once the leadership has ended it refuses everything, and the next leadership is another object, so a caller
that still holds the old one can do no harm. All calls are plain functions on the event loop, so an append and all its
effects are one step; nothing can come between the check of leadership and the write.

An append, in order: for acks=all, enough in-sync replicas; the log's own checks and the write; then the high watermark
moves if it may, which marks the fetch sessions that watch this partition and releases the waiters for replication.
Where this broker is the only replica all of that happens before ``append`` returns.

Flush policy: with ``flush.messages=1`` nothing counts as written before it is fsynced. Appends of one turn of the loop
share one fsync, off the loop; the leader's share of the high watermark is then what is flushed, and acks=1 waits for
the flush too. Larger intervals start a flush in the background and hold no request back. A leadership begins with the
flush of what the log has: a producer that repeats its batches appends nothing, and a coordinator that loads must not,
so no append need come that would flush it.

Invariants:
* high watermark ≤ what every member of the maximal ISR has; it does not move while the ISR is below its minimum.
* A waiter is called exactly once: when its offset is reached, or with the reason why this broker will never reach it.
* Waiters of one partition are called in the order of their offsets.
"""

from typing import Final

from oncelog.broker.replication.deletion import Deletion
from oncelog.broker.replication.offset_waiters import OffsetWaiters, OnReached
from oncelog.broker.replication.replica_host import ReplicaHost
from oncelog.broker.replication.replica_progress import ReplicaProgress
from oncelog.broker.replication.topic_traffic import TopicTraffic
from oncelog.broker.replication.watchers import Watchers
from oncelog.broker.storage.log_config import NO_LIMIT
from oncelog.broker.storage.partition_log import AppendInfo, AppendOrigin, PartitionLog
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.leader_and_isr import LeaderAndIsrPartitionState
from oncelog.protocol.records.control_records import EndTxnMarker
from oncelog.protocol.records.record_batch import BatchHeader
from oncelog.protocol.topic_partition import TopicPartition

ACKS_ALL: Final = -1
_TO_HIGH_WATERMARK: Final = -1


class LeadingPartition:
    """One unbroken leadership of one partition."""

    __slots__ = (
        "__weakref__",
        "_deletion_waiters",
        "_ended_by",
        "_flush_waiters",
        "_flushing",
        "_host",
        "_replication_waiters",
        "_watchers",
        "log",
        "progress",
        "since_ms",
        "topic_partition",
        "traffic",
    )

    def __init__(
        self,
        topic_partition: TopicPartition,
        host: ReplicaHost,
        log: PartitionLog,
        state: LeaderAndIsrPartitionState,
        *,
        watchers: Watchers,
        traffic: TopicTraffic,
    ) -> None:
        self.topic_partition = topic_partition
        self.since_ms = host.now_ms()
        """When it began, by the host's clock."""
        self.log = log
        """For reading only."""
        self.progress = ReplicaProgress(topic_partition, host, log, state, self.advance_high_watermark)
        self._host = host
        self._watchers = watchers
        self.traffic = traffic
        self._ended_by = ErrorCode.NONE
        self._flushing = False
        self._replication_waiters = OffsetWaiters()
        self._flush_waiters = OffsetWaiters()
        self._deletion_waiters: OffsetWaiters | None = None
        """Made when it is needed, which is hardly ever."""

    @property
    def is_over(self) -> bool:
        """Whether this broker leads no more."""
        return self._ended_by is not ErrorCode.NONE

    @property
    def leader_epoch(self) -> int:
        """The present one: the leadership may go on for several."""
        return self.progress.leader_epoch

    def begin_epoch(self, state: LeaderAndIsrPartitionState, *, elected: bool) -> None:
        """Lead at the epoch of ``state``; ``elected``: it is a new one."""
        self.progress.begin_epoch(state, elected=elected)
        if self._is_flush_due:
            self._flush_soon()
        self.advance_high_watermark()

    def end(self, error: ErrorCode) -> None:
        """Refuse everything from now on, and fail all who wait, with ``error``."""
        self.progress.withdraw_proposal()
        self._ended_by = error
        self.log.producer_state.forget_undecided()
        self.progress.followers.clear()
        self._replication_waiters.fail(error)
        self._flush_waiters.fail(error)
        if self._deletion_waiters is not None:
            self._deletion_waiters.fail(error)

    # Appends

    def append(
        self,
        batch: bytearray | memoryview,
        header: BatchHeader,
        *,
        origin: AppendOrigin,
        required_acks: int,
        marker: EndTxnMarker | None = None,
        transaction_version: int = 0,
    ) -> AppendInfo | ErrorCode:
        """Append one validated batch, with all effects that need no waiting.

        ``marker``: what a control batch says, if it was built here; ``transaction_version``: of what it ends.
        """
        if self._ended_by:
            return self._ended_by
        log, progress = self.log, self.progress
        is_alone = progress.is_alone
        if required_acks == ACKS_ALL and not is_alone:
            if progress.in_sync.is_under_min_isr(log.config.min_insync_replicas):
                log.producer_state.refuse(header)
                return ErrorCode.NOT_ENOUGH_REPLICAS
        info = log.append_as_leader(batch, header, progress.leader_epoch, origin, marker, transaction_version)
        if isinstance(info, AppendInfo) and not info.duplicate:
            size, traffic = len(batch), self.traffic
            traffic.messages_in += header.records_count
            traffic.bytes_in += size
            if not is_alone:
                for position in self._watchers.followers:
                    position.session.appended(position, info.base_offset, size)
            if self._is_flush_due:
                self._flush_soon()
            self.advance_high_watermark(info.base_offset, size)
        return info

    def advance_high_watermark(self, base_offset: int = -1, size: int = 0) -> None:
        """Let the high watermark go as far as it may; an append that caused this says what it wrote."""
        log, progress = self.log, self.progress
        end = _own_end(log)
        if not progress.is_alone:
            if progress.in_sync.is_under_min_isr(log.config.min_insync_replicas):
                return
            end = progress.replicated_end(end)
        if end <= log.high_watermark:
            return
        log.update_high_watermark(end)
        for position in self._watchers.consumers:
            position.session.progressed(position, base_offset, size)
        for position in self._watchers.followers:
            position.session.high_watermark_moved(position)
        if self._replication_waiters.lowest <= end:
            self._replication_waiters.release(end)

    @property
    def _is_flush_due(self) -> bool:
        log = self.log
        interval = log.config.flush_interval_messages
        return interval != NO_LIMIT and log.log_end_offset - log.flushed_offset >= interval

    def _flush_soon(self) -> None:
        if not self._flushing:
            self._flushing = True
            self._host.spawn(self._flush(), f"flush of {self.topic_partition}")

    async def _flush(self) -> None:
        """Flush until less than the interval is unflushed.

        It starts in the next turn of the loop, so that all appends of this one share the fsync. What was due may have
        been flushed meanwhile, by a flush that a former leadership of this broker has begun: that counts as well.
        """
        try:
            while not self.is_over:
                self._flush_waiters.release(_own_end(self.log))
                if not self.is_over:  # A waiter's callback may have ended the leadership.
                    self.advance_high_watermark()
                if self.is_over or not self._is_flush_due:
                    return
                await self.log.flush_off_loop()
        finally:
            self._flushing = False

    # Acknowledgements

    def is_acknowledged(self, end_offset: int, required_acks: int) -> bool:
        """Return whether what ends at ``end_offset`` is as durable as ``required_acks`` requires."""
        if self._ended_by:
            return False
        return (self.log.high_watermark if required_acks == ACKS_ALL else _own_end(self.log)) >= end_offset

    def when_acknowledged(self, end_offset: int, required_acks: int, callback: OnReached) -> None:
        """Call back once: with NONE as soon as ``is_acknowledged`` (at once if it is), or with why it never will be."""
        if self._ended_by:
            callback(self._ended_by)
        elif self.is_acknowledged(end_offset, required_acks):
            callback(self.progress.shortage if required_acks == ACKS_ALL else ErrorCode.NONE)
        else:
            self._waiters(required_acks).add(end_offset, callback)

    def when_replicated(self, end_offset: int, callback: OnReached) -> None:
        """Do as ``when_acknowledged`` for coordinators: what is replicated has happened, however few replicas are left.

        A producer may receive that error, but a decision of a coordinator has happened or not."""
        if self._ended_by:
            callback(self._ended_by)
        elif self.log.high_watermark >= end_offset:
            callback(ErrorCode.NONE)
        else:
            self._replication_waiters.add(end_offset, callback)

    def forget_waiter(self, required_acks: int, callback: OnReached) -> None:
        """Remove a callback that waits for an acknowledgement."""
        self._waiters(required_acks).forget(callback)

    def _waiters(self, required_acks: int) -> OffsetWaiters:
        return self._replication_waiters if required_acks == ACKS_ALL else self._flush_waiters

    # Followers

    def follower_fetched(
        self, replica_id: int, *, end: int, log_start_offset: int, broker_epoch: int, knows_epoch: bool
    ) -> ErrorCode:
        """Note that a follower, which is not diverged, has the log up to ``end``, where it fetches.

        ``knows_epoch``: whether it named this leader's epoch; then it may know of an assignment that is newer."""
        progress = self.progress
        follower = progress.followers.get(replica_id)
        if follower is None:
            return ErrorCode.UNKNOWN_LEADER_EPOCH if knows_epoch else ErrorCode.NOT_LEADER_OR_FOLLOWER
        if broker_epoch != follower.broker_epoch and follower.is_stale(broker_epoch):
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        has_moved, has_deleted = end != follower.end, log_start_offset > follower.log_start_offset
        follower.fetched(
            end=end,
            log_start_offset=log_start_offset,
            leader_end=self.log.log_end_offset,
            now_ms=self._host.now_ms(),
            broker_epoch=broker_epoch,
            lag_ms=self._host.replica_lag_time_max_ms,
        )
        if len(progress.in_sync.isr) != len(progress.in_sync.replicas):
            progress.propose_expansion()
        if has_moved:
            self.advance_high_watermark()
        if has_deleted and self._deletion_waiters:
            self._deletion_waiters.release(progress.low_watermark)
        return ErrorCode.NONE

    def check_followers(self) -> None:
        """Have followers that are behind or gone leave the ISR; for a task that does so now and then."""
        if self.progress.is_alone:
            return
        self.progress.remove_lagging(self._watchers.followers)
        if self._deletion_waiters:
            self._deletion_waiters.release(self.progress.low_watermark)
        self.advance_high_watermark()  # A follower that held it back may be out of the way.

    def check_silence(self) -> None:
        """Have followers that are silent leave the ISR."""
        if not self.progress.is_alone:
            self.progress.remove_silent()
            self.advance_high_watermark()

    def brokers_left(self) -> None:
        """Advance the high watermark: brokers that are gone or offline may have held it back."""
        if not self.progress.is_alone:
            self.advance_high_watermark()

    def last_fetches_ms(self) -> dict[int, int]:
        """Return when each follower in the ISR last fetched, by the loop's clock."""
        return self.progress.last_fetches_ms(self._watchers.followers)

    @property
    def is_deserted(self) -> bool:
        """Whether no in-sync follower has fetched lately, so that one of them may lead by now."""
        progress = self.progress
        return not (progress.is_alone or self.is_over) and progress.is_deserted(self._watchers.followers)

    @property
    def end_is_settled(self) -> bool:
        """Whether the high watermark has reached this leader epoch's start, so that it cannot appear to go back."""
        return self.log.high_watermark >= self.progress.epoch_start_offset

    # Deleting

    def delete_records(self, offset: int) -> Deletion | ErrorCode:
        """Move the log's start to ``offset`` (-1: to the high watermark)."""
        if self._ended_by:
            return self._ended_by
        log = self.log
        if log.config.compacts and not log.config.deletes:
            return ErrorCode.POLICY_VIOLATION
        if offset == _TO_HIGH_WATERMARK:
            offset = log.high_watermark
        if offset < 0:
            return ErrorCode.OFFSET_OUT_OF_RANGE
        error = log.advance_log_start_offset(offset)
        if error:
            return error
        self._watchers.all_progressed()
        return Deletion(offset, self.progress.low_watermark)

    def when_deleted(self, offset: int, callback: OnReached) -> None:
        """Call back once: when no live replica has records below ``offset`` any more, or with why not."""
        if self._ended_by:
            callback(self._ended_by)
        elif self.progress.low_watermark >= offset:
            callback(ErrorCode.NONE)
        else:
            if self._deletion_waiters is None:
                self._deletion_waiters = OffsetWaiters()
            self._deletion_waiters.add(offset, callback)

    def forget_deletion_waiter(self, callback: OnReached) -> None:
        """Remove a callback that waits for a deletion."""
        if self._deletion_waiters is not None:
            self._deletion_waiters.forget(callback)


def _own_end(log: PartitionLog) -> int:
    """Return the end of what this replica alone can acknowledge."""
    return log.flushed_offset if log.config.flush_interval_messages == 1 else log.log_end_offset
