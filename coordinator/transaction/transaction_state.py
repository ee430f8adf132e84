"""The states of a transactional id, and which may follow which."""

from enum import Enum
from typing import Final


class TransactionState(Enum):
    """The status is the byte in the log, the label what DescribeTransactions and ListTransactions say."""

    status: int
    label: str
    meaning: str

    EMPTY = 0, "Empty", "The producer is initialised and has had no transaction since."
    ONGOING = 1, "Ongoing", "A transaction is open and its partitions are known."
    PREPARE_COMMIT = 2, "PrepareCommit", "The commit is decided; its markers are on their way to the partitions."
    PREPARE_ABORT = 3, "PrepareAbort", "The abort is decided; its markers are on their way to the partitions."
    COMPLETE_COMMIT = 4, "CompleteCommit", "The last transaction was committed on every partition."
    COMPLETE_ABORT = 5, "CompleteAbort", "The last transaction was aborted on every partition."
    DEAD = 6, "Dead", "The transactional id has expired; its tombstone is being written."
    PREPARE_EPOCH_FENCE = 7, "PrepareEpochFence", "The coordinator bumps the epoch to abort; never written on its own."

    def __new__(cls, status: int, label: str, meaning: str) -> "TransactionState":
        state = object.__new__(cls)
        state._value_ = status
        state.status = status
        state.label = label
        state.meaning = meaning
        return state

    __hash__ = object.__hash__  # An enum's own is written in Python, and every request looks a state up.


_State = TransactionState

TRANSITIONS: Final[dict[TransactionState, frozenset[TransactionState]]] = {
    _State.EMPTY: frozenset({_State.EMPTY, _State.ONGOING, _State.PREPARE_ABORT, _State.DEAD}),
    _State.ONGOING: frozenset(
        {_State.ONGOING, _State.PREPARE_COMMIT, _State.PREPARE_ABORT, _State.PREPARE_EPOCH_FENCE}
    ),
    _State.PREPARE_COMMIT: frozenset({_State.COMPLETE_COMMIT}),
    _State.PREPARE_ABORT: frozenset({_State.COMPLETE_ABORT}),
    _State.COMPLETE_COMMIT: frozenset({_State.EMPTY, _State.ONGOING, _State.PREPARE_ABORT, _State.DEAD}),
    _State.COMPLETE_ABORT: frozenset({_State.EMPTY, _State.ONGOING, _State.PREPARE_ABORT, _State.DEAD}),
    _State.DEAD: frozenset(),
    _State.PREPARE_EPOCH_FENCE: frozenset({_State.PREPARE_ABORT}),
}
"""{state: allowed next states}. Only in version 2 is anything but an ongoing transaction aborted."""

PERSISTED_STATES: Final = frozenset(_State) - {_State.DEAD, _State.PREPARE_EPOCH_FENCE}
PREPARED_STATES: Final = frozenset({_State.PREPARE_COMMIT, _State.PREPARE_ABORT})
COMPLETE_STATES: Final = frozenset({_State.COMPLETE_COMMIT, _State.COMPLETE_ABORT})
EXPIRING_STATES: Final = frozenset({_State.EMPTY, _State.COMPLETE_COMMIT, _State.COMPLETE_ABORT})
"""The states in which an unused transactional id expires. One with an open transaction never does."""
