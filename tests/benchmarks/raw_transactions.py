"""Transactions a second without a client library: what the broker can do, not what librdkafka's threads can.

Each producer is a generator that yields request frames and is sent the answers; one uvloop process drives them all, a
connection each, and costs a few dozen microseconds a transaction. As in a real client a transaction is three requests,
each sent after the response to the one before: AddPartitionsToTxn, Produce of one record, EndTxn.
"""

import asyncio
import time
from collections.abc import Generator
from functools import partial
from typing import Final, TypeVar, cast

import uvloop

from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.framing import encode_request, parse_response
from oncelog.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from oncelog.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from oncelog.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from oncelog.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from oncelog.protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from oncelog.protocol.records.record_batch import NewRecord, build_batch, stamp_crc
from oncelog.protocol.schema import Message

M = TypeVar("M", bound=Message)
Requests = Generator[bytes | None, bytes, M]
"""Yields a request frame, or None to pause for a moment; is sent the response's frame."""

_TRANSACTION: Final = 1
_SEQUENCE_AT: Final = 53
_PAUSE_SECONDS: Final = 0.001
_PASSING: Final = frozenset(
    {
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)


class Refused(Exception):
    """A response has an error that does not pass."""


def _frame(request: Message, version: int) -> bytes:
    return b"".join(encode_request(1, "benchmark", request, version))


def _settle(frame: bytes, response_type: type[M], version: int) -> Requests[M]:
    """Send a request again until its response is no error that passes."""
    while True:
        _, response = parse_response(response_type, version, memoryview((yield frame)))
        error = _error(response)
        if error == ErrorCode.NONE:
            return response
        if error not in _PASSING:
            raise Refused(f"{type(response).__name__}: {ErrorCode(error).name}")
        yield None


def _error(response: Message) -> int:
    match response:
        case AddPartitionsToTxnResponse(results_by_topic_v3_and_below=[topic]):
            return topic.results_by_partition[0].partition_error_code
        case ProduceResponse(responses=[topic]):
            return topic.partition_responses[0].error_code
        case FindCoordinatorResponse() | InitProducerIdResponse() | EndTxnResponse():
            return response.error_code
    raise AssertionError(f"an unexpected {type(response).__name__}")


def producer(topic: str, partition: int, name: str, stop_at: float, commits: list[float]) -> Requests[Message]:
    """One producer's life; the seconds of each EndTxn go to ``commits``."""
    find = FindCoordinatorRequest(key=name, key_type=_TRANSACTION)
    yield from _settle(_frame(find, 3), FindCoordinatorResponse, 3)
    init = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000)
    granted = yield from _settle(_frame(init, 4), InitProducerIdResponse, 4)
    identity = (granted.producer_id, granted.producer_epoch)
    add = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=name,
        v3_and_below_producer_id=identity[0],
        v3_and_below_producer_epoch=identity[1],
        v3_and_below_topics=[AddPartitionsToTxnTopic(name=topic, partitions=[partition])],
    )
    end = EndTxnRequest(transactional_id=name, producer_id=identity[0], producer_epoch=identity[1], committed=True)
    add_frame, end_frame = _frame(add, 3), _frame(end, 3)
    produce_frame, batch = _produce_frame(topic, partition, name, *identity)
    sequence = 0
    while time.perf_counter() < stop_at:
        yield from _settle(add_frame, AddPartitionsToTxnResponse, 3)
        batch[_SEQUENCE_AT : _SEQUENCE_AT + 4] = sequence.to_bytes(4, "big")
        stamp_crc(batch)
        yield from _settle(bytes(produce_frame), ProduceResponse, 9)
        sequence += 1
        started = time.perf_counter()
        ended = yield from _settle(end_frame, EndTxnResponse, 3)
        commits.append(time.perf_counter() - started)
    return ended


def _produce_frame(
    topic: str, partition: int, name: str, producer_id: int, producer_epoch: int
) -> tuple[bytearray, memoryview]:
    """A Produce request, and the view of the batch in it."""
    batch = build_batch(
        [NewRecord(timestamp=1_700_000_000_000, key=None, value=b"x" * 100)],
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=0,
        is_transactional=True,
    )
    data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=partition, records=batch)])
    request = ProduceRequest(transactional_id=name, acks=-1, timeout_ms=30_000, topic_data=[data])
    frame = bytearray(_frame(request, 9))
    start = frame.index(batch)
    return frame, memoryview(frame)[start : start + len(batch)]


class _Connection(asyncio.Protocol):
    """Drives one producer; ``done`` is its end."""

    def __init__(self, requests: Requests[Message]) -> None:
        self._requests = requests
        self._received = b""
        self._loop = asyncio.get_running_loop()
        self.done: asyncio.Future[None] = self._loop.create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._advance(None)

    def data_received(self, data: bytes) -> None:
        self._received += data
        if len(self._received) >= 4 and len(self._received) >= 4 + int.from_bytes(self._received[:4], "big"):
            response, self._received = self._received[4:], b""
            self._advance(response)

    def connection_lost(self, error: Exception | None) -> None:
        if not self.done.done():
            self.done.set_exception(error or ConnectionError("the broker closed the connection"))

    def _advance(self, response: bytes | None) -> None:
        try:
            frame = next(self._requests) if response is None else self._requests.send(response)
        except StopIteration:
            self.done.set_result(None)
            self._transport.close()
        except Exception as error:
            self.done.set_exception(error)
        else:
            if frame is None:
                self._loop.call_later(_PAUSE_SECONDS, self._advance, None)
            else:
                self._transport.write(frame)


async def _drive(address: str, producers: list[Requests[Message]]) -> None:
    host, _, port = address.rpartition(":")
    loop = asyncio.get_running_loop()
    connections = []
    for requests in producers:
        _, connection = await loop.create_connection(partial(_Connection, requests), host, int(port))
        connections.append(connection.done)
    await asyncio.gather(*connections)


def commits(address: str, topic: str, *, partitions: int, producers: int, seconds: float) -> list[float]:
    """Run ``producers`` for ``seconds``; return the latency of each EndTxn in seconds, sorted."""
    stop_at = time.perf_counter() + seconds
    latencies: list[float] = []
    lives = [producer(topic, n % partitions, f"raw-{topic}-{n}", stop_at, latencies) for n in range(producers)]
    uvloop.run(_drive(address, lives))
    return sorted(latencies)
