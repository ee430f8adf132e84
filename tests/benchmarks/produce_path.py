"""What produces and fetches cost inside a broker, in microseconds: ``python -m tests.benchmarks.produce_path``.

A whole broker on this machine's disk, without its sockets: frames go into the dispatcher, buffers come out. The budget
is 15 µs from a small produce's handler to its record in the log (`handler`); `frame to answer` adds decoding, dispatch
and encoding.
"""

import asyncio
import random
import tempfile
import time
import timeit
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from oncelog.broker.config.broker_config import BrokerConfig
from oncelog.broker.dispatch.dispatcher import Dispatcher, PendingResponse
from oncelog.broker.dispatch.request import ConnectionInfo, RequestContext
from oncelog.broker.handlers.create_topics import handle_create_topics
from oncelog.broker.handlers.fetch import handle_fetch
from oncelog.broker.handlers.produce import handle_produce
from oncelog.broker.parts import Broker
from oncelog.broker.replication.leading_partition import LeadingPartition
from oncelog.broker.start import start_broker
from oncelog.broker.storage.disk import LocalDisk
from oncelog.broker.storage.partition_log import AppendOrigin
from oncelog.coordinator.ports import TransactionMarker
from oncelog.protocol.framing import encode_request
from oncelog.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from oncelog.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from oncelog.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from oncelog.protocol.records.record_batch import NewRecord, build_batch, read_header
from oncelog.protocol.topic_partition import TopicPartition

PARTITIONS = 1000
NOW_MS = 1_700_000_000_000
PRODUCE, FETCH, OLD_FETCH = 9, 12, 11
ROUNDS, CALLS = 5, 3000
FETCH_ROUNDS, FETCH_CALLS = 250, 60
"""One turn of the loop has room for as many fetches."""
CLIENT = ConnectionInfo(client_host="127.0.0.1", listener_name="PLAINTEXT")


async def report(name: str, action: Callable[[], object], calls: int = CALLS, rounds: int = ROUNDS) -> None:
    """Print the best of some rounds, per call, in processor time: others use this machine too.

    Each round is a turn of the loop, as how many fetches read in one turn is bounded.
    """
    seconds = []
    for _ in range(rounds):
        await asyncio.sleep(0)
        seconds.append(timeit.timeit(action, number=calls, timer=time.process_time))
    print(f"{name:<66} {min(seconds) / calls * 1e6:>8.2f} µs")


def batch(sequence: int = -1, size: int = 100) -> bytearray:
    record = NewRecord(NOW_MS, None, bytes(size))
    if sequence < 0:
        return build_batch([record])
    return build_batch([record], producer_id=4000, producer_epoch=0, base_sequence=sequence)


def produce(data: bytearray, acks: int = -1) -> ProduceRequest:
    partition = PartitionProduceData(index=0, records=memoryview(data))
    return ProduceRequest(acks=acks, topic_data=[TopicProduceData(name="t", partition_data=[partition])])


def frame_of(request: Any, version: int) -> bytes:
    return b"".join(encode_request(1, "benchmark", request, version))[4:]


def fetch(*partitions: int, offset: int, session: tuple[int, int] = (0, -1), max_wait_ms: int = 0) -> FetchRequest:
    requested = [FetchPartition(partition=p, fetch_offset=offset, partition_max_bytes=1 << 20) for p in partitions]
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        session_id=session[0],
        session_epoch=session[1],
        topics=[FetchTopic(topic="t", partitions=requested)] if requested else [],
    )


class Bench:
    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.dispatcher = Dispatcher(broker, broker.handlers)
        partition = broker.replica_manager.led_partition(("t", 0))
        assert isinstance(partition, LeadingPartition)
        self.partition = partition

    def call(self, handler: Any, request: Any, version: int) -> Any:
        return handler(self.broker, RequestContext(version, 1, "benchmark", CLIENT), request)

    def dispatch(self, frame: bytes) -> object:
        response = self.dispatcher.dispatch(memoryview(bytearray(frame)), CLIENT)
        assert not isinstance(response, PendingResponse)
        return response

    def append(self) -> None:
        self.partition.append(memoryview(batch()), read_header(batch()), origin=AppendOrigin.CLIENT, required_acks=1)

    async def produces(self) -> None:
        log = self.partition.log
        view, header = memoryview(batch()), read_header(batch())
        await report(
            "log: append", lambda: log.append_as_leader(view, header, log.epochs.latest_epoch or 0, AppendOrigin.CLIENT)
        )
        await report(
            "partition: append",
            lambda: self.partition.append(view, header, origin=AppendOrigin.CLIENT, required_acks=-1),
        )
        request = produce(batch())
        records: Any = request.topic_data[0].partition_data[0].records

        def handle() -> None:
            records[:8] = bytes(8)  # The last append stamped its offset there.
            self.call(handle_produce, request, PRODUCE)

        await report("produce of 100 B, acks=all: handler", handle)
        small = frame_of(produce(batch()), PRODUCE)
        await report("produce of 100 B, acks=all: frame to answer", lambda: self.dispatch(small))
        frames = self.idempotent_frames()
        await report("produce of 100 B, idempotent: frame to answer", lambda: self.dispatch(next(frames)))
        large = frame_of(produce(batch(size=16_000)), PRODUCE)
        await report("produce of 16 kB: frame to answer", lambda: self.dispatch(large))

    def idempotent_frames(self) -> Iterator[bytes]:
        frames = [frame_of(produce(batch(sequence)), PRODUCE) for sequence in range(ROUNDS * CALLS)]
        return iter(frames)

    async def fetches(self) -> None:
        self.append()
        end = self.end()
        await report(
            "fetch of one batch, no session: handler",
            lambda: self.call(handle_fetch, fetch(0, offset=end - 1), FETCH),
            FETCH_CALLS,
            FETCH_ROUNDS,
        )
        old = frame_of(fetch(0, offset=end - 1), OLD_FETCH)
        await report(
            "fetch of one batch, no session: frame to answer", lambda: self.dispatch(old), FETCH_CALLS, FETCH_ROUNDS
        )
        nothing = frame_of(fetch(*range(1, PARTITIONS), offset=0), OLD_FETCH)
        await report(
            f"fetch of {PARTITIONS} partitions, no session: frame to answer", lambda: self.dispatch(nothing), 20
        )
        await self.session_fetches()

    async def session_fetches(self) -> None:
        outcome = self.call(handle_fetch, fetch(*range(PARTITIONS), offset=0, session=(0, 0)), FETCH)
        response = await outcome if asyncio.isfuture(outcome) else outcome
        session_id, epoch = response.session_id, 0
        self.call(handle_fetch, fetch(0, offset=self.end(), session=(session_id, 1)), FETCH)
        epoch = 1

        def turn() -> None:
            nonlocal epoch
            epoch += 1
            self.append()
            self.call(handle_fetch, fetch(0, offset=self.end() - 1, session=(session_id, epoch)), FETCH)

        await report("append (with building the batch)", self.append)
        await report(
            f"append + fetch, one of {PARTITIONS} partitions in a session: handler", turn, FETCH_CALLS, FETCH_ROUNDS
        )

    def end(self) -> int:
        log = self.partition.log
        assert log is not None
        return log.log_end_offset

    async def wake_ups(self) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        for _ in range(CALLS):
            response = self.call(handle_fetch, fetch(0, offset=self.end(), max_wait_ms=1000), FETCH)
            self.append()
            await response
        print(
            f"{'fetch that waits + append that wakes it + response':<66} {(loop.time() - began) / CALLS * 1e6:>8.2f} µs"
        )

    async def markers(self, count: int) -> None:
        marker = TransactionMarker(9, 0, commit=False, coordinator_epoch=0, transaction_version=0)
        partitions = [TopicPartition("t", index) for index in range(count)]
        await report(
            f"markers in {count} partitions, local",
            lambda: self.broker.marker_writer.write(marker, partitions),
        )


async def led_topic(broker: Broker) -> Bench:
    topic = CreatableTopic(name="t", num_partitions=PARTITIONS, replication_factor=1)
    context = RequestContext(7, 1, "benchmark", CLIENT)
    created = handle_create_topics(broker, context, CreateTopicsRequest(topics=[topic]))
    assert asyncio.iscoroutine(created)
    await created
    return Bench(broker)


async def main() -> None:
    with tempfile.TemporaryDirectory() as data_dir:
        config = replace(BrokerConfig(), listeners="PLAINTEXT://127.0.0.1:0", log_dirs=data_dir)
        broker = await start_broker(config, disk=LocalDisk(), wall_clock=lambda: NOW_MS, rng=random.Random(1))
        try:
            bench = await led_topic(broker)
            await bench.produces()
            await bench.fetches()
            await bench.wake_ups()
            for count in (1, 5):
                await bench.markers(count)
        finally:
            await broker.stop()


if __name__ == "__main__":
    asyncio.run(main())
