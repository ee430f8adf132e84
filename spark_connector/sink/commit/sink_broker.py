"""What the protocol asks of a cluster. ``cluster_broker`` asks a real one; tests have a model of one.

Each call is one step that a crash can come before or after. Errors are returned as Kafka's codes, because what they
mean depends on the step; those in ``PASSING`` only mean that it has to be asked again.
"""

from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from oncelog.protocol.errors import RETRIABLE, ErrorCode
from oncelog.protocol.topic_partition import TopicPartition
from oncelog.spark_connector.sink.commit.former_names import Former
from oncelog.spark_connector.sink.commit.sink_transactions import Description, Driver, TaskTransaction
from oncelog.spark_connector.sink.commit.state_record import StateRecord

T = TypeVar("T")

PASSING: Final = RETRIABLE | {ErrorCode.CONCURRENT_TRANSACTIONS}
FENCING: Final = frozenset(
    {ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_PRODUCER_ID_MAPPING}
)
"""Somebody else has the transactional id by now; which one it is depends on the request and on the broker's age."""


class Ended(NamedTuple):
    """The answer to EndTxn; with version 2 of the protocol, with what the id has now (-1 otherwise)."""

    error: ErrorCode
    producer_id: int = -1
    epoch: int = -1


class OpenTransaction(NamedTuple):
    """A transaction that its coordinator has open."""

    transactional_id: str
    producer_id: int
    epoch: int


TopicIds = tuple[tuple[str, bytes], ...]
"""Names of topics, each with its id; without those of which brokers do not tell it (Apache Kafka before 2.8)."""


class Written(NamedTuple):
    """What a task has sent; ``size`` in bytes, before compression."""

    rows: int
    size: int
    topics: TopicIds = ()
    """That rows were sent to, with the ids that they had before the first of these rows."""


class RowWriter(Protocol):
    """One task's open transaction."""

    @property
    def transaction(self) -> TaskTransaction: ...

    async def write(self, rows: Any) -> None:
        """Send some rows, one or more; waits while too much is not acknowledged. Raises what is wrong with them."""

    async def finish(self) -> Written:
        """Return when every row is acknowledged by all in-sync replicas. Raises ``TopicReplaced``, as far as known."""

    async def leave(self) -> None:
        """Be done with it, and leave the transaction open."""

    async def abort(self) -> None:
        """End the transaction as far as possible; never raises for what brokers say."""


class Patience(Protocol):
    """How long one step is repeated. Made when the step begins: no step uses up the time of the next."""

    async def wait(self, reason: ErrorCode) -> None:
        """Wait before asking again. Raises ``SinkUnavailable`` when the time is up."""


class SinkBroker(Protocol):
    """A cluster, seen by the sink named ``sink``."""

    async def transaction_version(self) -> int:
        """1 or 2, as the cluster has finalised it now."""

    async def init_producer_id(self, transactional_id: str, expected: Driver | None = None) -> Driver | ErrorCode:
        """Take over an id, which ends what is open under it; only from ``expected``, if that is given (KIP-360)."""

    async def state_partitions(self) -> list[TopicPartition]:
        """The partitions of the state topic, as they are now."""

    def known_home(self, sink: str) -> TopicPartition | None:
        """Where this process has found the sink's record before."""

    def keep_home(self, sink: str, home: TopicPartition) -> None:
        """Remember it."""

    async def read_state(self, sink: str, home: TopicPartition, since: int | None = None) -> StateRecord | None:
        """The newest committed record in one partition of the state topic, of all that is in its log by now.

        With ``since``, a ``state_position``, maybe None if the newest was written before that. Waits while a record is
        neither committed nor aborted, and raises ``SinkUnavailable`` if that lasts.
        """

    def state_position(self, sink: str, home: TopicPartition) -> int:
        """Up to where ``read_state`` has read a partition."""

    async def find_sinks(self, former: Former) -> list[str]:
        """The sinks whose newest record, committed or not, may be ``former``'s."""

    async def append_state(self, driver: Driver, record: StateRecord, home: TopicPartition, version: int) -> ErrorCode:
        """Write a record in the driver's transaction, which stays open. A repetition changes nothing."""

    async def end(self, transactions: Sequence[TaskTransaction], *, commit: bool) -> list[Ended]:
        """EndTxn for each of them, at the same time."""

    async def describe(self, transactional_ids: Collection[str]) -> dict[str, Description | ErrorCode]:
        """What their coordinators say; ``NO_SUCH_ID`` of one that does not exist."""

    async def topic_ids(self, names: Collection[str]) -> dict[str, bytes]:
        """The ids that topics have now; without those that do not exist, or of which brokers do not tell it."""

    async def open_transactions(self, prefix: str) -> list[OpenTransaction]:
        """The open transactions whose ids begin so, as far as coordinators can be asked."""

    async def open_writer(self, transactional_id: str) -> RowWriter:
        """Begin a task's transaction, under an epoch of its own. Raises ``AnswerLost``, and what is in the way."""

    def patience(self, *, is_decided: bool = False) -> Patience:
        """For one step. What is decided is waited for longer: nobody can take it back any more."""


async def insist(broker: SinkBroker, ask: Callable[[], Awaitable[T | ErrorCode]]) -> T | ErrorCode:
    """The first answer that is not "ask again". Raises ``SinkUnavailable``."""
    patience = broker.patience()
    while True:
        answer = await ask()
        if not isinstance(answer, ErrorCode) or answer not in PASSING:
            return answer
        await patience.wait(answer)
