"""``TlsWriter``: the sending side of a connection with TLS.

What the socket has no room for waits as it was given, not encrypted. A large response is encrypted in slices, each in a
turn of the loop.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from typing import Final, Protocol

from oncelog.broker.tls.tls_engine import Buffer, TlsEngine

_PIECE: Final = 64 * 1024
"""Encrypted in one call; OpenSSL keeps a buffer of this size for each connection."""
_AT_ONCE: Final = 4
"""Pieces in one write to the socket."""
_SLICE: Final = 1 << 20
"""Encrypted in one turn of the loop."""
_MOST_UNREAD: Final = 64 * 1024
"""Of what OpenSSL says by itself, such as its responses to updates of keys, if the client does not read."""
_HIGH_WATER: Final = 64 * 1024


class Paced(Protocol):
    """The connection above, which is to wait while much is unsent."""

    def pause_writing(self) -> None: ...
    def resume_writing(self) -> None: ...


class TlsWriter:
    """Encrypts what is written, as far as the socket takes it."""

    __slots__ = (
        "_flushes_later",
        "_high",
        "_is_full",
        "_is_over",
        "_loop",
        "_low",
        "_on_drained",
        "_queue",
        "_queued",
        "_socket",
        "_upper",
        "_upper_paused",
        "engine",
    )

    def __init__(self, socket: asyncio.Transport, upper: Paced) -> None:
        self._socket = socket
        self._upper = upper
        self._loop = asyncio.get_running_loop()
        self.engine: TlsEngine | None = None
        """None before the handshake is done: nothing is encrypted then."""
        self._queue: deque[memoryview] = deque()
        """Written, not encrypted."""
        self._queued = 0
        """The size of that."""
        self._is_full = False
        """The socket takes nothing more."""
        self._is_over = False
        self._flushes_later = False
        self._on_drained: Callable[[], None] | None = None
        self._high, self._low = _HIGH_WATER, _HIGH_WATER // 4
        self._upper_paused = False
        socket.set_write_buffer_limits(high=0)

    # What the socket's transport calls

    def pause_writing(self) -> None:
        """Note that the socket takes nothing more."""
        self._is_full = True

    def resume_writing(self) -> None:
        """Note that the socket has sent everything."""
        self._is_full = False
        self._flush()

    # What the connection calls

    def write(self, data: Buffer) -> None:
        """Send bytes behind those that wait."""
        engine = self.engine
        if self._queue or self._is_full or self._is_over or engine is None or len(data) > _PIECE:
            self.writelines((data,))
        elif data:
            self._socket.write(engine.encrypt(data))
            if self._is_full:
                self._pace_upper()

    def writelines(self, buffers: Iterable[Buffer]) -> None:
        """Send bytes behind those that wait."""
        if self._is_over:
            return
        for buffer in buffers:
            self._queue.append(memoryview(buffer))
            self._queued += len(buffer)
        if not self._flushes_later:
            self._flush()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Set how much may be unsent before the connection is to wait, and how little for it to go on."""
        self._high = _HIGH_WATER if high is None else high
        self._low = self._high // 4 if low is None else low
        self._pace_upper()

    def get_write_buffer_size(self) -> int:
        """Return how many bytes are unsent."""
        unsaid = 0 if self.engine is None else self.engine.outgoing.pending
        return self._queued + unsaid + self._socket.get_write_buffer_size()

    # What the transport calls

    def begin(self, engine: TlsEngine) -> None:
        """Encrypt from now on: the handshake is done."""
        self.engine = engine
        self._flush()

    def finish(self, on_drained: Callable[[], None]) -> None:
        """Take nothing more, and call back when everything is handed to the socket."""
        self._is_over = True
        if self._queue and self.engine is not None:
            self._on_drained = on_drained
        else:
            on_drained()

    def forget(self) -> None:
        """Drop what waits: the connection is lost."""
        self._is_over = True
        self.engine = self._on_drained = None
        self._queue.clear()
        self._queued = 0

    def send_unasked(self, engine: TlsEngine) -> bool:
        """Send what OpenSSL has to say by itself; returns False if the client has left too much of it unread."""
        pending = engine.outgoing.pending
        if pending and not self._is_full:
            self._socket.write(engine.outgoing.read())
        return not self._is_full or pending <= _MOST_UNREAD

    def _flush(self) -> None:
        """Encrypt and send what the socket takes, and a slice at most."""
        engine = self.engine
        if engine is None:
            return
        left = _SLICE
        while self._queue and not self._is_full and left > 0:
            encrypted = []
            for _ in range(_AT_ONCE):
                piece = self._next_piece()
                left -= len(piece)
                encrypted.append(engine.encrypt(piece))
                if not self._queue:
                    break
            self._socket.writelines(encrypted)
        self.send_unasked(engine)
        if self._queue and not self._is_full:
            if not self._flushes_later:
                self._flushes_later = True
                self._loop.call_soon(self._flush_later)
        elif self._on_drained is not None and not self._queue:
            on_drained, self._on_drained = self._on_drained, None
            on_drained()
        self._pace_upper()

    def _flush_later(self) -> None:
        self._flushes_later = False
        self._flush()

    def _next_piece(self) -> memoryview:
        data = self._queue.popleft()
        if len(data) > _PIECE:
            self._queue.appendleft(data[_PIECE:])
            data = data[:_PIECE]
        self._queued -= len(data)
        return data

    def _pace_upper(self) -> None:
        size = self.get_write_buffer_size()
        if size > self._high and not self._upper_paused:
            self._upper_paused = True
            self._upper.pause_writing()
        elif size <= self._low and self._upper_paused:
            self._upper_paused = False
            self._upper.resume_writing()
