"""The anomalies that a history can show, and which of them fail it."""

from collections.abc import Set
from enum import Enum
from typing import Final, NamedTuple

from oncelog.clients.history.operation import Operation


class AnomalyKind(Enum):
    """A promise that was not kept. The names are those of Jepsen's tests of Kafka, where Jepsen has one."""

    INCONSISTENT_OFFSETS = "inconsistent-offsets"
    DUPLICATE = "duplicate"
    UNKNOWN_VALUE = "unknown-value"
    ABORTED_READ = "G1a"
    PRECOMMITTED_READ = "precommitted-read"
    LOST_WRITE = "lost-write"
    UNSEEN = "unseen"
    VANISHED = "vanished"
    INT_POLL_SKIP = "int-poll-skip"
    INT_NONMONOTONIC_POLL = "int-nonmonotonic-poll"
    POLL_SKIP = "poll-skip"
    NONMONOTONIC_POLL = "nonmonotonic-poll"
    INT_SEND_SKIP = "int-send-skip"
    INT_NONMONOTONIC_SEND = "int-nonmonotonic-send"
    NONMONOTONIC_SEND = "nonmonotonic-send"
    G0 = "G0"
    G0_PROCESS = "G0-process"
    G0_REALTIME = "G0-realtime"
    G1C = "G1c"
    G1C_PROCESS = "G1c-process"
    G1C_REALTIME = "G1c-realtime"
    TORN_TXN = "torn-txn"
    TORN_OFFSETS = "torn-offsets"
    CONSUMED_TWICE = "consumed-twice"
    SKIPPED_INPUT = "skipped-input"


MEANINGS: Final = {
    AnomalyKind.INCONSISTENT_OFFSETS: "two values were seen at one offset",
    AnomalyKind.DUPLICATE: "one value is at two offsets of its partition",
    AnomalyKind.UNKNOWN_VALUE: "a value was read that no operation wrote",
    AnomalyKind.ABORTED_READ: "a value was read whose write definitely failed",
    AnomalyKind.PRECOMMITTED_READ: "a transaction read what it wrote itself",
    AnomalyKind.LOST_WRITE: "a committed value lies below one that was read, and was never read",
    AnomalyKind.UNSEEN: "a committed value is missing from the final read",
    AnomalyKind.VANISHED: "a value that was read before is missing from the final read",
    AnomalyKind.INT_POLL_SKIP: "reads of one operation skip a committed value",
    AnomalyKind.INT_NONMONOTONIC_POLL: "reads of one operation go back, or repeat a value",
    AnomalyKind.POLL_SKIP: "a process skips a committed value between two operations",
    AnomalyKind.NONMONOTONIC_POLL: "a process goes back, or reads a value again, between two operations",
    AnomalyKind.INT_SEND_SKIP: "records of others lie between two that one operation wrote",
    AnomalyKind.INT_NONMONOTONIC_SEND: "writes of one operation are in the log in another order",
    AnomalyKind.NONMONOTONIC_SEND: "writes of one process are in the log in another order",
    AnomalyKind.G0: "writes follow each other in a circle",
    AnomalyKind.G0_PROCESS: "writes and the order of a process form a circle",
    AnomalyKind.G0_REALTIME: "writes and real time form a circle",
    AnomalyKind.G1C: "operations read from each other in a circle",
    AnomalyKind.G1C_PROCESS: "a process read what it, or a successor of it, wrote later",
    AnomalyKind.G1C_REALTIME: "a value was read before the operation that wrote it was started",
    AnomalyKind.TORN_TXN: "of the writes of one transaction some are visible and some are not",
    AnomalyKind.TORN_OFFSETS: "a group's position disagrees with the outputs of its inputs, or was never committed",
    AnomalyKind.CONSUMED_TWICE: "two transactions of a group that processed the same input are committed",
    AnomalyKind.SKIPPED_INPUT: "no transaction of a group processed an input between its first one and its position",
}

ALLOWED: Final[Set[AnomalyKind]] = frozenset(
    {AnomalyKind.INT_SEND_SKIP, AnomalyKind.G0, AnomalyKind.G0_PROCESS, AnomalyKind.G0_REALTIME}
)
"""Kafka promises nothing against these: transactions interleave, and writes are not isolated."""

ALLOWED_WITH_WW: Final[Set[AnomalyKind]] = ALLOWED | {
    AnomalyKind.G1C,
    AnomalyKind.G1C_PROCESS,
    AnomalyKind.G1C_REALTIME,
}
"""The same where the order of the log counts as a dependency between writers."""


class Anomaly(NamedTuple):
    """One finding."""

    kind: AnomalyKind
    text: str
    """What was found, and where."""
    operations: tuple[Operation, ...] = ()
    """Those that prove it."""
