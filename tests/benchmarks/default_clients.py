"""Producers with default settings that write to all partitions in turn, until stopped.

What they report is what an application sees: how long each record took from ``send`` to its response, and every error
that was not dealt with inside the client.
"""

import asyncio
import threading
import time
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Final

from confluent_kafka import KafkaError, Message
from confluent_kafka import Producer as ConfluentProducer

from oncelog.clients.errors import ClientError
from oncelog.clients.producer import Producer, ProducerConfig
from tests.faults.access import Access

_RECORDS_PER_SECOND: Final = 500
_VALUE: Final = bytes(100)
_FLUSH_SECONDS: Final = 60.0


@dataclass(slots=True)
class Experience:
    """Of one client."""

    seconds: list[float] = field(default_factory=list)
    """From ``send`` to the response, for each record that was written."""
    errors: list[str] = field(default_factory=list)


async def confluent(access: Access, topic: str, partitions: int, stop: asyncio.Event) -> Experience:
    """confluent-kafka (librdkafka), in a thread of its own."""
    experience, stopped = Experience(), threading.Event()
    writing = asyncio.get_running_loop().run_in_executor(
        None, _write_with_confluent, access, topic, partitions, stopped, experience
    )
    await stop.wait()
    stopped.set()
    await writing
    return experience


def _write_with_confluent(
    access: Access, topic: str, partitions: int, stopped: threading.Event, experience: Experience
) -> None:
    def delivered(began: float, error: KafkaError | None, _: Message) -> None:
        if error is None:
            experience.seconds.append(time.perf_counter() - began)
        else:
            experience.errors.append(str(error))

    producer = ConfluentProducer({"bootstrap.servers": access.bootstrap, **access.of_librdkafka()})
    number = 0
    while not stopped.is_set():
        on_delivery = partial(delivered, time.perf_counter())
        producer.produce(topic, _VALUE, partition=number % partitions, on_delivery=on_delivery)
        producer.poll(1 / _RECORDS_PER_SECOND)
        number += 1
    remaining = producer.flush(_FLUSH_SECONDS)
    experience.errors += ["not answered"] * remaining


async def ours(access: Access, topic: str, partitions: int, stop: asyncio.Event) -> Experience:
    """Our own client, in this loop."""
    experience, loop = Experience(), asyncio.get_running_loop()

    def delivered(began: float, future: "asyncio.Future[object]") -> None:
        if future.exception() is None:
            experience.seconds.append(loop.time() - began)
        else:
            experience.errors.append(repr(future.exception()))

    config = ProducerConfig(bootstrap=access.bootstrap, **access.of_oncelog())
    async with Producer(config, rng=Random(1), wall_clock=_wall_clock) as producer:
        number = 0
        while not stop.is_set():
            began = loop.time()
            try:
                future = await producer.send(topic, _VALUE, partition=number % partitions)
                future.add_done_callback(partial(delivered, began))
            except ClientError as error:
                experience.errors.append(repr(error))
            number += 1
            await asyncio.sleep(1 / _RECORDS_PER_SECOND)
        await producer.flush()
    return experience


def _wall_clock() -> int:
    return time.time_ns() // 1_000_000
