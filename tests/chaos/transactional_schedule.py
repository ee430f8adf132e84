"""Transactional producers of one id, one after the other, in either protocol, over connections that break.

What must hold when all has healed: of a transaction whose commit returned, every accepted record is visible once, and
its offsets are committed; of one that was aborted, or never asked to commit, nothing is; of one whose producer ended
during its commit, everything or nothing. The records of a partition are in the order of the calls. No call took longer
than its time-out, and the last producer can go on.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine
from enum import Enum
from random import Random
from typing import Any, Final

from oncelog.clients.errors import ClientError, OperationTimedOut
from oncelog.clients.group_metadata import ConsumerGroupMetadata
from oncelog.clients.producer import FutureRecordMetadata, Producer, ProducerConfig
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.topic_partition import TopicPartition
from tests.chaos.stage import TOPIC, Stage, offsets_of
from tests.simulation import requests
from tests.simulation.virtual_loop import VirtualLoop

GROUP: Final = ConsumerGroupMetadata(group_id="readers")
_MOST_ATTEMPTS: Final = 200


class Fate(Enum):
    """What the application knows of a transaction."""

    COMMITTED = "commit_transaction returned"
    ABORTED = "it was aborted, or its producer ended before it was asked to commit"
    UNKNOWN = "its producer ended after it was asked to commit"


class Transaction:
    """One transaction: its records by number, and the offset that it commits, 0 if none."""

    def __init__(self) -> None:
        self.futures: dict[int, FutureRecordMetadata] = {}
        self.offset = 0
        self.fate = Fate.ABORTED


class TransactionalSchedule:
    """One run."""

    def __init__(self, loop: VirtualLoop, rng: Random, protocol: int) -> None:
        self.rng = rng
        self.stage = Stage(loop, rng, rng.randint(1, 3))
        request_ms = rng.choice((300, 1_000, 3_000))
        self.config = ProducerConfig(
            bootstrap=self.stage.bootstrap,
            transactional_id="id",
            transaction_protocol="1" if protocol == 1 else "2",
            transaction_timeout_ms=rng.choice((3_000, 60_000)),
            linger_ms=rng.choice((0, 5)),
            batch_bytes=rng.choice((512, 2_048)),
            max_request_bytes=4_096,
            buffer_bytes=1 << 20,
            max_block_ms=rng.choice((500, 5_000)),
            request_timeout_ms=request_ms,
            delivery_timeout_ms=request_ms + rng.choice((100, 2_000, 20_000)),
            connect_timeout_ms=1_000,
            retry_backoff_ms=rng.choice((10, 100)),
        )
        self.cancel = rng.choice((0.0, 0.1, 0.4))
        self.transactions: list[Transaction] = []
        self.sends = 0
        self.errors: Counter[str] = Counter()

    async def run(self) -> Counter[str]:
        """Play, heal and check; returns how often what happened."""
        await self.stage.start()
        for _ in range(self.rng.randint(1, 4)):
            await self._use_one_producer()
        self.stage.proxy.heal()
        self.cancel = 0.0
        await self._use_one_producer()
        assert self.transactions[-1].fate is Fate.COMMITTED
        await self._check()
        await self.stage.stop()
        return self._events()

    async def _use_one_producer(self) -> None:
        """Until it ends by an error, or some transactions are over. In good weather the last one must commit."""
        producer = Producer(self.config, rng=self.rng, wall_clock=self.stage.broker.wall_clock)
        try:
            await self._until_done(producer.start, 60, cancel=0.0)
            if not await self._is_ready(producer):
                return
            for _ in range(self.rng.randint(1, 8)):
                if not await self._transact(producer):
                    return
                if self._gives_up():
                    return
            if not self.stage.proxy.is_bad:
                assert await self._transact(producer, commit=True)
        finally:
            bound = self.rng.choice((0.0, 1.0, 10.0))
            await self.stage.call(producer.close(bound), bound + 6)  # Connections are waited for 5 s.

    def _gives_up(self) -> bool:
        return self.stage.proxy.is_bad and self.rng.random() < 0.05

    async def _is_ready(self, producer: Producer) -> bool:
        return await self._until_done(producer.init_transactions, self.config.max_block_ms / 1000) is None

    async def _until_done(
        self, call: Callable[[], Coroutine[Any, Any, None]], bound_seconds: float, *, cancel: float | None = None
    ) -> ClientError | None:
        """Call again after a time-out, a cancellation, or whatever says that this helps; return the final error."""
        for attempt in range(_MOST_ATTEMPTS):
            if attempt == _MOST_ATTEMPTS // 2:
                self.stage.proxy.heal()
            likely = self.cancel if cancel is None else cancel
            outcome = await self.stage.call(call(), bound_seconds, cancel=likely)
            if outcome is None:
                return None
            self.errors[type(outcome).__name__] += 1
            if isinstance(outcome, ClientError) and not outcome.is_retriable:
                return outcome
        raise AssertionError("a call does not come to its end")

    async def _transact(self, producer: Producer, *, commit: bool = False) -> bool:
        """One transaction; whether the producer can go on."""
        transaction = Transaction()
        self.transactions.append(transaction)
        producer.begin_transaction()
        error = await self._fill(producer, transaction)
        if self._gives_up():
            return False
        if error is None and (commit or self.rng.random() < 0.75):
            transaction.fate = Fate.UNKNOWN
            error = await self._until_done(producer.commit_transaction, self.config.max_block_ms / 1000)
            if error is None:
                transaction.fate = Fate.COMMITTED
                return True
            if not error.is_abortable:
                return False
            transaction.fate = Fate.ABORTED
        elif error is not None and error.is_fatal:
            return False
        return await self._until_done(producer.abort_transaction, self.config.max_block_ms / 1000) is None

    async def _fill(self, producer: Producer, transaction: Transaction) -> ClientError | None:
        """Send records and offsets, several at a time; an error after which the transaction has to be aborted."""
        bound = self.config.max_block_ms / 1000
        outcomes: list[Any] = []

        async def call(work: Coroutine[Any, Any, None], *, is_vital: bool) -> None:
            outcome = await self.stage.call(work, bound, cancel=self.cancel)
            if isinstance(outcome, asyncio.CancelledError | OperationTimedOut) and not is_vital:
                return
            if outcome is not None:
                outcomes.append(outcome)

        async with asyncio.TaskGroup() as group:
            for _ in range(self.rng.randint(0, 12)):
                group.create_task(call(self._send(producer, transaction), is_vital=False))
                if self.stage.proxy.is_bad and self.rng.random() < 0.2:  # Transactions may time out.
                    await asyncio.sleep(self.rng.expovariate(1 / self.rng.choice((0.001, 0.1, 1.0))))
            for _ in range(self.rng.choice((0, 0, 1, 2, 3))):
                group.create_task(call(self._send_offsets(producer, transaction), is_vital=True))
        errors = [each for each in outcomes if isinstance(each, ClientError)]
        self.errors.update(type(each).__name__ for each in outcomes)
        fatal = [each for each in errors if each.is_fatal]
        return fatal[0] if fatal else errors[0] if errors else OperationTimedOut("cancelled") if outcomes else None

    async def _send(self, producer: Producer, transaction: Transaction) -> None:
        number = self.sends
        self.sends += 1
        value = b"%d " % number + bytes(self.rng.choice((1, 100, 400)))
        partition = self.rng.randrange(self.stage.partitions)
        transaction.futures[number] = await producer.send(TOPIC, value, partition=partition)

    async def _send_offsets(self, producer: Producer, transaction: Transaction) -> None:
        self.sends += 1
        transaction.offset = offset = self.sends
        await producer.send_offsets_to_transaction(offsets_of(offset), GROUP)

    async def _check(self) -> None:
        visible: list[int] = []
        for partition, records in enumerate(await self.stage.content(read_committed=True)):
            numbers = [int(record.value.split()[0]) for record in records]
            assert numbers == sorted(set(numbers)), f"partition {partition} is doubled or out of order: {numbers}"
            visible += numbers
        assert len(visible) == len(set(visible))
        possible = self._check_transactions(set(visible))
        assert await self._committed_offset() in possible

    def _check_transactions(self, visible: set[int]) -> set[int]:
        """Check each by its fate; return the offsets one of which must be committed at the end."""
        offsets = {-1}
        for transaction in self.transactions:
            numbers = transaction.futures.keys()
            assert all(future.done() for future in transaction.futures.values())
            seen = numbers & visible
            match transaction.fate:
                case Fate.COMMITTED:
                    assert seen == numbers, f"lost: {sorted(numbers - seen)}"
                    assert all(future.exception() is None for future in transaction.futures.values())
                case Fate.ABORTED:
                    assert not seen, f"aborted and visible: {sorted(seen)}"
                case Fate.UNKNOWN:
                    assert seen in (set(), set(numbers)), f"torn: {sorted(seen)} of {sorted(numbers)}"
            visible = visible - seen
            if transaction.offset and (seen or transaction.fate is Fate.COMMITTED):
                offsets = {transaction.offset}
            elif transaction.offset and transaction.fate is Fate.UNKNOWN and not numbers:
                offsets.add(transaction.offset)
        assert not visible, f"not accepted and visible: {sorted(visible)}"
        return offsets

    async def _committed_offset(self) -> int:
        async with self.stage.direct() as client:
            request = requests.offset_fetch(GROUP.group_id, TopicPartition(TOPIC, 0), require_stable=True)
            response = await client.call(request, requests.OFFSET_FETCH_VERSION)
        if error := response.groups[0].error_code:
            assert error == ErrorCode.NOT_COORDINATOR, "only a group of which nobody has ever asked is nowhere"
            return -1
        committed: int = response.groups[0].topics[0].partitions[0].committed_offset
        return committed

    def _events(self) -> Counter[str]:
        events = self.errors + Counter({fault.name: count for fault, count in self.stage.proxy.faults.items()})
        events["calls"], events["cancelled"] = self.stage.calls, self.stage.cancelled
        events.update(transaction.fate.name for transaction in self.transactions)
        return events


async def version_1_schedule(loop: VirtualLoop, rng: Random) -> Counter[str]:
    """Play one schedule in version 1 of the transaction protocol."""
    return await TransactionalSchedule(loop, rng, 1).run()


async def version_2_schedule(loop: VirtualLoop, rng: Random) -> Counter[str]:
    """Play one schedule in version 2."""
    return await TransactionalSchedule(loop, rng, 2).run()
