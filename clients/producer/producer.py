"""The producer: sends records, returns futures of their acknowledgements, and writes in transactions.

::

    async with Producer("localhost:9092") as producer:
        future = await producer.send("orders", b"a value", key=b"a key")
        metadata = await future  # RecordMetadata(topic, partition, offset, timestamp_ms)

``send`` waits only for space and metadata; the record is acknowledged when its future is done. ``send_nowait`` does the
same without waiting, as a plain call: it is the way to send many records fast, with ``send`` for those that it refuses.
With both, records of one partition are written in the order of the calls, and (with idempotence) each once.

A transactional producer (one with a ``transactional_id``) sends inside transactions only::

    await producer.init_transactions()
    producer.begin_transaction()
    try:
        ...  # send, send_offsets_to_transaction
        await producer.commit_transaction()
    except OperationTimedOut:
        raise  # The commit may still happen: call it again, or close this producer.
    except ClientError as error:
        if error.is_fatal:
            raise  # Fenced, for example: close this producer.
        await producer.abort_transaction()

Every call of a transaction takes at most ``max_block_ms``; after ``OperationTimedOut`` the same call continues to wait,
and no other is possible. The behaviour is that of Kafka's ``KafkaProducer`` (KIP-98, KIP-447, KIP-890);
``docs/reference/python-client.md`` lists the differences.
"""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from functools import partial
from random import Random
from threading import get_ident
from typing import Self, Unpack

from oncelog.clients.arguments import (
    checked_group,
    checked_offsets,
    checked_timestamp,
    checked_topic,
    require_record,
    wrong_argument,
)
from oncelog.clients.background_tasks import BackgroundTasks
from oncelog.clients.calls_under_way import CallsUnderWay
from oncelog.clients.connection import Address
from oncelog.clients.durations import checked_seconds
from oncelog.clients.errors import BufferFull, ClientError, IllegalState, OperationTimedOut, ProducerClosed
from oncelog.clients.group_metadata import ConsumerGroupMetadata
from oncelog.clients.obstacles import Obstacle
from oncelog.clients.offset_and_metadata import OffsetAndMetadata
from oncelog.clients.own_loop import OwnLoop
from oncelog.clients.producer.future_record_metadata import FutureRecordMetadata
from oncelog.clients.producer.producer_batch import Headers, ProducerBatch
from oncelog.clients.producer.producer_config import ProducerConfig
from oncelog.clients.producer.producer_metadata import ProducerMetadata
from oncelog.clients.producer.producer_settings import ProducerSettings
from oncelog.clients.producer.record_accumulator import RecordAccumulator
from oncelog.clients.producer.send_turns import WaitingCalls
from oncelog.clients.producer.sender import Sender
from oncelog.clients.producer.transaction_manager import TransactionManager
from oncelog.clients.producer.transactional_result import TransactionalResult
from oncelog.clients.producer.unfinished_work import UnfinishedWork, close_seconds, until_done
from oncelog.clients.producer.waiting_sends import WaitingSends
from oncelog.clients.retry import Backoff
from oncelog.clients.runtime import ClientRuntime, client_config, new_cluster, system_clock_ms
from oncelog.protocol.topic_partition import TopicPartition


class Producer:
    """A producer, made inside of a running event loop. Start it, or use it as a context manager."""

    def __init__(
        self,
        config: str | ProducerConfig | None = None,
        *,
        rng: Random | None = None,
        wall_clock: Callable[[], int] = system_clock_ms,
        **settings: Unpack[ProducerSettings],
    ) -> None:
        """Set up a producer without connecting.

        ``config`` is a ``ProducerConfig``, or ``host:port,host:port`` with ``settings`` beside it, which are the fields
        of ``ProducerConfig``; the address may be the setting ``bootstrap`` as well. ``rng`` spreads retries and records
        without key; by default it is seeded by the system. ``wall_clock`` returns milliseconds since the epoch, for the
        timestamps of records. Raises ``TypeError`` for an argument of another type or name, ``ValueError`` for an
        invalid one, and ``IllegalState`` outside of a running event loop.
        """
        config = client_config(config, ProducerConfig, settings)
        self._own_loop = OwnLoop("Producer")
        self._own_loop.require()
        self._config = config
        self._wall_clock = wall_clock
        self._partitioner = config.partitioner
        self._max_block_seconds = config.max_block_ms / 1000
        self._runtime = _runtime(config, rng or Random(), wall_clock)
        self._refusal = self._runtime.cluster.refusal
        self._manager = TransactionManager(config)
        self._accumulator = RecordAccumulator(
            config,
            self._manager,
            rng=self._runtime.rng,
            now=self._own_loop.time,
            on_batch=lambda: self._sender.wake_to_linger(),
            on_full_batch=lambda: self._sender.wake(),
        )
        max_age_seconds = config.metadata_max_age_ms / 1000
        self._metadata = ProducerMetadata(
            self._runtime, self._accumulator, lambda: self._sender.wake(), max_age_seconds=max_age_seconds
        )
        self._waiting = WaitingSends(self._accumulator, self._metadata, max_block_seconds=self._max_block_seconds)
        self._lines = self._waiting.lines
        self._pausing = WaitingCalls()
        """Calls of ``send`` that let the sender run. The loop resumes them in the order in which they paused."""
        self._sender = Sender(
            config,
            self._runtime,
            self._manager,
            self._accumulator,
            self._metadata.refresh,
            on_progress=self._waiting.note_space,
        )
        self._unfinished = UnfinishedWork(
            config, self._accumulator, self._manager, self._sender.wake, flush=self.flush, obstacles=self.obstacles
        )
        self._sending: asyncio.Task[None] | None = None
        self._calls = CallsUnderWay("producer", ProducerClosed)
        """Those that ``close`` ends at once: nothing that they wait for can be used any more."""
        self._open_in_thread: int | None = None
        """The thread in which records are accepted, while the producer is started and not closed."""
        self._is_closed = False
        """Whether the producer is closed, or being closed."""

    def __repr__(self) -> str:
        return f"<Producer of {self._config.bootstrap}, transactional id {self._config.transactional_id}>"

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.close()

    async def start(self) -> None:
        """Connect to the first broker that accepts. Raises ``NoBrokerReachable`` if none does."""
        self._own_loop.require()
        self._require_new()
        async with self._calls.one():
            await self._runtime.cluster.connection_to_any()
        self._require_new()
        self._open_in_thread = get_ident()
        self._sending = self._runtime.tasks.spawn(self._sender.run(), "sender")
        self._sending.add_done_callback(self._sender_ended)

    def _sender_ended(self, sending: "asyncio.Task[None]") -> None:
        """Accept no more records: nothing would send them. A loop that ends before ``close`` cancels the sender."""
        self._open_in_thread = None

    def _require_new(self) -> None:
        if self._is_closed:
            raise ProducerClosed("the producer is closed: create another one")
        if self._sending is not None:
            raise IllegalState("a producer is started once")

    async def close(self, timeout_seconds: float | None = None) -> None:
        """Deliver accepted records, end pending calls, abort an open transaction; then fail everything that is left.

        It takes at most ``timeout_seconds``, and returns at once if there is nothing to deliver or to abort. By default
        these are ``delivery_timeout_ms`` and ``max_block_ms`` together; in a task that is being cancelled, as after
        Ctrl-C, at most 5 s. Futures that are not done by then fail with ``ProducerClosed``, and the coordinator aborts
        an open transaction after ``transaction_timeout_ms``. A call that takes longer than 1 s logs what it waits for.
        Closing again does nothing.
        """
        self._own_loop.require()
        seconds = close_seconds(self._config) if timeout_seconds is None else timeout_seconds
        checked_seconds(seconds, "timeout_seconds")
        if self._is_closed:
            return
        self._is_closed = self._accumulator.is_closed = True
        self._open_in_thread = None
        self._calls.close()
        self._waiting.note_space()
        try:
            if self._sending is not None and not self._sending.done():
                await self._unfinished.finish(seconds)
        except ClientError:
            pass  # What is not done fails when the sender is stopped.
        finally:
            async with AsyncExitStack() as rest:  # All of it is done, also if this call is cancelled on the way.
                rest.push_async_callback(self._runtime.cluster.close)
                rest.push_async_callback(self._runtime.tasks.stop)
                self._metadata.close()

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
            raise BufferFull("other calls let the sender run: call send")
        if self._lines and not self._waiting.may_overtake(topic, partition):
            raise BufferFull("other calls wait for space or for metadata: call send")
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
        if get_ident() != self._open_in_thread or not self._manager.state.accepts_records:
            self._refuse()
        if self._refusal.error is not None:
            self._refusal.raise_if_any()
        try:
            queues = accumulator.topics.get(topic)
            if queues is None:
                # Before a request can create the topic.
                require_record(topic, value, key, headers, partition, timestamp_ms)
                raise BufferFull("the topic is not known yet")
            if accumulator.used_bytes >= accumulator.buffer_bytes:
                raise BufferFull("all of buffer_bytes is in use")
            timestamp = self._wall_clock() if timestamp_ms is None else checked_timestamp(timestamp_ms)
            if partition is None and key is None and self._partitioner is None:
                return accumulator.append_sticky(queues, timestamp, value, headers)
            queue = queues.queue_for(self._partitioner, key, value, partition)
            return accumulator.append(queue, timestamp, key, value, headers)
        except TypeError:
            wrong = wrong_argument(topic, value, key, headers, partition, timestamp_ms)
            if wrong is not None:
                raise wrong from None
            raise

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
        (name, value) pairs. ``partition`` is by default that of the key's hash, and any for a record without key.
        ``timestamp_ms`` is in milliseconds since the epoch, by default the time of the call.

        Raises ``OperationTimedOut``; ``BrokerRefused`` for a topic that may not be written to, at once, and for a topic
        or partition that does not exist, after ``max_block_ms``; ``RecordTooLarge``; ``TypeError`` and ``ValueError``
        for an argument that no record can hold; ``IllegalState`` outside a transaction; ``AuthenticationFailed`` while
        brokers refuse the login for more than ten seconds; and the error of the transaction or the producer, if it has
        one. Then, and when the call is cancelled, the record was not accepted.
        """
        if self._sender.is_behind or (self._pausing.topics and self._pausing.concern(topic, partition)):
            with self._pausing.one_more(topic, partition):
                await asyncio.sleep(0)  # Full batches wait to be sent: a caller without pause would keep them waiting.
        if not self._lines or self._waiting.may_overtake(topic, partition):
            try:
                return self._accept(topic, value, key, headers, partition, timestamp_ms)
            except BufferFull:
                pass
        self._own_loop.require()
        record = partial(self._accept, topic, value, key, headers, partition, timestamp_ms)
        async with self._calls.one():
            return await self._waiting.accept(topic, partition, record)

    def obstacles(self) -> list[Obstacle]:
        """Return the obstacles that delay this producer now, the oldest first."""
        found = [*self._runtime.cluster.obstacles(), *self._sender.obstacles()]
        return sorted(found, key=lambda each: -each.seconds)

    def is_connected(self, address: Address) -> bool:
        """Return whether a connection to the address is open."""
        return self._runtime.cluster.is_connected(address)

    async def partitions_for(self, topic: str) -> int:
        """Return the number of partitions of a topic, which brokers may create now.

        Waits at most ``max_block_ms``. Raises ``BrokerRefused`` if there is no such topic, and ``OperationTimedOut``.
        """
        self._require_open()
        checked_topic(topic)
        try:
            async with self._calls.one(), asyncio.timeout(self._max_block_seconds):
                await self._metadata.learn(topic)
        except TimeoutError:
            raise self._metadata.timeout_error(topic, None) from None
        return len(self._accumulator.topics[topic].queues)

    async def flush(self) -> None:
        """Send all records that were accepted so far, and return when each is acknowledged or has failed."""
        self._own_loop.require()
        self._accumulator.flushes += 1
        self._sender.wake()
        try:
            await _all_done(list(self._accumulator.incomplete))
        finally:
            self._accumulator.flushes -= 1

    def _refuse(self) -> None:
        """Raise why no record is accepted."""
        self._require_open()
        self._manager.state.require_records_accepted()

    def _require_open(self) -> None:
        if self._is_closed:
            raise ProducerClosed("the producer is closed: create another one")
        self._own_loop.require()
        if self._sending is None:
            raise IllegalState("the producer is not started: use `async with Producer(...)`, or await start() first")
        if self._sending.cancelled():
            raise ProducerClosed("the task that sends was cancelled before close(): create another producer")

    # Transactions

    async def init_transactions(self) -> None:
        """Get a producer id for the transactional id: once, before the first transaction.

        Ends the transaction that a former producer with the same id may have left open, and fences that producer.
        Raises ``NotAuthorized`` and ``TransactionAbortable`` (call it again when the reason may be gone),
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
        abort. ``ValueError`` and ``TypeError``, for arguments that no request can hold, change nothing.
        """
        checked, member = checked_offsets(offsets), checked_group(group)
        if checked:
            await self._call(lambda: self._manager.send_offsets(checked, member))

    async def commit_transaction(self) -> None:
        """Wait until all records are written, then commit. When it returns, the whole transaction is committed.

        Raises ``TransactionAbortable`` if a record or an offset could not be written (abort then),
        ``OperationTimedOut`` (call it again: the transaction may still commit), ``ProducerFenced`` and other fatal
        errors.
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
                await until_done(result)
        except TimeoutError:
            raise OperationTimedOut(f"{result.operation} took longer than {self._max_block_seconds:g} s") from None
        result.acknowledge()

    @property
    def transaction_protocol(self) -> int:
        """The version of the transaction protocol in use: 1 or 2. It can change when a transaction ends."""
        return self._manager.protocol


def _runtime(config: ProducerConfig, rng: Random, wall_clock: Callable[[], int]) -> ClientRuntime:
    backoff = Backoff(
        rng=rng,
        first_seconds=config.retry_backoff_ms / 1000,
        longest_seconds=max(config.retry_backoff_ms, config.retry_backoff_max_ms) / 1000,
    )
    return ClientRuntime(
        cluster=new_cluster(config, rng),
        tasks=BackgroundTasks(f"producer {config.client_id}"),
        backoff=backoff,
        rng=rng,
        wall_clock=wall_clock,
    )


async def _all_done(batches: list[ProducerBatch]) -> None:
    """Return when every batch is acknowledged or has failed."""
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
