"""Validation of control requests: they must come from a broker, and be meant for this incarnation of the receiver.

Requests of the control plane come from other brokers only. Each carries the epoch of the registration that it was meant
for. A broker that restarted quickly may get a request that was meant for its previous incarnation; it would act on an
earlier state of the cluster, so it refuses (KIP-380). An epoch that is larger than the broker's own is no error: the
controller may learn of a registration before the broker itself does. The controller epoch is checked where the request
is applied.
"""

from typing import Final

from oncelog.broker.dispatch.request import RequestContext
from oncelog.broker.parts import Broker
from oncelog.broker.security.authorizer import CLUSTER_NAME, Operation, ResourceType
from oncelog.protocol.errors import ErrorCode

UNKNOWN_EPOCH: Final = -1


def authorize_broker(broker: Broker, context: RequestContext) -> ErrorCode:
    """Return NONE if the client may act as a member of the cluster."""
    allowed = broker.authorizer.authorize(context, Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME)
    return ErrorCode.NONE if allowed else ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def validate_control_request(broker: Broker, context: RequestContext, broker_epoch: int) -> ErrorCode:
    """Return NONE if the request is for this incarnation of the broker, and its sender may make it."""
    error = authorize_broker(broker, context)
    if not error and broker_epoch != UNKNOWN_EPOCH and broker_epoch < broker.controller.broker_epoch:
        return ErrorCode.STALE_BROKER_EPOCH
    return error
