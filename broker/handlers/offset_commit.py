"""OffsetCommit: remember how far a group has read. Answered when that is as durable as the offsets topic makes it.

Versions 2-4 may bring their own retention, 6 a leader epoch, 7 a static member's name. From version 9 on a member of a
group that does not exist is told so; before, that its generation is not the group's. Version 10 names topics by id.
"""

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from broker.dispatch import Outcome, RequestContext, handles
from broker.security.authorizer import Operation, ResourceType
from broker.sliced_work import new_budget
from coordinator.controller.cluster_image import TopicImage
from coordinator.group.offset_requests import (
    MANY_OFFSETS,
    Committer,
    EncodedCommit,
    OffsetToCommit,
    OnPartitionErrors,
    PartitionErrors,
)
from coordinator.runtime import Reply
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from protocol.topic_partition import TopicPartition

if TYPE_CHECKING:
    from broker.server import Broker

_FIRST_WITH_UNKNOWN_GROUPS = 9
_FIRST_WITH_TOPIC_IDS = 10


def refuse_offset_commit(request: OffsetCommitRequest, version: int, error: ErrorCode) -> OffsetCommitResponse:
    """The error for every partition."""
    return _response([_TopicCommit(topic, topic.name, error) for topic in request.topics], {})


@handles(ApiKey.OFFSET_COMMIT, versions="2-10", error_response=refuse_offset_commit)
def handle_offset_commit(broker: "Broker", context: RequestContext, request: OffsetCommitRequest) -> Outcome:
    version = context.api_version
    if not broker.authorizer.authorize(context, Operation.READ, ResourceType.GROUP, request.group_id):
        return refuse_offset_commit(request, version, ErrorCode.GROUP_AUTHORIZATION_FAILED)
    topics = [_judge_topic(broker, context, topic) for topic in request.topics]
    offsets = [offset for topic in topics for offset in topic.offsets()]
    if not offsets:
        return _response(topics, {})
    if len(offsets) > MANY_OFFSETS:
        return _commit_in_slices(broker, context, request, topics, offsets)
    reply: Reply[OffsetCommitResponse] = Reply()
    _commit(broker, version, request, offsets, lambda errors: reply(_response(topics, errors)))
    return reply.answer()


def _commit(
    broker: "Broker",
    version: int,
    request: OffsetCommitRequest,
    offsets: Sequence[OffsetToCommit],
    reply: OnPartitionErrors,
    encoded: EncodedCommit | None = None,
) -> None:
    committer = Committer(
        request.group_id, request.member_id, request.group_instance_id, request.generation_id_or_member_epoch
    )
    can_say_unknown = version >= _FIRST_WITH_UNKNOWN_GROUPS
    broker.group_coordinator.commit_offsets(
        committer,
        offsets,
        reply,
        retention_ms=request.retention_time_ms,
        unknown_group=ErrorCode.GROUP_ID_NOT_FOUND if can_say_unknown else ErrorCode.ILLEGAL_GENERATION,
        encoded=encoded,
    )


async def _commit_in_slices(
    broker: "Broker",
    context: RequestContext,
    request: OffsetCommitRequest,
    topics: list["_TopicCommit"],
    offsets: Sequence[OffsetToCommit],
) -> OffsetCommitResponse:
    """Encode the records in slices, commit them all in one step, and respond in another turn of the loop."""
    budget, reply = new_budget(), Reply[PartitionErrors]()
    steps = broker.group_coordinator.encode_commit(
        request.group_id, offsets, budget, retention_ms=request.retention_time_ms
    )
    encoded = await broker.sliced_work.run(steps, budget, context.connection, needs_place=False)
    _commit(broker, context.api_version, request, offsets, reply, encoded)
    answer = reply.answer()
    errors = await answer if isinstance(answer, asyncio.Future) else answer
    await asyncio.sleep(0)
    return _response(topics, errors)


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

    def offsets(self) -> list[OffsetToCommit]:
        """What the coordinator is asked to commit: partitions that exist."""
        image = self.image
        if self.error is not ErrorCode.NONE or image is None:
            return []
        return [
            OffsetToCommit(
                TopicPartition(self.name, partition.partition_index),
                partition.committed_offset,
                partition.committed_leader_epoch,
                partition.committed_metadata or "",
                image.topic_id,
            )
            for partition in self.request.partitions
            if partition.partition_index in image.partitions
        ]

    def partition_error(self, index: int, errors: PartitionErrors) -> ErrorCode:
        if self.error is not ErrorCode.NONE:
            return self.error
        return errors.get(TopicPartition(self.name, index), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def _judge_topic(broker: "Broker", context: RequestContext, topic: OffsetCommitRequestTopic) -> _TopicCommit:
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
                partitions=[
                    OffsetCommitResponsePartition(
                        partition_index=partition.partition_index,
                        error_code=topic.partition_error(partition.partition_index, errors),
                    )
                    for partition in topic.request.partitions
                ],
            )
            for topic in topics
        ]
    )
