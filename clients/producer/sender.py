"""The part of a producer that exchanges requests with brokers. It decides nothing: it carries out what pure parts say.

The loop of ``Sender`` sends batches. It is woken by a new batch, a response, a connection, or the time at which
something is due; then it hands responses to ``BatchDelivery``, and writes one request after the other to each broker
that something is ready for and that has fewer than ``max_in_flight`` requests without a response. Beside it runs the
loop of ``CoordinatorSender``.

A lack of memory between the decision to send and the bytes on the wire counts as a request that was lost: it is logged,
and the request is sent again. Any other failure that is not a ``ClientError`` is a bug: it ends the producer, and fails
everything that is not done.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple

from oncelog.clients.connection import Address, Connection
from oncelog.clients.errors import (
    ClientError,
    FatalProducerError,
    ProducerClosed,
    RequestTimedOut,
    VersionNotSupported,
    error_code,
)
from oncelog.clients.metadata_refresh import MetadataRefresh
from oncelog.clients.obstacles import Obstacle
from oncelog.clients.producer.batch_delivery import STALE_METADATA, BatchDelivery
from oncelog.clients.producer.broker_link import BrokerLink
from oncelog.clients.producer.coordinator_sender import CoordinatorSender
from oncelog.clients.producer.produce_requests import produce_request
from oncelog.clients.producer.producer_batch import ProducerBatch
from oncelog.clients.producer.producer_config import ACKS, ProducerConfig
from oncelog.clients.producer.record_accumulator import PartitionQueue, RecordAccumulator
from oncelog.clients.producer.transaction_manager import TransactionManager
from oncelog.clients.runtime import ClientRuntime
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.produce import PartitionProduceResponse, ProduceResponse
from oncelog.protocol.records.compression import COMPRESSION_ERRORS
from oncelog.protocol.topic_partition import TopicPartition

_log = logging.getLogger(__name__)

_NEVER: Final = float("inf")
_TIMER_SLACK_SECONDS: Final = 1e-6
"""A timer may fire this much early; what it was set for is due then."""


class _Completed(NamedTuple):
    """A produce request that has its response, or will have none."""

    link: BrokerLink
    batches: list[ProducerBatch]
    names: dict[bytes, str]
    """Names of the topics, by the ids that they had when the request was sent."""
    response: "asyncio.Future[ProduceResponse]"


class Sender:
    """Sends what is ready; ``run`` it in a task, and cancel that to end it."""

    def __init__(
        self,
        config: ProducerConfig,
        runtime: ClientRuntime,
        manager: TransactionManager,
        accumulator: RecordAccumulator,
        metadata: MetadataRefresh,
        on_progress: Callable[[], None],
    ) -> None:
        self._config = config
        self._cluster = runtime.cluster
        self._backoff = runtime.backoff
        self._manager = manager
        self._accumulator = accumulator
        self._metadata = metadata
        self._on_progress = on_progress
        """Called when batches may have become done."""
        self._delivery = BatchDelivery(config, manager, accumulator, runtime.backoff)
        self._request_seconds = config.request_timeout_ms / 1000
        self._coordinators = CoordinatorSender(
            runtime, manager, accumulator, self._coordinator_responded, request_seconds=self._request_seconds
        )
        self._loop = asyncio.get_running_loop()
        self._linger_seconds = config.linger_ms / 1000
        self._woken = asyncio.Event()
        self._is_urgent = True
        """When woken: whether there may be more to do than to let new batches linger."""
        self._lingered_at = 0.0
        """If not, the time at which the first of them has lingered (the loop's clock)."""
        self._links: dict[int, BrokerLink] = {}
        self._completed: deque[_Completed] = deque()
        self._group: asyncio.TaskGroup | None = None

    @property
    def is_behind(self) -> bool:
        """Whether something is due: a caller that produces without pause should let the sender run.

        A batch that was only begun is not due: sent before its second record, each record would be a batch.
        """
        return self._woken.is_set() and (self._is_urgent or self._loop.time() >= self._lingered_at)

    def obstacles(self) -> list[Obstacle]:
        """Return the errors for which batches are being retried, the oldest first."""
        return self._delivery.obstacles(self._loop.time())

    def wake(self) -> None:
        """Look for batches and requests that are ready."""
        self._wake_up()
        self._coordinators.wake()

    def wake_to_linger(self) -> None:
        """Look at a new batch: it is sent when it is full, or has lingered."""
        if not self._woken.is_set():
            self._is_urgent = False
            self._lingered_at = self._loop.time() + self._linger_seconds
        self._woken.set()
        self._coordinators.wake()

    async def run(self) -> None:
        """Send until cancelled. Then fail everything that is not done."""
        error: ClientError = ProducerClosed("the producer was closed before this was done")
        try:
            async with asyncio.TaskGroup() as self._group:
                self._group.create_task(self._metadata.run(), name="producer: metadata")
                self._group.create_task(self._coordinators.run(), name="producer: coordinators")
                await self._send_batches()
        except BaseExceptionGroup as failure:
            _log.error("the producer failed", exc_info=failure)
            error = FatalProducerError(f"the producer failed: {failure.exceptions[0]!r}")
        finally:
            self._end(error)

    def _end(self, error: ClientError) -> None:
        if isinstance(error, FatalProducerError):
            self._manager.fail_fatally(error)
        self._delivery.fail_all(error)
        self._coordinators.fail_all(error)
        self._on_progress()

    def _wake_up(self) -> None:
        self._is_urgent = True
        self._woken.set()

    def _coordinator_responded(self) -> None:
        """Fail the records that an error concerns before the application sees the error."""
        self._delivery.settle()
        self._wake_up()

    # The loop

    async def _send_batches(self) -> None:
        while True:
            self._woken.clear()
            while self._completed:
                self._complete(self._completed.popleft())
            look_again_at = self._send_what_is_ready()
            self._on_progress()
            self._coordinators.wake()
            await self._wait_until(look_again_at)

    async def _wait_until(self, at: float) -> None:
        timer = None if at == _NEVER else self._loop.call_at(at, self._wake_up)
        try:
            await self._woken.wait()
        finally:
            if timer is not None:
                timer.cancel()

    def _send_what_is_ready(self) -> float:
        """Send, and return the time at which something is due without being woken (the loop's clock)."""
        now = self._loop.time() + _TIMER_SLACK_SECONDS
        self._delivery.expire(now)
        self._delivery.settle()
        while True:
            ready = self._accumulator.readiness(self._cluster.metadata, now)
            sent = [self._send_to(node_id, queues, now) for node_id, queues in ready.queues.items()]
            if not any(sent):
                break
        if ready.without_leader:
            self._metadata.request()
        waiting = [link.not_before for node_id in ready.queues if (link := self._links[node_id]).not_before > now]
        return min(ready.next_at, self._delivery.next_expiry_at(), *waiting)

    def _send_to(self, node_id: int, queues: list[PartitionQueue], now: float) -> bool:
        """Return whether a request was sent."""
        link = self._links.get(node_id)
        if link is None:
            link = self._links[node_id] = BrokerLink(node_id)
        if now < link.not_before:
            return False
        connection = link.connection
        if connection is None or not connection.is_open:
            self._open(link)
            return False
        if link.in_flight >= self._config.max_in_flight or not connection.is_writable:
            return False
        batches = self._accumulator.drain(queues, self._cluster.metadata)
        if batches:
            self._send(link, connection, batches, now)
        return bool(batches)

    # Connections

    def _open(self, link: BrokerLink) -> None:
        if not link.is_opening:
            link.is_opening = True
            assert self._group is not None
            self._group.create_task(self._connect(link), name=f"producer: connection to {link.node_id}")

    async def _connect(self, link: BrokerLink) -> None:
        try:
            connection = await self._cluster.connection_to(link.node_id)
            connection.on_writable = self._wake_up
            link.connected(connection)
        except (ClientError, MemoryError) as error:
            if isinstance(error, MemoryError):
                _log.exception("connecting to broker %d failed", link.node_id)
            link.back_off(until=self._loop.time() + self._backoff.pause_seconds(link.failures))
            self._metadata.request()
        finally:
            link.is_opening = False
            self._wake_up()

    # Requests

    def _send(self, link: BrokerLink, connection: Connection, batches: list[ProducerBatch], now: float) -> None:
        try:
            request, versions = produce_request(batches, self._config, self._manager, self._cluster.metadata)
        except (MemoryError, *COMPRESSION_ERRORS):
            _log.exception("a request to broker %d could not be made", link.node_id)
            self._lost(batches, ErrorCode.NETWORK_EXCEPTION, now)
            return
        try:
            if ACKS[self._config.acks] == 0:
                connection.send_without_response(request, at_most=versions.last)
                for batch in batches:
                    self._delivery.complete_unacknowledged(batch)
                return
            response = connection.send(
                request,
                ProduceResponse,
                at_least=versions.first,
                at_most=versions.last,
                timeout=self._request_seconds,
            )
        except VersionNotSupported as error:
            self._not_supported(batches, str(error), now)
            return
        except ClientError:
            self._lost(batches, ErrorCode.NETWORK_EXCEPTION, now)
            return
        link.in_flight += 1
        names = {topic.topic_id: topic.name for topic in request.topic_data}
        response.add_done_callback(partial(self._take, link, batches, names))

    def _lost(self, batches: list[ProducerBatch], error: ErrorCode, now: float) -> None:
        for batch in batches:
            self._delivery.handle_loss(batch, error, now)

    def _not_supported(self, batches: list[ProducerBatch], reason: str, now: float) -> None:
        """Fail batches for a broker without the version that they need.

        In a cluster that has finalised protocol version 2, such a broker costs the transaction, not the producer.
        """
        protocol_2 = self._manager.is_transactional and self._manager.protocol == 2
        error = ErrorCode.TRANSACTION_ABORTABLE if protocol_2 else ErrorCode.UNSUPPORTED_VERSION
        for batch in batches:
            self._delivery.handle_response(batch, PartitionProduceResponse(error_code=error, error_message=reason), now)

    def _take(
        self,
        link: BrokerLink,
        batches: list[ProducerBatch],
        names: dict[bytes, str],
        response: "asyncio.Future[ProduceResponse]",
    ) -> None:
        response.exception()  # Retrieved here, in case the loop of the sender has ended.
        self._completed.append(_Completed(link, batches, names, response))
        self._wake_up()

    def _complete(self, completed: _Completed) -> None:
        link, batches, names, future = completed
        link.in_flight -= 1
        now = self._loop.time()
        try:
            response = future.result()
        except ClientError as error:
            timed_out = isinstance(error, RequestTimedOut)
            self._lost(batches, ErrorCode.REQUEST_TIMED_OUT if timed_out else ErrorCode.NETWORK_EXCEPTION, now)
            self._metadata.request()
            return
        if response.throttle_time_ms:
            link.not_before = now + response.throttle_time_ms / 1000
        self._deliver(batches, names, response, now)

    def _deliver(
        self, batches: list[ProducerBatch], names: dict[bytes, str], response: ProduceResponse, now: float
    ) -> None:
        left = {batch.topic_partition: batch for batch in batches}
        leaders: dict[TopicPartition, tuple[int, int]] = {}
        for topic in response.responses:
            name = topic.name or names.get(topic.topic_id, "")
            for partition in topic.partition_responses:
                topic_partition = TopicPartition(name, partition.index)
                batch = left.pop(topic_partition, None)
                if batch is None:
                    continue
                if (leader := partition.current_leader) is not None:
                    leaders[topic_partition] = (leader.leader_id, leader.leader_epoch)
                self._delivery.handle_response(batch, partition, now)
                if partition.error_code and error_code(partition.error_code) in STALE_METADATA:
                    self._metadata.request()
        self._lost(list(left.values()), ErrorCode.NETWORK_EXCEPTION, now)
        if leaders:
            endpoints = [(each.node_id, Address(each.host, each.port)) for each in response.node_endpoints]
            self._cluster.metadata.take_leaders(leaders, endpoints)
