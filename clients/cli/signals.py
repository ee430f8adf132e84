"""Ctrl-C and SIGTERM: the first one has a command end in order, a second one ends the process."""

import asyncio
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Final

SIGNAL_EXIT_OFFSET: Final = 128
"""What shells add to a signal's number for the exit code of what it ended."""


@dataclass(slots=True)
class Heeded:
    """The signal that has come."""

    number: int | None = None

    @property
    def exit_code(self) -> int | None:
        """The exit code that says so; None if none has come."""
        return None if self.number is None else SIGNAL_EXIT_OFFSET + self.number


@contextmanager
def stopped_by_signals(stop: Callable[[], None]) -> Iterator[Heeded]:
    """Have the first SIGINT or SIGTERM call ``stop`` in the running loop."""
    loop = asyncio.get_running_loop()
    taken = [each for each in (signal.SIGINT, signal.SIGTERM) if signal.getsignal(each) is not signal.SIG_IGN]
    former = {each: signal.getsignal(each) for each in taken}
    heeded = Heeded()

    def heed(number: int, frame: FrameType | None) -> None:
        heeded.number = number
        for each in taken:
            signal.signal(each, signal.SIG_DFL)
        loop.call_soon_threadsafe(stop)

    for each in taken:
        signal.signal(each, heed)
    try:
        yield heeded
    finally:
        for each, handler in former.items():
            signal.signal(each, handler)
