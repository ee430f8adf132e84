"""How much one response may hold that describes whatever a request names: producers, groups, transactions, offsets.

A name takes some bytes in the request, and what it stands for may take megabytes in the response. So each thing is
described once, however often it is named, and as long as less than ``LARGEST_RESPONSE`` was described. For what comes
after that the response has an error on which clients retry, so that they get the rest in their next requests.
The first thing is always described, whatever its size. While responses that wait to be read take all of the memory that
there is for them, a response has room for ``FRUGAL_BYTES``.

Requests that have described much and are not done are few (``oncelog.broker.dispatch.sliced_work``).
"""

from typing import Final

from oncelog.broker.network.response_memory import FRUGAL_BYTES, ResponseMemory

LARGEST_RESPONSE: Final = 8 << 20


class ResponseRoom:
    """The room that is left in one response."""

    __slots__ = ("_left",)

    def __init__(self, memory: ResponseMemory) -> None:
        self._left = FRUGAL_BYTES if memory.is_full else LARGEST_RESPONSE

    @property
    def is_used_up(self) -> bool:
        """Whether nothing more shall be described."""
        return self._left <= 0

    def take(self, size: int) -> None:
        """Count what was described, in bytes."""
        self._left -= size
