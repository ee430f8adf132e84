"""Cutting a connection's byte stream into frames, with as little copying as the frames' lifetimes allow.

A frame is a signed 32-bit size and that many bytes. A transport receives into the buffer that ``get_buffer`` hands out
and then says how much came (``buffer_updated``), which gives two ways:

* Between frames, bytes land in a scratch buffer that all connections of a loop share: a transport fills it and reports
  within one call, so no other connection can be using it. The whole frames in it, often many small ones, are copied out
  once, together, and are views of that copy.
* A frame that has begun but is not complete gets a buffer of its own, and the rest of it is received there directly.

So a view of a frame never sees a buffer that is used again, and a large produce is copied at most for the part of it
that came together with the end of the frame before. A frame's own buffer grows with what has arrived, fourfold at most
and by 1 MiB at most: a connection that announces 100 MiB and sends five bytes costs a few KiB. A connection that has
sent a large frame gets as much for its next one at once, up to 1 MiB, so that large produces are received in few reads.

A frame is refused by its size and, if it is a request, by the most that its API may have (``request_limits``): both are
known when its first six bytes are there.
"""

from struct import Struct
from typing import Final

from oncelog.broker.dispatch.request_limits import limit_of
from oncelog.protocol.api_keys import ApiKey

_SIZE: Final = Struct(">i")
SCRATCH_SIZE: Final = 64 * 1024
_FIRST_BUFFER: Final = 4 * 1024
_GROWTH_FACTOR: Final = 4
_GROWTH: Final = 1 << 20
_ZEROS: Final = memoryview(bytes(_GROWTH))
_API_KEY: Final = Struct(">h")
_HELLOS: Final = range(0x160300, 0x160304)
"""How a client that speaks TLS begins: a handshake, and a version (RFC 8446, 5.1)."""


def new_scratch() -> bytearray:
    """Return a buffer that the frame readers of one event loop can share."""
    return bytearray(SCRATCH_SIZE)


class FrameReader:
    """The receiving side of one connection."""

    __slots__ = (
        "_first_buffer",
        "_frame",
        "_prefix",
        "_received",
        "_scratch",
        "_size",
        "_view",
        "held",
        "max_size",
        "refusal",
    )

    def __init__(self, max_size: int, scratch: bytearray) -> None:
        self.max_size = max_size
        """The size of the largest frame that is accepted."""
        self._scratch = memoryview(scratch)
        self._prefix = b""
        """The first bytes of a frame whose size, or API key, has not come whole."""
        self._frame: bytearray | None = None
        self._size = self._received = 0
        """Of ``_frame``: what it will hold, and what it holds."""
        self._view = self._scratch
        self._first_buffer = _FIRST_BUFFER
        """What the next frame gets at once: as much as this connection has sent in one frame."""
        self.held = 0
        """Bytes that have arrived and cannot be read yet: of a TLS record that has not come whole."""
        self.refusal = ""
        """Why nothing more can be read: a size that no frame may have. The frames before it are good."""

    @property
    def has_part(self) -> bool:
        """Return whether a part of a frame has come, and not all of it."""
        return self._frame is not None or bool(self._prefix or self.held)

    def get_buffer(self) -> memoryview:
        """Return where the next bytes go."""
        if self._frame is None:
            kept = len(self._prefix)
            if not kept:
                return self._scratch
            self._scratch[:kept] = self._prefix
            return self._scratch[kept:]
        self._view.release()
        if self._received == len(self._frame):
            growth = min((_GROWTH_FACTOR - 1) * max(self._received, _FIRST_BUFFER), _GROWTH)
            more = _ZEROS[: min(self._size - self._received, growth)]
            try:
                self._frame += more
            except BufferError:  # A transport that still holds the last view.
                self._frame = self._frame + more
        self._view = memoryview(self._frame)
        return self._view[self._received :]

    def buffer_updated(self, count: int) -> list[memoryview]:
        """Return the frames that are whole, now that ``count`` more bytes are in the buffer."""
        if self.refusal:
            return []
        if self._frame is None:
            end = len(self._prefix) + count
            self._prefix = b""
            return self._cut(end)
        self._received += count
        if self._received < self._size:
            return []
        self._first_buffer = min(max(self._first_buffer, self._size), _GROWTH)
        view, self._frame, self._view = self._view, None, self._scratch
        return [view]

    def _cut(self, end: int) -> list[memoryview]:
        scratch = self._scratch
        if end > 4 and _SIZE.unpack_from(scratch)[0] == end - 4 <= self.max_size:  # One request, as mostly.
            return [memoryview(bytearray(scratch[4:end]))]
        position = 0
        spans: list[tuple[int, int]] = []
        while end - position >= 4:
            size = _SIZE.unpack_from(scratch, position)[0]
            if not 0 <= size <= self.max_size:
                self.refusal = _why_refused(size, self.max_size)
                if not spans:
                    end = position
                break
            start = position + 4
            if size > end - start:
                if end - start < _API_KEY.size <= size:
                    break
                self._begin(size, scratch[start:end])
                end = position
                break
            position = start + size
            spans.append((start, position))
        if position < end:
            self._prefix = bytes(scratch[position:end])  # Of a refused frame, too, if one before may ``allow`` it.
        if not spans:
            return []
        whole = memoryview(bytearray(scratch[:position]))
        return [whole[start:stop] for start, stop in spans]

    def allow(self, max_size: int) -> None:
        """Accept larger frames from now on, also one that was refused a moment ago and has not come whole."""
        self.max_size = max_size
        if self.refusal and len(self._prefix) >= _SIZE.size + _API_KEY.size:
            size = _SIZE.unpack_from(self._prefix)[0]
            if len(self._prefix) - _SIZE.size < size <= max_size:
                self.refusal, first, self._prefix = "", memoryview(self._prefix)[_SIZE.size :], b""
                self._begin(size, first)

    def _begin(self, size: int, first: memoryview) -> None:
        """Take the first bytes of a frame that has not come whole, or refuse it."""
        if size > SCRATCH_SIZE:  # Any request may have that much.
            api_key = _API_KEY.unpack_from(first)[0]
            most = limit_of(api_key).max_bytes
            if size > most:
                self.refusal = f"a request of {size} bytes for {_api_name(api_key)}: at most {most} are accepted"
                return
        self._size, self._received = size, len(first)
        self._frame = bytearray(min(size, max(self._first_buffer, len(first))))
        self._frame[: len(first)] = first
        self._view = memoryview(self._frame)


def _why_refused(size: int, max_size: int) -> str:
    if size >> 8 in _HELLOS:
        return (
            "it speaks TLS: the client's security.protocol must be PLAINTEXT or SASL_PLAINTEXT, as this listener's is"
        )
    return f"a frame of {size} bytes: at most {max_size} are accepted"


def _api_name(api_key: int) -> str:
    try:
        return ApiKey(api_key).name
    except ValueError:
        return f"API key {api_key}"
