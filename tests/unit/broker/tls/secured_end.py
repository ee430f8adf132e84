"""A TLS transport between a socket that a test plays and a connection that records, and the client at the other end."""

import asyncio
import ssl
from pathlib import Path
from typing import Any, cast

from oncelog.broker.dispatch.request import CloseConnection
from oncelog.broker.tls.tls_transport import TlsShared, TlsTransport
from tests.certificates import Certificate


class PlayedSocket:
    """The transport of a socket that takes ``room`` bytes at once."""

    def __init__(self, room: int = 1 << 30) -> None:
        self.room = room
        self.taken = bytearray()
        self.waiting = bytearray()
        self.protocol: asyncio.BufferedProtocol | None = None
        self.is_reading = True
        self.is_closed = self.is_aborted = False

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        assert high == 0

    def write(self, data: bytes) -> None:
        self.waiting += data
        self._take()
        if self.waiting and self.protocol is not None:
            self.protocol.pause_writing()

    def writelines(self, buffers: list[bytes]) -> None:
        self.write(b"".join(buffers))

    def make_room(self, size: int) -> None:
        self.room += size
        was_full = bool(self.waiting)
        self._take()
        if was_full and not self.waiting and self.protocol is not None:
            self.protocol.resume_writing()

    def _take(self) -> None:
        now = self.waiting[: self.room]
        del self.waiting[: self.room]
        self.room -= len(now)
        self.taken += now

    def get_write_buffer_size(self) -> int:
        return len(self.waiting)

    def pause_reading(self) -> None:
        self.is_reading = False

    def resume_reading(self) -> None:
        self.is_reading = True

    def is_closing(self) -> bool:
        return self.is_closed

    def close(self) -> None:
        self.is_closed = True

    def abort(self) -> None:
        self.is_closed = self.is_aborted = True

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default


class Recording:
    """The connection above, with a buffer of ``size`` bytes."""

    def __init__(self, size: int = 65_536) -> None:
        self.received = bytearray()
        self.buffer = bytearray(size)
        self.transport: TlsTransport | None = None
        self.overhead = self.held = 0
        self.refusals: list[str] = []
        self.is_paused = False
        self.is_lost = False
        self.deliveries = 0
        self.pauses_after: int | None = None
        """Deliveries after which it reads no more."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(TlsTransport, transport)

    def connection_lost(self, error: Exception | None) -> None:
        self.is_lost = True

    def get_buffer(self, sizehint: int) -> memoryview:
        return memoryview(self.buffer)

    def buffer_updated(self, nbytes: int) -> None:
        self.received += self.buffer[:nbytes]
        self.deliveries += 1
        if self.deliveries == self.pauses_after:
            assert self.transport is not None
            self.transport.pause_reading()

    def pause_writing(self) -> None:
        self.is_paused = True

    def resume_writing(self) -> None:
        self.is_paused = False

    def note_records(self, overhead: int, held: int) -> None:
        assert overhead >= 0
        assert held >= 0
        self.overhead += overhead
        self.held = held

    def close_after_responses(self, error: CloseConnection) -> None:
        self.refusals.append(str(error))


class Client:
    """A client that speaks TLS into memory."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self.incoming, self.outgoing, server_hostname="localhost")

    def shake_hands(self) -> bool:
        """Do one step; returns whether the handshake is done."""
        try:
            self.tls.do_handshake()
        except ssl.SSLWantReadError:
            return False
        return True

    def read_all(self) -> bytes:
        """Return what can be decrypted."""
        data = bytearray()
        try:
            while part := self.tls.read(65_536):
                data += part
        except ssl.SSLWantReadError:
            pass
        return bytes(data)


class SecuredEnd:
    """All three, tied together. ``turn`` carries bytes between them, and lets the loop turn."""

    def __init__(self, server: ssl.SSLContext, client: ssl.SSLContext, **options: Any) -> None:
        self.socket = PlayedSocket(options.pop("room", 1 << 30))
        self.upper = Recording(options.pop("buffer_size", 65_536))
        shared = options.pop("shared", None) or TlsShared(handshake_seconds=10, failure_delay_seconds=0)
        self.certificates: list[bytes | None] = []
        self.refusal = ""
        self.shared = shared
        self.transport = TlsTransport(self.upper, server, shared, self._on_secured)
        self.socket.protocol = self.transport
        self.transport.connection_made(cast(asyncio.BaseTransport, self.socket))
        self.client = Client(client)

    def _on_secured(self, certificate: bytes | None) -> str:
        self.certificates.append(certificate)
        return self.refusal

    async def shake_hands(self) -> None:
        """Do the whole handshake."""
        for _ in range(10):
            is_done = self.client.shake_hands()
            self.deliver(self.client.outgoing.read())
            await asyncio.sleep(0)
            self.carry_back()
            if is_done and self.certificates:
                return
        raise AssertionError(f"no handshake: {self.upper.refusals}")

    def send(self, data: bytes, chunk: int = 1 << 30) -> None:
        """Encrypt what the client says, and have it arrive in chunks."""
        self.client.tls.write(data)
        self.deliver(self.client.outgoing.read(), chunk)

    def deliver(self, data: bytes, chunk: int = 1 << 30) -> None:
        """Have bytes arrive at the socket while it is read."""
        while data:
            buffer = self.transport.get_buffer(-1)
            size = min(len(buffer), len(data), chunk)
            buffer[:size] = data[:size]
            data = data[size:]
            self.transport.buffer_updated(size)

    def carry_back(self) -> None:
        """Have what the socket took arrive at the client."""
        self.client.incoming.write(bytes(self.socket.taken))
        self.socket.taken.clear()


def contexts(certificate: Certificate, maximum: ssl.TLSVersion) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Return the contexts of a broker and of a client that trusts it."""
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(certificate.certificate, certificate.key)
    return server, client_of(certificate.certificate, maximum)


def client_of(trusted: Path, maximum: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3) -> ssl.SSLContext:
    client = ssl.create_default_context(cafile=str(trusted))
    client.maximum_version = maximum
    return client
