"""An authorizer of a test says one thing, whether a denial is logged or not."""

from oncelog.broker.dispatch.request import RequestContext
from oncelog.broker.security.authorizer import Operation, ResourceType


class Deciding:
    """Those that inherit from it define ``authorize``."""

    def authorize(self, context: RequestContext, operation: Operation, resource_type: ResourceType, name: str) -> bool:
        raise NotImplementedError

    def permits(self, context: RequestContext, operation: Operation, resource_type: ResourceType, name: str) -> bool:
        return self.authorize(context, operation, resource_type, name)

    def permits_any(self, context: RequestContext, operation: Operation, resource_type: ResourceType) -> bool:
        return self.authorize(context, operation, resource_type, "*")
