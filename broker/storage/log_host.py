"""``LogHost``: what the logs of one data directory share."""

from collections.abc import Callable
from random import Random
from typing import NamedTuple

from oncelog.broker.storage.disk import Disk
from oncelog.broker.storage.disk_space import DiskSpace
from oncelog.broker.storage.producer_state import DEFAULT_PRODUCER_ID_EXPIRATION_MS


def _ignore(reason: str) -> None:
    """Ignore the damage."""


class LogHost(NamedTuple):
    """The surroundings of a log."""

    disk: Disk
    wall_clock: Callable[[], int]
    """Milliseconds since 1970."""
    space: DiskSpace
    rng: Random | None = None
    """For ``segment.jitter.ms``; None: no jitter."""
    on_damage: Callable[[str], None] = _ignore
    """Called before anything that was found damaged is cut off, with the reason."""
    producer_id_expiration_ms: int = DEFAULT_PRODUCER_ID_EXPIRATION_MS
