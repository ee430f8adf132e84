"""The record batches of one Fetch response, as the fetcher hands them to the decoder."""

from dataclasses import dataclass

from oncelog.protocol.messages.fetch import AbortedTransaction
from oncelog.protocol.records.record_batch import BatchHeader
from oncelog.protocol.schema import Buffer


class RangeUnreadable(Exception):
    """A range cannot be read: what a broker sends, or refuses."""


@dataclass(frozen=True, slots=True)
class FetchedBatches:
    """The whole record batches of one answer, in ``buffer``."""

    buffer: Buffer
    batches: list[tuple[int, BatchHeader]]
    """Where each begins, and its header."""
    aborted: list[AbortedTransaction]
    start: int
    """The first offset that was asked for. The first batch may begin before it: those records are to be left out."""
