"""OffsetFetch: how far a group has read, as far as that is durable.

Versions 1-7 ask about one group, 8 and above about several. From version 2 on no topics means all of them, and errors
of the group have a field of their own; in version 1 every partition carries them. From 7 on ``require_stable``
refuses positions that an unfinished transaction may change (KIP-447). Version 9 names a member and its epoch, which
mean nothing to groups of the classic protocol. Version 10 names topics by id.
"""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from broker.dispatch import Outcome, RequestContext, handles
from broker.security.authorizer import Operation, ResourceType
from coordinator.group.offset_requests import FetchedOffset, FetchedOffsets
from coordinator.runtime import Reply
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.offset_fetch import (
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
from protocol.schema import ZERO_UUID
from protocol.topic_partition import TopicPartition

if TYPE_CHECKING:
    from broker.server import Broker

_FIRST_WITH_GROUP_ERROR = 2
_FIRST_WITH_SEVERAL_GROUPS = 8
_FIRST_WITH_TOPIC_IDS = 10

GroupAnswer = Callable[[OffsetFetchResponseGroup], None]


def refuse_offset_fetch(request: OffsetFetchRequest, version: int, error: ErrorCode) -> OffsetFetchResponse:
    """The error for every group."""
    groups = _groups(request, version)
    return _response(groups, [_refuse_group(group, error) for group in groups], version)


@handles(ApiKey.OFFSET_FETCH, versions="1-10", error_response=refuse_offset_fetch)
def handle_offset_fetch(broker: "Broker", context: RequestContext, request: OffsetFetchRequest) -> Outcome:
    version = context.api_version
    groups = _groups(request, version)
    reply: Reply[OffsetFetchResponse] = Reply()
    answers: dict[int, OffsetFetchResponseGroup] = {}

    def on_answer(index: int, answer: OffsetFetchResponseGroup) -> None:
        answers[index] = answer
        if len(answers) == len(groups):
            reply(_response(groups, [answers[position] for position in range(len(groups))], version))

    if not groups:
        return OffsetFetchResponse()
    for index, group in enumerate(groups):
        _fetch_group(broker, context, group, partial(on_answer, index), require_stable=request.require_stable)
    return reply.answer()


def _groups(request: OffsetFetchRequest, version: int) -> list[OffsetFetchRequestGroup]:
    """One form for all versions."""
    if version >= _FIRST_WITH_SEVERAL_GROUPS:
        return request.groups
    topics = None
    if request.topics is not None:
        topics = [
            OffsetFetchRequestTopics(name=topic.name, partition_indexes=topic.partition_indexes)
            for topic in request.topics
        ]
    return [OffsetFetchRequestGroup(group_id=request.group_id, topics=topics)]


class _Topic(NamedTuple):
    """A topic that was asked for, under the name that its id stands for, and why nothing is said about it."""

    name: str
    request: OffsetFetchRequestTopics
    error: ErrorCode


def _fetch_group(
    broker: "Broker",
    context: RequestContext,
    group: OffsetFetchRequestGroup,
    answer: GroupAnswer,
    *,
    require_stable: bool,
) -> None:
    group_id = group.group_id
    if not broker.authorizer.authorize(context, Operation.DESCRIBE, ResourceType.GROUP, group_id):
        answer(_refuse_group(group, ErrorCode.GROUP_AUTHORIZATION_FAILED))
    elif group.topics is None:
        broker.group_coordinator.fetch_offsets(
            group_id,
            None,
            lambda fetched: answer(_all_topics(broker, context, group, fetched)),
            require_stable=require_stable,
        )
    else:
        topics = [_judge_topic(broker, context, topic) for topic in group.topics]
        broker.group_coordinator.fetch_offsets(
            group_id,
            [
                (TopicPartition(topic.name, index), topic.request.topic_id)
                for topic in topics
                for index in topic.request.partition_indexes
                if topic.error is ErrorCode.NONE
            ],
            lambda fetched: answer(_asked_topics(group, topics, fetched)),
            require_stable=require_stable,
        )


def _judge_topic(broker: "Broker", context: RequestContext, topic: OffsetFetchRequestTopics) -> _Topic:
    name, error = topic.name, ErrorCode.NONE
    if context.api_version >= _FIRST_WITH_TOPIC_IDS:
        image = broker.metadata.image.topic_by_id(topic.topic_id)
        if image is None:
            return _Topic(name, topic, ErrorCode.UNKNOWN_TOPIC_ID)
        name = image.name
    if not broker.authorizer.authorize(context, Operation.DESCRIBE, ResourceType.TOPIC, name):
        error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return _Topic(name, topic, error)


def _asked_topics(
    group: OffsetFetchRequestGroup, topics: list[_Topic], fetched: FetchedOffsets | ErrorCode
) -> OffsetFetchResponseGroup:
    if isinstance(fetched, ErrorCode):
        return _refuse_group(group, fetched)
    return OffsetFetchResponseGroup(
        group_id=group.group_id,
        topics=[
            OffsetFetchResponseTopics(
                name=topic.name,
                topic_id=topic.request.topic_id,
                partitions=[
                    _partition(
                        index, fetched.get(TopicPartition(topic.name, index)) or FetchedOffset(error=topic.error)
                    )
                    for index in topic.request.partition_indexes
                ],
            )
            for topic in topics
        ],
    )


def _all_topics(
    broker: "Broker", context: RequestContext, group: OffsetFetchRequestGroup, fetched: FetchedOffsets | ErrorCode
) -> OffsetFetchResponseGroup:
    """Topics that the client may see; where they are named by id, those that have one."""
    if isinstance(fetched, ErrorCode):
        return _refuse_group(group, fetched)
    by_name: dict[str, OffsetFetchResponseTopics] = {}
    for partition, offset in fetched.items():
        topic = by_name.get(partition.topic)
        if topic is None:
            topic = by_name[partition.topic] = OffsetFetchResponseTopics(
                name=partition.topic, topic_id=_topic_id(broker, partition.topic)
            )
        topic.partitions.append(_partition(partition.partition, offset))
    needs_id = context.api_version >= _FIRST_WITH_TOPIC_IDS
    topics = [
        topic
        for topic in by_name.values()
        if broker.authorizer.authorize(context, Operation.DESCRIBE, ResourceType.TOPIC, topic.name)
        and not (needs_id and topic.topic_id == ZERO_UUID)
    ]
    return OffsetFetchResponseGroup(group_id=group.group_id, topics=topics)


def _topic_id(broker: "Broker", name: str) -> bytes:
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


def _response(
    groups: list[OffsetFetchRequestGroup], answers: list[OffsetFetchResponseGroup], version: int
) -> OffsetFetchResponse:
    if version >= _FIRST_WITH_SEVERAL_GROUPS:
        return OffsetFetchResponse(groups=answers)
    group, answer = groups[0], answers[0]
    topics = answer.topics
    if answer.error_code != ErrorCode.NONE and version < _FIRST_WITH_GROUP_ERROR:
        topics = _error_topics(group, ErrorCode(answer.error_code))
    return OffsetFetchResponse(
        error_code=answer.error_code,
        topics=[
            OffsetFetchResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetFetchResponsePartition(
                        partition_index=partition.partition_index,
                        committed_offset=partition.committed_offset,
                        committed_leader_epoch=partition.committed_leader_epoch,
                        metadata=partition.metadata,
                        error_code=partition.error_code,
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in topics
        ],
    )


def _error_topics(group: OffsetFetchRequestGroup, error: ErrorCode) -> list[OffsetFetchResponseTopics]:
    return [
        OffsetFetchResponseTopics(
            name=topic.name,
            partitions=[_partition(index, FetchedOffset(error=error)) for index in topic.partition_indexes],
        )
        for topic in group.topics or []
    ]
