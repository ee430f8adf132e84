"""Sends encoded batches, in one transaction or in none: the producer of ``clients``, by its parts.

Order, numbering, retries, versions of the transaction protocol and splitting are what ``oncelog.clients.producer`` does
for every producer. Three things differ: batches are complete, connections are the process's, and the transaction stays
open when the producer stops: the driver ends it.

It works whenever the process's loop runs, which it also does while a task waits for rows from Spark (``pulled_rows``).
"""

import asyncio
from collections.abc import Callable, Collection
from typing import Final

from oncelog.clients.background_tasks import BackgroundTasks
from oncelog.clients.cluster import Cluster
from oncelog.clients.errors import BrokerRefused, ClientError, Refusal, error_code
from oncelog.clients.metadata_refresh import MetadataRefresh
from oncelog.clients.producer.producer_batch import ProducerBatch
from oncelog.clients.producer.producer_config import ProducerConfig
from oncelog.clients.producer.record_accumulator import RecordAccumulator
from oncelog.clients.producer.sender import Sender
from oncelog.clients.producer.transaction_manager import TransactionManager
from oncelog.clients.producer.transactional_result import TransactionalResult
from oncelog.clients.retry import Backoff
from oncelog.clients.runtime import ClientRuntime
from oncelog.protocol.messages.metadata import MetadataResponseTopic
from oncelog.protocol.schema import ZERO_UUID, Buffer
from oncelog.protocol.topic_partition import TopicPartition
from oncelog.spark_connector.retry import retry_operation
from oncelog.spark_connector.sink.commit.on_error import OnError
from oncelog.spark_connector.sink.commit.sink_broker import TopicIds
from oncelog.spark_connector.sink.commit.sink_errors import ResponseLost, TopicReplaced
from oncelog.spark_connector.sink.commit.written_topics import replaced_topics, replacement

_ABORT_SECONDS: Final = 10.0


class BatchProducer:
    """One use of a producer: ``start``, ``append`` and ``flush``, then ``stop``; or ``abort``, then ``stop``."""

    def __init__(self, cluster: Cluster, config: ProducerConfig, wall_clock: Callable[[], int]) -> None:
        self._cluster = cluster
        self._wall_clock = wall_clock
        self._loop = asyncio.get_running_loop()
        self._progress = asyncio.Event()
        backoff = Backoff(rng=cluster.rng, first_seconds=config.retry_backoff_ms / 1000)
        self._manager = TransactionManager(config)
        self._accumulator = RecordAccumulator(
            config, self._manager, rng=cluster.rng, now=self._loop.time, on_batch=self._wake, on_full_batch=self._wake
        )
        metadata = MetadataRefresh(
            cluster,
            backoff,
            self._accumulator.topic_names,
            lambda _: self._wake(),
            max_age_seconds=config.metadata_max_age_ms / 1000,
            creates_topics=False,
        )
        runtime = ClientRuntime(
            cluster=cluster, tasks=BackgroundTasks("sink"), backoff=backoff, rng=cluster.rng, wall_clock=wall_clock
        )
        self._sender: Sender = Sender(
            config, runtime, self._manager, self._accumulator, metadata, on_progress=self._progress.set
        )
        self._patience_seconds = config.delivery_timeout_ms / 1000
        self._failure: ClientError | None = None
        self._topic_ids: dict[str, bytes] = {}
        """The topics' ids before the first row was sent."""
        self._task: asyncio.Task[None] | None = None

    def _wake(self) -> None:
        self._sender.wake()

    @property
    def producer_id(self) -> int:
        return self._manager.producer.producer_id

    @property
    def epoch(self) -> int:
        return self._manager.producer.epoch

    @property
    def version(self) -> int:
        """Of the transaction protocol."""
        return self._manager.protocol

    async def start(self) -> None:
        """Get a producer id; with a transactional id, also begin.

        Raises ``ResponseLost``, ``TimeoutError`` and ``ClientError``, and is stopped then.
        """
        await retry_operation(self._cluster, self._patience_seconds, self._cluster.connection_to_any)
        self._task = self._loop.create_task(self._sender.run(), name="sink: sender")
        if self._manager.is_transactional:
            async with OnError(self.stop):
                async with asyncio.timeout(self._patience_seconds):
                    initialized = self._manager.initialize()
                    await self._wait_for(initialized)
                if initialized.response_lost:
                    raise ResponseLost(f"{self._manager.transactional_id} may have been taken twice")
                self._manager.begin()

    async def partition_counts(self, topics: Collection[str]) -> dict[str, int]:
        """Return the number of partitions of each topic; brokers may create it now. Raises ``BrokerRefused``.

        The first call for a topic refreshes its metadata: what the process has cached may be of a deleted topic.
        """
        new = [each for each in topics if each not in self._topic_ids]

        async def look_up() -> dict[str, MetadataResponseTopic]:
            if new:
                await self._cluster.refresh(new, create=True)
            return await self._cluster.topics(topics, create=True)

        found = await retry_operation(self._cluster, self._patience_seconds, look_up)
        for name, topic in found.items():
            if topic.error_code:
                raise BrokerRefused(f"topic {name}", Refusal(error=error_code(topic.error_code)))
            self._topic_ids.setdefault(name, topic.topic_id)
        return {name: len(topic.partitions) for name, topic in found.items()}

    def written_topics(self) -> TopicIds:
        """Return the topics of ``partition_counts``, with the ids that they had then. Raises ``TopicReplaced``.

        If batches are sent by topic id, all acknowledged batches are in these topics.
        """
        known = {name: topic_id for name, topic_id in self._topic_ids.items() if topic_id != ZERO_UUID}
        now = {name: self._cluster.metadata.topic_id(name) for name in known}
        replaced = replaced_topics([tuple(known.items())], now)
        if replaced:
            raise TopicReplaced(replacement(replaced))
        return tuple(known.items())

    async def append(self, topic_partition: TopicPartition, records: Buffer, record_count: int) -> None:
        """Send a batch, once there is space in the buffer. Raises the error of an earlier batch."""
        while self._accumulator.is_full and self._failure is None:
            self._progress.clear()
            await self._progress.wait()
        self._raise_failure()
        batch = ProducerBatch.of_records(topic_partition, records, record_count, self._wall_clock(), self._loop.time())
        batch.when_done(lambda: self._note(batch))
        self._accumulator.append_batch(batch)

    def _note(self, batch: ProducerBatch) -> None:
        if batch.error is not None and self._failure is None:
            self._failure = batch.error
        self._progress.set()

    def _raise_failure(self) -> None:
        error = self._failure or self._manager.state.error()
        if error is not None:
            raise error

    async def yield_to_sender(self) -> None:
        """Let the sender run, so that it sends the appended batches that it may send."""
        if self._sender.is_behind:
            await asyncio.sleep(0)
            await asyncio.sleep(0)

    async def flush(self) -> None:
        """Return when every batch is acknowledged. Raises the error of the first that was refused."""
        self._accumulator.flushes += 1
        self._sender.wake()
        while self._accumulator.incomplete and self._failure is None:
            self._progress.clear()
            await self._progress.wait()
        self._raise_failure()

    async def abort(self) -> None:
        """Abort the transaction; if that fails, its coordinator aborts it after the transaction's time-out."""
        try:
            async with asyncio.timeout(_ABORT_SECONDS):
                await self._wait_for(self._manager.abort())
        except (TimeoutError, ClientError):
            pass

    async def stop(self) -> None:
        """Stop sending. An open transaction stays open."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _wait_for(self, result: TransactionalResult) -> None:
        self._sender.wake()
        done = asyncio.Event()
        result.when_done(done.set)
        await done.wait()
        result.acknowledge()
