"""``UnreachableBackoff``: how often a broken connection may count as the failure of a broker.

To replace an unreachable broker moves leaderships; where the broker was well, clients lose a moment for nothing. So
such a broker must be reachable for a while before it is trusted again, twice as long each time, and a controller that
was replaced is not replaced again for as long. The backoff starts anew for a broker that has not been unreachable for a
minute, and for one whose session the metadata store has expired. A link that fails now and then moves leaderships ever
less often.
"""

from dataclasses import dataclass
from typing import Final

FIRST_PAUSE_SECONDS: Final = 1.0
LONGEST_PAUSE_SECONDS: Final = 30.0
FORGOTTEN_AFTER_SECONDS: Final = 60.0


@dataclass(slots=True)
class _Record:
    pause: float
    not_before: float


class UnreachableBackoff:
    """The backoff of each broker. Times are those of the event loop, in seconds."""

    def __init__(self) -> None:
        self._records: dict[int, _Record] = {}

    def allows(self, broker_id: int, now: float) -> bool:
        """Return whether the broker may be replaced now."""
        record = self._records.get(broker_id)
        return record is None or now >= record.not_before

    def steady_seconds(self, broker_id: int) -> float:
        """Return for how many seconds the broker must be reachable before it is trusted again."""
        record = self._records.get(broker_id)
        return FIRST_PAUSE_SECONDS if record is None else record.pause

    def note(self, broker_id: int, now: float) -> None:
        """Note that the broker is replaced now."""
        record = self._records.get(broker_id)
        if record is None or now >= record.not_before + FORGOTTEN_AFTER_SECONDS:
            self._records[broker_id] = _Record(FIRST_PAUSE_SECONDS, now + FIRST_PAUSE_SECONDS)
        else:
            record.pause = min(2 * record.pause, LONGEST_PAUSE_SECONDS)
            record.not_before = now + record.pause

    def end(self, broker_id: int, now: float) -> None:
        """Let the broker be replaced from now on: it is trusted although it was not reachable for long."""
        record = self._records.get(broker_id)
        if record is not None:
            record.not_before = min(record.not_before, now)

    def forget(self, broker_id: int) -> None:
        """Start anew: the broker's session has expired, and the next broker of this id is another process."""
        self._records.pop(broker_id, None)
