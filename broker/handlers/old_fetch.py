"""Fetch before version 4: batches are read as for other consumers, and sent as old messages.

Such a consumer cannot tell the records of a transaction that was aborted, or is still open, from others: it knows no
markers and gets no list of aborted transactions. So the broker reads for it with the isolation level of
``oncelog.downconversion.isolation.level``, and leaves out what it must not see
(``oncelog.protocol.records.down_conversion``). With read_committed the last stable offset is its high watermark.

Where the range that was read has nothing for the consumer, the broker reads on, until there is something or the fetch
has waited for as long as it wants (``oncelog.broker.dispatch.old_consumer``).

Conversion is sliced work. What a fetch has read and converted counts as ``ResponseMemory`` until it is handed over, and
a response has about ``_MOST_BYTES`` at most, whatever the client allows. A topic with
``message.downconversion.enable=false`` gets UNSUPPORTED_VERSION.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Final, TypeAlias

from oncelog.broker.dispatch.old_consumer import OldConsumer, SkippedRange
from oncelog.broker.dispatch.request import RequestContext
from oncelog.broker.dispatch.sliced_work import Steps, new_budget
from oncelog.broker.parts import Broker
from oncelog.broker.replication.partition import Partition
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from oncelog.protocol.records.down_conversion import OldFetch, OldMessages, convert_batches
from oncelog.protocol.records.old_messages import LARGEST_MESSAGE_SIZE, MAGIC_0, MAGIC_1
from oncelog.protocol.records.record_walk import WorkBudget

_log = logging.getLogger(__name__)

_FIRST_VERSION_WITH_MAGIC_1: Final = 2
_FIRST_VERSION_WITH_MAX_BYTES: Final = 3
_MOST_BYTES: Final = 1 << 20
"""Of the batches that are read for one response, and then of the messages, beyond the first batch."""

Read: TypeAlias = Callable[[FetchRequest], FetchResponse | asyncio.Future[FetchResponse]]
"""Reads batches for a request, as for a consumer of version 4."""


async def fetch_for_old_consumer(
    broker: Broker, context: RequestContext, request: FetchRequest, read: Read
) -> FetchResponse:
    """Return the response to a fetch below version 4. Takes ``request`` over."""
    return await _FetchForOldConsumer(broker, context, request, read).run()


class _FetchForOldConsumer:
    """One fetch, which may read several times."""

    __slots__ = ("_broker", "_consumer", "_context", "_held", "_loop", "_original_offsets", "_read", "_request")

    def __init__(self, broker: Broker, context: RequestContext, request: FetchRequest, read: Read) -> None:
        self._broker = broker
        self._context = context
        self._request = request
        self._read = read
        self._loop = asyncio.get_running_loop()
        self._held = 0
        """Bytes that are read and converted, as ``ResponseMemory`` counts them."""
        if context.connection.old_consumer is None:
            context.connection.old_consumer = OldConsumer()
        self._consumer = context.connection.old_consumer
        self._original_offsets: dict[tuple[str, int], int] = {}
        """What the consumer itself fetches from."""

    async def run(self) -> FetchResponse:
        request, loop, memory = self._request, self._loop, self._broker.response_memory
        deadline = loop.time() + max(request.max_wait_ms, 0) / 1000
        request.max_bytes = min(request.max_bytes, _MOST_BYTES)
        self._arrange()
        try:
            while True:
                outcome = self._read(request)
                response = await outcome if isinstance(outcome, asyncio.Future) else outcome
                self._held = memory.exchange(self._held, 2 * _size(response))
                budget = new_budget()
                steps = self._convert(response, budget)
                converting = self._broker.sliced_work.start(steps, budget, self._context.connection)
                is_complete = await converting if asyncio.iscoroutine(converting) else converting
                self._held = memory.exchange(self._held, _size(response))
                now = loop.time()
                if is_complete or now >= deadline:
                    return response
                request.max_wait_ms = int((deadline - now) * 1000)
        finally:
            if self._held:
                loop.call_soon(memory.release, self._held)

    def _arrange(self) -> None:
        """Begin behind what has nothing for this consumer, and with the partition whose turn it is."""
        named = {
            (topic.topic, requested.partition): requested
            for topic in self._request.topics
            for requested in topic.partitions
        }
        for key, requested in named.items():
            self._original_offsets[key] = requested.fetch_offset
            partition = self._broker.replica_manager.partition(key)
            if partition is not None:
                requested.fetch_offset = self._consumer.resumed_at(key, partition.leader_epoch, requested.fetch_offset)
        order = list(named)
        if self._context.api_version < _FIRST_VERSION_WITH_MAX_BYTES:
            order = self._consumer.in_turn(order)
        self._request.topics = [FetchTopic(topic=key[0], partitions=[named[key]]) for key in order]

    def _convert(self, response: FetchResponse, budget: WorkBudget) -> Steps[bool]:
        """Convert the replies, in steps. Returns whether there is something to send, or nothing more to read."""
        requested = {(topic.topic, each.partition): each for topic in self._request.topics for each in topic.partitions}
        has_news, has_advanced, left = False, False, self._request.max_bytes
        for topic in response.responses:
            for reply in topic.partitions:
                key = topic.topic, reply.partition_index
                partition = self._broker.replica_manager.partition(key)
                self._hide_unstable_end(reply)
                if not reply.error_code and _refuses_conversion(partition):
                    _refuse(reply, ErrorCode.UNSUPPORTED_VERSION)
                if reply.error_code:
                    has_news = True
                    continue
                if left <= 0:
                    reply.records = b""
                if not reply.records:
                    continue
                converted = yield from self._convert_one(reply, requested[key], partition, left, budget)
                has_advanced |= converted.next_offset > requested[key].fetch_offset
                left -= len(converted.entries)
                has_news |= bool(converted.entries or reply.error_code)
                self._note(key, partition, requested[key], converted)
        return has_news or not has_advanced

    def _convert_one(
        self,
        reply: PartitionData,
        requested: FetchPartition,
        partition: Partition | None,
        left: int,
        budget: WorkBudget,
    ) -> Steps[OldMessages]:
        """Replace the batches of a reply by messages."""
        config, batches, log = self._broker.config, reply.records, None if partition is None else partition.log
        assert not isinstance(batches, list | None), "a reply has bytes"
        wanted = OldFetch(
            magic=MAGIC_1 if self._context.api_version >= _FIRST_VERSION_WITH_MAGIC_1 else MAGIC_0,
            fetch_offset=requested.fetch_offset,
            max_bytes=min(max(requested.partition_max_bytes, 1), left),
            max_decompressed_bytes=config.oncelog_max_decompressed_bytes,
            max_record_bytes=max(LARGEST_MESSAGE_SIZE, 0 if log is None else log.config.max_message_bytes),
            aborted_transactions=reply.aborted_transactions or (),
        )
        converted = yield from convert_batches(batches, wanted, budget)
        reply.records = converted.entries
        if converted.error:
            _refuse(reply, converted.error)
        return converted

    def _hide_unstable_end(self, reply: PartitionData) -> None:
        """Let a consumer that may read up to the last stable offset take that for the end of the log."""
        if reply.aborted_transactions is not None and not reply.error_code:
            reply.high_watermark = min(reply.high_watermark, reply.last_stable_offset)

    def _note(
        self, key: tuple[str, int], partition: Partition | None, requested: FetchPartition, converted: OldMessages
    ) -> None:
        """Count what was converted; of what has nothing for the consumer note that, for this fetch and the next."""
        if partition is None:
            return
        partition.traffic.fetch_conversions += converted.message_count
        if converted.error:
            _log.warning(
                "%s-%d cannot be converted from offset %d on for the old consumer %s: %s "
                "(oncelog.max.decompressed.bytes is %d)",
                *key,
                converted.next_offset,
                self._context.connection,
                converted.error.name,
                self._broker.config.oncelog_max_decompressed_bytes,
            )
        elif not converted.entries:
            requested.fetch_offset = converted.next_offset
            skipped = SkippedRange(partition.leader_epoch, self._original_offsets[key], converted.next_offset)
            self._consumer.skip(key, skipped)


def _size(response: FetchResponse) -> int:
    return sum(len(reply.records or b"") for topic in response.responses for reply in topic.partitions)


def _refuses_conversion(partition: Partition | None) -> bool:
    leading = None if partition is None else partition.leading
    return leading is not None and not leading.log.config.message_downconversion_enable


def _refuse(reply: PartitionData, error: ErrorCode) -> None:
    reply.error_code = error
    reply.records = b""
    reply.high_watermark = -1
