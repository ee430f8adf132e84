"""The transactions that a client runs, and what it says became of each."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from random import Random

PARTITIONS = 3
_COMMITTED_SHARE = 0.6
_SHARE_WITH_OFFSET = 0.5
_MOST_PHASES = 3
_MOST_RECORDS = 3


class Outcome(Enum):
    """What the client was told about a transaction."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    COMMIT_FAILED = "commit-failed"
    """The commit raised an error that ended the producer: it may or may not have happened, but only as a whole."""
    ABORT_FAILED = "abort-failed"
    """Some error ended the producer, and no commit was ever requested."""

    @property
    def is_commit(self) -> bool:
        """Whether the client was told that it has committed."""
        return self is Outcome.COMMITTED


@dataclass(frozen=True, slots=True)
class Phase:
    """Records that go to one partition and are acknowledged before anything else happens."""

    partition: int
    values: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Transaction:
    """One transaction of one of the workload's producers."""

    producer: int
    number: int
    commit: bool
    phases: tuple[Phase, ...]
    commits_offset: bool = False
    """Whether it also commits ``offset`` for partition 0, in the group that has the name of its transactional id."""

    @property
    def offset(self) -> int:
        """Another one in every transaction of a producer."""
        return self.number + 1

    @property
    def values(self) -> list[str]:
        return [value for phase in self.phases for value in phase.values]

    def line(self) -> str:
        """The form in which client programs read it: producer, end, offset or -1, each ``partition:value,…``."""
        phases = [f"{phase.partition}:{','.join(phase.values)}" for phase in self.phases]
        offset = self.offset if self.commits_offset else -1
        return "\t".join([str(self.producer), "commit" if self.commit else "abort", str(offset), *phases])


def transactions(seed: int, producers: int, each: int) -> list[Transaction]:
    """``each`` transactions of every producer, in the order in which a program is given them."""
    rng = Random(seed)
    return [_transaction(rng, producer, number) for number in range(each) for producer in range(producers)]


def _transaction(rng: Random, producer: int, number: int) -> Transaction:
    phases = []
    for index in range(rng.randint(1, _MOST_PHASES)):
        names = [f"{producer}/{number}/{index}/{record}" for record in range(rng.randint(1, _MOST_RECORDS))]
        phases.append(Phase(rng.randrange(PARTITIONS), tuple(names)))
    commit, commits_offset = rng.random() < _COMMITTED_SHARE, rng.random() < _SHARE_WITH_OFFSET
    return Transaction(producer, number, commit, tuple(phases), commits_offset)


def with_outcomes(work: Sequence[Transaction], lines: Sequence[str]) -> list[tuple[Transaction, Outcome]]:
    """Read a program's answer: one line ``producer TAB outcome`` for each transaction, in each producer's order."""
    said: dict[int, list[Outcome]] = {}
    for line in lines:
        producer, outcome = line.split("\t")[:2]
        said.setdefault(int(producer), []).append(Outcome(outcome))
    assert len(lines) == len(work), "each transaction has one outcome"
    outcomes = {producer: iter(each) for producer, each in said.items()}
    return [(transaction, next(outcomes[transaction.producer])) for transaction in work]


def producers_that_gave_up(ended: Sequence[tuple[Transaction, Outcome]]) -> set[int]:
    """Return the producers whose last transaction failed: the client may have left it open."""
    last = {transaction.producer: outcome for transaction, outcome in ended}
    return {producer for producer, outcome in last.items() if outcome in (Outcome.COMMIT_FAILED, Outcome.ABORT_FAILED)}
