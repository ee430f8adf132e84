"""Which segments of a log can be cleaned, and whether that is worth a pass: pure decisions, as Kafka makes them.

The closed segments below ``PartitionLog.cleaned_offset`` have been cleaned, the others are *dirty*. Only what is
decided and durable is cleaned: below the high watermark, the last stable offset and the recovery point, and never the
active segment. ``min.compaction.lag.ms`` keeps young dirty segments whole; ``max.compaction.lag.ms`` has a log cleaned
however little of it is dirty, once the first batch of a dirty segment is older.
"""

from dataclasses import dataclass

from oncelog.broker.storage.log_config import NO_LIMIT
from oncelog.broker.storage.log_segment import LogSegment
from oncelog.broker.storage.partition_log import PartitionLog


@dataclass(frozen=True, slots=True, kw_only=True)
class Cleanable:
    """The segments of a pass, and how dirty they are."""

    segments: list[LogSegment]
    end_offset: int
    """Where the last of them ends."""
    dirty_bytes: int
    clean_bytes: int
    is_overdue: bool
    """Whether ``max.compaction.lag.ms`` has passed for something dirty."""

    @property
    def dirty_ratio(self) -> float:
        total = self.dirty_bytes + self.clean_bytes
        return self.dirty_bytes / total if total else 0.0

    def is_worth_it(self, min_cleanable_ratio: float) -> bool:
        return self.dirty_bytes > 0 and (self.is_overdue or self.dirty_ratio > min_cleanable_ratio)


def find_cleanable(log: PartitionLog, now_ms: int) -> Cleanable:
    """Return what may be cleaned at this time. Raise ``OSError`` or ``CorruptRecord``."""
    config, cleaned_offset = log.config, log.cleaned_offset
    limit = min(log.high_watermark, log.last_stable_offset, log.recovery_point)
    segments: list[LogSegment] = []
    dirty: list[LogSegment] = []
    end_offset = log.segments.first.base_offset
    for slot, segment in enumerate(log.segments.closed):
        following = log.segments[slot + 1].base_offset
        is_dirty = following > cleaned_offset
        if following > limit or (is_dirty and _is_young(segment, config.min_compaction_lag_ms, now_ms)):
            break
        segments.append(segment)
        if is_dirty:
            dirty.append(segment)
        end_offset = following
    dirty_bytes = sum(segment.size for segment in dirty)
    return Cleanable(
        segments=segments,
        end_offset=end_offset,
        dirty_bytes=dirty_bytes,
        clean_bytes=sum(segment.size for segment in segments) - dirty_bytes,
        is_overdue=_is_overdue(dirty, config.max_compaction_lag_ms, now_ms),
    )


def _is_young(segment: LogSegment, min_compaction_lag_ms: int, now_ms: int) -> bool:
    return min_compaction_lag_ms > 0 and segment.max_timestamp().timestamp > now_ms - min_compaction_lag_ms


def _is_overdue(dirty: list[LogSegment], max_compaction_lag_ms: int, now_ms: int) -> bool:
    if max_compaction_lag_ms >= NO_LIMIT:
        return False
    latest = now_ms - max_compaction_lag_ms
    return any(0 < segment.first_timestamp() < latest for segment in dirty)
