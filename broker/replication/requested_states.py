"""The state or stop that LeaderAndIsr and StopReplica request for each partition, in all versions' forms. Pure."""

from collections.abc import Iterator
from typing import Final, NamedTuple

from oncelog.broker.replication.partition import NO_EPOCH
from oncelog.protocol.messages.leader_and_isr import LeaderAndIsrPartitionState, LeaderAndIsrRequest
from oncelog.protocol.messages.stop_replica import StopReplicaRequest
from oncelog.protocol.schema import ZERO_UUID
from oncelog.protocol.topic_partition import TopicPartition

EPOCH_DURING_DELETE: Final = -2
"""The leader epoch of a StopReplica that deletes a topic: never fenced by a partition's epoch."""


class RequestedState(NamedTuple):
    """The state that LeaderAndIsr gives a partition."""

    topic_partition: TopicPartition
    topic_id: bytes
    """Zero if the request does not carry it."""
    state: LeaderAndIsrPartitionState


class RequestedStop(NamedTuple):
    """A replica that StopReplica stops."""

    topic_partition: TopicPartition
    topic_id: bytes
    """Zero if the request does not carry it."""
    leader_epoch: int
    delete: bool


def requested_states(request: LeaderAndIsrRequest) -> Iterator[RequestedState]:
    """Return the states in a request, in its order."""
    for state in request.ungrouped_partition_states:
        yield RequestedState(TopicPartition(state.topic_name, state.partition_index), ZERO_UUID, state)
    for topic in request.topic_states:
        for state in topic.partition_states:
            yield RequestedState(TopicPartition(topic.topic_name, state.partition_index), topic.topic_id, state)


def requested_stops(request: StopReplicaRequest) -> Iterator[RequestedStop]:
    """Return the replicas that a request stops, in its order."""
    for partition in request.ungrouped_partitions:
        topic_partition = TopicPartition(partition.topic_name, partition.partition_index)
        yield RequestedStop(topic_partition, ZERO_UUID, NO_EPOCH, request.delete_partitions)
    for topic in request.topics:
        for index in topic.partition_indexes:
            yield RequestedStop(TopicPartition(topic.name, index), ZERO_UUID, NO_EPOCH, request.delete_partitions)
    for topic_state in request.topic_states:
        for state in topic_state.partition_states:
            topic_partition = TopicPartition(topic_state.topic_name, state.partition_index)
            yield RequestedStop(topic_partition, topic_state.topic_id, state.leader_epoch, state.delete_partition)
