"""LeaderAndIsr (API key 4): the controller says which partitions this broker leads and which it follows.

The work is in ``broker.replication.replica_manager``: every order is carried out before the answer, at least as far as
that nobody is served under the former leadership any more.

Versions: 2 is for one life of the broker (STALE_BROKER_EPOCH) and groups by topic; 5 names topics by id in the answer.
"""

from typing import TYPE_CHECKING

from broker.control_plane import why_disobey
from broker.dispatch import Outcome, RequestContext, handles
from protocol.api_keys import ApiKey
from protocol.messages.leader_and_isr import LeaderAndIsrRequest, LeaderAndIsrResponse

if TYPE_CHECKING:
    from broker.server import Broker


@handles(ApiKey.LEADER_AND_ISR, versions="0-7")
def handle_leader_and_isr(broker: "Broker", context: RequestContext, request: LeaderAndIsrRequest) -> Outcome:
    error = why_disobey(broker, context, request.broker_epoch)
    if error:
        return LeaderAndIsrResponse(error_code=error)
    return broker.replica_manager.apply_leader_and_isr(request)
