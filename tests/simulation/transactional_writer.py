"""A transactional producer that remembers what it was promised.

It keeps to the protocol as a careful client does: sequences continue, a produce without a response is sent again as
it was, an EndTxn without a response is repeated until the coordinator says how the transaction ended. What it cannot
learn it writes down as unknown. One writer is one transactional id; each transaction writes distinct values to several
partitions.
"""

import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from oncelog.clients.history.operation import Kind, Outcome
from oncelog.clients.history.recorder import RecordedOperation
from oncelog.protocol.topic_partition import TopicPartition
from tests.simulation.patient_client import Abortable, Broken
from tests.simulation.recorded_history import SimulatedHistory, name_of, text_of
from tests.simulation.transactional_session import TransactionalSession


class Fate(Enum):
    """How a transaction ended, as far as its writer knows."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    UNKNOWN = "unknown"


@dataclass
class Transaction:
    """The values that one transaction wrote, and its fate."""

    values: list[tuple[TopicPartition, bytes]]
    fate: Fate = Fate.UNKNOWN


class TransactionalWriter:
    """Runs transactions one after the other until it is stopped."""

    def __init__(
        self,
        name: str,
        partitions: Sequence[TopicPartition],
        rng: random.Random,
        session: TransactionalSession,
        history: SimulatedHistory,
        *,
        longest_rest: float = 0.0,
    ) -> None:
        """``longest_rest``: in seconds, between two transactions."""
        self.name = name
        self.transactions: list[Transaction] = []
        self.stopping = False
        self.session = session
        self.longest_pause = 0.05 if rng.random() < 0.8 else 2 * session.timeout_ms / 1000
        """In seconds, between two batches; long enough for its transactions to time out, in some writers."""
        self._longest_rest = longest_rest
        self._partitions = partitions
        self._rng = rng
        self._history = history
        self._process = history.process(name)

    async def run(self) -> None:
        while not self.stopping:
            try:
                await self.session.begin()
                while not self.stopping:
                    await self._one_transaction()
                    if self._longest_rest:
                        await asyncio.sleep(self._rng.uniform(0.0, self._longest_rest))
            except Broken:
                continue

    async def _one_transaction(self) -> None:
        await self.session.follow_the_version_that_holds()
        transaction = Transaction([])
        self.transactions.append(transaction)
        operation = self._history.begin(self._process, Kind.TXN)
        commit = self._rng.random() < 0.7
        try:
            await self._write(transaction, operation)
        except Abortable:
            commit = False
            self.session.events["must abort"] += 1
        await self.session.end(commit=commit)
        transaction.fate = Fate.COMMITTED if commit else Fate.ABORTED
        operation.end(Outcome.OK if commit else Outcome.FAIL)
        if self.session.version == 2 and self._rng.random() < 0.1:
            await self.session.end(commit=False)  # As a client that does not know whether it has begun (KAFKA-18464).

    async def _write(self, transaction: Transaction, operation: RecordedOperation) -> None:
        chosen = self._rng.sample(list(self._partitions), self._rng.randint(1, len(self._partitions)))
        await self.session.add_partitions(chosen)
        batches = [self._batch(chosen[number % len(chosen)], transaction) for number in range(self._rng.randint(1, 4))]
        for partition, value in transaction.values:
            operation.send(name_of(partition), text_of(value))
        if self._rng.random() < 0.3:
            await self.session.produce(*batches)
            return
        for batch in batches:
            await self.session.produce(batch)
            if self._rng.random() < 0.2:
                await asyncio.sleep(self._rng.uniform(0.005, self.longest_pause))

    def _batch(self, partition: TopicPartition, transaction: Transaction) -> tuple[TopicPartition, list[bytes]]:
        first = len(transaction.values)
        values = [
            b"%s/%d/%d" % (self.name.encode(), len(self.transactions), first + number)
            for number in range(self._rng.randint(1, 3))
        ]
        transaction.values += [(partition, value) for value in values]
        return partition, values
