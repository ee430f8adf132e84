"""The table that ``make faults`` prints: nothing that was violated is missing from it."""

from collections import Counter

import pytest

from tests.faults.checker import KINDS, Violation
from tests.faults.report import table
from tests.faults.rounds import RoundResult


def round_of(fault: str, *kinds: str) -> RoundResult:
    return RoundResult(
        fault=fault,
        outcomes=Counter(committed=1000, aborted=20, unknown=3),
        stalls={("java", "writer"): 0.4, ("java", "worker"): 2.5},
        seconds=7.5,
        violations=[Violation(kind, "") for kind in kinds],
    )


def cells(line: str) -> list[str]:
    return line.split()


def test_report_has_a_line_for_each_fault_with_sums_and_worst_stall() -> None:
    head, kill, pause, everything = table([round_of("kill"), round_of("pause"), round_of("kill")]).splitlines()
    assert cells(head)[:5] == ["FAULT", "TIMES", "COMMITTED", "ABORTED", "UNKNOWN"]
    assert cells(kill) == ["kill", "2", "2,000", "40", "6", "2.5", "0", "0", "0", "0", "0", "15"]
    assert cells(pause) == ["pause", "1", "1,000", "20", "3", "2.5", "0", "0", "0", "0", "0", "8"]
    assert cells(everything) == ["all", "3", "3,000", "60", "9", "2.5", "0", "0", "0", "0", "0", "22"]


@pytest.mark.parametrize("kind", [*KINDS, "hanging", "replicas", "isr", "stalled", "unreachable"])
def test_violations_of_all_kinds_are_counted_in_one_column(kind: str) -> None:
    *_, line = table([round_of("kill", kind)]).splitlines()
    assert sum(map(int, cells(line)[6:11])) == 1
