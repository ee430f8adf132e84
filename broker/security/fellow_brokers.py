"""``FellowBrokers``: which requests come from the cluster's other brokers, and are not what a client uses.

Such a request comes to the listener between brokers, under the client id of a live broker, and from a principal that
may do ``CLUSTER_ACTION`` on the cluster: what Kafka requires before it believes that a request was forwarded. Without
an authorizer everyone may do that, so no request is taken for a broker's.
"""

import re
from typing import Final

from oncelog.broker.config.listeners import Listeners
from oncelog.broker.dispatch.request import RequestContext
from oncelog.broker.security.acl_authorizer import AclAuthorizer
from oncelog.broker.security.authorizer import CLUSTER_NAME, Authorizer, Operation, ResourceType
from oncelog.coordinator.controller.cluster_image import MetadataCache

_CLIENT_ID: Final = re.compile(r"broker-(\d{1,10})")


class FellowBrokers:
    """See the module."""

    def __init__(self, authorizer: Authorizer, listeners: Listeners, metadata: MetadataCache) -> None:
        self._authorizer = authorizer if isinstance(authorizer, AclAuthorizer) else None
        self._listener_name = listeners.inter_broker
        self._metadata = metadata

    def sent(self, context: RequestContext) -> bool:
        """Return whether a request comes from another broker."""
        authorizer = self._authorizer
        if authorizer is None or context.connection.listener_name != self._listener_name:
            return False
        match = _CLIENT_ID.fullmatch(context.client_id or "")
        if match is None or int(match[1]) not in self._metadata.image.brokers:
            return False
        return self.may_act(context)

    def may_act(self, context: RequestContext) -> bool:
        """Return whether a client may do what brokers do; without an authorizer everyone may."""
        authorizer = self._authorizer
        return authorizer is None or authorizer.permits(
            context, Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME
        )
