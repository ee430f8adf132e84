"""How often somebody may be suspected to be gone because a connection to it broke.

A suspicion moves leaderships; a wrong one costs a moment of every client's time. So after a broker has been suspected
without being gone, it must be reachable for a while before it is trusted, twice as long each time; and a controller
that was deposed is not deposed again for as long. A broker that has not been suspected for long begins anew, and so
does one that the metadata store has given up. Hence a link that comes and goes moves leaderships ever less.
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


class SuspicionLimit:
    """Who may be suspected now. Times are those of the loop."""

    def __init__(self) -> None:
        self._records: dict[int, _Record] = {}

    def allows(self, broker_id: int, now: float) -> bool:
        record = self._records.get(broker_id)
        return record is None or now >= record.not_before

    def steady_seconds(self, broker_id: int) -> float:
        """For how long a suspect must be reachable before it is trusted again."""
        record = self._records.get(broker_id)
        return FIRST_PAUSE_SECONDS if record is None else record.pause

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
