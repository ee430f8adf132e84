"""Requests from this broker's controller, coordinators and replicas to brokers: to itself, by a plain call.

Some requests take longer than the call. The files of new logs are made off the loop, and the metadata of very many
partitions is taken in the next turn of the loop. Markers come another way: the transaction coordinator hands them to
its broker's ``MarkerWriter``.

A single-node cluster has no other channel: a request to another broker fails as after a lost connection. The
channel of a cluster's member reaches the others and leaves only this broker to this one.
"""

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any, Final

from oncelog.broker.replication.replica_control import ReplicaControl
from oncelog.broker.replication.replica_host import Spawn
from oncelog.coordinator.controller.cluster_image import MetadataCache
from oncelog.coordinator.controller.controller_apis import ControllerApis
from oncelog.coordinator.ports import OnResponse
from oncelog.protocol.messages.alter_partition import AlterPartitionRequest
from oncelog.protocol.messages.controlled_shutdown import ControlledShutdownRequest
from oncelog.protocol.messages.leader_and_isr import LeaderAndIsrRequest
from oncelog.protocol.messages.stop_replica import StopReplicaRequest
from oncelog.protocol.messages.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse
from oncelog.protocol.schema import Message

logger = logging.getLogger(__name__)

_MANY_PARTITIONS: Final = 1_000


class LocalChannel:
    """Implements ``oncelog.coordinator.ports.BrokerChannel`` for a broker that is alone."""

    def __init__(self, broker_id: int, metadata: MetadataCache, spawn: Spawn) -> None:
        self._broker_id = broker_id
        self._metadata = metadata
        self._replicas: ReplicaControl | None = None
        self._controller: ControllerApis | None = None
        self._spawn = spawn

    def serve(self, replicas: ReplicaControl) -> None:
        """Serve requests to this broker from now on."""
        self._replicas = replicas

    def serve_controller(self, controller: ControllerApis) -> None:
        """Serve requests to the controller, too, from now on."""
        self._controller = controller

    def topics_without_log(self, request: LeaderAndIsrRequest) -> set[str]:
        """Return the topics of which this broker must create logs to carry out the request."""
        return set() if self._replicas is None else self._replicas.topics_without_log(request)

    def send(self, broker_id: int, request: Message, on_response: OnResponse) -> None:
        replicas = self._replicas
        if broker_id != self._broker_id or replicas is None:
            logger.warning("Broker %d cannot be reached: %s is not sent", broker_id, type(request).__name__)
            on_response(None)
            return
        match request:
            case UpdateMetadataRequest() if _partition_count(request) > _MANY_PARTITIONS:
                # To build the request took the controller a part of this turn already.
                asyncio.get_running_loop().call_soon(self._update_metadata, request, on_response)
            case UpdateMetadataRequest():
                self._update_metadata(request, on_response)
            case LeaderAndIsrRequest() if replicas.topics_without_log(request):
                self._spawn(_respond(replicas.create_and_apply(request), on_response), "create logs")
            case LeaderAndIsrRequest():
                on_response(replicas.apply_leader_and_isr(request))
            case StopReplicaRequest():
                on_response(replicas.stop_replica(request))
            case AlterPartitionRequest() if self._controller is not None:
                self._call_controller(self._controller.alter_partition(request), on_response)
            case ControlledShutdownRequest() if self._controller is not None:
                self._call_controller(self._controller.controlled_shutdown(request), on_response)
            case _:
                raise AssertionError(f"{type(request).__name__} is not a request of a broker to itself")

    def _update_metadata(self, request: UpdateMetadataRequest, on_response: OnResponse) -> None:
        on_response(UpdateMetadataResponse(error_code=self._metadata.apply_update_metadata(request)))

    def _call_controller(self, call: Coroutine[Any, Any, Message], on_response: OnResponse) -> None:
        """Send a request to the controller of this broker, in a task, since it does not complete at once."""
        self._spawn(_respond(call, on_response), "request to the controller")


def _partition_count(request: UpdateMetadataRequest) -> int:
    return sum(len(topic.partition_states) for topic in request.topic_states)


async def _respond(work: Coroutine[Any, Any, Message], on_response: OnResponse) -> None:
    response = None
    try:
        response = await work
    finally:
        on_response(response)
