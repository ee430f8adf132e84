"""One client's connection: requests in, responses out, both in order.

Request n+1 begins when request n has its response or has had all its effects: a handler that returns a future has had
them, one that returns a coroutine has not, and the connection waits for it (``Outcome``). Responses are sent in the
order of the requests, whatever the order in which they are ready. Responses that are ready together are sent in one
write (``ResponseWriter``). There is no task per request.

A connection begins a slice of its requests in one turn of the loop (``_SLICE``), or less while many connections have
requests (``turn_share``); then the others have their turn. It is not read while requests wait for the next slice: a
client that produces faster than it has its turn waits with its records on its own side, in place of filling this
broker's memory up to the bound of the next paragraph.

What a client can make the broker hold is bounded:

* The requests that are received or begun and have no response are limited in number and in bytes; at the limit the
  connection is not read.
* While the client does not read its responses, no further request is begun.
* Responses that are ready, but wait for an earlier one, are counted; above ``_MAX_READY_BYTES`` no further request is
  begun.
* A request whose response may be large (``ApiHandler.in_turn``: a fetch) is begun when it is the
  first without a response. So a connection holds one such response, however many were requested, and
  ``ResponseMemory`` bounds what all connections hold of them, if need be by disconnecting clients that do not read.
  Replica fetchers are excepted: a partition that a follower starts to copy is requested at once, by a fetch that
  overtakes the one that waits.

A malformed request ends the connection with one log line, when its turn comes: the requests before it are done, and
their responses leave.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, Final, Protocol, cast

from oncelog.broker.dispatch.api_handler import Later
from oncelog.broker.dispatch.dispatcher import Dispatcher, PendingResponse, ResponseBuffers
from oncelog.broker.dispatch.request import CloseConnection, ConnectionInfo
from oncelog.broker.network.connection_limits import Limits
from oncelog.broker.network.frames import FrameReader
from oncelog.broker.network.gate import Entrance
from oncelog.broker.network.long_requests import LONG_BYTES, Account, LongRequests
from oncelog.broker.network.mute import Mute
from oncelog.broker.network.request_order import ConnectionOrder
from oncelog.broker.network.response_memory import Reading, ResponseMemory
from oncelog.broker.network.response_slot import Finishing, LastResponse, ResponseSlot
from oncelog.broker.network.response_writer import ResponseWriter
from oncelog.broker.network.turn_share import SMALL, TurnShare, units_of
from oncelog.broker.process.supervisor import Supervisor
from oncelog.protocol.schema import Message

logger = logging.getLogger(__name__)

_MOST_REPLICA_FETCHES: Final = 2
_MAX_READY_BYTES: Final = 1 << 20
_SLICE: Final = 64
"""Begun in one turn of the loop: so many small requests, or fewer larger ones (``units_of``)."""
_SEND_ABOVE: Final = 256 * 1024


class Owner(Protocol):
    """Who keeps the list of connections."""

    def connection_made(self, connection: "Connection") -> bool:
        """Return whether there is room for the connection."""

    def connection_lost(self, connection: "Connection") -> None: ...

    def adopt_heartbeats(self, connection: "Connection", transport: asyncio.Transport) -> bool:
        """Respond to heartbeats in place of the connection, which has then ended; False if the connection has to."""

    def new_connection_id(self) -> int:
        """Return a number, from 1, that no connection has or had."""

    def all_accepted_until(self) -> float:
        """Return a time of the loop's clock: what was connected before it has been accepted (``LoopTurns``)."""

    @property
    def response_memory(self) -> ResponseMemory: ...
    @property
    def turn_share(self) -> TurnShare: ...
    @property
    def long_requests(self) -> LongRequests: ...


class Connection(asyncio.BufferedProtocol):
    """The protocol of one connection."""

    __slots__ = (
        "_blocked",
        "_bytes",
        "_closing",
        "_dispatcher",
        "_frames",
        "_limits",
        "_listener_name",
        "_long_requests",
        "_loop",
        "_mute",
        "_order",
        "_owner",
        "_reader",
        "_reading_paused",
        "_ready_bytes",
        "_resting",
        "_slice",
        "_slots",
        "_supervisor",
        "_transport",
        "_turn_share",
        "bytes_in",
        "entrance",
        "has_sent_request",
        "info",
        "last_activity",
        "writer",
    )

    _transport: asyncio.Transport
    _order: ConnectionOrder
    info: ConnectionInfo
    writer: ResponseWriter
    """For reading only."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        supervisor: Supervisor,
        owner: Owner,
        limits: Limits,
        listener_name: str,
        scratch: bytearray,
    ) -> None:
        self._dispatcher = dispatcher
        self._supervisor = supervisor
        self._owner = owner
        self._limits = limits
        self._listener_name = listener_name
        self._reader = FrameReader(limits.socket_request_max_bytes, scratch)
        self.entrance = Entrance(dispatcher, self._reader)
        self._loop = asyncio.get_running_loop()
        self._frames: deque[memoryview] = deque()
        """Received, not begun."""
        self._slots: deque[ResponseSlot] = deque()
        """Begun, without a response, in order."""
        self._bytes = 0
        """The size of what is in both."""
        self._ready_bytes = 0
        """The size of the responses in slots."""
        self._turn_share = owner.turn_share
        self._long_requests = owner.long_requests
        self._slice = _SLICE
        self._resting = False
        """The slice of this turn is used up."""
        self._blocked = False
        """A coroutine of this connection runs: nothing begins before it is done."""
        self._mute = Mute(self._loop, self._process)
        self._closing = False
        self._reading_paused = False
        self.last_activity = self._loop.time()
        self.has_sent_request = False
        """Whether a whole request has come, of a client that is authenticated where it must be."""
        self.bytes_in = 0

    # What the transport calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's transports are none by class.
        socket = transport.get_extra_info("socket")
        peer = transport.get_extra_info("peername") or ("unknown", 0)
        self.info = ConnectionInfo(
            client_host=peer[0],
            client_port=peer[1],
            listener_name=self._listener_name,
            id=self._owner.new_connection_id(),
            connected_after=self._owner.all_accepted_until(),
        )
        self.info.on_throttle = self._mute.begin
        if socket is not None:
            self.info.descriptor = socket.fileno()
        self.writer = ResponseWriter(self._transport, self.info, self._owner.response_memory)
        self._order = self.info.order = ConnectionOrder(
            self._loop, self.writer, self._reader, self._frames, self.info.descriptor
        )
        if not self._owner.connection_made(self):
            self.abort()

    def connection_lost(self, error: Exception | None) -> None:
        self._closing = True
        self.info.is_open = False
        self.info.order = self.info.on_throttle = None
        self._mute.forget()
        self._order.forget()
        self.entrance.connection_lost()
        self._frames.clear()
        for slot in self._slots:
            if slot.later is not None:
                slot.later.cancel()
        self._slots.clear()
        try:
            self._owner.response_memory.remove_slow(self)
            self.writer.release()
        finally:  # Whatever is wrong with the account, the connection's slot is free.
            self._owner.connection_lost(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._reader.get_buffer()

    def buffer_updated(self, nbytes: int) -> None:
        self.last_activity = self._loop.time()
        self.bytes_in += nbytes
        order = self._order
        if order.settling:
            order.note_arriving()
        order.received_bytes += nbytes
        order.received_at = self.last_activity
        frames = self._reader.buffer_updated(nbytes)
        if self._closing or not (frames or self._reader.refusal):
            return
        self.has_sent_request = self.entrance.is_open
        self._frames += frames
        order.received += len(frames)
        if order.settling:
            order.note_read()
        for frame in frames:
            self._bytes += len(frame)
        self._process()

    def note_records(self, overhead: int, held: int) -> None:
        """Note what TLS has added to the bytes that come next, and how many have arrived that cannot be read yet."""
        self._reader.held = held
        self._order.received_bytes += overhead

    def pause_writing(self) -> None:
        self.writer.pause(self._loop.time())
        self._owner.response_memory.add_slow(self)

    def resume_writing(self) -> None:
        self._owner.response_memory.remove_slow(self)
        self.writer.resume()
        self.last_activity = self._loop.time()
        self._process()

    def note_reading(self) -> Reading:
        """Look how far a client is that has not read its responses; to read some of them is activity."""
        reading = self.writer.note_reading(self._loop.time())
        self.last_activity = max(self.last_activity, reading.last_read)
        return reading

    # Requests and responses

    def _process(self) -> None:
        """Begin what may begin, send what may leave."""
        out: ResponseBuffers = []
        unsent = 0
        frames, slots, info = self._frames, self._slots, self.info
        share, allowed, writer, entrance, mute = self._turn_share, self._slice, self.writer, self.entrance, self._mute
        if frames and allowed > share.left:
            if share.left <= 0 < allowed and units_of(frames[0]) > 1:
                self._rest(share.await_turn)
                allowed = 0
            else:
                allowed = share.limit(allowed)
        left = allowed
        while frames and left > 0 and not (self._blocked or mute.is_on or writer.is_paused or self._closing):
            frame = frames[0]
            if slots and self._must_wait(frame):
                break
            if len(frame) >= LONG_BYTES and self._awaits_room(frame):
                break
            del frames[0]
            left -= 1 if len(frame) < SMALL else units_of(frame)
            try:
                response = entrance.dispatch(frame, info)
            except CloseConnection as error:
                self.close_after_responses(error)
                break
            if isinstance(response, PendingResponse):
                self._wait(response, frame)
                continue
            self._bytes -= len(frame)
            if not slots:
                out += response
                unsent += len(response[0]) if len(response) == 1 else sum(map(len, response))
                if unsent >= _SEND_ABOVE:  # So that a client that does not read stops us here, not after the loop.
                    writer.send(out, unsent)
                    out, unsent = [], 0
            elif response:
                slot = ResponseSlot(response)
                slots.append(slot)
                self._ready_bytes += slot.ready_bytes
            if self._order.in_hand:
                self._order.place_in_hand(slots)
        if out:
            writer.send(out, unsent)
        if left != allowed:
            begun = allowed - left
            self._slice -= begun
            if begun < share.left:
                share.left -= begun
            else:
                share.spend(begun)
        if left <= 0 and not self._resting:
            self._rest(self._loop.call_soon)
        if frames or slots or self._reading_paused or self._reader.refusal or mute.is_on:
            self._pace_reading()
        if info.carries_heartbeats and not (frames or slots or self._closing):
            info.carries_heartbeats = False
            self._closing = self._owner.adopt_heartbeats(self, self._transport)
            if self._closing:
                info.order = None

    def _must_wait(self, frame: memoryview) -> bool:
        """Return whether a request may not begin before earlier ones have responses, or so much is ready behind them.

        A follower's fetch may overtake one that waits, as it names partitions that its session has not yet.
        """
        if self._ready_bytes >= _MAX_READY_BYTES:
            return True
        if not self._dispatcher.is_in_turn(frame):
            return False
        return len(self._slots) >= (_MOST_REPLICA_FETCHES if self.info.is_replica_fetcher else 1)

    def _rest(self, resume: Callable[[Callable[[], None]], object]) -> None:
        """Begin no more before ``resume`` calls back."""
        self._resting = True
        self._slice = 0
        resume(self._next_slice)

    def _awaits_room(self, frame: memoryview) -> bool:
        """Return whether a long request must wait for others; if so, no more begins until it may."""
        account = self._long_requests.account_of(frame)
        if account is None or account.has_room(len(frame)):
            return False
        self._rest(account.await_room)
        return True

    def _next_slice(self) -> None:
        self._resting = False
        self._slice = _SLICE
        if self._frames:
            self._process()

    def _wait(self, request: PendingResponse, frame: memoryview) -> None:
        slot = ResponseSlot(size=len(frame))
        if self._order.in_hand:
            slot.on_arrived = self._order.take_in_hand()
        self._slots.append(slot)
        if isinstance(request.awaitable, asyncio.Future):
            self._wait_for(request.awaitable, request, slot)
        else:
            self._blocked = True
            account = self._long_requests.account_of(frame)
            if account is not None:
                account.begun(len(frame))
            on_done = partial(self._unblock, account, request, slot)
            self._supervisor.spawn(request.awaitable, request.name, on_done=on_done)

    def _wait_for(self, later: Later, request: PendingResponse, slot: ResponseSlot) -> None:
        slot.later = later
        later.add_done_callback(partial(self._finish, request, slot))

    def _unblock(
        self,
        account: Account | None,
        request: PendingResponse,
        slot: ResponseSlot,
        task: "asyncio.Future[Message | Later | None]",
    ) -> None:
        """Begin the next request: the coroutine is done, even if its own response comes later still."""
        if account is not None:
            account.done(slot.size)
        self._blocked = False
        if self._order.in_hand:
            slot.on_arrived += self._order.take_in_hand()
        later = None if task.cancelled() or task.exception() is not None else task.result()
        if isinstance(later, asyncio.Future):
            self._wait_for(later, request, slot)
            if not self._slots:  # The connection was lost meanwhile.
                later.cancel()
            self._process()
        else:
            self._finish(request, slot, task)

    def _finish(self, request: Finishing, slot: ResponseSlot, done: Any) -> None:
        try:
            response = request.finish(done)
        except CloseConnection as error:
            response, slot.closes = [], True
            self._stop_reading(str(error))
        slot.response = response
        if self._slots:  # Otherwise the connection was lost meanwhile.
            slot.ready_bytes = sum(map(len, response))
            self._ready_bytes += slot.ready_bytes
            self.last_activity = self._loop.time()
            self._send_ready()
            if self._frames or self._reading_paused or self._reader.refusal or self.info.carries_heartbeats:
                self._process()

    def _send_ready(self) -> None:
        out: ResponseBuffers = []
        size = 0
        slots = self._slots
        while slots and slots[0].response is not None:
            slot = slots.popleft()
            self._bytes -= slot.size
            self._ready_bytes -= slot.ready_bytes
            out += slot.response or ()
            size += slot.ready_bytes
            if slot.on_arrived:
                self._order.note_sent(slot.on_arrived)
            if slot.closes:
                self.writer.send(out, size)
                self._transport.close()
                return
        self.writer.send(out, size)

    def _pace_reading(self) -> None:
        """Read, or do not read, by what waits."""
        if self._reader.refusal and not self._frames:
            self.close_after_responses(self.entrance.refuse(self._reader.refusal))
        if self._closing:
            return
        limits = self._limits
        full = (
            len(self._frames) + len(self._slots) >= limits.oncelog_connection_max_inflight_requests
            or self._bytes >= limits.oncelog_connection_max_inflight_bytes
            or self._reader.refusal != ""
            or (self._resting and len(self._frames) > 0)
            or self._mute.is_on
        )
        if full != self._reading_paused:
            self._reading_paused = full
            if full:
                self._transport.pause_reading()
            else:
                self._transport.resume_reading()

    # The end

    @property
    def is_idle(self) -> bool:
        """Whether nothing is under way that this broker owes.

        Requests that came before a malformed one do not keep a connection for ever, nor do responses that the client
        does not read.
        """
        return self._closing or self.writer.is_paused or (not self._slots and not self._frames)

    def close(self) -> None:
        """End the connection once what is written has left."""
        self._closing = True
        self._transport.close()

    def abort(self) -> None:
        """End the connection now."""
        self._closing = True
        self._transport.abort()

    def close_after_responses(self, error: CloseConnection) -> None:
        """Read nothing more, and end the connection when its responses, and the last one, have left."""
        if not self._closing:
            self._stop_reading(str(error))
            slot = ResponseSlot(closes=True)
            self._slots.append(slot)
            self._loop.call_later(error.after_seconds, self._finish, LastResponse(error.response), slot, None)

    def _stop_reading(self, reason: str) -> None:
        if self._closing:
            return
        logger.warning("Closing the connection of %s: %s", self.info, reason)
        self._closing = True
        self._frames.clear()
        if not self._reading_paused:
            self._transport.pause_reading()
