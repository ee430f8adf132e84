"""Sends a stream of malformed frames to a broker over many connections, and holds every frame to its fate.

Frames with responses share a connection, in a pipeline; a frame that ends its connection, or whose response may take
any time, comes last in one. Each response must come in its turn, parse as the version that was requested, and tell no
UNKNOWN_SERVER_ERROR.
"""

import asyncio
from collections import Counter
from collections.abc import Iterator
from functools import cache
from typing import Any, Final

from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.framing import encode_request, parse_response
from oncelog.protocol.messages.api_versions import ApiVersionsRequest
from oncelog.protocol.primitives import DecodeError
from oncelog.protocol.schema import Field, Message
from tests.scenarios.malformed_frames import Fate, Frame, Kind, response_class

LONGEST_PIPELINE: Final = 40
_WORKERS: Final = 8
_PATIENCE_SECONDS: Final = 300.0
_MOST_PROBLEMS: Final = 20
_PING_VERSION: Final = 3


class _Misbehaved(Exception):
    """The broker did something else to a frame than it must."""


class _Connection(asyncio.Protocol):
    """Collects the responses of one connection."""

    def __init__(self, expected: int) -> None:
        self._received = bytearray()
        self._expected = expected
        self.responses: list[memoryview] = []
        self.lost = False
        self.transport: Any = None
        loop = asyncio.get_running_loop()
        self.responded: asyncio.Future[None] = loop.create_future()
        """Everything that must be answered is, or nothing more will come."""
        self.ended: asyncio.Future[None] = loop.create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self._received += data
        position, end = 0, len(self._received)
        while end - position >= 4:
            size = int.from_bytes(self._received[position : position + 4], "big")
            if end - position < 4 + size:
                break
            self.responses.append(memoryview(bytes(self._received[position + 4 : position + 4 + size])))
            position += 4 + size
        del self._received[:position]
        if len(self.responses) >= self._expected and not self.responded.done():
            self.responded.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True
        for future in (self.responded, self.ended):
            if not future.done():
                future.set_result(None)


class Flood:
    """``run`` sends everything; afterwards the counters say what happened."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._pipelines: Iterator[list[Frame]] = iter(())
        self.sent: Counter[tuple[Kind, Fate]] = Counter()
        self.errors: Counter[ErrorCode] = Counter()
        self.connections = 0
        self.problems: list[str] = []
        """What the broker did wrong, with the frames of the connection."""

    async def run(self, frames: Iterator[Frame]) -> None:
        self._pipelines = _pipelines(frames)
        async with asyncio.TaskGroup() as group:
            for _ in range(_WORKERS):
                group.create_task(self._work())

    async def _work(self) -> None:
        for pipeline in self._pipelines:
            try:
                async with asyncio.timeout(_PATIENCE_SECONDS):
                    await self._play(pipeline)
            except (_Misbehaved, DecodeError, TimeoutError, OSError) as error:
                self.problems.append("\n".join([repr(error), *map(repr, pipeline)]))
                if len(self.problems) >= _MOST_PROBLEMS:
                    return

    async def _play(self, pipeline: list[Frame]) -> None:
        responded = [frame for frame in pipeline if frame.fate is Fate.RESPONDED]
        self.connections += 1
        self.sent.update((frame.kind, frame.fate) for frame in pipeline)
        loop = asyncio.get_running_loop()
        _, connection = await loop.create_connection(lambda: _Connection(len(responded)), "127.0.0.1", self._port)
        fate = pipeline[-1].fate
        connection.transport.write(b"".join(frame.data for frame in pipeline))
        if fate is Fate.SILENT:
            await self._hear_the_end_or_a_response(connection, len(responded))
        elif fate is Fate.CLOSES:
            await connection.ended
        elif responded:
            await connection.responded
        connection.transport.abort()
        await connection.ended
        self._judge(connection.responses, responded)

    async def _hear_the_end_or_a_response(self, connection: _Connection, expected: int) -> None:
        """A produce without acks is over when the request after it gets its response, or when the connection ends."""
        connection._expected = expected + 1
        connection.responded = asyncio.get_running_loop().create_future()
        connection.transport.write(b"".join(encode_request(0, "fuzz", ApiVersionsRequest(), _PING_VERSION)))
        await connection.responded
        del connection.responses[expected:]

    def _judge(self, responses: list[memoryview], frames: list[Frame]) -> None:
        if len(responses) < len(frames):
            raise _Misbehaved(f"{len(responses)} answers to {len(frames)} requests")
        for frame, response in zip(frames, responses, strict=False):
            assert frame.request is not None
            correlation_id, message = parse_response(response_class(frame.request), frame.version, response)
            if correlation_id != frame.correlation_id:
                raise _Misbehaved(f"the answer to {correlation_id} instead of {frame!r}")
            self._judge_errors(frame, message)

    def _judge_errors(self, frame: Frame, message: Message) -> None:
        codes = list(error_codes(message))
        self.errors.update(ErrorCode(code) for code in codes)
        unforeseen = {ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.KAFKA_STORAGE_ERROR}.intersection(codes)
        if unforeseen or (frame.error is not None and codes != [frame.error]):
            raise _Misbehaved(f"{[ErrorCode(code).name for code in codes]} for {frame!r}")


def _pipelines(frames: Iterator[Frame]) -> Iterator[list[Frame]]:
    pipeline: list[Frame] = []
    for frame in frames:
        pipeline.append(frame)
        if frame.fate is not Fate.RESPONDED or len(pipeline) == LONGEST_PIPELINE:
            yield pipeline
            pipeline = []
    if pipeline:
        yield pipeline


def error_codes(message: Message) -> Iterator[int]:
    """Every error code in a response, wherever in it."""
    cls: type[Message] = type(message)
    for field, is_code in _codes_in(cls):
        value = getattr(message, field)
        if is_code:
            yield value
        elif isinstance(value, list):
            for element in value:
                yield from error_codes(element)
        elif value is not None:
            yield from error_codes(value)


@cache
def _codes_in(cls: type[Message]) -> list[tuple[str, bool]]:
    """The fields that are error codes, and those that hold some."""
    return [(field.name, _is_code(field)) for field in cls.fields if _is_code(field) or _holds_codes(field)]


def _is_code(field: Field) -> bool:
    return field.name.endswith("error_code")


def _holds_codes(field: Field) -> bool:
    struct = field.struct or (field.element.struct if field.element is not None else None)
    return struct is not None and bool(_codes_in(struct))
