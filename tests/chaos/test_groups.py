"""Seeded schedules of groups behind a proxy that breaks connections: each record is read, and each schedule ends."""

import pytest

from tests.chaos.group_schedule import group_schedule
from tests.chaos.playing import CHUNKS, play


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_group_loses_nothing_and_settles(chunk: int) -> None:
    seen = {"returned": 5_000, "cancelled": 1_000, "kill": 100, "leave": 100, "stayed away": 20, "stand_still": 100}
    rare = {"fenced": 10, "restart": 10, "unsubscribed": 20, "add_topic": 20, "lost partitions": 50}
    play(chunk, group_schedule, seen | rare, few=5)
