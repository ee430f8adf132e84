"""What a fetch of very many partitions cannot read, refused in slices before the rest is fetched.

A fetch visits all its partitions in one turn of the loop. How many there are that can be read the cluster decides; how
many others a request names, only its client.
"""

from collections.abc import Callable
from typing import Final

from oncelog.broker.dispatch.request import RequestContext
from oncelog.broker.dispatch.sliced_work import Steps, new_budget
from oncelog.broker.parts import Broker
from oncelog.broker.replication.fetch_reader import error_reply
from oncelog.broker.replication.replica_manager import ReplicaManager
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.fetch import FetchableTopicResponse, FetchRequest, FetchTopic
from oncelog.protocol.records.record_walk import WorkBudget

_MANY_PARTITIONS: Final = 1_000
"""To refuse so many takes some milliseconds."""
_UNITS_PER_PARTITION: Final = 5
_UNITS_PER_TOPIC: Final = 5
_FIRST_VERSION_WITH_TOPIC_IDS: Final = 13

MayRead = Callable[[str], bool]


def is_long(request: FetchRequest) -> bool:
    """Return whether a fetch, which names all its partitions, names very many."""
    topics = request.topics
    return len(topics) > _MANY_PARTITIONS or sum([len(topic.partitions) for topic in topics]) > _MANY_PARTITIONS


async def refuse_in_slices(
    broker: Broker, context: RequestContext, request: FetchRequest, may_read: MayRead | None
) -> list[FetchableTopicResponse]:
    """Take the partitions that cannot be read out of a request; return their replies."""
    budget = new_budget()
    by_id = context.api_version >= _FIRST_VERSION_WITH_TOPIC_IDS
    steps = _refuse(broker.replica_manager, request, by_id, may_read, budget)
    return await broker.sliced_work.finish(steps, budget, context.connection)


def _refuse(
    replicas: ReplicaManager, request: FetchRequest, by_id: bool, may_read: MayRead | None, budget: WorkBudget
) -> Steps[list[FetchableTopicResponse]]:
    refused: list[FetchableTopicResponse] = []
    readable: list[FetchTopic] = []
    for topic in request.topics:
        name = replicas.topic_name(topic.topic_id) if by_id else topic.topic
        error = ErrorCode.NONE
        if name is None:
            error = ErrorCode.UNKNOWN_TOPIC_ID
        elif may_read is not None and not may_read(name):
            error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        replies = FetchableTopicResponse(topic=topic.topic, topic_id=topic.topic_id)
        rest = FetchTopic(topic=topic.topic, topic_id=topic.topic_id)
        for partition in topic.partitions:
            reason = error or _why_not(replicas, name or "", partition.partition)
            if reason:
                replies.partitions.append(error_reply(partition.partition, reason))
            else:
                rest.partitions.append(partition)
            budget.left -= _UNITS_PER_PARTITION
            if budget.left <= 0:
                yield None
        if replies.partitions:
            refused.append(replies)
        if rest.partitions:
            readable.append(rest)
        budget.left -= _UNITS_PER_TOPIC
        if budget.left <= 0:
            yield None
    request.topics = readable
    return refused


def _why_not(replicas: ReplicaManager, topic: str, index: int) -> ErrorCode:
    """Return UNKNOWN_TOPIC_OR_PARTITION if that is what a partition is; any other error is the fetch's to explain."""
    found = replicas.find((topic, index))
    return found if found is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION else ErrorCode.NONE
