"""What a log reads before it is cut at an offset, and the files that it opens for that.

A cut that has begun must be completed, so nothing of it may fail for want of descriptors: ``prepare_cut`` opens and
reads whatever the cut needs, and changes nothing.
"""

from typing import NamedTuple

from oncelog.broker.storage.batch_scan import ScannedBatch
from oncelog.broker.storage.log_segment import LogSegment
from oncelog.broker.storage.log_segments import LogSegments
from oncelog.broker.storage.producer_snapshots import ProducerSnapshots, Snapshot


class LogCut(NamedTuple):
    """A cut that is about to be made."""

    offset: int
    """Where the log will end."""
    base_offset: int
    """Of the last segment that stays."""
    kept: int
    """Segments that stay."""
    first: ScannedBatch | None
    """The first batch that goes of the last segment that stays; None if all of its batches stay."""
    concerns_producers: bool
    """Whether a batch that goes has a producer id."""
    snapshot: Snapshot | None
    """From which the producer state is derived again, if the cut concerns it; None: from the log's start."""


def prepare_cut(segments: LogSegments, snapshots: ProducerSnapshots, log_start_offset: int, offset: int) -> LogCut:
    """Prepare a cut at an offset, or at the batch that contains it. Raise ``OSError``: then nothing has changed."""
    slot = segments.slot_of(offset)
    last = segments[slot]
    _load(last)
    first = next(last.scan_from(offset), None)
    if first is not None:
        offset = min(offset, first.header.base_offset)
    # Compaction may have left nothing just before: the log ends where a restart would find its end.
    offset = _end_before(last, offset)
    cut = (batch for segment in segments.from_offset(offset) for batch in segment.scan_from(offset))
    concerns_producers = any(batch.header.producer_id >= 0 for batch in cut)
    snapshot = None
    if concerns_producers:
        start_offset = min(log_start_offset, offset)
        snapshot = snapshots.latest(start_offset, offset)
        for segment in segments.from_offset(start_offset if snapshot is None else snapshot.offset):
            if segment.base_offset < offset:
                _load(segment)
    return LogCut(offset, last.base_offset, slot + 1, first, concerns_producers, snapshot)


def _load(segment: LogSegment) -> None:
    """Open the file and read the indexes. Reads, a cut and appends that follow in the same step open no file."""
    segment.indexes.load()
    segment.max_timestamp()
    assert segment.file is not None, "it opens"


def _end_before(segment: LogSegment, offset: int) -> int:
    """Return the end of the last batch below ``offset``, which no batch may contain; else the base offset."""
    end = segment.base_offset
    for batch in segment.scan(segment.indexes.offset.lookup(offset - 1)):
        if batch.header.last_offset >= offset:
            break
        end = batch.header.next_offset
    return end
