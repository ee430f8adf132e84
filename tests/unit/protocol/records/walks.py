"""Walks of single batches, to their end."""

from collections.abc import Generator
from typing import Any, TypeVar

from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.records.record_batch import BatchHeader
from oncelog.protocol.records.record_walk import RecordRules, WorkBudget
from oncelog.protocol.records.validation import (
    BatchRules,
    Conformed,
    RejectedRecords,
    conform_batch,
    counts_too_many,
    validate_header,
)

T = TypeVar("T")


def finished(steps: Generator[Any, Any, T], budget: WorkBudget, slice_units: int = 1_000_000) -> tuple[T, int]:
    """The result of sliced work, and how often it paused."""
    pauses = 0
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            return stop.value, pauses
        assert budget.left <= 0
        budget.left = slice_units
        pauses += 1


def completed(steps: Generator[Any, Any, T]) -> T:
    """The result of work that is done in steps."""
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            result: T = stop.value
            return result


def conform(batch: memoryview, header: BatchHeader, rules: BatchRules) -> Conformed | ErrorCode | RejectedRecords:
    budget = WorkBudget(1_000_000)
    return finished(conform_batch(batch, header, rules, budget), budget)[0]


def validate(
    records: bytes | bytearray | memoryview | None,
    *,
    earliest: int = -(2**63),
    latest: int = 2**63 - 1,
    walked: bool = True,
    needs_keys: bool = False,
    max_headers: int = 1_000_000,
    max_message_bytes: int = 2**20,
    max_decompressed_bytes: int = 2**20,
    allow_zstd: bool = True,
) -> BatchHeader | ErrorCode | RejectedRecords:
    """Judge a batch as a leader does: by its header, and by its records if they are to be walked."""
    view = None if records is None else memoryview(records)
    header = validate_header(view, max_message_bytes=max_message_bytes, allow_zstd=allow_zstd)
    if isinstance(header, ErrorCode):
        return header
    assert view is not None
    if not (walked or needs_keys or counts_too_many(header)):
        is_within = earliest <= header.max_timestamp <= latest or header.max_timestamp == -1
        return header if is_within else ErrorCode.INVALID_TIMESTAMP
    rules = RecordRules(earliest, latest, needs_keys, max_headers)
    judged = conform(view, header, BatchRules(rules, max_message_bytes, max_decompressed_bytes))
    return judged if isinstance(judged, ErrorCode | RejectedRecords) else judged[1]
