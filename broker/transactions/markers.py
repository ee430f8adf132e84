"""Writing the markers that end transactions: one control batch in each partition that a transaction touched.

A coordinator sends WriteTxnMarkers to the leaders of its partitions; for those that it leads itself it is called here
directly. Each (marker, partition) is appended on its own and has its own error. What a coordinator makes of them: no
leader here or no such partition means look again (or, if the topic is gone, nothing left to do);
TRANSACTION_COORDINATOR_FENCED and INVALID_PRODUCER_EPOCH mean that somebody newer has taken over.

A partition of ``__consumer_offsets`` holds offsets that became pending with the transaction. They are materialised (or
dropped) right after the marker's append and before anybody hears of success, so that who knows of a committed
transaction also sees its offsets.

A marker that is sent again finds its transaction ended. It is appended once more and changes nothing. In version 2 of
the transaction protocol it is told from one that comes late, into the next transaction, by its epoch: that one is
refused (KIP-1228; ``ProducerStateEntry.accepts_marker``).

A request may have thousands of markers, and each is an append, so they are appended in slices. Their order is kept: a
request's markers are appended one after the other, and the next request of its connection waits. What comes over other
connections between two slices does no harm: the producer's next transaction begins when all markers of this one are
answered, another coordinator has another epoch, and a batch of this transaction is refused or part of it as if the
request had come later.

Replication is not waited for without end: REQUEST_TIMED_OUT makes the coordinator send the marker again. The answers of
a connection leave in order, so those of other transactions wait behind this one; and a connection on which nothing is
answered for ``request.timeout.ms`` is given up, with all that is under way on it. So the wait is shorter than that.
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
    """Hears of each marker that was appended to a partition of ``__consumer_offsets``."""

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
        """Append the markers in slices; ``on_written`` is called once, when nothing has to wait any more."""
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
        """Partitions that are not settled, and one for the walk over the request itself; 0 when it is answered."""

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
            self._timer = asyncio.get_running_loop().call_later(self._wait_ms / 1000, self._answer)

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
        def settle(error: ErrorCode) -> None:
            if self._unfinished:
                result.error_code = error
                self._finish_one()

        partition = self._replicas.led_partition((topic, result.partition_index))
        if isinstance(partition, ErrorCode):
            settle(partition)
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
            settle(info)
            return
        if topic == GROUP_METADATA_TOPIC_NAME:
            self._on_offsets_marker(result.partition_index, marker.producer_id, commit=marker.transaction_result)
        result.error_code = ErrorCode.REQUEST_TIMED_OUT  # Unless it is settled before.
        partition.when_replicated(info.last_offset + 1, settle)

    def _finish_one(self) -> None:
        if self._unfinished > 1:
            self._unfinished -= 1
        else:
            self._answer()

    def _answer(self) -> None:
        self._unfinished = 0
        if self._timer is not None:
            self._timer.cancel()
        self._on_written(self._response)
