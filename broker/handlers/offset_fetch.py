"""OffsetFetch: how far a group has read, as far as that is durable.

Versions 1-7 name one group, 8 and above several. From version 2 on no topics means all of them, and errors
of the group have a field of their own; in version 1 every partition carries them. From 7 on ``require_stable``
refuses positions that an unfinished transaction may change (KIP-447). Version 9 names a member and its epoch, which
mean nothing to groups of the classic protocol. Version 10 names topics by id.

What is named again is returned once. The offsets of a response are bounded (``ResponseRoom``); groups that have no room
are COORDINATOR_LOAD_IN_PROGRESS, so that clients request them again alone.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from functools import partial
from typing import Any, Final, NamedTuple

from oncelog.broker.dispatch.api_handler import Outcome, handles
from oncelog.broker.dispatch.request import RequestContext
from oncelog.broker.dispatch.sliced_work import CHARACTERS_PER_UNIT, Steps, new_budget
from oncelog.broker.handlers.response_room import ResponseRoom
from oncelog.broker.parts import Broker
from oncelog.broker.security.authorizer import Operation, ResourceType
from oncelog.coordinator.group.offset_requests import FetchedOffset, FetchedOffsets
from oncelog.coordinator.promise import Promise
from oncelog.protocol.api_keys import ApiKey
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from oncelog.protocol.schema import ZERO_UUID
from oncelog.protocol.topic_partition import TopicPartition

_FIRST_WITH_GROUP_ERROR = 2
_FIRST_WITH_SEVERAL_GROUPS = 8
_FIRST_WITH_TOPIC_IDS = 10
_UNITS_PER_GROUP: Final = 20
_UNITS_PER_TOPIC: Final = 3
_BYTES_PER_OFFSET: Final = 50
"""What is counted for an offset before its response is built: in memory it takes more."""
_LEAST_BYTES_PER_OFFSET: Final = 20


def refuse_offset_fetch(request: OffsetFetchRequest, version: int, error: ErrorCode) -> OffsetFetchResponse:
    """Return the error for every group."""
    groups = _groups(request, version)
    if version < _FIRST_WITH_SEVERAL_GROUPS:
        return _refused(groups[0], version, error)
    return OffsetFetchResponse(groups=[_refuse_group(group, error) for group in groups])


@handles(ApiKey.OFFSET_FETCH, versions="1-10", error_response=refuse_offset_fetch, in_turn=True)
def handle_offset_fetch(broker: Broker, context: RequestContext, request: OffsetFetchRequest) -> Outcome:
    fetch = _Fetch(broker, context, request)
    requesting = broker.sliced_work.start(fetch.request_offsets(), fetch.budget, context.connection)
    if asyncio.iscoroutine(requesting):
        return fetch.respond_in_slices(requesting)
    return fetch.reply_when_known()


def _groups(request: OffsetFetchRequest, version: int) -> list[OffsetFetchRequestGroup]:
    """Return the groups of a request of any version."""
    if version >= _FIRST_WITH_SEVERAL_GROUPS:
        return request.groups
    topics = None
    if request.topics is not None:
        topics = [
            OffsetFetchRequestTopics(name=topic.name, partition_indexes=topic.partition_indexes)
            for topic in request.topics
        ]
    return [OffsetFetchRequestGroup(group_id=request.group_id, topics=topics)]


class _Fetch:
    """One request: the offsets of all groups are fetched, and when all are known, the response is built of them.

    Both are done in slices.
    """

    def __init__(self, broker: Broker, context: RequestContext, request: OffsetFetchRequest) -> None:
        self._broker = broker
        self._context = context
        self._require_stable = request.require_stable
        groups: dict[str, OffsetFetchRequestGroup] = {}
        for group in _groups(request, context.api_version):
            groups.setdefault(group.group_id, group)
        self._groups = [_Group(group) for group in groups.values()]
        self._unknown = len(self._groups)
        self._when_known: Callable[[], None] | None = None
        self.budget = new_budget()

    def request_offsets(self) -> Steps[None]:
        """Request the offsets of each group from the coordinator."""
        room = ResponseRoom(self._broker.response_memory)
        for group in self._groups:
            group_id = group.request.group_id
            self.budget.left -= _UNITS_PER_GROUP + len(group_id) // CHARACTERS_PER_UNIT
            if self.budget.left <= 0:
                yield None
            if not self._broker.authorizer.authorize(self._context, Operation.DESCRIBE, ResourceType.GROUP, group_id):
                self._on_fetched(group, ErrorCode.GROUP_AUTHORIZATION_FAILED)
            elif room.is_used_up:
                self._on_fetched(group, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
            else:
                room.take(_BYTES_PER_OFFSET * (yield from self._request_offsets_of(group)))

    def _request_offsets_of(self, group: "_Group") -> Steps[int]:
        partitions = None
        if group.request.topics is not None:
            partitions = yield from self._partitions(group, group.request.topics)
        coordinator = self._broker.group_coordinator
        return (
            yield from coordinator.fetch_offsets(
                group.request.group_id,
                partitions,
                partial(self._on_fetched, group),
                self.budget,
                require_stable=self._require_stable,
            )
        )

    def _partitions(
        self, group: "_Group", topics: Iterable[OffsetFetchRequestTopics]
    ) -> Steps[list[tuple[TopicPartition, bytes]]]:
        """Note what is requested of the group, each partition once, and return what the client may have."""
        partitions: list[tuple[TopicPartition, bytes]] = []
        seen: set[tuple[str, bytes, int]] = set()
        for requested in topics:
            topic = _judge_topic(self._broker, self._context, requested)
            self.budget.left -= _UNITS_PER_TOPIC
            for index in requested.partition_indexes:
                key = (topic.name, topic.topic_id, index)
                if key not in seen:
                    seen.add(key)
                    topic.indexes.append(index)
                    if topic.error is ErrorCode.NONE:
                        partitions.append((TopicPartition(topic.name, index), topic.topic_id))
                self.budget.left -= 1
                if self.budget.left <= 0:
                    yield None
            if topic.indexes or not requested.partition_indexes:
                group.topics.append(topic)
        return partitions

    def _on_fetched(self, group: "_Group", fetched: FetchedOffsets | ErrorCode) -> None:
        group.fetched = fetched
        self._unknown -= 1
        if not self._unknown and self._when_known is not None:
            self._when_known()

    def reply_when_known(self) -> OffsetFetchResponse | asyncio.Future[OffsetFetchResponse]:
        """Return the response, which is small, or a future of it."""
        if not self._unknown:
            return _at_once(self._build())
        reply: Promise[OffsetFetchResponse] = Promise()
        self._when_known = lambda: reply.complete(_at_once(self._build()))
        return reply.result()

    async def respond_in_slices(self, requesting: Coroutine[Any, Any, None]) -> OffsetFetchResponse:
        """Request the remaining offsets, and build the response when all are known."""
        await requesting
        if self._unknown:
            known = asyncio.get_running_loop().create_future()
            self._when_known = partial(_settle, known)
            await known
        return await self._broker.sliced_work.run(self._build(), self.budget, self._context.connection)

    def _build(self) -> Steps[OffsetFetchResponse]:
        version, room = self._context.api_version, ResponseRoom(self._broker.response_memory)
        response = OffsetFetchResponse()
        for group in self._groups:
            group_response = yield from self._group_response(group, room)
            if version >= _FIRST_WITH_SEVERAL_GROUPS:
                response.groups.append(group_response)
            elif group_response.error_code != ErrorCode.NONE:
                return _refused(group.request, version, ErrorCode(group_response.error_code))
            else:
                response.topics = yield from self._old_topics(group_response)
        return response

    def _group_response(self, group: "_Group", room: ResponseRoom) -> Steps[OffsetFetchResponseGroup]:
        fetched = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if room.is_used_up else group.fetched
        assert fetched is not None, "a response is built before all is known"
        if isinstance(fetched, ErrorCode):
            return _refuse_group(group.request, fetched)
        group_response = OffsetFetchResponseGroup(group_id=group.request.group_id)
        everything = _all_topics(self._broker, self._context, fetched) if group.request.topics is None else group.topics
        for topic in everything:
            self.budget.left -= _UNITS_PER_TOPIC
            topic_response = OffsetFetchResponseTopics(name=topic.name, topic_id=topic.topic_id)
            group_response.topics.append(topic_response)
            for index in topic.indexes:
                offset = fetched.get(TopicPartition(topic.name, index)) or FetchedOffset(error=topic.error)
                topic_response.partitions.append(_partition(index, offset))
                room.take(_LEAST_BYTES_PER_OFFSET + len(offset.metadata))
                self.budget.left -= 2
                if self.budget.left <= 0:
                    yield None
        return group_response

    def _old_topics(self, group_response: OffsetFetchResponseGroup) -> Steps[list[OffsetFetchResponseTopic]]:
        """Return the topics of the one group of an old request."""
        topics = []
        for topic in group_response.topics:
            topic_response = OffsetFetchResponseTopic(name=topic.name)
            topics.append(topic_response)
            for partition in topic.partitions:
                topic_response.partitions.append(_old_partition(partition))
                self.budget.left -= 1
                if self.budget.left <= 0:
                    yield None
        return topics


class _Topic(NamedTuple):
    """A requested topic, under the name that its id stands for, and the error of all of its partitions."""

    name: str
    topic_id: bytes
    error: ErrorCode
    indexes: list[int]
    """Each once."""


class _Group:
    """One group of a request, and what is known of it."""

    __slots__ = ("fetched", "request", "topics")

    def __init__(self, request: OffsetFetchRequestGroup) -> None:
        self.request = request
        self.topics: list[_Topic] = []
        """What the request names."""
        self.fetched: FetchedOffsets | ErrorCode | None = None
        """None: the coordinator has not replied."""


def _settle(known: asyncio.Future[None]) -> None:
    if not known.done():
        known.set_result(None)


def _at_once(steps: Steps[OffsetFetchResponse]) -> OffsetFetchResponse:
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            response: OffsetFetchResponse = stop.value
            return response


def _judge_topic(broker: Broker, context: RequestContext, topic: OffsetFetchRequestTopics) -> _Topic:
    name, error = topic.name, ErrorCode.NONE
    if context.api_version >= _FIRST_WITH_TOPIC_IDS:
        image = broker.metadata.image.topic_by_id(topic.topic_id)
        if image is None:
            return _Topic(name, topic.topic_id, ErrorCode.UNKNOWN_TOPIC_ID, [])
        name = image.name
    if not broker.authorizer.authorize(context, Operation.DESCRIBE, ResourceType.TOPIC, name):
        error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return _Topic(name, topic.topic_id, error, [])


def _all_topics(broker: Broker, context: RequestContext, fetched: FetchedOffsets) -> list[_Topic]:
    """Return the topics that the client may see; where they are named by id, those that have one."""
    by_name: dict[str, _Topic] = {}
    for name, index in fetched:
        topic = by_name.get(name)
        if topic is None:
            topic = by_name[name] = _Topic(name, _topic_id(broker, name), ErrorCode.NONE, [])
        topic.indexes.append(index)
    needs_id = context.api_version >= _FIRST_WITH_TOPIC_IDS
    return [
        topic
        for topic in by_name.values()
        if broker.authorizer.permits(context, Operation.DESCRIBE, ResourceType.TOPIC, topic.name)
        and not (needs_id and topic.topic_id == ZERO_UUID)
    ]


def _topic_id(broker: Broker, name: str) -> bytes:
    image = broker.metadata.image.topic(name)
    return ZERO_UUID if image is None else image.topic_id


def _partition(index: int, offset: FetchedOffset) -> OffsetFetchResponsePartitions:
    return OffsetFetchResponsePartitions(
        partition_index=index,
        committed_offset=offset.offset,
        committed_leader_epoch=offset.leader_epoch,
        metadata=offset.metadata,
        error_code=offset.error,
    )


def _refuse_group(group: OffsetFetchRequestGroup, error: ErrorCode) -> OffsetFetchResponseGroup:
    return OffsetFetchResponseGroup(group_id=group.group_id, error_code=error)


def _old_partition(partition: OffsetFetchResponsePartitions) -> OffsetFetchResponsePartition:
    return OffsetFetchResponsePartition(
        partition_index=partition.partition_index,
        committed_offset=partition.committed_offset,
        committed_leader_epoch=partition.committed_leader_epoch,
        metadata=partition.metadata,
        error_code=partition.error_code,
    )


def _refused(group: OffsetFetchRequestGroup, version: int, error: ErrorCode) -> OffsetFetchResponse:
    """Return the error of the one group of an old request."""
    topics = _error_topics(group, error) if version < _FIRST_WITH_GROUP_ERROR else []
    return OffsetFetchResponse(error_code=error, topics=topics)


def _error_topics(group: OffsetFetchRequestGroup, error: ErrorCode) -> list[OffsetFetchResponseTopic]:
    return [
        OffsetFetchResponseTopic(
            name=topic.name,
            partitions=[
                _old_partition(_partition(index, FetchedOffset(error=error))) for index in topic.partition_indexes
            ],
        )
        for topic in group.topics or []
    ]
