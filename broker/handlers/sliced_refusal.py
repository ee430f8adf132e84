"""``refuse_in_slices``: a refusal that names every element of a request, and so may be as long as a result."""

from collections.abc import Callable, Iterable, Sequence
from typing import Final, TypeVar

from oncelog.broker.dispatch.api_handler import Outcome
from oncelog.broker.dispatch.request import RequestContext
from oncelog.broker.dispatch.sliced_work import Steps, in_slices, new_budget
from oncelog.broker.parts import Broker
from oncelog.protocol.schema import Message

A = TypeVar("A")
T = TypeVar("T")

_UNITS_PER_ELEMENT: Final = 5


def refuse_in_slices(
    broker: Broker,
    context: RequestContext,
    elements: Iterable[A],
    refuse: Callable[[A], T],
    respond: Callable[[Sequence[T]], Message],
) -> Outcome:
    """Return the response that is made of the refusals of all elements, or a coroutine that makes it."""
    budget = new_budget()

    def steps() -> Steps[Message]:
        refused = yield from in_slices(elements, refuse, budget, _UNITS_PER_ELEMENT)
        return respond(refused)

    return broker.sliced_work.start(steps(), budget, context.connection, needs_place=False)
