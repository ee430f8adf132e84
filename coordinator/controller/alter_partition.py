"""AlterPartition in the controller: from the request to proposals, and from their outcomes to the response.

What is decided lies in ``isr_changes``. All brokers are sent the state that holds, also where it had been written
before: the leader may have missed it.
"""

from collections.abc import Collection
from typing import NamedTuple

from oncelog.coordinator.controller.cluster_state import VersionedState
from oncelog.coordinator.controller.controller_context import ControllerContext
from oncelog.coordinator.controller.isr_changes import UNKNOWN_EPOCH, IsrProposal, Outcome, alter_isr
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.alter_partition import (
    AlteredPartition,
    AlteredTopic,
    AlterPartitionData,
    AlterPartitionRequest,
    AlterPartitionResponse,
    AlterPartitionTopic,
)
from oncelog.protocol.schema import ZERO_UUID
from oncelog.protocol.topic_partition import TopicPartition


class Altered(NamedTuple):
    """The response, and the partitions of the request."""

    response: AlterPartitionResponse
    partitions: Collection[TopicPartition]


async def alter_partition(context: ControllerContext, request: AlterPartitionRequest) -> Altered:
    """Decide and write a leader's proposals. From version 2 on topics have ids; one without has a name."""
    broker = context.state.brokers.get(request.broker_id)
    if broker is None or broker.epoch != request.broker_epoch:
        return Altered(AlterPartitionResponse(error_code=ErrorCode.STALE_BROKER_EPOCH), ())
    proposals: dict[TopicPartition, IsrProposal] = {}
    for topic in request.topics:
        name = _name_of(context, topic)
        if name is not None:
            for data in topic.partitions:
                proposals[TopicPartition(name, data.partition_index)] = _proposal(request.broker_id, data)
    outcomes = await alter_isr(context, proposals)
    requests = context.new_requests()
    requests.add_update_metadata(
        [p for p, outcome in outcomes.items() if isinstance(outcome, VersionedState)], context.state.brokers
    )
    for partition, outcome in outcomes.items():
        if outcome is ErrorCode.INVALID_UPDATE_VERSION:  # Another tool may have written what the leader does not know.
            requests.add_leader_and_isr(partition, [request.broker_id])
    context.send(requests)
    return Altered(_response(context, request, outcomes), proposals.keys())


def _name_of(context: ControllerContext, topic: AlterPartitionTopic) -> str | None:
    """Return the name of a topic; one without an id may have one in the log of the leader, and several have none."""
    known = context.state.topics.get(topic.name_beside_id)
    if known is not None and known.assignment.topic_id == ZERO_UUID:
        return topic.name_beside_id
    return context.state.topic_names.get(topic.topic_id)


def _proposal(leader: int, data: AlterPartitionData) -> IsrProposal:
    epochs = {state.broker_id: state.broker_epoch for state in data.new_isr_with_epochs}
    return IsrProposal(
        leader=leader,
        leader_epoch=data.leader_epoch,
        partition_epoch=data.partition_epoch,
        # A request that did not cross the wire has the fields of all versions.
        isr=dict.fromkeys(data.new_isr, UNKNOWN_EPOCH) | epochs,
        leader_recovery_state=data.leader_recovery_state,
    )


def _response(
    context: ControllerContext, request: AlterPartitionRequest, outcomes: dict[TopicPartition, Outcome]
) -> AlterPartitionResponse:
    topics = []
    for topic in request.topics:
        name = _name_of(context, topic)
        partitions = [
            AlteredPartition(partition_index=data.partition_index, error_code=ErrorCode.UNKNOWN_TOPIC_ID)
            if name is None
            else _altered(data.partition_index, outcomes[TopicPartition(name, data.partition_index)])
            for data in topic.partitions
        ]
        topics.append(AlteredTopic(topic_id=topic.topic_id, name_beside_id=topic.name_beside_id, partitions=partitions))
    return AlterPartitionResponse(topics=topics)


def _altered(index: int, outcome: Outcome) -> AlteredPartition:
    if isinstance(outcome, ErrorCode):
        return AlteredPartition(partition_index=index, error_code=outcome)
    state = outcome.state
    return AlteredPartition(
        partition_index=index,
        leader_id=state.leader,
        leader_epoch=state.leader_epoch,
        isr=list(state.isr),
        leader_recovery_state=int(state.leader_recovery_state),
        partition_epoch=outcome.version,
        eligible_leader_replicas=list(state.elr),
    )
