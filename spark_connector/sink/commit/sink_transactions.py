"""The names of the sink's transactional ids, and transactions by id, producer id and epoch. Pure.

Ids begin with the sink's name, so that one listing finds all of them::

    {sink}.driver                            decisions: the holder of its newest epoch is the sink's driver
    {sink}.{generation}.{process}.{slot}     one of the transactions that a process's tasks have open at a time

No id belongs to two sinks, whatever their names are: the last part distinguishes drivers from tasks, and a task's id
without its three last parts is the name of its sink.

A process uses a slot once for each batch, and no other process uses its name; so a task's transaction is only fenced on
purpose. The generation is the driver's (``state_record``).
"""

from typing import Final, NamedTuple

LAST_EPOCH_IN_USE: Final = 32_766
"""An end of a version 2 transaction in this epoch gives the transactional id another producer id, and epoch 0."""


class TaskTransaction(NamedTuple):
    """Exactly one transaction of its id: each one begins with a new epoch (InitProducerId)."""

    transactional_id: str
    producer_id: int
    epoch: int
    version: int
    """Of the transaction protocol: with 2 its end bumps the epoch (KIP-890)."""


class Driver(NamedTuple):
    """The producer id and epoch that may decide, until another driver takes over."""

    producer_id: int
    epoch: int
    sequence: int = 0
    """The sequence number of its next record; with version 1 it grows, since a decision does not bump the epoch."""


NO_DRIVER: Final = Driver(-1, -1)


class Description(NamedTuple):
    """A coordinator's description of a transactional id; the state has Kafka's name."""

    state: str
    producer_id: int
    epoch: int


NO_SUCH_ID: Final = Description("", -1, -1)
ONGOING: Final = "Ongoing"
_COMMITTED: Final = frozenset({"PrepareCommit", "CompleteCommit"})


def driver_id(sink: str) -> str:
    """Return the transactional id of the sink's decisions."""
    return f"{sink}.driver"


def task_id(sink: str, generation: int, process: str, slot: int) -> str:
    """Return the transactional id of one of a process's slots."""
    return f"{sink}.{generation}.{process}.{slot}"


def generation_of(sink: str, transactional_id: str) -> int | None:
    """Return the generation in the id of a task of this sink; None for any other id."""
    parts = transactional_id.removeprefix(f"{sink}.").split(".")
    if not transactional_id.startswith(f"{sink}.") or len(parts) != 3:
        return None
    generation, _, slot = parts
    return int(generation) if _is_number(generation) and _is_number(slot) else None


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal()


def is_open(transaction: TaskTransaction, described: Description) -> bool:
    """Return whether a transaction is still open, in the epoch of its task."""
    return described == Description(ONGOING, transaction.producer_id, transaction.epoch)


def is_committed(transaction: TaskTransaction, described: Description) -> bool:
    """Return whether a coordinator has decided to commit exactly this transaction."""
    if described.state not in _COMMITTED:
        return False
    if transaction.version < 2:
        return (described.producer_id, described.epoch) == (transaction.producer_id, transaction.epoch)
    if described.producer_id == transaction.producer_id:
        return described.epoch == transaction.epoch + 1
    return transaction.epoch == LAST_EPOCH_IN_USE and described.epoch == 0
