"""Writing the markers that end transactions: one control batch in each partition that a transaction touched.

A coordinator hands a marker over directly for the partitions that its own broker leads (``MarkerWriter.write``), and
sends WriteTxnMarkers to the leaders of the others. Each (marker, partition) is appended on its own and has its own
error. The coordinator retries on NOT_LEADER_OR_FOLLOWER and UNKNOWN_TOPIC_OR_PARTITION with new metadata (a deleted
topic needs no marker); TRANSACTION_COORDINATOR_FENCED and INVALID_PRODUCER_EPOCH mean that a newer coordinator or
producer has taken over.

A partition of ``__consumer_offsets`` holds offsets that became pending with the transaction. They are materialised (or
dropped) right after the marker's append and before the response, so that a client that knows of a committed
transaction also sees its offsets.

A marker that is sent again finds its transaction ended. It is appended once more and changes nothing. One that arrives
late, in the next transaction, is refused. In version 2 of the transaction protocol its epoch shows that (KIP-1228;
``ProducerStateEntry.accepts_marker``). In version 1 all transactions have the same epoch; there the marker carries the
offset of the record that decided the end (``ProducerStateManager.is_marker_late``). The leader compares it with those
that it has seen since it leads. A marker that was sent to an earlier leadership, perhaps of the same broker, has the
epoch of that one. Markers of Kafka's tools carry neither and are accepted.

A request may have thousands of markers, and each is an append, so the handler appends them in slices
(``MarkerWriter.begin``). Their order is kept: a request's markers are appended one after the other, and the next
request of its connection waits. Requests of other connections between two slices are harmless: the producer's next
transaction begins when all markers of this one are written, another coordinator has another epoch, and a batch of this
transaction is refused or part of it as if the request had come later.

The wait for replication is bounded: on REQUEST_TIMED_OUT the coordinator sends the marker again. The responses of a
connection are sent in order, so those of other transactions wait behind this one; and the coordinator closes a
connection that had no response for ``request.timeout.ms``, with all requests in flight on it. So the wait is shorter.
"""

import asyncio
import logging
from collections.abc import Sequence
from functools import partial
from typing import Final, Protocol

from oncelog.broker.process.containment import Containment
from oncelog.broker.replication.leading_partition import ACKS_ALL
from oncelog.broker.replication.replica_manager import ReplicaManager
from oncelog.broker.replication.stray_replicas import is_of_another_topic
from oncelog.broker.storage.partition_log import AppendOrigin
from oncelog.broker.storage.producer_state_entry import Decision
from oncelog.coordinator.ports import NO_LEADER_EPOCH, TransactionMarker, WallClock
from oncelog.coordinator.promise import Promise
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.internal.topics import GROUP_METADATA_TOPIC_NAME
from oncelog.protocol.records.control_records import EndTxnMarker, build_end_txn_marker
from oncelog.protocol.records.record_batch import BatchHeader, read_header
from oncelog.protocol.schema import ZERO_UUID
from oncelog.protocol.topic_partition import TopicPartition

logger = logging.getLogger(__name__)

DEFAULT_WAIT_MS: Final = 15_000


def longest_wait_ms(request_timeout_ms: int) -> int:
    """Return how long a leader waits for a marker to be replicated: half of the coordinator's request time-out."""
    return request_timeout_ms // 2


class OnOffsetsMarker(Protocol):
    """Called after each marker that was appended to a partition of ``__consumer_offsets``."""

    def __call__(self, partition: int, producer_id: int, *, commit: bool) -> None: ...


class MarkerWriter:
    """Writes markers to the partitions that this broker leads: ``oncelog.coordinator.ports.LocalMarkers``."""

    __slots__ = ("_contained", "_on_offsets_marker", "_replicas", "_wait_ms", "_wall_clock")

    _replicas: ReplicaManager
    _on_offsets_marker: OnOffsetsMarker

    def __init__(self, wall_clock: WallClock, *, wait_ms: int = DEFAULT_WAIT_MS) -> None:
        """Wait at most ``wait_ms`` for the replication of markers. ``serve`` comes before the first marker."""
        self._wall_clock = wall_clock
        self._wait_ms = wait_ms
        self._contained = Containment(_log_failure)

    def serve(self, replicas: ReplicaManager, on_offsets_marker: OnOffsetsMarker) -> None:
        """Write to the partitions of ``replicas`` from now on."""
        self._replicas = replicas
        self._on_offsets_marker = on_offsets_marker

    def write(self, marker: TransactionMarker, partitions: Sequence[TopicPartition]) -> Promise[Sequence[ErrorCode]]:
        """Append one marker to each partition now, and return the errors once they are replicated.

        An unforeseen exception is the UNKNOWN_SERVER_ERROR of its partition, as for a coordinator of another broker.
        """
        write = MarkerWrite(self._replicas, self._on_offsets_marker, self._wall_clock(), wait_ms=self._wait_ms)
        errors = write.errors
        while len(errors) < len(partitions):
            with self._contained:
                built = write.build(marker)
                for partition in partitions[len(errors) :]:
                    write.append(built, partition)
                continue
            if len(errors) < len(partitions):
                errors.append(ErrorCode.UNKNOWN_SERVER_ERROR)
        return write.end()

    def begin(self) -> "MarkerWrite":
        """Begin to write markers that share one response."""
        return MarkerWrite(self._replicas, self._on_offsets_marker, self._wall_clock(), wait_ms=self._wait_ms)


class BuiltMarker:
    """A marker, and the control batch that each partition gets a copy of."""

    __slots__ = ("batch", "content", "decision", "header", "marker")

    def __init__(self, marker: TransactionMarker, now_ms: int) -> None:
        producer_id, producer_epoch, commit, coordinator_epoch = marker[:4]
        self.marker = marker
        self.decision = Decision(coordinator_epoch, marker.decision_offset)
        self.batch = build_end_txn_marker(
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            commit=commit,
            coordinator_epoch=coordinator_epoch,
            timestamp=now_ms,
        )
        self.header: BatchHeader = read_header(self.batch)
        self.content = EndTxnMarker(commit=commit, coordinator_epoch=coordinator_epoch)


class MarkerWrite:
    """Markers that are written together: their errors are complete when all of them are replicated or refused."""

    __slots__ = (
        "_now_ms",
        "_on_offsets_marker",
        "_replicas",
        "_result",
        "_timer",
        "_unfinished",
        "_wait_ms",
        "errors",
    )

    def __init__(
        self, replicas: ReplicaManager, on_offsets_marker: OnOffsetsMarker, now_ms: int, *, wait_ms: int
    ) -> None:
        self._replicas = replicas
        self._on_offsets_marker = on_offsets_marker
        self._now_ms = now_ms
        self._wait_ms = wait_ms
        self.errors: list[ErrorCode] = []
        """Of the appends, in their order; REQUEST_TIMED_OUT for those that are not replicated."""
        self._unfinished = 1
        """Markers that are not replicated, plus one until ``end``."""
        self._result: Promise[Sequence[ErrorCode]] = Promise()
        self._timer: asyncio.TimerHandle | None = None

    def build(self, marker: TransactionMarker) -> BuiltMarker | None:
        """Return the marker as it is appended; None if there is no such producer."""
        if marker.producer_id < 0 or marker.producer_epoch < 0:
            return None
        return BuiltMarker(marker, self._now_ms)

    def append(
        self,
        built: BuiltMarker | None,
        topic_partition: TopicPartition,
        leader_epoch: int = NO_LEADER_EPOCH,
        topic_id: bytes = ZERO_UUID,
    ) -> None:
        """Append a marker to one partition; it has an error in any case.

        ``leader_epoch`` and ``topic_id``: of the leadership that it was sent to, and of its topic; NO_LEADER_EPOCH and
        ``ZERO_UUID``: whichever.
        """
        if built is None:
            self.errors.append(ErrorCode.INVALID_REQUEST)
            return
        partition = self._replicas.led_partition(topic_partition)
        if isinstance(partition, ErrorCode):
            self.errors.append(partition)
            return
        if leader_epoch not in (NO_LEADER_EPOCH, partition.leader_epoch):
            self.errors.append(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return
        known_id = partition.log.topic_id
        if topic_id not in (ZERO_UUID, known_id) and is_of_another_topic(known_id, topic_id):
            self.errors.append(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return
        marker, decision, producer_state = built.marker, built.decision, partition.log.producer_state
        if producer_state.is_marker_late(marker.producer_id, decision):
            self.errors.append(ErrorCode.INVALID_PRODUCER_EPOCH)
            return
        info = partition.append(
            bytearray(built.batch),
            built.header,
            origin=AppendOrigin.COORDINATOR,
            required_acks=ACKS_ALL,
            marker=built.content,
            transaction_version=marker.transaction_version,
        )
        if isinstance(info, ErrorCode):
            self.errors.append(info)
            return
        producer_state.note_decision(marker.producer_id, decision)
        if not marker.commit:
            producer_state.note_abort(marker.producer_id, self._replicas.host.now_ms())
        topic, index = topic_partition
        if topic == GROUP_METADATA_TOPIC_NAME:
            self._on_offsets_marker(index, marker.producer_id, commit=marker.commit)
        place = len(self.errors)
        self.errors.append(ErrorCode.REQUEST_TIMED_OUT)  # Unless it is replicated in time.
        self._unfinished += 1
        partition.when_replicated(info.last_offset + 1, partial(self._replicated, place))

    def _replicated(self, place: int, error: ErrorCode) -> None:
        if self._result.value is None:
            self.errors[place] = error
            self._finish_one()

    def end(self) -> Promise[Sequence[ErrorCode]]:
        """Return the errors of all appends, in their order, once none is open or the time is over."""
        self._finish_one()
        if self._unfinished:
            self._timer = asyncio.get_running_loop().call_later(self._wait_ms / 1000, self._complete)
        return self._result

    def _finish_one(self) -> None:
        self._unfinished -= 1
        if not self._unfinished:
            self._complete()

    def _complete(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._result.complete(self.errors)


def _log_failure(error: Exception) -> None:
    logger.error("A marker was not written: its coordinator sends it again", exc_info=error)
