"""``WaitingPartition``: what a partition without a leader waits for, for those who look at the cluster."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from oncelog.coordinator.controller.log_ends import LogEnd

NO_TIME: Final = -1
NO_REPLICA: Final = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingPartition:
    """A partition of which no replica is there that certainly has everything acknowledged."""

    strategy: str
    """``unclean.recovery.strategy``, as it is in force."""
    waits_for: tuple[int, ...]
    """The brokers that must be back, or must report where their logs end."""
    elects: int
    """The replica that an unclean election would elect now; ``NO_REPLICA`` if none is there."""
    decides_at_ms: int
    """When a replica is elected at the latest, in milliseconds since the Unix epoch; ``NO_TIME``: not by the clock."""
    log_ends: Mapping[int, LogEnd]
    """By broker, where the log ends, as far as that is known."""
