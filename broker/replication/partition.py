"""A partition on this broker: who leads it, how far it is replicated, and who waits for that.

``Partition`` wraps a ``PartitionLog`` and adds what a log does not know: leadership with its epochs, the in-sync
replicas, and everybody who must hear when data becomes visible. All calls are plain functions on the event loop, so an
append and all of its effects are one step; nothing can come between the check of leadership and the write.

As leader it learns from the fetches of its followers how far they are (``follower_fetched``), which moves the high
watermark, and asks the controller to take followers into the ISR, or out of it (``check_followers``). As follower its
log is written by a ``ReplicaFetcher``, and consumers may read it up to the high watermark that the leader told.

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
* Only the controller changes the ISR. What it says in a LeaderAndIsr is newer than the answer to any proposal.
"""

import logging
from functools import partial
from typing import Final

from oncelog.broker.replication.deletion import Deletion
from oncelog.broker.replication.fetch_session import FetchIsolation, FetchPosition
from oncelog.broker.replication.follower_state import NEVER, FollowerState
from oncelog.broker.replication.isr import InSyncReplicas
from oncelog.broker.replication.isr_changes import IsrProposal
from oncelog.broker.replication.leader_term import LeaderTerm
from oncelog.broker.replication.offset_waiters import OffsetWaiters, OnReached
from oncelog.broker.replication.replica_host import ReplicaHost
from oncelog.broker.replication.replica_host import Spawn as Spawn
from oncelog.broker.storage.log_config import NO_LIMIT
from oncelog.broker.storage.partition_log import AppendInfo, AppendOrigin, PartitionLog
from oncelog.protocol.errors import ErrorCode, error_of
from oncelog.protocol.messages.alter_partition import AlteredPartition
from oncelog.protocol.messages.leader_and_isr import LeaderAndIsrPartitionState
from oncelog.protocol.records.control_records import EndTxnMarker
from oncelog.protocol.records.record_batch import BatchHeader
from oncelog.protocol.schema import ZERO_UUID, Buffer
from oncelog.protocol.topic_partition import TopicPartition

logger = logging.getLogger(__name__)

NO_LEADER: Final = -1
NO_EPOCH: Final = -1
ACKS_ALL: Final = -1
_TO_HIGH_WATERMARK: Final = -1
_NOT_DONE: Final = frozenset({ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.INELIGIBLE_REPLICA})
"""By these the controller says that the ISR is what this leader thinks, and was not changed."""
_NOBODY: Final = InSyncReplicas(replicas=(), isr=frozenset())


class Partition:
    """One partition that has a replica here. `ReplicaManager` is the only one that changes its leadership."""

    __slots__ = (
        "_alone",
        "_deletion_waiters",
        "_flush_waiters",
        "_flushing",
        "_follower_watchers",
        "_following",
        "_host",
        "_is_present",
        "_proposal",
        "_replication_waiters",
        "_watchers",
        "bytes_in",
        "bytes_out",
        "epoch_start_offset",
        "followers",
        "in_sync",
        "leader_epoch",
        "leader_id",
        "led_log",
        "log",
        "messages_in",
        "partition_epoch",
        "term",
        "topic_id",
        "topic_partition",
    )

    def __init__(self, topic_partition: TopicPartition, host: ReplicaHost) -> None:
        self.topic_partition = topic_partition
        self.topic_id = ZERO_UUID
        self.log: PartitionLog | None = None
        self.leader_id = NO_LEADER
        self.leader_epoch = NO_EPOCH
        self.partition_epoch = NO_EPOCH
        self.in_sync = _NOBODY
        self.followers: dict[int, FollowerState] = {}
        """While this broker leads: the other replicas, by broker."""
        self.epoch_start_offset = 0
        """Where this leader epoch began: until the high watermark is there, the end of the log is not known to all."""
        self.term: LeaderTerm | None = None
        self.messages_in = self.bytes_in = self.bytes_out = 0
        """Appended here as leader, and answered to fetches, since this broker has the replica."""
        self.led_log: PartitionLog | None = None
        """The log, if this broker leads and may write to it; for reading only."""
        self._alone = False
        self._following = False
        self._host = host
        self._is_present = partial(host.is_present, topic_partition)
        self._proposal: IsrProposal | None = None
        self._flushing = False
        self._replication_waiters = OffsetWaiters()
        self._flush_waiters = OffsetWaiters()
        self._deletion_waiters: OffsetWaiters | None = None
        """Who waits until all replicas have deleted records; made when it is needed, which is hardly ever."""
        self._watchers: dict[FetchPosition, None] = {}
        self._follower_watchers: dict[FetchPosition, None] = {}

    # Leadership

    @property
    def is_leader(self) -> bool:
        return self.led_log is not None

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
    def readable_log(self) -> PartitionLog | None:
        """The log, if this broker leads or follows: consumers may read it up to the high watermark (KIP-392)."""
        return self.log if self._following else self.led_log

    @property
    def unavailable_error(self) -> ErrorCode:
        """What to answer while ``led_log`` is None."""
        return ErrorCode.KAFKA_STORAGE_ERROR if self.failed else ErrorCode.NOT_LEADER_OR_FOLLOWER

    def become_leader(self, state: LeaderAndIsrPartitionState, log: PartitionLog) -> bool:
        """Lead at the epoch of ``state``. Returns whether a new term began."""
        begins, epoch_begins = self.led_log is None, state.leader_epoch > self.leader_epoch
        if epoch_begins:
            # Followers that have records of a later epoch than ours must find this epoch's start to truncate to.
            log.assign_epoch(state.leader_epoch)
            self.epoch_start_offset = log.log_end_offset
        self._take_state(state, log)
        if log.failed:
            return False
        self._following = False
        self.led_log = log
        self._take_followers(log, elected=epoch_begins)
        if begins:
            self.term = LeaderTerm(self, log, state.leader_epoch)
        self.advance_high_watermark()
        self._disturb_watchers()
        return begins

    def become_follower(self, state: LeaderAndIsrPartitionState, log: PartitionLog) -> bool:
        """Stop leading, if this broker did. Returns whether a term ended."""
        ended = self.is_leader
        self._take_state(state, log)
        self._following = not log.failed
        self._end_term(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return ended

    def stop(self, error: ErrorCode) -> bool:
        """This broker has no replica any more, or cannot reach it. Returns whether a term ended."""
        ended = self.is_leader
        self._following = False
        self._withdraw_proposal()
        self._end_term(error)
        return ended

    def _take_state(self, state: LeaderAndIsrPartitionState, log: PartitionLog) -> None:
        self.log = log
        self.leader_id = state.leader
        self.leader_epoch = state.leader_epoch
        self.partition_epoch = state.partition_epoch
        self._withdraw_proposal()
        self.in_sync = InSyncReplicas(replicas=tuple(state.replicas), isr=frozenset(state.isr))
        self._alone = self.in_sync.replicas == (self._host.broker_id,)

    def _take_followers(self, log: PartitionLog, *, elected: bool) -> None:
        now_ms, end, known, me = self._host.now_ms(), log.log_end_offset, self.followers, self._host.broker_id
        self.followers = {broker: known.get(broker) or FollowerState() for broker in self.replicas if broker != me}
        for broker, follower in self.followers.items():
            if elected or broker not in known:
                self._host.contacts.expect(broker, now_ms)
            if elected:
                follower.elected(leader_end=end, now_ms=now_ms, in_sync=broker in self.isr)

    def _end_term(self, error: ErrorCode) -> None:
        if self.led_log is not None:
            self.led_log.producer_state.forget_undecided()
        self.led_log = None
        self.term = None
        self.followers.clear()
        self._replication_waiters.fail(error)
        self._flush_waiters.fail(error)
        if self._deletion_waiters is not None:
            self._deletion_waiters.fail(error)
        self._disturb_watchers()

    # Followers, as their leader sees them

    def follower_fetched(
        self, replica_id: int, *, end: int, log_start_offset: int, broker_epoch: int, knows_epoch: bool
    ) -> ErrorCode:
        """Note that a follower, which is not diverged, has the log up to ``end``, where it fetches.

        ``knows_epoch``: whether it named this leader's epoch; then it may know of an assignment that is newer."""
        log, follower = self.led_log, self.followers.get(replica_id)
        if log is None:
            return self.unavailable_error
        if follower is None:
            return ErrorCode.UNKNOWN_LEADER_EPOCH if knows_epoch else ErrorCode.NOT_LEADER_OR_FOLLOWER
        if broker_epoch != follower.broker_epoch and follower.is_stale(broker_epoch):
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        now_ms, leader_end = self._host.now_ms(), log.log_end_offset
        has_moved, has_deleted = end != follower.end, log_start_offset > follower.log_start_offset
        follower.fetched(
            end=end,
            log_start_offset=log_start_offset,
            leader_end=leader_end,
            now_ms=now_ms,
            broker_epoch=broker_epoch,
            lag_ms=self._host.replica_lag_time_max_ms,
        )
        if len(self.in_sync.isr) != len(self.in_sync.replicas):
            self.propose_expansion()
        if has_moved:
            self.advance_high_watermark()
        if has_deleted and self._deletion_waiters:
            self._deletion_waiters.release(self.low_watermark)
        return ErrorCode.NONE

    @property
    def is_deserted(self) -> bool:
        """Whether this leader has heard none of the others in the ISR lately, so that one of them may lead by now."""
        if self._alone:
            return False
        limit_ms = self._host.now_ms() - self._host.desertion_ms
        return max(self.heard_in_sync().values(), default=limit_ms) < limit_ms

    def heard_in_sync(self) -> dict[int, int]:
        """When the other members of the ISR were last heard, by the loop's clock; of none if this broker leads not."""
        isr = self.in_sync.isr if self.led_log is not None else ()
        heard = {broker: follower.last_fetch_ms for broker, follower in self.followers.items() if broker in isr}
        for position in self._follower_watchers:
            session = position.session
            if session.replica_id in heard and session.attended_ms != NEVER:
                heard[session.replica_id] = session.attended_ms
        return heard

    def check_followers(self) -> None:
        """Look who has fallen behind, or is gone; for a task that does so now and then."""
        log = self.led_log
        if log is None or self._alone:
            return
        for position in self._follower_watchers:
            follower = self.followers.get(position.session.replica_id)
            if follower is not None:
                follower.caught_up_at(position.caught_up_ms)
        now_ms = self._host.now_ms()
        for follower in self.followers.values():
            follower.look(log.log_end_offset, now_ms, self._host.replica_lag_time_max_ms)
        self._let_go(self.in_sync.leaving(self._host.broker_id, self.followers), "are behind")
        if self._deletion_waiters:
            self._deletion_waiters.release(self.low_watermark)
        self.advance_high_watermark()  # Who held it back may be out of the way.

    def silence_changed(self) -> None:
        """Some brokers have fallen silent, or are heard again: the former are waited for no more."""
        log = self.led_log
        if log is None or self._alone:
            return
        silent, minimum = self._host.contacts.silent, log.config.min_insync_replicas
        self._let_go(self.in_sync.leaving_silently(silent, minimum), "are silent")
        self.advance_high_watermark()

    def _let_go(self, leaving: frozenset[int], why: str) -> None:
        if leaving and self._proposal is None:
            logger.info("%s: brokers %s %s, and leave the ISR", self.topic_partition, sorted(leaving), why)
            self._propose(self.isr - leaving)

    def propose_expansion_again(self) -> None:
        """One that has everything does not come again by itself when it could not be asked for, or was refused."""
        for follower in self.followers.values():
            follower.is_refused = False
        self.propose_expansion()

    def propose_expansion(self) -> None:
        """Ask for those to be taken into the ISR who are ready for it."""
        log = self.led_log
        if log is None or self._proposal is not None or len(self.isr) == len(self.replicas):
            return
        joining = self.in_sync.joining(
            self.followers,
            high_watermark=log.high_watermark,
            epoch_start_offset=self.epoch_start_offset,
            is_alive=self._is_present,
        )
        if joining:
            self._propose(self.isr | joining)

    def _propose(self, isr: frozenset[int]) -> None:
        self.in_sync = self.in_sync.propose(isr)
        self._proposal = IsrProposal(
            self.topic_partition,
            self.topic_id,
            leader_epoch=self.leader_epoch,
            partition_epoch=self.partition_epoch,
            isr=[(broker, self._epoch_of(broker)) for broker in self.replicas if broker in isr],
            on_decided=self._isr_decided,
        )
        self._host.propose_isr(self._proposal)

    def _epoch_of(self, broker: int) -> int:
        return self._host.broker_epoch() if broker == self._host.broker_id else self.followers[broker].broker_epoch

    def _isr_decided(self, proposal: IsrProposal, answer: AlteredPartition) -> None:
        assert proposal is self._proposal, "a proposal that was withdrawn is not answered"
        error = error_of(answer.error_code)
        if error in _NOT_DONE:
            self._withdraw_proposal()
            if error is ErrorCode.INELIGIBLE_REPLICA:
                for broker in {broker for broker, _ in proposal.isr} - self.isr:
                    self.followers[broker].is_refused = True
        elif error or answer.leader_epoch != self.leader_epoch or answer.partition_epoch < self.partition_epoch:
            # What the ISR is now will be in the LeaderAndIsr that is on its way; until then both are counted with.
            logger.info("%s: the ISR is not what it was thought to be: %s", self.topic_partition, error.name)
            return
        else:
            self._proposal = None
            self.partition_epoch = answer.partition_epoch
            self.in_sync = self.in_sync.commit(frozenset(answer.isr))
            self.propose_expansion()
        self.advance_high_watermark()

    def brokers_left(self) -> None:
        """Some brokers, or their replicas of this partition, are gone or offline, and may have been waited for."""
        if self.led_log is not None and not self._alone:
            self.advance_high_watermark()

    def _withdraw_proposal(self) -> None:
        if self._proposal is not None:
            self._proposal.withdrawn = True
            self._proposal = None
            self.in_sync = self.in_sync.withdraw()

    # Writing

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
        """Append one validated batch as leader, with all effects that need no waiting.

        ``marker``: what a control batch says, if it was built here; ``transaction_version``: of what it ends.
        """
        log = self.led_log
        if log is None:
            return self.unavailable_error
        if required_acks == ACKS_ALL and not self._alone:
            if self.in_sync.is_under_min_isr(log.config.min_insync_replicas):
                log.producer_state.refuse(header)
                return ErrorCode.NOT_ENOUGH_REPLICAS
        info = log.append_as_leader(batch, header, self.leader_epoch, origin, marker, transaction_version)
        if not isinstance(info, ErrorCode) and not info.duplicate:
            size = len(batch)
            self.messages_in += header.records_count
            self.bytes_in += size
            if not self._alone:
                for position in self._follower_watchers:
                    position.session.appended(position, info.base_offset, size)
            flush_interval = log.config.flush_interval_messages
            if flush_interval != NO_LIMIT and log.log_end_offset - log.flushed_offset >= flush_interval:
                self._flush_soon(log)
            self.advance_high_watermark(info.base_offset, size)
        return info

    def advance_high_watermark(self, base_offset: int = -1, size: int = 0) -> None:
        """Let the high watermark go as far as it may; an append that caused this says what it wrote."""
        log = self.led_log
        assert log is not None
        end = _own_end(log)
        if not self._alone:
            if self.in_sync.is_under_min_isr(log.config.min_insync_replicas):
                return
            end = self.in_sync.replicated_end(self._host.broker_id, end, self.followers, self._is_present)
        if end <= log.high_watermark:
            return
        log.update_high_watermark(end)
        for position in self._watchers:
            position.session.progressed(position, base_offset, size)
        for position in self._follower_watchers:
            position.session.high_watermark_moved(position)
        if self._replication_waiters:
            self._replication_waiters.release(end)

    def is_acknowledged(self, end_offset: int, required_acks: int) -> bool:
        """Whether what ends at ``end_offset`` is as durable as ``required_acks`` asks."""
        log = self.led_log
        if log is None:
            return False
        return (log.high_watermark if required_acks == ACKS_ALL else _own_end(log)) >= end_offset

    def when_acknowledged(self, end_offset: int, required_acks: int, callback: OnReached) -> None:
        """Call back once: with NONE as soon as ``is_acknowledged`` (at once if it is), or with why it never will be."""
        if self.led_log is None:
            callback(self.unavailable_error)
        elif self.is_acknowledged(end_offset, required_acks):
            callback(self._shortage if required_acks == ACKS_ALL else ErrorCode.NONE)
        else:
            self._waiters(required_acks).add(end_offset, callback)

    def when_replicated(self, end_offset: int, callback: OnReached) -> None:
        """``when_acknowledged`` for coordinators: what is replicated has happened, however few replicas are left then.

        A producer may be told of that, but a decision cannot be half made."""
        log = self.led_log
        if log is None:
            callback(self.unavailable_error)
        elif log.high_watermark >= end_offset:
            callback(ErrorCode.NONE)
        else:
            self._replication_waiters.add(end_offset, callback)

    @property
    def _shortage(self) -> ErrorCode:
        """Whether what is replicated is on fewer replicas than the topic asks for: the ISR shrank after the append."""
        log = self.led_log
        if log is None or self._alone:
            return ErrorCode.NONE
        minimum = self.in_sync.effective_min_isr(log.config.min_insync_replicas)
        enough = len(self.in_sync.maximal_isr) >= minimum
        return ErrorCode.NONE if enough else ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND

    def forget_waiter(self, required_acks: int, callback: OnReached) -> None:
        self._waiters(required_acks).forget(callback)

    def _waiters(self, required_acks: int) -> OffsetWaiters:
        return self._replication_waiters if required_acks == ACKS_ALL else self._flush_waiters

    def _flush_soon(self, log: PartitionLog) -> None:
        if not self._flushing:
            self._flushing = True
            self._host.spawn(self._flush(log), f"flush of {self.topic_partition}")

    async def _flush(self, log: PartitionLog) -> None:
        """Starts in the next turn of the loop, so that all appends of this one share the fsync."""
        try:
            while self.led_log is log and log.log_end_offset - log.flushed_offset >= log.config.flush_interval_messages:
                await log.flush_off_loop()
                if self.led_log is log:
                    self._flush_waiters.release(_own_end(log))
                if self.led_log is log:  # A waiter's callback may have ended the term.
                    self.advance_high_watermark()
        finally:
            self._flushing = False

    # Deleting

    def delete_records(self, offset: int) -> Deletion | ErrorCode:
        """Move the log's start to ``offset`` (-1: to the high watermark)."""
        log = self.led_log
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
        for position in (*self._watchers, *self._follower_watchers):
            position.session.progressed(position, -1, 0)
        return Deletion(offset, self.low_watermark)

    @property
    def low_watermark(self) -> int:
        """The lowest start of the logs of all live replicas; -1 while one has not told."""
        assert self.led_log is not None
        starts = (
            follower.log_start_offset for broker, follower in self.followers.items() if self._host.is_alive(broker)
        )
        return min([self.led_log.log_start_offset, *starts])

    def when_deleted(self, offset: int, callback: OnReached) -> None:
        """Call back once: when no live replica has records below ``offset`` any more, or with why not."""
        if self.led_log is None:
            callback(self.unavailable_error)
        elif self.low_watermark >= offset:
            callback(ErrorCode.NONE)
        else:
            if self._deletion_waiters is None:
                self._deletion_waiters = OffsetWaiters()
            self._deletion_waiters.add(offset, callback)

    def forget_deletion_waiter(self, callback: OnReached) -> None:
        if self._deletion_waiters is not None:
            self._deletion_waiters.forget(callback)

    # Following

    def append_as_follower(self, records: Buffer, *, high_watermark: int, log_start_offset: int) -> ErrorCode:
        """Take what the leader of the present epoch answered: records from this log's end on, and its offsets."""
        log = self.log
        assert log is not None
        assert self._following
        if len(records):
            appended = log.append_as_follower(records, self.leader_epoch)
            if isinstance(appended, ErrorCode):
                return appended
        # A new leader may not know yet how much is replicated; this one, who does, need not forget it.
        high_watermark = min(high_watermark, log.log_end_offset)
        if high_watermark > log.high_watermark:
            log.update_high_watermark(high_watermark)
            for position in self._watchers:
                position.session.progressed(position, -1, 0)
        if log_start_offset > log.log_start_offset:
            return log.advance_log_start_offset(min(log_start_offset, log.high_watermark))
        return ErrorCode.NONE

    # Reading

    @property
    def watcher_count(self) -> int:
        return len(self._watchers) + len(self._follower_watchers)

    def add_watcher(self, position: FetchPosition) -> None:
        (self._follower_watchers if position.session.privileged else self._watchers)[position] = None

    def remove_watcher(self, position: FetchPosition) -> None:
        (self._follower_watchers if position.session.privileged else self._watchers).pop(position, None)

    def visible_end(self, isolation: FetchIsolation) -> int:
        """The offset below which a fetch of this isolation may read."""
        log = self.readable_log
        if log is None:
            return 0
        if isolation is FetchIsolation.HIGH_WATERMARK:
            return log.high_watermark
        return log.last_stable_offset if isolation is FetchIsolation.TXN_COMMITTED else log.log_end_offset

    def size_between(self, start_offset: int, end_offset: int) -> int:
        """About how many bytes the log has there."""
        log = self.readable_log
        return 0 if log is None else log.size_between(start_offset, end_offset)

    def _disturb_watchers(self) -> None:
        for position in (*self._watchers, *self._follower_watchers):
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
