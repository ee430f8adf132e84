"""OffsetDelete: forget committed offsets of a group, except for topics that its members subscribe to (KIP-496)."""

import asyncio
from functools import partial
from typing import Final

from oncelog.broker.dispatch.api_handler import Outcome, handles
from oncelog.broker.dispatch.request import RequestContext
from oncelog.broker.dispatch.sliced_work import Steps, in_slices, new_budget
from oncelog.broker.parts import Broker
from oncelog.broker.security.authorizer import Operation, ResourceType
from oncelog.coordinator.group.offset_requests import PartitionErrors
from oncelog.coordinator.promise import Promise
from oncelog.protocol.api_keys import ApiKey
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from oncelog.protocol.records.record_walk import WorkBudget
from oncelog.protocol.topic_partition import TopicPartition

_OFFSETS_AT_ONCE: Final = 200
_UNITS_PER_TOPIC: Final = 4
_UNITS_PER_OFFSET: Final = 10
_UNITS_PER_RESPONSE: Final = 2


@handles(ApiKey.OFFSET_DELETE, versions="0")
def handle_offset_delete(broker: Broker, context: RequestContext, request: OffsetDeleteRequest) -> Outcome:
    if not broker.authorizer.authorize(context, Operation.DELETE, ResourceType.GROUP, request.group_id):
        return OffsetDeleteResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    if sum([len(topic.partitions) for topic in request.topics], len(request.topics)) > _OFFSETS_AT_ONCE:
        return _delete_in_slices(broker, context, request)
    errors: PartitionErrors = {}
    deletable: dict[TopicPartition, None] = {}
    """Each once: one that is named again would be deleted, in the log, as often."""
    for topic in request.topics:
        judged = _Topic(broker, context, topic)
        for requested in topic.partitions:
            judged.sort(requested, deletable, errors)
    reply: Promise[OffsetDeleteResponse] = Promise()
    broker.group_coordinator.delete_offsets(
        request.group_id, list(deletable), lambda outcome: reply.complete(_response(request, errors, outcome))
    )
    return reply.result()


async def _delete_in_slices(
    broker: Broker, context: RequestContext, request: OffsetDeleteRequest
) -> OffsetDeleteResponse:
    """Delete some offsets after the others: each is deleted, or not, by itself. An error of the group ends the rest."""
    budget, work, connection = new_budget(), broker.sliced_work, context.connection
    errors: PartitionErrors = {}
    replies = await work.finish(_delete_some(broker, context, request, errors, budget), budget, connection)
    for reply in replies:
        result = reply.result()
        outcome = await result if isinstance(result, asyncio.Future) else result
        if isinstance(outcome, ErrorCode):
            return OffsetDeleteResponse(error_code=outcome)
        errors |= outcome
    response = _response_in_slices(request, errors, budget)
    return await work.run(response, budget, connection, needs_place=False)


def _delete_some(
    broker: Broker,
    context: RequestContext,
    request: OffsetDeleteRequest,
    refused: PartitionErrors,
    budget: WorkBudget,
) -> Steps[list[Promise[PartitionErrors | ErrorCode]]]:
    deletable: dict[TopicPartition, None] = {}
    for topic in request.topics:
        judged = _Topic(broker, context, topic)
        budget.left -= _UNITS_PER_TOPIC
        yield from in_slices(topic.partitions, partial(judged.sort, deletable=deletable, refused=refused), budget, 1)
    partitions = list(deletable)
    replies: list[Promise[PartitionErrors | ErrorCode]] = []
    for first in range(0, max(len(partitions), 1), _OFFSETS_AT_ONCE):
        some = partitions[first : first + _OFFSETS_AT_ONCE]
        replies.append(Promise())
        broker.group_coordinator.delete_offsets(request.group_id, some, replies[-1].complete)
        budget.left -= _UNITS_PER_OFFSET * len(some)
        if budget.left <= 0:
            yield None
    return replies


class _Topic:
    """A topic of the request, as far as the client may delete offsets of it."""

    __slots__ = ("_allowed", "_image", "_name")

    def __init__(self, broker: Broker, context: RequestContext, topic: OffsetDeleteRequestTopic) -> None:
        self._name = topic.name
        self._allowed = broker.authorizer.authorize(context, Operation.READ, ResourceType.TOPIC, topic.name)
        self._image = broker.metadata.image.topic(topic.name)

    def sort(
        self, requested: OffsetDeleteRequestPartition, deletable: dict[TopicPartition, None], refused: PartitionErrors
    ) -> None:
        """Add a partition to those whose offset is deleted or to those that are refused."""
        partition = TopicPartition(self._name, requested.partition_index)
        if not self._allowed:
            refused[partition] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        elif self._image is None or requested.partition_index not in self._image.partitions:
            refused[partition] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        else:
            deletable[partition] = None


def _response(
    request: OffsetDeleteRequest, refused: PartitionErrors, errors: PartitionErrors | ErrorCode
) -> OffsetDeleteResponse:
    """Return the response. An error of the group leaves no room for those of partitions."""
    if isinstance(errors, ErrorCode):
        return OffsetDeleteResponse(error_code=errors)
    by_partition = refused | errors
    return OffsetDeleteResponse(
        topics=[
            OffsetDeleteResponseTopic(
                name=topic.name,
                partitions=[_partition_response(topic.name, by_partition, partition) for partition in topic.partitions],
            )
            for topic in request.topics
        ]
    )


def _response_in_slices(
    request: OffsetDeleteRequest, errors: PartitionErrors, budget: WorkBudget
) -> Steps[OffsetDeleteResponse]:
    response = OffsetDeleteResponse()
    for topic in request.topics:
        topic_response, shape = (
            OffsetDeleteResponseTopic(name=topic.name),
            partial(_partition_response, topic.name, errors),
        )
        topic_response.partitions = yield from in_slices(topic.partitions, shape, budget, _UNITS_PER_RESPONSE)
        response.topics.append(topic_response)
    return response


def _partition_response(
    topic: str, errors: PartitionErrors, partition: OffsetDeleteRequestPartition
) -> OffsetDeleteResponsePartition:
    index = partition.partition_index
    return OffsetDeleteResponsePartition(partition_index=index, error_code=errors[TopicPartition(topic, index)])
