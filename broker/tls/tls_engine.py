"""``TlsEngine``: OpenSSL's state of one connection, between bytes of a socket and bytes of a connection."""

import ssl
from typing import Final, NamedTuple, TypeAlias, cast

from oncelog.broker.tls.record_count import RecordCount

Buffer: TypeAlias = bytes | bytearray | memoryview

_DRAINED: Final = ssl.SSLWantReadError()


class Decrypted(NamedTuple):
    """What one buffer was filled with."""

    size: int
    overhead: int
    """Bytes of the socket beyond ``size`` that are accounted for by it: what TLS has added."""
    held: int
    """Bytes that have arrived and are not accounted for."""
    is_drained: bool
    """Everything that can be decrypted has been."""
    failure: Exception | None
    """Why nothing more will come; ``EOFError`` if the client has said so."""


class TlsEngine:
    """Encrypts and decrypts in memory."""

    __slots__ = ("_counted", "_incoming", "_records", "_tls", "first_byte", "outgoing")

    def __init__(self, context: ssl.SSLContext, first: Buffer) -> None:
        """Begin with the ``first`` bytes of a client, which are given to ``feed`` as well."""
        self._incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self.outgoing, server_side=True)
        self._records = RecordCount()
        self._counted = 0
        """Bytes of the socket that the connection knows of."""
        self.first_byte = first[0]

    def feed(self, data: memoryview) -> None:
        """Take bytes that have come."""
        self._incoming.write(data)
        self._records.feed(data)

    def shake_hands(self) -> bool:
        """Do one step of the handshake; returns whether it is done. Raises ``ssl.SSLError`` if it has failed."""
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return False
        return True

    def certificate(self) -> bytes | None:
        """Return the client's certificate, as DER; None if it has none."""
        return self._tls.getpeercert(binary_form=True)

    def decrypt(self, buffer: memoryview) -> Decrypted:
        """Fill a buffer with what has come."""
        size, failure = self._fill(buffer)
        is_drained = isinstance(failure, ssl.SSLWantReadError)
        records = self._records
        overhead = records.whole - self._counted - size if is_drained else 0
        self._counted += size + overhead
        held = records.arrived - self._counted
        return Decrypted(size, overhead, held, is_drained, None if is_drained else failure)

    def _fill(self, buffer: memoryview) -> tuple[int, Exception | None]:
        """Return how many bytes the buffer has, and why it is not full, if it is not."""
        read, incoming, size, filled = self._tls.read, self._incoming, len(buffer), 0
        try:
            while filled < size:
                count = read(size - filled, buffer[filled:])  # type: ignore[arg-type]
                if not count:
                    return filled, EOFError()
                filled += cast(int, count)
                if not incoming.pending and filled < size:  # It takes no more than one record from there.
                    return filled, _DRAINED
        except ssl.SSLError as error:
            return filled, error
        return filled, None

    def encrypt(self, data: Buffer) -> bytes:
        """Return bytes encrypted, behind what OpenSSL has to say by itself."""
        if data:
            self._tls.write(data)
        return self.outgoing.read()

    def end(self) -> bytes:
        """Return what tells the client that nothing more will come."""
        try:
            self._tls.unwrap()
        except ssl.SSLError:  # It waits for the client's own, which need not come.
            pass
        return self.outgoing.read()
