"""``FrozenProducers``: the producers of a log as they were at an offset, encoded while the log goes on.

A log may know hundreds of thousands of producers, and a snapshot of them must be that of one offset. So the dictionary
is copied, which takes some milliseconds, and each producer is encoded in its turn, or at once before it changes. What
encodes does so in portions between which the loop runs.
"""

from collections.abc import Mapping
from itertools import islice
from struct import Struct
from typing import Final

from oncelog.broker.storage.producer_state_entry import ProducerStateEntry

ENTRY: Final = Struct(">qhiqiqiq")
"""``ProducerEntry`` of ``protocol/internal/producer_snapshot.py``."""
NO_OFFSET: Final = -1


class FrozenProducers:
    """Encodes each producer once."""

    __slots__ = ("_encoded", "_ids", "_left", "count", "offset")

    def __init__(self, producers: Mapping[int, ProducerStateEntry], offset: int) -> None:
        self._left = dict(producers)
        self._ids = iter(tuple(producers))
        self._encoded = bytearray()
        self.count = len(producers)
        self.offset = offset
        """The producers are those of the batches below."""

    def keep(self, producer_id: int) -> None:
        """Encode a producer that is about to change."""
        entry = self._left.pop(producer_id, None)
        if entry is not None:
            self._encoded += encode_entry(entry)

    def encode_some(self, count: int) -> bool:
        """Encode as many more, at most. Return whether others are left."""
        for producer_id in islice(self._ids, count):
            self.keep(producer_id)
        return bool(self._left)

    def encoded(self) -> bytearray:
        """Return all entries, one after the other; what is left is encoded now."""
        self.encode_some(self.count)
        return self._encoded


def encode_entry(entry: ProducerStateEntry) -> bytes:
    """Return a producer as snapshots have it: with the last of its batches only."""
    last_sequence, last_offset, offset_delta = -1, NO_OFFSET, 0
    if entry.batches:
        last = entry.batches[-1]
        last_sequence, last_offset = last.last_sequence, last.last_offset
        offset_delta = last_offset - last.first_offset
    return ENTRY.pack(
        entry.producer_id,
        entry.producer_epoch,
        last_sequence,
        last_offset,
        offset_delta,
        entry.last_timestamp,
        entry.coordinator_epoch,
        NO_OFFSET if entry.txn_first_offset is None else entry.txn_first_offset,
    )
