"""Which of the batches in a fetch a consumer gets to see. Pure: bytes and the broker's list in, batches out.

A ``read_committed`` fetch ends below the first open transaction, so every transactional batch in it belongs to one that
has ended; beside the records the broker lists those that were aborted, as (producer id, first offset on this
partition). A producer has one transaction at a time on a partition, so its batches are aborted from that offset up to
its next abort marker. Where they lie in between does not matter: other producers' batches may come first, and the list
may hold transactions whose batches were compacted away or lie beyond this fetch.

Markers themselves are never seen, in either isolation level.
"""

from collections.abc import Sequence
from typing import Protocol

from oncelog.protocol.records.control_records import parse_end_txn_marker
from oncelog.protocol.records.record_batch import BatchHeader
from oncelog.protocol.schema import Buffer


class AbortedTransaction(Protocol):
    """An entry of the broker's list in a Fetch response."""

    producer_id: int
    first_offset: int


class AbortedRanges:
    """The aborted transactions of one fetch of one partition, applied to its batches in the order of offsets."""

    __slots__ = ("_aborting", "_upcoming")

    def __init__(self, aborted: Sequence[AbortedTransaction]) -> None:
        self._upcoming = sorted(aborted, key=lambda transaction: transaction.first_offset, reverse=True)
        self._aborting: set[int] = set()
        """Producers whose batches are aborted until their marker."""

    def shows(self, records: Buffer, position: int, header: BatchHeader) -> bool:
        """Return whether a consumer sees the records of the batch at ``position``. Raises ``CorruptRecord``."""
        while self._upcoming and self._upcoming[-1].first_offset <= header.last_offset:
            self._aborting.add(self._upcoming.pop().producer_id)
        if header.is_control:
            marker = parse_end_txn_marker(records, position, header)
            if marker is not None and not marker.commit:  # What it writes from here on is another transaction.
                self._aborting.discard(header.producer_id)
            return False
        return not (header.is_transactional and header.producer_id in self._aborting)
