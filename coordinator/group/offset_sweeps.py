"""The search for expired offsets: at an interval, in slices between which the loop runs."""

import asyncio
from collections.abc import Callable, Generator, Iterable
from typing import Final

from oncelog.coordinator.group import offset_requests
from oncelog.coordinator.group.settings import GroupSettings
from oncelog.coordinator.group.shard import GroupShard
from oncelog.protocol.records.record_walk import WorkBudget

_SWEEP_UNITS: Final = 10_000
"""Offsets and subscribed topics that one slice of a sweep looks at, a single group's apart."""
_IS_DONE: Final = object()


class OffsetSweeps:
    """The sweeps of one coordinator, from ``start`` to ``stop``."""

    def __init__(self, settings: GroupSettings, open_shards: Callable[[], Iterable[GroupShard]]) -> None:
        self._retention_ms = settings.offsets_retention_ms
        self._interval_seconds = settings.offsets_retention_check_interval_ms / 1000
        self._open_shards = open_shards
        self._timer: asyncio.TimerHandle | None = None
        self._budget = WorkBudget(_SWEEP_UNITS)

    def start(self) -> None:
        """Sweep from now on; for the first time after an interval."""
        self._run_after(self._interval_seconds, None)

    def stop(self) -> None:
        """Stop, also a sweep that has begun."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _run_after(self, seconds: float, begun: Generator[None] | None) -> None:
        self._timer = asyncio.get_running_loop().call_later(seconds, self._run, begun)

    def _run(self, begun: Generator[None] | None) -> None:
        """Do one slice of a sweep, then let the loop run before the next."""
        self._budget.left = _SWEEP_UNITS
        sweep = begun or self._sweep()
        if next(sweep, _IS_DONE) is _IS_DONE:
            self._run_after(self._interval_seconds, None)
        else:
            self._run_after(0, sweep)

    def _sweep(self) -> Generator[None]:
        for shard in self._open_shards():
            yield from offset_requests.expire(shard, self._retention_ms, self._budget)
            yield
