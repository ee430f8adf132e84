"""What the clients of a simulated history saw, recorded for ``oncelog.clients.history``, which judges it by itself.

With ``ONCELOG_HISTORY=FILE`` the history of a run is written to that file, for ``oncelog verify-history FILE``.
"""

import asyncio
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from oncelog.clients.history.anomaly import AnomalyKind
from oncelog.clients.history.operation import Kind
from oncelog.clients.history.recorder import RecordedOperation, Recorder
from oncelog.clients.history.verdict import Rules, judge
from oncelog.protocol.topic_partition import TopicPartition
from tests.simulation.journal import current_journal
from tests.simulation.log_reader import PositionedValue

_NANOSECONDS: Final = 1_000_000_000
_SHOWN: Final = 3
"""Anomalies of each kind in a failure."""


class SimulatedHistory:
    """The operations of all clients of one run, in virtual time."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.recorder = Recorder(lambda: int(loop.time() * _NANOSECONDS))
        self._processes = 0
        self._journal = current_journal()

    def process(self, name: str) -> str:
        """A name of its own for each client, also where two have one transactional id."""
        self._processes += 1
        return f"{name}#{self._processes}"

    def begin(self, process: str, kind: Kind, partitions: Iterable[TopicPartition] = ()) -> RecordedOperation:
        self._journal.note(process, f"operation: {kind.value}")
        return self.recorder.begin(process, kind, [name_of(partition) for partition in partitions])

    def subscribe(self, process: str, partition: TopicPartition) -> None:
        self.recorder.record(process, Kind.SUBSCRIBE, [name_of(partition)])

    def assign(self, process: str, partition: TopicPartition) -> None:
        self.recorder.record(process, Kind.ASSIGN, [name_of(partition)])

    def finish(
        self,
        records: Mapping[TopicPartition, Iterable[PositionedValue]],
        positions: Mapping[str, Mapping[TopicPartition, int]],
    ) -> None:
        """Note what is there when all is over, and save the history where that is wanted."""
        self.recorder.record_final(
            {name_of(partition): ((at, text_of(value)) for at, value in found) for partition, found in records.items()},
            {
                group: {name_of(partition): at for partition, at in places.items()}
                for group, places in positions.items()
            },
        )
        if path := os.environ.get("ONCELOG_HISTORY"):
            Path(path).write_text("".join(f"{line}\n" for line in self.recorder.lines()))

    def assert_good(self, *allowed: AnomalyKind) -> None:
        """No promise is broken but those that these clients do without."""
        found = judge(self.recorder.history(), Rules.of(allow=allowed)).forbidden
        assert not found, "\n".join(
            f"{kind.value}: {anomaly.text}; {len(anomaly.operations)} operations, first by {first.process}"
            for kind, findings in found.items()
            for anomaly in findings.kept[:_SHOWN]
            for first in anomaly.operations[:1]
        )


def name_of(partition: TopicPartition) -> str:
    return f"{partition.topic}-{partition.partition}"


def text_of(value: bytes) -> str:
    return value.decode()
