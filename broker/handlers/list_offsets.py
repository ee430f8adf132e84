"""ListOffsets (API key 2): the offset that belongs to a timestamp, or to one of the special ones.

==  ==================  ========================================================================
-1  latest              what a consumer of this isolation level may read up to; the log end for brokers
-2  earliest            the log start
-3  max timestamp       the record with the largest timestamp (version 7)
-4  earliest local      the same as earliest: all there is is local (version 8)
-5  latest tiered       offset -1: nothing is tiered (version 9)
-6  earliest pending    offset -1: nothing will be uploaded (version 11)
==  ==================  ========================================================================

A timestamp gives the first record at or after it; offset -1 if there is none that the client may read. Right after an
election, while the high watermark has not reached the epoch's start, the end that consumers saw before could seem to
have gone back; latest and timestamps are then OFFSET_NOT_AVAILABLE (LEADER_NOT_AVAILABLE before version 5).

A search by time reads batches and walks records, and a request may contain any number of searches, so this is sliced
work (``oncelog.broker.dispatch.sliced_work``).

Version 0 has no single offset but a list of those at which segments begin, newest first, and before them the end: all
that are not newer than the timestamp, by the largest timestamp of each segment. (Kafka goes by the time of its file.)

What a consumer without an isolation level (before version 2) takes for the end is what it may read up to:
``oncelog.downconversion.isolation.level``.

Versions: 1 is the first with single offsets; 2 has isolation levels; 4 leader epochs; 6 is flexible; 10 has a time-out
for tiered storage, which is not needed.
"""

from collections import Counter
from collections.abc import Generator, Iterator
from itertools import islice
from typing import Final, NamedTuple

from oncelog.broker.dispatch.api_handler import Later, Outcome, handles
from oncelog.broker.dispatch.request import RequestContext
from oncelog.broker.dispatch.sliced_work import Steps, new_budget
from oncelog.broker.parts import Broker
from oncelog.broker.replication.partition import NO_EPOCH, Partition
from oncelog.broker.security.authorizer import Operation, ResourceType
from oncelog.broker.storage.partition_log import PartitionLog
from oncelog.broker.storage.segment_read import ReadRequest
from oncelog.broker.storage.timestamp_search import FoundOffset
from oncelog.protocol.api_keys import ApiKey
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from oncelog.protocol.schema import Buffer, Message

LATEST_TIMESTAMP: Final = -1
EARLIEST_TIMESTAMP: Final = -2
MAX_TIMESTAMP: Final = -3
EARLIEST_LOCAL_TIMESTAMP: Final = -4
LATEST_TIERED_TIMESTAMP: Final = -5
EARLIEST_PENDING_UPLOAD_TIMESTAMP: Final = -6

_FIRST_VERSIONS: Final = {
    LATEST_TIMESTAMP: 0,
    EARLIEST_TIMESTAMP: 0,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL_TIMESTAMP: 8,
    LATEST_TIERED_TIMESTAMP: 9,
    EARLIEST_PENDING_UPLOAD_TIMESTAMP: 11,
}
_CONSUMER: Final = -1
_DEBUGGING_REPLICA: Final = -2
"""A replica id for which any replica responds, not only the leader."""
_READ_COMMITTED: Final = 1
_NO_TIMESTAMP: Final = -1
_NO_OFFSET: Final = -1
_FIRST_VERSION_WITH_SINGLE_OFFSETS: Final = 1
_FIRST_VERSION_WITH_ISOLATION: Final = 2
_FIRST_VERSION_WITH_OFFSET_NOT_AVAILABLE: Final = 5
_LOOKUP_UNITS: Final = 5
"""What a partition costs, in the units of a ``WorkBudget``."""


@handles(ApiKey.LIST_OFFSETS, versions="0-11")
def handle_list_offsets(broker: Broker, context: RequestContext, request: ListOffsetsRequest) -> Outcome:
    lookup = _Lookup(broker, context, request)
    return broker.sliced_work.start(lookup.find_all(), lookup.budget, context.connection)


class _Timestamp(NamedTuple):
    """A partition whose log must be searched."""

    partition: Partition
    log: PartitionLog
    timestamp: int


class _Lookup:
    """The lookups of one request."""

    __slots__ = ("_broker", "_context", "_duplicates", "_request", "budget")

    def __init__(self, broker: Broker, context: RequestContext, request: ListOffsetsRequest) -> None:
        self._broker = broker
        self._context = context
        self._request = request
        self.budget = new_budget()
        times = Counter(
            (topic.name, requested.partition_index) for topic in request.topics for requested in topic.partitions
        )
        self._duplicates = {key for key, count in times.items() if count > 1}

    def find_all(self) -> Steps[Message | Later | None]:
        """Look up one partition after the other; returns the response."""
        response = ListOffsetsResponse()
        for topic in self._request.topics:
            topic_response = ListOffsetsTopicResponse(name=topic.name)
            response.topics.append(topic_response)
            for requested in topic.partitions:
                self.budget.left -= _LOOKUP_UNITS
                if self.budget.left <= 0:
                    yield None
                if self._context.api_version < _FIRST_VERSION_WITH_SINGLE_OFFSETS:
                    topic_response.partitions.append(self._list_segments(topic.name, requested))
                    continue
                found = self._find(topic.name, requested)
                if isinstance(found, _Timestamp):
                    found = yield from self._search(found)
                topic_response.partitions.append(self._response(requested, found))
        return response

    def _response(
        self, requested: ListOffsetsPartition, found: FoundOffset | ErrorCode
    ) -> ListOffsetsPartitionResponse:
        if found is ErrorCode.OFFSET_NOT_AVAILABLE and (
            self._context.api_version < _FIRST_VERSION_WITH_OFFSET_NOT_AVAILABLE
        ):
            found = ErrorCode.LEADER_NOT_AVAILABLE
        if isinstance(found, ErrorCode):
            return ListOffsetsPartitionResponse(partition_index=requested.partition_index, error_code=found)
        return ListOffsetsPartitionResponse(
            partition_index=requested.partition_index,
            timestamp=found.timestamp,
            offset=found.offset,
            leader_epoch=found.leader_epoch,
        )

    def _find(self, topic: str, requested: ListOffsetsPartition) -> "FoundOffset | ErrorCode | _Timestamp":
        if not self._broker.authorizer.authorize(self._context, Operation.DESCRIBE, ResourceType.TOPIC, topic):
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED
        if (topic, requested.partition_index) in self._duplicates:
            return ErrorCode.INVALID_REQUEST
        if requested.timestamp < 0 and self._context.api_version < _FIRST_VERSIONS.get(requested.timestamp, 1 << 15):
            return ErrorCode.UNSUPPORTED_VERSION
        partition = self._broker.replica_manager.find((topic, requested.partition_index))
        if isinstance(partition, ErrorCode):
            return partition
        error = partition.check_leader_epoch(requested.current_leader_epoch)
        if error:
            return error
        if partition.log is None or not self._may_serve(partition):
            return partition.unavailable_error
        return self._look_up(partition, partition.log, requested.timestamp)

    def _may_serve(self, partition: Partition) -> bool:
        return partition.leading is not None or self._request.replica_id == _DEBUGGING_REPLICA

    def _look_up(
        self, partition: Partition, log: PartitionLog, timestamp: int
    ) -> "FoundOffset | ErrorCode | _Timestamp":
        match timestamp:
            case -1:
                if self._end_is_unknown(partition):
                    return ErrorCode.OFFSET_NOT_AVAILABLE
                return FoundOffset(_NO_TIMESTAMP, self._last_fetchable_offset(log), partition.leader_epoch)
            case -2 | -4:
                return _earliest(log)
            case -5 | -6:
                return FoundOffset(_NO_TIMESTAMP, _NO_OFFSET, NO_EPOCH)
            case _:
                return _Timestamp(partition, log, timestamp)

    def _search(self, requested: "_Timestamp") -> Generator[ReadRequest | None, Buffer | None, FoundOffset | ErrorCode]:
        partition, log, timestamp = requested
        if timestamp == MAX_TIMESTAMP:
            found = yield from log.max_timestamp_offset(self.budget)
        else:
            found = yield from log.offset_for_timestamp(timestamp, self.budget)
        if partition.log is not log or not self._may_serve(partition):
            return partition.unavailable_error  # What was found may not be there any more.
        if found is not None and found.offset < self._last_fetchable_offset(log):
            return found
        if self._end_is_unknown(partition):
            return ErrorCode.OFFSET_NOT_AVAILABLE
        return FoundOffset(_NO_TIMESTAMP, _NO_OFFSET, NO_EPOCH)

    def _list_segments(self, topic: str, requested: ListOffsetsPartition) -> ListOffsetsPartitionResponse:
        """Return the offsets of version 0."""
        index = requested.partition_index
        found = self._find(topic, requested)
        if isinstance(found, ErrorCode):
            return self._response(requested, found)
        partition = self._broker.replica_manager.find((topic, index))
        assert isinstance(partition, Partition), "it was found in this turn of the loop"
        log = partition.log
        assert log is not None, "it was there in this turn of the loop"
        end, now_ms = self._last_fetchable_offset(log), self._broker.wall_clock()
        offsets = list(
            islice(_segment_offsets(log, requested.timestamp, end, now_ms), max(requested.max_num_offsets, 0))
        )
        self.budget.left -= len(offsets)
        return ListOffsetsPartitionResponse(partition_index=index, old_style_offsets=offsets)

    def _end_is_unknown(self, partition: Partition) -> bool:
        return self._request.replica_id == _CONSUMER and not partition.end_is_settled

    def _last_fetchable_offset(self, log: PartitionLog) -> int:
        if self._request.replica_id != _CONSUMER:
            return log.log_end_offset
        if self._context.api_version < _FIRST_VERSION_WITH_ISOLATION:
            is_committed = self._broker.config.oncelog_downconversion_isolation_level == "read_committed"
        else:
            is_committed = self._request.isolation_level == _READ_COMMITTED
        return log.last_stable_offset if is_committed else log.high_watermark


def _segment_offsets(log: PartitionLog, timestamp: int, end: int, now_ms: int) -> Iterator[int]:
    """Yield ``end``, and where the segments below it begin, newest first: those that are not newer than ``timestamp``.

    A segment counts as being as old as its largest timestamp, and what comes after it as being from now.
    """
    start = log.log_start_offset
    if timestamp == EARLIEST_TIMESTAMP:
        yield start
        return
    is_latest = timestamp == LATEST_TIMESTAMP
    if is_latest or timestamp >= now_ms:
        yield end
    for segment in reversed(list(log.segments)):
        if segment.base_offset < end and (is_latest or segment.max_timestamp().timestamp <= timestamp):
            yield max(segment.base_offset, start)


def _earliest(log: PartitionLog) -> FoundOffset:
    first = log.epochs.earliest_entry
    epoch = first.epoch if first is not None and first.start_offset <= log.log_start_offset else NO_EPOCH
    return FoundOffset(_NO_TIMESTAMP, log.log_start_offset, epoch)
