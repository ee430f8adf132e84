"""Metadata (API key 3): brokers, topics, and who leads what; and the creation of requested topics.

A request for a topic that does not exist creates it, unless the client (version 4) or ``auto.create.topics.enable``
forbids it. Kafka returns UNKNOWN_TOPIC_OR_PARTITION then, and the client retries; here the response waits for the new
topic, for a bounded time, which saves every first produce a back-off.

A broker that has just joined a cluster responds when it has received the cluster's metadata from a controller. In
Kafka it responds at once, with empty metadata.

A response of many topics is made in slices, of one image of the cluster.

Addresses are those of the listener by which the client came. A partition whose leader is not alive is
LEADER_NOT_AVAILABLE; one whose leader lacks the listener is LISTENER_NOT_FOUND (LEADER_NOT_AVAILABLE below version 6).

Versions: 0 takes an empty list for "all topics", where later ones take null; it leaves dead brokers out of the replicas
and returns REPLICA_NOT_AVAILABLE then. 1 adds racks, the controller and ``is_internal``; 2 the cluster id; 4
``allow_auto_topic_creation``; 5 offline replicas; 7 leader epochs; 8 authorized operations (those of the cluster until
10 only); 9 is flexible; 10 returns topic ids, 12 takes them instead of names; 13 has a top-level error.
"""

import asyncio
from collections.abc import Coroutine, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

from oncelog.broker.dispatch.api_handler import Outcome, handles
from oncelog.broker.dispatch.request import RequestContext
from oncelog.broker.dispatch.sliced_work import Steps, in_slices, new_budget
from oncelog.broker.parts import Broker
from oncelog.broker.security.authorizer import CLUSTER_NAME, Operation, ResourceType, authorized_operations
from oncelog.coordinator.controller.cluster_image import ClusterImage, PartitionImage, TopicImage
from oncelog.protocol import topic_name
from oncelog.protocol.api_keys import ApiKey
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.internal.topics import INTERNAL_TOPICS
from oncelog.protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from oncelog.protocol.records.record_walk import WorkBudget
from oncelog.protocol.schema import ZERO_UUID

_FIRST_METADATA_SECONDS: Final = 10.0
_NO_LEADER: Final = -1
_UNITS_PER_TOPIC: Final = 8
_UNITS_PER_PARTITION: Final = 4
_UNITS_PER_CREATION: Final = 10
"""To judge whether a topic may be created."""
_FIRST_VERSION_WITH_NULL_FOR_ALL: Final = 1
_FIRST_VERSION_WITH_LISTENER_NOT_FOUND: Final = 6
_CLUSTER_OPERATIONS_VERSIONS: Final = range(8, 11)
_FIRST_VERSION_WITH_TOPIC_IDS: Final = 12


def error_response(request: MetadataRequest, version: int, error: ErrorCode) -> MetadataResponse:
    topics = [
        MetadataResponseTopic(error_code=error, name=topic.name or "", topic_id=topic.topic_id)
        for topic in request.topics or ()
    ]
    return MetadataResponse(topics=topics, error_code=error)


@handles(ApiKey.METADATA, versions="0-13", error_response=error_response)
def handle_metadata(broker: Broker, context: RequestContext, request: MetadataRequest) -> Outcome:
    error = _refusal(context, request)
    if error:
        return error_response(request, context.api_version, error)
    if not broker.metadata_received.done():
        return _respond_when_informed(broker, context, request)
    names = _to_create(broker, request)
    if names:
        return _create_and_respond(broker, context, request, names)
    return _ResponseBuilder(broker, context, request).start({})


async def _respond_when_informed(broker: Broker, context: RequestContext, request: MetadataRequest) -> MetadataResponse:
    """Respond once this broker has received the cluster's metadata.

    Before, every topic is unknown, and clients cache that: librdkafka for minutes.
    """
    await asyncio.wait([broker.metadata_received], timeout=_FIRST_METADATA_SECONDS)
    return await _create_and_respond(broker, context, request, _to_create(broker, request))


def _refusal(context: RequestContext, request: MetadataRequest) -> ErrorCode:
    """Refuse topic ids in versions 10 and 11, which have the form for them, but do not serve it."""
    if context.api_version < _FIRST_VERSION_WITH_TOPIC_IDS:
        if any(topic.name is None or topic.topic_id != ZERO_UUID for topic in request.topics or ()):
            return ErrorCode.INVALID_REQUEST
    return ErrorCode.NONE


def _to_create(broker: Broker, request: MetadataRequest) -> list[str]:
    """Return the topics that are requested by name, and do not exist, if such topics are to be created."""
    if not request.topics or not request.allow_auto_topic_creation or not broker.config.auto_create_topics_enable:
        return []
    existing = broker.metadata.image.topics
    names = dict.fromkeys(
        topic.name for topic in request.topics if topic.name is not None and topic.topic_id == ZERO_UUID
    )
    return [name for name in names if name not in existing]


def _why_not_create(broker: Broker, context: RequestContext, name: str) -> ErrorCode:
    if topic_name.why_invalid(name) is not None or name == topic_name.CLUSTER_METADATA_TOPIC_NAME:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    authorizer = broker.authorizer
    may_create = authorizer.permits(context, Operation.DESCRIBE, ResourceType.TOPIC, name) and (
        authorizer.permits(context, Operation.CREATE, ResourceType.CLUSTER, CLUSTER_NAME)
        or authorizer.authorize(context, Operation.CREATE, ResourceType.TOPIC, name)
    )
    return ErrorCode.NONE if may_create else ErrorCode.TOPIC_AUTHORIZATION_FAILED


async def _create_and_respond(
    broker: Broker, context: RequestContext, request: MetadataRequest, names: Sequence[str]
) -> MetadataResponse:
    budget = new_budget()
    judged = in_slices(names, partial(_why_not_create, broker, context), budget, _UNITS_PER_CREATION)
    refusals = await broker.sliced_work.finish(judged, budget, context.connection)
    errors = dict(zip(names, refusals, strict=True))
    allowed = [name for name, error in errors.items() if not error]
    if allowed:
        errors |= await broker.auto_topics.create(allowed, broker.quotas.mutations(context, is_strict=True))
    response = _ResponseBuilder(broker, context, request).start(errors)
    return response if isinstance(response, MetadataResponse) else await response


class _ResponseBuilder:
    """Builds one response from one image of the cluster."""

    def __init__(self, broker: Broker, context: RequestContext, request: MetadataRequest) -> None:
        self._broker = broker
        self._context = context
        self._request = request
        self._image: ClusterImage = broker.metadata.image
        self._listener = context.connection.listener_name
        self._version = context.api_version

    def start(
        self, creation_errors: Mapping[str, ErrorCode]
    ) -> MetadataResponse | Coroutine[Any, Any, MetadataResponse]:
        """Return the response, or a coroutine that goes on with it in slices: there may be many topics."""
        budget = new_budget()
        steps = self._build(creation_errors, budget)
        return self._broker.sliced_work.start(steps, budget, self._context.connection, needs_place=False)

    def _build(self, creation_errors: Mapping[str, ErrorCode], budget: WorkBudget) -> Steps[MetadataResponse]:
        image = self._image
        topics: list[MetadataResponseTopic] = []
        for topic in self._topics(creation_errors):
            budget.left -= _UNITS_PER_TOPIC
            if topic is not None:
                topics.append(topic)
                budget.left -= _UNITS_PER_PARTITION * len(topic.partitions)
            if budget.left <= 0:
                yield None
        return MetadataResponse(
            brokers=self._brokers(),
            cluster_id=self._broker.cluster_id,
            controller_id=image.controller_id if image.controller_id in image.brokers else -1,
            topics=topics,
            cluster_authorized_operations=self._cluster_operations(),
        )

    def _brokers(self) -> list[MetadataResponseBroker]:
        return [
            MetadataResponseBroker(node_id=broker.id, host=endpoint.host, port=endpoint.port, rack=broker.rack)
            for _, broker in sorted(self._image.brokers.items())
            if (endpoint := broker.endpoint(self._listener)) is not None
        ]

    def _cluster_operations(self) -> int:
        default = MetadataResponse().cluster_authorized_operations
        if self._version not in _CLUSTER_OPERATIONS_VERSIONS:
            return default
        if not self._request.include_cluster_authorized_operations:
            return default
        authorizer, context = self._broker.authorizer, self._context
        if not authorizer.permits(context, Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME):
            return 0
        return authorized_operations(authorizer, context, ResourceType.CLUSTER, CLUSTER_NAME)

    def _topics(self, creation_errors: Mapping[str, ErrorCode]) -> Iterator[MetadataResponseTopic | None]:
        """Return each topic of the response, and None for each that the client must not see."""
        requested = self._request.topics
        if requested is None or (not requested and self._version < _FIRST_VERSION_WITH_NULL_FOR_ALL):
            return map(self._known_if_allowed, self._image.topics.values())
        ids = [topic.topic_id for topic in requested if topic.topic_id != ZERO_UUID]
        if ids:
            return (self._by_id(topic_id) for topic_id in dict.fromkeys(ids))
        names = dict.fromkeys(topic.name for topic in requested if topic.name is not None)
        return (self._by_name(name, creation_errors) for name in names)

    def _known_if_allowed(self, topic: TopicImage) -> MetadataResponseTopic | None:
        allowed = self._broker.authorizer.permits(self._context, Operation.DESCRIBE, ResourceType.TOPIC, topic.name)
        return self._known(topic) if allowed else None

    def _may_describe(self, name: str) -> bool:
        return self._broker.authorizer.authorize(self._context, Operation.DESCRIBE, ResourceType.TOPIC, name)

    def _by_id(self, topic_id: bytes) -> MetadataResponseTopic:
        topic = self._image.topic_by_id(topic_id)
        if topic is None:
            return MetadataResponseTopic(error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=topic_id)
        if not self._may_describe(topic.name):
            return MetadataResponseTopic(error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, name=None, topic_id=topic_id)
        return self._known(topic)

    def _by_name(self, name: str, creation_errors: Mapping[str, ErrorCode]) -> MetadataResponseTopic:
        if not self._may_describe(name):
            return MetadataResponseTopic(error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, name=name)
        topic = self._image.topic(name)
        if topic is not None:
            return self._known(topic)
        error = creation_errors.get(name) or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if topic_name.why_invalid(name) is not None:
            error = ErrorCode.INVALID_TOPIC_EXCEPTION
        response = MetadataResponseTopic(error_code=error, name=name, is_internal=name in INTERNAL_TOPICS)
        if error is not ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            self._add_operations(response, name)
        return response

    def _known(self, topic: TopicImage) -> MetadataResponseTopic:
        response = MetadataResponseTopic(
            name=topic.name,
            topic_id=topic.topic_id,
            is_internal=topic.is_internal,
            partitions=[self._partition(index, partition) for index, partition in topic.partitions.items()],
        )
        self._add_operations(response, topic.name)
        return response

    def _add_operations(self, topic: MetadataResponseTopic, name: str) -> None:
        if self._request.include_topic_authorized_operations:
            topic.topic_authorized_operations = authorized_operations(
                self._broker.authorizer, self._context, ResourceType.TOPIC, name
            )

    def _partition(self, index: int, partition: PartitionImage) -> MetadataResponsePartition:
        replicas, isr = list(partition.replicas), list(partition.isr)
        error, leader = self._leader(partition)
        if self._version == 0:
            reachable, in_sync = self._reachable(replicas), self._reachable(isr)
            if not error and (len(reachable) < len(replicas) or len(in_sync) < len(isr)):
                error = ErrorCode.REPLICA_NOT_AVAILABLE
            replicas, isr = reachable, in_sync
        return MetadataResponsePartition(
            error_code=error,
            partition_index=index,
            leader_id=leader,
            leader_epoch=partition.leader_epoch,
            replica_nodes=replicas,
            isr_nodes=isr,
            offline_replicas=list(partition.offline_replicas),
        )

    def _leader(self, partition: PartitionImage) -> tuple[ErrorCode, int]:
        if self._image.endpoint(partition.leader, self._listener) is not None:
            return ErrorCode.NONE, partition.leader
        if partition.leader in self._image.brokers and self._version >= _FIRST_VERSION_WITH_LISTENER_NOT_FOUND:
            return ErrorCode.LISTENER_NOT_FOUND, _NO_LEADER
        return ErrorCode.LEADER_NOT_AVAILABLE, _NO_LEADER

    def _reachable(self, broker_ids: Iterable[int]) -> list[int]:
        return [id_ for id_ in broker_ids if self._image.endpoint(id_, self._listener) is not None]
