"""aiokafka as a client of workloads whose phases are acknowledged one by one; it speaks version 1."""

import asyncio
from collections.abc import Sequence

from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.errors import KafkaError

from tests.interop.drivers.driver import TIMEOUT_SECONDS
from tests.interop.late_frames.workload import Outcome, Phase, Transaction


class PhasedAioKafka:
    """A task for each producer."""

    name = "aiokafka"

    def lacking(self) -> str | None:
        return None

    def run_phases(
        self, address: str, topic: str, transactional_id_prefix: str, transactions: Sequence[Transaction]
    ) -> list[str]:
        return asyncio.run(_run_all(address, topic, transactional_id_prefix, transactions))


async def _run_all(address: str, topic: str, prefix: str, transactions: Sequence[Transaction]) -> list[str]:
    running: list[tuple[int, asyncio.Task[list[Outcome]]]] = []
    async with asyncio.TaskGroup() as tasks:
        for number in sorted({transaction.producer for transaction in transactions}):
            mine = [transaction for transaction in transactions if transaction.producer == number]
            running.append((number, tasks.create_task(_run(address, topic, f"{prefix}-{number}", mine))))
    return [f"{number}\t{outcome.value}" for number, task in running for outcome in task.result()]


async def _run(address: str, topic: str, transactional_id: str, transactions: Sequence[Transaction]) -> list[Outcome]:
    outcomes: list[Outcome] = []
    while len(outcomes) < len(transactions):
        producer = AIOKafkaProducer(
            bootstrap_servers=address, transactional_id=transactional_id, retry_backoff_ms=2, request_timeout_ms=5_000
        )
        await producer.start()
        try:
            for transaction in transactions[len(outcomes) :]:
                async with asyncio.timeout(TIMEOUT_SECONDS):
                    outcomes.append(await _transaction(producer, topic, transactional_id, transaction))
                if outcomes[-1] is not (Outcome.COMMITTED if transaction.commit else Outcome.ABORTED):
                    break  # Its sequence numbers may have a gap, which only another producer closes.
        finally:
            await producer.stop()
    return outcomes


async def _transaction(producer: AIOKafkaProducer, topic: str, group: str, transaction: Transaction) -> Outcome:
    try:
        await producer.begin_transaction()
        for phase in transaction.phases:
            await _send(producer, topic, phase)
        if transaction.commits_offset:
            await producer.send_offsets_to_transaction({TopicPartition(topic, 0): transaction.offset}, group)
    except KafkaError:
        return await _aborted(producer, Outcome.ABORT_FAILED)
    if not transaction.commit:
        return await _aborted(producer, Outcome.ABORT_FAILED)
    try:
        await producer.commit_transaction()
        return Outcome.COMMITTED
    except KafkaError:
        return await _aborted(producer, Outcome.COMMIT_FAILED)


async def _send(producer: AIOKafkaProducer, topic: str, phase: Phase) -> None:
    batch = producer.create_batch()
    for value in phase.values:
        batch.append(key=value.encode(), value=value.encode(), timestamp=None)
    batch.close()
    await (await producer.send_batch(batch, topic, partition=phase.partition))


async def _aborted(producer: AIOKafkaProducer, unless_done: Outcome) -> Outcome:
    try:
        await producer.abort_transaction()
        return Outcome.ABORTED
    except (KafkaError, AssertionError):  # The client asserts that no fatal error came before.
        return unless_done
