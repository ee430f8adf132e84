"""Seeded schedules of producers behind a proxy that breaks connections: nothing lost, doubled, reordered or torn."""

import pytest

from tests.chaos.idempotent_schedule import idempotent_schedule
from tests.chaos.playing import CHUNKS, play
from tests.chaos.stage import Schedule
from tests.chaos.transactional_schedule import version_1_schedule, version_2_schedule


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_idempotent_producer_loses_doubles_and_reorders_nothing(chunk: int) -> None:
    play(chunk, idempotent_schedule, {"acknowledged": 5_000, "DeliveryTimedOut": 20, "cancelled": 20})


@pytest.mark.parametrize("schedule", [version_1_schedule, version_2_schedule], ids=["version 1", "version 2"])
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_transactional_producers_commit_all_or_nothing(chunk: int, schedule: Schedule) -> None:
    play(chunk, schedule, {"COMMITTED": 300, "ABORTED": 100, "cancelled": 100, "OperationTimedOut": 20})
