"""The order of calls that wait: for each key, one line, first come, first served.

A key is a topic, or a partition that its topic does not have yet. A caller has its place from the moment it joins;
what all of a line wait for, they may wait for in their places. The first caller stays first until it leaves, also
across awaits; a caller that is cancelled leaves without harm to those behind it.
"""

import asyncio
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Final

from protocol.topic_partition import TopicPartition

_WOKEN_AT_ONCE: Final = 32
"""So many may have their turns in one iteration of the loop; each that finds itself not first waits again."""


class SendTurn:
    """One caller's place in a line."""

    __slots__ = ("_line", "woken")

    def __init__(self, line: "deque[SendTurn]") -> None:
        self._line = line
        self.woken = asyncio.Event()

    async def come(self) -> None:
        """Return once everybody who came before has left."""
        while self._line[0] is not self:
            self.woken.clear()
            await self.woken.wait()


class SendTurns:
    """The lines of one producer; ``lines`` holds those that are not empty."""

    def __init__(self) -> None:
        self.lines: dict[str | TopicPartition, deque[SendTurn]] = {}

    @contextmanager
    def join(self, key: str | TopicPartition) -> Iterator[SendTurn]:
        """Take the last place in a line, and leave it at the end of the context."""
        line = self.lines.setdefault(key, deque())
        turn = SendTurn(line)
        line.append(turn)
        try:
            yield turn
        finally:
            line.remove(turn)
            if not line:
                del self.lines[key]
            for following in islice(line, _WOKEN_AT_ONCE):
                following.woken.set()
