"""Where the next micro-batch ends: the driver's view of the logs, and the decision.

Spark polls every 11 ms or so while nothing happens, so offsets are cached for a moment (``_FRESH_SECONDS``), and the
partitions for ``kafka.metadata.max.age.ms``. While no broker responds the stream has no new batches; it fails when that
lasts for ``kafkaConsumer.pollTimeoutMs``.

An end is never before an earlier one, unless the log was truncated and ``failOnDataLoss`` is off. An apparent loss is
checked again for some seconds: a broker that has just started may have old metadata.
"""

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from oncelog.clients.cluster import Cluster
from oncelog.clients.errors import ClientError
from oncelog.protocol.topic_partition import TopicPartition
from oncelog.spark_connector.reading.admission import TriggerDelay, limited_end, new_offsets
from oncelog.spark_connector.reading.data_loss import Losses, data_loss, find_losses
from oncelog.spark_connector.reading.offset_lookup import (
    DOUBT_SECONDS,
    earliest_offsets,
    find_partitions,
    latest_offsets,
    require_partitions,
    resolve_bound,
)
from oncelog.spark_connector.reading.read_options import ReadOptions
from oncelog.spark_connector.reading.topic_selection import leaves_out
from oncelog.spark_connector.retry import retry_operation
from oncelog.spark_connector.stream_offset import StreamOffset

_log = logging.getLogger(__name__)

_FRESH_SECONDS: Final = 0.05
_DOUBT_PAUSE_SECONDS: Final = 0.25
_RETRY_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True)
class View:
    """The selected partitions, with their topics' ids and their ends, by the brokers' last responses."""

    topic_ids: Mapping[TopicPartition, bytes]
    latest: Mapping[TopicPartition, int]


class StreamPlanner:
    """The driver's side of one run of a streaming query."""

    def __init__(self, cluster: Cluster, options: ReadOptions) -> None:
        self._cluster = cluster
        self._options = options
        self._delay = TriggerDelay(options.min_offsets_per_trigger or 0, options.max_trigger_delay_seconds)
        self._view: View | None = None
        self._viewed_at = 0.0
        self._partitions_found_at = 0.0
        self._failing_since: float | None = None
        self._target: View | None = None
        """With Trigger.AvailableNow: the ends of this run."""

    @property
    def latest(self) -> Mapping[TopicPartition, int]:
        """The ends of the logs, as last looked up."""
        return {} if self._view is None else self._view.latest

    async def fix_target(self) -> None:
        """Read up to the current ends of the logs, and no further (Trigger.AvailableNow)."""
        self._target = await self._look_up_with_retries()

    async def begin(self, *, max_offsets: int | None) -> StreamOffset:
        """Return the offset of the first batch of a query, which also settles where it starts."""

        async def resolve() -> tuple[dict[TopicPartition, int], View]:
            found = await require_partitions(self._cluster, self._options.selection)
            start = await resolve_bound(self._cluster, self._options.start, found, read_committed=self._committed)
            return start, self._target or await self._look_up(found)

        start, view = await retry_operation(self._cluster, self._options.fetch.patience_seconds, resolve)
        known = {tp: offset for tp, offset in start.items() if tp in view.latest}
        return self._offset(known, view, max_offsets)

    async def advance(self, previous: StreamOffset, *, max_offsets: int | None, may_wait: bool) -> StreamOffset:
        """Return the offset of the next batch; ``previous`` itself if there are no or too few new offsets."""
        view = self._target or await self._fresh_view()
        if view is None:
            return previous
        # A former release read state topics, too, whose partitions are not selected any more.
        known = previous.without({tp.topic for tp in previous.end if leaves_out(self._options.selection, tp.topic)})
        view, losses = await self._confirm(known, view)
        start = await self._start(known, view, losses)
        if may_wait and self._target is None:
            if self._delay.holds_back(new_offsets(start, view.latest), asyncio.get_running_loop().time()):
                return previous
        offset = self._offset(start, view, max_offsets)
        is_news = offset.end != previous.end or offset.topic_ids != previous.topic_ids
        return offset if is_news else previous

    def _offset(self, start: Mapping[TopicPartition, int], view: View, max_offsets: int | None) -> StreamOffset:
        if max_offsets is None:
            end = {tp: max(offset, view.latest[tp]) for tp, offset in start.items()}
        else:
            end = limited_end(start, view.latest, max_offsets)
        return StreamOffset(start, end, {tp.topic: view.topic_ids[tp] for tp in start})

    # Where the next batch starts

    async def _confirm(self, previous: StreamOffset, view: View) -> tuple[View, Losses]:
        """Return a view and its confirmed losses: a view with losses is looked up again for ``DOUBT_SECONDS``."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + DOUBT_SECONDS
        losses = await self._losses(previous, view)
        while losses and loop.time() < deadline:
            await asyncio.sleep(_DOUBT_PAUSE_SECONDS)
            view = await self._look_up_with_retries()
            losses = await self._losses(previous, view)
            if self._target is not None:  # The broker that it came from had old metadata.
                self._target = view
        if losses and self._options.fail_on_data_loss:
            raise data_loss(losses)
        if losses:
            _log.warning("data loss, skipped because failOnDataLoss is false: %s", losses)
        return view, losses

    async def _start(self, previous: StreamOffset, view: View, losses: Losses) -> dict[TopicPartition, int]:
        """Return where the previous batch ended, and the log starts of new partitions."""
        start = {
            tp: min(offset, view.latest[tp]) if tp in losses.cut_back else offset
            for tp, offset in previous.end.items()
            if tp not in losses.deleted and tp.topic not in losses.recreated
        }
        new = view.latest.keys() - start.keys()
        if new:
            start |= await self._beginnings(new - previous.end.keys(), new)
        return start

    async def _beginnings(self, added: set[TopicPartition], new: set[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the log starts of ``new`` partitions. A start above 0 of an ``added`` one is a loss of records."""
        earliest = await earliest_offsets(self._cluster, new)
        late = {tp: offset for tp, offset in earliest.items() if offset > 0 and tp in added}
        if late:
            lost = "; ".join(f"{tp.topic}-{tp.partition} is new and begins at {o}" for tp, o in sorted(late.items()))
            if self._options.fail_on_data_loss:
                raise data_loss(lost)
            _log.warning("data loss, skipped because failOnDataLoss is false: %s", lost)
        return earliest

    async def _losses(self, previous: StreamOffset, view: View) -> Losses:
        behind = [tp for tp, offset in previous.end.items() if view.latest.get(tp, offset) < offset]
        # A last stable offset may be before an offset that was read; the high watermark may not.
        written = await latest_offsets(self._cluster, behind, read_committed=False) if behind else {}
        return find_losses(previous.end, previous.topic_ids, view.topic_ids, written)

    # What the brokers report

    async def _fresh_view(self) -> View | None:
        """Return a view that is fresh enough; None while no broker responds."""
        now = asyncio.get_running_loop().time()
        age_limit = _FRESH_SECONDS if self._failing_since is None else _RETRY_SECONDS
        if self._view is not None and now - self._viewed_at < age_limit:
            return self._view if self._failing_since is None else None
        try:
            view = await self._look_up(None if self._is_old(now) else self._known_partitions())
        except ClientError as error:
            self._note_failure(error, now)
            return None
        self._failing_since = None
        return view

    def _is_old(self, now: float) -> bool:
        return self._view is None or now - self._partitions_found_at >= self._options.metadata_max_age_seconds

    def _known_partitions(self) -> Mapping[TopicPartition, bytes] | None:
        return None if self._view is None else self._view.topic_ids

    def _note_failure(self, error: ClientError, now: float) -> None:
        """Log the first of some failures to look up; raise an error that is not retriable, or lasts too long."""
        if self._failing_since is None:
            self._failing_since = now
            _log.warning("no new offsets for now: %s", error)
        self._viewed_at = now
        if not error.is_retriable or now - self._failing_since > self._options.fetch.patience_seconds:
            raise error

    async def _look_up_with_retries(self) -> View:
        return await retry_operation(self._cluster, self._options.fetch.patience_seconds, self._look_up)

    async def _look_up(self, partitions: Mapping[TopicPartition, bytes] | None = None) -> View:
        """Look up the ends of the logs, and first the partitions if they are not given."""
        now = asyncio.get_running_loop().time()
        if partitions is None:
            partitions = await find_partitions(self._cluster, self._options.selection)
            self._partitions_found_at = now
        latest = await latest_offsets(self._cluster, partitions, read_committed=self._committed)
        self._view, self._viewed_at = View(partitions, latest), now
        return self._view

    @property
    def _committed(self) -> bool:
        return self._options.fetch.read_committed
