"""The follower's side of a fetch session (KIP-227) with one leader. Pure.

The first request names all partitions and opens the session; later ones name only those whose log has changed, and
those that are no longer followed. Every request is numbered, here and, as the session's epoch, for the leader.

A follower need not wait for a response before it sends the next request: when a partition is added that should be
fetched at once while the leader delays a response for want of records, another request *overtakes* that one. The leader
then responds to the first with INVALID_FETCH_SESSION_EPOCH, or has responded already. So a response counts for a
partition only if no later request has named the partition, and if its log still ends at the offset that was sent.

The follower keeps account of the partitions that the leader's session has once it has handled every request that was
sent, responses still to come or not. A partition among them that is not fetched any more is forgotten with the next
request, however often it was followed anew in between: the leader would respond for it at once to every request. One
that appears in a response all the same is forgotten too.

After any error of the session, and on every new connection, it begins anew with a full request, which also closes the
old session.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, TypeAlias

from oncelog.broker.replication.fetch_session import FINAL_EPOCH, INITIAL_EPOCH, NO_SESSION, next_epoch
from oncelog.broker.replication.followed_partition import FollowedPartition
from oncelog.broker.replication.partition import Partition
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.fetch import (
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
    ReplicaState,
)
from oncelog.protocol.schema import ZERO_UUID
from oncelog.protocol.topic_partition import TopicPartition

PartitionKey: TypeAlias = tuple[bytes, int]
"""The topic id and the index: how requests and responses name a partition."""

_MOST_UNDER_WAY: Final = 2
_MOST_IN_VAIN: Final = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class FetcherSettings:
    """The limits of a follower's fetch requests, from the broker's configuration."""

    replica_id: int
    max_wait_ms: int = 500
    min_bytes: int = 1
    max_bytes: int = 10 << 20
    partition_max_bytes: int = 1 << 20
    backoff_ms: int = 1_000
    """The longest rest after errors."""
    socket_timeout_ms: int = 30_000


class FollowerSession:
    """All partitions that follow one leader, and what that leader knows of them."""

    def __init__(self, settings: FetcherSettings) -> None:
        self._settings = settings
        self._followed: dict[TopicPartition, FollowedPartition] = {}
        self._by_key: dict[PartitionKey, FollowedPartition] = {}
        self._changed: dict[FollowedPartition, None] = {}
        self._at_leader: set[PartitionKey] = set()
        """The partitions of the leader's session after the last request that was sent."""
        self._forgotten: dict[PartitionKey, None] = {}
        """Those to be named as forgotten in the next request: the leader's session has them, and they are not fetched.
        """
        self._id = NO_SESSION
        self._epoch = INITIAL_EPOCH
        self._refused = False
        """Whether the leader had no room for a session."""
        self._sent = self._received = 0
        self._opening = 0
        """The number of the full request that is under way."""
        self.is_urgent = False
        """Whether a partition should be fetched before the response to the request under way."""
        self._vain_responses = 0
        """In a row: those that had an error, or replies of which none counted."""

    def __len__(self) -> int:
        return len(self._followed)

    def __iter__(self) -> Iterator[FollowedPartition]:
        return iter(list(self._followed.values()))

    # What is followed

    def add(self, partition: Partition) -> FollowedPartition:
        """Follow from now on, or at a new leader epoch."""
        self.remove(partition.topic_partition)
        followed = FollowedPartition(partition)
        self._followed[partition.topic_partition] = followed
        if followed.key[0] == ZERO_UUID:  # No request can name it: its topic's id comes with a later leadership.
            followed.resting = True
            return followed
        self._by_key[followed.key] = followed
        self._forgotten.pop(followed.key, None)
        self._changed[followed] = None
        self.is_urgent = True
        return followed

    def remove(self, topic_partition: TopicPartition) -> FollowedPartition | None:
        followed = self._followed.pop(topic_partition, None)
        if followed is not None:
            self._by_key.pop(followed.key, None)
            self._forget(followed)
        return followed

    def is_followed(self, followed: FollowedPartition) -> bool:
        return self._followed.get(followed.partition.topic_partition) is followed

    def rest(self, followed: FollowedPartition) -> None:
        """Leave a partition out for a while."""
        followed.resting = True
        self._forget(followed)

    def resume(self, followed: FollowedPartition) -> None:
        if followed.key[0] == ZERO_UUID:
            return
        followed.resting = False
        self._forgotten.pop(followed.key, None)
        self._changed[followed] = None
        self.is_urgent = True

    def _forget(self, followed: FollowedPartition) -> None:
        self._changed.pop(followed, None)
        followed.sent_position = None
        if followed.key in self._at_leader:
            self._forgotten[followed.key] = None

    # Requests and responses

    @property
    def may_send(self) -> bool:
        under_way = self._sent - self._received
        if self._epoch == INITIAL_EPOCH:
            return under_way == 0
        return under_way == 0 or (self.is_urgent and under_way < _MOST_UNDER_WAY)

    def next_request(self, broker_epoch: int) -> FetchRequest | None:
        """Return the next request; None if there is nothing to fetch."""
        assert self.may_send
        self.is_urgent = False
        if not any(not followed.resting for followed in self._followed.values()):
            return self._last_request(broker_epoch)
        self._sent += 1
        if self._epoch == INITIAL_EPOCH:
            return self._full_request(broker_epoch)
        request = self._request(broker_epoch, self._changed, self._settings.max_wait_ms)
        for topic_id, index in self._forgotten:
            _forgotten_topic(request, topic_id).partitions.append(index)
        self._at_leader.difference_update(self._forgotten)
        self._forgotten.clear()
        self._epoch = next_epoch(self._epoch)
        return request

    def _full_request(self, broker_epoch: int) -> FetchRequest:
        active = {followed: None for followed in self._followed.values() if not followed.resting}
        self._at_leader.clear()
        self._forgotten.clear()
        # Partitions may come while it is under way, and it cannot be overtaken: the session is not known yet.
        request = self._request(broker_epoch, active, self._settings.max_wait_ms if self._refused else 0)
        self._opening = self._sent
        return request

    def _last_request(self, broker_epoch: int) -> FetchRequest | None:
        """Close the session, if there is one."""
        if self._epoch == INITIAL_EPOCH:
            return None
        self._sent += 1
        request = self._request(broker_epoch, {}, 0)
        request.session_epoch = FINAL_EPOCH
        self.begin_anew()
        self._id = NO_SESSION
        return request

    def _request(self, broker_epoch: int, sent: dict[FollowedPartition, None], max_wait_ms: int) -> FetchRequest:
        settings = self._settings
        topics: dict[bytes, FetchTopic] = {}
        for followed in sent:
            topic_id, _ = followed.key
            name = followed.partition.topic_partition.topic
            topic = topics.setdefault(topic_id, FetchTopic(topic=name, topic_id=topic_id))
            topic.partitions.append(followed.build_request(self._sent, settings.partition_max_bytes))
            self._at_leader.add(followed.key)
        self._changed.clear()
        return FetchRequest(
            replica_state=ReplicaState(replica_id=settings.replica_id, replica_epoch=broker_epoch),
            max_wait_ms=max_wait_ms,
            min_bytes=settings.min_bytes,
            max_bytes=settings.max_bytes,
            session_id=self._id,
            session_epoch=self._epoch,
            topics=list(topics.values()),
        )

    def take_response(self, response: FetchResponse) -> list[tuple[FollowedPartition, PartitionData]]:
        """Take the response to the oldest request under way. Return the replies that match the logs as they are."""
        self._received += 1
        number = self._received
        self._vain_responses += 1
        if response.error_code:
            overtaken = number < self._sent and response.error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
            if not overtaken:
                self.begin_anew()
            return []
        if number == self._opening:
            self._opened(response.session_id)
        replies = []
        for topic in response.responses:
            for reply in topic.partitions:
                followed = self._followed_in(number, (topic.topic_id, reply.partition_index))
                if followed is not None:
                    replies.append((followed, reply))
        if replies or not any(topic.partitions for topic in response.responses):
            self._vain_responses = 0
        return replies

    def _followed_in(self, number: int, key: PartitionKey) -> FollowedPartition | None:
        """Return the partition of a reply to a request; None if the reply does not count."""
        followed = self._by_key.get(key)
        if followed is None or followed.resting:
            self._forgotten[key] = None
            return None
        if followed.accepts_response_to(number):
            return followed
        if followed.sent_in <= number:
            self.note(followed)
        return None

    @property
    def is_in_vain(self) -> bool:
        """Whether so many responses in a row were of no use that the next request should wait.

        A few are: to requests that were overtaken, and after changes of what is followed.
        """
        return self._vain_responses >= _MOST_IN_VAIN

    def _opened(self, session_id: int) -> None:
        self._id = session_id
        self._refused = session_id == NO_SESSION
        if session_id != NO_SESSION:
            self._epoch = next_epoch(INITIAL_EPOCH)

    def note(self, followed: FollowedPartition) -> None:
        """Note that the log of a followed partition may have changed."""
        if followed.has_news:
            self._changed[followed] = None

    def begin_anew(self) -> None:
        """Begin a new session: the request that is under way will have no response that is of use."""
        self._epoch = INITIAL_EPOCH
        self._opening = 0
        for followed in self._followed.values():
            followed.sent_position = None
        self._changed.clear()
        self._at_leader.clear()
        self._forgotten.clear()

    def connection_lost(self) -> None:
        self.begin_anew()
        self._received = self._sent


def _forgotten_topic(request: FetchRequest, topic_id: bytes) -> ForgottenTopic:
    for topic in request.forgotten_topics_data:
        if topic.topic_id == topic_id:
            return topic
    topic = ForgottenTopic(topic_id=topic_id)
    request.forgotten_topics_data.append(topic)
    return topic
