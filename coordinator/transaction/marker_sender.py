"""Markers: the records by which every partition of a transaction is committed or aborted.

A prepared transaction becomes a ``PendingMarkers``: the partitions that still wait for its marker. Those that this
broker leads get it by a plain call (``LocalMarkers``), and may have it before ``send`` returns. For those that another
broker leads it goes there in a WriteTxnMarkers request; markers are collected until the end of the loop's turn and
share requests. A request has ``MOST_PARTITIONS`` at most, so that a broker receives it whatever number of partitions a
transaction has.

The transaction is decided, so the sender never gives up. A partition stays until its leader has acknowledged the marker
or until it is known to be deleted; what fails is retried with the leader of that moment, after a delay that doubles. A
leader that has seen a newer coordinator of this transaction (TRANSACTION_COORDINATOR_FENCED) ends it: a successor has
read the same decision from the log and carries it out, and this broker is about to learn of it.

An entry is removed only as itself, by identity: a response that comes late, from before a resignation or for an earlier
transaction of the same id, finds its entry gone and changes nothing. ``PendingMarkers.then`` calls back exactly once,
in the step in which the last partition gets its marker.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator
from enum import Enum, auto
from functools import partial
from typing import Final, NamedTuple

from oncelog.coordinator.ports import (
    NO_LEADER_EPOCH,
    NO_OFFSET,
    BrokerChannel,
    LocalMarkers,
    TopicMetadata,
    TransactionMarker,
)
from oncelog.coordinator.timers import Backoff
from oncelog.coordinator.transaction.state import TransactionMetadata
from oncelog.coordinator.transaction.transaction_state import TransactionState
from oncelog.protocol.errors import ErrorCode, error_of
from oncelog.protocol.internal.topics import INTERNAL_TOPICS
from oncelog.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from oncelog.protocol.schema import ZERO_UUID, Message
from oncelog.protocol.topic_partition import TopicPartition

logger = logging.getLogger(__name__)

MOST_PARTITIONS: Final = 1_500
"""In one request. Each is four array elements at most, and a broker that is set to the least accepts 7,000."""

PARTITIONS_PER_TURN: Final = 100
"""Appended to in this broker in one turn of the loop: some milliseconds."""

ATTEMPTS_FOR_INTERNAL_TOPICS: Final = 12
"""Some seconds with the default backoff; far longer than metadata takes to arrive."""


_FIRST_WITH_OWN_EPOCHS: Final = 2
"""The version of the transaction protocol from which each transaction has a producer epoch of its own."""


class MarkerOutcome(Enum):
    """What a response means for one partition."""

    DONE = auto()
    """The marker is in the log, or there is nothing of this transaction for it to end."""
    RETRY = auto()
    """Not yet: send it again to the leader of that moment."""
    FENCED = auto()
    """A newer coordinator has taken over."""


MARKER_OUTCOMES: Final[dict[int, MarkerOutcome]] = {
    ErrorCode.NONE: MarkerOutcome.DONE,
    # The partition has seen a later transaction of this producer, which exists only after this one ended there.
    ErrorCode.INVALID_PRODUCER_EPOCH: MarkerOutcome.DONE,
    # Such a log could not take the transaction's records either.
    ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT: MarkerOutcome.DONE,
    ErrorCode.UNSUPPORTED_VERSION: MarkerOutcome.DONE,
    ErrorCode.TRANSACTION_COORDINATOR_FENCED: MarkerOutcome.FENCED,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: MarkerOutcome.RETRY,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: MarkerOutcome.RETRY,
    ErrorCode.LEADER_NOT_AVAILABLE: MarkerOutcome.RETRY,
    ErrorCode.NOT_ENOUGH_REPLICAS: MarkerOutcome.RETRY,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: MarkerOutcome.RETRY,
    ErrorCode.REQUEST_TIMED_OUT: MarkerOutcome.RETRY,
    ErrorCode.KAFKA_STORAGE_ERROR: MarkerOutcome.RETRY,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: MarkerOutcome.RETRY,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: MarkerOutcome.RETRY,
    ErrorCode.NOT_COORDINATOR: MarkerOutcome.RETRY,
}
"""Any other code is unexpected. It is logged as an error and retried, because forgetting a marker is never right."""


def marker_outcome(error: int) -> MarkerOutcome:
    """Return what a response's error code for one partition means."""
    return MARKER_OUTCOMES.get(error, MarkerOutcome.RETRY)


class PendingMarkers:
    """A decided transaction, and the partitions that do not have its marker yet."""

    __slots__ = (
        "_on_done",
        "again",
        "attempts",
        "leaderless",
        "log_partition",
        "marker",
        "transactional_id",
        "waiting",
    )

    def __init__(
        self,
        transactional_id: str,
        prepared: TransactionMetadata,
        *,
        log_partition: int,
        coordinator_epoch: int,
        decision_offset: int = NO_OFFSET,
    ) -> None:
        """Take the markers from a durable Prepare*, and the place, epoch and offset of its record."""
        self.transactional_id = transactional_id
        self.log_partition = log_partition
        self.marker = TransactionMarker(
            producer_id=prepared.producer_id,
            producer_epoch=prepared.producer_epoch,
            commit=prepared.state is TransactionState.PREPARE_COMMIT,
            coordinator_epoch=coordinator_epoch,
            transaction_version=prepared.client_transaction_version,
            decision_offset=decision_offset,
        )
        self.waiting = set(prepared.partitions)
        self.attempts = 0
        self.leaderless = 0
        """How many partitions had no leader at the last attempt."""
        self.again: list[TopicPartition] = []
        """The partitions of the next attempt."""
        self._on_done: Callable[[], None] | None = None

    def __str__(self) -> str:
        marker = self.marker
        result = "commit" if marker.commit else "abort"
        return f"{result} of {self.transactional_id!r} ({marker.producer_id}, {marker.producer_epoch})"

    def then(self, callback: Callable[[], None]) -> None:
        """Call back once: when every partition has its marker, now if that is so. Never if it was fenced before."""
        if self.waiting:
            self._on_done = callback
        else:
            callback()

    def complete(self) -> None:
        """Call back: every partition has its marker."""
        if self._on_done is not None:
            self._on_done()


class Routes(NamedTuple):
    """Where the partitions of a transaction get their marker, by the metadata of one moment."""

    here: list[TopicPartition]
    elsewhere: dict[int, list[TopicPartition]]
    """By the broker that leads them."""
    leaderless: list[TopicPartition]
    deleted: list[TopicPartition]


_Batch = dict[PendingMarkers, list[TopicPartition]]


class MarkerSender:
    """Sends the markers of this coordinator's transactions."""

    def __init__(
        self,
        *,
        broker_id: int,
        metadata: TopicMetadata,
        channel: BrokerChannel,
        local: LocalMarkers,
        retries: Backoff,
    ) -> None:
        self._broker_id = broker_id
        self._metadata = metadata
        self._channel = channel
        self._local = local
        self._pending: dict[str, PendingMarkers] = {}
        self._outgoing: dict[int, _Batch] = {}
        self._retries = retries

    def __len__(self) -> int:
        return len(self._pending)

    def leaderless_count(self) -> int:
        """Return how many markers wait for their partition to have a leader."""
        return sum(markers.leaderless for markers in self._pending.values())

    def send(self, markers: PendingMarkers) -> None:
        """Send markers to their partitions, and retry until each partition has its own."""
        self._pending[markers.transactional_id] = markers
        self._dispatch(markers, sorted(markers.waiting))

    def forget(self, log_partition: int) -> None:
        """Drop the markers of a partition of the transaction log that this broker does not own any more."""
        for markers in [markers for markers in self._pending.values() if markers.log_partition == log_partition]:
            del self._pending[markers.transactional_id]

    def stop(self) -> None:
        """Drop all markers, and run no more timers."""
        self._pending.clear()
        self._outgoing.clear()
        self._retries.stop()

    def _is_current(self, markers: PendingMarkers) -> bool:
        return self._pending.get(markers.transactional_id) is markers

    def _dispatch(self, markers: PendingMarkers, partitions: list[TopicPartition]) -> None:
        """Send each partition's marker to its leader of this moment."""
        routes = self._route(markers, partitions)
        for partition in routes.deleted:
            logger.info("%s: %s was deleted and needs no marker", markers, partition)
            markers.waiting.discard(partition)
        for broker_id, led in routes.elsewhere.items():
            self._enqueue(broker_id, markers, led)
        markers.leaderless = len(routes.leaderless)
        if routes.leaderless:
            self._retry(markers, routes.leaderless)
        if routes.here:
            self._write_here(markers, routes.here)
        else:
            self._finish_if_done(markers)

    def _route(self, markers: PendingMarkers, partitions: Iterable[TopicPartition]) -> Routes:
        """Decide where each marker goes. Changes nothing."""
        routes = Routes([], {}, [], [])
        for partition in partitions:
            leader = self._metadata.leader(partition)
            if leader is not None:
                at_leader = leader.broker_id == self._broker_id
                (routes.here if at_leader else routes.elsewhere.setdefault(leader.broker_id, [])).append(partition)
            elif self._is_deleted(markers, partition):
                routes.deleted.append(partition)
            else:
                routes.leaderless.append(partition)
        return routes

    def _is_deleted(self, markers: PendingMarkers, partition: TopicPartition) -> bool:
        """Return whether the partition is known not to exist any more.

        A controller makes this broker a coordinator after it has named every partition to it, so a partition of a
        transaction that is missing then was deleted. Until that is known the marker waits: a broker that has just
        started, or that hears of a new controller, may not know a topic that exists. The offsets topic may be younger
        than its place in the transaction.
        """
        if not self._metadata.is_deleted(partition):
            return False
        return partition.topic not in INTERNAL_TOPICS or markers.attempts > ATTEMPTS_FOR_INTERNAL_TOPICS

    # This broker's partitions

    def _write_here(self, markers: PendingMarkers, partitions: list[TopicPartition]) -> None:
        """Write markers to partitions of this broker: some now, the others in the loop's next turns."""
        now, later = partitions[:PARTITIONS_PER_TURN], partitions[PARTITIONS_PER_TURN:]
        if later:
            asyncio.get_running_loop().call_soon(self._write_more, markers, later)
        self._local.write(markers.marker, now).then(partial(self._on_written, markers, now))

    def _write_more(self, markers: PendingMarkers, partitions: list[TopicPartition]) -> None:
        if self._is_current(markers):
            self._write_here(markers, partitions)

    def _on_written(
        self, markers: PendingMarkers, partitions: list[TopicPartition], errors: Iterable[ErrorCode]
    ) -> None:
        if self._is_current(markers):
            self._settle(self._broker_id, markers, zip(partitions, errors, strict=True))

    # Other brokers' partitions

    def _enqueue(self, broker_id: int, markers: PendingMarkers, partitions: list[TopicPartition]) -> None:
        if not self._outgoing:
            asyncio.get_running_loop().call_soon(self._flush)
        self._outgoing.setdefault(broker_id, {}).setdefault(markers, []).extend(partitions)

    def _flush(self) -> None:
        """Send what was collected in one turn of the loop."""
        outgoing, self._outgoing = self._outgoing, {}
        for broker_id, batch in outgoing.items():
            current = {markers: partitions for markers, partitions in batch.items() if self._is_current(markers)}
            for piece in _pieces(current):
                self._send(broker_id, piece)

    def _send(self, broker_id: int, batch: _Batch) -> None:
        request = WriteTxnMarkersRequest(
            markers=[
                _request_marker(markers.marker, partitions, self._metadata) for markers, partitions in batch.items()
            ]
        )
        self._channel.send(broker_id, request, lambda response: self._on_response(broker_id, batch, response))

    def _on_response(self, broker_id: int, batch: _Batch, response: Message | None) -> None:
        errors: dict[tuple[int, str, int], int] = {}
        if response is None:
            logger.info("Broker %d sent no response to the markers of %d transactions: retrying", broker_id, len(batch))
        else:
            assert isinstance(response, WriteTxnMarkersResponse)
            errors = _errors_by_partition(response)
        for markers, partitions in batch.items():
            if self._is_current(markers):
                producer_id = markers.marker.producer_id
                self._settle(broker_id, markers, [(each, errors.get((producer_id, *each))) for each in partitions])

    # Results

    def _settle(
        self, broker_id: int, markers: PendingMarkers, results: Iterable[tuple[TopicPartition, int | None]]
    ) -> None:
        """Take the results of one transaction at one broker. A partition without a result (None) is retried."""
        again: list[TopicPartition] = []
        for partition, error in results:
            if error is None:
                again.append(partition)
                continue
            if error == ErrorCode.NONE:
                markers.waiting.discard(partition)
                continue
            match marker_outcome(error):
                case MarkerOutcome.DONE:
                    markers.waiting.discard(partition)
                case MarkerOutcome.RETRY:
                    again.append(partition)
                case MarkerOutcome.FENCED:
                    logger.warning("%s: broker %d knows a newer coordinator of %s", markers, broker_id, partition)
                    del self._pending[markers.transactional_id]
                    return
            level = logging.INFO if error in MARKER_OUTCOMES else logging.ERROR
            name = error_of(error).name
            logger.log(level, "%s: broker %d responded with %s for %s", markers, broker_id, name, partition)
        if again:
            self._retry(markers, again)
        self._finish_if_done(markers)

    def _retry(self, markers: PendingMarkers, partitions: list[TopicPartition]) -> None:
        """Try these partitions again. What fails until then joins the attempt, which counts once."""

        def again() -> None:
            together, markers.again = markers.again, []
            if self._is_current(markers):
                self._dispatch(markers, together)

        markers.again += partitions
        if len(markers.again) > len(partitions):
            return
        markers.attempts += 1
        self._retries.add(markers.attempts, again)

    def _finish_if_done(self, markers: PendingMarkers) -> None:
        if not markers.waiting and self._is_current(markers):
            del self._pending[markers.transactional_id]
            markers.complete()


def _pieces(batch: _Batch) -> Iterator[_Batch]:
    """Split a batch into pieces of at most ``MOST_PARTITIONS``."""
    piece: _Batch = {}
    room = MOST_PARTITIONS
    for markers, partitions in batch.items():
        start = 0
        while start < len(partitions):
            part = piece[markers] = partitions[start : start + room]
            start += len(part)
            room -= len(part)
            if not room:
                yield piece
                piece, room = {}, MOST_PARTITIONS
    if piece:
        yield piece


def _request_marker(
    marker: TransactionMarker, partitions: list[TopicPartition], metadata: TopicMetadata
) -> WritableTxnMarker:
    """Return a marker as it is sent. Where its epoch tells that it is late, it needs not say to whom it is sent.

    Else it names the leadership, of this topic: those of a topic that is created again have the same epochs.
    """
    topics: dict[str, WritableTxnMarkerTopic] = {}
    names_leader = marker.transaction_version < _FIRST_WITH_OWN_EPOCHS
    for partition in partitions:
        topic = topics.get(partition.topic)
        if topic is None:
            topic_id = metadata.topic_id(partition.topic) if names_leader else ZERO_UUID
            topic = topics[partition.topic] = WritableTxnMarkerTopic(name=partition.topic, topic_id=topic_id)
        topic.partition_indexes.append(partition.partition)
        if names_leader:
            leader = metadata.leader(partition)
            topic.leader_epochs.append(NO_LEADER_EPOCH if leader is None else leader.epoch)
    return WritableTxnMarker(
        producer_id=marker.producer_id,
        producer_epoch=marker.producer_epoch,
        transaction_result=marker.commit,
        topics=list(topics.values()),
        coordinator_epoch=marker.coordinator_epoch,
        transaction_version=marker.transaction_version,
        decision_offset=marker.decision_offset,
    )


def _errors_by_partition(response: WriteTxnMarkersResponse) -> dict[tuple[int, str, int], int]:
    """Return the error codes by (producer id, topic, partition)."""
    return {
        (marker.producer_id, topic.name, partition.partition_index): partition.error_code
        for marker in response.markers
        for topic in marker.topics
        for partition in topic.partitions
    }
