"""An incremental fetch session with one broker (KIP-227): what requests contain, and what responses mean.

The broker remembers a session's partitions and their offsets, so that a request names only those that are new, changed
or no longer wanted, and a response only those with records or changes. Requests of a session are numbered; one at a
time is under way. Whatever goes wrong, the next request is a full one that begins a new session. Pure.

Topics go by their ids (version 13) where all that is wanted, or to be forgotten, has one. A topic that was created
anew has another id: its partition is forgotten under the old one and fetched under the new one.

The rules are those of Kafka's ``FetchSessionHandler.java``.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.fetch import FetchPartition, FetchResponse, FetchTopic, ForgottenTopic, PartitionData
from oncelog.protocol.schema import ZERO_UUID
from oncelog.protocol.topic_partition import TopicPartition

NO_SESSION: Final = 0
_FIRST_EPOCH: Final = 0
_LAST_EPOCH: Final = -1
_MAX_EPOCH: Final = 2**31 - 1
_NEWEST_WITH_TOPIC_NAMES: Final = 12


class Wanted(NamedTuple):
    """What is to be fetched of a partition."""

    topic_id: bytes
    offset: int
    leader_epoch: int
    max_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionRequest:
    """The session's part of a fetch request."""

    session_id: int
    session_epoch: int
    topics: list[FetchTopic]
    forgotten: list[ForgottenTopic]
    at_most: int | None
    """The newest version that may be sent."""


class FetchSession:
    """The session with one broker, as the consumer sees it."""

    def __init__(self) -> None:
        self._id = NO_SESSION
        self._epoch = _FIRST_EPOCH
        self._partitions: dict[TopicPartition, Wanted] = {}
        self._names: dict[bytes, str] = {}

    def next_request(self, wanted: Mapping[TopicPartition, Wanted]) -> SessionRequest:
        """Return the session's part of a request for just ``wanted``, given what the broker has already."""
        known = self._partitions if self._epoch != _FIRST_EPOCH else {}
        replaced = {tp for tp, was in known.items() if tp in wanted and wanted[tp].topic_id != was.topic_id}
        gone = {tp: was for tp, was in known.items() if tp not in wanted or tp in replaced}
        news = {tp: each for tp, each in wanted.items() if known.get(tp) != each}
        self._partitions = {**{tp: wanted[tp] for tp in known if tp in wanted and tp not in news}, **wanted}
        self._names = {each.topic_id: tp.topic for tp, each in wanted.items()}
        has_ids = not any(each.topic_id == ZERO_UUID for each in (*wanted.values(), *gone.values()))
        return SessionRequest(
            session_id=self._id,
            session_epoch=self._epoch,
            topics=_topics(news),
            forgotten=_forgotten(gone),
            at_most=None if has_ids else _NEWEST_WITH_TOPIC_NAMES,
        )

    def closing_request(self) -> SessionRequest | None:
        """Return the session's part of a request that closes the session; None if there is none."""
        if self._id == NO_SESSION:
            return None
        return SessionRequest(session_id=self._id, session_epoch=_LAST_EPOCH, topics=[], forgotten=[], at_most=None)

    def take(self, response: FetchResponse) -> dict[TopicPartition, PartitionData] | None:
        """Return the partitions of a response; None if it is an error, and the next request must be a full one."""
        if response.error_code != ErrorCode.NONE:
            if response.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND:
                self._id = NO_SESSION
            self._epoch = _FIRST_EPOCH
            return None
        partitions: dict[TopicPartition, PartitionData] = {}
        for topic in response.responses:
            name = topic.topic or self._names.get(topic.topic_id, "")
            for partition in topic.partitions:
                partitions[TopicPartition(name, partition.partition_index)] = partition
        is_full = self._epoch == _FIRST_EPOCH
        unexpected = partitions.keys() - self._partitions.keys()
        if unexpected or (is_full and partitions.keys() != self._partitions.keys()):
            self.fail()
            return None
        self._id = response.session_id
        if response.session_id == NO_SESSION:
            self._epoch = _FIRST_EPOCH
        else:
            self._epoch = 1 if self._epoch == _MAX_EPOCH else self._epoch + 1
        return partitions

    def fail(self) -> None:
        """Begin a new session with the next request, after no response or one that does not fit the session."""
        self._epoch = _FIRST_EPOCH


def _topics(partitions: Mapping[TopicPartition, Wanted]) -> list[FetchTopic]:
    topics: dict[str, FetchTopic] = {}
    for (name, index), wanted in partitions.items():
        topic = topics.get(name)
        if topic is None:
            topic = topics[name] = FetchTopic(topic=name, topic_id=wanted.topic_id)
        topic.partitions.append(
            FetchPartition(
                partition=index,
                current_leader_epoch=wanted.leader_epoch,
                fetch_offset=wanted.offset,
                partition_max_bytes=wanted.max_bytes,
            )
        )
    return list(topics.values())


def _forgotten(partitions: Mapping[TopicPartition, Wanted]) -> list[ForgottenTopic]:
    topics: dict[tuple[str, bytes], ForgottenTopic] = {}
    for (name, index), was in partitions.items():
        topic = topics.get((name, was.topic_id))
        if topic is None:
            topic = topics[name, was.topic_id] = ForgottenTopic(topic=name, topic_id=was.topic_id)
        topic.partitions.append(index)
    return list(topics.values())
