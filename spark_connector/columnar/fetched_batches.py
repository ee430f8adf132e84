"""The record batches of one Fetch response, as the fetcher hands them to the decoder."""

from dataclasses import dataclass

from oncelog.protocol.messages.fetch import AbortedTransaction
from oncelog.protocol.records.record_batch import BatchHeader
from oncelog.protocol.schema import Buffer


class RangeUnreadable(Exception):
    """A range cannot be read: a broker sends corrupt batches, or no batch in time."""


@dataclass(frozen=True, slots=True)
class FetchedBatches:
    """The complete record batches of one Fetch response, in ``buffer``."""

    buffer: Buffer
    batches: list[tuple[int, BatchHeader]]
    """The position of each in the buffer, and its header."""
    aborted: list[AbortedTransaction]
    start: int
    """The fetch offset of the request. Records of the first batch before it must be left out."""
