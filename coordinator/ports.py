"""What the coordinators need of the broker around them.

The coordinators decide; a broker has the logs, the sockets and the cluster's metadata. It hands them in through these
protocols, so that the coordinators import nothing of it and can be tested alone: the arrow points from the shell to the
core. Time is the other thing that comes from outside: durations through the running event loop, dates through a
``WallClock``.
"""

from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

from oncelog.coordinator.promise import Promise
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.schema import Buffer, Message
from oncelog.protocol.topic_partition import TopicPartition

WallClock: TypeAlias = Callable[[], int]
"""Milliseconds since the Unix epoch."""

OnReplicated: TypeAlias = Callable[[ErrorCode], None]
OnResponse: TypeAlias = Callable[[Message | None], None]


class ReplicatedLog(Protocol):
    """A partition of an internal topic that this broker leads, at one leader epoch.

    A new election brings a new object; the old one then refuses appends and fails its waiters.
    """

    @property
    def leader_epoch(self) -> int: ...

    @property
    def is_deserted(self) -> bool:
        """Return whether another broker may lead by now: no follower in the ISR has fetched lately.

        What was read may be out of date then. A response that a successor might give differently must not rest on it,
        unless a record must be replicated first: the members of the ISR fetch from one leader only.
        """
        ...

    @property
    def log_start_offset(self) -> int: ...

    @property
    def high_watermark(self) -> int: ...

    @property
    def log_end_offset(self) -> int: ...

    def append(self, batch: bytearray) -> int | ErrorCode:
        """Append one batch; its offsets and leader epoch are patched in.

        Returns the end offset that the high watermark must reach, or why nothing was appended: NOT_ENOUGH_REPLICAS,
        NOT_LEADER_OR_FOLLOWER, KAFKA_STORAGE_ERROR, MESSAGE_TOO_LARGE.
        """
        ...

    def when_replicated(self, end_offset: int, callback: OnReplicated) -> None:
        """Call back once: with NONE when the high watermark has reached ``end_offset``, at once if it already has.

        With NOT_LEADER_OR_FOLLOWER, or KAFKA_STORAGE_ERROR if the log failed, when this leadership ends before that.
        Nothing else: while it leads there is no failure of what was appended, only not-yet.

        Callbacks of one log come in the order of their offsets.
        """
        ...

    def read(self, start_offset: int, max_bytes: int) -> Buffer:
        """Return whole batches from the one with ``start_offset``, up to the log END; at least one if there is any.

        ``start_offset`` may lie in a hole that compaction left, or inside the first batch.
        """
        ...


class LastRegistration(NamedTuple):
    """The last registration of a broker id, whichever process made it."""

    session_id: int
    """The session of the metadata store that it was made in."""
    epoch: int
    """The broker epoch that it got."""


class IntactLogs(Protocol):
    """Since when the logs of this broker have lost nothing, as its data directory says."""

    @property
    def since(self) -> int | None:
        """Return the first broker epoch since which nothing was lost; None: something may have been."""
        ...

    @property
    def until(self) -> int | None:
        """Return the last broker epoch that the data directory has seen; None without a first one."""
        ...

    @property
    def earlier(self) -> Sequence[tuple[int, int]]:
        """Return the first and last epochs between which nothing was lost, before other directories were registered."""
        ...

    async def begin_registration(self, session_id: int, last: LastRegistration | None) -> None:
        """Note that the broker is about to register in a session; ``last``: of its id so far. Raise ``OSError``."""
        ...

    async def note_registration(self, broker_epoch: int) -> None:
        """Note that the broker is registered with a new epoch. Raise ``OSError``."""
        ...


class UnknownLogs:
    """Logs of which nothing is known before their broker is registered."""

    since: int | None = None
    until: int | None = None
    earlier: Sequence[tuple[int, int]] = ()

    async def begin_registration(self, session_id: int, last: LastRegistration | None) -> None:
        """Forget the session."""

    async def note_registration(self, broker_epoch: int) -> None:
        """Forget the epoch."""


class BrokerChannel(Protocol):
    """Requests to the brokers of the cluster, this one included."""

    def send(self, broker_id: int, request: Message, on_response: OnResponse) -> None:
        """Send, and call back exactly once with the response, or with None when the connection was lost.

        The version is the newest that both brokers know; None, too, if that one cannot carry the request.
        The local broker is called without a socket; its response may come before this method returns.
        """
        ...


NO_OFFSET: Final = -1
NO_LEADER_EPOCH: Final = -1
NEVER: Final = -1.0
"""A time of the loop's clock that is before every other one."""


class ClientConnection(Protocol):
    """The connection that a request came over, as far as the order of its requests and responses matters."""

    @property
    def id(self) -> int:
        """A number from 1 that no other connection of this broker has or had."""
        ...

    @property
    def greeted_at(self) -> float:
        """When the response to ApiVersions was made, by the loop's clock, if nothing had come behind; else ``NEVER``.

        A client waits for that response. So every other request was sent later, whatever lies between them.
        """
        ...

    def request_number(self) -> int:
        """Return the place of the request in hand among those of the connection, from 1."""
        ...

    def when_responded(self, callback: Callable[[int], None]) -> None:
        """Call back at the first quiet moment after the client's machine has the response to the request in hand.

        Then nothing that the client had sent before is under way. The argument is the number of requests of which
        anything had come by then. A connection that is never quiet is called back for a little later. The callback
        does not come if the connection is lost.
        """
        ...


class TransactionMarker(NamedTuple):
    """The end of one producer's transaction, as every partition of the transaction gets it."""

    producer_id: int
    producer_epoch: int
    commit: bool
    coordinator_epoch: int
    transaction_version: int
    decision_offset: int = NO_OFFSET
    """Of the record of the transaction log that decided the end: that of a later transaction is higher. NO_OFFSET: not
    known, as for markers of Kafka's tools and of brokers that do not send it yet."""


class LocalMarkers(Protocol):
    """Writes markers to the partitions that this broker leads."""

    def write(self, marker: TransactionMarker, partitions: Sequence[TopicPartition]) -> Promise[Sequence[ErrorCode]]:
        """Append the marker to each partition, all of them before this returns.

        Returns one error for each partition, in their order, once each marker is replicated or refused. A marker that
        is not replicated in time has REQUEST_TIMED_OUT, and must be written again.
        """
        ...


class LeaderAndEpoch(NamedTuple):
    """The leader of a partition, and its leader epoch."""

    broker_id: int
    epoch: int


class TopicMetadata(Protocol):
    """What this broker knows of the cluster's topics."""

    def topic_exists(self, topic: str) -> bool: ...

    def partition_count(self, topic: str) -> int | None:
        """Return how many partitions a topic has; None: no such topic.

        That of an internal topic does not change while the topic exists.
        """
        ...

    def is_deleted(self, partition: TopicPartition) -> bool:
        """Return whether the partition is known not to exist; one that is only not known yet is not deleted."""
        ...

    def topic_id(self, topic: str) -> bytes:
        """Return the id of a topic; ``ZERO_UUID``: no such topic, or it has none."""
        ...

    def leader(self, partition: TopicPartition) -> LeaderAndEpoch | None:
        """Return the leader; None: no such partition, or it has no live leader at the moment."""
        ...


class FinalizedFeatures(Protocol):
    """The levels of features (KIP-584) that the cluster has finalised."""

    @property
    def transaction_version(self) -> int:
        """0, 1 or 2; 0 where nothing is finalised."""
        ...


class Cancellable(Protocol):
    """Work that is under way."""

    def cancel(self) -> object: ...


class TaskOwner(Protocol):
    """Runs tasks, and stops them with the broker."""

    def spawn(self, coroutine: Coroutine[Any, Any, None], name: str) -> object: ...

    def retry(self, work: Callable[[], Coroutine[Any, Any, None]], name: str) -> Cancellable:
        """Run ``work()`` until it returns, or is cancelled; after an exception again, later each time."""
        ...


class ProducerIdSource(Protocol):
    """Producer ids that no broker has given out before."""

    def next_nowait(self) -> int | None:
        """Return an id; None: the reserved block is used up, and the next one must be reserved first."""
        ...

    async def next(self) -> int: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinatorHost:
    """What the transaction coordinator has of the broker around it."""

    broker_id: int
    metadata: TopicMetadata
    channel: BrokerChannel
    markers: LocalMarkers
    tasks: TaskOwner
    wall_clock: WallClock
