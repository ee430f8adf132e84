"""The control requests of a controller that cannot be reached, as the metadata store implies them.

What a controller sends it has written to the store before: LeaderAndIsr and UpdateMetadata only carry it to the
brokers. A broker that still has its session, but not its link to the controller, can therefore read what it should have
received. It learns that others lead what it led, refuses writes that could not be replicated, and sends its clients to
the new leaders.

Not everything in the store is an order, though. A leader that has registered anew since the state was written may have
lost what it led with, and the controller has yet to decide who leads. No broker leads or follows by such a state: the
leader would take clients and followers to a log that lacks acknowledged records, and the followers would cut their own.

Only the controller knows which brokers are unreachable, so that is missing. And nothing is deleted this way.
"""

import logging

from oncelog.coordinator.controller.cluster_loading import load_cluster
from oncelog.coordinator.controller.cluster_state import ClusterState
from oncelog.coordinator.controller.control_requests import ControlRequests
from oncelog.coordinator.controller.replica_standing import leader_restarted
from oncelog.coordinator.metadata_store import paths, znodes
from oncelog.coordinator.metadata_store.store import Session
from oncelog.protocol.schema import Message
from oncelog.protocol.topic_partition import TopicPartition

logger = logging.getLogger(__name__)


async def read_orders(session: Session, broker_id: int, listener_name: str) -> list[Message]:
    """Return what the present controller would send this broker; empty if there is none. Raises StoreUnavailable."""
    epoch = await session.get(paths.CONTROLLER_EPOCH)  # First: what is read afterwards is of this epoch, or newer.
    controller = await session.get(paths.CONTROLLER)
    if epoch is None or controller is None:
        return []
    try:
        controller_id, controller_epoch = (
            znodes.decode_controller(controller.data),
            znodes.decode_controller_epoch(epoch.data),
        )
    except znodes.MalformedZnode as error:
        logger.error("%s or %s is malformed: %s", paths.CONTROLLER, paths.CONTROLLER_EPOCH, error)
        return []
    state = ClusterState()
    await load_cluster(session, state, _ignore)
    metadata = ControlRequests(state, controller_id, controller_epoch, listener_name)
    metadata.add_update_metadata(state.partitions(), [broker_id])
    leaderships = ControlRequests(state, controller_id, controller_epoch, listener_name)
    for partition in state.partitions_on(broker_id):
        if _is_decided(state, partition):
            leaderships.add_leader_and_isr(partition, [broker_id])
    # Metadata first, as from a controller: a coordinator drops the markers of partitions that are not in its metadata.
    return [request for requests in (metadata, leaderships) for _, request in requests.build()]


def _is_decided(state: ClusterState, partition: TopicPartition) -> bool:
    """Return whether the controller has nothing to decide before it sends this state."""
    versioned = state.state(partition)
    if versioned is None or partition.topic in state.topics_to_delete:
        return False
    return not leader_restarted(state, versioned)


def _ignore() -> None:
    """Do nothing when brokers start or stop: the next reading reads them again."""
