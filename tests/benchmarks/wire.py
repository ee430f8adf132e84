"""A raw client for what a library would hide: single-batch produce requests, one at a time or pipelined.

It sends the same pre-encoded Produce v9 frame again and again over one blocking socket and reads the answers, so that
its own cost is a few microseconds a request.
"""

import socket
import struct
import time

from oncelog.protocol.compiler import encode
from oncelog.protocol.framing import encode_request
from oncelog.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from oncelog.protocol.records.record_batch import NewRecord, build_batch

_VERSION = 9
_SIZE = struct.Struct(">i")


def produce_frame(topic: str, payload: bytes, acks: int) -> bytes:
    """One Produce request with one batch of one record for partition 0."""
    batch = build_batch([NewRecord(timestamp=1_700_000_000_000, key=None, value=payload)])
    partition = PartitionProduceData(index=0, records=batch)
    topic_data = [TopicProduceData(name=topic, partition_data=[partition])]
    request = ProduceRequest(acks=acks, timeout_ms=30_000, topic_data=topic_data)
    assert encode(request, _VERSION)
    return b"".join(bytes(part) for part in encode_request(1, "benchmark", request, _VERSION))


class RawConnection:
    """A blocking connection that counts answers."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), timeout=30)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._pending = b""

    def close(self) -> None:
        self._socket.close()

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def read_responses(self) -> list[bytes]:
        """Block until at least one whole response is there; return all whole ones."""
        responses: list[bytes] = []
        while not responses:
            chunk = self._socket.recv(1 << 18)
            if not chunk:
                raise ConnectionError("the broker closed the connection")
            data = self._pending + chunk
            position = 0
            while len(data) - position >= 4:
                end = position + 4 + _SIZE.unpack_from(data, position)[0]
                if end > len(data):
                    break
                responses.append(data[position + 4 : end])
                position = end
            self._pending = data[position:]
        return responses


def synchronous_latencies(address: str, topic: str, *, size: int, count: int, acks: int = -1) -> list[float]:
    """Seconds from sending one produce request to its response, ``count`` times, sorted."""
    frame = produce_frame(topic, bytes(size), acks)
    connection = RawConnection(address)
    latencies = []
    for _ in range(count):
        started = time.perf_counter()
        connection.send(frame)
        connection.read_responses()
        latencies.append(time.perf_counter() - started)
    connection.close()
    return sorted(latencies)


def pipelined_requests_per_second(address: str, topic: str, *, size: int, count: int, window: int = 64) -> float:
    """Requests per second with ``window`` of them in flight on one connection."""
    frame = produce_frame(topic, bytes(size), -1)
    connection = RawConnection(address)
    started = time.perf_counter()
    connection.send(frame * window)
    sent, responded = window, 0
    while responded < count:
        number = len(connection.read_responses())
        responded += number
        more = min(number, count - sent)
        if more > 0:
            connection.send(frame * more)
            sent += more
    seconds = time.perf_counter() - started
    connection.close()
    return count / seconds


def seconds_to_metadata(address: str, seconds: float) -> float:
    """Retry an ApiVersions and a Metadata request until both get their responses; return the loop's seconds."""
    host, _, port = address.rpartition(":")
    header = struct.pack(">hhih", 3, 1, 7, -1) + struct.pack(">i", 0)  # Metadata v1, no client id, no topics
    frame = _SIZE.pack(len(header)) + header
    started = time.perf_counter()
    while time.perf_counter() - started < seconds:
        try:
            with socket.create_connection((host, int(port)), timeout=5) as connection:
                connection.sendall(frame)
                if len(connection.recv(4096)) > 4:
                    return time.perf_counter() - started
        except OSError:
            time.sleep(0.002)  # noqa: TID251 - the port is closed; there is no event to wait for
    raise TimeoutError(f"{address} did not answer Metadata within {seconds} s")
