"""A request as the proxy sees it."""

from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

from oncelog.protocol.api_keys import ApiKey
from oncelog.protocol.compiler import decoder
from oncelog.protocol.framing import RequestHeader, parse_request_header
from oncelog.protocol.schema import Message

M = TypeVar("M", bound=Message)


@dataclass(frozen=True)
class Request:
    """One frame from a client, without its size, and the number of the connection that it came over."""

    connection: int
    header: RequestHeader
    body_at: int
    frame: bytes

    @classmethod
    def parse(cls, connection: int, frame: bytes) -> "Request":
        header, body_at = parse_request_header(memoryview(frame))
        return cls(connection, header, body_at, frame)

    @property
    def api(self) -> ApiKey:
        return ApiKey(self.header.api_key)

    @property
    def version(self) -> int:
        return self.header.api_version

    @cached_property
    def body(self) -> bytes:
        """What two sendings of the same request have in common: all but the header with its correlation id."""
        return self.frame[self.body_at :]

    def message(self, cls: type[M]) -> M:
        message, _ = decoder(cls, self.version)(memoryview(self.frame), self.body_at)
        return message
