"""What a script may do to frames. A script decides and does nothing itself, so the same events give the same faults."""

from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias

from tests.frame_proxy.exchange import Request


@dataclass(frozen=True, slots=True)
class Forward:
    """The frame goes on at once."""


@dataclass(frozen=True, slots=True)
class Delay:
    """The frame waits for this many round trips to the broker; what comes over other connections overtakes it."""

    round_trips: int


@dataclass(frozen=True, slots=True)
class Cut:
    """The client's connection ends; the frame stays on the broker's side of it until it is requested as late.

    Frames that the client sent behind it are lost with the connection.
    """


@dataclass(frozen=True, slots=True)
class Wait:
    """The frame, and what its client sends behind it, waits until ``then`` says what becomes of it."""

    then: "Future[Forward | Cut]"


Action: TypeAlias = Forward | Delay | Cut | Wait
FORWARD: Final = Forward()


@dataclass(frozen=True, slots=True)
class LateFrame:
    """A frame, without its size, that is to arrive at the broker now.

    ``held_on`` is the number of the connection that was cut under it; None if it arrives over a connection of its own,
    on which nothing else is ever sent. It need not be a frame that was ever sent: a script may write its own.
    """

    frame: bytes
    sender: str
    held_on: int | None = None


class Script(Protocol):
    """Decides about every frame, in the order in which they come."""

    def requested(self, request: Request) -> Action:
        """A client's request has come whole."""

    def responded(self, request: Request, response: memoryview) -> Sequence[LateFrame]:
        """The broker has responded. What is returned arrives, and gets its response, before the client has this one."""

    def remaining(self) -> Sequence[LateFrame]:
        """What has not arrived when all clients are gone, in order."""

    def delivered(self, late: LateFrame, response: memoryview | None) -> None:
        """The broker's answer to a late frame; None if it closed the connection instead."""


class ForwardEverything:
    """The script of a network without faults."""

    def requested(self, request: Request) -> Action:
        return FORWARD

    def responded(self, request: Request, response: memoryview) -> Sequence[LateFrame]:
        return ()

    def remaining(self) -> Sequence[LateFrame]:
        return ()

    def delivered(self, late: LateFrame, response: memoryview | None) -> None:
        raise AssertionError("this script has no late frames")
