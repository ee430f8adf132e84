"""The producer: records in, futures out, and transactions around them.

::

    async with Producer(ProducerConfig(bootstrap="localhost:9092"), rng=Random(), wall_clock=milliseconds) as producer:
        future = await producer.send("orders", b"a value", key=b"a key")
        metadata = await future  # RecordMetadata(topic, partition, offset, timestamp_ms)

``send`` waits only for space and metadata; the record is acknowledged when its future is done. ``send_nowait`` does the
same without waiting, as a plain call: it is the way to send many records fast, with ``send`` for those that it refuses.
In either, records of one partition are written in the order of the calls, and (with idempotence) each once.

A transactional producer (one with a ``transactional_id``) sends inside of transactions only::

    await producer.init_transactions()
    producer.begin_transaction()
    try:
        ...  # send, send_offsets_to_transaction
        await producer.commit_transaction()
    except OperationTimedOut:
        raise  # What was asked for may still happen: call the same again, or close this producer.
    except ClientError as error:
        if error.is_fatal:
            raise  # Fenced, for example: close this producer.
        await producer.abort_transaction()

Every call of a transaction is bounded by ``max_block_ms``; after ``OperationTimedOut`` the same call waits on, and no
other is allowed. The behaviour is that of Kafka's ``KafkaProducer`` (KIP-98, KIP-447, KIP-890);
``docs/reference/python-client.md`` has the rest.
"""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from functools import partial
from random import Random
from typing import Self

from oncelog.clients.arguments import (
    checked_group,
    checked_offsets,
    checked_partition,
    checked_timestamp,
    checked_topic,
)
from oncelog.clients.bootstrap import parse_bootstrap
from oncelog.clients.cluster import Cluster
from oncelog.clients.connection import Address
from oncelog.clients.durations import checked_seconds
from oncelog.clients.errors import (
    BrokerRefused,
    BufferFull,
    ClientError,
    IllegalState,
    OperationTimedOut,
    ProducerClosed,
    Refusal,
)
from oncelog.clients.group_metadata import ConsumerGroupMetadata
from oncelog.clients.metadata_refresh import MetadataRefresh
from oncelog.clients.obstacles import Obstacle
from oncelog.clients.offset_and_metadata import OffsetAndMetadata
from oncelog.clients.producer.batch_delivery import BatchDelivery
from oncelog.clients.producer.future_record_metadata import FutureRecordMetadata
from oncelog.clients.producer.partitioner import partition_for_key
from oncelog.clients.producer.producer_batch import Headers, ProducerBatch
from oncelog.clients.producer.producer_config import ProducerConfig
from oncelog.clients.producer.producer_state import State
from oncelog.clients.producer.record_accumulator import PartitionQueue, RecordAccumulator, TopicQueues
from oncelog.clients.producer.send_turns import SendTurns, WaitingCalls
from oncelog.clients.producer.sender import Sender
from oncelog.clients.producer.topic_questions import TopicQuestions
from oncelog.clients.producer.transaction_manager import TransactionManager
from oncelog.clients.producer.transactional_result import TransactionalResult
from oncelog.clients.retry import Backoff
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.metadata import MetadataResponse
from oncelog.protocol.topic_partition import TopicPartition

_OPEN = frozenset({State.IN_TRANSACTION, State.ABORTABLE_ERROR})


class Producer:
    """Made inside of a running loop. ``wall_clock`` gives milliseconds since the epoch: records' timestamps."""

    def __init__(self, config: ProducerConfig, *, rng: Random, wall_clock: Callable[[], int]) -> None:
        self._config = config
        self._wall_clock = wall_clock
        self._partitioner = config.partitioner
        self._loop = asyncio.get_running_loop()
        self._max_block_seconds = config.max_block_ms / 1000
        self._cluster = Cluster(
            parse_bootstrap(config.bootstrap),
            rng=rng,
            client_id=config.client_id,
            connect_seconds=config.connect_timeout_ms / 1000,
            operation_seconds=config.request_timeout_ms / 1000,
        )
        backoff = Backoff(
            rng=rng,
            first_seconds=config.retry_backoff_ms / 1000,
            longest_seconds=max(config.retry_backoff_ms, config.retry_backoff_max_ms) / 1000,
        )
        self._manager = TransactionManager(config)
        self._accumulator = RecordAccumulator(
            config,
            self._manager,
            rng=rng,
            now=self._loop.time,
            on_batch=lambda: self._sender.wake_to_linger(),
            on_full_batch=lambda: self._sender.wake(),
        )
        self._metadata = MetadataRefresh(
            self._cluster,
            backoff,
            self._accumulator.topic_names,
            self._take_metadata,
            max_age_seconds=config.metadata_max_age_ms / 1000,
            creates_topics=False,
        )
        self._delivery = BatchDelivery(config, self._manager, self._accumulator, backoff)
        self._sender = Sender(
            config,
            self._cluster,
            self._manager,
            self._accumulator,
            self._delivery,
            self._metadata,
            backoff,
            self._look_at_space,
        )
        self._questions = TopicQuestions(self._cluster, backoff, self._take_topic)
        self._backoff = backoff
        self._turns = SendTurns()
        """Of the calls of ``send`` that wait: records keep the order of the calls."""
        self._lines = self._turns.lines
        self._pausing = WaitingCalls()
        """Calls of ``send`` that let the sender run. The loop resumes them in the order in which they paused."""
        self._queued = WaitingCalls()
        """Those in lines, but for partitions that are not there."""
        self._space_free = asyncio.Event()
        self._turn_to_wait = asyncio.Lock()
        """Held by whoever waits for space in front of all others."""
        self._waiting_for_space = 0
        self._task: asyncio.Task[None] | None = None
        self._is_open = False
        self._is_closing = False

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.close()

    async def start(self) -> None:
        """Connect to the first broker that answers. Raises ``NoBrokerReachable`` if none does."""
        self._require_new()
        await self._cluster.connection_to_any()
        self._require_new()
        self._is_open = True
        self._task = self._loop.create_task(self._sender.run(), name=f"producer {self._config.client_id}")

    def _require_new(self) -> None:
        if self._task is not None or self._is_closing:
            raise IllegalState("a producer is started once")

    async def close(self, timeout_seconds: float | None = None) -> None:
        """Send what was accepted, finish what was begun, abort an open transaction; then fail whatever is left.

        It takes at most ``timeout_seconds``; by default as long as a delivery and a transactional call may take.
        Futures that are not done by then fail with ``ProducerClosed``. Closing again does nothing.
        """
        if timeout_seconds is None:
            timeout_seconds = self._config.delivery_timeout_ms / 1000 + self._max_block_seconds
        checked_seconds(timeout_seconds, "timeout_seconds")
        if self._is_closing:
            return
        self._is_closing = self._accumulator.is_closed = True
        self._is_open = False
        self._space_free.set()
        try:
            if self._is_running:
                async with asyncio.timeout(timeout_seconds):
                    await self._finish()
        except (TimeoutError, ClientError):
            pass  # Whoever waits for something that is not done is told so now.
        finally:
            async with AsyncExitStack() as rest:  # All of it is done, also if this call is cancelled on the way.
                rest.push_async_callback(self._cluster.close)
                rest.push_async_callback(self._stop_sender)
                await self._questions.close()

    async def _stop_sender(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _finish(self) -> None:
        await self.flush()
        pending = self._manager.calls.pending
        if pending is not None:
            await self._wait_for(pending)
        if self._manager.state.current in _OPEN:
            result = self._manager.abort()
            self._sender.wake()
            await self._wait_for(result)

    @property
    def _is_running(self) -> bool:
        return self._task is not None and not self._task.done()

    # Records

    def send_nowait(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Headers = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> FutureRecordMetadata:
        """Accept a record, or raise ``BufferFull`` where ``send`` would wait. See ``send`` for the rest."""
        if self._pausing.topics and self._pausing.concern(topic, partition):
            raise BufferFull("others let the sender run")
        if self._lines and not self._may_overtake(topic, partition):
            raise BufferFull("others wait for space or for metadata")
        return self._accept(topic, value, key, headers, partition, timestamp_ms)

    def _accept(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        headers: Headers,
        partition: int | None,
        timestamp_ms: int | None,
    ) -> FutureRecordMetadata:
        accumulator = self._accumulator
        if not self._manager.state.accepts_records or not self._is_open:
            self._refuse()
        queues = accumulator.topics.get(topic)
        if queues is None or accumulator.used_bytes >= accumulator.buffer_bytes:
            raise BufferFull("the topic is not known yet" if queues is None else "all of buffer_bytes are in use")
        timestamp = self._wall_clock() if timestamp_ms is None else checked_timestamp(timestamp_ms)
        if partition is None and key is None and self._partitioner is None:
            return accumulator.append_sticky(queues, timestamp, value, headers)
        return accumulator.append(self._queue(queues, key, value, partition), timestamp, key, value, headers)

    async def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Headers = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> FutureRecordMetadata:
        """Accept a record, and return the future of its acknowledgement.

        Waits while the buffer is full and while the topic is not known, at most ``max_block_ms``. ``headers`` are
        (name, value) pairs. ``partition`` is by default that of the key's hash, and without key any. ``timestamp_ms``
        is milliseconds since the epoch, by default now.

        Raises ``OperationTimedOut``; ``BrokerRefused`` for a topic that may not be written to, at once, and for a topic
        or partition that does not exist, after ``max_block_ms``; ``RecordTooLarge``; ``TypeError`` and ``ValueError``
        for what no record can hold; ``IllegalState`` outside of a transaction; and the error of the transaction or the
        producer, if it has one. Then, and when it is cancelled, the record was not accepted.
        """
        if self._sender.is_behind or (self._pausing.topics and self._pausing.concern(topic, partition)):
            with self._pausing.one_more(topic, partition):
                await asyncio.sleep(0)  # Full batches wait to be sent: a caller without pause would keep them waiting.
        if not self._lines or self._may_overtake(topic, partition):
            try:
                return self._accept(topic, value, key, headers, partition, timestamp_ms)
            except BufferFull:
                pass
        record = partial(self._accept, topic, value, key, headers, partition, timestamp_ms)
        return await self._accept_in_time(topic, partition, record)

    async def _accept_in_time(
        self, topic: str, partition: int | None, accept: Callable[[], FutureRecordMetadata]
    ) -> FutureRecordMetadata:
        checked_topic(topic)
        try:
            async with asyncio.timeout(self._max_block_seconds):
                return await self._accept_in_turn(topic, partition, accept)
        except TimeoutError:
            raise self._why_not(topic, partition) from None

    def _may_overtake(self, topic: str, partition: int | None) -> bool:
        """Whether no call that waits could be for the same partition, or for the space that this one would take."""
        if self._waiting_for_space or self._queued.concern(topic, partition):
            return False
        return partition is None or TopicPartition(topic, partition) not in self._lines

    async def _accept_in_turn(
        self, topic: str, partition: int | None, accept: Callable[[], FutureRecordMetadata]
    ) -> FutureRecordMetadata:
        """Accept a record after those that came before it. One for a partition that is not there holds up no others."""
        with self._queued.one_more(topic, partition), self._turns.join(topic) as turn:
            await self._learn(topic)
            await turn.come()
            await self._learn(topic)
            if partition is None or self._is_free(topic, partition):
                return await self._accept_with_space(topic, partition, accept)
        with self._turns.join(TopicPartition(topic, checked_partition(partition))) as turn:
            await turn.come()
            return await self._accept_with_space(topic, partition, accept)

    def _is_free(self, topic: str, partition: int) -> bool:
        """Whether a partition is there, and nobody has waited for it to come."""
        known = partition < len(self._accumulator.topics[topic].queues)
        return known and TopicPartition(topic, partition) not in self._lines

    async def _accept_with_space(
        self, topic: str, partition: int | None, accept: Callable[[], FutureRecordMetadata]
    ) -> FutureRecordMetadata:
        while True:
            await self._learn(topic)
            if partition is not None:
                await self._learn_partition(topic, partition)
            await self._wait_for_space()
            try:
                return accept()
            except BufferFull:  # The topic was forgotten, or came back smaller, while there was no space.
                continue

    async def _wait_for_space(self) -> None:
        """Return once there is space, and nobody else waits in front: whoever called must take it at once."""
        if not self._waiting_for_space and not self._accumulator.is_full:
            return
        self._waiting_for_space += 1
        try:
            async with self._turn_to_wait:
                while self._accumulator.is_full and self._is_open:
                    self._space_free.clear()
                    await self._space_free.wait()
        finally:
            self._waiting_for_space -= 1

    def _why_not(self, topic: str, partition: int | None) -> ClientError:
        """What a call is told that has waited for ``max_block_ms``."""
        queues = self._accumulator.topics.get(topic)
        error = self._questions.error_of(topic)
        if queues is None and error is not None:
            known = isinstance(error, BrokerRefused)
            return error if known else OperationTimedOut(f"no metadata of {topic} in time: {error}")
        if queues is not None and partition is not None and partition >= len(queues.queues):
            missing = Refusal(error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            return BrokerRefused(str(TopicPartition(topic, partition)), missing)
        return OperationTimedOut(f"no space or no metadata for a record of {topic} in time")

    def obstacles(self) -> list[Obstacle]:
        """Return what keeps this producer from going on now, the oldest first."""
        found = [*self._cluster.obstacles(), *self._delivery.obstacles(self._loop.time())]
        return sorted(found, key=lambda each: -each.seconds)

    def is_connected(self, address: Address) -> bool:
        """Whether a connection to the address is open."""
        return self._cluster.is_connected(address)

    async def partitions_for(self, topic: str) -> int:
        """How many partitions a topic has; brokers may create it now.

        Waits for it at most ``max_block_ms``. Raises ``BrokerRefused`` if there is none, and ``OperationTimedOut``.
        """
        self._require_open()
        checked_topic(topic)
        try:
            async with asyncio.timeout(self._max_block_seconds):
                await self._learn(topic)
        except TimeoutError:
            raise self._why_not(topic, None) from None
        return len(self._accumulator.topics[topic].queues)

    async def flush(self) -> None:
        """Send everything that was accepted so far, and return when all of it is acknowledged or has failed."""
        self._accumulator.flushes += 1
        self._sender.wake()
        try:
            await self._all_done(list(self._accumulator.incomplete))
        finally:
            self._accumulator.flushes -= 1

    async def _all_done(self, batches: list[ProducerBatch]) -> None:
        left = len(batches)
        finished = asyncio.Event()

        def one_done() -> None:
            nonlocal left
            left -= 1
            if not left:
                finished.set()

        for batch in batches:
            batch.when_done(one_done)
        if batches:
            await finished.wait()

    def _queue(
        self, queues: TopicQueues, key: bytes | None, value: bytes | None, partition: int | None
    ) -> PartitionQueue:
        count = len(queues.queues)
        if partition is None:
            if self._partitioner is not None:
                partition = self._partitioner(queues.name, key, value, count)
                if not 0 <= partition < count:
                    raise ValueError(f"the partitioner chose partition {partition} of {queues.name}, which has {count}")
            else:
                partition = partition_for_key(key or b"", count)
        if partition < 0:
            raise ValueError(f"partition {partition}")
        if partition >= count:
            raise BufferFull(f"partition {partition} of {queues.name} is not known yet")
        return queues.queues[partition]

    async def _learn(self, topic: str) -> None:
        """Return when a topic is known."""
        while topic not in self._accumulator.topics:
            await self._questions.ask(topic)

    async def _learn_partition(self, topic: str, partition: int) -> None:
        """Return when a topic is known to have a partition."""
        attempt = 0
        while True:
            await self._learn(topic)
            if partition < len(self._accumulator.topics[topic].queues):
                return
            await self._metadata.fresh()
            if partition >= self._cluster.metadata.partition_count(topic):
                await asyncio.sleep(self._backoff.pause_seconds(attempt))
                attempt += 1

    def _take_metadata(self, response: MetadataResponse) -> None:
        for name in self._accumulator.topic_names():
            if self._cluster.metadata.partition_count(name):
                self._take_topic(name)
            else:
                self._accumulator.forget_topic(name)
        self._sender.wake()

    def _take_topic(self, name: str) -> None:
        metadata = self._cluster.metadata
        count = metadata.partition_count(name)
        available = [index for index in range(count) if metadata.leader(TopicPartition(name, index)) is not None]
        self._accumulator.update_topic(name, count, available)

    def _look_at_space(self) -> None:
        if not self._accumulator.is_full or not self._is_running:
            self._space_free.set()

    def _refuse(self) -> None:
        """Raise why no record is accepted."""
        self._require_open()
        self._manager.state.require_records_accepted()

    def _require_open(self) -> None:
        if self._is_closing:
            raise ProducerClosed("the producer is closed")
        if self._task is None:
            raise IllegalState("the producer is not started: use `async with Producer(...)`, or await start() first")

    # Transactions

    async def init_transactions(self) -> None:
        """Get an id for the transactional id: once, before everything else of transactions.

        Ends the transaction that a former producer with the same id may have left open, and fences that producer.
        Raises ``NotAuthorized`` and ``TransactionAbortable`` (call it again when that may have passed),
        ``VersionNotSupported`` if the cluster lacks the required ``transaction_protocol``, ``OperationTimedOut`` (call
        it again), and fatal errors.
        """
        await self._call(self._manager.initialize)

    def begin_transaction(self) -> None:
        """Begin a transaction. Nothing is sent for that. Raises ``IllegalState`` if one is open, and fatal errors."""
        self._require_open()
        self._manager.begin()

    async def send_offsets_to_transaction(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: ConsumerGroupMetadata
    ) -> None:
        """Commit a group's offsets with the transaction, if it commits (KIP-98, KIP-447).

        ``offsets`` are those of the next records to read, as from ``Consumer.position``; ``group`` is
        ``Consumer.group_metadata()``, and lets brokers refuse members that have lost their partitions. Raises
        ``CommitFailed`` for those, ``TransactionAbortable``, ``OperationTimedOut`` and fatal errors; after any of them
        abort. ``ValueError`` and ``TypeError`` for what no request can hold change nothing.
        """
        checked, member = checked_offsets(offsets), checked_group(group)
        if checked:
            await self._call(lambda: self._manager.send_offsets(checked, member))

    async def commit_transaction(self) -> None:
        """Write what was sent, then commit. When it returns, all of the transaction is committed.

        Raises ``TransactionAbortable`` if a record or an offset could not be written (abort then),
        ``OperationTimedOut`` (call it again: whether it commits is not decided by giving up), ``ProducerFenced`` and
        other fatal errors.
        """
        await self._call(self._manager.commit)

    async def abort_transaction(self) -> None:
        """Abort. Records that were not sent yet fail with ``TransactionAborted``. Raises as ``commit_transaction``."""
        await self._call(self._manager.abort)

    async def _call(self, begin: Callable[[], TransactionalResult]) -> None:
        self._require_open()
        result = begin()
        self._sender.wake()
        try:
            async with asyncio.timeout(self._max_block_seconds):
                await self._wait_for(result)
        except TimeoutError:
            raise OperationTimedOut(f"{result.operation} took longer than {self._max_block_seconds:g} s") from None
        result.acknowledge()

    async def _wait_for(self, result: TransactionalResult) -> None:
        done = asyncio.Event()
        result.when_done(done.set)
        await done.wait()

    @property
    def transaction_protocol(self) -> int:
        """The version of the transaction protocol in use: 1 or 2. It can change when a transaction ends."""
        return self._manager.protocol
