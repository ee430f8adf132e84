"""What every real client is asked to do, in one form, so that each scenario is written once.

A driver wraps one unmodified client library or program. Its methods return when the client says that it is done and
raise when the client fails or exceeds the time limit: nothing is retried or forgiven here.
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

TIMEOUT_SECONDS = 300
"""It ends a call that hangs."""


class Consumed(NamedTuple):
    """One record as a client delivered it."""

    partition: int
    offset: int
    key: str | None
    value: str


class Batch(NamedTuple):
    """The records of one transaction, and how it ends."""

    values: Sequence[str]
    commit: bool


class Driver(Protocol):
    """One client. ``transactional`` clients also implement :class:`TransactionalDriver`."""

    name: str
    transactional: bool
    compressions: Sequence[str]

    def create_topic(self, address: str, topic: str, partitions: int) -> None: ...

    def produce(self, address: str, topic: str, values: Sequence[str], *, compression: str = "none") -> None:
        """Produce ``values`` in order with ``acks=all`` and the client's idempotence where it has it; key = value."""

    def consume(self, address: str, topic: str, count: int, *, read_committed: bool = False) -> list[Consumed]:
        """Read ``count`` records of every partition of ``topic``, from the beginning."""

    def consume_with_two_members(self, address: str, topic: str, group: str, count: int) -> list[list[Consumed]]:
        """Two members of one group read ``count`` records together and commit; the result is what each one got.

        Reading starts only when both members have partitions.
        """


class TransactionalDriver(Driver, Protocol):
    """A client that has transactions."""

    def transact(self, address: str, topic: str, transactional_id: str, batches: Sequence[Batch]) -> None:
        """One producer runs one transaction a batch; an aborted batch is flushed before it is aborted."""

    def consume_transform_produce(
        self, address: str, source: str, target: str, group: str, transactional_id: str, count: int
    ) -> None:
        """Read ``count`` records of ``source``, write each in upper case to ``target``, offsets in the transaction."""
