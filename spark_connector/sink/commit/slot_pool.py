"""The slots of one process: which transactional ids its tasks have used, so that none is used twice at a time. Pure.

Spark ends Python processes that have had nothing to do for a minute, so where batches come seldom each has new ones. A
process may use the name of one that has ended, if it has the state of that one (``encode``, ``slot_file``): otherwise
each batch would have other ids, and brokers keep every id for a week.
"""

import json
from collections.abc import Callable
from typing import Final, NamedTuple

from oncelog.spark_connector.sink.commit.sink_errors import SupersededTask

_MOST_SINKS: Final = 1000
"""The number of sinks kept for a later process: those that have written last."""


class Use(NamedTuple):
    """The slots that a batch of a sink has used."""

    generation: int
    query: str
    batch: int
    slots: int

    def is_same_run(self, other: "Use") -> bool:
        return (self.generation, self.query) == (other.generation, other.query)


class SlotPool:
    """One process's slots, for each sink. No other running process has the name ``process``.

    ``keep`` is called with the state for a later process of this name before a slot is used; ``kept`` is the state of
    the previous process.
    """

    def __init__(self, process: str, kept: str = "", keep: Callable[[str], None] = lambda text: None) -> None:
        self.process = process
        self._keep = keep
        self._uses: dict[str, Use] = {}
        self._before: dict[str, Use] = {}
        self._unanswered: set[tuple[str, int, int]] = set()
        """Slots whose InitProducerId has no response yet: a late one would abort what is written there."""
        if kept:
            fields = json.loads(kept)
            self._before = {sink: Use(*use) for sink, use in fields["uses"].items()}
            self._unanswered = {(sink, generation, slot) for sink, generation, slot in fields["unanswered"]}

    def take(self, sink: str, generation: int, query: str, batch: int) -> int:
        """Return a slot that no transaction of this batch has. Raises ``SupersededTask`` for a batch that is over."""
        now = Use(generation, query, batch, 0)
        last = self._uses.pop(sink, now)
        self._uses[sink] = last  # Those that have written last come last.
        if generation < last.generation or (last.is_same_run(now) and batch < last.batch):
            raise SupersededTask(f"batch {batch} of sink {sink} is over: batch {last.batch} is being written")
        slot = max(last.slots if last[:3] == now[:3] else 0, self._used_before(sink, now))
        while (sink, generation, slot) in self._unanswered:
            slot += 1
        self._uses[sink] = now._replace(slots=slot + 1)
        self._unanswered.add((sink, generation, slot))
        self._keep(self.encode())
        return slot

    def begun(self, sink: str, generation: int, slot: int) -> None:
        """Note the response to the slot's InitProducerId: it may be used again after this batch."""
        self._unanswered.discard((sink, generation, slot))
        self._keep(self.encode())

    def _used_before(self, sink: str, now: Use) -> int:
        """Return the slots that the previous process may have open: it was at the same batch, or at a later one."""
        before = self._before.get(sink, now)
        return before.slots if before.is_same_run(now) and now.batch <= before.batch else 0

    def encode(self) -> str:
        """Return the state for a later process of this name."""
        uses = self._before | {sink: self._later(sink, use) for sink, use in self._uses.items()}
        uses = dict(list(uses.items())[-_MOST_SINKS:])
        unanswered = [each for each in self._unanswered if each[0] in uses and each[1] >= uses[each[0]].generation]
        return json.dumps({"uses": uses, "unanswered": sorted(unanswered)}, separators=(",", ":"))

    def _later(self, sink: str, use: Use) -> Use:
        before = self._before.get(sink, use)
        if not before.is_same_run(use) or before.batch < use.batch:
            return use
        return before._replace(slots=max(before.slots, use.slots))
