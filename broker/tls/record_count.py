"""``RecordCount``: where the records of a TLS stream end, by their headers, which are never encrypted.

OpenSSL takes the beginning of a record before it has all of it, and does not say how much it holds. What a client had
sent before it had a response (``oncelog.broker.network.request_order``) depends on it: bytes that have arrived, and
cannot be read before the rest of their record has come, may hold any number of requests.
"""

from struct import Struct
from typing import Final

_HEADER: Final = Struct(">3xH")
"""Type, version, and the size of what follows (RFC 8446, 5.1)."""


class RecordCount:
    """Counts the bytes of one direction of a stream, which begins with the first handshake."""

    __slots__ = ("_begun", "_header", "arrived", "whole")

    def __init__(self) -> None:
        self._begun = 0
        """Where the last record ends whose header has come, by the place in the stream."""
        self._header = b""
        """What has come of the next header."""
        self.arrived = 0
        """Bytes that have come."""
        self.whole = 0
        """Those of records that have come whole."""

    def feed(self, data: memoryview) -> None:
        """Note bytes that have come, in the order of the stream."""
        base = self.arrived - len(self._header)
        end = self.arrived = self.arrived + len(data)
        if self._header:
            data = memoryview(self._header + data)
        begun = self._begun
        while begun <= end:
            self.whole = begun
            if begun + _HEADER.size > end:
                break
            begun += _HEADER.size + _HEADER.unpack_from(data, begun - base)[0]
        self._begun = begun
        self._header = bytes(data[begun - base :]) if begun < end else b""
