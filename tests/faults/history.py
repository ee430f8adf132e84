"""What clients said and what was read: the evidence that ``checker.py`` judges. Values only."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

Outcome: TypeAlias = Literal["open", "committed", "aborted", "unknown"]
"""``open``: begun, and nothing was said of its end."""


class TransactionKey(NamedTuple):
    """One transaction of a client's role."""

    client: str
    role: str
    number: int

    def __str__(self) -> str:
        return f"{self.role} {self.client}, transaction {self.number}"


@dataclass(slots=True)
class Transaction:
    """What its client said of it; ``count`` is the number of its records."""

    count: int
    outcome: Outcome = "open"
    detail: str = ""


class Place(NamedTuple):
    """Where a record lies in the topic of inputs."""

    partition: int
    offset: int

    @staticmethod
    def following(places: "Iterable[Place]") -> dict[int, int]:
        """The offset after the last of each partition."""
        following: dict[int, int] = {}
        for place in places:
            following[place.partition] = max(following.get(place.partition, 0), place.offset + 1)
        return following


@dataclass(frozen=True, slots=True)
class Input:
    """A writer's record. ``at``: where it was found."""

    writer: str
    number: int
    index: int
    count: int
    at: Place

    @property
    def key(self) -> TransactionKey:
        return TransactionKey(self.writer, "writer", self.number)

    @property
    def text(self) -> str:
        return f"{self.writer}:{self.number}:{self.index}:{self.count}"


@dataclass(frozen=True, slots=True)
class Output:
    """A worker's record: what it transformed, and where that was. ``at``: where the record itself was found."""

    worker: str
    number: int
    index: int
    count: int
    source: str
    source_at: Place
    at: Place

    @property
    def key(self) -> TransactionKey:
        return TransactionKey(self.worker, "worker", self.number)


def parse_input(text: str, at: Place) -> Input:
    """Raises ``ValueError`` for what no writer wrote."""
    writer, number, index, count = text.split(":")
    return Input(writer, int(number), int(index), int(count), at)


def parse_output(text: str, at: Place) -> Output:
    """Raises ``ValueError`` for what no worker wrote."""
    mine, source, place = text.split("|")
    worker, number, index, count = mine.split(":")
    partition, offset = place.split(":")
    return Output(worker, int(number), int(index), int(count), source, Place(int(partition), int(offset)), at)


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Everything from the beginning, while nothing was being written."""

    transactions: dict[TransactionKey, Transaction]
    inputs: list[Input]
    """All that a reader of committed records sees, in the order of each partition."""
    outputs: dict[str, list[Output]]
    """The same of each client's worker."""
    committed: dict[str, dict[int, int]]
    """What each client's group has committed, by partition of the inputs; missing: nothing."""
