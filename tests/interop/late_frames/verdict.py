"""Compare what a client was told with what a consumer reads. Pure."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from tests.interop.late_frames.workload import Outcome, Transaction


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """Everything that is there when clients and late frames are done."""

    committed: Mapping[int, Sequence[str]]
    """The values that ``read_committed`` shows of each partition, in the order of offsets."""
    uncommitted: Mapping[int, Sequence[str]]
    offsets: Mapping[int, int]
    """What the group of each producer has committed; a producer whose group has nothing is left out."""
    undecided: Sequence[str]
    """Partitions whose last stable offset is below their high watermark, groups whose offsets are not stable, and ids
    in a transaction."""


@dataclass(slots=True)
class Verdict:
    """The transactions, by what is wrong with them. Each is in one list at most."""

    torn: list[str] = field(default_factory=list)
    """Some of it is visible and some is not; or the group has an offset that is not that of the last commit."""
    lost: list[str] = field(default_factory=list)
    """Committed, and none of its records is visible."""
    duplicated: list[str] = field(default_factory=list)
    """A record of it is there twice."""
    aborted_but_visible: list[str] = field(default_factory=list)
    """Never committed by its client, and visible."""
    reordered: list[str] = field(default_factory=list)
    """Visible before what its producer wrote earlier to that partition."""
    hanging: list[str] = field(default_factory=list)
    """Nobody will end it before its time-out."""

    def counts(self) -> dict[str, int]:
        return {name: len(getattr(self, name)) for name in self.__slots__}

    @property
    def is_clean(self) -> bool:
        return not any(self.counts().values())


def judge(ended: Sequence[tuple[Transaction, Outcome]], observed: Observation) -> Verdict:
    visible = Counter(value for values in observed.committed.values() for value in values)
    written = Counter(value for values in observed.uncommitted.values() for value in values)
    verdict = Verdict(hanging=list(observed.undecided))
    for transaction, outcome in ended:
        anomalies = _anomalies(verdict, transaction, outcome, visible, written)
        if anomalies is not None:
            anomalies.append(f"{transaction.producer}/{transaction.number} {outcome.value}")
    for values in observed.committed.values():
        verdict.reordered += _reordered(values)
    verdict.torn += _torn_offsets(ended, observed.offsets, visible)
    return verdict


def _torn_offsets(
    ended: Sequence[tuple[Transaction, Outcome]], offsets: Mapping[int, int], visible: Counter[str]
) -> list[str]:
    """Each producer's group must have the offset of its last transaction that committed one."""
    expected: dict[int, int] = {}
    for transaction, outcome in ended:
        is_in_doubt = outcome is Outcome.COMMIT_FAILED
        took_effect = any(visible[value] for value in transaction.values) if is_in_doubt else outcome.is_commit
        if transaction.commits_offset and took_effect:
            expected[transaction.producer] = transaction.offset
    return [
        f"group {producer}: {offsets.get(producer)} instead of {expected.get(producer)}"
        for producer in sorted({transaction.producer for transaction, _ in ended})
        if offsets.get(producer) != expected.get(producer)
    ]


def _anomalies(
    verdict: Verdict, transaction: Transaction, outcome: Outcome, visible: Counter[str], written: Counter[str]
) -> list[str] | None:
    """The list that a transaction belongs into."""
    values = transaction.values
    if any(written[value] > 1 or visible[value] > 1 for value in values):
        return verdict.duplicated
    shown = sum(visible[value] for value in values)
    if outcome in (Outcome.ABORTED, Outcome.ABORT_FAILED):
        return verdict.aborted_but_visible if shown else None
    if shown == 0:
        return verdict.lost if outcome is Outcome.COMMITTED else None
    return verdict.torn if shown < len(values) else None


def _reordered(values: Sequence[str]) -> list[str]:
    positions: dict[str, list[tuple[int, ...]]] = {}
    for value in values:
        producer, _, rest = value.partition("/")
        positions.setdefault(producer, []).append(tuple(map(int, rest.split("/"))))
    return [f"{p} {first} {then}" for p, seen in positions.items() for first, then in pairwise(seen) if first > then]
