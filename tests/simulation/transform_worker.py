"""Consume, transform, produce: positions and outputs in one transaction.

A worker owns one input partition. It starts from the group's committed position, reads a few records, writes for each
of them one output value to every output partition, commits the new position in the same transaction, and ends it.
After anything that breaks the transaction it begins again, from the position that is committed then.

A successor with the same transactional id may start while it still works: that makes it a zombie. One with another id
must know that it is dead (groups see to that with their generations); then what keeps it from starting at a position
that its predecessor's last transaction may still move is that it asks for a stable one.
"""

import asyncio
import random
from collections.abc import Sequence

from oncelog.clients.history.operation import Kind, Outcome
from oncelog.clients.history.recorder import RecordedOperation
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.topic_partition import TopicPartition
from tests.simulation import requests
from tests.simulation.log_reader import PositionedValue, read_from
from tests.simulation.patient_client import Abortable, Broken
from tests.simulation.recorded_history import SimulatedHistory, name_of, text_of
from tests.simulation.transactional_session import TransactionalSession

GROUP = "transformers"


def output_of(source: TopicPartition, value: bytes) -> bytes:
    """What becomes of an input value."""
    return b"%d:%s" % (source.partition, value)


class TransformWorker:
    """Works until it is stopped, or until a successor has fenced it."""

    def __init__(
        self,
        source: TopicPartition,
        targets: Sequence[TopicPartition],
        rng: random.Random,
        session: TransactionalSession,
        history: SimulatedHistory,
        *,
        incarnation: str = "",
        longest_rest: float = 0.0,
    ) -> None:
        """``incarnation`` is what its transactional id ends with; ``longest_rest``: in seconds, between two rounds."""
        self.source = source
        self.incarnation = incarnation
        self.stopping = False
        self.commits = 0
        self.session = session
        self._longest_rest = longest_rest
        self._targets = targets
        self._rng = rng
        self._client = session.client
        self._history = history
        self._process = history.process(session.transactional_id)

    async def run(self) -> None:
        self._history.subscribe(self._process, self.source)
        while not self.stopping:
            try:
                await self.session.begin()
                while not self.stopping:
                    await self._one_round()
                    await self._rest()
            except Broken:
                await self._rest()  # Two with one transactional id would do nothing but fence each other.

    async def _rest(self) -> None:
        if self._longest_rest:
            await asyncio.sleep(self._rng.uniform(0.0, self._longest_rest))

    async def _one_round(self) -> None:
        await self.session.follow_the_version_that_holds()
        position = await self._position()
        records = await self._read(position)
        if not records:
            await self._client.pause()
            return
        operation = self._history.begin(self._process, Kind.TXN)
        for record in records:
            operation.read(name_of(self.source), record.offset, text_of(record.value))
        commit = self._rng.random() < 0.8
        try:
            await self._transform(records, operation)
        except Abortable:
            commit = False
            self.session.events["must abort"] += 1
        await self.session.end(commit=commit)
        operation.end(Outcome.OK if commit else Outcome.FAIL)
        self.commits += commit

    async def _transform(self, records: Sequence[PositionedValue], operation: RecordedOperation) -> None:
        for target in self._targets:
            for record in records:
                operation.send(name_of(target), text_of(output_of(self.source, record.value)))
        operation.commit_position(GROUP, name_of(self.source), records[-1].offset + 1)
        await self.session.add_partitions(self._targets)
        for target in self._targets:
            await self.session.produce((target, [output_of(self.source, record.value) for record in records]))
        await self.session.commit_offsets(GROUP, {self.source: records[-1].offset + 1})

    async def _position(self) -> int:
        """Return the group's position, once no open transaction can change it."""
        request = requests.offset_fetch(GROUP, self.source, require_stable=True)
        find = requests.find_coordinator(GROUP, transactional=False)
        while True:
            position = requests.fetched_position(await self._client.call(request, requests.OFFSET_FETCH_VERSION))
            if position.error is ErrorCode.NONE:
                return max(position.offset, 0)
            if position.error not in requests.RETRIABLE:
                raise Broken(position.error.name)
            await self._client.call(find, requests.FIND_COORDINATOR_VERSION)
            await self._client.pause()

    async def _read(self, position: int) -> list[PositionedValue]:
        limit = self._rng.randint(1, 4)
        records = await read_from(self._client.call, self.source, position)
        return records[:limit]
