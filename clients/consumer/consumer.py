"""The consumer: topics shared with a group, or partitions of one's own, as lists of records in the order of offsets.

::

    config = ConsumerConfig(bootstrap="localhost:9092", group_id="billing")
    async with Consumer(config, rng=Random(), wall_clock=now_ms) as consumer:
        consumer.subscribe(["orders"])
        while True:
            for record in await consumer.poll(1.0):
                handle(record)
            await consumer.commit()

All that changes what the application sees happens inside ``poll``: partitions come and go there, positions move past
what it returns, and what ``enable_auto_commit`` commits is what earlier polls returned. Meanwhile tasks of the consumer
fetch ahead, keep the membership alive and look for new leaders.

A record counts as consumed once it has been returned. ``commit`` after handling what a poll returned thus gives at
least once; sending the positions into a producer's transaction, together with what was made of the records, gives
exactly once (``position``, ``group_metadata``, ``Producer.send_offsets_to_transaction``).

One task polls; others may commit, seek and ask in between. A call that is cancelled has lost nothing: records are taken
from the buffer in the same step in which they are returned.

The behaviour is that of Kafka's ``ClassicKafkaConsumer.java``.
"""

import asyncio
import logging
import math
import re
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from random import Random
from typing import Final, Self

from oncelog.clients import arguments, durations
from oncelog.clients.admin.offsets import EARLIEST, LATEST, FoundOffset, list_offsets
from oncelog.clients.background_tasks import BackgroundTasks
from oncelog.clients.connection import Address
from oncelog.clients.consumer.consumer_config import ConsumerConfig
from oncelog.clients.consumer.consumer_errors import ConsumerClosed
from oncelog.clients.consumer.consumer_record import ConsumerRecord
from oncelog.clients.consumer.fetch_buffer import FetchBuffer
from oncelog.clients.consumer.fetcher import Fetcher
from oncelog.clients.consumer.group_consumption import GroupConsumption
from oncelog.clients.consumer.position_lookup import PositionLookup
from oncelog.clients.consumer.rebalance_listener import RebalanceListener
from oncelog.clients.consumer.subscription_state import (
    NO_NODE,
    NO_OFFSET,
    RESET_TO_EARLIEST,
    RESET_TO_LATEST,
    TIMER_SLACK,
    FetchPosition,
    Leader,
    Phase,
    ResetPolicy,
    SubscriptionState,
)
from oncelog.clients.errors import BackgroundTaskFailed, BrokerRefused, IllegalState, OperationTimedOut, Refusal
from oncelog.clients.group_metadata import ConsumerGroupMetadata
from oncelog.clients.metadata_refresh import MetadataRefresh
from oncelog.clients.obstacles import Obstacle, no_answer
from oncelog.clients.offset_and_metadata import OffsetAndMetadata
from oncelog.clients.retry import Backoff
from oncelog.clients.runtime import ClientRuntime, new_cluster
from oncelog.protocol.messages.metadata import MetadataResponse
from oncelog.protocol.topic_partition import TopicPartition

_log = logging.getLogger(__name__)

_CLOSE_SECONDS: Final = 30.0
_GRACE_SECONDS: Final = 1.0
"""For what was written to leave, where the time for closing is up."""
_READ_AHEAD: Final = 100
"""Records of an iteration between two looks at everything else."""


class Consumer:
    """One consumer. Start it, or use it as a context manager; what it needs of a loop it takes from the running one."""

    def __init__(self, config: ConsumerConfig, *, rng: Random, wall_clock: Callable[[], int]) -> None:
        """``rng`` is for pauses and ids, ``wall_clock`` (ms since the epoch) for a reset by duration."""
        self._config = config
        self._cluster = new_cluster(config, rng)
        self._tasks = BackgroundTasks(f"consumer {config.client_id}", self._task_failed)
        runtime = ClientRuntime(
            cluster=self._cluster, tasks=self._tasks, backoff=Backoff(rng=rng), rng=rng, wall_clock=wall_clock
        )
        self._clusters = [self._cluster]
        self._subscription = SubscriptionState(config.reset_policy)
        self._buffer = FetchBuffer(self._subscription)
        self._refresh = MetadataRefresh(
            self._cluster,
            runtime.backoff,
            self._topics_to_ask_for,
            self._metadata_updated,
            max_age_seconds=config.metadata_max_age_ms / 1000,
            creates_topics=config.allow_auto_create_topics,
        )
        self._fetcher = Fetcher(
            config,
            runtime,
            self._subscription,
            self._buffer,
            request_metadata=self._refresh.request,
            leaders_changed=self._leaders_changed,
            wake=self._wake,
        )
        self._group: GroupConsumption | None = None
        if config.group_id is not None:
            self._clusters.append(new_cluster(config, rng))
            self._group = GroupConsumption(
                config, config.group_id, runtime, self._subscription, self._clusters[1], self._refresh, self._wake
            )
        self._lookup = PositionLookup(
            config,
            runtime,
            self._subscription,
            committed=None if self._group is None else self._group.committed,
            leader_of=self._leader_of,
            request_metadata=self._refresh.request,
            found=self._wake,
        )
        self._news = asyncio.Event()
        """Set when poll should look at everything again."""
        self._sleepers: set[asyncio.Future[None]] = set()
        self._task_failure: BaseException | None = None
        """What a background task died of, until a call has raised it."""
        self._is_started = self._is_polling = False
        self._is_closing = self._is_closed = False
        """While it is closing, its listener can still commit; nothing can be polled."""
        self._iterated = 0

    # Beginning and end

    async def start(self) -> None:
        """Connect. Raises ``Unreachable``, ``BadResponse``, ``ConsumerClosed``."""
        self._raise_if_closing()
        if self._is_started:
            return
        await self._cluster.refresh(())
        self._raise_if_closing()
        if self._is_started:  # By another task.
            return
        self._is_started = True
        self._tasks.keep_running(self._refresh.run, "metadata")
        self._wake()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.close()

    async def close(self, timeout_seconds: float = _CLOSE_SECONDS) -> None:
        """Commit what is to be committed automatically, tell the listener, leave the group, and end every connection.

        A static member does not leave. It ends in its time, done or not; what the listener raises comes out at the end.
        """
        deadline = asyncio.get_running_loop().time() + durations.checked_seconds(timeout_seconds, "timeout_seconds")
        if self._is_closing:
            return
        self._is_closing = True
        self._wake()
        try:
            async with asyncio.timeout_at(deadline):
                if self._group is not None and self._is_started:
                    await self._group.commit_finally(timeout_seconds)
                    await self._group.leave("the consumer is being closed")
        except TimeoutError:
            _log.warning("consumer %s was closed without leaving its group in order", self._config.client_id)
        finally:
            await self._disconnect(deadline)

    async def _disconnect(self, deadline: float) -> None:
        """What can be said in good order until then; in any case, everything ends."""
        self._is_closed = True
        self._wake()
        async with AsyncExitStack() as rest:  # All of it is done, also if this call is cancelled on the way.
            rest.push_async_callback(self._close_clusters, deadline)
            rest.push_async_callback(self._fetcher.close, deadline)
            await self._tasks.stop()

    async def _close_clusters(self, deadline: float) -> None:
        for cluster in self._clusters:
            cluster.hang_up()
        grace = asyncio.get_running_loop().time() + _GRACE_SECONDS
        try:
            async with asyncio.timeout_at(max(deadline, grace)):
                await asyncio.gather(*(cluster.close() for cluster in self._clusters))
        except TimeoutError:
            pass

    # What to read

    def subscribe(self, topics: Collection[str] | re.Pattern[str], listener: RebalanceListener | None = None) -> None:
        """Share these topics, or all whose whole names match, with the group. Replaces what was subscribed to before.

        Raises ``IllegalState`` without a group id, or after ``assign``; ``ValueError``; ``ConsumerClosed``.
        """
        self._raise_if_closing()
        if isinstance(topics, str) or not topics:
            raise ValueError("subscribe takes a collection of topics that is not empty, or a compiled pattern")
        group = self._group_or_raise()
        if isinstance(topics, re.Pattern):
            self._subscription.subscribe_pattern(topics)
        else:
            self._subscription.subscribe([arguments.checked_topic(topic) for topic in topics])
        group.listen(listener)
        self._refresh.request()
        self._wake()

    def assign(self, partitions: Collection[TopicPartition]) -> None:
        """Read just these, unshared; none ends it. Raises ``IllegalState`` after ``subscribe``, ``ConsumerClosed``."""
        self._raise_if_closing()
        partitions = arguments.checked_topic_partitions(partitions)
        if self._group is not None:
            self._group.commit_soon()
        self._subscription.assign(partitions)
        if not partitions:
            self._subscription.unsubscribe()
        if self._group is not None and self._is_started:
            self._group.restart_commits()
        self._buffer.drop_unassigned()
        self._refresh.request()
        self._wake()

    async def unsubscribe(self) -> None:
        """Give up everything, and leave the group. Raises ``ConsumerClosed``."""
        self._raise_if_closing()
        if self._group is not None:
            await self._group.leave("the consumer has unsubscribed")
        self._subscription.unsubscribe()
        self._buffer.drop_unassigned()

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        """What is read now."""
        return self._subscription.assignment

    @property
    def subscription(self) -> frozenset[str]:
        """The topics that are shared with the group; with a pattern those that it has matched."""
        return self._subscription.topics

    # Records

    async def poll(self, timeout_seconds: float = 0.0, max_records: int | None = None) -> list[ConsumerRecord]:
        """The next records, at most ``max_records`` (``max_poll_records``); none if none come in time.

        Those of a partition come in the order of their offsets. Raises what a ``ConsumerError`` says of positions,
        records and the group; ``BrokerRefused`` for topics that may not be read; and what the listener raises. Records
        are never lost with an exception: it comes alone, and the next poll goes on.
        """
        deadline = asyncio.get_running_loop().time() + durations.checked_seconds(timeout_seconds, "timeout_seconds")
        return await self._poll(deadline, self._config.max_poll_records if max_records is None else max_records)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ConsumerRecord:
        """The next record. Only records that came out count as consumed, so ``commit`` may be called in between."""
        self._iterated = (self._iterated + 1) % _READ_AHEAD
        is_quiet = not self._is_closing and not self._news.is_set() and (self._group is None or not self._group.is_due)
        if self._iterated and is_quiet and (records := self._buffer.take(1)):
            if self._group is not None:
                self._group.leave_poll(asyncio.get_running_loop().time())
            return records[0]
        try:
            return (await self._poll(math.inf, 1))[0]
        except ConsumerClosed:
            raise StopAsyncIteration from None

    async def _poll(self, deadline: float, limit: int) -> list[ConsumerRecord]:
        if self._is_polling:
            raise IllegalState("another task is polling this consumer")
        if self._subscription.is_empty:
            raise IllegalState("there is nothing to poll: subscribe to topics or assign partitions")
        self._is_polling = True
        loop = asyncio.get_running_loop()
        if self._group is not None:
            self._group.enter_poll()
        try:
            await asyncio.sleep(0)  # Let in what has come, also where every poll finds something.
            return await self._poll_until(deadline, limit)
        finally:
            self._is_polling = False
            if self._group is not None:
                self._group.leave_poll(loop.time())

    async def _poll_until(self, deadline: float, limit: int) -> list[ConsumerRecord]:
        loop = asyncio.get_running_loop()
        while True:
            self._raise_unless_open()
            self._raise_if_closing()
            if self._group is not None:
                if self._group.is_due:
                    await self._rebalance(self._group)
                self._group.commit_if_due(loop.time())
            if self._news.is_set():
                self._raise_failures()
                self._news.clear()
                self._look_around()
            records = self._buffer.take(limit)
            self._fetcher.go_on()
            if records or loop.time() >= deadline - TIMER_SLACK:
                return records
            await self._sleep_until(deadline)

    async def _rebalance(self, group: GroupConsumption) -> None:
        before = self._subscription.assignment
        try:
            await group.rebalance()
        finally:
            if self._subscription.assignment != before:
                self._buffer.drop_unassigned()
                self._wake()

    def _raise_failures(self) -> None:
        """Raise, once, what background tasks found that the application must hear of."""
        failure, self._task_failure = self._task_failure, None
        if failure is not None:
            raise BackgroundTaskFailed(f"a background task of the consumer failed: {failure!r}") from failure
        errors, self._refresh.errors = self._refresh.errors, {}
        for topic, error in errors.items():
            raise BrokerRefused(f"topic {topic}", Refusal(error=error))
        self._lookup.raise_failure()

    def _task_failed(self, failure: BaseException) -> None:
        self._task_failure = failure
        self._wake()

    def _look_around(self) -> None:
        """Begin the position lookups and fetches that can be begun now."""
        if not self._subscription.has_all_positions:
            self._lookup.look_up()
        self._fetcher.find_sources()

    async def _sleep_until(self, deadline: float) -> None:
        """Until there is news, or until something is to be done by time alone."""
        commit_at = math.inf if self._group is None else self._group.next_commit_at
        until = min(deadline, commit_at, self._subscription.next_retry_at)
        try:
            async with asyncio.timeout_at(_finite(until)):
                await self._news.wait()
        except TimeoutError:
            if until < deadline:
                self._news.set()

    def _wake(self) -> None:
        self._news.set()
        for sleeper in self._sleepers:
            if not sleeper.done():
                sleeper.set_result(None)

    # Positions

    def seek(self, topic_partition: TopicPartition, to: int | OffsetAndMetadata) -> None:
        """Go on at this offset. One with a leader epoch is checked against the leader's log first (KIP-320).

        Raises ``IllegalState`` for a partition that is not assigned, ``ValueError`` for no possible offset.
        """
        place = arguments.checked_offset(to if isinstance(to, OffsetAndMetadata) else OffsetAndMetadata(to))
        position = FetchPosition(place.offset, place.leader_epoch, self._leader_of(topic_partition))
        self._subscription[topic_partition].seek(position)
        self._position_changed([topic_partition])

    def seek_to_beginning(self, partitions: Collection[TopicPartition] = ()) -> None:
        """Go on at the first record that there is, in these or in all partitions."""
        self._reset(partitions, RESET_TO_EARLIEST)

    def seek_to_end(self, partitions: Collection[TopicPartition] = ()) -> None:
        """Go on with what comes from now on; for read_committed, at the first open transaction."""
        self._reset(partitions, RESET_TO_LATEST)

    def _reset(self, partitions: Collection[TopicPartition], policy: ResetPolicy) -> None:
        chosen = [(tp, self._subscription[tp]) for tp in partitions or self._subscription]
        for _, partition in chosen:
            partition.reset(policy)
        self._position_changed([topic_partition for topic_partition, _ in chosen])

    def _position_changed(self, partitions: Collection[TopicPartition]) -> None:
        self._buffer.drop(partitions)
        self._wake()

    async def position(self, topic_partition: TopicPartition, timeout_seconds: float | None = None) -> int:
        """The offset of the next record to return; waits until it is known.

        Raises ``IllegalState`` for a partition that is not assigned, ``OperationTimedOut``, and what ``poll`` says of
        positions.
        """
        async with self._within(timeout_seconds):
            while (partition := self._subscription[topic_partition]).phase is not Phase.FETCHING:
                self._raise_unless_open()
                self._raise_failures()
                self._look_around()
                await self._sleep_once()
        return partition.position.offset

    async def _sleep_once(self) -> None:
        """Until there is news, or something about positions may be asked again. Beside a poll that does the same."""
        sleeper: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._sleepers.add(sleeper)
        try:
            async with asyncio.timeout_at(_finite(self._subscription.next_retry_at)):
                await sleeper
        except TimeoutError:
            pass
        finally:
            self._sleepers.discard(sleeper)

    def pause(self, partitions: Collection[TopicPartition]) -> None:
        """Return nothing more of these until they are resumed. What has come of them is kept."""
        self._set_paused(partitions, True)

    def resume(self, partitions: Collection[TopicPartition]) -> None:
        self._set_paused(partitions, False)

    def _set_paused(self, partitions: Collection[TopicPartition], paused: bool) -> None:
        for partition in [self._subscription[topic_partition] for topic_partition in partitions]:
            partition.paused = paused
        self._buffer.recount()
        self._wake()

    @property
    def paused(self) -> frozenset[TopicPartition]:
        return frozenset(tp for tp, partition in self._subscription.items() if partition.paused)

    def lag(self, topic_partition: TopicPartition) -> int | None:
        """How many offsets there are from the position to the end, as of the last fetch; None before the first.

        For read_committed the end is that of the last transaction that is over.
        """
        partition = self._subscription[topic_partition]
        end = partition.last_stable_offset if self._config.reads_committed else partition.high_watermark
        return None if NO_OFFSET in (end, partition.position.offset) else max(0, end - partition.position.offset)

    # Offsets

    async def commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata] | None = None, timeout_seconds: float | None = None
    ) -> None:
        """Commit these offsets, or all positions: what a successor begins with. Returns when it is done.

        Raises ``RebalanceInProgress`` (poll first), ``CommitFailed`` (the partitions are others' by now),
        ``InstanceFenced``, ``BrokerRefused``, ``OperationTimedOut`` (it may have been done), ``IllegalState`` without a
        group id, ``ValueError`` for offsets that no request can hold.
        """
        group = self._group_or_raise()
        self._raise_unless_open()
        offsets = self._subscription.consumed() if offsets is None else arguments.checked_offsets(offsets)
        await group.commit(offsets, self._seconds(timeout_seconds))

    async def committed(
        self, partitions: Collection[TopicPartition], timeout_seconds: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """What the group has committed; partitions without are left out.

        Waits for open transactions that may change it (KIP-447). Raises ``BrokerRefused``, ``OperationTimedOut``.
        """
        group = self._group_or_raise()
        asked = arguments.checked_topic_partitions(partitions)
        async with self._within(timeout_seconds):
            return await group.committed(asked)

    def group_metadata(self) -> ConsumerGroupMetadata:
        """Who this is in its group: what a producer needs to commit in a transaction (KIP-447)."""
        return self._group_or_raise().metadata

    async def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int], timeout_seconds: float | None = None
    ) -> dict[TopicPartition, FoundOffset | None]:
        """The first record of each partition that is not older than a time (ms since the epoch); None if there is none.

        Raises ``BrokerRefused``, ``OperationTimedOut``.
        """
        found = await self._list_offsets(timestamps, timeout_seconds)
        return {tp: None if offset.offset is None else offset for tp, offset in found.items()}

    async def beginning_offsets(
        self, partitions: Collection[TopicPartition], timeout_seconds: float | None = None
    ) -> dict[TopicPartition, int]:
        """Where partitions begin. Raises ``BrokerRefused``, ``OperationTimedOut``."""
        found = await self._list_offsets(dict.fromkeys(partitions, EARLIEST), timeout_seconds)
        return {tp: offset.offset or 0 for tp, offset in found.items()}

    async def end_offsets(
        self, partitions: Collection[TopicPartition], timeout_seconds: float | None = None
    ) -> dict[TopicPartition, int]:
        """Where partitions end; for read_committed, where the first open transaction begins.

        Raises ``BrokerRefused``, ``OperationTimedOut``.
        """
        found = await self._list_offsets(dict.fromkeys(partitions, LATEST), timeout_seconds)
        return {tp: offset.offset or 0 for tp, offset in found.items()}

    async def _list_offsets(
        self, timestamps: Mapping[TopicPartition, int], timeout_seconds: float | None
    ) -> dict[TopicPartition, FoundOffset]:
        asked = arguments.checked_target_times(timestamps)
        async with self._within(timeout_seconds):
            answers = await list_offsets(self._cluster, asked, read_committed=self._config.reads_committed)
        return answers.require_all()

    # What it waits for

    def obstacles(self) -> list[Obstacle]:
        """Return what keeps this consumer from going on now, the oldest first."""
        of_group = [] if self._group is None else self._group.obstacles()
        found = [*self._cluster.obstacles(), *self._fetcher.silences(), *of_group]
        return sorted(found, key=lambda each: -each.seconds)

    def is_connected(self, address: Address) -> bool:
        """Whether a connection to the address is open."""
        return self._cluster.is_connected(address) or self._fetcher.is_connected(address)

    # What the parts ask of each other

    def _topics_to_ask_for(self) -> Collection[str] | None:
        return None if self._subscription.pattern is not None else self._subscription.metadata_topics

    def _metadata_updated(self, response: MetadataResponse) -> None:
        if self._subscription.pattern is not None:
            found = (topic for topic in response.topics if not topic.error_code and not topic.is_internal)
            self._subscription.match([topic.name for topic in found if topic.name is not None])
        self._leaders_changed()
        if self._group is not None:
            self._group.topics_changed()

    def _leaders_changed(self) -> None:
        self._subscription.follow_leaders(self._leader_of)
        self._lookup.leaders_changed()
        self._wake()

    def _leader_of(self, topic_partition: TopicPartition) -> Leader:
        node_id = self._cluster.metadata.leader(topic_partition)
        epoch = self._cluster.metadata.leader_epoch(topic_partition)
        return Leader(NO_NODE if node_id is None else node_id, epoch)

    def _group_or_raise(self) -> GroupConsumption:
        if self._group is None:
            raise IllegalState("this needs a group_id")
        return self._group

    def _raise_if_closing(self) -> None:
        if self._is_closing:
            raise ConsumerClosed("the consumer is being closed, or has been")

    def _raise_unless_open(self) -> None:
        if self._is_closed:
            raise ConsumerClosed("the consumer has been closed")
        if not self._is_started:
            raise IllegalState("the consumer is not started: use `async with Consumer(...)`, or await start() first")

    def _seconds(self, timeout_seconds: float | None) -> float:
        seconds = self._config.default_api_timeout_ms / 1000 if timeout_seconds is None else timeout_seconds
        return durations.checked_seconds(seconds, "timeout_seconds")

    @asynccontextmanager
    async def _within(self, timeout_seconds: float | None) -> AsyncIterator[None]:
        """Bound a call. Raises ``OperationTimedOut``."""
        self._raise_unless_open()
        seconds = self._seconds(timeout_seconds)
        try:
            async with asyncio.timeout(seconds):
                yield
        except TimeoutError:
            time_outs = [each for cluster in self._clusters for each in cluster.time_outs()]
            raise OperationTimedOut(no_answer(seconds, self.obstacles(), time_outs)) from None


def _finite(when: float) -> float | None:
    """For a loop's timer, which knows no infinity."""
    return None if when == math.inf else when
