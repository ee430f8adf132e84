"""The controller's requests to brokers: in order, retried until the broker responds, and bounded.

To each broker one request is under way at a time; the others wait in the order in which they were given. When one is
lost, or too many wait, the broker is *behind*: nothing is kept for it any more, only the lost request is repeated, at
growing intervals, until the broker responds or is forgotten. A broker that responds again is sent everything
afresh (``on_caught_up``), so that what was dropped meanwhile is not missed. Hence a broker that hangs costs a bounded
queue, and one that was away for a second or an hour needs nothing else.

A broker may also respond that it could not carry out a LeaderAndIsr yet, because it could not read the topics'
configurations (REQUEST_TIMED_OUT): that counts as a lost request.

To open or delete logs takes a broker a while, so such a request names a bounded number of partitions, and a broker that
responds at once (the controller's own) gets the next one in the next turn of the loop.

A broker that registers anew is another incarnation: requests to the former one are dropped.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Collection
from functools import partial
from typing import Final, NamedTuple, TypeAlias

from oncelog.coordinator.controller.control_requests import takes_long
from oncelog.coordinator.ports import BrokerChannel
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.leader_and_isr import LeaderAndIsrResponse
from oncelog.protocol.schema import Message

logger = logging.getLogger(__name__)

OnControlResponse: TypeAlias = Callable[[int, Message, Message], None]
"""Called with the broker, the request, and the response."""
OnCaughtUp: TypeAlias = Callable[[int], None]

_FIRST_RETRY_SECONDS: Final = 0.05
_LONGEST_RETRY_SECONDS: Final = 1.0
_MOST_WAITING: Final = 2_500
"""Requests to one broker. An event of the cluster makes two or three, and one more for each ``MOST_PARTITIONS`` or
``MOST_FILE_CHANGES``; the largest topic that one request can create makes a thousand."""


class ControlChannel:
    """The requests of one controller epoch."""

    def __init__(
        self,
        channel: BrokerChannel,
        on_response: OnControlResponse,
        on_caught_up: OnCaughtUp,
        unreachable: Collection[int] = (),
    ) -> None:
        """Begin without brokers.

        ``unreachable``: the brokers that cannot be reached now; ``unreachable_changed`` is called when there are more.
        """
        self._channel = channel
        self._unreachable = unreachable
        self._on_response = on_response
        self._on_caught_up = on_caught_up
        self._outboxes: dict[int, _Outbox] = {}
        self._waiting: list[_Wait] = []

    def send(self, broker_id: int, request: Message) -> None:
        outbox = self._outboxes.get(broker_id)
        if outbox is None:
            outbox = _Outbox(
                broker_id, self._channel, self._on_broker_response, self._on_caught_up, self._note_progress
            )
            self._outboxes[broker_id] = outbox
        outbox.send(request)

    def all_responded(self) -> "asyncio.Future[None]":
        """Return a future: done when every broker has responded to all that it was sent before, or at the end.

        Brokers that are behind or unreachable do not count.
        """
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        marks = [(broker_id, outbox, outbox.accepted) for broker_id, outbox in self._outboxes.items()]
        self._waiting.append(_Wait(done, marks))
        self._note_progress()
        return done

    def _on_broker_response(self, broker_id: int, request: Message, response: Message) -> None:
        self._on_response(broker_id, request, response)
        if self._waiting:
            asyncio.get_running_loop().call_soon(self._note_progress)  # After the next request has left.

    def _note_progress(self) -> None:
        waiting, self._waiting = self._waiting, []
        for wait in waiting:
            if any(self._is_awaited(*mark) for mark in wait.marks):
                self._waiting.append(wait)
            elif not wait.done.done():
                wait.done.set_result(None)

    def _is_awaited(self, broker_id: int, outbox: "_Outbox", accepted: int) -> bool:
        return outbox.completed < accepted and broker_id not in self._unreachable

    def unreachable_changed(self) -> None:
        """Stop waiting for brokers that have become unreachable."""
        self._note_progress()

    def is_behind(self, broker_id: int) -> bool:
        """Return whether the broker has yet to be sent everything afresh."""
        outbox = self._outboxes.get(broker_id)
        return outbox is not None and outbox.is_behind

    def forget(self, broker_id: int) -> None:
        """Drop the requests to a broker that has stopped or registered anew; a late response does not count."""
        outbox = self._outboxes.pop(broker_id, None)
        if outbox is not None:
            outbox.close()
            self._note_progress()

    def close(self) -> None:
        """Drop all requests, and send nothing more."""
        for broker_id in list(self._outboxes):
            self.forget(broker_id)
        self._note_progress()


class _Wait(NamedTuple):
    """A wait for the responses to all that was sent before it began."""

    done: "asyncio.Future[None]"
    marks: "list[tuple[int, _Outbox, int]]"
    """Each broker, its outbox, and how many requests that had accepted."""


class _Outbox:
    """The requests to one broker."""

    def __init__(
        self,
        broker_id: int,
        channel: BrokerChannel,
        on_response: OnControlResponse,
        on_caught_up: OnCaughtUp,
        on_behind: Callable[[], None],
    ) -> None:
        self.is_behind = False
        self.accepted = 0
        """How many requests there were to send."""
        self.completed = 0
        """How many of them have a response, or were dropped."""
        self._broker_id = broker_id
        self._channel = channel
        self._on_response = on_response
        self._on_caught_up = on_caught_up
        self._on_behind = on_behind
        self._queue: deque[Message] = deque()
        self._under_way: Message | None = None
        self._failures = 0
        self._timer: asyncio.TimerHandle | None = None
        self._sending = False
        self._resting = False
        """A request that takes long got its response in this turn of the loop."""
        self._closed = False

    def send(self, request: Message) -> None:
        if self._closed or self.is_behind:
            return
        if len(self._queue) >= _MOST_WAITING:
            logger.warning("Broker %d does not respond: it will be sent everything afresh", self._broker_id)
            self._fall_behind()
            return
        self.accepted += 1
        self._queue.append(request)
        self._send_next()

    def close(self) -> None:
        self._closed = True
        self._queue.clear()
        self.completed = self.accepted
        if self._timer is not None:
            self._timer.cancel()

    def _fall_behind(self) -> None:
        self.is_behind = True
        self._queue.clear()
        self.completed = self.accepted
        self._on_behind()

    def _send_next(self) -> None:
        """Send until one request is under way. A local broker responds before ``send`` returns."""
        if self._sending:
            return
        self._sending = True
        try:
            while self._queue and self._under_way is None and not self._resting:
                request = self._queue.popleft()
                self._transmit(request)
                if self._under_way is None and takes_long(request):
                    self._rest()
        finally:
            self._sending = False

    def _rest(self) -> None:
        self._resting = True
        asyncio.get_running_loop().call_soon(self._wake)

    def _wake(self) -> None:
        self._resting = False
        self._send_next()

    def _transmit(self, request: Message) -> None:
        self._under_way = request
        self._channel.send(self._broker_id, request, partial(self._on_result, request))

    def _on_result(self, request: Message, response: Message | None) -> None:
        if self._closed:
            return
        if response is None or _must_repeat(response):
            self._retry(request)
            return
        self._under_way = None
        self._failures = 0
        was_behind, self.is_behind = self.is_behind, False
        self.completed += not was_behind
        self._on_response(self._broker_id, request, response)
        if was_behind:
            self._on_caught_up(self._broker_id)
        self._send_next()

    def _retry(self, request: Message) -> None:
        if self._failures == 1:  # A broker that has just registered may not listen yet.
            logger.info("Broker %d did not carry out %s; sending it again", self._broker_id, type(request).__name__)
        self._fall_behind()
        delay = min(_FIRST_RETRY_SECONDS * 2.0**self._failures, _LONGEST_RETRY_SECONDS)
        self._failures += 1
        self._timer = asyncio.get_running_loop().call_later(delay, self._transmit, request)


def _must_repeat(response: Message) -> bool:
    return isinstance(response, LeaderAndIsrResponse) and response.error_code == ErrorCode.REQUEST_TIMED_OUT
