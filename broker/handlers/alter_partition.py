"""AlterPartition (API key 56): a leader proposes changes of its in-sync replicas.

Only the controller decides; another broker returns NOT_CONTROLLER. The connection's next request need not wait.

A broker that cannot reach the controller queries any other broker, in a tagged field of our own, whether it can reach
the controller. Such a query changes nothing on any broker.

Versions: 2 names topics by id; 3 has the broker epoch of each replica, by which a restarted one is recognised
(KIP-903).
"""

from oncelog.broker.dispatch.api_handler import Outcome, handles
from oncelog.broker.dispatch.request import RequestContext
from oncelog.broker.handlers.control_plane import authorize_broker
from oncelog.broker.parts import Broker
from oncelog.coordinator.controller.cluster_image import NO_CONTROLLER
from oncelog.protocol.api_keys import ApiKey
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse


@handles(ApiKey.ALTER_PARTITION, versions="2-3")
def handle_alter_partition(broker: Broker, context: RequestContext, request: AlterPartitionRequest) -> Outcome:
    error = authorize_broker(broker, context)
    if error:
        return AlterPartitionResponse(error_code=error)
    if request.lost_controller_id != NO_CONTROLLER and broker.controller_link is not None:
        contact = broker.controller_link.contact(request.lost_controller_id)
        return AlterPartitionResponse(error_code=ErrorCode.NOT_CONTROLLER, controller_contact=contact)
    return broker.supervisor.spawn(broker.controller_apis.alter_partition(request), "alter partitions")
