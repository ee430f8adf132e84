"""Requests from this broker's controller and coordinators to brokers: to itself, by a plain call.

Other brokers are not reached yet: whoever sends to one is told that the connection was lost.
"""

import logging

from broker.replication.replica_manager import ReplicaManager
from coordinator.controller.cluster_image import MetadataCache
from coordinator.ports import OnResponse
from protocol.messages.leader_and_isr import LeaderAndIsrRequest
from protocol.messages.stop_replica import StopReplicaRequest
from protocol.messages.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse
from protocol.messages.write_txn_markers import WriteTxnMarkersRequest
from protocol.schema import Message

logger = logging.getLogger(__name__)


class LocalChannel:
    """Implements ``coordinator.ports.BrokerChannel`` for a broker that is alone."""

    def __init__(self, broker_id: int, metadata: MetadataCache) -> None:
        self._broker_id = broker_id
        self._metadata = metadata
        self._replicas: ReplicaManager | None = None

    def serve(self, replica_manager: ReplicaManager) -> None:
        """From now on requests to this broker are answered."""
        self._replicas = replica_manager

    def send(self, broker_id: int, request: Message, on_response: OnResponse) -> None:
        replicas = self._replicas
        if broker_id != self._broker_id or replicas is None:
            logger.warning("Broker %d cannot be reached: %s is not sent", broker_id, type(request).__name__)
            on_response(None)
            return
        match request:
            case WriteTxnMarkersRequest():
                replicas.write_txn_markers(request, on_response)
            case UpdateMetadataRequest():
                on_response(UpdateMetadataResponse(error_code=self._metadata.apply_update_metadata(request)))
            case LeaderAndIsrRequest():
                on_response(replicas.apply_leader_and_isr(request))
            case StopReplicaRequest():
                on_response(replicas.stop_replica(request))
            case _:
                raise AssertionError(f"{type(request).__name__} is not a request between brokers")
