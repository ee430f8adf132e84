"""The table of what came of the legs of all rounds."""

from collections.abc import Sequence
from typing import Final

from tests.faults.report import aligned
from tests.rolling.loaded_cluster import LegResult

_HEAD: Final = (
    "ROUND, END, LEG",
    "RESTARTS",
    "COMMITTED",
    "ABORTED",
    "UNKNOWN",
    "STALL S",
    "COMPARED",
    "LOST",
    "DUPLICATED",
    "TORN",
    "OTHER",
    "WALL S",
)
_NAMED: Final = ("lost", "duplicated", "torn")


def table(results: Sequence[tuple[str, LegResult]]) -> str:
    """Return a row for each leg, with the name of its round."""
    return aligned(_HEAD, [_row(name, result) for name, result in results])


def _row(name: str, result: LegResult) -> tuple[str, ...]:
    kinds = [violation.kind for violation in result.violations]
    return (
        f"{name}, {result.leg}",
        str(result.restarts),
        *(f"{result.outcomes[outcome]:,}" for outcome in ("committed", "aborted", "unknown")),
        f"{result.stall:.1f}",
        f"{result.compared:,}",
        *(str(kinds.count(kind)) for kind in _NAMED),
        str(sum(kind not in _NAMED for kind in kinds)),
        f"{result.seconds:.0f}",
    )


def violated_legs(results: Sequence[tuple[str, LegResult]]) -> int:
    """Return how many legs have violations."""
    return sum(bool(result.violations) for _, result in results)


def sums(results: Sequence[tuple[str, LegResult]]) -> str:
    """Return restarts, transactions and violations of all legs, in a phrase."""
    committed = sum(result.outcomes["committed"] for _, result in results)
    restarts = sum(result.restarts for _, result in results)
    return f"{restarts} restarts, {committed:,} transactions committed, {violated_legs(results)} legs with violations"
