"""The part of a producer that talks to brokers. It decides nothing: it carries out what the pure parts say.

Two loops. One sends batches: woken by a new batch, an answer, a connection, or the time at which something is due, it
takes answers to ``BatchDelivery`` and writes one request after the other to each broker that something is ready for and
that has fewer than ``max_in_flight`` unanswered ones. The other asks coordinators what ``TransactionManager`` wants
asked, one request at a time.

Whatever fails between the decision to send and the bytes on the wire (an address that cannot be one, memory that is
not there) counts as a request that was lost: it is logged and tried again. Any other failure that is not a
``ClientError`` is a bug: it ends the producer, and everybody who waits is told.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple

from oncelog.clients.cluster import AnyBroker, Cluster, Coordinator, Route
from oncelog.clients.connection import Address, Connection
from oncelog.clients.errors import (
    BrokerRefused,
    ClientError,
    FatalProducerError,
    ProducerClosed,
    RequestTimedOut,
    VersionNotSupported,
    error_code,
)
from oncelog.clients.metadata_refresh import MetadataRefresh
from oncelog.clients.producer.batch_delivery import STALE_METADATA, BatchDelivery
from oncelog.clients.producer.coordinator_requests import CoordinatorRequests
from oncelog.clients.producer.pending_requests import PendingRequest
from oncelog.clients.producer.producer_batch import ProducerBatch
from oncelog.clients.producer.producer_config import ACKS, ProducerConfig
from oncelog.clients.producer.record_accumulator import PartitionQueue, RecordAccumulator
from oncelog.clients.producer.request_effects import Effect
from oncelog.clients.producer.transaction_manager import TransactionManager
from oncelog.clients.producer.transaction_requests import CoordinatorKey, CoordinatorKind
from oncelog.clients.retry import Backoff
from oncelog.protocol.api_keys import ApiKey
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from oncelog.protocol.schema import ZERO_UUID, Versions
from oncelog.protocol.topic_partition import TopicPartition

_log = logging.getLogger(__name__)

_LAST_OF_PROTOCOL_1: Final = 11
_FIRST_OF_PROTOCOL_2: Final = 12
_LAST_WITH_NAMES: Final = 12
_NEVER: Final = float("inf")
_CONCURRENT_TRANSACTIONS_SECONDS: Final = 0.02
"""The transaction before is being completed, which takes milliseconds (KAFKA-5482)."""
_TIMER_SLACK_SECONDS: Final = 1e-6
"""Timers may go off this much early; what they were set for is due then."""
_BUMPS_EPOCHS_FROM: Final = 3
"""The version of InitProducerId that bumps a client's epoch (KIP-360)."""


class BrokerLink:
    """What the sender knows of one broker."""

    __slots__ = ("connection", "failures", "in_flight", "is_opening", "node_id", "not_before")

    def __init__(self, node_id: int) -> None:
        self.node_id = node_id
        self.connection: Connection | None = None
        self.is_opening = False
        self.in_flight = 0
        """Produce requests without an answer yet."""
        self.failures = 0
        self.not_before = 0.0
        """Throttled, or not to be connected to, until then (the loop's time)."""

    @property
    def is_open(self) -> bool:
        return self.connection is not None and self.connection.is_open


class _Answer(NamedTuple):
    """A produce request that is over."""

    link: BrokerLink
    batches: list[ProducerBatch]
    names: dict[bytes, str]
    """Of the topics, by the ids that they had when it was sent."""
    future: "asyncio.Future[ProduceResponse]"


class Sender:
    """Sends what is ready; ``run`` it in a task, and cancel that to end it."""

    def __init__(
        self,
        config: ProducerConfig,
        cluster: Cluster,
        manager: TransactionManager,
        accumulator: RecordAccumulator,
        delivery: BatchDelivery,
        metadata: MetadataRefresh,
        backoff: Backoff,
        on_progress: Callable[[], None],
    ) -> None:
        self._config = config
        self._cluster = cluster
        self._manager = manager
        self._requests = CoordinatorRequests(manager)
        self._accumulator = accumulator
        self._delivery = delivery
        self._metadata = metadata
        self._backoff = backoff
        self._on_progress = on_progress
        self._loop = asyncio.get_running_loop()
        self._acks = ACKS[config.acks]
        self._request_seconds = config.request_timeout_ms / 1000
        self._linger_seconds = config.linger_ms / 1000
        self._woken = asyncio.Event()
        self._is_urgent = True
        """Whether there may be more to do, when it is woken, than to let the batches linger that were begun."""
        self._lingered_at = 0.0
        """If not, when the first of them has (the loop's time)."""
        self._request_due = asyncio.Event()
        self._links: dict[int, BrokerLink] = {}
        self._answers: deque[_Answer] = deque()
        self._asking: PendingRequest | None = None
        self._group: asyncio.TaskGroup | None = None

    @property
    def is_behind(self) -> bool:
        """Whether something is to be done and has not been: whoever produces without pause should let it run.

        A batch that was only begun is not: were it sent before its second record, each record would be a batch.
        """
        return self._woken.is_set() and (self._is_urgent or self._loop.time() >= self._lingered_at)

    def wake(self) -> None:
        """Something may be ready."""
        self._wake_up()
        self._request_due.set()

    def wake_to_linger(self) -> None:
        """A batch was begun: it leaves when it is full, or has lingered."""
        if not self._woken.is_set():
            self._is_urgent = False
            self._lingered_at = self._loop.time() + self._linger_seconds
        self._woken.set()
        self._request_due.set()

    async def run(self) -> None:
        """Send until cancelled. Whatever is not done then, fails."""
        error: ClientError = ProducerClosed("the producer was closed before this was done")
        try:
            async with asyncio.TaskGroup() as self._group:
                self._group.create_task(self._metadata.run(), name="producer: metadata")
                self._group.create_task(self._ask_coordinators(), name="producer: coordinators")
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
        self._manager.fail_requests(error)
        if self._asking is not None:
            self._asking.result.fail(error)
        self._on_progress()

    def _wake_up(self) -> None:
        self._is_urgent = True
        self._woken.set()

    # Batches

    async def _send_batches(self) -> None:
        while True:
            self._woken.clear()
            while self._answers:
                self._take_answer(self._answers.popleft())
            look_again_at = self._send_what_is_ready()
            self._on_progress()
            self._request_due.set()
            await self._wait_until(look_again_at)

    async def _wait_until(self, at: float) -> None:
        timer = None if at == _NEVER else self._loop.call_at(at, self._wake_up)
        try:
            await self._woken.wait()
        finally:
            if timer is not None:
                timer.cancel()

    def _send_what_is_ready(self) -> float:
        """Returns the loop's time at which something is due by itself."""
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
        """Whether a request was sent."""
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

    def _open(self, link: BrokerLink) -> None:
        if not link.is_opening:
            link.is_opening = True
            assert self._group is not None
            self._group.create_task(self._connect(link), name=f"producer: connection to {link.node_id}")

    async def _connect(self, link: BrokerLink) -> None:
        try:
            link.connection = await self._cluster.connection_to(link.node_id)
            link.connection.on_writable = self._wake_up
            link.failures = 0
        except ClientError:
            self._not_connected(link)
        except Exception:
            _log.exception("connecting to broker %d failed", link.node_id)
            self._not_connected(link)
        finally:
            link.is_opening = False
            self._wake_up()

    def _not_connected(self, link: BrokerLink) -> None:
        link.not_before = self._loop.time() + self._backoff.pause_seconds(link.failures)
        link.failures += 1
        self._metadata.request()

    def _send(self, link: BrokerLink, connection: Connection, batches: list[ProducerBatch], now: float) -> None:
        try:
            request, versions = self._request(batches)
            if self._acks == 0:
                connection.send_without_answer(request, at_most=versions.last)
                for batch in batches:
                    self._delivery.not_acknowledged(batch)
                return
            future = connection.send(
                request,
                ProduceResponse,
                at_least=versions.first,
                at_most=versions.last,
                timeout=self._request_seconds,
            )
        except VersionNotSupported as error:
            self._not_sent(batches, str(error), now)
            return
        except ClientError:
            self._lost(batches, now)
            return
        except Exception:
            _log.exception("sending to broker %d failed", link.node_id)
            self._lost(batches, now)
            return
        link.in_flight += 1
        names = {topic.topic_id: topic.name for topic in request.topic_data}
        future.add_done_callback(partial(self._answered, link, batches, names))

    def _lost(self, batches: list[ProducerBatch], now: float) -> None:
        for batch in batches:
            self._delivery.not_answered(batch, ErrorCode.NETWORK_EXCEPTION, now)

    def _not_sent(self, batches: list[ProducerBatch], reason: str, now: float) -> None:
        """A broker without version 2 in a cluster that has finalised it costs the transaction, not the producer."""
        protocol_2 = self._manager.is_transactional and self._manager.protocol == 2
        error = ErrorCode.TRANSACTION_ABORTABLE if protocol_2 else ErrorCode.UNSUPPORTED_VERSION
        for batch in batches:
            self._delivery.answered(batch, PartitionProduceResponse(error_code=error, error_message=reason), now)

    def _request(self, batches: list[ProducerBatch]) -> tuple[ProduceRequest, Versions]:
        """The request, and the versions in which it means what it must (topic ids from 13, protocol 2 from 12)."""
        topics: dict[str, TopicProduceData] = {}
        metadata = self._cluster.metadata
        for batch in batches:
            name, partition = batch.topic_partition
            topic = topics.get(name)
            if topic is None:
                topic = topics[name] = TopicProduceData(name=name, topic_id=metadata.topic_id(name))
            records = batch.encode(self._config.codec)
            topic.partition_data.append(PartitionProduceData(index=partition, records=records))
        first, last = ProduceRequest.versions.first, ProduceRequest.versions.last
        if any(topic.topic_id == ZERO_UUID for topic in topics.values()):
            last = _LAST_WITH_NAMES
        if self._manager.is_transactional and self._manager.protocol == 1:
            last = _LAST_OF_PROTOCOL_1
        elif self._manager.is_transactional:
            first = _FIRST_OF_PROTOCOL_2
        request = ProduceRequest(
            transactional_id=self._manager.transactional_id,
            acks=self._acks,
            timeout_ms=self._config.request_timeout_ms,
            topic_data=list(topics.values()),
        )
        return request, Versions(first, last)

    def _answered(
        self,
        link: BrokerLink,
        batches: list[ProducerBatch],
        names: dict[bytes, str],
        future: "asyncio.Future[ProduceResponse]",
    ) -> None:
        future.exception()  # Looked at, even if nobody takes the answer any more.
        self._answers.append(_Answer(link, batches, names, future))
        self._wake_up()

    def _take_answer(self, answer: _Answer) -> None:
        link, batches, names, future = answer
        link.in_flight -= 1
        now = self._loop.time()
        try:
            response = future.result()
        except ClientError as error:
            code = ErrorCode.REQUEST_TIMED_OUT if isinstance(error, RequestTimedOut) else ErrorCode.NETWORK_EXCEPTION
            for batch in batches:
                self._delivery.not_answered(batch, code, now)
            self._metadata.request()
            return
        if response.throttle_time_ms:
            link.not_before = now + response.throttle_time_ms / 1000
        self._take_response(batches, names, response, now)

    def _take_response(
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
                if partition.current_leader is not None:
                    told = partition.current_leader
                    leaders[topic_partition] = (told.leader_id, told.leader_epoch)
                self._delivery.answered(batch, partition, now)
                if partition.error_code and error_code(partition.error_code) in STALE_METADATA:
                    self._metadata.request()
        for batch in left.values():
            self._delivery.not_answered(batch, ErrorCode.NETWORK_EXCEPTION, now)
        if leaders:
            endpoints = [(each.node_id, Address(each.host, each.port)) for each in response.node_endpoints]
            self._cluster.metadata.take_leaders(leaders, endpoints)

    # Coordinators

    async def _ask_coordinators(self) -> None:
        while True:
            self._request_due.clear()
            self._manager.features = self._cluster.features
            request = self._requests.next_request(has_incomplete=bool(self._accumulator.incomplete))
            if request is None:
                await self._request_due.wait()
                continue
            self._asking = request
            effect = await self._ask(request)
            self._asking = None
            self._delivery.settle()  # Before anybody hears of an error, the records that it concerns have failed.
            self._wake_up()
            if effect in (Effect.RETRY, Effect.FIND_COORDINATOR):
                await asyncio.sleep(self._pause_seconds(request))

    def _pause_seconds(self, request: PendingRequest) -> float:
        if request.last_error == ErrorCode.CONCURRENT_TRANSACTIONS:
            return _CONCURRENT_TRANSACTIONS_SECONDS
        return self._backoff.pause_seconds(request.attempts - 1)

    async def _ask(self, pending: PendingRequest) -> Effect:
        request, route = pending.request, _route(pending.request.coordinator)
        was_sent = False
        try:
            connection = await route.resolve(self._cluster)
            self._look_at_coordinator(request.coordinator, connection)
            future = connection.send(
                request.message(),
                request.response_type,
                at_least=request.versions.first,
                at_most=request.versions.last,
                timeout=self._request_seconds,
            )
            was_sent = True
            response = await future
        except BrokerRefused as error:
            return self._requests.handle_lookup_error(pending, error.refusal)
        except VersionNotSupported as error:
            self._requests.handle_unsupported_version(pending, error)
            return Effect.FATAL
        except Exception as error:
            if not isinstance(error, ClientError):
                _log.exception("%s failed", request.kind.value)
            route.forget(self._cluster)
            self._requests.handle_loss(pending, was_sent=was_sent)
            return Effect.RETRY
        self._manager.features = self._cluster.features
        effect = self._requests.handle_response(pending, response)
        if effect is Effect.FIND_COORDINATOR:
            route.forget(self._cluster)
        return effect

    def _look_at_coordinator(self, coordinator: CoordinatorKey | None, connection: Connection) -> None:
        """Learn whether it can bump epochs: that decides whether an error can be recovered from."""
        bumps = connection.versions.range_of(ApiKey.INIT_PRODUCER_ID)
        if coordinator is not None and coordinator.kind is CoordinatorKind.TRANSACTION:
            self._manager.can_bump_epoch = bumps is not None and bumps.last >= _BUMPS_EPOCHS_FROM


def _route(coordinator: CoordinatorKey | None) -> Route:
    if coordinator is None:
        return AnyBroker()
    if coordinator.kind is CoordinatorKind.GROUP:
        return Coordinator.of_group(coordinator.key)
    return Coordinator.of_transactional_id(coordinator.key)
