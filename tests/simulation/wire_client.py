"""A client that says exactly what a test tells it to: one request, one version, one response.

It retries nothing and hides nothing, which is what a test of retries, duplicates and fencing needs. It runs on any
event loop; a lost connection or a response that does not come within ``timeout`` raises ``NoResponse``.
"""

import asyncio
import functools
import importlib
from typing import Any, TypeVar

from oncelog.protocol.api_keys import ApiKey
from oncelog.protocol.framing import encode_request, parse_response
from oncelog.protocol.schema import Message

M = TypeVar("M", bound=Message)


class NoResponse(Exception):
    """The connection broke, or the response did not come in time: the request may or may not have had its effect."""


class WireClient(asyncio.Protocol):
    """One connection. Responses arrive in the order of the requests."""

    def __init__(self, timeout: float) -> None:
        self._timeout = timeout
        self._received = bytearray()
        self._waiting: dict[int, asyncio.Future[memoryview]] = {}
        self._correlation_id = 0
        self._transport: Any = None
        self.closed = False
        self.client_id = "test"

    @classmethod
    async def connect(cls, port: int, *, response_within: float = 10.0) -> "WireClient":
        loop = asyncio.get_running_loop()
        try:
            _, client = await loop.create_connection(lambda: cls(response_within), "127.0.0.1", port)
        except OSError as error:
            raise NoResponse(str(error)) from error
        return client

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._received += data
        while len(self._received) >= 4:
            size = int.from_bytes(self._received[:4], "big")
            if len(self._received) < 4 + size:
                return
            frame = memoryview(bytes(self._received[4 : 4 + size]))
            del self._received[: 4 + size]
            response = self._waiting.pop(int.from_bytes(frame[:4], "big"), None)
            if response is not None and not response.done():
                response.set_result(frame)

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed = True
        for response in self._waiting.values():
            if not response.done():
                response.set_exception(NoResponse(str(exc)))
                response.exception()  # Who has given a request up is not reminded of it.
        self._waiting.clear()

    def close(self) -> None:
        self._transport.close()

    def send(self, request: Message, version: int) -> "asyncio.Future[memoryview]":
        """Send now; the future is the response's frame."""
        response: asyncio.Future[memoryview] = asyncio.get_running_loop().create_future()
        if self.closed:
            response.set_exception(NoResponse("not connected"))
            response.exception()
            return response
        self._correlation_id += 1
        self._waiting[self._correlation_id] = response
        self._transport.writelines(encode_request(self._correlation_id, self.client_id, request, version))
        return response

    def encode(self, request: Message, version: int) -> bytes:
        """The frame of a request, for a test that sends it in its own way with ``send_bytes``."""
        self._correlation_id += 1
        return b"".join(encode_request(self._correlation_id, self.client_id, request, version))

    def send_bytes(self, data: bytes) -> None:
        self._transport.write(data)

    async def response_to(self, request: Message, version: int, frame: "asyncio.Future[memoryview]") -> Any:
        """Wait for the response of a request that was sent before."""
        try:
            async with asyncio.timeout(self._timeout):
                _, message = parse_response(response_class(request), version, await frame)
        except TimeoutError as error:
            raise NoResponse("no answer in time") from error
        return message

    async def call(self, request: Message, version: int) -> Any:
        """Send a request and wait for its response."""
        return await self.response_to(request, version, self.send(request, version))


def response_class(request: Message) -> type[Message]:
    """The class that answers a request: its namesake in the same module."""
    return _response_class(type(request))


@functools.cache
def _response_class(request_class: type[Message]) -> type[Message]:
    api_key = request_class.api_key
    assert api_key is not None
    module = importlib.import_module(f"oncelog.protocol.messages.{ApiKey(api_key).name.lower()}")
    response: type[Message] = getattr(module, request_class.__name__.replace("Request", "Response"))
    return response
