"""A fetch from request to response: read what is there, wait if that is too little, read again.

A fetch waits until `min_bytes` can be seen at its isolation level, until something happened that its client must be
sent (a leader changed, a partition failed), or for `max_wait_ms`. It belongs to its session while it waits: partitions
notify the session, and the session notifies the fetch. Waking is deferred to the end of the loop's turn, so that many
appends of one turn are one response, and no producer waits for the reads of the fetches that its append wakes.

A response gets what ``ResponseMemory`` grants at the moment when it is read. What must come from the disk is counted
there until it has been handed to its connection; what is in memory already is handed over in the next turn, and one
turn reads little. A fetch that comes, or is woken, when others have read much in this turn of the loop, reads in the
next one. A fetch that names very many partitions has a turn for them alone. When nothing is left of that memory, it
takes small batches, and waits for room only if there are none.

Bytes are counted, not read, while waiting. An append that became visible adds its size; any other move of the visible
end (a transaction that ended, a follower that caught up) counts anew, by the log's index. Each partition counts at most
its own maximum.

A fetch is registered with its session before it reads. A follower's fetch can advance a high watermark, and a
waiter for that offset may append to a partition that this fetch has already visited: it then reads again in the same
turn.
"""

import asyncio
from collections.abc import Callable
from typing import Final, TypeAlias

from oncelog.broker.dispatch.request import ConnectionInfo
from oncelog.broker.network.response_memory import FRUGAL_BYTES, SMALLEST_GRANT, TURN_BYTES, ResponseMemory
from oncelog.broker.network.socket_queues import unacknowledged_bytes
from oncelog.broker.process.containment import Containment
from oncelog.broker.replication.fetch_reader import Attempt, FetchParams, FetchReader
from oncelog.broker.replication.fetch_session import (
    NO_SESSION,
    FetchContext,
    FetchKind,
    FetchPosition,
)
from oncelog.broker.replication.replica_manager import ReplicaManager
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.fetch import FetchResponse

_MANY_PARTITIONS: Final = 4_000
"""To take so many over from a request takes some milliseconds, to visit them more than ten."""
_SOON_SECONDS: Final = 0.01
_SMALL_ONLY_SECONDS: Final = 2.0
"""Seconds with small batches only, while there are large ones, after which a fetch waits for room."""
_LONGEST_WAIT_FOR_ROOM_SECONDS: Final = 5.0
"""Then it takes small batches again, if there are any."""

Shape: TypeAlias = Callable[[FetchContext], FetchResponse]
"""Makes the response out of the replies."""


class DelayedFetch:
    """One fetch request. `start` is called once."""

    __slots__ = (
        "_available",
        "_awaits_room",
        "_client",
        "_context",
        "_future",
        "_has_awaited_room",
        "_held",
        "_hinted",
        "_loop",
        "_memory",
        "_min_bytes",
        "_params",
        "_reader",
        "_sessions",
        "_shape",
        "_spawn",
        "_timer",
        "_woken",
    )

    def __init__(
        self,
        context: FetchContext,
        params: FetchParams,
        *,
        replicas: ReplicaManager,
        shape: Shape,
        memory: ResponseMemory,
        client: ConnectionInfo,
    ) -> None:
        self._context = context
        self._client = client
        self._params = params
        self._reader = FetchReader(replicas, params)
        self._sessions = replicas.fetch_sessions
        self._shape = shape
        self._spawn = replicas.host.spawn
        self._memory = memory
        self._held = 0
        """Bytes that are read from the disk, as ``_memory`` counts them until they are handed over."""
        self._min_bytes = params.min_bytes
        if self._min_bytes > SMALLEST_GRANT:
            self._min_bytes = min(self._min_bytes, memory.grant(params.max_bytes))
        self._loop = asyncio.get_running_loop()
        self._future: asyncio.Future[FetchResponse] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._available = 0
        """Visible bytes of all partitions, as far as they are counted."""
        self._awaits_room = False
        self._has_awaited_room = False
        self._woken = False
        self._hinted = False
        """Whether something changed during the first read that the client should be sent soon."""

    def start(self) -> FetchResponse | asyncio.Future[FetchResponse]:
        """Return the response, or a future of it."""
        self._context.session.waiting = self
        if self._memory.is_busy and self._is_postponed(self._begin_late):
            return self._promise()
        if len(self._context.session.dirty) > _MANY_PARTITIONS:
            self._loop.call_soon(self._begin_large)
            return self._promise()
        has_begun = False
        try:
            response = self._serve(parks=True)
            has_begun = True
        finally:
            if not has_begun:
                self._unpark()
                self._give_up()
        return self._promise() if response is None else response

    def _serve(self, *, parks: bool) -> FetchResponse | None:
        """Read. Return the response, or None if it is still to come.

        ``parks``: wait for more records if there are too few.
        """
        attempt = self._read()
        if attempt.left_large and self._must_await_room(attempt):
            self._await_room()
        elif attempt.cold:
            self._unpark()
            self._held = self._memory.exchange(self._held, attempt.size + attempt.excess)
            self._spawn(self._respond_cold(attempt), "fetch of cold data")
        elif parks and not self._is_enough(attempt):
            self._park(attempt)
        else:
            if self._context.session.waiting is self:
                self._context.session.waiting = None
            return self._respond()
        return None

    def _promise(self) -> "asyncio.Future[FetchResponse]":
        self._future = self._loop.create_future()
        self._future.add_done_callback(self._settled)
        return self._future

    def _is_postponed(self, read: Callable[[], None]) -> bool:
        return self._memory.postpone(read, for_follower=self._client.is_replica_fetcher)

    def _must_await_room(self, attempt: Attempt) -> bool:
        """Return whether to wait for room: there are only batches that are too large, now or for some time."""
        client = self._client
        if attempt.needs_room:
            return True
        now = self._loop.time()
        if client.large_left_since is None:
            client.large_left_since = now
        return now >= client.large_left_since + _SMALL_ONLY_SECONDS and not attempt.must_respond

    def _await_room(self) -> None:
        """Read again when there is room, or when something else happens that the client should be sent."""
        self._unpark()
        context, client = self._context, self._client
        if context.kind is FetchKind.SESSIONLESS:
            self._reader.watch_all(context)
        for position in context.session.dirty:  # What was read is not kept: it will be read again.
            if (reply := context.replies.get(position)) is not None and reply.records:
                del context.replies[position]
        context.session.waiting = self
        self._woken = False
        self._awaits_room = self._has_awaited_room = True
        self._timer = self._loop.call_later(_LONGEST_WAIT_FOR_ROOM_SECONDS, self._do_without_room)
        has_read = client.was_sent_much and unacknowledged_bytes(client.descriptor) < FRUGAL_BYTES
        self._memory.await_room(self._read_again, has_read=has_read)

    def _do_without_room(self) -> None:
        """Give the client the small batches that there are, if any; else it waits on, in its place."""
        self._client.large_left_since = None
        self._wake()

    def _begin_large(self) -> None:
        """Begin to read very many partitions, in a later turn than they were taken over from the request."""
        if not (self._memory.is_busy and self._is_postponed(self._read_large)):
            self._read_large()

    def _read_large(self) -> None:
        """Read in a turn in which no other fetch reads after this one."""
        self._memory.spend(TURN_BYTES)
        self._begin_late()

    def _begin_late(self) -> None:
        """Read for the first time, in a later turn than the request came."""
        future = self._future
        assert future is not None
        if future.done() or self._woken:  # Cancelled, or `_wake` is scheduled.
            return
        with Containment(self._fail):
            response = self._serve(parks=True)
            if response is not None:
                future.set_result(response)

    def _read(self) -> Attempt:
        memory, client, wanted = self._memory, self._client, self._params.max_bytes
        if not client.is_replica_fetcher and memory.is_full:
            attempt = self._reader.read(self._context, min(wanted, FRUGAL_BYTES), small_batches_only=True)
        else:
            attempt = self._reader.read(self._context, memory.grant(wanted))
        memory.spend(attempt.size)
        if not attempt.left_large:
            client.large_left_since = None
        return attempt

    def _is_enough(self, attempt: Attempt) -> bool:
        return (
            attempt.size >= self._min_bytes
            or attempt.must_respond
            or self._params.max_wait_ms <= 0
            or attempt.refused == len(self._context.session.positions)
        )

    def _park(self, attempt: Attempt) -> None:
        context = self._context
        if context.kind is FetchKind.SESSIONLESS:
            self._reader.watch_all(context)
        for position in context.session.dirty:
            # What was read is not kept: its partition is still dirty, so that it will be read again.
            reply = context.replies.pop(position, None)
            if reply is not None and reply.records and position.watched is not None:
                self._available -= position.available
                # What was appended since the visit is counted already.
                position.available = max(position.available, min(len(reply.records), position.max_bytes))
                position.seen_end = position.watched.visible_end(self._params.isolation)
                self._available += position.available
        if self._woken:
            self._loop.call_soon(self._wake)
            return
        self._timer = self._loop.call_later(self._params.max_wait_ms / 1000, self._wake)
        if attempt.has_news or self._hinted:
            self.hinted()

    def progressed(self, position: FetchPosition, base_offset: int, size: int) -> None:
        """Note that more of this partition may be visible; the last append put ``size`` bytes at ``base_offset``."""
        if self._woken or position.watched is None or position.throttled:
            return
        if self._awaits_room:
            if position not in self._reader.too_large:
                self.disturbed()
            return
        end = position.watched.visible_end(self._params.isolation)
        if end <= position.seen_end:
            return
        if self._min_bytes > 1:
            self._available -= position.available
            if position.seen_end == base_offset:
                position.available = min(position.available + size, position.max_bytes)
            else:
                size = position.watched.size_between(position.fetch_offset, end)
                position.available = min(size, position.max_bytes)
            self._available += position.available
            position.seen_end = end
        if self._min_bytes <= 1 or self._available >= self._min_bytes:
            self.disturbed()

    def disturbed(self) -> None:
        """Respond at the end of this turn."""
        if not self._woken:
            self._woken = True
            if self._future is not None:  # Else the first read goes on, and `_park` sees to it.
                self._loop.call_soon(self._wake)

    def hinted(self) -> None:
        """Respond soon: a follower's high watermark may travel with the next records, but not wait for them long."""
        if self._timer is None:
            self._hinted = True
            return
        if not self._woken and self._timer.when() > self._loop.time() + _SOON_SECONDS:
            self._timer.cancel()
            self._timer = self._loop.call_later(_SOON_SECONDS, self._wake)

    def _wake(self) -> None:
        """Respond with what is there now, or in a later turn if others have read much in this one."""
        if self._memory.is_busy and self._is_postponed(self._read_again):
            self._unpark()
        else:
            self._read_again()

    def _read_again(self) -> None:
        """Respond with what is there now. Called by `_wake` and `_memory` only: the turn has room for it."""
        self._unpark()
        future = self._future
        if future is None or future.done():
            return
        with Containment(self._fail):
            response = _overtaken(self._context) if self._context.overtaken else self._serve(parks=False)
            if response is not None:
                future.set_result(response)

    async def _respond_cold(self, attempt: Attempt) -> None:
        future = self._future
        assert future is not None
        try:
            with Containment(self._fail):
                await self._reader.read_cold(self._context, attempt)
                if future.done():
                    return
                if attempt.needs_room:  # There may be small batches behind those that are now known to be too large.
                    self._held = self._memory.exchange(self._held, 0)
                    self._wake()
                else:
                    self._held = self._memory.exchange(self._held, attempt.size)
                    future.set_result(_overtaken(self._context) if self._context.overtaken else self._respond())
        except asyncio.CancelledError:
            future.cancel()
            raise

    def _fail(self, error: Exception) -> None:
        """End with an unforeseen exception: the dispatcher, which awaits the future, handles it."""
        future = self._future
        if future is None or future.done():  # Its connection is gone: only the loop, or its task, can report the error.
            raise error
        self._unpark()
        future.set_exception(error)

    def _respond(self) -> FetchResponse:
        context, session = self._context, self._context.session
        response = self._shape(context)
        is_throttled = response.throttle_time_ms > 0 and not response.responses
        if not is_throttled:
            self._reader.count(context)
        session.responded_ms = now_ms = int(self._loop.time() * 1000)
        if context.kind is FetchKind.FULL and not is_throttled:  # A client begins anew after an empty response.
            self._sessions.keep(session, now_ms)
        response.session_id = session.id
        if session.id == NO_SESSION:
            session.close()
        return response

    def _unpark(self) -> None:
        self._woken = True
        self._awaits_room = False
        if self._timer is not None:
            self._timer.cancel()
        if self._context.session.waiting is self:
            self._context.session.waiting = None

    def _settled(self, future: "asyncio.Future[FetchResponse]") -> None:
        """Clean up: the fetch has its response, or was cancelled because the connection has gone."""
        if self._has_awaited_room:
            self._memory.forget(self._read_again)
        if self._held:  # The connection writes the response in this turn.
            self._loop.call_soon(self._memory.release, self._held)
        if future.cancelled() or future.exception() is not None:
            self._unpark()
            self._give_up()

    def _give_up(self) -> None:
        """End a session that the client does not know of: there will be no response."""
        if self._context.kind is not FetchKind.INCREMENTAL:
            self._context.session.close()


def _overtaken(context: FetchContext) -> FetchResponse:
    """Return the response to a fetch whose session has accepted a later one."""
    return FetchResponse(error_code=ErrorCode.INVALID_FETCH_SESSION_EPOCH, session_id=context.session.id)
