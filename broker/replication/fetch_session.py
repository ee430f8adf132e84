"""Fetch sessions (KIP-227): what a consumer or follower fetches, kept between its requests. Pure: no clock, no I/O.

A client names its partitions once, in a *full* fetch; the broker returns a session id, and later *incremental* requests
carry only what changed: new offsets, additions, forgotten partitions. The response likewise leaves out partitions in
which nothing has changed. Clients that know no sessions get a session object too, which lives for one request, so that
there is one mechanism.

The session is also where waiting fetches live. Each of its partitions is a `FetchPosition`, registered once with the
partition it watches. Whatever may change the response (an append, a move of the high watermark or of the last stable
offset, a change of leader, a new offset from the client) puts the position among the session's *dirty* ones, and only
dirty positions are visited when a fetch is served: a fetch of one busy partition among a thousand costs one visit.

Invariants:
* A position leaves `dirty` only when a visit found it quiet: no records above its offset, no error, nothing diverging.
  So a position that is not dirty has nothing that was not sent to the client.
* `sent_high_watermark` and `sent_log_start_offset` are what the client last saw; a difference is always sent.
  A follower names what it has, because it may not have counted a response.
* A request advances the session's epoch when it is accepted, not when its response is sent; a response whose epoch has
  been overtaken is INVALID_FETCH_SESSION_EPOCH.

The cache holds a bounded number of sessions. A new one may evict: the least recently used if that was idle for longer
than `EVICTION_MS`; else the smallest of those that exist for longer than that; a follower's (privileged) session also
the smallest of any consumer's.

The partitions of a session are what its client names, whether they exist or not, so memory is bounded, too: what all
kept sessions may cost together (``MAX_COST_BYTES``). A session that finds no room, or grows beyond it, is not kept: its
client goes on with full fetches, as every client can.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum, auto
from random import Random
from typing import Final, Protocol, TypeAlias

from oncelog.broker.replication.follower_state import NEVER
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.fetch import FetchPartition, FetchRequest, PartitionData
from oncelog.protocol.schema import ZERO_UUID

NO_SESSION: Final = 0
INITIAL_EPOCH: Final = 0
"""The epoch of a request for a new session."""
FINAL_EPOCH: Final = -1
"""The epoch of a request that wants no session, or closes its own."""
EVICTION_MS: Final = 120_000
MAX_COST_BYTES: Final = 128 << 20
"""Of all kept sessions together: more than 300,000 partitions."""
_POSITION_BYTES: Final = 400
"""What a position costs beside the name of its topic."""
_MAX_INT32: Final = 2**31 - 1
_FIRST_VERSION_WITH_TOPIC_IDS: Final = 13
_NOT_NAMED: Final = 2**63 - 1
"""The high watermark in a request of a consumer, or of a follower that does not name its own."""

PartitionKey: TypeAlias = tuple[str | bytes, int]
"""Topic name or topic id, and the partition's index."""


def next_epoch(epoch: int) -> int:
    """Return the session epoch of the request after one with this epoch; it skips zero when it wraps."""
    if epoch < 0:
        return FINAL_EPOCH
    return 1 if epoch == _MAX_INT32 else epoch + 1


class FetchIsolation(Enum):
    """Up to where a fetch sees a log."""

    LOG_END = auto()
    """For followers, which must have all records."""
    HIGH_WATERMARK = auto()
    TXN_COMMITTED = auto()
    """Up to the last stable offset."""


class Watched(Protocol):
    """A partition as a position sees it."""

    def add_watcher(self, position: "FetchPosition") -> None: ...

    def remove_watcher(self, position: "FetchPosition") -> None: ...

    def visible_end(self, isolation: FetchIsolation) -> int:
        """Return the offset below which a fetch of this isolation may read."""

    def size_between(self, start_offset: int, end_offset: int) -> int:
        """Return about how many bytes the log has there."""


class Waiting(Protocol):
    """A fetch of this session that is parked until there is enough to return."""

    def progressed(self, position: "FetchPosition", base_offset: int, size: int) -> None:
        """Note that more of this partition may be visible; the last append put ``size`` bytes at ``base_offset``."""

    def disturbed(self) -> None:
        """Respond now: something other than data has changed."""

    def hinted(self) -> None:
        """Respond soon: something has changed that is worth a response if nothing else causes one before."""


class FetchPosition:
    """One partition of a session: where the client reads, and which offsets it was last sent."""

    __slots__ = (
        "available",
        "caught_up_ms",
        "current_leader_epoch",
        "fetch_offset",
        "last_fetched_epoch",
        "log_start_offset",
        "max_bytes",
        "partition_index",
        "seen_end",
        "sent_high_watermark",
        "sent_log_start_offset",
        "session",
        "throttled",
        "topic",
        "topic_id",
        "watched",
    )

    def __init__(self, session: "FetchSession", topic: str | None, topic_id: bytes, requested: FetchPartition) -> None:
        self.session = session
        self.topic = topic
        """None while the topic id is not known here."""
        self.topic_id = topic_id
        self.partition_index = requested.partition
        self.sent_high_watermark = -1
        self.sent_log_start_offset = -1
        self.watched: Watched | None = None
        self.throttled = False
        """Of a follower: whether it was sent nothing because it is throttled."""
        self.caught_up_ms = NEVER
        """Of a follower: when it last fetched and there was nothing more for it, or its partition knows it better."""
        self.update(requested)

    def update(self, requested: FetchPartition) -> None:
        self.fetch_offset = requested.fetch_offset
        max_bytes = requested.partition_max_bytes
        self.max_bytes = max_bytes if max_bytes > 0 else 0
        self.current_leader_epoch = requested.current_leader_epoch
        self.last_fetched_epoch = requested.last_fetched_epoch
        self.log_start_offset = requested.log_start_offset
        self.available = 0
        """Visible bytes above `fetch_offset`, as a waiting fetch has counted them up to `seen_end`."""
        self.seen_end = requested.fetch_offset
        # A follower names its own (KIP-1166): it may not have counted a response while another request was under way.
        if requested.high_watermark != _NOT_NAMED:
            self.sent_high_watermark = requested.high_watermark

    def watch(self, partition: Watched) -> None:
        if self.watched is partition:
            return
        if self.watched is not None:
            self.unwatch()
        self.watched = partition
        partition.add_watcher(self)

    def unwatch(self) -> None:
        if self.watched is not None:
            self.watched.remove_watcher(self)
            self.watched = None

    def knows(self, reply: PartitionData) -> bool:
        """Return whether the client was sent these watermarks before."""
        return reply.high_watermark == self.sent_high_watermark and reply.log_start_offset == self.sent_log_start_offset

    def must_send(self, reply: PartitionData) -> bool:
        """Return whether an incremental response carries this reply; remember what the client then knows."""
        changed = (
            bool(reply.records) or bool(reply.error_code) or not self.knows(reply) or reply.diverging_epoch is not None
        )
        self.remember(reply)
        return changed

    def remember(self, reply: PartitionData) -> None:
        # After an error -1 stands for "unknown", so that the partition is sent again when the error has gone.
        self.sent_high_watermark = -1 if reply.error_code else reply.high_watermark
        self.sent_log_start_offset = reply.log_start_offset


class FetchSession:
    """The partitions of one client's fetches, and which of them may have changed."""

    __slots__ = (
        "attended_ms",
        "cost_bytes",
        "created_ms",
        "dirty",
        "epoch",
        "id",
        "last_used_ms",
        "positions",
        "privileged",
        "replica_epoch",
        "replica_id",
        "responded_ms",
        "uses_topic_ids",
        "waiting",
    )

    def __init__(self, *, replica_id: int, replica_epoch: int = -1, uses_topic_ids: bool) -> None:
        self.id = NO_SESSION
        self.epoch = INITIAL_EPOCH
        self.replica_id = replica_id
        self.replica_epoch = replica_epoch
        self.privileged = replica_id >= 0
        self.uses_topic_ids = uses_topic_ids
        self.cost_bytes = 0
        """Of memory, estimated from the positions."""
        self.created_ms = 0
        self.last_used_ms = 0
        self.responded_ms = NEVER
        """When its last response was made."""
        self.attended_ms = NEVER
        """When the response before its last request was made; that request says that the client received the response.

        A request may lie unread for long while this process is stopped; so its coming says less."""
        self.positions: dict[PartitionKey, FetchPosition] = {}
        self.dirty: dict[FetchPosition, None] = {}
        """Ordered: a position that returned records goes to the back, so that a size limit starves none."""
        self.waiting: Waiting | None = None

    def update(self, request: FetchRequest, topic_name: "TopicName") -> None:
        """Take over what a request adds, moves and forgets."""
        by_id = self.uses_topic_ids
        for topic in request.topics:
            for requested in topic.partitions:
                key = (topic.topic_id if by_id else topic.topic, requested.partition)
                position = self.positions.get(key)
                if position is None:
                    name = topic_name(topic.topic_id) if by_id else topic.topic
                    topic_id = topic.topic_id if by_id else ZERO_UUID
                    position = self.positions[key] = FetchPosition(self, name, topic_id, requested)
                    self.cost_bytes += _cost_bytes(key)
                else:
                    position.update(requested)
                self.dirty[position] = None
        for forgotten in request.forgotten_topics_data:
            for index in forgotten.partitions:
                self._forget((forgotten.topic_id if by_id else forgotten.topic, index))

    def follower_registered(self, replica_epoch: int) -> None:
        """Mark every partition as changed: the follower has registered anew, so its next fetch counts for all."""
        self.replica_epoch = replica_epoch
        self.dirty = dict.fromkeys(self.positions.values())

    def _forget(self, key: PartitionKey) -> None:
        position = self.positions.pop(key, None)
        if position is not None:
            self.dirty.pop(position, None)
            self.cost_bytes -= _cost_bytes(key)
            position.unwatch()

    def progressed(self, position: FetchPosition, base_offset: int, size: int) -> None:
        self.dirty[position] = None
        if self.waiting is not None:
            self.waiting.progressed(position, base_offset, size)

    def appended(self, position: FetchPosition, base_offset: int, size: int) -> None:
        """Note that a follower has something to fetch; until now it may have had everything."""
        if position not in self.dirty:
            position.caught_up_ms = self.last_used_ms
        self.progressed(position, base_offset, size)

    def high_watermark_moved(self, position: FetchPosition) -> None:
        """Note that a follower should learn the high watermark. That can wait until there are records to go with it."""
        self.dirty[position] = None
        if self.waiting is not None:
            self.waiting.hinted()

    def disturbed(self, position: FetchPosition) -> None:
        self.dirty[position] = None
        if self.waiting is not None:
            self.waiting.disturbed()

    def quiet(self, position: FetchPosition) -> None:
        """Note that a visit found nothing that the client does not know."""
        self.dirty.pop(position, None)

    def served(self, position: FetchPosition) -> None:
        """Note that the client got records of this partition: the others come first next time."""
        self.dirty.pop(position, None)
        self.dirty[position] = None

    def close(self) -> None:
        """Release every partition; a fetch that still waits gets its response."""
        for position in self.positions.values():
            position.unwatch()
        self.positions.clear()  # They know their session: without this only the garbage collector would end both.
        self.dirty.clear()
        if self.waiting is not None:
            self.waiting.disturbed()


def _cost_bytes(key: PartitionKey) -> int:
    return _POSITION_BYTES + len(key[0])


TopicName: TypeAlias = Callable[[bytes], str | None]
"""Finds the name of a topic id, if it is known."""


class FetchKind(Enum):
    """How a fetch request uses sessions."""

    SESSIONLESS = auto()
    FULL = auto()
    """Names all its partitions and wants a session."""
    INCREMENTAL = auto()


@dataclass(slots=True, kw_only=True)
class FetchContext:
    """One fetch request against its session, with the replies collected so far."""

    kind: FetchKind
    session: FetchSession
    expected_epoch: int
    replies: dict[FetchPosition, PartitionData]

    @property
    def overtaken(self) -> bool:
        """A later request of the same session was accepted before this one got its response."""
        return self.session.epoch != self.expected_epoch

    @property
    def size(self) -> int:
        """Bytes of records in the replies."""
        return sum([len(reply.records) for reply in self.replies.values() if reply.records])

    def replies_to_send(self) -> Iterator[tuple[FetchPosition, PartitionData]]:
        """Yield the partitions of the response; from here on the session knows that the client was sent them."""
        session = self.session
        for position, reply in self.replies.items():
            if self.kind is FetchKind.INCREMENTAL:
                if not position.must_send(reply):
                    continue
            else:
                position.remember(reply)
            if reply.records:
                session.served(position)
            yield position, reply


class FetchSessionCache:
    """The sessions of this broker, by id."""

    def __init__(self, *, slots: int, rng: Random, max_cost_bytes: int = MAX_COST_BYTES) -> None:
        self._slots = slots
        self._max_cost_bytes = max_cost_bytes
        self.cost_bytes = 0
        """Of all kept sessions."""
        self._rng = rng
        self._sessions: OrderedDict[int, FetchSession] = OrderedDict()
        """Least recently used first."""
        self.evictions = 0

    def __len__(self) -> int:
        return len(self._sessions)

    @property
    def partition_count(self) -> int:
        return sum(len(session.positions) for session in self._sessions.values())

    def open(self, request: FetchRequest, version: int, topic_name: TopicName, now_ms: int) -> FetchContext | ErrorCode:
        """Find or start the session of a request, and apply the request to it."""
        if request.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            return self._open_full(request, version, topic_name)
        return self._open_incremental(request, version, topic_name, now_ms)

    def _open_full(self, request: FetchRequest, version: int, topic_name: TopicName) -> FetchContext:
        if request.session_id != NO_SESSION:
            self.remove(request.session_id)
        session = FetchSession(
            replica_id=replica_id(request),
            replica_epoch=replica_epoch(request),
            uses_topic_ids=version >= _FIRST_VERSION_WITH_TOPIC_IDS,
        )
        if session.privileged:
            self._remove_former_incarnations(session)
        session.update(request, topic_name)
        kind = FetchKind.SESSIONLESS if request.session_epoch == FINAL_EPOCH else FetchKind.FULL
        return FetchContext(kind=kind, session=session, expected_epoch=session.epoch, replies={})

    def _remove_former_incarnations(self, newcomer: FetchSession) -> None:
        """Remove the sessions of a broker that has restarted: its new incarnation does not use them."""
        for session in list(self._sessions.values()):
            if session.replica_id == newcomer.replica_id and session.replica_epoch < newcomer.replica_epoch:
                self.remove(session.id)

    def _open_incremental(
        self, request: FetchRequest, version: int, topic_name: TopicName, now_ms: int
    ) -> FetchContext | ErrorCode:
        session = self._sessions.get(request.session_id)
        if session is None:
            return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        if session.epoch != request.session_epoch:
            return ErrorCode.INVALID_FETCH_SESSION_EPOCH
        if session.uses_topic_ids != (version >= _FIRST_VERSION_WITH_TOPIC_IDS):
            return ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
        session.epoch = next_epoch(session.epoch)
        if session.waiting is not None:
            session.waiting.disturbed()
        cost_before = session.cost_bytes
        session.update(request, topic_name)
        self.cost_bytes += session.cost_bytes - cost_before
        if session.cost_bytes > cost_before and self.cost_bytes > self._max_cost_bytes:
            self.remove(session.id)
            return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        if session.privileged and session.replica_epoch != replica_epoch(request):
            session.follower_registered(replica_epoch(request))
        if not session.positions:
            self.remove(session.id)
            session.id = NO_SESSION
            return FetchContext(kind=FetchKind.SESSIONLESS, session=session, expected_epoch=session.epoch, replies={})
        session.last_used_ms = now_ms
        session.attended_ms = session.responded_ms
        self._sessions.move_to_end(session.id)
        return FetchContext(kind=FetchKind.INCREMENTAL, session=session, expected_epoch=session.epoch, replies={})

    def keep(self, session: FetchSession, now_ms: int) -> bool:
        """Give the session of a full fetch an id, if there is room for it; else it ends with its request."""
        while not self._has_room_for(session):
            if not self._evict_for(session, now_ms):
                return False
        self.cost_bytes += session.cost_bytes
        session.id = self._new_id()
        session.epoch = next_epoch(INITIAL_EPOCH)
        session.created_ms = session.last_used_ms = now_ms
        self._sessions[session.id] = session
        return True

    def _has_room_for(self, session: FetchSession) -> bool:
        return len(self._sessions) < self._slots and self.cost_bytes + session.cost_bytes <= self._max_cost_bytes

    def remove(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self.cost_bytes -= session.cost_bytes
            session.close()

    def close(self) -> None:
        for session_id in list(self._sessions):
            self.remove(session_id)

    def _new_id(self) -> int:
        while True:
            session_id = self._rng.randrange(1, _MAX_INT32 + 1)
            if session_id not in self._sessions:
                return session_id

    def _evict_for(self, newcomer: FetchSession, now_ms: int) -> bool:
        victim = self._victim_for(newcomer, now_ms)
        if victim is None:
            return False
        self.remove(victim.id)
        self.evictions += 1
        return True

    def _victim_for(self, newcomer: FetchSession, now_ms: int) -> FetchSession | None:
        oldest = next(iter(self._sessions.values()), None)
        if oldest is None:
            return None
        if now_ms - oldest.last_used_ms > EVICTION_MS:
            return oldest
        evictable = [
            session
            for session in self._sessions.values()
            if now_ms - session.created_ms > EVICTION_MS or (newcomer.privileged and not session.privileged)
        ]
        cheapest = min(evictable, key=_worth, default=None)
        if cheapest is None or _worth(newcomer) < _worth(cheapest):
            return None
        return cheapest


def _worth(session: FetchSession) -> tuple[bool, int]:
    return session.privileged, len(session.positions)


def replica_id(request: FetchRequest) -> int:
    """Return the broker id of a follower; negative for a consumer. Version 15 moved it to ``replica_state``."""
    if request.replica_state is not None:
        return request.replica_state.replica_id
    return request.replica_id


def replica_epoch(request: FetchRequest) -> int:
    """Return the broker epoch of the follower that fetches (KIP-903); -1 for consumers, and before version 15."""
    return -1 if request.replica_state is None else request.replica_state.replica_epoch
