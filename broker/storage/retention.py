"""Which segments of a log retention allows to go: a pure decision over the oldest segments."""

from collections.abc import Iterable
from typing import NamedTuple

from broker.storage.log_config import LogConfig


class SegmentAge(NamedTuple):
    """What retention looks at."""

    size: int
    next_offset: int
    """The base offset of the next segment, or the log's end."""
    largest_timestamp: int
    """Or when it was opened, if its records have no timestamps."""
    is_active: bool


def count_expired(
    segments: Iterable[SegmentAge], config: LogConfig, *, log_start_offset: int, high_watermark: int, now_ms: int
) -> int:
    """How many segments, from the oldest on, may go.

    In Kafka's order of reasons: all of it lies before the log start; the log is too large without it; it is too old.
    Nothing at or beyond the high watermark goes, nor an active segment that is empty.
    """
    candidates = list(segments)
    excess = sum(segment.size for segment in candidates) - config.retention_bytes
    count = 0
    for segment in candidates:
        if segment.next_offset > high_watermark or (segment.is_active and segment.size == 0):
            break
        too_early = not segment.is_active and segment.next_offset <= log_start_offset
        too_large = config.deletes and config.retention_bytes >= 0 and excess - segment.size >= 0
        too_old = config.deletes and 0 <= config.retention_ms < now_ms - segment.largest_timestamp
        if not (too_early or too_large or too_old):
            break
        excess -= segment.size
        count += 1
    return count
