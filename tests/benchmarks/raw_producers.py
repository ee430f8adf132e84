"""Producers without a client library: what the broker can do with many small batches under way at once.

Each producer is a connection with a fixed number of Produce requests in flight, one batch for one partition each; a
response makes room for the next request. Its first requests go one at a time and are repeated while the broker has no
producer ids or does not lead yet; they do not count. One uvloop process drives all producers. The frame is encoded
once; an idempotent producer changes the sequence in it and the checksum.
"""

import asyncio
import struct
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final, cast

import uvloop

from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.framing import encode_request, parse_response
from oncelog.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from oncelog.protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from oncelog.protocol.records.record_batch import NewRecord, build_batch, stamp_crc

_PRODUCE_VERSION: Final = 9
_INIT_VERSION: Final = 4
_SEQUENCE_AT: Final = 53
_SIZE: Final = struct.Struct(">i")
_PAUSE_SECONDS: Final = 0.01
_PASSING: Final = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)
"""Before the first success."""


class Refused(Exception):
    """A response has an error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What all producers together do."""

    topic: str
    partitions: int
    """Of the topic; producer ``n`` writes to partition ``n % partitions``."""
    producers: int
    in_flight: int
    """Requests of one producer."""
    records: int
    """In a batch."""
    size: int
    """Of a record's value, in bytes."""
    is_idempotent: bool
    seconds: float


class _Producer(asyncio.Protocol):
    """One connection. The latencies of its requests, in seconds, go to ``latencies``; ``done`` is its end."""

    def __init__(self, load: Load, partition: int, latencies: list[float]) -> None:
        self._load = load
        self._partition = partition
        self._latencies = latencies
        self._received = bytearray()
        self._sent_at: deque[float] = deque()
        self._sequence = 0
        self._frame, self._batch = bytearray(), memoryview(b"")
        self._stop_at: float | None = None
        self._loop = asyncio.get_running_loop()
        self.done: asyncio.Future[None] = self._loop.create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        if self._load.is_idempotent:
            self._request_identity()
        else:
            self._prepare(-1, -1)

    def connection_lost(self, error: Exception | None) -> None:
        if not self.done.done():
            self.done.set_exception(error or ConnectionError("the broker closed the connection"))

    def data_received(self, data: bytes) -> None:
        self._received += data
        try:
            while len(self._received) >= 4:
                end = 4 + _SIZE.unpack_from(self._received)[0]
                if len(self._received) < end:
                    break
                response = bytes(self._received[4:end])
                del self._received[:end]
                self._responded(response)
        except Exception as error:
            self.done.set_exception(error)
            self._transport.close()

    def _responded(self, response: bytes) -> None:
        if not self._frame:
            _, granted = parse_response(InitProducerIdResponse, _INIT_VERSION, memoryview(response))
            if not self._is_early(granted.error_code, self._request_identity):
                self._prepare(granted.producer_id, granted.producer_epoch)
            return
        now = time.perf_counter()
        _, produced = parse_response(ProduceResponse, _PRODUCE_VERSION, memoryview(response))
        error_code = produced.responses[0].partition_responses[0].error_code
        if self._stop_at is None:
            if not self._is_early(error_code, self._repeat):
                self._begin(now)
            return
        _require_none(error_code)
        self._latencies.append(now - self._sent_at.popleft())
        if now < self._stop_at:
            self._send()
        elif not self._sent_at:
            self.done.set_result(None)
            self._transport.close()

    def _is_early(self, error_code: int, repeat: Callable[[], None]) -> bool:
        """Return whether a first request came too early; then it is repeated."""
        if error_code not in _PASSING:
            _require_none(error_code)
            return False
        self._loop.call_later(_PAUSE_SECONDS, repeat)
        return True

    def _request_identity(self) -> None:
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
        self._transport.write(b"".join(encode_request(1, "benchmark", request, _INIT_VERSION)))

    def _prepare(self, producer_id: int, producer_epoch: int) -> None:
        """Build the frame, and send it once."""
        load = self._load
        record = NewRecord(timestamp=1_700_000_000_000, key=None, value=b"x" * load.size)
        batch = build_batch(
            [record] * load.records,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=0 if load.is_idempotent else -1,
        )
        data = TopicProduceData(
            name=load.topic, partition_data=[PartitionProduceData(index=self._partition, records=batch)]
        )
        request = ProduceRequest(acks=-1, timeout_ms=60_000, topic_data=[data])
        self._frame = bytearray(b"".join(encode_request(1, "benchmark", request, _PRODUCE_VERSION)))
        start = self._frame.index(batch)
        self._batch = memoryview(self._frame)[start : start + len(batch)]
        self._send()

    def _repeat(self) -> None:
        self._transport.write(bytes(self._frame))

    def _begin(self, now: float) -> None:
        self._sent_at.clear()
        self._stop_at = now + self._load.seconds
        for _ in range(self._load.in_flight):
            self._send()

    def _send(self) -> None:
        if self._load.is_idempotent:
            self._batch[_SEQUENCE_AT : _SEQUENCE_AT + 4] = _SIZE.pack(self._sequence)
            stamp_crc(self._batch)
            self._sequence += self._load.records
        self._sent_at.append(time.perf_counter())
        self._transport.write(bytes(self._frame))


def _require_none(error_code: int) -> None:
    if error_code != ErrorCode.NONE:
        raise Refused(ErrorCode(error_code).name)


async def _drive(address: str, load: Load, latencies: list[float]) -> None:
    host, _, port = address.rpartition(":")
    loop = asyncio.get_running_loop()
    ends = []
    for number in range(load.producers):
        make = partial(_Producer, load, number % load.partitions, latencies)
        _, producer = await loop.create_connection(make, host, int(port))
        ends.append(producer.done)
    await asyncio.gather(*ends)


def latencies_of(address: str, load: Load) -> list[float]:
    """Carry out a load; return the seconds from each request to its response, sorted."""
    latencies: list[float] = []
    uvloop.run(_drive(address, load, latencies))
    return sorted(latencies)
