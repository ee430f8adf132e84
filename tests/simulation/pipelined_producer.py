"""An idempotent producer with up to five batches in flight on one connection, which loses connections and retries.

It behaves as the clients do whose retries must never show. Batches leave in order without waiting for one another;
what was not acknowledged when a connection breaks, a response is late or an earlier batch was refused is sent again,
in order, as it was. A late request of a connection that it has given up may still reach the broker, before or after
its repetition.

It knows for every batch at which offset the broker said it was. A retry may be told another offset than the first
attempt only if no broker ever heard of the first: then there is only one response.
"""

import asyncio
import random
from collections import deque
from dataclasses import dataclass, field

from oncelog.clients.history.operation import Kind, Outcome
from oncelog.clients.history.recorder import RecordedOperation
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.produce import ProduceRequest
from oncelog.protocol.topic_partition import TopicPartition
from tests.simulation import requests
from tests.simulation.patient_client import PatientClient, produce_errors
from tests.simulation.recorded_history import SimulatedHistory, name_of, text_of
from tests.simulation.routes import Routes
from tests.simulation.wire_client import NoResponse, WireClient

MAX_IN_FLIGHT = 5


@dataclass
class Batch:
    """A batch from its making until it is acknowledged."""

    sequence: int
    values: list[bytes]
    operation: RecordedOperation
    offset: int = -1

    def acknowledge(self, offset: int) -> None:
        self.offset = offset
        for number in range(len(self.values)):
            self.operation.acknowledged(number, offset + number)
        self.operation.end(Outcome.OK)


@dataclass(eq=False)
class PipelinedProducer:
    """Writes ``total`` values to one partition. ``done`` holds what was acknowledged, in order."""

    name: str
    routes: Routes
    partition: TopicPartition
    rng: random.Random
    total: int
    response_within: float
    history: SimulatedHistory
    longest_rest: float = 0.0
    """In seconds, before it makes another batch."""
    may_be_forgotten: bool = False
    """Whether a broker may lead that has restarted since: of each producer it knows the last batch only (B34)."""
    done: list[Batch] = field(default_factory=list)
    retries: int = 0
    stopping: bool = False
    producer_id: int = -1
    client: PatientClient = field(init=False)
    _made: int = 0
    _in_flight: deque[Batch] = field(default_factory=deque)

    def __post_init__(self) -> None:
        """Make its client."""
        self.client = PatientClient(self.routes, self.rng, response_within=self.response_within)

    async def run(self) -> None:
        client = self.client
        response = await client.succeed(
            requests.init_producer_id(None),
            requests.INIT_PRODUCER_ID_VERSION,
            lambda response: {ErrorCode(response.error_code)},
        )
        self.producer_id = response.producer_id
        wherever_it_is_led = requests.produce(self.partition, None)
        while not self.stopping and (self._made < self.total or self._in_flight):
            try:
                await self._send_and_settle(client, await client.connection(wherever_it_is_led))
            except NoResponse:
                self.retries += 1
                await client.disconnect(wherever_it_is_led)

    async def _send_and_settle(self, client: PatientClient, connection: WireClient) -> None:
        """Send everything that is in flight, then go on until a response is a refusal."""
        sent = [(batch, self._send(connection, batch)) for batch in self._in_flight]
        waiting = deque(sent)
        while waiting or self._made < self.total:
            if self.longest_rest:
                await asyncio.sleep(self.rng.uniform(0.0, self.longest_rest))
            while len(self._in_flight) < MAX_IN_FLIGHT and self._made < self.total:
                batch = self._next_batch()
                waiting.append((batch, self._send(connection, batch)))
            batch, frame = waiting.popleft()
            if not await self._settle(client, connection, batch, frame):
                self.retries += 1
                for _, other in waiting:  # Those behind it are refused too: their predecessor is missing.
                    await asyncio.wait([other])
                await asyncio.sleep(self.rng.uniform(0.005, 0.05))
                return

    def _next_batch(self) -> Batch:
        count = min(self.rng.randint(1, 3), self.total - self._made)
        values = [b"%s-%d" % (self.name.encode(), self._made + number) for number in range(count)]
        operation = self.history.begin(self.name, Kind.SEND)
        for value in values:
            operation.send(name_of(self.partition), text_of(value))
        batch = Batch(self._made, values, operation)
        self._made += count
        self._in_flight.append(batch)
        return batch

    def _send(self, connection: WireClient, batch: Batch) -> "asyncio.Future[memoryview]":
        return connection.send(self._request(batch), requests.PRODUCE_VERSION)

    def _request(self, batch: Batch) -> ProduceRequest:
        records = requests.batch(
            batch.values, producer_id=self.producer_id, epoch=0, sequence=batch.sequence, transactional=False
        )
        return requests.produce(self.partition, records)

    async def _settle(
        self, client: PatientClient, connection: WireClient, batch: Batch, frame: "asyncio.Future[memoryview]"
    ) -> bool:
        """Whether the oldest batch in flight is acknowledged now."""
        request = self._request(batch)
        response = await connection.response_to(request, requests.PRODUCE_VERSION, frame)
        client.heard(request, response)
        (code,) = produce_errors(response)
        if code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and self.may_be_forgotten:
            self.stopping = True  # Whether it is written is not known, so it must not be written under a new number.
            return False
        if code is not ErrorCode.NONE:
            assert code in requests.RETRIABLE, f"{self.name}: the oldest batch in flight was refused with {code.name}"
            return False
        assert self._in_flight.popleft() is batch
        batch.acknowledge(response.responses[0].partition_responses[0].base_offset)
        self.done.append(batch)
        return True
