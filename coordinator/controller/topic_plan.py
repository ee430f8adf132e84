"""What a new topic, or more partitions of an existing one, will look like, or why there will be none.

Apache Kafka's checks and their error codes, decided on what the controller knows; nothing is changed here.
"""

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from oncelog.coordinator.controller.api_error import ApiError
from oncelog.coordinator.controller.assignment import (
    assign_replicas,
    random_start,
    start_after,
    why_invalid_assignment,
    why_not_placeable,
)
from oncelog.coordinator.controller.cluster_state import ClusterState
from oncelog.coordinator.controller.config_changes import ConfigResource, ConfigValidator, ResourceType
from oncelog.coordinator.metadata_store.znodes import ReplicaAssignment, TopicAssignment, encode_uuid
from oncelog.protocol import topic_name
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.internal.topics import GROUP_METADATA_TOPIC_NAME, INTERNAL_TOPICS, TRANSACTION_STATE_TOPIC_NAME

BROKER_DEFAULT: Final = -1
"""Asks for the broker's default number of partitions or replicas."""
MOST_PARTITIONS_PER_REQUEST: Final = 10_000
_WHAT_INTERNAL_TOPICS_PLACE: Final = {
    GROUP_METADATA_TOPIC_NAME: "holds the offsets of a group",
    TRANSACTION_STATE_TOPIC_NAME: "holds the state and epoch of a transactional id",
}


class TopicDefaults(NamedTuple):
    """What a topic gets that does not say how many partitions and replicas it wants."""

    partition_count: int = 1
    replication_factor: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTopic:
    """A topic to be created."""

    name: str
    partition_count: int = BROKER_DEFAULT
    replication_factor: int = BROKER_DEFAULT
    assignments: Sequence[tuple[int, tuple[int, ...]]] = ()
    """The replicas of each partition, if the client chose them."""
    configs: Mapping[str, str | None] = field(default_factory=dict)


class NewPartitions(NamedTuple):
    """An existing topic that shall have ``total_count`` partitions."""

    topic: str
    total_count: int
    assignments: Sequence[tuple[int, ...]] | None = None
    """The replicas of each new partition, if the client chose them."""


class TopicPlan(NamedTuple):
    """What will be written; a client that only validates gets it in the response."""

    name: str
    assignment: TopicAssignment
    configs: Mapping[str, str]

    @property
    def partition_count(self) -> int:
        return len(self.assignment.partitions)

    @property
    def replication_factor(self) -> int:
        return len(self.assignment.partitions[0].replicas)


def new_topic_id(rng: random.Random) -> bytes:
    """Return a random (version 4) UUID whose text does not begin with a hyphen, like an option of a command line."""
    while True:
        raw = bytearray(rng.randbytes(16))
        raw[6] = raw[6] & 0x0F | 0x40
        raw[8] = raw[8] & 0x3F | 0x80
        if not encode_uuid(bytes(raw)).startswith("-"):
            return bytes(raw)


def plan_topics(
    topics: Sequence[NewTopic],
    cluster: ClusterState,
    defaults: TopicDefaults,
    validator: ConfigValidator,
    rng: random.Random,
) -> Iterator[TopicPlan | ApiError]:
    """Yield how the topics of one request will be created, one after the other."""
    total = sum(_wanted_partitions(topic, defaults) for topic in topics)
    if total > MOST_PARTITIONS_PER_REQUEST:
        error = ApiError(ErrorCode.POLICY_VIOLATION, "Excessively large number of partitions per request.")
        yield from (error for _ in topics)
        return
    planned: dict[str, str] = {}
    for topic in topics:
        before = planned.get(topic_name.unified(topic.name))
        if before is not None:
            yield _collision(topic.name, before)
            continue
        plan = plan_topic(topic, cluster, defaults, validator, rng)
        if isinstance(plan, TopicPlan):
            planned[topic_name.unified(topic.name)] = topic.name
        yield plan


def _wanted_partitions(topic: NewTopic, defaults: TopicDefaults) -> int:
    if topic.assignments:
        return len(topic.assignments)
    return defaults.partition_count if topic.partition_count == BROKER_DEFAULT else max(0, topic.partition_count)


def _collision(name: str, other: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic '{name}' collides with existing topic: {other}")


def plan_topic(
    topic: NewTopic,
    cluster: ClusterState,
    defaults: TopicDefaults,
    validator: ConfigValidator,
    rng: random.Random,
) -> TopicPlan | ApiError:
    """Return how the topic will be created, or why it cannot be."""
    error = _why_not_creatable(topic, cluster)
    if error is not None:
        return error
    configs = {key: value for key, value in topic.configs.items() if value is not None}
    if len(configs) < len(topic.configs):
        nulls = ",".join(key for key, value in topic.configs.items() if value is None)
        return ApiError(ErrorCode.INVALID_CONFIG, f"Null value not supported for topic configs: {nulls}")
    error = validator.why_invalid(ConfigResource(ResourceType.TOPIC, topic.name), configs)
    if error is not None:
        return error
    replicas = _chosen_replicas(topic, cluster) if topic.assignments else _placed(topic, cluster, defaults, rng)
    if isinstance(replicas, ApiError):
        return replicas
    partitions = {index: ReplicaAssignment(replicas=chosen) for index, chosen in enumerate(replicas)}
    return TopicPlan(
        name=topic.name,
        assignment=TopicAssignment(topic_id=new_topic_id(rng), partitions=partitions),
        configs=configs,
    )


def _why_not_creatable(topic: NewTopic, cluster: ClusterState) -> ApiError | None:
    name = topic.name
    reason = topic_name.why_invalid(name)
    if reason is not None:
        return ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {reason}")
    if name == topic_name.CLUSTER_METADATA_TOPIC_NAME:
        return ApiError(ErrorCode.INVALID_REQUEST, f"Creation of internal topic {name} is prohibited.")
    if name in cluster.topics_to_delete:
        return ApiError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' is marked for deletion.")
    if name in cluster.topics:
        return ApiError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
    colliding = cluster.colliding_topic(name)
    if colliding is not None:
        return ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic '{name}' collides with existing topic: {colliding}")
    return None


def _chosen_replicas(topic: NewTopic, cluster: ClusterState) -> list[tuple[int, ...]] | ApiError:
    for what, given in (
        ("replication factor", topic.replication_factor),
        ("numPartitions", topic.partition_count),
    ):
        if given != BROKER_DEFAULT:
            return ApiError(
                ErrorCode.INVALID_REQUEST,
                f"A manual partition assignment was specified, but {what} was not set to -1.",
            )
    chosen: dict[int, tuple[int, ...]] = {}
    for index, replicas in topic.assignments:
        if index in chosen:
            return ApiError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Found multiple manual partition assignments for partition {index}",
            )
        chosen[index] = replicas
    if sorted(chosen) != list(range(len(chosen))):
        return ApiError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT, "partitions should be a consecutive 0-based integer sequence"
        )
    in_order = [chosen[index] for index in range(len(chosen))]
    return _why_not_assignable(in_order, cluster, len(in_order[0])) or in_order


def _why_not_assignable(
    assignments: Sequence[tuple[int, ...]], cluster: ClusterState, replication_factor: int
) -> ApiError | None:
    brokers = cluster.brokers_and_racks()
    errors = (why_invalid_assignment(replicas, brokers, replication_factor) for replicas in assignments)
    return next((error for error in errors if error is not None), None)


def _placed(
    topic: NewTopic, cluster: ClusterState, defaults: TopicDefaults, rng: random.Random
) -> list[tuple[int, ...]] | ApiError:
    count, factor = topic.partition_count, topic.replication_factor
    count = defaults.partition_count if count == BROKER_DEFAULT else count
    factor = defaults.replication_factor if factor == BROKER_DEFAULT else factor
    brokers = cluster.brokers_and_racks()
    error = why_not_placeable(len(brokers), count, factor)
    if error is not None:
        return error
    return assign_replicas(brokers, count, factor, random_start(len(brokers), rng))


def plan_partitions(request: NewPartitions, cluster: ClusterState) -> TopicAssignment | ApiError:
    """Return the topic's assignment with the new partitions, or why it cannot have them."""
    name, topic = request.topic, cluster.topics.get(request.topic)
    if topic is None or name in cluster.topics_to_delete or not topic.assignment.partitions:
        return ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")
    if name in INTERNAL_TOPICS:
        return ApiError(
            ErrorCode.INVALID_PARTITIONS,
            f"The number of partitions of the internal topic '{name}' cannot be changed: it decides which partition "
            f"{_WHAT_INTERNAL_TOPICS_PLACE[name]}, so what is stored now would not be found any more.",
        )
    existing = topic.assignment.partitions
    if any(partition.adding or partition.removing for partition in existing.values()):
        return ApiError(
            ErrorCode.REASSIGNMENT_IN_PROGRESS, f"A partition reassignment is in progress for the topic '{name}'."
        )
    added = _added_replicas(request, existing, cluster)
    if isinstance(added, ApiError):
        return added
    new = {len(existing) + index: ReplicaAssignment(replicas=replicas) for index, replicas in enumerate(added)}
    return TopicAssignment(topic_id=topic.assignment.topic_id, partitions={**existing, **new})


def _added_replicas(
    request: NewPartitions, existing: Mapping[int, ReplicaAssignment], cluster: ClusterState
) -> list[tuple[int, ...]] | ApiError:
    count = len(existing)
    added = request.total_count - count
    if added == 0:
        return ApiError(ErrorCode.INVALID_PARTITIONS, f"Topic already has {count} partition(s).")
    if added < 0:
        return ApiError(
            ErrorCode.INVALID_PARTITIONS,
            f"The topic {request.topic} currently has {count} partition(s); {request.total_count} would not be an "
            "increase.",
        )
    if added > MOST_PARTITIONS_PER_REQUEST:
        return ApiError(ErrorCode.POLICY_VIOLATION, "Excessively large number of partitions per request.")
    factor = len(existing[0].replicas)
    if request.assignments is None:
        brokers = cluster.brokers_and_racks()
        error = why_not_placeable(len(brokers), added, factor)
        if error is not None:
            return error
        start = start_after(brokers, existing[0].replicas[0])
        return assign_replicas(brokers, added, factor, start, first_partition=count)
    if len(request.assignments) != added:
        return ApiError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"Attempted to add {added} additional partition(s), but only {len(request.assignments)} assignment(s) "
            "were specified.",
        )
    return _why_not_assignable(request.assignments, cluster, factor) or list(request.assignments)
