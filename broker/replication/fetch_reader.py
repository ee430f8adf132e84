"""Reading for one fetch: visits the dirty partitions of a session and collects their replies.

Each visit takes the log's start, high watermark and last stable offset once and reads below them, so that a reply is
one consistent moment: no record of an open or aborted transaction without the entry that hides it. Data that is not in
memory is left to be read off the loop; by then the log may have lost it to retention, or this broker the partition, and
then the reply says so instead of pairing old records with a newer index.

Limits, as in Kafka: a whole fetch and each partition have a maximum, but the first batch of a fetch is sent whatever
its size, or a large batch would stop its consumer for ever. Who begins in the middle of a batch gets the batch.
"""

import asyncio
from collections.abc import Callable
from typing import Final, NamedTuple

from broker.replication.fetch_session import FetchContext, FetchKind, FetchPosition
from broker.replication.partition import NO_EPOCH, Partition
from broker.replication.replica_manager import ReplicaManager
from broker.storage.partition_log import ColdRead, FetchedRecords, PartitionLog
from protocol.errors import ErrorCode
from protocol.messages.fetch import AbortedTransaction, EpochEndOffset, PartitionData
from protocol.schema import ZERO_UUID

_UNKNOWN_OFFSET: Final = -1
_TOPIC_ERRORS: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    }
)
"""Errors that do not end the wait for other partitions: their client is slow to learn of them, and would spin."""


class FetchParams(NamedTuple):
    """What a fetch request asks of all its partitions."""

    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    read_committed: bool
    may_read: Callable[[str], bool]
    """Whether the client is authorized to read a topic."""


class UnreadPartition(NamedTuple):
    """A partition of a fetch whose data is on the disk only."""

    position: FetchPosition
    partition: Partition
    log: PartitionLog
    cold_read: ColdRead


class Attempt:
    """What one round over the dirty partitions found."""

    __slots__ = ("cold", "must_tell", "refused", "size")

    def __init__(self) -> None:
        self.size = 0
        self.refused = 0
        """Partitions that have an error."""
        self.must_tell = False
        """Something that the client must hear of now, however few bytes there are."""
        self.cold: list[UnreadPartition] = []


class FetchReader:
    """Reads for one fetch request from the logs of the partitions that this broker leads."""

    __slots__ = ("_authorized", "_params", "_replicas")

    def __init__(self, replicas: ReplicaManager, params: FetchParams) -> None:
        self._replicas = replicas
        self._params = params
        self._authorized: dict[str, bool] = {}

    def read(self, context: FetchContext) -> Attempt:
        """Visit the dirty partitions until the fetch is full; the replies go into the context."""
        attempt = Attempt()
        session, left = context.session, self._params.max_bytes
        stops_when_full = context.kind is FetchKind.INCREMENTAL  # Others are told of all their partitions.
        for position in list(session.dirty):
            if left <= 0 and stops_when_full and attempt.size:
                break
            size = self._visit(context, position, left, attempt)
            left -= size
            attempt.size += size
        return attempt

    async def read_cold(self, context: FetchContext, attempt: Attempt) -> None:
        """Fill in what an attempt left to be read off the loop."""
        async with asyncio.TaskGroup() as group:
            for unread in attempt.cold:
                group.create_task(self._read_cold(context, unread))

    def count(self, context: FetchContext) -> None:
        """The replies are answered now: note how much of each partition that is."""
        for position, reply in context.replies.items():
            if reply.records and position.topic is not None:
                partition = self._replicas.partition((position.topic, position.partition_index))
                if partition is not None:
                    partition.bytes_out += len(reply.records)

    def watch_all(self, context: FetchContext) -> None:
        """Let the partitions of a fetch without a session wake it."""
        for position in context.session.positions.values():
            if position.topic is not None:
                partition = self._replicas.find((position.topic, position.partition_index))
                if isinstance(partition, Partition):
                    position.watch(partition)

    def _visit(self, context: FetchContext, position: FetchPosition, max_bytes: int, attempt: Attempt) -> int:
        """Put a reply into the context; returns how many bytes of records it has, or will have."""
        read_committed = self._params.read_committed
        partition = self._find(position)
        if isinstance(partition, ErrorCode):
            return _refuse(context, position, partition, attempt)
        if context.kind is not FetchKind.SESSIONLESS:
            position.watch(partition)
        log = partition.led_log
        error = partition.check_leader_epoch(position.current_leader_epoch)
        if error or log is None:
            return _refuse(context, position, error or partition.unavailable_error, attempt)
        high_watermark, last_stable_offset = log.high_watermark, log.last_stable_offset
        reply = context.replies[position] = PartitionData(
            partition_index=position.partition_index,
            high_watermark=high_watermark,
            last_stable_offset=last_stable_offset,
            log_start_offset=log.log_start_offset,
            aborted_transactions=[] if read_committed else None,
            records=b"",
        )
        offset = position.fetch_offset
        if position.last_fetched_epoch != NO_EPOCH:
            reply.diverging_epoch = _diverging_epoch(position, log)
            if reply.diverging_epoch is not None:
                attempt.must_tell = True
                return 0
        if not log.log_start_offset <= offset <= log.log_end_offset:
            return _refuse(context, position, ErrorCode.OFFSET_OUT_OF_RANGE, attempt)
        upper_offset = last_stable_offset if read_committed else high_watermark
        if offset >= upper_offset:
            context.session.quiet(position)
            return 0
        fetched = log.read(
            offset, min(max_bytes, position.max_bytes), upper_offset=upper_offset, min_one_batch=attempt.size == 0
        )
        if isinstance(fetched, ErrorCode):
            return _refuse(context, position, fetched, attempt)
        if isinstance(fetched, ColdRead):
            attempt.cold.append(UnreadPartition(position, partition, log, fetched))
            return min(fetched.size, log.size_between(offset, upper_offset))
        return _fill(reply, log, offset, fetched)

    def _find(self, position: FetchPosition) -> Partition | ErrorCode:
        topic = position.topic
        if topic is None:
            topic = position.topic = self._replicas.topic_name(position.topic_id)
            if topic is None:
                return ErrorCode.UNKNOWN_TOPIC_ID
        authorized = self._authorized.get(topic)
        if authorized is None:
            authorized = self._authorized[topic] = self._params.may_read(topic)
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
        if unread.partition.led_log is not log:
            fetched = unread.partition.unavailable_error
        elif offset < log.log_start_offset:
            fetched = ErrorCode.OFFSET_OUT_OF_RANGE
        if isinstance(fetched, ErrorCode):
            context.replies[position] = error_reply(position.partition_index, fetched)
        else:
            _fill(context.replies[position], log, offset, fetched)


def error_reply(partition_index: int, error: ErrorCode) -> PartitionData:
    """The reply of a partition that cannot be read."""
    return PartitionData(partition_index=partition_index, error_code=error, high_watermark=_UNKNOWN_OFFSET, records=b"")


def _refuse(context: FetchContext, position: FetchPosition, error: ErrorCode, attempt: Attempt) -> int:
    context.replies[position] = error_reply(position.partition_index, error)
    attempt.refused += 1
    if error not in _TOPIC_ERRORS:
        attempt.must_tell = True
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


def _diverging_epoch(position: FetchPosition, log: PartitionLog) -> EpochEndOffset | None:
    """Where the fetcher's log and ours part (KIP-595's truncation on fetch); None if they do not."""
    epoch, end_offset = log.end_offset_for_epoch(position.last_fetched_epoch)
    if epoch < position.last_fetched_epoch or end_offset < position.fetch_offset:
        return EpochEndOffset(epoch=epoch, end_offset=end_offset)
    return None
