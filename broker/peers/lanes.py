"""The requests that brokers send to each other, and the lane that each takes.

A broker responds to a connection's requests in their order, so a response that waits holds up those behind it, and one
that does not come in time ends the connection. Requests that wait for different things therefore take different lanes,
each a connection of its own: the controller's requests do not wait for followers to replicate a marker.
"""

from enum import Enum
from typing import Final, NamedTuple

from oncelog.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse
from oncelog.protocol.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from oncelog.protocol.messages.controlled_shutdown import ControlledShutdownRequest, ControlledShutdownResponse
from oncelog.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from oncelog.protocol.messages.leader_and_isr import LeaderAndIsrRequest, LeaderAndIsrResponse
from oncelog.protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse
from oncelog.protocol.messages.stop_replica import StopReplicaRequest, StopReplicaResponse
from oncelog.protocol.messages.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse
from oncelog.protocol.messages.write_txn_markers import WriteTxnMarkersRequest, WriteTxnMarkersResponse
from oncelog.protocol.schema import Message

RESPONSES: Final[dict[type[Message], type[Message]]] = {
    AddPartitionsToTxnRequest: AddPartitionsToTxnResponse,
    AlterPartitionRequest: AlterPartitionResponse,
    ControlledShutdownRequest: ControlledShutdownResponse,
    CreateTopicsRequest: CreateTopicsResponse,
    LeaderAndIsrRequest: LeaderAndIsrResponse,
    OffsetForLeaderEpochRequest: OffsetForLeaderEpochResponse,
    StopReplicaRequest: StopReplicaResponse,
    UpdateMetadataRequest: UpdateMetadataResponse,
    WriteTxnMarkersRequest: WriteTxnMarkersResponse,
}

LOWEST_VERSIONS: Final[dict[type[Message], int]] = {AddPartitionsToTxnRequest: 4}
"""Of requests whose older versions are for clients, and have no room for what a broker says."""


class Lane(Enum):
    """A connection whose responses do not wait for those of the other lanes."""

    HEARTBEATS = "heartbeats"
    """Nothing else, so that the other broker can respond while its event loop stands still."""
    CONTROL = "control"
    """The controller's requests, which are carried out at once."""
    CONTROLLER = "controller"
    """Requests to the controller, which wait for those before them, and for the metadata store."""
    TOPICS = "topics"
    """Topics that requests need: the controller may throttle a connection that creates many (``ClientQuotas``)."""
    MARKERS = "markers"
    """Transaction markers, whose responses wait until partitions of clients are replicated."""
    METRICS = "metrics"
    """Requests for what a page of metrics shows: nothing else waits for them."""
    VERIFICATION = "verification"
    """Requests to transaction coordinators, whose responses wait until the transaction log is replicated."""


LANES: Final[dict[type[Message], Lane]] = {
    AddPartitionsToTxnRequest: Lane.VERIFICATION,
    AlterPartitionRequest: Lane.CONTROLLER,
    ControlledShutdownRequest: Lane.CONTROLLER,
    CreateTopicsRequest: Lane.TOPICS,
    LeaderAndIsrRequest: Lane.CONTROL,
    OffsetForLeaderEpochRequest: Lane.METRICS,
    StopReplicaRequest: Lane.CONTROL,
    UpdateMetadataRequest: Lane.CONTROL,
    WriteTxnMarkersRequest: Lane.MARKERS,
}

KEPT_LANES: Final = frozenset({Lane.HEARTBEATS, Lane.CONTROL})
"""Lanes to a broker that the cluster goes on without: it may come back."""


def replicas_in(request: Message) -> int:
    """Return the number of replicas whose logs a request of the controller opens or stops."""
    if isinstance(request, LeaderAndIsrRequest | StopReplicaRequest):
        return sum(len(topic.partition_states) for topic in request.topic_states)
    return 0


class RequestTimeouts(NamedTuple):
    """The time-outs of requests to other brokers, by what the request is for."""

    controller_ms: int = 30_000
    """Of requests from and to the controller, and of heartbeats."""
    coordinator_ms: int = 30_000
    """Of requests from and to transaction coordinators."""

    def seconds(self, lane: Lane) -> float:
        """Return the time-out of a lane's requests."""
        is_coordinators = lane in (Lane.MARKERS, Lane.VERIFICATION)
        return (self.coordinator_ms if is_coordinators else self.controller_ms) / 1000
