"""Responses that wait until what they promise is replicated."""

from collections.abc import Callable
from typing import Final

from oncelog.coordinator.log_errors import coordinator_error
from oncelog.coordinator.ports import ReplicatedLog
from oncelog.coordinator.timers import Deadlines
from oncelog.protocol.errors import ErrorCode

_LOOK_MS: Final = 500
"""A wait for less than ``offsets.commit.timeout.ms`` is counted in these."""

OnOutcome = Callable[[ErrorCode], None]


class ReplicationWaits:
    """The waits of one shard."""

    def __init__(self, log: ReplicatedLog, timeout_ms: int) -> None:
        """Wait for ``timeout_ms`` (``offsets.commit.timeout.ms``) at most."""
        self._log = log
        self._timeout_ms = timeout_ms
        self._timeouts = Deadlines(timeout_ms)
        self._looks = Deadlines(_LOOK_MS)

    def stop(self) -> None:
        """Run no more timers."""
        self._timeouts.stop()
        self._looks.stop()

    def when_replicated(self, end_offset: int, outcome: OnOutcome, *, at_most_ms: int | None = None) -> None:
        """Call back once with NONE, or with a coordinator's error: the leadership was lost, or it takes too long.

        "Too long" is no failure: the records are in the log and may become replicated yet. ``at_most_ms`` is for a
        response that cannot wait for ``offsets.commit.timeout.ms``; the outcome is REQUEST_TIMED_OUT then: librdkafka
        repeats the request, and keeps its coordinator, which it gives up by COORDINATOR_NOT_AVAILABLE.
        """
        if self._log.high_watermark >= end_offset:
            outcome(ErrorCode.NONE)
            return
        deadlines, looks, too_late = self._timeouts, 1, coordinator_error(ErrorCode.REQUEST_TIMED_OUT)
        if at_most_ms is not None and at_most_ms < self._timeout_ms:
            deadlines, looks, too_late = self._looks, at_most_ms // _LOOK_MS, ErrorCode.REQUEST_TIMED_OUT
        waiting, key = True, 0

        def settle(error: ErrorCode) -> None:
            nonlocal waiting
            if waiting:
                waiting = False
                deadlines.cancel(key)
                outcome(error)

        def look() -> None:
            nonlocal key, looks
            looks -= 1
            if looks > 0:
                key = deadlines.add(look)
            else:
                settle(too_late)

        key = deadlines.add(look)
        self._log.when_replicated(end_offset, lambda error: settle(coordinator_error(error)))
