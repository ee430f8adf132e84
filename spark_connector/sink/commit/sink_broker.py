"""The port of the commit protocol to a cluster. ``cluster_broker`` implements it; tests have a model of a cluster.

Each call is one step; a crash can come before or after it. Errors are returned as Kafka's codes, because their meaning
depends on the step; those in ``TRANSIENT`` only mean that the step has to be retried.
"""

from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from oncelog.protocol.errors import RETRIABLE, ErrorCode
from oncelog.protocol.topic_partition import TopicPartition
from oncelog.spark_connector.sink.commit.former_names import FormerNames
from oncelog.spark_connector.sink.commit.sink_transactions import Description, Driver, TaskTransaction
from oncelog.spark_connector.sink.commit.state_record import StateRecord

T = TypeVar("T")

TRANSIENT: Final = RETRIABLE | {ErrorCode.CONCURRENT_TRANSACTIONS}
FENCING: Final = frozenset(
    {ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_PRODUCER_ID_MAPPING}
)
"""Another producer has the transactional id by now; the code depends on the request and the broker's version."""


class Ended(NamedTuple):
    """The result of EndTxn; with version 2 of the protocol it has the next producer id and epoch (-1 otherwise)."""

    error: ErrorCode
    producer_id: int = -1
    epoch: int = -1


class OpenTransaction(NamedTuple):
    """A transaction that its coordinator has open."""

    transactional_id: str
    producer_id: int
    epoch: int


TopicIds = tuple[tuple[str, bytes], ...]
"""Names of topics, each with its id; without topics that have none (Apache Kafka before 2.8)."""


class Written(NamedTuple):
    """The rows that a task has sent; ``size`` in bytes, before compression."""

    rows: int
    size: int
    topics: TopicIds = ()
    """The topics that rows were sent to, with the ids that they had before the first of these rows."""


class RowWriter(Protocol):
    """One task's open transaction."""

    @property
    def transaction(self) -> TaskTransaction: ...

    async def write(self, rows: Any) -> None:
        """Send one or more rows; wait while the buffer is full. Raises the error of these or earlier rows."""

    async def finish(self) -> Written:
        """Return when all in-sync replicas have acknowledged every row. Raises ``TopicReplaced``, if that is known."""

    async def leave(self) -> None:
        """Stop, and leave the transaction open."""

    async def abort(self) -> None:
        """Abort the transaction as far as possible; never raises for errors of brokers."""


class Patience(Protocol):
    """The retries of one step. Made when the step begins: no step uses up the time of the next."""

    async def wait(self, reason: ErrorCode) -> None:
        """Back off before the next attempt. Raises ``SinkUnavailable`` when the time is up."""


class SinkBroker(Protocol):
    """A cluster, as the sink named ``sink`` uses it."""

    async def transaction_version(self) -> int:
        """Return the finalised version of the transaction protocol, 1 or 2."""

    async def init_producer_id(self, transactional_id: str, expected: Driver | None = None) -> Driver | ErrorCode:
        """Bump the epoch of an id, which aborts its open transaction; only if ``expected`` has it, where given."""

    async def state_partitions(self) -> list[TopicPartition]:
        """Return the partitions of the state topic, by fresh metadata."""

    def known_home(self, sink: str) -> TopicPartition | None:
        """Return the partition in which this process has found the sink's record before."""

    def keep_home(self, sink: str, home: TopicPartition) -> None:
        """Remember it."""

    async def read_state(self, sink: str, home: TopicPartition, since: int | None = None) -> StateRecord | None:
        """Return the sink's newest committed record in one partition of the state topic; None if there is none.

        With ``since``, a ``state_position``, it may be None if the newest record is before that. Waits while a record
        is neither committed nor aborted, and raises ``SinkUnavailable`` if that lasts.
        """

    def state_position(self, sink: str, home: TopicPartition) -> int:
        """Return the position up to which ``read_state`` has read a partition."""

    async def find_sinks(self, former: FormerNames) -> list[str]:
        """Return the sinks whose newest record, committed or not, ``former`` includes."""

    async def append_state(self, driver: Driver, record: StateRecord, home: TopicPartition, version: int) -> ErrorCode:
        """Write a record in the driver's transaction, which stays open. A repetition changes nothing."""

    async def end(self, transactions: Sequence[TaskTransaction], *, commit: bool) -> list[Ended]:
        """Send EndTxn for each of them, at the same time."""

    async def describe(self, transactional_ids: Collection[str]) -> dict[str, Description | ErrorCode]:
        """Return the coordinators' descriptions; ``NO_SUCH_ID`` for an id that does not exist."""

    async def topic_ids(self, names: Collection[str]) -> dict[str, bytes]:
        """Return the ids that topics have now; without topics that do not exist or have none."""

    async def open_transactions(self, prefix: str) -> list[OpenTransaction]:
        """Return the open transactions whose ids begin with ``prefix``."""

    async def open_writer(self, transactional_id: str) -> RowWriter:
        """Begin a task's transaction, under an epoch of its own. Raises ``ResponseLost``, and errors of the client."""

    def patience(self, *, is_decided: bool = False) -> Patience:
        """Return the retries of one step; more of them once the batch is decided, because it must be committed then."""


async def retry_transient(broker: SinkBroker, step: Callable[[], Awaitable[T | ErrorCode]]) -> T | ErrorCode:
    """Retry a step while it returns an error of ``TRANSIENT``; return its result. Raises ``SinkUnavailable``."""
    patience = broker.patience()
    while True:
        result = await step()
        if not isinstance(result, ErrorCode) or result not in TRANSIENT:
            return result
        await patience.wait(result)
