"""One idempotent producer, several tasks that use it at random, and connections that break.

What must hold when all has healed: a record whose future succeeded is in the log once, where the future said; one that
failed is there at most once, and not at all if its error excludes that; one that ``send`` did not accept is not there;
the records of a partition are in the order of the calls; no future is undone; no call took longer than its time-out.
"""

import asyncio
from collections import Counter
from collections.abc import Coroutine
from random import Random
from typing import Any, Final

from oncelog.clients.errors import BufferFull, ClientError, DeliveryTimedOut, OutcomeUnknown, ProducerClosed
from oncelog.clients.producer import FutureRecordMetadata, Producer, ProducerConfig
from tests.chaos.stage import TOPIC, Stage
from tests.simulation.virtual_loop import VirtualLoop

_MAYBE_WRITTEN: Final = (OutcomeUnknown, ProducerClosed)


class Sent:
    """One call of ``send``; ``future`` is None unless it was accepted."""

    def __init__(self, partition: int | None) -> None:
        self.partition = partition
        self.future: FutureRecordMetadata | None = None

    @property
    def may_be_written(self) -> bool:
        error = None if self.future is None else self.future.exception()
        return isinstance(error, _MAYBE_WRITTEN) or (isinstance(error, DeliveryTimedOut) and error.maybe_written)

    @property
    def is_acknowledged(self) -> bool:
        return self.future is not None and self.future.exception() is None


class IdempotentSchedule:
    """One run."""

    def __init__(self, loop: VirtualLoop, rng: Random) -> None:
        self.rng = rng
        self.stage = Stage(loop, rng, rng.randint(1, 3))
        request_ms = rng.choice((300, 1_000, 3_000))
        self.config = ProducerConfig(
            bootstrap=self.stage.bootstrap,
            linger_ms=rng.choice((0, 5, 50)),
            batch_bytes=rng.choice((512, 2_048)),
            buffer_bytes=rng.choice((4_096, 1 << 20)),
            max_request_bytes=4_096,
            max_block_ms=rng.choice((500, 5_000)),
            request_timeout_ms=request_ms,
            delivery_timeout_ms=request_ms + rng.choice((100, 2_000, 20_000)),
            connect_timeout_ms=1_000,
            retry_backoff_ms=rng.choice((10, 100)),
            max_in_flight=rng.randint(1, 5),
            compression=rng.choice(("none", "none", "gzip")),
        )
        self.cancel = rng.choice((0.0, 0.1, 0.4))
        self.sent: list[Sent] = []

    async def run(self) -> Counter[str]:
        """Play, heal and check; returns how often what happened."""
        await self.stage.start()
        producer = Producer(self.config, rng=self.rng, wall_clock=self.stage.broker.wall_clock)
        await self._start(producer)
        async with asyncio.TaskGroup() as group:
            for _ in range(self.rng.randint(1, 4)):
                group.create_task(self._use(producer))
            if self.rng.random() < 0.3:
                await asyncio.sleep(self.rng.uniform(0, 20))
                self.stage.proxy.heal()
        await self._close(producer)
        self.stage.proxy.heal()
        await self._check()
        await self.stage.stop()
        return self._events()

    async def _start(self, producer: Producer) -> None:
        for _ in range(100):
            if await self.stage.call(producer.start(), 60) is None:
                return
        self.stage.proxy.heal()
        await producer.start()

    async def _use(self, producer: Producer) -> None:
        for _ in range(self.rng.randint(10, 120)):
            match self.rng.choices(("send", "now", "flush", "count", "await", "wait"), (60, 20, 3, 3, 4, 10))[0]:
                case "send":
                    await self._call(self._send(producer), self.config.max_block_ms)
                case "now":
                    self._send_now(producer)
                case "flush":
                    await self._call(producer.flush(), self.config.delivery_timeout_ms)
                case "count":
                    await self._call(producer.partitions_for(TOPIC), self.config.max_block_ms)
                case "await":
                    await self._await_one()
                case _:
                    await asyncio.sleep(self.rng.expovariate(1 / self.rng.choice((0.001, 0.1, 2.0))))

    async def _call(self, work: Coroutine[Any, Any, Any], bound_ms: float) -> None:
        await self.stage.call(work, bound_ms / 1000, cancel=self.cancel)

    def _next(self) -> tuple[Sent, bytes]:
        sent = Sent(self.rng.choice((None, *range(self.stage.partitions))))
        self.sent.append(sent)
        return sent, b"%d " % (len(self.sent) - 1) + bytes(self.rng.choice((1, 100, 400)))

    async def _send(self, producer: Producer) -> None:
        sent, value = self._next()
        sent.future = await producer.send(TOPIC, value, partition=sent.partition)

    def _send_now(self, producer: Producer) -> None:
        sent, value = self._next()
        try:
            sent.future = producer.send_nowait(TOPIC, value, partition=sent.partition)
        except BufferFull:
            pass

    async def _await_one(self) -> None:
        futures = [sent.future for sent in self.sent if sent.future is not None]
        if futures:
            await self._call(_settled(self.rng.choice(futures)), self.config.delivery_timeout_ms)

    async def _close(self, producer: Producer) -> None:
        if self.rng.random() < 0.5:
            await self.stage.call(producer.flush(), self.config.delivery_timeout_ms / 1000)
        bound = self.rng.choice((None, 0.0, 1.0))
        longest = (self.config.delivery_timeout_ms + self.config.max_block_ms) / 1000 if bound is None else bound
        await self.stage.call(producer.close(bound), longest + 6)  # Connections are waited for 5 s.

    async def _check(self) -> None:
        await asyncio.sleep(60)  # In virtual time: whatever is under way arrives or never will.
        found: dict[int, tuple[int, int]] = {}
        for partition, records in enumerate(await self.stage.content(read_committed=False)):
            numbers = [int(record.value.split()[0]) for record in records]
            assert numbers == sorted(set(numbers)), f"partition {partition} is doubled or out of order: {numbers}"
            assert not found.keys() & set(numbers), "a record is in two partitions"
            found |= {number: (partition, record.offset) for number, record in zip(numbers, records, strict=True)}
        for number, sent in enumerate(self.sent):
            assert sent.future is None or sent.future.done(), f"nobody knows what became of record {number}"
            if sent.is_acknowledged:
                assert sent.future is not None
                metadata = sent.future.result()
                assert found.get(number) == (metadata.partition, metadata.offset), f"record {number} is lost"
            elif not sent.may_be_written:
                assert number not in found, f"record {number} was not sent, and is there"

    def _events(self) -> Counter[str]:
        events = Counter({fault.name: count for fault, count in self.stage.proxy.faults.items()})
        events["calls"], events["cancelled"] = self.stage.calls, self.stage.cancelled
        for sent in self.sent:
            error = None if sent.future is None else sent.future.exception()
            events["not accepted" if sent.future is None else type(error).__name__ if error else "acknowledged"] += 1
        return events


async def _settled(future: FutureRecordMetadata) -> None:
    try:
        await future
    except ClientError:
        pass


async def idempotent_schedule(loop: VirtualLoop, rng: Random) -> Counter[str]:
    """Play one schedule."""
    return await IdempotentSchedule(loop, rng).run()
