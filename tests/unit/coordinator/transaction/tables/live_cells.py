"""The cells of a table, each a transactional id of one coordinator that has loaded them all from its log.

No partition has a leader, so what is prepared stays prepared. Time hardly passes, and no sweep runs.
"""

from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any

from oncelog.coordinator.transaction.log_records import build_record_batch
from oncelog.coordinator.transaction.state import ProducerIdAndEpoch, TransactionMetadata
from tests.unit.coordinator.transaction.tables.decision_table import Cell, Rule
from tests.unit.coordinator.transaction.tables.relations import KNOWN, NEW_ID, NOW, PREVIOUS_ID, metadata_of
from tests.unit.coordinator.transaction.world import Call, World

Decided = tuple[Cell, Rule]


class LiveCells:
    """``with LiveCells(...) as live: live.ask(...)``, then what was answered and written for each of them."""

    def __init__(self, decided: Iterable[Decided], *, level: int = 2) -> None:
        self.decided = list(decided)
        self.world = World()
        self.world.transaction_version = level
        self.world.cluster.add_topic(KNOWN.topic, 2, leader=None)
        self._loaded = 0

    def __enter__(self) -> "LiveCells":
        epoch_log = self.world.log.elect()
        for name, (cell, _) in self.named():
            epoch_log.append(build_record_batch(name, metadata_of(cell), NOW))
        self._loaded = len(self.decided)
        self.world.elect()
        while self.world.coordinator.is_loading:
            self.world.turn()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.world.stop()

    def named(self) -> Iterable[tuple[str, Decided]]:
        return ((f"cell-{number}", decided) for number, decided in enumerate(self.decided))

    def ask(self, request: Callable[[World, str, Cell], Call[Any]]) -> list[Any]:
        """Make every request, and wait for every response."""
        calls = [request(self.world, name, cell) for name, (cell, _) in self.named()]
        return [call.wait() for call in calls]

    def written(self) -> dict[str, TransactionMetadata]:
        """The first record after the load, of those ids that have one."""
        first: dict[str, TransactionMetadata] = {}
        for name, metadata in list(self.world.log.records())[self._loaded :]:
            assert metadata is not None
            first.setdefault(name, normalised(metadata))
        return first


def normalised(metadata: TransactionMetadata) -> TransactionMetadata:
    """With times that may have passed, ids that were new, and without what no record holds."""
    return metadata._replace(
        producer_id=_known_id(metadata.producer_id),
        next_producer_id=_known_id(metadata.next_producer_id),
        start_ms=_known_time(metadata.start_ms),
        last_update_ms=_known_time(metadata.last_update_ms),
        last_producer_epoch=-1,
        cause=None,
    )


def known_producer(producer: ProducerIdAndEpoch) -> ProducerIdAndEpoch:
    return ProducerIdAndEpoch(_known_id(producer.id), producer.epoch)


def _known_id(producer_id: int) -> int:
    return NEW_ID if 0 <= producer_id < PREVIOUS_ID else producer_id


def _known_time(time_ms: int) -> int:
    return NOW if NOW <= time_ms < NOW + 1_000 else time_ms
