"""Cutting the bytes that a broker sends into frames. Pure: bytes in, frames out.

A frame that comes whole within one read is a view of that read; one that spans several is received into a buffer of its
own, which grows as the bytes arrive, so that a claimed size costs nothing by itself.
"""

from struct import Struct
from typing import Final

from oncelog.clients.tls_failures import TLS_ADVICE
from oncelog.protocol.schema import Buffer

_SIZE: Final = Struct(">i")
MAX_FRAME_BYTES: Final = 256 * 1024 * 1024
"""Far above the size of any fetch; the first bytes of a web server's response, read as a size, are above it."""


_OTHER_PROTOCOLS: Final = {b"HTTP": "HTTP", b"<!DO": "HTTP", b"<htm": "HTTP", b"<HTM": "HTTP", b"SSH-": "SSH"}
"""What servers of other protocols begin with, also web servers that take the request for one of HTTP 0.9."""
_TLS_RECORDS: Final = (b"\x15\x03", b"\x16\x03")
"""An alert and a handshake."""


class BadFrame(ValueError):
    """A size that no frame may have."""


class FrameSplitter:
    """The receiving side of one connection."""

    __slots__ = ("_max_bytes", "_partial")

    def __init__(self, max_bytes: int = MAX_FRAME_BYTES) -> None:
        self._max_bytes = max_bytes
        self._partial = bytearray()
        """A frame that has begun, with its size in front; also the first bytes of a size."""

    def feed(self, data: Buffer) -> list[memoryview]:
        """Return the frames that are complete now, without their sizes."""
        frames: list[memoryview] = []
        view = memoryview(data)
        if self._partial:
            view = self._complete(view, frames)
        position = 0
        while (end := self._end_of_frame(view, position)) is not None:
            frames.append(view[position + _SIZE.size : end])
            position = end
        self._partial += view[position:]
        return frames

    def _complete(self, view: memoryview, frames: list[memoryview]) -> memoryview:
        """Move what belongs to the frame that has begun out of ``view``; return the rest."""
        view = self._fill_up_to(_SIZE.size, view)
        if len(self._partial) < _SIZE.size:
            return view
        size = self._size(self._partial, 0)
        view = self._fill_up_to(size, view)
        if len(self._partial) == size:
            whole, self._partial = self._partial, bytearray()
            frames.append(memoryview(whole)[_SIZE.size :])
        return view

    def _fill_up_to(self, size: int, view: memoryview) -> memoryview:
        missing = max(0, size - len(self._partial))
        self._partial += view[:missing]
        return view[missing:]

    def _end_of_frame(self, view: memoryview, position: int) -> int | None:
        if len(view) - position < _SIZE.size:
            return None
        end = position + self._size(view, position)
        return end if end <= len(view) else None

    def _size(self, buffer: Buffer, position: int) -> int:
        """Return the bytes of a frame and the size in front of it."""
        size: int = _SIZE.unpack_from(buffer, position)[0]
        if not 0 <= size <= self._max_bytes:
            raise BadFrame(_why_no_frame(bytes(buffer[position : position + _SIZE.size]), size))
        return _SIZE.size + size


def _why_no_frame(first: bytes, size: int) -> str:
    """Return what the bytes are that no frame begins with."""
    if first[:2] in _TLS_RECORDS:
        return f"it speaks TLS, which this connection does not use: {TLS_ADVICE}"
    protocol = _OTHER_PROTOCOLS.get(first)
    return f"a frame of {size} bytes" if protocol is None else f"it speaks {protocol}"
