"""What every client of the simulated workload does: send until an answer comes, and wait out what passes."""

import asyncio
import random
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from protocol.errors import ErrorCode
from protocol.schema import Message
from protocol.topic_partition import TopicPartition
from tests.simulation.late_post import LatePost
from tests.simulation.requests import RETRIABLE
from tests.simulation.wire_client import NoAnswer, WireClient

Errors: TypeAlias = Callable[[Any], set[ErrorCode]]
"""What an answer says went wrong."""


class Broken(Exception):
    """The transaction cannot go on: fenced, timed out, or the broker forgot the producer."""


class Abortable(Broken):
    """The transaction must be aborted; then its producer goes on as it is (KIP-1050)."""


class PatientClient:
    """One connection at a time; a request is repeated over as many of them as it takes."""

    def __init__(
        self, port: int, rng: random.Random, *, answer_within: float = 5.0, late_post: LatePost | None = None
    ) -> None:
        """Whatever goes through ``late_post`` may be held back there, or come again later."""
        self._port = port
        self._rng = rng
        self._answer_within = answer_within
        self._late_post = late_post
        self._client: WireClient | None = None

    async def connection(self) -> WireClient:
        """The present connection, or a new one. Raises NoAnswer."""
        if self._client is None or self._client.closed:
            self._client = await WireClient.connect(self._port, answer_within=self._answer_within)
        return self._client

    def repeat_marker(
        self, transactional_id: str, producer: tuple[int, int], partitions: list[TopicPartition], *, commit: bool
    ) -> None:
        """The transaction of this client has ended; its markers may come again."""
        if self._late_post is not None:
            self._late_post.repeat_marker(transactional_id, producer, partitions, commit=commit)

    async def disconnect(self) -> None:
        """Give the connection up, and wait a moment."""
        if self._client is not None:
            self._client.close()
        self._client = None
        await asyncio.sleep(self._rng.uniform(0.01, 0.2))

    async def pause(self) -> None:
        """Back off before the same request is sent again."""
        await asyncio.sleep(self._rng.uniform(0.005, 0.05))

    async def call(self, request: Message, version: int) -> Any:
        while True:
            try:
                connection = await self.connection()
                return await connection.answer_to(request, version, self._send(connection, request, version))
            except NoAnswer:
                await self.disconnect()

    async def succeed(self, request: Message, version: int, errors: Errors) -> Any:
        """Repeat a request until nothing in its answer is an error. Raises Broken if waiting does not help."""
        while True:
            answer = await self.call(request, version)
            codes = errors(answer)
            if codes <= {ErrorCode.NONE}:
                return answer
            _check_retriable(codes)
            await self.pause()

    async def succeed_together(self, asked: Sequence[Message], version: int, errors: Errors) -> None:
        """The same for requests that are in flight at once on one connection. Those that fail go again, in order."""
        left = list(asked)
        while left:
            try:
                connection = await self.connection()
                frames = [self._send(connection, request, version) for request in left]
                left = await self._settle(connection, left, version, frames, errors)
            except NoAnswer:
                await self.disconnect()
            else:
                if left:
                    await self.pause()

    def _send(self, connection: WireClient, request: Message, version: int) -> "asyncio.Future[memoryview]":
        if self._late_post is not None:
            self._late_post.take(request, version)
        return connection.send(request, version)

    @staticmethod
    async def _settle(
        connection: WireClient,
        asked: list[Message],
        version: int,
        frames: "list[asyncio.Future[memoryview]]",
        errors: Errors,
    ) -> list[Message]:
        """Those that were refused. Whatever follows one of them may be refused for want of its predecessor."""
        refused: list[Message] = []
        for request, frame in zip(asked, frames, strict=True):
            codes = errors(await connection.answer_to(request, version, frame))
            if codes <= {ErrorCode.NONE}:
                continue
            if not refused or codes != {ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER}:
                _check_retriable(codes)
            refused.append(request)
        return refused


def _check_retriable(codes: set[ErrorCode]) -> None:
    # Who is told of an invalid epoch may have been timed out: what becomes of its abort says whether it was fenced.
    if codes & {ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.INVALID_PRODUCER_EPOCH}:
        raise Abortable(str(codes))
    if not codes & RETRIABLE:
        raise Broken(str(codes))


def error_of(answer: Any) -> set[ErrorCode]:
    return {ErrorCode(answer.error_code)}


def produce_errors(answer: Any) -> set[ErrorCode]:
    return {ErrorCode(partition.error_code) for topic in answer.responses for partition in topic.partition_responses}
