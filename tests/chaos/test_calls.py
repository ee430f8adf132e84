"""Seeded schedules of random calls, cancelled at random awaits, over connections that break: nothing hangs or stays."""

import pytest

from tests.chaos.call_schedule import admin_calls, consumer_calls, producer_calls
from tests.chaos.drawn_calls import TABLES, public_names
from tests.chaos.playing import CHUNKS, play
from tests.chaos.stage import Schedule


@pytest.mark.parametrize("cls", TABLES, ids=lambda cls: cls.__name__)
def test_public_methods_all_have_drawn_arguments(cls: type) -> None:
    assert set(TABLES[cls]) == public_names(cls)


@pytest.mark.parametrize("schedule", [producer_calls, consumer_calls, admin_calls], ids=lambda play: play.__name__)
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_random_calls_end_in_time_and_leave_a_client_that_works(chunk: int, schedule: Schedule) -> None:
    play(chunk, schedule, {"cancelled": 20, "works": 50}, few=10)
