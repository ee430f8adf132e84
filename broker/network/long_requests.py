"""How many long requests that describe things are under way at once, of all connections together.

Such a request names thousands of things, and its response describes them. While it is under way the decoded request
and what is described so far take megabytes. So ``MOST_LONG_REQUESTS`` are under way and further ones wait as they came,
encoded, in their order. What counts is the size of the frame: a client of ordinary size never waits here. Requests of
other APIs are not counted, neither those that change something nor those that wait for something: a few of them could
keep the places for good.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

from protocol.api_keys import ApiKey

LONG_BYTES: Final = 16 * 1024
"""The frame of a long request has so many bytes at least."""
MOST_LONG_REQUESTS: Final = 16
_DESCRIBING: Final = frozenset(
    {
        ApiKey.METADATA,
        ApiKey.OFFSET_FETCH,
        ApiKey.FIND_COORDINATOR,
        ApiKey.LIST_OFFSETS,
        ApiKey.DESCRIBE_GROUPS,
        ApiKey.DESCRIBE_CONFIGS,
        ApiKey.DESCRIBE_LOG_DIRS,
        ApiKey.DESCRIBE_PRODUCERS,
        ApiKey.DESCRIBE_TRANSACTIONS,
        ApiKey.DESCRIBE_TOPIC_PARTITIONS,
    }
)


def is_long(frame: memoryview) -> bool:
    """Return whether a request is counted."""
    return len(frame) >= LONG_BYTES and int.from_bytes(frame[:2]) in _DESCRIBING


class LongRequests:
    """The long requests under way, and the connections whose next request is a long one that waits."""

    __slots__ = ("_admits", "_under_way", "_waiting")

    def __init__(self) -> None:
        self._under_way = 0
        self._waiting: deque[Callable[[], None]] = deque()
        self._admits = False

    @property
    def are_too_many(self) -> bool:
        """Whether another one has to wait."""
        return self._under_way >= MOST_LONG_REQUESTS

    def await_place(self, begin: Callable[[], None]) -> None:
        """Call ``begin`` when another one may begin. It may find that it has to wait again. Only while they are too
        many."""
        self._waiting.append(begin)

    def begun(self) -> None:
        """Count one that has begun and is not done."""
        self._under_way += 1

    def done(self) -> None:
        """Count one that is done, whatever became of it."""
        self._under_way -= 1
        if self._waiting and not self._admits:
            self._admits = True
            asyncio.get_running_loop().call_soon(self._admit)

    def _admit(self) -> None:
        self._admits = False
        for _ in range(len(self._waiting)):
            if self.are_too_many:
                break
            self._waiting.popleft()()
