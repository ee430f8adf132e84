"""OffsetCommit: store how far a group has read. The response is sent when the offsets topic has made it durable.

Versions 2-4 may bring their own retention, 6 a leader epoch, 7 a static member's name. From version 9 on a group that
does not exist is GROUP_ID_NOT_FOUND; before, it is ILLEGAL_GENERATION. Version 10 names topics by id.
"""

import asyncio
from functools import partial
from typing import Final

from oncelog.broker.dispatch.api_handler import Outcome, handles
from oncelog.broker.dispatch.request import RequestContext
from oncelog.broker.dispatch.sliced_work import Steps, in_slices, new_budget
from oncelog.broker.parts import Broker
from oncelog.broker.security.authorizer import Operation, ResourceType
from oncelog.coordinator.controller.cluster_image import TopicImage
from oncelog.coordinator.group.large_commit import LargeCommit
from oncelog.coordinator.group.offset_requests import MANY_OFFSETS, Committer, OffsetToCommit, PartitionErrors
from oncelog.coordinator.promise import Promise
from oncelog.protocol.api_keys import ApiKey
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from oncelog.protocol.records.record_walk import WorkBudget
from oncelog.protocol.topic_partition import TopicPartition

_FIRST_WITH_UNKNOWN_GROUPS = 9
_FIRST_WITH_TOPIC_IDS = 10
_UNITS_PER_TOPIC: Final = 5
_UNITS_PER_RESPONSE: Final = 2


def refuse_offset_commit(request: OffsetCommitRequest, version: int, error: ErrorCode) -> OffsetCommitResponse:
    """Return the error for every partition."""
    return _response([_TopicCommit(topic, topic.name, error) for topic in request.topics], {})


@handles(ApiKey.OFFSET_COMMIT, versions="2-10", error_response=refuse_offset_commit)
def handle_offset_commit(broker: Broker, context: RequestContext, request: OffsetCommitRequest) -> Outcome:
    version = context.api_version
    if sum([len(topic.partitions) for topic in request.topics], len(request.topics)) > MANY_OFFSETS:
        return _commit_in_slices(broker, context, request)
    if not broker.authorizer.authorize(context, Operation.READ, ResourceType.GROUP, request.group_id):
        return refuse_offset_commit(request, version, ErrorCode.GROUP_AUTHORIZATION_FAILED)
    topics = [_judge_topic(broker, context, topic) for topic in request.topics]
    offsets = [topic.offset(partition) for topic in topics for partition in topic.known_partitions()]
    if not offsets:
        return _response(topics, {})
    reply: Promise[OffsetCommitResponse] = Promise()
    broker.group_coordinator.commit_offsets(
        _committer(request, version),
        offsets,
        lambda errors: reply.complete(_response(topics, errors)),
        retention_ms=request.retention_time_ms,
    )
    return reply.result()


def _committer(request: OffsetCommitRequest, version: int) -> Committer:
    knows_unknown_groups = version >= _FIRST_WITH_UNKNOWN_GROUPS
    return Committer(
        request.group_id,
        request.member_id,
        request.group_instance_id,
        request.generation_id_or_member_epoch,
        unknown_group=ErrorCode.GROUP_ID_NOT_FOUND if knows_unknown_groups else ErrorCode.ILLEGAL_GENERATION,
    )


async def _commit_in_slices(
    broker: Broker, context: RequestContext, request: OffsetCommitRequest
) -> OffsetCommitResponse:
    """Look at the request and make its records in slices, commit all in one step, and respond in slices."""
    budget, work = new_budget(), broker.sliced_work
    steps = _topics_of_large(broker, context, request, budget)
    topics, made = await work.run(steps, budget, context.connection, needs_place=False)
    errors: PartitionErrors = {}
    if made is not None:
        reply: Promise[PartitionErrors] = Promise()
        broker.group_coordinator.commit_at_once(_committer(request, context.api_version), made, reply.complete)
        result = reply.result()
        errors = await result if isinstance(result, asyncio.Future) else result
    response = _response_in_slices(topics, errors, budget)
    return await work.run(response, budget, context.connection, needs_place=False)


def _topics_of_large(
    broker: Broker, context: RequestContext, request: OffsetCommitRequest, budget: WorkBudget
) -> Steps[tuple[list["_TopicCommit"], LargeCommit | None]]:
    """Return the topics, and what is to be committed of them, if anything may be."""
    made = broker.group_coordinator.begin_commit(request.group_id, retention_ms=request.retention_time_ms)
    if not broker.authorizer.authorize(context, Operation.READ, ResourceType.GROUP, request.group_id):
        made = ErrorCode.GROUP_AUTHORIZATION_FAILED

    def judge(topic: OffsetCommitRequestTopic) -> _TopicCommit:
        if made is ErrorCode.GROUP_AUTHORIZATION_FAILED:
            return _TopicCommit(topic, topic.name, made)
        judged = _judge_topic(broker, context, topic)
        if isinstance(made, ErrorCode):
            judged.error = judged.error or made
        return judged

    topics = yield from in_slices(request.topics, judge, budget, _UNITS_PER_TOPIC)
    if isinstance(made, ErrorCode):
        return topics, None
    offsets: list[OffsetToCommit] = []
    for topic in topics:
        offsets += yield from in_slices(topic.known_partitions(), topic.offset, budget, 1)
    if not offsets:
        return topics, None
    yield from made.encode(offsets, budget)
    return topics, made


def _response_in_slices(
    topics: list["_TopicCommit"], errors: PartitionErrors, budget: WorkBudget
) -> Steps[OffsetCommitResponse]:
    response = OffsetCommitResponse()
    for topic in topics:
        topic_response = OffsetCommitResponseTopic(name=topic.name, topic_id=topic.request.topic_id)
        shape = partial(topic.response, errors)
        topic_response.partitions = yield from in_slices(topic.request.partitions, shape, budget, _UNITS_PER_RESPONSE)
        response.topics.append(topic_response)
    return response


class _TopicCommit:
    """One topic of the request, under the name that its id stands for, and why none of it may be committed."""

    __slots__ = ("error", "image", "name", "request")

    def __init__(
        self, request: OffsetCommitRequestTopic, name: str, error: ErrorCode, image: TopicImage | None = None
    ) -> None:
        self.request = request
        self.name = name
        self.error = error
        self.image = image

    def known_partitions(self) -> list[OffsetCommitRequestPartition]:
        """Return what the coordinator can commit: partitions that exist."""
        if self.error is not ErrorCode.NONE or self.image is None:
            return []
        known = self.image.partitions
        return [partition for partition in self.request.partitions if partition.partition_index in known]

    def offset(self, partition: OffsetCommitRequestPartition) -> OffsetToCommit:
        assert self.image is not None, "the partition exists"
        return OffsetToCommit(
            TopicPartition(self.name, partition.partition_index),
            partition.committed_offset,
            partition.committed_leader_epoch,
            partition.committed_metadata or "",
            self.image.topic_id,
        )

    def response(
        self, errors: PartitionErrors, partition: OffsetCommitRequestPartition
    ) -> OffsetCommitResponsePartition:
        error = self.error
        if error is ErrorCode.NONE:
            named = TopicPartition(self.name, partition.partition_index)
            error = errors.get(named, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return OffsetCommitResponsePartition(partition_index=partition.partition_index, error_code=error)


def _judge_topic(broker: Broker, context: RequestContext, topic: OffsetCommitRequestTopic) -> _TopicCommit:
    by_id = context.api_version >= _FIRST_WITH_TOPIC_IDS
    image = broker.metadata.image.topic_by_id(topic.topic_id) if by_id else broker.metadata.image.topic(topic.name)
    name = image.name if image is not None else topic.name
    error = ErrorCode.NONE
    if by_id and image is None:
        error = ErrorCode.UNKNOWN_TOPIC_ID
    elif not broker.authorizer.authorize(context, Operation.READ, ResourceType.TOPIC, name):
        error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    elif image is None:
        error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return _TopicCommit(topic, name, error, image)


def _response(topics: list[_TopicCommit], errors: PartitionErrors) -> OffsetCommitResponse:
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.request.topic_id,
                partitions=[topic.response(errors, partition) for partition in topic.request.partitions],
            )
            for topic in topics
        ]
    )
