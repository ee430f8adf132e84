"""How many schedules of a kind are played, and which.

``ONCELOG_CHAOS_SCHEDULES`` says how many of each kind; ``make client-chaos`` plays 1,000, ``make test`` a few. A
failure names its seed, and ``ONCELOG_CHAOS_SEED`` plays just that one.
"""

import os
from collections import Counter
from collections.abc import Mapping

from tests.chaos.proxy import Fault
from tests.chaos.stage import Schedule, run_schedule

SCHEDULES = int(os.environ.get("ONCELOG_CHAOS_SCHEDULES", "0"))
SEED = os.environ.get("ONCELOG_CHAOS_SEED")
CHUNKS = 10


def play(chunk: int, schedule: Schedule, at_least: Mapping[str, int], *, few: int = 20) -> None:
    """Play a tenth of the schedules; of a thousand, each fault and each event must have been seen often."""
    events: Counter[str] = Counter()
    seeds = range(SCHEDULES or few) if SEED is None else [int(SEED)]
    for seed in (seed for seed in seeds if seed % CHUNKS == chunk):
        events += run_schedule(seed, schedule)
    print(dict(sorted(events.items())))
    if SCHEDULES >= 1_000 and SEED is None:
        at_least = {fault.name: 10 for fault in Fault} | dict(at_least)
        assert all(events[event] >= count for event, count in at_least.items()), f"too little of something: {events}"
