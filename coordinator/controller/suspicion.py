"""How often somebody may be suspected to be gone because a connection to it broke.

A suspicion moves leaderships; a wrong one costs a moment of every client's time. So after a broker has been suspected
without being gone, it is not suspected again for a while, twice as long each time, and until the metadata store says
that it is gone. Whoever has not been suspected for long begins anew.
"""

from dataclasses import dataclass
from typing import Final

FIRST_PAUSE_SECONDS: Final = 1.0
LONGEST_PAUSE_SECONDS: Final = 60.0
FORGOTTEN_AFTER_SECONDS: Final = 10.0


@dataclass(slots=True)
class _Record:
    pause: float
    not_before: float


class SuspicionLimit:
    """Who may be suspected now. Times are those of the loop."""

    def __init__(self) -> None:
        self._records: dict[int, _Record] = {}

    def allows(self, broker_id: int, now: float) -> bool:
        record = self._records.get(broker_id)
        return record is None or now >= record.not_before

    def note(self, broker_id: int, now: float) -> None:
        """The broker is suspected now."""
        record = self._records.get(broker_id)
        if record is None or now >= record.not_before + FORGOTTEN_AFTER_SECONDS:
            self._records[broker_id] = _Record(FIRST_PAUSE_SECONDS, now + FIRST_PAUSE_SECONDS)
        else:
            record.pause = min(2 * record.pause, LONGEST_PAUSE_SECONDS)
            record.not_before = now + record.pause

    def forget(self, broker_id: int) -> None:
        """It was right: the broker is gone, and whoever comes next is another one."""
        self._records.pop(broker_id, None)
