"""Our own client for the load: ``python -m tests.faults.programs.oncelog_client HOST:PORT,… NAME FIRST FIRST``.

Each role has an event loop of its own, in its thread, as the roles of the other clients have.
"""

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from itertools import count
from random import Random
from typing import Any

from oncelog.clients.consumer import Consumer, ConsumerConfig, ConsumerRecord, OffsetAndMetadata
from oncelog.clients.errors import ClientError
from oncelog.clients.producer import Producer, ProducerConfig
from tests.faults import names
from tests.faults.programs.speech import (
    ABORT_EACH,
    BATCH,
    BETWEEN_SECONDS,
    CALL_SECONDS,
    DELIVERY_SECONDS,
    OPEN_SECONDS,
    RECORDS,
    REQUEST_SECONDS,
    TRANSACTION_TIMEOUT_MS,
    Gate,
    Role,
    inputs,
    output,
    perform,
    say,
    security,
)


def _wall_clock() -> int:
    return time.time_ns() // 1_000_000


def _security() -> dict[str, Any]:
    """Return the settings of security, some of which a checker of types takes for others than texts."""
    return {**security()}


class Broken(Exception):
    """This producer cannot go on; a successor has to be made."""


async def _insist(call: Callable[[], Awaitable[None]]) -> None:
    """Call again as long as the client says that it may help."""
    deadline = asyncio.get_running_loop().time() + 2 * CALL_SECONDS
    while True:
        try:
            return await call()
        except ClientError as error:
            if not error.is_retriable or asyncio.get_running_loop().time() > deadline:
                raise


class Transactions:
    """The transactions of one role, through as many producers as it takes."""

    def __init__(self, role: Role, address: str, transactional_id: str, first: int) -> None:
        """``first`` is the number of the first transaction."""
        self._role: Role = role
        self._config = ProducerConfig(
            bootstrap=address,
            transactional_id=transactional_id,
            transaction_timeout_ms=TRANSACTION_TIMEOUT_MS,
            max_block_ms=int(CALL_SECONDS * 1000),
            request_timeout_ms=int(REQUEST_SECONDS * 1000),
            delivery_timeout_ms=int(DELIVERY_SECONDS * 1000),
            **_security(),
        )
        self._numbers = count(first)
        self._producer: Producer | None = None

    async def producer(self) -> Producer:
        """One that is initialised."""
        while self._producer is None:
            producer = Producer(self._config, rng=Random(), wall_clock=_wall_clock)
            try:
                await producer.start()
                await _insist(producer.init_transactions)
                self._producer = producer
            except ClientError as error:
                say(self._role, "trouble", detail=f"init: {error!r}")
                await producer.close(0)
        return self._producer

    async def renew(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            await producer.close(0)
        await self.producer()

    async def run(self, records: int, body: Callable[[Producer, int], Awaitable[None]], *, commit: bool) -> bool:
        """One transaction; True if it was committed. Raises ``Broken``; then ``renew`` is the thing to do."""
        producer = await self.producer()
        number = next(self._numbers)
        say(self._role, "begin", number, records)
        try:
            producer.begin_transaction()
            await body(producer, number)
        except ClientError as error:
            await self._abort(producer, number, repr(error))
            return False
        if not commit:
            await self._abort(producer, number, "on purpose")
            return False
        return await self._commit(producer, number)

    async def _abort(self, producer: Producer, number: int, reason: str) -> None:
        """Its end was never requested, so whatever happens to this producer, it will never be committed."""
        say(self._role, "aborted", number, detail=reason)
        try:
            await _insist(producer.abort_transaction)
        except ClientError as error:
            say(self._role, "trouble", number, detail=f"abort: {error!r}")
            raise Broken from error

    async def _commit(self, producer: Producer, number: int) -> bool:
        try:
            await _insist(producer.commit_transaction)
        except ClientError as error:
            if error.is_abortable:
                await self._abort_instead(producer, number, repr(error))
                return False
            say(self._role, "unknown", number, detail=repr(error))
            raise Broken from error
        say(self._role, "committed", number)
        return True

    async def _abort_instead(self, producer: Producer, number: int, reason: str) -> None:
        try:
            await _insist(producer.abort_transaction)
        except ClientError as error:
            say(self._role, "unknown", number, detail=f"{reason}, then {error!r}")
            raise Broken from error
        say(self._role, "aborted", number, detail=reason)


async def _send(producer: Producer, topic: str, records: Sequence[tuple[int, str]]) -> None:
    """Send, and wait until all are acknowledged."""
    sent = [
        await producer.send(topic, value.encode(), partition=partition % names.PARTITIONS)
        for partition, value in records
    ]
    await producer.flush()
    for future in sent:
        await future


async def _write(address: str, client: str, first: int, gate: Gate) -> None:
    transactions = Transactions("writer", address, names.writer_id(client), first)
    await transactions.producer()

    async def body(producer: Producer, number: int) -> None:
        records = list(inputs(client, number))
        half = len(records) // 2
        await _send(producer, names.INPUTS, records[:half])
        await asyncio.sleep(OPEN_SECONDS)
        await _send(producer, names.INPUTS, records[half:])

    for turn in count(1):
        await asyncio.to_thread(gate.pass_through)
        try:
            await transactions.run(RECORDS, body, commit=turn % ABORT_EACH != 0)
        except Broken:
            await transactions.renew()
        await asyncio.sleep(BETWEEN_SECONDS)


class Worker:
    """Consumes, transforms and produces."""

    def __init__(self, address: str, client: str, first: int) -> None:
        self._client = client
        self._transactions = Transactions("worker", address, names.worker_id(client), first)
        self._consumer = Consumer(
            ConsumerConfig(
                bootstrap=address,
                group_id=names.group(client),
                group_instance_id="worker",
                auto_offset_reset="earliest",
                session_timeout_ms=10_000,
                heartbeat_interval_ms=500,
                request_timeout_ms=int(REQUEST_SECONDS * 1000),
                default_api_timeout_ms=int(CALL_SECONDS * 1000),
                **_security(),
            ),
            rng=Random(),
            wall_clock=_wall_clock,
        )

    async def start(self) -> None:
        await self._transactions.producer()
        await self._consumer.start()
        self._consumer.subscribe([names.INPUTS])

    async def work(self) -> None:
        """One transaction, if there is something to read."""
        try:
            records = await self._consumer.poll(0.2, BATCH)
        except ClientError as error:
            say("worker", "trouble", detail=f"poll: {error!r}")
            await self._rewind()
            return
        if not records:
            return
        try:
            done = await self._transactions.run(len(records), lambda p, n: self._transform(p, n, records), commit=True)
        except Broken:
            await self._transactions.renew()
            done = False
        if not done:
            await self._rewind()

    async def _transform(self, producer: Producer, number: int, records: Sequence[ConsumerRecord]) -> None:
        made = [
            (
                record.partition,
                output(
                    self._client,
                    number,
                    index,
                    len(records),
                    (record.value or b"").decode(),
                    record.partition,
                    record.offset,
                ),
            )
            for index, record in enumerate(records)
        ]
        await _send(producer, names.outputs(self._client), made)
        offsets = {record.topic_partition: OffsetAndMetadata(record.offset + 1) for record in records}
        await _insist(lambda: producer.send_offsets_to_transaction(offsets, self._consumer.group_metadata()))

    async def _rewind(self) -> None:
        """Go back to what is committed."""
        while True:
            try:
                assignment = self._consumer.assignment
                committed = await self._consumer.committed(assignment)
                for partition in assignment & self._consumer.assignment:
                    found = committed.get(partition)
                    self._consumer.seek(partition, 0 if found is None else found)
                return
            except ClientError as error:
                say("worker", "trouble", detail=f"rewind: {error!r}")


async def _work(address: str, client: str, first: int, gate: Gate) -> None:
    worker = Worker(address, client, first)
    await worker.start()
    while True:
        await asyncio.to_thread(gate.pass_through)
        await worker.work()


def main() -> None:
    address, client, first_of_writer, first_of_worker = sys.argv[1:]
    firsts = int(first_of_writer), int(first_of_worker)
    perform(
        {
            "writer": lambda gate: asyncio.run(_write(address, client, firsts[0], gate)),
            "worker": lambda gate: asyncio.run(_work(address, client, firsts[1], gate)),
        }
    )


if __name__ == "__main__":
    main()
