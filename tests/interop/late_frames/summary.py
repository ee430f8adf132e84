"""The table at the end: for each broker and client, how many frames were late and what was found. Pure."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from tests.faults.report import aligned
from tests.interop.late_frames.experiment import Run

_HEAD: Final = (
    "BROKER, CLIENT",
    "PROTOCOL",
    "SEEDS",
    "FRAMES",
    "TRANSACTIONS",
    "COMMITTED",
    "TORN",
    "LOST",
    "ABORTED BUT VISIBLE",
    "DUPLICATED",
    "REORDERED",
    "HANGING",
)
_COUNTED: Final = ("torn", "lost", "aborted_but_visible", "duplicated", "reordered", "hanging")


@dataclass(slots=True)
class Summary:
    """All runs of one client on one broker."""

    broker: str
    client: str
    protocol_versions: set[int] = field(default_factory=set)
    seeds: int = 0
    frames: int = 0
    transactions: int = 0
    committed: int = 0
    """Transactions of which the client was told that they are committed."""
    found: Counter[str] = field(default_factory=Counter)
    """Transactions by what is wrong with them."""

    def add(self, outcome: Run) -> None:
        self.protocol_versions.add(outcome.protocol_version)
        self.seeds += 1
        self.frames += sum(outcome.faults.values())
        self.transactions += sum(outcome.outcomes.values())
        self.committed += sum(count for each, count in outcome.outcomes.items() if each.is_commit)
        self.found.update(outcome.verdict.counts())

    @property
    def is_as_expected(self) -> bool:
        """Whether anything was found on Apache Kafka in version 1, and nothing otherwise."""
        is_kafka_17754 = self.broker == "kafka" and self.protocol_versions == {1}
        return any(self.found.values()) == is_kafka_17754


def table(summaries: Sequence[Summary]) -> str:
    """A line for each broker and client."""
    return aligned(_HEAD, [_row(summary) for summary in summaries])


def _row(summary: Summary) -> tuple[str, ...]:
    numbers = (summary.seeds, summary.frames, summary.transactions, summary.committed)
    return (
        f"{summary.broker}, {summary.client}",
        "/".join(map(str, sorted(summary.protocol_versions))),
        *(f"{number:,}" for number in numbers),
        *(f"{summary.found[name]:,}" for name in _COUNTED),
    )
