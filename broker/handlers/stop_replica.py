"""StopReplica (API key 5): the controller removes replicas from this broker, and may have them deleted.

Versions: 1 is for one incarnation of the broker (STALE_BROKER_EPOCH); 3 has for each partition whether to delete it,
and at which leader epoch (FENCED_LEADER_EPOCH).
"""

from oncelog.broker.dispatch.api_handler import Outcome, handles
from oncelog.broker.dispatch.request import RequestContext
from oncelog.broker.handlers.control_plane import validate_control_request
from oncelog.broker.parts import Broker
from oncelog.protocol.api_keys import ApiKey
from oncelog.protocol.messages.stop_replica import StopReplicaRequest, StopReplicaResponse


@handles(ApiKey.STOP_REPLICA, versions="0-4")
def handle_stop_replica(broker: Broker, context: RequestContext, request: StopReplicaRequest) -> Outcome:
    error = validate_control_request(broker, context, request.broker_epoch)
    if error:
        return StopReplicaResponse(error_code=error)
    return broker.replica_control.stop_replica(request)
