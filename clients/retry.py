"""Pauses before retries: exponentially longer, with jitter, until an operation's time is up.

An operation may consist of several, each with attempts of its own (find the coordinator, then send it a request).
``one_deadline`` gives all of them together the time of one.
"""

import asyncio
import math
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from random import Random
from typing import Final

_LEAST_ATTEMPT_SECONDS: Final = 10.0
_deadline: Final[ContextVar[float]] = ContextVar("deadline", default=math.inf)
"""When the operation ends that this task is a part of, on the loop's clock."""


@contextmanager
def one_deadline(seconds: float) -> Iterator[float]:
    """Have every ``Retry`` that is made inside end within so many seconds from now. Yields when, on the loop's clock.

    It holds for tasks that are started inside, too. Inside of another one the earlier end holds.
    """
    deadline = min(asyncio.get_running_loop().time() + seconds, _deadline.get())
    token = _deadline.set(deadline)
    try:
        yield deadline
    finally:
        _deadline.reset(token)


def attempt_seconds(operation_seconds: float) -> float:
    """Return how long one attempt of an operation may take (s).

    It is half of the operation's time, so that an attempt at a broker that does not respond leaves time for another
    one; but no less than 10 s if the operation has them, since a request may keep a healthy broker busy for seconds.
    """
    return max(operation_seconds / 2, min(operation_seconds, _LEAST_ATTEMPT_SECONDS))


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """Pauses that double from ``first_seconds`` to ``longest_seconds``, each up to ``jitter`` shorter or longer."""

    rng: Random
    first_seconds: float = 0.05
    longest_seconds: float = 1.0
    jitter: float = 0.2

    def pause_seconds(self, attempt: int) -> float:
        """Return the pause after the ``attempt``-th failure, counted from 0, in seconds."""
        doublings = min(attempt, 30)
        seconds = min(self.first_seconds * 2.0**doublings, self.longest_seconds)
        return seconds * (1 + self.jitter * (2 * self.rng.random() - 1))


class Retry:
    """One operation's attempts: pauses between them, and the time after which there are no more."""

    __slots__ = ("_attempt", "_attempt_seconds", "_backoff", "_deadline")

    def __init__(self, backoff: Backoff, timeout_seconds: float) -> None:
        self._backoff = backoff
        self._attempt = 0
        now = asyncio.get_running_loop().time()
        self._deadline = min(now + timeout_seconds, _deadline.get())
        self._attempt_seconds = attempt_seconds(max(0.0, self._deadline - now))

    @property
    def remaining_seconds(self) -> float:
        """What is left of the operation's time."""
        return max(0.0, self._deadline - asyncio.get_running_loop().time())

    @property
    def attempt_seconds(self) -> float:
        """How long the next attempt may take."""
        return min(self._attempt_seconds, self.remaining_seconds)

    async def pause(self, throttle_seconds: float = 0.0) -> bool:
        """Wait before the next attempt; False, at once, if the time would be up by then.

        ``throttle_seconds``: the broker reads nothing before (KIP-219).
        """
        seconds = max(self._backoff.pause_seconds(self._attempt), throttle_seconds)
        if seconds >= self.remaining_seconds:
            return False
        self._attempt += 1
        await asyncio.sleep(seconds)
        return True
