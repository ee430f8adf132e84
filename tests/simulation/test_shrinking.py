"""A failing history shrinks to the faults that it needs."""

from collections.abc import Iterable, Sequence
from typing import Final

import pytest

from oncelog.coordinator.controller import eligible_leaders
from oncelog.coordinator.controller.eligible_leaders import Standing
from tests.simulation.fault_plan import fault_plan
from tests.simulation.histories import HistoryName, play
from tests.simulation.journal import Entry
from tests.simulation.shrinking import shrink, shrunk

_MOST_REPLAYS: Final = 12


def _shrunk_to(needed: set[int], items: Sequence[int], most_tries: int = 1_000) -> tuple[list[int], int]:
    tries: list[Sequence[int]] = []

    def fails(fewer: Sequence[int]) -> bool:
        tries.append(fewer)
        return needed <= set(fewer)

    return shrunk(items, fails, most_tries=most_tries, progress=lambda text: None), len(tries)


@pytest.mark.parametrize("needed", [[], [0], [19], [3, 4], [0, 7, 19], list(range(20))])
def test_failure_that_needs_some_items_shrinks_to_these(needed: list[int]) -> None:
    left, _ = _shrunk_to(set(needed), range(20))
    assert left == needed


def test_shrinking_ends_after_the_most_tries() -> None:
    left, tries = _shrunk_to({0, 50, 99}, range(100), most_tries=7)
    assert tries == 7
    assert {0, 50, 99} <= set(left)


def test_history_that_loses_records_to_a_defect_shrinks_to_few_faults(monkeypatch: pytest.MonkeyPatch) -> None:
    """B57 without one of its safeguards (tests/mutations/eligible_table.py): replicas that lost records may lead."""

    def able(members: Iterable[int], standing: Standing) -> tuple[int, ...]:
        return tuple(member for member in members if member in standing.usable)

    monkeypatch.setattr(eligible_leaders, "_able", able)
    progress: list[str] = []
    for seed in range(1, 10):
        name = HistoryName("harsh-writers", seed)
        first, faults = shrink(name, most_replays=_MOST_REPLAYS, progress=progress.append)
        if first.failure:
            break
    assert first.raised_in == "AssertionError in assert_nothing_is_lost"
    assert len(faults) <= 12, progress
    assert "POWER_LOSS" in " ".join(map(str, faults))
    assert play(first.name, faults=faults).raised_in == first.raised_in


def test_history_that_holds_has_nothing_to_shrink() -> None:
    first, steps = shrink(HistoryName("replicas", 1), most_replays=_MOST_REPLAYS, progress=lambda text: None)
    assert not first.failure
    assert not steps


def test_faults_that_are_left_out_leave_the_others_as_they_were() -> None:
    kept = fault_plan(3, 25)[4:12:3]
    entries: list[Entry] = []
    assert not play(HistoryName("writers", 3), listener=entries.append, faults=kept).failure
    assert [entry.detail for entry in entries if entry.node == "faults"] == [str(planned) for planned in kept]
