"""Seeded schedules of producers behind a proxy that breaks connections: nothing lost, doubled, reordered or torn.

``ONCELOG_CHAOS_SCHEDULES`` says how many of each kind; ``make client-chaos`` plays 1,000.
"""

import os
from collections import Counter
from collections.abc import Mapping

import pytest

from tests.chaos.idempotent_schedule import idempotent_schedule
from tests.chaos.proxy import Fault
from tests.chaos.stage import Schedule, run_schedule
from tests.chaos.transactional_schedule import version_1_schedule, version_2_schedule

SCHEDULES = int(os.environ.get("ONCELOG_CHAOS_SCHEDULES", "20"))
CHUNKS = 10


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_idempotent_producer_loses_doubles_and_reorders_nothing(chunk: int) -> None:
    play(chunk, idempotent_schedule, {"acknowledged": 5_000, "DeliveryTimedOut": 20, "cancelled": 20})


@pytest.mark.parametrize("schedule", [version_1_schedule, version_2_schedule], ids=["version 1", "version 2"])
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_transactional_producers_commit_all_or_nothing(chunk: int, schedule: Schedule) -> None:
    play(chunk, schedule, {"COMMITTED": 300, "ABORTED": 100, "cancelled": 100, "OperationTimedOut": 20})


def play(chunk: int, schedule: Schedule, at_least: Mapping[str, int]) -> None:
    """Play a tenth of the schedules; of a thousand, each fault and each event must have been seen often."""
    events: Counter[str] = Counter()
    for seed in range(chunk, SCHEDULES, CHUNKS):
        events += run_schedule(seed, schedule)
    print(dict(sorted(events.items())))
    if SCHEDULES >= 1_000:
        at_least = {fault.name: 10 for fault in Fault} | dict(at_least)
        assert all(events[event] >= count for event, count in at_least.items()), f"too little of something: {events}"
