"""``Operation``: one thing that a client did, what it wrote and read in it, and how it ended. Values only.

A partition, a value, a process and a group are any text. The value of a record identifies it in its partition: two
operations write one value only if the second repeats what the first may not have written.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple


class Outcome(Enum):
    """How an operation ended, as far as its client knows."""

    OK = "ok"
    """It happened."""
    FAIL = "fail"
    """It did not happen, and it never will."""
    INFO = "info"
    """It may have happened, and it may still happen."""


class Kind(Enum):
    """What a client did."""

    SEND = "send"
    """Write records outside of a transaction."""
    POLL = "poll"
    """Read committed records outside of a transaction."""
    TXN = "txn"
    """Run one transaction: write records, commit positions, read records before or in it."""
    ASSIGN = "assign"
    """Read these partitions from now on, each from where this process has read to."""
    SUBSCRIBE = "subscribe"
    """Read as a member of a group from now on: the group decides what is read, and from where."""
    FINAL = "final"
    """Read whole partitions, and the positions of groups, when every client and every transaction has ended."""


class Place(NamedTuple):
    """The record at an offset of a partition."""

    partition: str
    offset: int


class Send(NamedTuple):
    """A record that an operation wrote, or tried to write."""

    partition: str
    offset: int | None
    """As acknowledged; None if the client does not know it."""
    value: str


class Read(NamedTuple):
    """A record that an operation read."""

    partition: str
    offset: int
    value: str


@dataclass(slots=True, kw_only=True, eq=False)
class Operation:
    """What a process did between two times. Set once, except ``number``, which ``History`` assigns."""

    process: str
    kind: Kind
    outcome: Outcome
    start: int
    """Time before its first request, in nanoseconds of any clock."""
    end: int | None = None
    """Time after its last response, in nanoseconds of the same clock; None if the client died in it."""
    sends: tuple[Send, ...] = ()
    """In the order in which the client sent them."""
    reads: tuple[Read, ...] = ()
    """In the order in which the client got them."""
    partitions: tuple[str, ...] = ()
    """Those assigned, or read from their beginning to their end."""
    moved: tuple[str, ...] = ()
    """Partitions whose position was set in this operation: by a rebalance, a seek or a reset."""
    positions: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """By group and partition, the offset of the next record to process: committed in it, or found by a final read."""
    error: str = ""
    """Why it is not ok."""
    origin: str = ""
    """Where it was recorded, for example a file and a line."""
    number: int = -1
    """Its place in the history, by start."""
