"""Fetches records ahead of the application.

Each broker that is fetched from has a task, a connection of its own (a fetch that waits for records would delay every
response behind it) and a fetch session. One request is in flight at a time; the next one is sent as soon as its
response has come, from where that ends: the broker works while the application does. While two responses of a broker
have not been polled, nothing more is fetched from it (``read_ahead``).

Errors that may pass lead to new metadata, or bring it (KIP-951), and to a retry. Errors that the application must know,
or that need its reset policy, wait in the buffer for their turn, behind the records that came before them. In either
case the partition is not fetched again at the same offset before a pause of its own is over; the others of its broker
are.

The rules are those of Kafka's ``AbstractFetch.java``.
"""

import asyncio
import logging
import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

from oncelog.clients.connection import Address, Connection
from oncelog.clients.connection_pool import silence_of
from oncelog.clients.consumer.assigned_partitions import NO_NODE, TIMER_SLACK
from oncelog.clients.consumer.completed_fetch import CompletedFetch
from oncelog.clients.consumer.consumer_config import ConsumerConfig
from oncelog.clients.consumer.consumer_metadata import ConsumerMetadata
from oncelog.clients.consumer.fetch_buffer import FetchBuffer
from oncelog.clients.consumer.fetch_session import FetchSession, SessionRequest, Wanted
from oncelog.clients.consumer.fetched_response import FetchedResponse
from oncelog.clients.consumer.read_ahead import MAX_UNREAD_RESPONSES, partition_bytes, response_bytes
from oncelog.clients.consumer.subscription_state import SubscriptionState
from oncelog.clients.errors import BrokerAbsent, ClientError, error_code
from oncelog.clients.fan_out import send_to_each
from oncelog.clients.obstacles import Obstacle, at_broker
from oncelog.clients.runtime import ClientRuntime
from oncelog.protocol.errors import RETRIABLE, ErrorCode
from oncelog.protocol.messages.fetch import FetchRequest, FetchResponse, PartitionData
from oncelog.protocol.topic_partition import TopicPartition

_log = logging.getLogger(__name__)

_CONSUMER: Final = -1
_READ_UNCOMMITTED: Final = 0
_READ_COMMITTED: Final = 1
_CLOSE_SECONDS: Final = 1.0
_PASSING: Final = (RETRIABLE | {ErrorCode.UNKNOWN_SERVER_ERROR}) - {ErrorCode.CORRUPT_MESSAGE}
"""What another attempt may mend, most of it with newer metadata."""


class _Source:
    """One broker that is read from."""

    __slots__ = ("connection", "has_work", "node_id", "pauses", "responses", "session")

    def __init__(self, node_id: int) -> None:
        self.node_id = node_id
        self.session = FetchSession()
        self.connection: Connection | None = None
        self.has_work = asyncio.Event()
        self.pauses: dict[TopicPartition, _Pause] = {}
        """Of the partitions that failed here last."""
        self.responses: list[FetchedResponse] = []
        """The last ones; those before them have been polled."""

    @property
    def is_ahead(self) -> bool:
        """Return whether so much of this broker waits to be polled that nothing more is fetched."""
        return sum(1 for response in self.responses if response.unread) >= MAX_UNREAD_RESPONSES

    def keep(self, response: FetchedResponse) -> None:
        """Keep a response that has come, and drop those that have been polled."""
        self.responses = [each for each in (*self.responses, response) if each.unread]

    def is_pausing(self, topic_partition: TopicPartition, offset: int, now: float) -> bool:
        """Return whether a partition is left out of requests now, because it has failed at this offset."""
        pause = self.pauses.get(topic_partition)
        return pause is not None and pause.offset == offset and pause.until > now + TIMER_SLACK

    def next_retry_at(self, now: float) -> float:
        """Return the earliest time at which a partition left out is fetched again; infinite if there is none."""
        return min((pause.until for pause in self.pauses.values() if pause.until > now), default=math.inf)


@dataclass(frozen=True, slots=True)
class _Pause:
    """How often in a row a partition has failed at an offset, and until when (loop's clock) it is left out there."""

    offset: int
    failures: int
    until: float


class Fetcher:
    """The fetches of one consumer."""

    def __init__(
        self,
        config: ConsumerConfig,
        runtime: ClientRuntime,
        subscription: SubscriptionState,
        buffer: FetchBuffer,
        metadata: ConsumerMetadata,
        wake: Callable[[], None],
    ) -> None:
        """Create it without a connection. ``wake`` is called when a response has come."""
        self._config = config
        self._subscription = subscription
        self._partitions = subscription.partitions
        self._buffer = buffer
        self._cluster = runtime.cluster
        self._tasks = runtime.tasks
        self._backoff = runtime.backoff
        self._metadata = metadata
        self._wake = wake
        self._sources: dict[int, _Source] = {}

    def find_sources(self) -> None:
        """Fetch from every broker that has fetchable partitions, after positions, leaders or the assignment changed."""
        now = asyncio.get_running_loop().time()
        for topic_partition in self._partitions:
            if self._subscription.is_fetchable(topic_partition):
                node_id = self._source_of(topic_partition, now)
                if node_id == NO_NODE:
                    self._metadata.refresh.request()
                elif node_id not in self._sources:
                    source = self._sources[node_id] = _Source(node_id)
                    self._tasks.keep_running(partial(self._fetch_from, source), f"fetches from broker {node_id}")
        self.fetch_more()

    def fetch_more(self) -> None:
        """Resume brokers that wait for room in the buffer, if there is some."""
        if self._buffer.size < self._config.max_buffered_bytes:
            for source in self._sources.values():
                if not source.is_ahead:
                    source.has_work.set()

    def _source_of(self, topic_partition: TopicPartition, now: float) -> int:
        """Return the broker to fetch a partition from, -1 if it is not known."""
        node_id = self._partitions.read_replica(topic_partition, now)
        if node_id in self._cluster.brokers:
            return node_id
        self._partitions[topic_partition].preferred_replica = None
        leader_id = self._partitions.read_replica(topic_partition, now)
        return leader_id if leader_id in self._cluster.brokers else NO_NODE

    def silences(self) -> list[Obstacle]:
        """Return the brokers that have not responded to a fetch for longer than they may wait for records."""
        usual_seconds = self._config.fetch_max_wait_ms / 1000
        found = [silence_of(each.connection, usual_seconds) for each in self._sources.values() if each.connection]
        return [at_broker(silence, self._cluster.brokers) for silence in found if silence is not None]

    def is_connected(self, address: Address) -> bool:
        """Return whether a connection for fetches to the address is open."""
        connections = (source.connection for source in self._sources.values())
        return any(each is not None and each.is_open and each.address == address for each in connections)

    # One broker

    async def _fetch_from(self, source: _Source) -> None:
        source.session.fail()  # This may be a second beginning: what the broker remembers is uncertain then.
        failures = 0
        while True:
            wanted = self._wanted_from(source)
            if not wanted:
                await self._wait_for_work(source)
                continue
            try:
                if source.connection is None or not source.connection.is_open:
                    await self._open(source)
                    continue  # What is wanted may have changed meanwhile.
                can_continue = await self._fetch(source, source.connection, wanted)
            except ClientError as error:
                _log.info("fetch from broker %d failed: %s", source.node_id, error)
                self._distrust_source(source, wanted)
                can_continue = False
            failures = 0 if can_continue else failures + 1
            if failures:
                await asyncio.sleep(self._backoff.pause_seconds(failures - 1))

    async def _wait_for_work(self, source: _Source) -> None:
        source.has_work.clear()
        retry_at = source.next_retry_at(asyncio.get_running_loop().time())
        try:
            async with asyncio.timeout_at(None if retry_at == math.inf else retry_at):
                await source.has_work.wait()
        except TimeoutError:
            pass

    def _wanted_from(self, source: _Source) -> dict[TopicPartition, Wanted]:
        """Return everything that can be fetched from a broker; nothing while too much waits to be polled."""
        if source.is_ahead or self._buffer.size >= self._config.max_buffered_bytes:
            return {}
        now = asyncio.get_running_loop().time()
        offsets = {}
        for topic_partition in self._partitions:
            if not self._subscription.is_fetchable(topic_partition):
                continue
            if self._source_of(topic_partition, now) != source.node_id:
                continue
            offset = self._buffer.next_offset(topic_partition)
            if offset is not None and not source.is_pausing(topic_partition, offset, now):
                offsets[topic_partition] = offset
        max_bytes = partition_bytes(self._config.max_partition_fetch_bytes, self._response_bytes(), len(offsets))
        return {tp: self._wanted(tp, offset, max_bytes) for tp, offset in offsets.items()}

    def _wanted(self, topic_partition: TopicPartition, offset: int, max_bytes: int) -> Wanted:
        topic_id = self._cluster.metadata.topic_id(topic_partition.topic)
        return Wanted(topic_id, offset, self._partitions[topic_partition].position.leader.epoch, max_bytes)

    def _response_bytes(self) -> int:
        config = self._config
        return min(config.fetch_max_bytes, response_bytes(config.max_buffered_bytes, len(self._sources)))

    async def _open(self, source: _Source) -> None:
        address = self._cluster.brokers.get(source.node_id)
        if address is None:
            raise BrokerAbsent(f"broker {source.node_id} is not in the cluster now")
        source.connection = await self._cluster.connect(address)

    async def _fetch(self, source: _Source, connection: Connection, wanted: Mapping[TopicPartition, Wanted]) -> bool:
        """Send one request and apply its response. Return whether the next one can follow without a pause."""
        session_request = source.session.next_request(wanted)
        response = await connection.send(
            self._request(session_request, self._max_wait_ms(source)),
            FetchResponse,
            at_most=session_request.at_most,
            timeout=(self._config.request_timeout_ms + self._config.fetch_max_wait_ms) / 1000,
        )
        can_continue = self._apply_response(source, response, wanted)
        if response.throttle_time_ms > 0:  # The client itself must pause for that time (KIP-219).
            await asyncio.sleep(response.throttle_time_ms / 1000)
        return can_continue

    def _max_wait_ms(self, source: _Source) -> int:
        """Return the longest wait of a fetch: not beyond the end of a partition's pause."""
        now = asyncio.get_running_loop().time()
        left_ms = (source.next_retry_at(now) - now) * 1000
        return int(min(self._config.fetch_max_wait_ms, left_ms))

    def _request(self, session: SessionRequest, max_wait_ms: int = 0) -> FetchRequest:
        config = self._config
        room = max(config.max_buffered_bytes - self._buffer.size, 1)  # Less than a share when brokers have been added.
        return FetchRequest(
            replica_id=_CONSUMER,
            max_wait_ms=max_wait_ms,
            min_bytes=config.fetch_min_bytes,
            max_bytes=min(self._response_bytes(), room),
            isolation_level=_READ_COMMITTED if config.reads_committed else _READ_UNCOMMITTED,
            session_id=session.session_id,
            session_epoch=session.session_epoch,
            topics=session.topics,
            forgotten_topics_data=session.forgotten,
            rack_id=config.client_rack or "",
        )

    def _distrust_source(self, source: _Source, wanted: Mapping[TopicPartition, Wanted]) -> None:
        """Request metadata after a broker did not respond: other brokers may lead its partitions by now."""
        source.session.fail()
        for topic_partition in wanted:
            partition = self._partitions.get(topic_partition)
            if partition is not None:
                partition.preferred_replica = None
        self._metadata.refresh.request()

    # Responses

    def _apply_response(
        self, source: _Source, response: FetchResponse, wanted: Mapping[TopicPartition, Wanted]
    ) -> bool:
        partitions = source.session.take(response)
        if partitions is None:
            if response.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND:
                return True
            self._metadata.refresh.request()
            return False
        self._learn_leaders(response, partitions)
        fetched = FetchedResponse()
        failed = [tp for tp, data in partitions.items() if not self._apply_partition(tp, wanted.get(tp), data, fetched)]
        source.keep(fetched)
        self._pause(source, wanted, failed)
        self._wake()
        return True

    def _pause(
        self, source: _Source, wanted: Mapping[TopicPartition, Wanted], failed: Collection[TopicPartition]
    ) -> None:
        """Leave partitions that failed out of requests for a while, longer with each failure in a row."""
        if not failed and not source.pauses:
            return
        now = asyncio.get_running_loop().time()
        kept = {tp: pause for tp, pause in source.pauses.items() if tp not in wanted and tp in self._partitions}
        for topic_partition in failed:
            offset, before = wanted[topic_partition].offset, source.pauses.get(topic_partition)
            failures = before.failures if before is not None and before.offset == offset else 0
            kept[topic_partition] = _Pause(offset, failures + 1, now + self._backoff.pause_seconds(failures))
        source.pauses = kept

    def _apply_partition(
        self, topic_partition: TopicPartition, requested: Wanted | None, data: PartitionData, fetched: FetchedResponse
    ) -> bool:
        """Apply what came of a partition. Return False for an error."""
        partition = self._partitions.get(topic_partition)
        error = error_code(data.error_code)
        if partition is None or requested is None:
            return True
        if error in _PASSING:
            if error is not ErrorCode.UNKNOWN_LEADER_EPOCH:
                self._metadata.refresh.request()
            return False
        if error is ErrorCode.NONE:
            partition.high_watermark = data.high_watermark
            partition.last_stable_offset = data.last_stable_offset
            partition.log_start_offset = data.log_start_offset
            if data.preferred_read_replica != NO_NODE:
                self._prefer(topic_partition, data.preferred_read_replica)
        if data.records or error is not ErrorCode.NONE:
            self._buffer.add(CompletedFetch(self._config, topic_partition, requested, data, fetched))
        return error is ErrorCode.NONE

    def _prefer(self, topic_partition: TopicPartition, node_id: int) -> None:
        until = asyncio.get_running_loop().time() + self._config.metadata_max_age_ms / 1000
        self._partitions.prefer_replica(topic_partition, node_id, until)
        self.find_sources()

    def _learn_leaders(self, response: FetchResponse, partitions: Mapping[TopicPartition, PartitionData]) -> None:
        """Apply the new leaders that errors of leadership name (KIP-951)."""
        leaders = {
            tp: (data.current_leader.leader_id, data.current_leader.leader_epoch)
            for tp, data in partitions.items()
            if data.error_code and data.current_leader is not None and data.current_leader.leader_id != NO_NODE
        }
        if leaders:
            endpoints = [(node.node_id, Address(node.host, node.port)) for node in response.node_endpoints]
            self._metadata.learn_leaders(leaders, endpoints)

    # The end

    async def close(self, deadline: float) -> None:
        """Close the connections, and have the brokers forget the sessions if there is time until ``deadline``.

        Its tasks have been stopped before.
        """
        requests = {}
        for source in self._sources.values():
            if source.connection is not None:
                source.connection.close()
            closing = source.session.closing_request()
            if closing is not None and source.node_id in self._cluster.brokers:
                requests[source.node_id] = self._request(closing)
        self._sources.clear()
        try:
            async with asyncio.timeout_at(min(deadline, asyncio.get_running_loop().time() + _CLOSE_SECONDS)):
                await send_to_each(self._cluster, requests, FetchResponse, _CLOSE_SECONDS)
        except TimeoutError:
            pass  # A broker evicts unused sessions, too.
