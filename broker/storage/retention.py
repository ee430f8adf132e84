"""Which segments of a log have expired, and why: a pure decision over the oldest segments."""

import logging
from collections.abc import Iterable, Iterator, Sequence
from enum import Enum, auto
from itertools import groupby
from typing import NamedTuple

from oncelog.broker.storage.log_config import LogConfig
from oncelog.broker.storage.log_segments import LogSegments

logger = logging.getLogger(__name__)


class ExpiryReason(Enum):
    """Why a segment has expired, in Kafka's order."""

    LOG_START = auto()
    """All of it lies before the log start."""
    SIZE = auto()
    """The log is too large without it."""
    AGE = auto()
    """Its newest record is too old."""


class SegmentAge(NamedTuple):
    """What retention looks at."""

    size: int
    next_offset: int
    """The base offset of the next segment, or the log's end."""
    largest_timestamp: int
    """Or when it was opened, if its records have no timestamps."""
    is_active: bool


def segment_ages(segments: LogSegments, log_end_offset: int) -> Iterator[SegmentAge]:
    """Return what retention looks at, for each segment of a log."""
    ends = [segment.base_offset for segment in segments][1:] + [log_end_offset]
    for segment, end in zip(segments, ends, strict=True):
        timestamp = segment.max_timestamp().timestamp
        newest = segment.created_ms if timestamp < 0 else timestamp
        yield SegmentAge(segment.size, end, newest, segment is segments.active)


def expired(
    segments: Iterable[SegmentAge], config: LogConfig, *, log_start_offset: int, high_watermark: int, now_ms: int
) -> list[ExpiryReason]:
    """Return why segments have expired: one reason for each, from the oldest on.

    Segments with offsets at or beyond the high watermark do not expire, nor does an empty active segment.
    """
    candidates = list(segments)
    excess = sum(segment.size for segment in candidates) - config.retention_bytes
    reasons: list[ExpiryReason] = []
    for segment in candidates:
        if segment.next_offset > high_watermark or (segment.is_active and segment.size == 0):
            break
        if not segment.is_active and segment.next_offset <= log_start_offset:
            reasons.append(ExpiryReason.LOG_START)
        elif config.deletes and config.retention_bytes >= 0 and excess - segment.size >= 0:
            reasons.append(ExpiryReason.SIZE)
        elif config.deletes and 0 <= config.retention_ms < now_ms - segment.largest_timestamp:
            reasons.append(ExpiryReason.AGE)
        else:
            break
        excess -= segment.size
    return reasons


def log_expiry(directory: str, segments: LogSegments, reasons: Sequence[ExpiryReason], config: LogConfig) -> None:
    """Log which segments are deleted: one line for all that go for the same reason."""
    sentences = {
        ExpiryReason.LOG_START: "all of it lies before the log start offset",
        ExpiryReason.SIZE: f"the log is larger than retention.bytes={config.retention_bytes}",
        ExpiryReason.AGE: f"its newest record is older than retention.ms={config.retention_ms}",
    }
    for reason, group in groupby(zip(segments, reasons, strict=False), key=lambda pair: pair[1]):
        doomed = [segment for segment, _ in group]
        logger.info(
            "%s: deleting %d segments with %d bytes, from base offset %d to %d: %s",
            directory,
            len(doomed),
            sum(segment.size for segment in doomed),
            doomed[0].base_offset,
            doomed[-1].base_offset,
            sentences[reason],
        )
