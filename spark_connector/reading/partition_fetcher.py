"""Fetches one range of offsets of one partition, in a task, in order, with one request ahead.

``next`` returns a response's batches after it has sent the request for those that follow: the broker works while the
task decodes. Responses wait in the socket; their time-out counts from the call of ``next``.

Retriable errors (a leader that moved, a broker that restarts) are retried while records come within
``patience_seconds``, and so are responses without records: a broker with a slow remote tier sends them too. A range of
which no record comes in that time although the log reaches beyond it counts as lost: compaction may have emptied it.
Deleted records are a ``DataLoss``, or are skipped if ``failOnDataLoss`` is false: then the range goes on at the log's
start. A loss that a broker with old metadata may report by mistake is checked again for some seconds first.

Before the first fetch from a new leader, ``oncelog.spark_connector.reading.epoch_end`` checks that its log still has
the records that were read.

Requests name the topic by its id if the cluster has ids (Fetch 13): a new topic of the same name is never read in its
place.
"""

import asyncio
import logging
from typing import Final

from oncelog.clients.cluster import Cluster
from oncelog.clients.connection import Connection
from oncelog.clients.errors import (
    BrokerRefused,
    ClientError,
    ConnectionLost,
    Refusal,
    RequestTimedOut,
    Unreachable,
    error_code,
)
from oncelog.clients.retry import Backoff
from oncelog.protocol.errors import RETRIABLE, ErrorCode
from oncelog.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from oncelog.protocol.records.record_batch import CorruptRecord, iter_batches
from oncelog.spark_connector.columnar.fetched_batches import FetchedBatches, RangeUnreadable
from oncelog.spark_connector.offset_ranges import NO_TOPIC_ID, OffsetRange
from oncelog.spark_connector.reading.data_loss import data_loss
from oncelog.spark_connector.reading.epoch_end import NO_EPOCH, find_epoch_end, is_cut
from oncelog.spark_connector.reading.offset_lookup import DOUBT_SECONDS, earliest_offsets, latest_offsets
from oncelog.spark_connector.reading.read_options import FetchSettings

_log = logging.getLogger(__name__)

_NEWEST_WITH_TOPIC_NAMES: Final = 12
_CONSUMER: Final = -1
_NO_SESSION_EPOCH: Final = -1
_UNDER_WAY_SECONDS: Final = 86_400.0
"""The connection's time-out, in effect none: ``_receive`` has its own, which begins later."""
_ABOUT_THE_TOPIC: Final = frozenset(
    {ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.INCONSISTENT_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
)


class PartitionFetcher:
    """The fetches of one range."""

    def __init__(
        self,
        cluster: Cluster,
        offset_range: OffsetRange,
        settings: FetchSettings,
        *,
        response_seconds: float,
        fail_on_data_loss: bool,
    ) -> None:
        """Make a fetcher; a response times out ``response_seconds`` (and the wait of the request) after ``next``."""
        self._cluster = cluster
        self._response_seconds = response_seconds
        self._range = offset_range
        self._settings = settings
        self._fail_on_data_loss = fail_on_data_loss
        self._backoff = Backoff(rng=cluster.rng)
        self._position = offset_range.start
        self._under_way: asyncio.Future[FetchResponse] | None = None
        self._connection: Connection | None = None
        self._leader_epoch = NO_EPOCH
        """The leader epoch in which the leader's log is known to have the records that were read."""
        self._read_epoch = NO_EPOCH
        """The leader epoch of the last batch that was read."""
        self._failures = 0
        self._was_empty = False
        """Whether the last response had no records, although the log reaches to the range's end."""
        self._doubts_since: float | None = None

    @property
    def is_done(self) -> bool:
        return self._position >= self._range.end

    async def next(self) -> FetchedBatches | None:
        """Return the next batches; None at the end of the range.

        Raises ``RangeUnreadable``, ``DataLoss`` and ``BrokerRefused``.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._settings.patience_seconds
        while not self.is_done:
            error: ClientError | None = None
            try:
                fetched = await self._fetch()
                if fetched is not None:
                    return fetched
            except (Unreachable, ConnectionLost, RequestTimedOut) as failure:
                error = failure
                await self._refresh_leader()
            if not self.is_done and loop.time() >= deadline:
                self._give_up(error)
        return None

    def _give_up(self, error: ClientError | None) -> None:
        """Raise ``RangeUnreadable``; or skip the range, or raise ``DataLoss``, if its records may be compacted away."""
        nothing = f"{self._range}: no records for {self._settings.patience_seconds:g} s at {self._position}"
        if error is not None or not self._was_empty:
            raise RangeUnreadable(nothing) from error
        reason = "although the log goes on: compaction emptied the range, or the broker cannot read it now"
        self._report_loss(f"{nothing}, {reason}", self._range.end)

    def close(self) -> None:
        """Cancel the request that is under way."""
        if self._under_way is not None:
            self._under_way.cancel()
            self._under_way = None

    # One request

    async def _fetch(self) -> FetchedBatches | None:
        """Return one response's batches; None if it had none, after a pause where one is due."""
        if self._under_way is None:
            await self._send()
        data, throttle_seconds = await self._receive()
        if throttle_seconds:
            await asyncio.sleep(throttle_seconds)
        error = error_code(data.error_code)
        self._was_empty = False
        if error is not ErrorCode.NONE:
            await self._handle_error(error)
            return None
        if data.records:
            return self._take(data)
        if not throttle_seconds:
            await self._note_empty_response(data)
        return None

    async def _send(self) -> None:
        tp = self._range.topic_partition
        topics = await self._cluster.topics([tp.topic])
        leader = self._cluster.metadata.leader(tp)
        if leader is None:
            error = topics[tp.topic].error_code or ErrorCode.LEADER_NOT_AVAILABLE
            if error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                await self._check_topic()
            raise Unreachable(f"{self._range}: no leader: {error_code(error).name}")
        connection = await self._cluster.connection_to(leader)
        await self._verify_leader(connection, self._cluster.metadata.leader_epoch(tp))
        self._connection = connection
        self._send_on(connection)

    async def _verify_leader(self, connection: Connection, leader_epoch: int) -> None:
        """Check that a new leader's log has the records that were read. Raises ``DataLoss``, or logs it."""
        if leader_epoch <= self._leader_epoch:  # Metadata that is not newer: a former leader refuses the fetch.
            return
        if self._read_epoch != NO_EPOCH:
            tp, epoch = self._range.topic_partition, self._read_epoch
            seconds = self._response_seconds
            end = await find_epoch_end(connection, tp, epoch, leader_epoch=leader_epoch, seconds=seconds)
            if end is not None and is_cut(end, self._position):
                where = f"at {end.end_offset}" if end.end_offset >= 0 else "at an offset that its leader does not know"
                lost = f"{self._range}: the log was truncated {where} and has other records after that"
                self._report_loss(f"{lost}, after it had been read up to {self._position}", self._position)
        self._leader_epoch = leader_epoch

    def _send_on(self, connection: Connection) -> None:
        at_most = _NEWEST_WITH_TOPIC_NAMES if self._range.topic_id == NO_TOPIC_ID else None
        self._under_way = connection.send(self._request(), FetchResponse, at_most=at_most, timeout=_UNDER_WAY_SECONDS)

    def _request(self) -> FetchRequest:
        wanted = FetchPartition(
            partition=self._range.partition,
            current_leader_epoch=self._leader_epoch,
            fetch_offset=self._position,
            partition_max_bytes=self._settings.max_partition_bytes,
        )
        return FetchRequest(
            replica_id=_CONSUMER,
            max_wait_ms=self._settings.max_wait_ms,
            min_bytes=1,
            max_bytes=self._settings.max_partition_bytes,
            isolation_level=1 if self._settings.read_committed else 0,
            session_epoch=_NO_SESSION_EPOCH,
            topics=[FetchTopic(topic=self._range.topic, topic_id=self._range.topic_id, partitions=[wanted])],
        )

    async def _receive(self) -> tuple[PartitionData, float]:
        """Await the response; return the partition's part of it, and the throttle time (s)."""
        assert self._under_way is not None, "no request is under way"
        assert self._connection is not None, "a request is under way without a connection"
        under_way, self._under_way = self._under_way, None
        seconds = self._response_seconds + self._settings.max_wait_ms / 1000
        try:
            async with asyncio.timeout(seconds):
                response = await under_way
        except TimeoutError:
            self._connection.abort()
            raise RequestTimedOut(f"{self._connection.address} did not respond in time") from None
        for topic in response.responses:
            for data in topic.partitions:
                return data, response.throttle_time_ms / 1000
        return PartitionData(error_code=response.error_code or ErrorCode.UNKNOWN_SERVER_ERROR), 0.0

    # Responses

    def _take(self, data: PartitionData) -> FetchedBatches:
        records = data.records or b""
        assert not isinstance(records, list), "a list of buffers is for encoding only"
        try:
            batches = list(iter_batches(records))
        except CorruptRecord as error:
            raise RangeUnreadable(f"{self._range}, at offset {self._position}: {error}") from error
        if not batches:
            raise RangeUnreadable(f"{self._range}: {len(records)} bytes of a larger batch at {self._position}")
        start = self._position
        self._position = max(self._position, batches[-1][1].next_offset)
        self._read_epoch = batches[-1][1].partition_leader_epoch
        self._failures = 0
        self._doubts_since = None
        if not self.is_done and self._connection is not None and self._connection.is_open:
            self._send_on(self._connection)
        aborted = data.aborted_transactions or [] if self._settings.read_committed else []
        return FetchedBatches(records, batches, aborted, start)

    async def _note_empty_response(self, data: PartitionData) -> None:
        end = data.last_stable_offset if self._settings.read_committed else data.high_watermark
        self._was_empty = end >= self._range.end
        if self._was_empty:  # The broker has records further on, so it may have responded without waiting.
            await self._pause()

    async def _handle_error(self, error: ErrorCode) -> None:
        """Prepare a retry after a retriable error; raise ``BrokerRefused`` or ``DataLoss`` for others."""
        if error is ErrorCode.OFFSET_OUT_OF_RANGE:
            await self._check_position()
        elif error in _ABOUT_THE_TOPIC:
            await self._check_topic()
        elif error not in RETRIABLE and error is not ErrorCode.UNKNOWN_SERVER_ERROR:
            raise BrokerRefused(str(self._range), Refusal(error=error))
        await self._refresh_leader()

    async def _refresh_leader(self) -> None:
        """Pause, and have the next request find the leader by fresh metadata."""
        self.close()
        self._connection = None
        await self._pause()
        self._cluster.metadata.forget(self._range.topic)

    async def _pause(self) -> None:
        await asyncio.sleep(self._backoff.pause_seconds(self._failures))
        self._failures += 1

    async def _check_position(self) -> None:
        """Report a loss if the position is before the log's start, or, beyond doubt, after its end."""
        tp = self._range.topic_partition
        earliest = (await earliest_offsets(self._cluster, [tp]))[tp]
        if self._position < earliest:
            lost = f"{self._range}: the log begins at {earliest}, offsets from {self._position} on are gone"
            self._report_loss(lost, earliest)
            return
        latest = (await latest_offsets(self._cluster, [tp], read_committed=False))[tp]
        if self._position > latest and self._is_beyond_doubt():
            lost = f"{self._range}: the log ends at {latest}, before offset {self._position}"
            self._report_loss(lost, self._range.end)

    async def _check_topic(self) -> None:
        """Report a loss if, beyond doubt, the topic was deleted, or has another id by now."""
        self._cluster.metadata.forget(self._range.topic)
        topic = (await self._cluster.topics([self._range.topic]))[self._range.topic]
        if topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            lost = f"{self._range}: the topic does not exist any more"
        elif NO_TOPIC_ID not in (topic.topic_id, self._range.topic_id) and topic.topic_id != self._range.topic_id:
            lost = f"{self._range}: the topic was deleted and created again"
        else:
            return
        if self._is_beyond_doubt():
            self._report_loss(lost, self._range.end)

    def _is_beyond_doubt(self) -> bool:
        now = asyncio.get_running_loop().time()
        if self._doubts_since is None:
            self._doubts_since = now
        return now - self._doubts_since >= DOUBT_SECONDS

    def _report_loss(self, lost: str, go_on_at: int) -> None:
        """Raise ``DataLoss``; if the options allow it, log the loss and go on at an offset."""
        if self._fail_on_data_loss:
            raise data_loss(lost)
        _log.warning("data loss, skipped because failOnDataLoss is false: %s", lost)
        self._position = go_on_at
