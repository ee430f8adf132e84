"""ControlledShutdown (API key 7): a broker that is about to stop has the controller move its leaderships.

The response names the partitions that the broker still leads although they have other replicas; it retries later, or
stops all the same. Only the controller serves it. The connection's next request need not wait.

Versions: 0 has a request header of its own, without a client id, and is not served. 2 has the broker epoch
of the incarnation that stops.
"""

from oncelog.broker.dispatch.api_handler import Outcome, handles
from oncelog.broker.dispatch.request import RequestContext
from oncelog.broker.handlers.control_plane import authorize_broker
from oncelog.broker.parts import Broker
from oncelog.protocol.api_keys import ApiKey
from oncelog.protocol.messages.controlled_shutdown import ControlledShutdownRequest, ControlledShutdownResponse


@handles(ApiKey.CONTROLLED_SHUTDOWN, versions="1-3")
def handle_controlled_shutdown(broker: Broker, context: RequestContext, request: ControlledShutdownRequest) -> Outcome:
    error = authorize_broker(broker, context)
    if error:
        return ControlledShutdownResponse(error_code=error)
    return broker.supervisor.spawn(broker.controller_apis.controlled_shutdown(request), "controlled shutdown")
