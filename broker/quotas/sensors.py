"""``Sensors``: what each owner of a limit has used, for as many owners as clients invent, in bounded memory. Pure.

A sensor that a new one would equal is dropped: one that was not used for as long as uses count. At ``MOST`` sensors the
least recently used is dropped even so: its owner begins anew, which costs less than the memory that clients could
take by one client id after another.
"""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Final, Generic, TypeVar

K = TypeVar("K", bound=Hashable)
S = TypeVar("S")

MOST: Final = 20_000
_DROPPED_AT_ONCE: Final = 2
"""For each new sensor: so the unused ones go faster than new ones come, and no request drops many."""


class Sensors(Generic[K, S]):
    """The sensors of one limit by their owner."""

    __slots__ = ("_is_unused", "_make", "_most", "_sensors")

    def __init__(self, make: Callable[[], S], is_unused: Callable[[S, float], bool], *, most: int = MOST) -> None:
        """Make sensors by ``make``; ``is_unused`` returns whether a sensor equals a new one at a time."""
        self._make = make
        self._is_unused = is_unused
        self._most = most
        self._sensors: OrderedDict[K, S] = OrderedDict()
        """Least recently used first."""

    def __len__(self) -> int:
        return len(self._sensors)

    def of(self, owner: K, now: float) -> S:
        """Return the sensor of an owner, which counts as used."""
        sensor = self._sensors.get(owner)
        if sensor is not None:
            self._sensors.move_to_end(owner)
            return sensor
        self._drop(now)
        sensor = self._sensors[owner] = self._make()
        return sensor

    def clear(self) -> None:
        """Drop all."""
        self._sensors.clear()

    def _drop(self, now: float) -> None:
        for _ in range(_DROPPED_AT_ONCE):
            if not self._sensors:
                return
            oldest = next(iter(self._sensors))
            if len(self._sensors) < self._most and not self._is_unused(self._sensors[oldest], now):
                return
            del self._sensors[oldest]
