"""Writing the markers that end transactions: one control batch in each partition that a transaction touched.

A coordinator sends WriteTxnMarkers to the leaders of its partitions; for those that it leads itself it is called here
directly. Each (marker, partition) is appended on its own and has its own error. The coordinator retries
on NOT_LEADER_OR_FOLLOWER and UNKNOWN_TOPIC_OR_PARTITION with new metadata (a deleted topic needs no marker);
TRANSACTION_COORDINATOR_FENCED and INVALID_PRODUCER_EPOCH mean that a newer coordinator or producer has taken over.

A partition of ``__consumer_offsets`` holds offsets that became pending with the transaction. They are materialised (or
dropped) right after the marker's append and before the response, so that a client that knows of a committed
transaction also sees its offsets.

A marker that is sent again finds its transaction ended. It is appended once more and changes nothing. In version 2 of
the transaction protocol its epoch distinguishes it from a late marker that arrives in the next transaction: a late one
is refused (KIP-1228; ``ProducerStateEntry.accepts_marker``).

A request may have thousands of markers, and each is an append, so they are appended in slices. Their order is kept: a
request's markers are appended one after the other, and the next request of its connection waits. Requests of other
connections between two slices are harmless: the producer's next transaction begins when all markers of this one are
written, another coordinator has another epoch, and a batch of this transaction is refused or part of it as if the
request had come later.

The wait for replication is bounded: on REQUEST_TIMED_OUT the coordinator sends the marker again. The responses of a
connection are sent in order, so those of other transactions wait behind this one; and the coordinator closes a
connection that had no response for ``request.timeout.ms``, with all requests in flight on it. So the wait is shorter.
"""

import asyncio
from collections.abc import Callable, Generator
from typing import Final, NamedTuple, Protocol, TypeAlias

from oncelog.broker.replication.leading_partition import ACKS_ALL
from oncelog.broker.replication.replica_manager import ReplicaManager
from oncelog.broker.storage.partition_log import AppendOrigin
from oncelog.coordinator.ports import WallClock
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.internal.topics import GROUP_METADATA_TOPIC_NAME
from oncelog.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from oncelog.protocol.records.control_records import EndTxnMarker, build_end_txn_marker
from oncelog.protocol.records.record_batch import BatchHeader, read_header
from oncelog.protocol.records.record_walk import WorkBudget

OnWritten: TypeAlias = Callable[[WriteTxnMarkersResponse], None]

DEFAULT_WAIT_MS: Final = 15_000
_UNITS_PER_MARKER: Final = 20
_UNITS_PER_PARTITION: Final = 80
"""An append, in units of about a microsecond."""


def longest_wait_ms(request_timeout_ms: int) -> int:
    """Return how long a leader waits for a marker to be replicated: half of the coordinator's request time-out."""
    return request_timeout_ms // 2


class _Built(NamedTuple):
    """The control batch that each partition gets a copy of, and what is in it."""

    batch: bytearray
    header: BatchHeader
    marker: EndTxnMarker


class OnOffsetsMarker(Protocol):
    """Called after each marker that was appended to a partition of ``__consumer_offsets``."""

    def __call__(self, partition: int, producer_id: int, *, commit: bool) -> None: ...


class MarkerWriter:
    """Writes the markers of WriteTxnMarkers requests to the partitions that this broker leads."""

    __slots__ = ("_on_offsets_marker", "_replicas", "_wait_ms", "_wall_clock")

    def __init__(
        self,
        replicas: ReplicaManager,
        on_offsets_marker: OnOffsetsMarker,
        wall_clock: WallClock,
        *,
        wait_ms: int = DEFAULT_WAIT_MS,
    ) -> None:
        """Write to the partitions of ``replicas``; ``wait_ms``: how long a response waits for replication."""
        self._replicas = replicas
        self._on_offsets_marker = on_offsets_marker
        self._wall_clock = wall_clock
        self._wait_ms = wait_ms

    def write(
        self, request: WriteTxnMarkersRequest, on_written: OnWritten, budget: WorkBudget
    ) -> Generator[None, object, None]:
        """Append the markers in slices; ``on_written`` is called once, when every partition has its result."""
        write = _MarkerWrite(
            self._replicas, self._on_offsets_marker, self._wall_clock(), on_written, wait_ms=self._wait_ms
        )
        return write.append_all(request, budget)


class _MarkerWrite:
    """One WriteTxnMarkers request: appends in slices, reports when everything is replicated or failed."""

    __slots__ = (
        "_now_ms",
        "_on_offsets_marker",
        "_on_written",
        "_replicas",
        "_response",
        "_timer",
        "_unfinished",
        "_wait_ms",
    )

    def __init__(
        self,
        replicas: ReplicaManager,
        on_offsets_marker: OnOffsetsMarker,
        now_ms: int,
        on_written: OnWritten,
        *,
        wait_ms: int,
    ) -> None:
        self._replicas = replicas
        self._on_offsets_marker = on_offsets_marker
        self._now_ms = now_ms
        self._on_written = on_written
        self._wait_ms = wait_ms
        self._response = WriteTxnMarkersResponse()
        self._timer: asyncio.TimerHandle | None = None
        self._unfinished = 1
        """Partitions without a result, plus one for the iteration over the request; 0 after the response."""

    def append_all(self, request: WriteTxnMarkersRequest, budget: WorkBudget) -> Generator[None, object, None]:
        """Append the markers in the order of the request; yields when the budget is used up.

        ``on_written`` is called once, possibly before this ends, but not if the generator is closed.
        """
        for marker in request.markers:
            budget.left -= _UNITS_PER_MARKER
            built = self._built(marker)
            result = WritableTxnMarkerResult(producer_id=marker.producer_id)
            self._response.markers.append(result)
            for topic in marker.topics:
                topic_result = WritableTxnMarkerTopicResult(name=topic.name)
                result.topics.append(topic_result)
                for index in topic.partition_indexes:
                    partition_result = WritableTxnMarkerPartitionResult(partition_index=index)
                    topic_result.partitions.append(partition_result)
                    if built is None:
                        partition_result.error_code = ErrorCode.INVALID_REQUEST
                    else:
                        self._unfinished += 1
                        self._write(marker, built, topic.name, partition_result)
                    budget.left -= _UNITS_PER_PARTITION
                    if budget.left <= 0:
                        yield None
        self._finish_one()
        if self._unfinished:
            self._timer = asyncio.get_running_loop().call_later(self._wait_ms / 1000, self._respond)

    def _built(self, marker: WritableTxnMarker) -> _Built | None:
        """Return the marker's control batch; None if there is no such producer."""
        if marker.producer_id < 0 or marker.producer_epoch < 0:
            return None
        commit, coordinator_epoch = marker.transaction_result, marker.coordinator_epoch
        batch = build_end_txn_marker(
            producer_id=marker.producer_id,
            producer_epoch=marker.producer_epoch,
            commit=commit,
            coordinator_epoch=coordinator_epoch,
            timestamp=self._now_ms,
        )
        return _Built(batch, read_header(batch), EndTxnMarker(commit=commit, coordinator_epoch=coordinator_epoch))

    def _write(
        self, marker: WritableTxnMarker, built: _Built, topic: str, result: WritableTxnMarkerPartitionResult
    ) -> None:
        def complete(error: ErrorCode) -> None:
            if self._unfinished:
                result.error_code = error
                self._finish_one()

        partition = self._replicas.led_partition((topic, result.partition_index))
        if isinstance(partition, ErrorCode):
            complete(partition)
            return
        info = partition.append(
            bytearray(built.batch),
            built.header,
            origin=AppendOrigin.COORDINATOR,
            required_acks=ACKS_ALL,
            marker=built.marker,
            transaction_version=marker.transaction_version,
        )
        if isinstance(info, ErrorCode):
            complete(info)
            return
        if topic == GROUP_METADATA_TOPIC_NAME:
            self._on_offsets_marker(result.partition_index, marker.producer_id, commit=marker.transaction_result)
        result.error_code = ErrorCode.REQUEST_TIMED_OUT  # Unless it is replicated in time.
        partition.when_replicated(info.last_offset + 1, complete)

    def _finish_one(self) -> None:
        if self._unfinished > 1:
            self._unfinished -= 1
        else:
            self._respond()

    def _respond(self) -> None:
        self._unfinished = 0
        if self._timer is not None:
            self._timer.cancel()
        self._on_written(self._response)
