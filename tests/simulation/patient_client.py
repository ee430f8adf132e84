"""What every client of the simulated workload does: send until a response comes, and wait out what passes."""

import asyncio
import random
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.schema import Message
from oncelog.protocol.topic_partition import TopicPartition
from tests.simulation.late_post import LatePost
from tests.simulation.requests import RETRIABLE
from tests.simulation.routes import Routes
from tests.simulation.wire_client import NoResponse, WireClient

Errors: TypeAlias = Callable[[Any], set[ErrorCode]]
"""What a response says went wrong."""


class Broken(Exception):
    """The transaction cannot go on: fenced, timed out, or the broker forgot the producer."""


class Abortable(Broken):
    """The transaction must be aborted; then its producer goes on as it is (KIP-1050)."""


class PatientClient:
    """One connection to a broker at a time; a request is repeated over as many of them as it takes."""

    def __init__(
        self, routes: Routes, rng: random.Random, *, response_within: float = 5.0, late_post: LatePost | None = None
    ) -> None:
        """Whatever goes through ``late_post`` may be held back there, or come again later."""
        self._routes = routes
        self._rng = rng
        self.response_within = response_within
        """In seconds; holds for connections that are made from now on."""
        self._late_post = late_post
        self._clients: dict[int, WireClient] = {}

    async def connection(self, request: Message) -> WireClient:
        """The present connection to where a request goes, or a new one. Raises NoResponse."""
        port = self._routes.port(request)
        client = self._clients.get(port)
        if client is None or client.closed:
            client = self._clients[port] = await WireClient.connect(port, response_within=self.response_within)
        return client

    def repeat_marker(
        self, transactional_id: str, producer: tuple[int, int], partitions: list[TopicPartition], *, commit: bool
    ) -> None:
        """The transaction of this client has ended; its markers may come again."""
        if self._late_post is not None:
            self._late_post.repeat_marker(transactional_id, producer, partitions, commit=commit)

    def heard(self, request: Message, response: Message) -> None:
        """Note a response, which may say that another broker is responsible."""
        self._routes.heard(request, response)

    async def disconnect(self, *unanswered: Message) -> None:
        """Give the connections up, and the belief in who would answer; and wait a moment."""
        clients, self._clients = self._clients, {}
        for client in clients.values():
            client.close()
        for request in unanswered:
            self._routes.lost(request)
        await asyncio.sleep(self._rng.uniform(0.01, 0.2))

    async def pause(self) -> None:
        """Back off before the same request is sent again."""
        await asyncio.sleep(self._rng.uniform(0.005, 0.05))

    async def call(self, request: Message, version: int) -> Any:
        while True:
            try:
                connection = await self.connection(request)
                response = await connection.response_to(request, version, self._send(connection, request, version))
            except NoResponse:
                await self.disconnect(request)
            else:
                self.heard(request, response)
                return response

    async def succeed(self, request: Message, version: int, errors: Errors) -> Any:
        """Repeat a request until nothing in its response is an error. Raises Broken if waiting does not help."""
        while True:
            response = await self.call(request, version)
            codes = errors(response)
            if codes <= {ErrorCode.NONE}:
                return response
            _check_retriable(codes)
            await self.pause()

    async def succeed_together(self, requests: Sequence[Message], version: int, errors: Errors) -> None:
        """The same for requests that are in flight at once. Those that fail go again, in order."""
        left = list(requests)
        while left:
            try:
                connections = [await self.connection(request) for request in left]
                in_flight = [
                    (request, connection, self._send(connection, request, version))
                    for request, connection in zip(left, connections, strict=True)
                ]
                left = await self._settle(in_flight, version, errors)
            except NoResponse:
                await self.disconnect(*left)
            else:
                if left:
                    await self.pause()

    def _send(self, connection: WireClient, request: Message, version: int) -> "asyncio.Future[memoryview]":
        if self._late_post is not None:
            self._late_post.take(request, version)
        return connection.send(request, version)

    async def _settle(
        self,
        in_flight: "list[tuple[Message, WireClient, asyncio.Future[memoryview]]]",
        version: int,
        errors: Errors,
    ) -> list[Message]:
        """Those that were refused. Whatever follows one of them may be refused for want of its predecessor."""
        refused: list[Message] = []
        for request, connection, frame in in_flight:
            response = await connection.response_to(request, version, frame)
            self.heard(request, response)
            codes = errors(response)
            if codes <= {ErrorCode.NONE}:
                continue
            if not refused or codes != {ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER}:
                _check_retriable(codes)
            refused.append(request)
        return refused


def _check_retriable(codes: set[ErrorCode]) -> None:
    # A producer with an invalid epoch may have been timed out: the response to its abort says whether it was fenced.
    if codes & {ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.INVALID_PRODUCER_EPOCH}:
        raise Abortable(str(codes))
    if not codes & RETRIABLE:
        raise Broken(str(codes))


def error_of(response: Any) -> set[ErrorCode]:
    return {ErrorCode(response.error_code)}


def produce_errors(response: Any) -> set[ErrorCode]:
    return {ErrorCode(partition.error_code) for topic in response.responses for partition in topic.partition_responses}
