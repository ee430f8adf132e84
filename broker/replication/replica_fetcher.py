"""Copying what other brokers lead: one task and one connection for each of them.

A `ReplicaFetcher` fetches all partitions that one leader leads, in one fetch session: request, response, append, next
request. With ``flush.messages`` the appended records are synced before the next request reports them to the leader,
which then counts them as replicated.

Whatever goes wrong with one partition rests that partition for a while, longer each time, and touches no other. After
an election a follower is often faster than its new leader, which then does not know the epoch yet: so the first rests
are short. A partition whose epoch is older than the leader's is dropped until the controller sends the new one, and
one whose log fails for good. When the connection is lost all wait, and a request of the controller ends the backoff.

`ReplicaFetchers` has the fetchers of all leaders, and moves partitions between them as the controller says.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import Final

from oncelog.broker.process.containment import Containment
from oncelog.broker.replication.followed_partition import FollowedPartition
from oncelog.broker.replication.follower_session import FetcherSettings, FollowerSession
from oncelog.broker.replication.partition import Partition
from oncelog.broker.replication.replica_host import Supervise
from oncelog.broker.replication.replication_quota import ReplicationQuota
from oncelog.broker.security.peer_security import PeerSecurity
from oncelog.clients.connection import Address, Connection, connect
from oncelog.clients.errors import ClientError
from oncelog.protocol.errors import ErrorCode, error_of
from oncelog.protocol.messages.fetch import FetchResponse
from oncelog.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from oncelog.protocol.topic_partition import TopicPartition

logger = logging.getLogger(__name__)

_FIRST_REST_MS: Final = 20
_CONNECT_SECONDS: Final = 2.0
_VAIN_REST_SECONDS: Final = 0.1
"""Between two fetches while many in a row were of no use: neither broker is busy with a leader's repeated errors."""
_FIRST_FETCH_VERSION: Final = 15
"""The first version that carries the follower's broker epoch."""
_LATEST_TIMESTAMP: Final = -1
_EARLIEST_TIMESTAMP: Final = -2
_PASSING: Final = frozenset(
    {
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)
"""Errors of every election and creation, before the leader has its state; and of a full disk, which is logged once."""


class ReplicaFetcher:
    """Copies from one leader."""

    def __init__(
        self,
        leader_id: int,
        settings: FetcherSettings,
        *,
        address_of: Callable[[int], Address | None],
        broker_epoch: Callable[[], int],
        quota: ReplicationQuota,
        security: PeerSecurity | None = None,
    ) -> None:
        self.leader_id = leader_id
        self._settings = settings
        self._address_of = address_of
        self._broker_epoch = broker_epoch
        self._session = FollowerSession(settings)
        self._under_way: deque[asyncio.Future[FetchResponse]] = deque()
        self._unflushed: dict[FollowedPartition, None] = {}
        self._news = asyncio.Event()
        """Set when there may be something to do."""
        self._security = security or PeerSecurity()
        self._quota = quota
        self._throttled: dict[FollowedPartition, asyncio.TimerHandle] = {}
        """Those that are left out until the quota has room."""
        self._attempts = 0
        """To connect, in a row and in vain."""

    def __len__(self) -> int:
        return len(self._session)

    def follow(self, partition: Partition) -> None:
        followed = self._session.add(partition)
        self._unflushed[followed] = None
        self._throttle(followed)
        self._news.set()

    def unfollow(self, topic_partition: TopicPartition) -> None:
        followed = self._session.remove(topic_partition)
        if followed is not None:
            self._unflushed.pop(followed, None)
            self._forget_throttled(followed)

    async def run(self) -> None:
        """Fetch for ever; the broker's supervisor begins it again after an exception."""
        while True:
            if not len(self._session):
                await self._wait(None)
                continue
            connection = await self._connect()
            if connection is None:
                self._attempts += 1
                await self._wait(_rest_ms(self._attempts, self._settings.backoff_ms) / 1000)
                continue
            self._attempts = 0
            try:
                await self._fetch(connection)
            except ClientError as error:
                logger.info("Fetching from broker %d ended: %s", self.leader_id, error)
            finally:
                connection.close()
                self._under_way.clear()
                self._session.connection_lost()

    async def _wait(self, seconds: float | None) -> None:
        """Wait until there are news, or for some time."""
        self._news.clear()
        try:
            async with asyncio.timeout(seconds):
                await self._news.wait()
        except TimeoutError:
            pass

    async def _connect(self) -> Connection | None:
        address = self._address_of(self.leader_id)
        if address is None:
            return None
        try:
            return await connect(
                address,
                client_id=f"broker-{self._settings.replica_id}-fetcher",
                connect_seconds=_CONNECT_SECONDS,
                request_seconds=self._settings.socket_timeout_ms / 1000,
                tls=self._security.tls,
                sasl=self._security.sasl,
            )
        except ClientError as error:
            self._security.note_failure(self.leader_id, error, asyncio.get_running_loop().time())
            logger.info("Broker %d, a leader, cannot be reached: %s", self.leader_id, error)
            return None

    # Fetching

    async def _fetch(self, connection: Connection) -> None:
        while True:
            self._news.clear()
            while self._under_way and self._under_way[0].done():
                await self._take(connection, self._under_way.popleft().result())
            await self._flush()
            if self._session.may_send:
                if self._session.is_in_vain:
                    await asyncio.sleep(_VAIN_REST_SECONDS)
                self._send(connection)
            if not (self._under_way and self._under_way[0].done()):
                await self._news.wait()

    def _send(self, connection: Connection) -> None:
        request = self._session.next_request(self._broker_epoch())
        if request is not None:
            response = connection.send(request, FetchResponse, at_least=_FIRST_FETCH_VERSION)
            response.add_done_callback(self._on_response)
            self._under_way.append(response)

    def _on_response(self, response: "asyncio.Future[FetchResponse]") -> None:
        self._news.set()
        if not response.cancelled():
            response.exception()  # Two may be under way when the connection ends; one is enough to report it.

    async def _take(self, connection: Connection, response: FetchResponse) -> None:
        out_of_range = []
        contained = Containment(lambda error: self._abandon(followed, error))
        for followed, reply in self._session.take_response(response):
            if not self._session.is_followed(followed):
                continue  # The controller has changed its role meanwhile.
            with contained:
                error = followed.take(reply)
                if error is ErrorCode.OFFSET_OUT_OF_RANGE:
                    out_of_range.append(followed)
                elif error:
                    self._rest(followed, error)
                elif self._session.is_followed(followed):
                    self._changed(followed)
                    if self._quota.is_throttled(followed.partition.topic_partition):
                        if reply.records:
                            self._quota.record(len(reply.records), asyncio.get_running_loop().time())
                        self._throttle(followed)
            if reply.diverging_epoch is not None:
                await asyncio.sleep(0)  # To cut a log may mean to read much of it again; others wait, too.
        for followed in out_of_range:
            await self._reset(connection, followed)

    def _abandon(self, followed: FollowedPartition, error: Exception) -> None:
        """Follow a partition no more, whose reply met an unforeseen exception, and go on with the others."""
        logger.error("%s is not followed any more", followed.partition.topic_partition, exc_info=error)
        self.unfollow(followed.partition.topic_partition)

    def _changed(self, followed: FollowedPartition) -> None:
        self._unflushed[followed] = None
        self._session.note(followed)

    async def _flush(self) -> None:
        """Sync appended records where the flush policy requires it, before the next request reports them.

        What could not be synced is not reported: its partition rests, and is synced before it is fetched again.
        """
        due = [followed for followed in self._unflushed if followed.needs_flush]
        self._unflushed.clear()
        if due:
            async with asyncio.TaskGroup() as group:
                for followed in due:
                    group.create_task(followed.log.flush_off_loop())
            for followed in due:
                if followed.needs_flush and self._session.is_followed(followed):
                    self._unflushed[followed] = None
                    self._rest(followed, ErrorCode.KAFKA_STORAGE_ERROR)

    async def _reset(self, connection: Connection, followed: FollowedPartition) -> None:
        """Request where the leader's log begins and ends, and continue there."""
        ended_at = followed.log.log_end_offset
        latest = connection.send(self._offsets_request(followed, _LATEST_TIMESTAMP), ListOffsetsResponse)
        earliest = connection.send(self._offsets_request(followed, _EARLIEST_TIMESTAMP), ListOffsetsResponse)
        end, start = _only_offset(await latest), _only_offset(await earliest)
        if not self._session.is_followed(followed) or followed.log.log_end_offset != ended_at:
            return
        if isinstance(end, ErrorCode) or isinstance(start, ErrorCode):
            self._rest(followed, end if isinstance(end, ErrorCode) else ErrorCode.OFFSET_OUT_OF_RANGE)
            return
        followed.reset(start, end)
        if followed.has_news:
            self._changed(followed)
        else:
            self._rest(followed, ErrorCode.OFFSET_OUT_OF_RANGE)

    def _offsets_request(self, followed: FollowedPartition, timestamp: int) -> ListOffsetsRequest:
        topic, index = followed.partition.topic_partition
        requested = ListOffsetsPartition(
            partition_index=index, current_leader_epoch=followed.leader_epoch, timestamp=timestamp
        )
        return ListOffsetsRequest(
            replica_id=self._settings.replica_id, topics=[ListOffsetsTopic(name=topic, partitions=[requested])]
        )

    # Throttled partitions

    def _throttle(self, followed: FollowedPartition) -> None:
        """Leave a partition that is followed out of fetches for as long as it must wait."""
        if self._must_wait(followed):
            self._session.rest(followed)
            self._try_later(followed)

    def _must_wait(self, followed: FollowedPartition) -> bool:
        """Return whether too much was copied lately. A partition that keeps up is not throttled."""
        quota = self._quota
        if not quota.is_throttled(followed.partition.topic_partition) or not followed.is_behind:
            return False
        return quota.is_exceeded(asyncio.get_running_loop().time())

    def _try_later(self, followed: FollowedPartition) -> None:
        loop = asyncio.get_running_loop()
        self._throttled[followed] = loop.call_at(self._quota.free_at(loop.time()), self._try_throttled, followed)

    def _try_throttled(self, followed: FollowedPartition) -> None:
        self._forget_throttled(followed)
        if self._session.is_followed(followed) and self._must_wait(followed):
            self._try_later(followed)
        else:
            self._resume(followed)

    def _forget_throttled(self, followed: FollowedPartition) -> None:
        timer = self._throttled.pop(followed, None)
        if timer is not None:
            timer.cancel()

    def throttles_changed(self) -> None:
        """See anew who must wait."""
        for followed in list(self._throttled):
            self._try_throttled(followed)

    # Errors of one partition

    def _rest(self, followed: FollowedPartition, error: ErrorCode) -> None:
        name = followed.partition.topic_partition
        if error is ErrorCode.FENCED_LEADER_EPOCH:
            logger.debug("%s waits for the controller: broker %d knows a newer epoch", name, self.leader_id)
            self.unfollow(name)
            return
        if followed.log.failed or not self._session.is_followed(followed):
            self.unfollow(name)
            return
        followed.attempts += 1
        level = logging.DEBUG if error in _PASSING else logging.WARNING
        logger.log(level, "%s cannot be fetched from broker %d: %s", name, self.leader_id, error.name)
        self._session.rest(followed)
        rest_ms = _rest_ms(followed.attempts, self._settings.backoff_ms)
        asyncio.get_running_loop().call_later(rest_ms / 1000, self._resume, followed)

    def _resume(self, followed: FollowedPartition) -> None:
        if self._session.is_followed(followed):
            self._session.resume(followed)
            self._news.set()


class ReplicaFetchers:
    """Implements ``replica_manager.Fetchers`` for a member of a cluster."""

    def __init__(
        self,
        settings: FetcherSettings,
        *,
        address_of: Callable[[int], Address | None],
        broker_epoch: Callable[[], int],
        supervise: Supervise,
        quota: ReplicationQuota | None = None,
        security: PeerSecurity | None = None,
    ) -> None:
        """Make the fetchers; ``address_of`` returns where another broker listens for brokers, or None if not known."""
        self._quota = quota or ReplicationQuota()
        self._security = security or PeerSecurity()
        self._settings = settings
        self._address_of = address_of
        self._broker_epoch = broker_epoch
        self._supervise = supervise
        self._fetchers: dict[int, ReplicaFetcher] = {}
        self._leaders: dict[TopicPartition, int] = {}
        self._is_leaving = False

    def leave(self) -> None:
        """Follow nothing new: this broker is about to stop.

        Its log would first be cut to what is replicated, which is of no use, while clients wait to be sent elsewhere.
        """
        self._is_leaving = True

    def follow(self, partition: Partition) -> None:
        name, leader_id = partition.topic_partition, partition.leader_id
        if self._is_leaving:
            self.unfollow(name)
            return
        if self._leaders.get(name, leader_id) != leader_id:
            self.unfollow(name)
        self._leaders[name] = leader_id
        self._fetcher(leader_id).follow(partition)

    def unfollow(self, topic_partition: TopicPartition) -> None:
        leader_id = self._leaders.pop(topic_partition, None)
        if leader_id is not None:
            self._fetchers[leader_id].unfollow(topic_partition)

    def throttles_changed(self) -> None:
        """Look again at what is throttled, and how much."""
        for fetcher in self._fetchers.values():
            fetcher.throttles_changed()

    def _fetcher(self, leader_id: int) -> ReplicaFetcher:
        fetcher = self._fetchers.get(leader_id)
        if fetcher is None:
            fetcher = self._fetchers[leader_id] = ReplicaFetcher(
                leader_id,
                self._settings,
                address_of=self._address_of,
                broker_epoch=self._broker_epoch,
                quota=self._quota,
                security=self._security,
            )
            self._supervise(fetcher.run, f"replica fetcher of broker {leader_id}")
        return fetcher


def _rest_ms(attempts: int, longest_ms: int) -> int:
    """Return the milliseconds to pause after so many failed attempts."""
    return min(_FIRST_REST_MS << min(attempts - 1, 16), longest_ms)


def _only_offset(response: ListOffsetsResponse) -> int | ErrorCode:
    """Return the one offset that was requested, or its error."""
    ((found,),) = (topic.partitions for topic in response.topics)
    return error_of(found.error_code) if found.error_code else found.offset
