"""A response that describes whatever a request names, while it is made in slices."""

from typing import TypeVar

from oncelog.broker.dispatch.api_handler import Outcome
from oncelog.broker.dispatch.request import RequestContext
from oncelog.broker.dispatch.sliced_work import Steps, new_budget
from oncelog.broker.handlers.response_room import ResponseRoom
from oncelog.broker.parts import Broker
from oncelog.broker.security.authorizer import Operation, ResourceType
from oncelog.protocol.schema import Message

R = TypeVar("R", bound=Message)


class Description:
    """What a handler needs while it describes: the room in the response, and the budget of this turn of the loop."""

    def __init__(self, broker: Broker, context: RequestContext) -> None:
        self.broker = broker
        self.context = context
        self.room = ResponseRoom(broker.response_memory)
        self.budget = new_budget()

    def start(self, steps: Steps[R]) -> Outcome:
        """Make the response: what the budget allows now, the rest in later turns."""
        return self.broker.sliced_work.start(steps, self.budget, self.context.connection)

    def authorize(self, operation: Operation, resource_type: ResourceType, name: str) -> bool:
        """Return whether the client may do this to the resource."""
        return self.broker.authorizer.authorize(self.context, operation, resource_type, name)
