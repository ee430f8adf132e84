"""``TlsTransport``: a connection's transport that speaks TLS over the transport of a socket.

The event loop's own TLS keeps hundreds of KiB for each connection that was busy once, and takes in half as much for the
same processor time. This one feeds OpenSSL from a buffer that all connections of a loop share (``TlsShared``), has it
decrypt into the buffer of the connection above, where frames are cut, and encrypts no more than the socket takes.

* **Handshake.** Its steps take turns (``HandshakeTurns``). It must be done within a time; a client that cannot do it
  gets an alert of TLS, and has one line in the log.
* **Reading.** What has come is decrypted at once, several records for one call of the connection. While the connection
  pauses reading, nothing is decrypted, and the socket is not read.
* **Writing.** ``TlsWriter``.
* **The end.** ``close`` sends what was written, and that this was all. ``abort`` does neither.

The connection above exists from the beginning, so that one in its handshake counts among all others.
"""

import asyncio
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, Protocol, cast

from oncelog.broker.dispatch.request import CloseConnection
from oncelog.broker.tls.handshake_errors import describe_failure
from oncelog.broker.tls.handshake_turns import HandshakeTurns
from oncelog.broker.tls.tls_engine import TlsEngine
from oncelog.broker.tls.tls_writer import TlsWriter

_SOCKET_BUFFER: Final = 2 * (5 + 16_384 + 256)
"""Two of the largest records (RFC 8446, 5.2)."""


def _ignore_failure(reason: str) -> None:
    """Do nothing about a handshake that failed: it is logged anyway."""


class SecuredProtocol(Protocol):
    """The connection above."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None: ...
    def connection_lost(self, error: Exception | None) -> None: ...
    def get_buffer(self, sizehint: int) -> memoryview: ...
    def buffer_updated(self, nbytes: int) -> None: ...
    def pause_writing(self) -> None: ...
    def resume_writing(self) -> None: ...
    def note_records(self, overhead: int, held: int) -> None:
        """Note how many bytes TLS has added to what comes next, and how many have arrived that cannot be read yet."""

    def close_after_responses(self, error: CloseConnection) -> None:
        """Read nothing more, and close the transport after a time: the handshake has failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsShared:
    """What all connections of a server share."""

    handshake_seconds: float
    """How long a handshake may take."""
    failure_delay_seconds: float
    """From the failure of a handshake to the end of its connection."""
    turns: HandshakeTurns = field(default_factory=HandshakeTurns)
    received: memoryview = field(default_factory=lambda: memoryview(bytearray(_SOCKET_BUFFER)))
    """A transport fills it and reports within one call, so no other connection can be using it."""


class TlsState(NamedTuple):
    """A secured connection, for another transport to carry on with."""

    context: ssl.SSLContext
    engine: TlsEngine


class TlsTransport(asyncio.BufferedProtocol):
    """The protocol of the socket's transport, and the transport of the connection above."""

    __slots__ = (
        "_awaits_turn",
        "_closing",
        "_context",
        "_deadline",
        "_engine",
        "_has_undelivered",
        "_is_secured",
        "_loop",
        "_on_failed",
        "_on_secured",
        "_reading_paused",
        "_shared",
        "_socket",
        "_upper",
        "_writer",
        "get_write_buffer_size",
        "set_write_buffer_limits",
        "write",
        "writelines",
    )

    _socket: asyncio.Transport
    _writer: TlsWriter

    def __init__(
        self,
        upper: SecuredProtocol,
        context: ssl.SSLContext,
        shared: TlsShared,
        on_secured: Callable[[bytes | None], str],
        on_failed: Callable[[str], None] = _ignore_failure,
    ) -> None:
        """Carry one connection.

        ``on_secured`` is called when the handshake is done, with the client's certificate (DER), and returns why the
        client is refused; nothing if it is not. ``on_failed`` is called with the reason if the handshake has failed, or
        the client is refused.
        """
        self._upper = upper
        self._context = context
        self._shared = shared
        self._on_secured = on_secured
        self._on_failed = on_failed
        self._loop = asyncio.get_running_loop()
        self._deadline: asyncio.TimerHandle | None = None
        self._engine: TlsEngine | None = None
        """None before the first byte, and when the connection is lost."""
        self._is_secured = False
        self._awaits_turn = False
        """A step of the handshake is to come."""
        self._reading_paused = False
        self._has_undelivered = False
        """The connection above has paused before it had everything that can be decrypted."""
        self._closing = False

    @classmethod
    def carry_on(cls, state: TlsState, upper: SecuredProtocol, shared: TlsShared) -> "TlsTransport":
        """Return the transport of a connection that another one has handed over."""
        transport = cls(upper, state.context, shared, lambda _: "")
        transport._engine = state.engine
        transport._is_secured = True
        return transport

    def hand_over(self) -> TlsState | None:
        """End here without a word, for ``carry_on`` over another descriptor of the socket.

        Returns None, and goes on, while something is to be sent or delivered.
        """
        engine = self._engine
        if engine is None or not self._is_secured or self._closing or self._has_undelivered:
            return None
        if self._writer.get_write_buffer_size():
            return None
        self._closing = True
        self._engine = None
        self._writer.forget()
        self._socket.close()
        return TlsState(self._context, engine)

    # The protocol of the socket

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._socket = cast(asyncio.Transport, transport)  # uvloop's transports are none by class.
        writer = self._writer = TlsWriter(self._socket, self._upper)
        self.write, self.writelines = writer.write, writer.writelines
        self.set_write_buffer_limits = writer.set_write_buffer_limits
        self.get_write_buffer_size = writer.get_write_buffer_size
        if self._engine is not None:
            writer.begin(self._engine)
        else:
            self._deadline = self._loop.call_later(self._shared.handshake_seconds, self._time_out)
        self._upper.connection_made(cast(asyncio.BaseTransport, self))

    def connection_lost(self, error: Exception | None) -> None:
        self._closing = True
        self._engine = None
        self._cancel_deadline()
        self._writer.forget()
        self._upper.connection_lost(error)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._shared.received

    def buffer_updated(self, nbytes: int) -> None:
        if self._closing:
            return
        data = self._shared.received[:nbytes]
        engine = self._engine
        if engine is None:
            engine = self._engine = TlsEngine(self._context, data)
        engine.feed(data)
        if self._is_secured:
            self._read()
        elif not self._awaits_turn:
            self._awaits_turn = True
            self._socket.pause_reading()
            self._shared.turns.add(self._shake_hands)

    def pause_writing(self) -> None:
        self._writer.pause_writing()

    def resume_writing(self) -> None:
        self._writer.resume_writing()

    # The handshake

    def _shake_hands(self) -> None:
        """Do one step, with what has come."""
        self._awaits_turn = False
        engine = self._engine
        if self._closing or engine is None:
            return
        try:
            is_done = engine.shake_hands()
        except ssl.SSLError as error:
            self._writer.send_unasked(engine)
            reason = describe_failure(error, engine.first_byte)
            self._on_failed(reason)
            self._refuse(reason)
            return
        self._writer.send_unasked(engine)
        if is_done:
            self._begin_to_serve(engine)
        self._pace_socket()

    def _begin_to_serve(self, engine: TlsEngine) -> None:
        self._is_secured = True
        self._cancel_deadline()
        self._writer.begin(engine)
        refusal = self._on_secured(engine.certificate())
        if refusal:
            self._on_failed(refusal)
            self._refuse(refusal)
        else:
            self._read()

    def _refuse(self, reason: str) -> None:
        self._cancel_deadline()
        delay = self._shared.failure_delay_seconds
        self._upper.close_after_responses(CloseConnection(reason, after_seconds=delay))

    def _time_out(self) -> None:
        seconds = self._shared.handshake_seconds
        reason = f"no TLS handshake within {seconds:g} s (oncelog.authentication.timeout.ms)"
        self._on_failed(reason)
        self._upper.close_after_responses(CloseConnection(reason))

    def _cancel_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    # Reading

    def _read(self) -> None:
        """Deliver what has come, until that is all of it or the connection above pauses."""
        upper, engine = self._upper, self._engine
        assert engine is not None
        self._has_undelivered = False
        while not self._closing:
            if self._reading_paused:
                self._has_undelivered = True
                return
            decrypted = engine.decrypt(upper.get_buffer(-1))
            upper.note_records(decrypted.overhead, decrypted.held)
            if decrypted.size:
                upper.buffer_updated(decrypted.size)
            if decrypted.failure is not None:
                self._end_by(decrypted.failure)
            if decrypted.is_drained or decrypted.failure is not None:
                break
        if not self._closing and not self._writer.send_unasked(engine):
            self.abort()

    def _end_by(self, failure: Exception) -> None:
        if isinstance(failure, EOFError):
            self.close()
        elif self._engine is not None:
            self._writer.send_unasked(self._engine)
            self._refuse(f"what it sends cannot be decrypted: {failure}")

    def pause_reading(self) -> None:
        self._reading_paused = True
        if not (self._awaits_turn or self._socket.is_closing()):
            self._socket.pause_reading()

    def resume_reading(self) -> None:
        self._reading_paused = False
        self._pace_socket()
        if self._has_undelivered:
            self._loop.call_soon(self._read_on)

    def _read_on(self) -> None:
        if self._has_undelivered and not self._closing:
            self._read()

    def _pace_socket(self) -> None:
        if not (self._reading_paused or self._awaits_turn or self._closing or self._socket.is_closing()):
            self._socket.resume_reading()

    # The end

    def is_closing(self) -> bool:
        return self._closing or self._socket.is_closing()

    def close(self) -> None:
        if self._closing:
            return
        self._closing = True
        if not self._socket.is_closing():
            self._socket.pause_reading()
        self._writer.finish(self._say_goodbye)

    def _say_goodbye(self) -> None:
        if self._engine is not None and self._is_secured and not self._socket.is_closing():
            self._socket.write(self._engine.end())
        self._socket.close()

    def abort(self) -> None:
        self._closing = True
        self._socket.abort()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._context if name == "sslcontext" else self._socket.get_extra_info(name, default)
