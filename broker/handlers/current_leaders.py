"""The current leaders in a Produce response, which spare its client a Metadata request (KIP-951)."""

from typing import Final

from oncelog.broker.dispatch.request import RequestContext
from oncelog.broker.parts import Broker
from oncelog.broker.replication.leader_hint import leader_hint
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.produce import LeaderIdAndEpoch, NodeEndpoint, ProduceResponse

_FIRST_VERSION: Final = 10


def with_current_leaders(broker: Broker, context: RequestContext, response: ProduceResponse) -> ProduceResponse:
    """Add the current leader of each partition that this broker does not lead."""
    if context.api_version < _FIRST_VERSION:
        return response
    endpoints: dict[int, NodeEndpoint] = {}
    for topic in response.responses:
        for partition in topic.partition_responses:
            if partition.error_code != ErrorCode.NOT_LEADER_OR_FOLLOWER:
                continue
            hint = leader_hint(
                broker.replica_manager,
                broker.metadata.image,
                context.connection.listener_name,
                (topic.name, partition.index),
            )
            if hint is None:
                continue
            partition.current_leader = LeaderIdAndEpoch(leader_id=hint.leader_id, leader_epoch=hint.leader_epoch)
            if hint.host is not None:
                endpoints[hint.leader_id] = NodeEndpoint(
                    node_id=hint.leader_id, host=hint.host, port=hint.port, rack=hint.rack
                )
    response.node_endpoints = list(endpoints.values())
    return response
