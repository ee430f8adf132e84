"""The metadata of the topics that a producer sends to: looked up when a topic is new, and refreshed from then on.

A lookup of a new topic is one task for all calls that wait for it. It sends Metadata requests until the topic is known,
or refused for a reason that a retry does not mend, or until no call waits any more. How long a call waits is decided by
the call.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from oncelog.clients.errors import (
    BrokerRefused,
    ClientError,
    OperationTimedOut,
    ProducerClosed,
    Refusal,
    error_code,
)
from oncelog.clients.metadata_refresh import MetadataRefresh
from oncelog.clients.producer.record_accumulator import RecordAccumulator
from oncelog.clients.runtime import ClientRuntime
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.metadata import MetadataResponse
from oncelog.protocol.topic_partition import TopicPartition

_log = logging.getLogger(__name__)

_MISSING_TOPIC: Final = "create it, or set auto.create.topics.enable=true on the brokers"
_WARNING_ATTEMPT: Final = 3
"""The attempt after which a warning says what the producer waits for: a new topic is mostly known before."""


class _Lookup:
    """The lookup of one topic, and how many calls wait for it."""

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.waiting = 0
        self.error: ClientError | None = None
        """Why the topic was not known after the latest attempt."""
        self.task: asyncio.Task[ClientError | None]


class ProducerMetadata:
    """Hands the partitions of topics to the accumulator. Brokers may create a topic that is looked up."""

    def __init__(
        self,
        runtime: ClientRuntime,
        accumulator: RecordAccumulator,
        on_update: Callable[[], None],
        *,
        max_age_seconds: float,
    ) -> None:
        self._runtime = runtime
        self._cluster = runtime.cluster
        self._accumulator = accumulator
        self._on_update = on_update
        self._lookups: dict[str, _Lookup] = {}
        self._is_closed = False
        self.refresh = MetadataRefresh(
            runtime.cluster,
            runtime.backoff,
            accumulator.topic_names,
            self._take_metadata,
            max_age_seconds=max_age_seconds,
            creates_topics=False,
        )

    async def learn(self, topic: str) -> None:
        """Return when a topic is known. Raises ``BrokerRefused``, ``ProducerClosed`` and other errors that last."""
        while topic not in self._accumulator.topics:
            await self._look_up(topic)

    async def learn_partition(self, topic: str, partition: int) -> None:
        """Return when a topic is known to have a partition. Raises as ``learn``."""
        attempt = 0
        while True:
            await self.learn(topic)
            if partition < len(self._accumulator.topics[topic].queues):
                return
            await self.refresh.fresh()
            if partition >= self._cluster.metadata.partition_count(topic):
                await asyncio.sleep(self._runtime.backoff.pause_seconds(attempt))
                attempt += 1

    def timeout_error(self, topic: str, partition: int | None) -> ClientError:
        """Return the error for a call about a topic, and maybe about a partition of it, whose time is up now."""
        queues = self._accumulator.topics.get(topic)
        lookup = self._lookups.get(topic)
        if queues is None and lookup is not None and lookup.error is not None:
            if isinstance(lookup.error, BrokerRefused):
                return lookup.error
            return OperationTimedOut(f"no metadata of {topic} in time: {lookup.error}")
        if queues is not None and partition is not None and partition >= len(queues.queues):
            has = f"{topic} has partitions 0 to {len(queues.queues) - 1}; add some, or send to one of these"
            missing = Refusal(error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, message=has)
            return BrokerRefused(str(TopicPartition(topic, partition)), missing)
        return OperationTimedOut(f"no space or no metadata for a record of {topic} in time")

    def close(self) -> None:
        """Refuse new lookups. Those that run end with the tasks of the client."""
        self._is_closed = True

    # Lookups of new topics

    async def _look_up(self, topic: str) -> None:
        if self._cluster.metadata.partition_count(topic):
            self._take_topic(topic)
            return
        if self._is_closed:
            raise ProducerClosed("the producer is closed")
        lookup = self._lookups.get(topic) or self._begin(topic)
        lookup.waiting += 1
        try:
            await asyncio.wait([lookup.task])
        finally:
            lookup.waiting -= 1
        if lookup.task.cancelled():
            raise ProducerClosed("the producer is closed")
        error = lookup.task.result()
        if error is not None:
            raise error.with_traceback(None)

    def _begin(self, topic: str) -> _Lookup:
        lookup = self._lookups[topic] = _Lookup(topic)
        lookup.task = self._runtime.tasks.spawn(self._run(lookup), f"lookup of {topic}", log_failure=False)
        return lookup

    async def _run(self, lookup: _Lookup) -> ClientError | None:
        """Send requests until the topic is known or no call waits; return an error that lasts."""
        topic, attempt = lookup.topic, 0
        try:
            while lookup.waiting:
                error = await self._request(topic)
                if error is None:
                    self._take_topic(topic)
                    return None
                if not error.is_retriable:
                    return error
                lookup.error = error
                if attempt == _WARNING_ATTEMPT:
                    _log.warning("%s; the producer waits for it, at most max_block_ms", error)
                await asyncio.sleep(self._runtime.backoff.pause_seconds(attempt))
                attempt += 1
            return None
        finally:
            del self._lookups[topic]

    async def _request(self, topic: str) -> ClientError | None:
        try:
            response = await self._cluster.refresh([topic], create=True)
        except ClientError as error:
            _log.info("no metadata of %s: %s", topic, error)
            return error
        if self._cluster.metadata.partition_count(topic):
            return None
        codes = [error_code(each.error_code) for each in response.topics if each.name == topic and each.error_code]
        code = codes[0] if codes else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        message = _MISSING_TOPIC if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION else None
        return BrokerRefused(f"topic {topic}", Refusal(error=code, message=message))

    # Updates

    def _take_metadata(self, response: MetadataResponse) -> None:
        for name in self._accumulator.topic_names():
            if self._cluster.metadata.partition_count(name):
                self._take_topic(name)
            else:
                self._accumulator.forget_topic(name)
        self._on_update()

    def _take_topic(self, name: str) -> None:
        metadata = self._cluster.metadata
        count = metadata.partition_count(name)
        available = [index for index in range(count) if metadata.leader(TopicPartition(name, index)) is not None]
        self._accumulator.update_topic(name, count, available)
