"""Who writes what: the names of the sink's transactional ids, and transactions by id, producer id and epoch. Pure.

Ids begin with the sink's name, so that one listing finds all of them::

    {sink}.driver                            decisions: whoever has the newest epoch of it is the sink's driver
    {sink}.{generation}.{process}.{slot}     one of the transactions that a process's tasks have open at a time

No id is of two sinks, whatever their names are: the last part tells drivers from tasks, and the three last ones of a
task's id leave the name of its sink.

A process uses a slot once for each batch, and no other process uses its name; so nobody fences a task's transaction but
those who mean to end it. The generation is the driver's (``state_record``).
"""

from typing import Final, NamedTuple

LAST_EPOCH_IN_USE: Final = 32_766
"""An end of a version 2 transaction in this epoch gives the transactional id another producer id, and epoch 0."""


class TaskTransaction(NamedTuple):
    """One transaction, and no other one of the same id: every one begins with a new epoch (InitProducerId)."""

    transactional_id: str
    producer_id: int
    epoch: int
    version: int
    """Of the transaction protocol: with 2 its end bumps the epoch (KIP-890)."""


class Driver(NamedTuple):
    """The right to decide, until somebody else takes it."""

    producer_id: int
    epoch: int
    sequence: int = 0
    """Of its next record in the state topic; it goes on with version 1, where a decision does not bump the epoch."""


NO_DRIVER: Final = Driver(-1, -1)


class Description(NamedTuple):
    """What a coordinator says of a transactional id: the state's name is Kafka's."""

    state: str
    producer_id: int
    epoch: int


NO_SUCH_ID: Final = Description("", -1, -1)
ONGOING: Final = "Ongoing"
_COMMITTED: Final = frozenset({"PrepareCommit", "CompleteCommit"})


def driver_id(sink: str) -> str:
    """The transactional id of the sink's decisions."""
    return f"{sink}.driver"


def task_id(sink: str, generation: int, process: str, slot: int) -> str:
    """The transactional id of one of a process's slots."""
    return f"{sink}.{generation}.{process}.{slot}"


def generation_of(sink: str, transactional_id: str) -> int | None:
    """The generation in the id of a task of this sink; None for any other id."""
    parts = transactional_id.removeprefix(f"{sink}.").split(".")
    if not transactional_id.startswith(f"{sink}.") or len(parts) != 3:
        return None
    generation, _, slot = parts
    return int(generation) if _is_number(generation) and _is_number(slot) else None


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal()


def is_open(transaction: TaskTransaction, described: Description) -> bool:
    """Whether a transaction is still what it was when its task was done with it."""
    return described == Description(ONGOING, transaction.producer_id, transaction.epoch)


def is_committed(transaction: TaskTransaction, described: Description) -> bool:
    """Whether a coordinator has decided to commit this very transaction."""
    if described.state not in _COMMITTED:
        return False
    if transaction.version < 2:
        return (described.producer_id, described.epoch) == (transaction.producer_id, transaction.epoch)
    if described.producer_id == transaction.producer_id:
        return described.epoch == transaction.epoch + 1
    return transaction.epoch == LAST_EPOCH_IN_USE and described.epoch == 0
