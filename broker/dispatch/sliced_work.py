"""Long work of requests, done in slices between which the loop runs.

One request can require any amount of work: a walk over the records of a hostile batch, a search by time, appends to a
hundred thousand partitions. Such work is written as a generator that counts what it does in a ``WorkBudget`` and yields
when that is used up. What is done within one budget is done at once, and costs nothing more. The rest becomes a
coroutine:

* In one turn of the loop one slice is done, of one request; requests take turns. So however many do long work, the loop
  is back after some milliseconds.
* A request that could not begin at once has its first slice before those that go on, every second time: a small one
  waits for few of those that are long, and has no need of a place. Decompressors wait for theirs first.
* What begins in one turn of the loop is bounded together: a client may send many requests at once.
* At most ``_PLACES`` requests are under way that may hold a decompressor's window. Others wait for a place.
* Work for a connection that is lost ends before its next slice, unless it changes something for others.

A generator yields None to pause, or a ``ReadRequest`` for bytes of a file, which are read off the loop unless they are
in memory.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Generator, Iterable
from contextlib import AbstractAsyncContextManager, nullcontext
from functools import partial
from typing import Any, Final, TypeAlias, TypeVar

from oncelog.broker.dispatch.loop_meter import LoopMeter
from oncelog.broker.dispatch.request import CloseConnection, ConnectionInfo
from oncelog.broker.storage.segment_read import ReadRequest
from oncelog.protocol.framing import encode_response_in_slices
from oncelog.protocol.records.record_walk import WorkBudget
from oncelog.protocol.schema import Buffer, Message
from oncelog.protocol.sliced_decoder import sliced_decoder

A = TypeVar("A")
M = TypeVar("M", bound=Message)
T = TypeVar("T")

Steps: TypeAlias = Generator[ReadRequest | None, Buffer | None, T]

SLICE_UNITS: Final = 2_000
"""The budget of a slice, some milliseconds."""
CHARACTERS_PER_UNIT: Final = 16
"""Of an id whose hash says where it is kept."""
_TURN_UNITS: Final = 3 * SLICE_UNITS
"""Once so much was done at once, whatever begins in the same turn of the loop is done in later ones.

It is counted over several turns, which costs nothing: now and then a request waits for the next turn.
"""
_PLACES: Final = 3


new_budget: Final = partial(WorkBudget, SLICE_UNITS)
"""Returns the budget of work that begins in this turn of the loop. Nearly every request has one."""


def in_slices(
    items: Iterable[A], act: Callable[[A], T], budget: WorkBudget, units: int
) -> Generator[None, object, list[T]]:
    """Return what ``act`` makes of each item, which takes so many units; yields when the budget is used up."""
    made: list[T] = []
    for item in items:
        made.append(act(item))
        budget.left -= units
        if budget.left <= 0:
            yield None
    return made


class SlicedWork:
    """The long work of one broker's requests."""

    def __init__(self) -> None:
        self._places = asyncio.Semaphore(_PLACES)
        self._beginning: deque[asyncio.Future[None]] = deque()
        """Requests whose first slice is due, in order."""
        self._waiting: deque[asyncio.Future[None]] = deque()
        """Requests whose next slice is due, in order."""
        self._one_began = False
        """Whether the last turn was that of a request that began."""
        self._has_turns = False
        self._begun = 0
        """Units that were used up by what was done at once, in this turn of the loop and those before."""
        self._turn_ends = False
        self.meter: LoopMeter | None = None
        """Measures what the slices take; None if no quota needs it."""

    def start(
        self,
        steps: Steps[T],
        budget: WorkBudget,
        connection: ConnectionInfo,
        *,
        needs_place: bool = True,
        holds_window: bool = False,
    ) -> T | Coroutine[Any, Any, T]:
        """Do what the budget allows now. Returns the result, or a coroutine that does the rest.

        ``needs_place``: whether it may hold much memory between its slices. ``holds_window``: whether it does so from
        its first slice on, as decompressors do; what cannot begin at once then waits for its place before that slice.
        """
        if self._begun >= _TURN_UNITS:
            self._end_turn_soon()
            if holds_window:
                return self.run(steps, budget, connection)
            return self._begin_later(steps, budget, connection, needs_place)
        before = budget.left
        try:
            request = _advance(steps, None, budget)
        except StopIteration as stop:
            result: T = stop.value
            return result
        finally:
            self._begun += before - budget.left
        return self._go_on(steps, budget, connection, request, self._places if needs_place else nullcontext())

    async def run(
        self, steps: Steps[T], budget: WorkBudget, connection: ConnectionInfo | None, *, needs_place: bool = True
    ) -> T:
        """Do all of the work in later turns of the loop.

        Raises CloseConnection if its connection is lost meanwhile; without one it is done in any case.
        """
        return await self._go_on(steps, budget, connection, None, self._places if needs_place else nullcontext())

    async def finish(self, steps: Steps[T], budget: WorkBudget, connection: ConnectionInfo) -> T:
        """Do what the budget allows now, the rest in later turns, and return the result. It holds no decompressor."""
        outcome = self.start(steps, budget, connection, needs_place=False)
        return await outcome if asyncio.iscoroutine(outcome) else outcome

    async def decode(
        self,
        request_type: type[M],
        version: int,
        frame: memoryview,
        position: int,
        max_elements: int,
        connection: ConnectionInfo,
    ) -> M:
        """Decode a large request: what the budget allows now, the rest in later turns. Raises DecodeError."""
        budget = new_budget()
        steps = sliced_decoder(request_type, version)(frame, position, max_elements, budget)
        request, _ = await self._finish_metered(steps, budget, connection)
        return request

    async def encode(
        self, correlation_id: int, response: Message, version: int, connection: ConnectionInfo
    ) -> list[Buffer]:
        """Encode a response that may be large: what the budget allows now, the rest in later turns of the loop."""
        budget = new_budget()
        steps = encode_response_in_slices(correlation_id, response, version, budget)
        return await self._finish_metered(steps, budget, connection)

    async def _finish_metered(self, steps: Steps[T], budget: WorkBudget, connection: ConnectionInfo) -> T:
        """Do what ``finish`` does where no handler is called, whose time is measured as a whole."""
        began = 0 if self.meter is None else self.meter.nanoseconds()
        outcome = self.start(steps, budget, connection, needs_place=False)
        if began and self.meter is not None:
            connection.loop_nanoseconds += self.meter.nanoseconds() - began
        return await outcome if asyncio.iscoroutine(outcome) else outcome

    def _end_turn_soon(self) -> None:
        if not self._turn_ends:
            self._turn_ends = True
            asyncio.get_running_loop().call_soon(self._end_turn)

    def _end_turn(self) -> None:
        self._turn_ends = False
        self._begun = 0

    async def _begin_later(
        self, steps: Steps[T], budget: WorkBudget, connection: ConnectionInfo, needs_place: bool
    ) -> T:
        has_begun = False
        try:
            await self._turn(self._beginning)
            _check_open(connection)
            budget.left = SLICE_UNITS
            request = self._do_slice(steps, None, budget, connection)
            has_begun = True
        except StopIteration as stop:
            result: T = stop.value
            return result
        finally:
            if not has_begun:
                steps.close()
        return await self._go_on(steps, budget, connection, request, self._places if needs_place else nullcontext())

    async def _go_on(
        self,
        steps: Steps[T],
        budget: WorkBudget,
        connection: ConnectionInfo | None,
        request: ReadRequest | None,
        place: AbstractAsyncContextManager[None],
    ) -> T:
        async with place:
            try:
                while True:
                    data = None if request is None else await _read_off_loop(request)
                    await self._turn(self._waiting)
                    _check_open(connection)
                    budget.left = SLICE_UNITS
                    request = self._do_slice(steps, data, budget, connection)
            except StopIteration as stop:
                result: T = stop.value
                return result
            finally:
                steps.close()

    def _do_slice(
        self,
        steps: Steps[T],
        data: Buffer | OSError | None,
        budget: WorkBudget,
        connection: ConnectionInfo | None,
    ) -> ReadRequest | None:
        """Resume work in a turn of its own; its time is its connection's."""
        if self.meter is None or connection is None:
            return _advance(steps, data, budget)
        began = self.meter.nanoseconds()
        try:
            return _advance(steps, data, budget)
        finally:
            if self.meter is not None:
                connection.loop_nanoseconds += self.meter.nanoseconds() - began

    async def _turn(self, queue: "deque[asyncio.Future[None]]") -> None:
        """Wait until it is this request's turn: one request has its turn in one turn of the loop."""
        loop = asyncio.get_running_loop()
        turn = loop.create_future()
        queue.append(turn)
        if not self._has_turns:
            self._has_turns = True
            loop.call_soon(self._give_turn)
        await turn

    def _give_turn(self) -> None:
        turn = self._next_turn()
        if turn is not None:
            turn.set_result(None)
        self._has_turns = bool(self._waiting or self._beginning)
        if self._has_turns:
            asyncio.get_running_loop().call_soon(self._give_turn)

    def _next_turn(self) -> asyncio.Future[None] | None:
        """Return the request whose turn it is, if any is left that was not cancelled."""
        while self._beginning or self._waiting:
            self._one_began = bool(self._beginning) and not (self._one_began and self._waiting)
            turn = (self._beginning if self._one_began else self._waiting).popleft()
            if not turn.done():
                return turn
        return None


def _check_open(connection: ConnectionInfo | None) -> None:
    if connection is not None and not connection.is_open and not connection.changes_under_way:
        raise CloseConnection("its client has gone")


def _advance(steps: Steps[T], data: Buffer | OSError | None, budget: WorkBudget) -> ReadRequest | None:
    """Resume work until it pauses (None) or needs bytes that are not in memory. StopIteration has its result."""
    while True:
        request = steps.throw(data) if isinstance(data, OSError) else steps.send(data)
        if request is None or budget.left <= 0:
            return request
        data = _read_now(request)
        if data is None:
            return request


def _read_now(request: ReadRequest) -> Buffer | OSError | None:
    """Return the bytes if all of them are in memory."""
    try:
        data = request.file.try_read_at(request.size, request.position)
    except OSError as error:
        return error
    return data if data is not None and len(data) == request.size else None


async def _read_off_loop(request: ReadRequest) -> Buffer | OSError:
    try:
        return await request.file.read_at_off_loop(request.size, request.position)
    except OSError as error:
        return error
