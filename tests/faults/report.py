"""The table at the end: what struck, how often, what was in flight, and what was violated. Pure."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

from tests.faults.rounds import RoundResult

_HEAD: Final = (
    "FAULT",
    "TIMES",
    "COMMITTED",
    "ABORTED",
    "UNKNOWN",
    "LOST",
    "DUPLICATED",
    "TORN",
    "HANGING",
    "OTHER",
    "WALL S",
)
_NAMED: Final = ("lost", "duplicated", "torn", "hanging")


def table(results: Sequence[RoundResult]) -> str:
    """A line for each fault, and the sum. The worst stalls come before what was violated, in seconds, by client."""
    clients = sorted({client for result in results for client, _ in result.stalls})
    head = (*_HEAD[:5], *(f"STALL {client}" for client in clients), *_HEAD[5:])
    faults = dict.fromkeys(result.fault for result in results)
    rows = [_row(fault, [result for result in results if result.fault == fault], clients) for fault in faults]
    rows.append(_row("all", results, clients))
    return aligned(head, rows)


def _row(name: str, results: Sequence[RoundResult], clients: Iterable[str]) -> tuple[str, ...]:
    outcomes: Counter[str] = sum((result.outcomes for result in results), Counter())
    kinds = Counter(violation.kind for result in results for violation in result.violations)
    stalls = [_worst_stall(results, client) for client in clients]
    return (
        name,
        str(len(results)),
        *(f"{outcomes[outcome]:,}" for outcome in ("committed", "aborted", "unknown")),
        *(f"{stall:.1f}" for stall in stalls),
        *(str(kinds[kind]) for kind in _NAMED),
        str(sum(count for kind, count in kinds.items() if kind not in _NAMED)),
        f"{sum(result.seconds for result in results):.0f}",
    )


def aligned(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    """Return a table as text: the first column to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    lines = []
    for row in (head, *rows):
        numbers = [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
        lines.append("  ".join([row[0].ljust(widths[0]), *numbers]))
    return "\n".join(lines)


def _worst_stall(results: Iterable[RoundResult], client: str) -> float:
    return max(
        (seconds for result in results for (name, _), seconds in result.stalls.items() if name == client), default=0.0
    )
