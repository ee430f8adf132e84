"""DescribeTopicPartitions (API key 75): topics in detail, in pages (KIP-966).

Topics come in the order of their names, at most ``response_partition_limit`` partitions at a time; ``next_cursor`` is
where the next page begins. An empty list means all topics. Version 0 is the only one. Without eligible leader replicas
their lists are empty: null, though allowed, crashes Java's admin client. While a partition waits for an eligible
replica its ISR is empty, as in Kafka, although the stored ISR never is. The last known ones are those that are known to
be broken, behind the last leader of a partition that has none. A tagged field of our own says what a partition without
a leader waits for.
"""

from collections.abc import Collection, Iterator
from typing import Final

from oncelog.broker.dispatch.api_handler import Outcome, handles
from oncelog.broker.dispatch.request import RequestContext
from oncelog.broker.dispatch.sliced_work import Steps, in_slices, new_budget
from oncelog.broker.parts import Broker
from oncelog.broker.security.authorizer import Operation, ResourceType, authorized_operations
from oncelog.coordinator.controller.cluster_image import ClusterImage, PartitionImage, TopicImage
from oncelog.protocol import topic_name
from oncelog.protocol.api_keys import ApiKey
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.internal.topics import INTERNAL_TOPICS
from oncelog.protocol.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
    PartitionRecovery,
    RecoveryLogEnd,
)
from oncelog.protocol.records.record_walk import WorkBudget

_UNITS_PER_TOPIC: Final = 15
_UNITS_PER_DECISION: Final = 5


def error_response(
    request: DescribeTopicPartitionsRequest, version: int, error: ErrorCode
) -> DescribeTopicPartitionsResponse:
    topics = [DescribeTopicPartitionsResponseTopic(error_code=error, name=topic.name) for topic in request.topics]
    return DescribeTopicPartitionsResponse(topics=topics)


@handles(ApiKey.DESCRIBE_TOPIC_PARTITIONS, versions="0", error_response=error_response)
def handle_describe_topic_partitions(
    broker: Broker, context: RequestContext, request: DescribeTopicPartitionsRequest
) -> Outcome:
    image = broker.metadata.image
    all_topics = not request.topics
    requested = image.topics.keys() if all_topics else {topic.name for topic in request.topics}
    cursor = request.cursor or Cursor()
    if request.cursor is not None and (
        cursor.partition_index < 0 or (not all_topics and cursor.topic_name not in requested)
    ):
        return error_response(request, context.api_version, ErrorCode.INVALID_REQUEST)
    budget = new_budget()
    steps = _describe(broker, context, request, requested, budget)
    return broker.sliced_work.start(steps, budget, context.connection, needs_place=False)


def _describe(
    broker: Broker,
    context: RequestContext,
    request: DescribeTopicPartitionsRequest,
    requested: Collection[str],
    budget: WorkBudget,
) -> Steps[DescribeTopicPartitionsResponse]:
    image, cursor, all_topics = broker.metadata.image, request.cursor or Cursor(), not request.topics
    decide = broker.authorizer.permits if all_topics else broker.authorizer.authorize
    allowed: list[str] = []
    denied: list[str] = []
    for name in sorted(name for name in requested if name >= cursor.topic_name):
        may_describe = decide(context, Operation.DESCRIBE, ResourceType.TOPIC, name)
        (allowed if may_describe else denied).append(name)
        budget.left -= _UNITS_PER_DECISION
        if budget.left <= 0:
            yield None
    limit = max(min(broker.config.max_request_partition_size_limit, request.response_partition_limit), 1)
    page = _Page(image, context, cursor, limit, includes_unknown=not all_topics)
    response = yield from page.fill(allowed, budget)
    for topic in response.topics:
        topic.topic_authorized_operations = authorized_operations(
            broker.authorizer, context, ResourceType.TOPIC, topic.name or ""
        )
        budget.left -= _UNITS_PER_TOPIC
        if budget.left <= 0:
            yield None
    if not all_topics:
        response.topics += yield from in_slices(denied, _denied, budget, _UNITS_PER_DECISION)
    return response


def _denied(name: str) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, name=name)


class _Page:
    """One response while it is filled."""

    def __init__(
        self, image: ClusterImage, context: RequestContext, cursor: Cursor, limit: int, *, includes_unknown: bool
    ) -> None:
        self._image = image
        self._listener = context.connection.listener_name
        self._cursor = cursor
        self._room = limit
        self._includes_unknown = includes_unknown

    def fill(self, names: list[str], budget: WorkBudget) -> Steps[DescribeTopicPartitionsResponse]:
        response = DescribeTopicPartitionsResponse()
        for name in names:
            budget.left -= _UNITS_PER_TOPIC
            if budget.left <= 0:
                yield None
            if not self._room:
                response.next_cursor = Cursor(topic_name=name, partition_index=0)
                break
            topic = self._image.topic(name)
            if topic is not None:
                rest = self._add(response, topic)
                if rest is not None:
                    response.next_cursor = Cursor(topic_name=name, partition_index=rest)
                    break
            elif self._includes_unknown:
                response.topics.append(_unknown(name))
        return response

    def _add(self, response: DescribeTopicPartitionsResponse, topic: TopicImage) -> int | None:
        """Add what fits of a topic; returns the partition that does not."""
        first = self._cursor.partition_index if topic.name == self._cursor.topic_name else 0
        indexes = [index for index in topic.partitions if index >= first]
        included, rest = indexes[: self._room], indexes[self._room :]
        self._room -= len(included)
        response.topics.append(
            DescribeTopicPartitionsResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                is_internal=topic.is_internal,
                partitions=list(self._partitions(topic, included)),
            )
        )
        return rest[0] if rest else None

    def _partitions(self, topic: TopicImage, indexes: list[int]) -> Iterator[DescribeTopicPartitionsResponsePartition]:
        for index in indexes:
            partition = topic.partitions[index]
            error = self._error(partition)
            yield DescribeTopicPartitionsResponsePartition(
                error_code=error,
                partition_index=index,
                leader_id=-1 if error else partition.leader,
                leader_epoch=partition.leader_epoch,
                replica_nodes=list(partition.replicas),
                isr_nodes=[] if partition.recovery else list(partition.isr),
                eligible_leader_replicas=list(partition.eligible_leader_replicas),
                last_known_elr=_last_known(partition),
                offline_replicas=list(partition.offline_replicas),
                recovery=_recovery(partition),
            )

    def _error(self, partition: PartitionImage) -> ErrorCode:
        if self._image.endpoint(partition.leader, self._listener) is not None:
            return ErrorCode.NONE
        is_alive = partition.leader in self._image.brokers
        return ErrorCode.LISTENER_NOT_FOUND if is_alive else ErrorCode.LEADER_NOT_AVAILABLE


def _last_known(partition: PartitionImage) -> list[int]:
    leader = [] if partition.last_leader < 0 else [partition.last_leader]
    return [*leader, *(each for each in partition.last_known_elr if each not in leader)]


def _recovery(partition: PartitionImage) -> PartitionRecovery | None:
    waiting = partition.recovery
    if waiting is None:
        return None
    return PartitionRecovery(
        strategy=waiting.strategy,
        waits_for=waiting.waits_for,
        elects=waiting.elects,
        decides_at_ms=waiting.decides_at_ms,
        log_ends=[
            RecoveryLogEnd(broker_id=end.broker_id, leader_epoch=end.leader_epoch, offset=end.offset)
            for end in waiting.log_ends
        ],
    )


def _unknown(name: str) -> DescribeTopicPartitionsResponseTopic:
    is_valid = topic_name.why_invalid(name) is None
    error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if is_valid else ErrorCode.INVALID_TOPIC_EXCEPTION
    return DescribeTopicPartitionsResponseTopic(error_code=error, name=name, is_internal=name in INTERNAL_TOPICS)
