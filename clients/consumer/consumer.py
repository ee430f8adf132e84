"""The consumer: records of topics shared with a group, or of chosen partitions, in the order of their offsets.

::

    async with Consumer("localhost:9092", group_id="billing") as consumer:
        consumer.subscribe(["orders"])
        while True:
            for record in await consumer.poll(1.0):
                handle(record)
            await consumer.commit()

Everything that changes what the application sees happens inside ``poll``: partitions are assigned and revoked there,
positions move past the records that it returns, and ``enable_auto_commit`` commits what earlier polls returned.
Meanwhile background tasks fetch ahead, send heartbeats and refresh metadata.

A record counts as consumed once ``poll`` has returned it. ``commit`` after handling the records of a poll gives at
least once; sending the positions with a producer's transaction, together with the results, gives exactly once
(``position``, ``group_metadata``, ``Producer.send_offsets_to_transaction``).

One task polls; others may call everything else at the same time. A call that is cancelled loses no records: they leave
the buffer in the same step in which they are returned.

The behaviour is that of Kafka's ``ClassicKafkaConsumer.java``.
"""

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Mapping
from contextlib import asynccontextmanager
from random import Random
from typing import Any, Final, Self, Unpack

from oncelog.clients import arguments, durations
from oncelog.clients.admin.offsets import EARLIEST, LATEST, FoundOffset, list_offsets
from oncelog.clients.annotations import require_type
from oncelog.clients.background_tasks import BackgroundTasks
from oncelog.clients.calls_under_way import CallsUnderWay
from oncelog.clients.connection import Address
from oncelog.clients.consumer.assigned_partitions import NO_OFFSET, RESET_TO_EARLIEST, RESET_TO_LATEST
from oncelog.clients.consumer.background_reading import BackgroundReading
from oncelog.clients.consumer.consumer_config import ConsumerConfig
from oncelog.clients.consumer.consumer_connections import ConsumerConnections
from oncelog.clients.consumer.consumer_errors import ConsumerClosed
from oncelog.clients.consumer.consumer_metadata import ConsumerMetadata
from oncelog.clients.consumer.consumer_record import ConsumerRecord
from oncelog.clients.consumer.consumer_settings import ConsumerSettings
from oncelog.clients.consumer.fetch_buffer import FetchBuffer
from oncelog.clients.consumer.fetcher import Fetcher
from oncelog.clients.consumer.group_consumption import GroupConsumption
from oncelog.clients.consumer.lifecycle import Lifecycle, State
from oncelog.clients.consumer.poll_loop import PollLoop
from oncelog.clients.consumer.position_control import PositionControl
from oncelog.clients.consumer.position_lookup import PositionLookup
from oncelog.clients.consumer.rebalance_listener import RebalanceListener
from oncelog.clients.consumer.subscription_state import SubscriptionState
from oncelog.clients.consumer.wakeup import Wakeup
from oncelog.clients.errors import IllegalState
from oncelog.clients.group_metadata import ConsumerGroupMetadata
from oncelog.clients.obstacles import Obstacle
from oncelog.clients.offset_and_metadata import OffsetAndMetadata
from oncelog.clients.own_loop import OwnLoop
from oncelog.clients.retry import Backoff
from oncelog.clients.runtime import ClientRuntime, client_config, new_cluster, system_clock_ms
from oncelog.protocol.topic_partition import TopicPartition

_log = logging.getLogger(__name__)

_CLOSE_SECONDS: Final = 30.0


class Consumer:
    """A consumer of one cluster. Start it, or use it as a context manager, inside a running event loop."""

    def __init__(
        self,
        config: str | ConsumerConfig | None = None,
        *,
        rng: Random | None = None,
        wall_clock: Callable[[], int] = system_clock_ms,
        **settings: Unpack[ConsumerSettings],
    ) -> None:
        """Set up a consumer without connecting.

        ``config`` is a ``ConsumerConfig``, or ``host:port,host:port`` with ``settings`` beside it, which are the fields
        of ``ConsumerConfig``; the address may be the setting ``bootstrap`` as well. ``rng`` spreads retries, and is
        seeded by the system by default. ``wall_clock`` returns milliseconds since the epoch, for a reset by duration.
        Raises ``TypeError`` for an argument of another type or name, and ``ValueError`` for an invalid one.
        """
        config = client_config(config, ConsumerConfig, settings)
        rng = rng or Random()
        self._config = config
        self._own_loop = OwnLoop("Consumer")
        self._lifecycle = Lifecycle()
        self._calls = CallsUnderWay("consumer", ConsumerClosed)
        """Those that end as soon as ``close`` is called."""
        self._commits = CallsUnderWay("consumer", ConsumerClosed)
        """Those that ``close`` gives the time that it takes itself."""
        self._wakeup = Wakeup()
        self._runtime = ClientRuntime(
            cluster=new_cluster(config, rng),
            tasks=BackgroundTasks(f"consumer {config.client_id}", self._wakeup.fail),
            backoff=Backoff(rng=rng),
            rng=rng,
            wall_clock=wall_clock,
        )
        self._subscription = SubscriptionState(config.reset_policy)
        self._buffer = FetchBuffer(self._subscription)
        self._metadata = ConsumerMetadata(config, self._runtime, self._subscription, self._wakeup.set)
        self._group: GroupConsumption | None = None
        group_cluster = None
        if config.group_id is not None:
            group_cluster = new_cluster(config, rng)
            self._group = GroupConsumption(
                config, self._runtime, group_cluster, self._subscription, self._metadata, self._wakeup.set
            )
        fetcher = Fetcher(config, self._runtime, self._subscription, self._buffer, self._metadata, self._wakeup.set)
        committed = None if self._group is None else self._group.committed
        partitions = self._subscription.partitions
        lookup = PositionLookup(config, self._runtime, partitions, self._metadata, committed, self._wakeup.set)
        reading = BackgroundReading(partitions, self._metadata, lookup, fetcher, self._wakeup)
        self._positions = PositionControl(
            self._lifecycle, partitions, self._buffer, self._metadata, reading, self._wakeup
        )
        refusal = self._runtime.cluster.refusal
        refusal.on_error = self._wakeup.set
        self._polls = PollLoop(
            self._lifecycle, self._subscription, self._buffer, reading, self._group, self._wakeup, refusal
        )
        self._connections = ConsumerConnections(self._runtime.cluster, group_cluster, fetcher)

    def __repr__(self) -> str:
        return f"<Consumer of {self._config.bootstrap}, group {self._config.group_id}>"

    # Start and end

    async def start(self) -> None:
        """Connect. Raises ``Unreachable``, ``BadResponse``, ``ConsumerClosed``."""
        self._own_loop.require()
        self._lifecycle.require_not_closing()
        if self._lifecycle.state is State.RUNNING:
            return
        async with self._calls.one():
            await self._runtime.cluster.refresh(())
        self._lifecycle.require_not_closing()
        if self._lifecycle.state is State.NEW:  # Else another task has started it meanwhile.
            self._lifecycle.enter(State.RUNNING)
            self._runtime.tasks.keep_running(self._metadata.refresh.run, "metadata")
            self._wakeup.set()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.close()

    async def close(self, timeout_seconds: float = _CLOSE_SECONDS) -> None:
        """Commit if commits are automatic, revoke the partitions, leave the group, and close every connection.

        A static member does not leave. The consumer is closed after ``timeout_seconds`` in any case. Raises what the
        rebalance listener raises, once everything is closed.
        """
        self._own_loop.require()
        deadline = asyncio.get_running_loop().time() + durations.checked_seconds(timeout_seconds, "timeout_seconds")
        if self._lifecycle.is_closing:
            return
        was_running = self._lifecycle.state is State.RUNNING
        self._lifecycle.enter(State.CLOSING)
        self._calls.end()
        self._wakeup.set()
        try:
            async with asyncio.timeout_at(deadline):
                if self._group is not None and was_running:
                    await self._group.commit_finally(timeout_seconds)
                    await self._group.leave("the consumer is being closed")
        except TimeoutError:
            _log.warning("consumer %s timed out while leaving its group", self._config.client_id)
        finally:
            self._lifecycle.enter(State.CLOSED)
            self._calls.close()
            self._commits.close()
            self._wakeup.set()
            try:
                await self._runtime.tasks.stop()
            finally:  # Also if this call is cancelled on the way.
                await self._connections.close(deadline)

    # Subscription

    def subscribe(self, topics: Collection[str] | re.Pattern[str], listener: RebalanceListener | None = None) -> None:
        """Share these topics, or all whose whole names match, with the group, in place of earlier ones.

        Raises ``IllegalState`` without a group id, or after ``assign``; ``ValueError``, ``TypeError``;
        ``ConsumerClosed``.
        """
        self._own_loop.require_if_used()
        self._lifecycle.require_not_closing()
        wanted = arguments.checked_subscription(topics)
        require_type(listener, RebalanceListener | None, "listener")
        group = self._require_group()
        if isinstance(wanted, re.Pattern):
            self._subscription.subscribe_pattern(wanted)
        else:
            self._subscription.subscribe(wanted)
        group.listen(listener)
        self._metadata.refresh.request()
        self._wakeup.set()

    def assign(self, partitions: Collection[TopicPartition]) -> None:
        """Read these partitions without sharing them; an empty collection ends the assignment.

        Raises ``IllegalState`` after ``subscribe``, ``ValueError``, ``TypeError``, ``ConsumerClosed``.
        """
        self._own_loop.require_if_used()
        self._lifecycle.require_not_closing()
        partitions = arguments.checked_topic_partitions(partitions)
        if self._group is not None:
            self._group.commit_soon()
        self._subscription.assign(partitions)
        if not partitions:
            self._subscription.unsubscribe()
        if self._group is not None and self._lifecycle.state is State.RUNNING:
            self._group.restart_commits()
        self._buffer.drop_unassigned()
        self._metadata.refresh.request()
        self._wakeup.set()

    async def unsubscribe(self) -> None:
        """Revoke everything, and leave the group. Raises ``ConsumerClosed``."""
        self._own_loop.require_if_used()
        self._lifecycle.require_not_closing()
        if self._group is not None:
            async with self._calls.one():
                await self._group.leave("the consumer has unsubscribed")
        self._subscription.unsubscribe()
        self._buffer.drop_unassigned()

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        """Return the partitions that are read now."""
        return self._subscription.assignment

    @property
    def subscription(self) -> frozenset[str]:
        """Return the topics that are shared with the group; with a pattern those that have matched."""
        return self._subscription.topics

    # Records

    async def poll(self, timeout_seconds: float = 0.0, max_records: int | None = None) -> list[ConsumerRecord]:
        """Return the next records, at most ``max_records`` (``max_poll_records``); none if none come in time.

        With 0 records the call takes none, and keeps the membership of a member that has no room for more.

        Those of a partition come in the order of their offsets. Raises the ``ConsumerError`` s of positions, records
        and the group; ``BrokerRefused`` for topics that may not be read; ``AuthenticationFailed`` while brokers refuse
        the login for more than ten seconds; and what the listener raises. Records are never lost with an exception: it
        comes alone, and the next poll goes on.
        """
        self._own_loop.require()
        deadline = asyncio.get_running_loop().time() + durations.checked_seconds(timeout_seconds, "timeout_seconds")
        if max_records is None:
            return await self._polls.poll(deadline, self._config.max_poll_records)
        return await self._polls.poll(deadline, arguments.checked_size(max_records, "max_records", least=0))

    def __aiter__(self) -> AsyncIterator[ConsumerRecord]:
        self._own_loop.require_if_used()
        return self._polls

    def __anext__(self) -> Coroutine[Any, Any, ConsumerRecord]:
        """Return the next record. Only records that were returned count as consumed, so a loop may ``commit``."""
        self._own_loop.require_if_used()
        return self._polls.__anext__()

    # Positions

    def seek(self, topic_partition: TopicPartition, to: int | OffsetAndMetadata) -> None:
        """Go on at this offset. One with a leader epoch is checked against the leader's log first (KIP-320).

        Raises ``IllegalState`` for a partition that is not assigned, ``ValueError`` for an offset that cannot be.
        """
        self._own_loop.require_if_used()
        place = arguments.checked_offset(to if isinstance(to, OffsetAndMetadata) else OffsetAndMetadata(to))
        self._positions.seek(arguments.checked_topic_partition(topic_partition), place)

    def seek_to_beginning(self, partitions: Collection[TopicPartition] = ()) -> None:
        """Go on at the first record that there is, in these or in all partitions."""
        self._own_loop.require_if_used()
        self._positions.reset(arguments.checked_topic_partitions(partitions), RESET_TO_EARLIEST)

    def seek_to_end(self, partitions: Collection[TopicPartition] = ()) -> None:
        """Go on with records written from now on; for read_committed, at the first open transaction."""
        self._own_loop.require_if_used()
        self._positions.reset(arguments.checked_topic_partitions(partitions), RESET_TO_LATEST)

    async def position(self, topic_partition: TopicPartition, timeout_seconds: float | None = None) -> int:
        """Return the offset of the next record to return, once it is known.

        Raises ``IllegalState`` for a partition that is not assigned, ``OperationTimedOut``, and what ``poll`` raises of
        positions.
        """
        topic_partition = arguments.checked_topic_partition(topic_partition)
        async with self._within(timeout_seconds):
            return await self._positions.position(topic_partition)

    def pause(self, partitions: Collection[TopicPartition]) -> None:
        """Return no records of these until they are resumed. What has been fetched of them is kept."""
        self._own_loop.require_if_used()
        self._positions.set_paused(arguments.checked_topic_partitions(partitions), True)

    def resume(self, partitions: Collection[TopicPartition]) -> None:
        """Return records of these again."""
        self._own_loop.require_if_used()
        self._positions.set_paused(arguments.checked_topic_partitions(partitions), False)

    @property
    def paused(self) -> frozenset[TopicPartition]:
        """Return the assigned partitions that are paused."""
        return frozenset(tp for tp, partition in self._subscription.partitions.items() if partition.paused)

    def lag(self, topic_partition: TopicPartition) -> int | None:
        """Return the number of offsets from the position to the end, as of the last fetch; None before the first.

        For read_committed the end is that of the last transaction that has ended.
        """
        partition = self._subscription.partitions[arguments.checked_topic_partition(topic_partition)]
        end = partition.last_stable_offset if self._config.reads_committed else partition.high_watermark
        return None if NO_OFFSET in (end, partition.position.offset) else max(0, end - partition.position.offset)

    # Offsets

    async def commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata] | None = None, timeout_seconds: float | None = None
    ) -> None:
        """Commit these offsets, or all positions, for the next owner of the partitions to begin with.

        Raises ``RebalanceInProgress`` (poll first), ``CommitFailed`` (the partitions have other owners by now),
        ``InstanceFenced``, ``BrokerRefused``, ``OperationTimedOut`` (it may have been done), ``IllegalState`` without a
        group id, ``ValueError`` for offsets that no request can hold.
        """
        self._own_loop.require()
        group = self._require_group()
        self._lifecycle.require_connected()
        offsets = self._subscription.partitions.consumed() if offsets is None else arguments.checked_offsets(offsets)
        async with self._commits.one():
            await group.commit(offsets, self._seconds(timeout_seconds))

    async def committed(
        self, partitions: Collection[TopicPartition], timeout_seconds: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the offsets that the group has committed, without partitions that have none.

        Waits for open transactions that may change them (KIP-447). Raises ``BrokerRefused``, ``OperationTimedOut``.
        """
        group = self._require_group()
        partitions = arguments.checked_topic_partitions(partitions)
        async with self._within(timeout_seconds):
            return await group.committed(partitions)

    def group_metadata(self) -> ConsumerGroupMetadata:
        """Return this member's identity in its group, which a producer needs to commit in a transaction (KIP-447)."""
        return self._require_group().metadata

    async def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int], timeout_seconds: float | None = None
    ) -> dict[TopicPartition, FoundOffset | None]:
        """Return the first record of each partition not older than a time (ms since the epoch); None if there is none.

        Raises ``BrokerRefused``, ``OperationTimedOut``.
        """
        found = await self._list_offsets(timestamps, timeout_seconds)
        return {tp: None if offset.offset is None else offset for tp, offset in found.items()}

    async def beginning_offsets(
        self, partitions: Collection[TopicPartition], timeout_seconds: float | None = None
    ) -> dict[TopicPartition, int]:
        """Return the first offset of each partition. Raises ``BrokerRefused``, ``OperationTimedOut``."""
        found = await self._list_offsets(
            dict.fromkeys(arguments.checked_topic_partitions(partitions), EARLIEST), timeout_seconds
        )
        return {tp: offset.offset or 0 for tp, offset in found.items()}

    async def end_offsets(
        self, partitions: Collection[TopicPartition], timeout_seconds: float | None = None
    ) -> dict[TopicPartition, int]:
        """Return the offset after the last record of each partition; for read_committed, of the first open transaction.

        Raises ``BrokerRefused``, ``OperationTimedOut``.
        """
        found = await self._list_offsets(
            dict.fromkeys(arguments.checked_topic_partitions(partitions), LATEST), timeout_seconds
        )
        return {tp: offset.offset or 0 for tp, offset in found.items()}

    async def _list_offsets(
        self, timestamps: Mapping[TopicPartition, int], timeout_seconds: float | None
    ) -> dict[TopicPartition, FoundOffset]:
        timestamps = arguments.checked_target_times(timestamps)
        async with self._within(timeout_seconds):
            found = await list_offsets(self._runtime.cluster, timestamps, read_committed=self._config.reads_committed)
        return found.require_all()

    # Connections

    def obstacles(self) -> list[Obstacle]:
        """Return what keeps this consumer from going on now, the oldest first."""
        return self._connections.obstacles()

    def is_connected(self, address: Address) -> bool:
        """Return whether a connection to the address is open."""
        return self._connections.is_connected(address)

    def _require_group(self) -> GroupConsumption:
        if self._group is None:
            raise IllegalState("subscriptions, commits and committed offsets need a group: set group_id")
        return self._group

    @asynccontextmanager
    async def _within(self, timeout_seconds: float | None) -> AsyncIterator[None]:
        """Bound a call that needs a connection, by default to ``default_api_timeout_ms``; ``close`` ends it."""
        self._own_loop.require()
        self._lifecycle.require_connected()
        async with self._calls.one(), self._connections.within(self._seconds(timeout_seconds)):
            yield

    def _seconds(self, timeout_seconds: float | None) -> float:
        seconds = self._config.default_api_timeout_ms / 1000 if timeout_seconds is None else timeout_seconds
        return durations.checked_seconds(seconds, "timeout_seconds")
