"""Reading for one fetch: visits the dirty partitions of a session and collects their replies.

Each visit takes the log's start, high watermark and last stable offset once and reads below them, so that a reply is
one consistent moment: no record of an open or aborted transaction without the entry that hides it. Data that is not in
memory is left to be read off the loop; by then the log may have lost it to retention, or this broker the partition, and
then the reply says so instead of pairing old records with a newer index.

A fetch of a follower also says how far that follower is, which moves the high watermark before the replies are made.
That is noted once for each request, for all partitions that it moves, also those without room in the response. An error
of a partition is sent to it at once, as it retries soon: usually this broker is about to receive that partition's
state.

Limits, as in Kafka: a whole fetch and each partition have a maximum, but the first batch of a fetch is sent whatever
its size, or a large batch would stop its consumer for ever. A fetch that begins in the middle of a batch gets the
batch.
"""

import asyncio
from collections.abc import Callable, Set
from typing import Final, NamedTuple

from oncelog.broker.replication.fetch_session import FetchContext, FetchIsolation, FetchKind, FetchPosition
from oncelog.broker.replication.leading_partition import LeadingPartition
from oncelog.broker.replication.partition import NO_EPOCH, Partition
from oncelog.broker.replication.replica_manager import ReplicaManager
from oncelog.broker.storage.leader_epoch_cache import UNDEFINED_EPOCH
from oncelog.broker.storage.partition_log import ColdRead, FetchedRecords, PartitionLog
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.fetch import AbortedTransaction, EpochEndOffset, PartitionData
from oncelog.protocol.schema import ZERO_UUID

_UNKNOWN_OFFSET: Final = -1
_NOTHING: Final[frozenset[FetchPosition]] = frozenset()
_TOPIC_ERRORS: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    }
)
"""Errors that do not end a consumer's wait for other partitions: it is slow to learn of them, and would spin."""


class FetchParams(NamedTuple):
    """The parameters of a fetch request that hold for all its partitions."""

    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    isolation: FetchIsolation
    may_read: Callable[[str], bool] | None
    """Whether the client is authorized to read a topic; None: it may read all of them."""
    replica_id: int = -1
    """The broker id of a follower; negative for a consumer."""
    replica_epoch: int = -1
    names_epochs: bool = False
    """Whether it is a follower's, of a version that names the last leader epoch of the follower's log."""
    reads_followers: bool = False
    """Whether a consumer may also read from a follower (KIP-392)."""
    rack_id: str = ""
    """The rack of a consumer that prefers a replica nearby; empty if it names none."""


class UnreadPartition(NamedTuple):
    """A partition of a fetch whose data is on the disk only."""

    position: FetchPosition
    partition: Partition
    log: PartitionLog
    cold_read: ColdRead


class Attempt:
    """What one round over the dirty partitions found."""

    __slots__ = ("cold", "excess", "has_news", "left_large", "must_respond", "refused", "size")

    def __init__(self) -> None:
        self.size = 0
        self.excess = 0
        """Bytes that a first batch which is not in memory may have beyond ``size``: it is read whatever its size."""
        self.refused = 0
        """Partitions that have an error."""
        self.must_respond = False
        """Whether the client must get a response now, however few bytes there are."""
        self.has_news = False
        """Whether there is something that the client should be sent soon."""
        self.cold: list[UnreadPartition] = []
        self.left_large = False
        """There was a batch that is too large for now."""

    @property
    def needs_room(self) -> bool:
        """Whether there is nothing to return but batches that are too large for now."""
        return self.left_large and not (self.size or self.must_respond)


class FetchReader:
    """Reads for one fetch request from the logs of the partitions that this broker leads."""

    __slots__ = (
        "_authorized",
        "_is_committed",
        "_is_for_follower",
        "_notes_follower",
        "_params",
        "_replicas",
        "_whole_first",
        "too_large",
    )

    def __init__(self, replicas: ReplicaManager, params: FetchParams) -> None:
        self._replicas = replicas
        self._params = params
        self._authorized: dict[str, bool] = {}
        self._whole_first = True
        """The first batch of a fetch is read whatever its size."""
        self.too_large: Set[FetchPosition] = _NOTHING
        """Whose next batch was too large when small ones only were read."""
        self._is_for_follower = self._notes_follower = params.replica_id >= 0
        self._is_committed = params.isolation is FetchIsolation.TXN_COMMITTED

    def read(self, context: FetchContext, max_bytes: int, *, small_batches_only: bool = False) -> Attempt:
        """Visit the dirty partitions until there are ``max_bytes``; the replies go into the context.

        ``small_batches_only``: no batch is read that is larger than ``max_bytes``, the first one neither.
        """
        attempt = Attempt()
        self._whole_first = not small_batches_only
        if self._whole_first:
            self.too_large = _NOTHING
        session, left = context.session, max_bytes
        # A fetch without a session gets all its partitions; of a follower's request all must be noted.
        stops_when_full = context.kind is FetchKind.INCREMENTAL and not self._notes_follower
        for position in list(session.dirty):
            if left <= 0 and stops_when_full and attempt.size:
                break
            size = self._visit(context, position, left, attempt)
            left -= size
            attempt.size += size
        attempt.must_respond |= self._is_for_follower and attempt.refused > 0
        self._notes_follower = False
        return attempt

    async def read_cold(self, context: FetchContext, attempt: Attempt) -> None:
        """Fill in what an attempt left to be read off the loop, and its true size."""
        async with asyncio.TaskGroup() as group:
            for unread in attempt.cold:
                group.create_task(self._read_cold(context, unread))
        attempt.size, attempt.excess = sum(len(reply.records or b"") for reply in context.replies.values()), 0
        if not self._whole_first:
            replies = {unread.position: context.replies[unread.position] for unread in attempt.cold}
            self.too_large |= {position for position, reply in replies.items() if not reply.records}
            attempt.left_large |= not self.too_large.isdisjoint(replies)
            attempt.must_respond |= any(reply.error_code for reply in replies.values())

    def count(self, context: FetchContext) -> None:
        """Count the partitions and their bytes in replies that are sent now."""
        for position, reply in context.replies.items():
            topic = position.topic
            partition = None if topic is None else self._replicas.partition((topic, position.partition_index))
            if partition is None:
                continue
            traffic = partition.traffic
            traffic.fetched += 1
            if reply.error_code:
                traffic.refused_fetches += 1
            elif reply.records:
                traffic.bytes_out += len(reply.records)
                if self._is_for_follower:
                    self._replicas.host.note_sent(partition.topic_partition, len(reply.records))

    def watch_all(self, context: FetchContext) -> None:
        """Let the partitions of a fetch without a session wake it."""
        for position in context.session.positions.values():
            if position.topic is not None:
                partition = self._replicas.find((position.topic, position.partition_index))
                if isinstance(partition, Partition):
                    position.watch(partition)

    def _visit(self, context: FetchContext, position: FetchPosition, max_bytes: int, attempt: Attempt) -> int:
        """Put a reply into the context; returns how many bytes of records it has, or will have."""
        partition = self._find(position)
        if not isinstance(partition, Partition):
            return _refuse(context, position, partition, attempt)
        if position.watched is not partition and context.kind is not FetchKind.SESSIONLESS:
            position.watch(partition)
        role = partition.role
        log = role.log if isinstance(role, LeadingPartition) else self._followed_log(partition)
        epoch = position.current_leader_epoch
        error = None if epoch in (NO_EPOCH, partition.leader_epoch) else partition.check_leader_epoch(epoch)
        if error or log is None:
            return _refuse(context, position, error or partition.unavailable_error, attempt)
        is_in_range = log.log_start_offset <= position.fetch_offset <= log.log_end_offset
        if (position.last_fetched_epoch != NO_EPOCH or self._params.names_epochs) and not (
            is_in_range and position.last_fetched_epoch == log.epochs.latest_epoch  # Then they cannot have parted.
        ):
            diverging = self._divergence(position, partition, log)
            if isinstance(diverging, ErrorCode):
                return _refuse(context, position, diverging, attempt)
            if diverging is not None:
                attempt.must_respond = True
                context.replies[position] = self._reply(position, log)
                context.replies[position].diverging_epoch = diverging
                return 0
        if not is_in_range:
            return _refuse(context, position, _out_of_range(partition, log, position.fetch_offset), attempt)
        if self._notes_follower:
            if not isinstance(role, LeadingPartition):
                return _refuse(context, position, partition.unavailable_error, attempt)
            error = role.follower_fetched(
                self._params.replica_id,
                end=position.fetch_offset,
                log_start_offset=position.log_start_offset,
                broker_epoch=self._params.replica_epoch,
                knows_epoch=epoch != NO_EPOCH,
            )
            if error:
                return _refuse(context, position, error, attempt)
        return self._read(context, position, partition, log, max_bytes, attempt)

    def _divergence(
        self, position: FetchPosition, partition: Partition, log: PartitionLog
    ) -> EpochEndOffset | ErrorCode | None:
        """Return where the fetcher's log and this one diverge (KIP-595's truncation on fetch); None if they do not."""
        last_fetched_epoch = position.last_fetched_epoch
        if last_fetched_epoch == NO_EPOCH:
            params, leading = self._params, partition.leading
            if leading is not None and leading.progress.must_begin_anew(
                params.replica_id, log_start_offset=position.log_start_offset, broker_epoch=params.replica_epoch
            ):
                return EpochEndOffset(epoch=leading.leader_epoch, end_offset=log.log_start_offset)
            return None
        epoch, end_offset = log.end_offset_for_epoch(last_fetched_epoch)
        if epoch == UNDEFINED_EPOCH or position.fetch_offset < log.log_start_offset:
            return ErrorCode.OFFSET_OUT_OF_RANGE
        if epoch < last_fetched_epoch or end_offset < position.fetch_offset:
            return EpochEndOffset(epoch=epoch, end_offset=end_offset)
        return None

    def _read(
        self,
        context: FetchContext,
        position: FetchPosition,
        partition: Partition,
        log: PartitionLog,
        max_bytes: int,
        attempt: Attempt,
    ) -> int:
        params, offset = self._params, position.fetch_offset
        reply = context.replies[position] = self._reply(position, log)
        if params.rack_id:
            nearby = self._replicas.preferred_read_replica(partition, params.rack_id, offset)
            if nearby != reply.preferred_read_replica:
                reply.preferred_read_replica = nearby
                attempt.must_respond = True
                return 0
        if self._is_for_follower:
            upper_offset = log.log_end_offset
        else:
            upper_offset = reply.last_stable_offset if self._is_committed else reply.high_watermark
        if offset >= upper_offset:
            if self._is_for_follower and not position.knows(reply):
                # It stays dirty, as this fetch may be overtaken before its response is sent.
                attempt.has_news |= reply.high_watermark != position.sent_high_watermark
            else:
                context.session.quiet(position)
            return 0
        if self._is_for_follower:
            position.throttled = self._replicas.must_throttle(partition, params.replica_id)
            if max_bytes <= 0 or position.throttled:
                return 0
        is_first = not (attempt.size or attempt.cold)
        if max_bytes <= 0 and not is_first:
            return 0
        if not self._whole_first and position in self.too_large:
            attempt.left_large = True
            return 0
        if self._whole_first or not is_first:
            max_bytes = min(max_bytes, position.max_bytes)
        fetched = log.read(offset, max_bytes, upper_offset=upper_offset, min_one_batch=is_first and self._whole_first)
        if isinstance(fetched, ErrorCode):
            return _refuse(context, position, fetched, attempt)
        if isinstance(fetched, ColdRead):
            attempt.cold.append(UnreadPartition(position, partition, log, fetched))
            available = log.size_between(offset, upper_offset)
            size = min(fetched.size, available)
            if fetched.min_one_batch:
                attempt.excess = max(0, min(available, log.config.max_message_bytes) - size)
            return size
        if is_first and not (self._whole_first or len(fetched.records)):
            self.too_large |= {position}
            attempt.left_large = True
        # A read ends with its segment, so waiting for more bytes would not bring those that are there already.
        if fetched.records and fetched.next_offset < upper_offset and offset < log.segments.active.base_offset:
            attempt.must_respond = True
        return _fill(reply, log, offset, fetched)

    def _reply(self, position: FetchPosition, log: PartitionLog) -> PartitionData:
        """Return a reply with all offsets of this moment, but without records."""
        return PartitionData(
            partition_index=position.partition_index,
            high_watermark=log.high_watermark,
            last_stable_offset=log.last_stable_offset,
            log_start_offset=log.log_start_offset,
            aborted_transactions=[] if self._is_committed else None,
            records=b"",
        )

    def _followed_log(self, partition: Partition) -> PartitionLog | None:
        """Return the log of a follower, for a fetch that may read it."""
        return partition.readable_log if self._params.reads_followers else None

    def _find(self, position: FetchPosition) -> Partition | ErrorCode:
        topic = position.topic
        if topic is None:
            topic = position.topic = self._replicas.topic_name(position.topic_id)
            if topic is None:
                return ErrorCode.UNKNOWN_TOPIC_ID
        may_read = self._params.may_read
        if may_read is not None:
            authorized = self._authorized.get(topic)
            if authorized is None:
                authorized = self._authorized[topic] = may_read(topic)
            if not authorized:
                return ErrorCode.TOPIC_AUTHORIZATION_FAILED
        partition = self._replicas.find((topic, position.partition_index))
        if isinstance(partition, Partition) and partition.topic_id != position.topic_id:
            if ZERO_UUID not in (partition.topic_id, position.topic_id):
                return ErrorCode.INCONSISTENT_TOPIC_ID
        return partition

    async def _read_cold(self, context: FetchContext, unread: UnreadPartition) -> None:
        position, log = unread.position, unread.log
        offset = unread.cold_read.start_offset
        fetched = await log.read_cold(unread.cold_read)
        leading = unread.partition.leading
        if log is not (self._followed_log(unread.partition) if leading is None else leading.log):
            fetched = unread.partition.unavailable_error
        elif offset < log.log_start_offset:
            fetched = ErrorCode.OFFSET_OUT_OF_RANGE
        if isinstance(fetched, ErrorCode):
            context.replies[position] = error_reply(position.partition_index, fetched)
        else:
            _fill(context.replies[position], log, offset, fetched)


def error_reply(partition_index: int, error: ErrorCode) -> PartitionData:
    """Return the reply of a partition that cannot be read."""
    return PartitionData(partition_index=partition_index, error_code=error, high_watermark=_UNKNOWN_OFFSET, records=b"")


def _refuse(context: FetchContext, position: FetchPosition, error: ErrorCode, attempt: Attempt) -> int:
    context.replies[position] = error_reply(position.partition_index, error)
    attempt.refused += 1
    if error not in _TOPIC_ERRORS:
        attempt.must_respond = True
    return 0


def _fill(reply: PartitionData, log: PartitionLog, offset: int, fetched: FetchedRecords) -> int:
    reply.records = fetched.records
    if reply.aborted_transactions is not None:
        upper_offset = min(fetched.next_offset, reply.last_stable_offset)
        reply.aborted_transactions = [
            AbortedTransaction(producer_id=producer_id, first_offset=first_offset)
            for producer_id, first_offset in log.aborted_transactions(offset, upper_offset)
        ]
    return len(fetched.records)


def _out_of_range(partition: Partition, log: PartitionLog, offset: int) -> ErrorCode:
    """Return the error of an offset beyond a log.

    The end of a follower's log is not the partition's: a client beyond it must look for the leader.
    """
    if offset > log.log_end_offset and partition.leading is None:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    return ErrorCode.OFFSET_OUT_OF_RANGE
