"""A read_committed consumer that watches a partition all the time, and remembers what it was shown.

It waits in long polls, so it sees records the moment they become visible, through crashes and all. What it was shown
once must be in the log for ever, at the same place, and must never have been aborted.
"""

import random

from oncelog.clients.history.operation import Kind, Outcome
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.topic_partition import TopicPartition
from tests.simulation import requests
from tests.simulation.log_reader import PartitionContent, take
from tests.simulation.patient_client import PatientClient
from tests.simulation.recorded_history import SimulatedHistory, name_of, text_of
from tests.simulation.routes import Routes

_MAX_WAIT_MS = 300


class Observer:
    """Reads until it is stopped."""

    def __init__(
        self, routes: Routes, partition: TopicPartition, rng: random.Random, history: SimulatedHistory
    ) -> None:
        self.partition = partition
        self.stopping = False
        self.position = 0
        self.seen = PartitionContent()
        self._rng = rng
        self._client = PatientClient(routes, rng)
        self._history = history
        self._process = history.process("observer")

    async def run(self) -> None:
        self._history.assign(self._process, self.partition)
        while not self.stopping:
            request = requests.fetch(
                self.partition,
                self.position,
                read_committed=True,
                max_wait_ms=_MAX_WAIT_MS,
                min_bytes=self._rng.choice([1, 1, 200]),
                max_bytes=self._rng.choice([1, 300, 1 << 20]),
            )
            operation = self._history.begin(self._process, Kind.POLL)
            data = (await self._client.call(request, requests.FETCH_VERSION)).responses[0].partitions[0]
            code = ErrorCode(data.error_code)
            if code in requests.RETRIABLE:
                operation.end(Outcome.FAIL, code.name)
                await self._client.pause()
                continue
            assert code is ErrorCode.NONE, f"{self.partition} at {self.position}: {code.name}"
            before = len(self.seen.records)
            self.position = take(data, self.position, self.seen, read_committed=True)
            for record in self.seen.records[before:]:
                operation.read(name_of(self.partition), record.offset, text_of(record.value))
            operation.end(Outcome.OK)

    def check(self, final: PartitionContent) -> None:
        """What it saw is exactly what is there in the end, up to where it came."""
        expected = [record for record in final.records if record.offset < self.position]
        assert self.seen.records == expected, f"{self.partition} changed under a reader at {self.position}"
