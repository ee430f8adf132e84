"""A handler, one decorated function per API, and the outcome that it returns.

::

    @handles(ApiKey.HEARTBEAT, versions="0-4")
    def handle_heartbeat(broker: Broker, context: RequestContext, request: HeartbeatRequest) -> Outcome:
        ...

``handles`` makes it an ``ApiHandler``, a value; there is no registry behind the scenes, ``oncelog.broker.handlers``
lists them all. The ``Outcome`` of a request says how its connection goes on:

* a message: the response, now;
* None: there is no response (a produce with acks=0);
* a future of one of these: every effect of the request is done and only the response comes later, so the connection
  begins its next request at once (a produce that waits for its followers, a fetch that waits for records);
* ``Shaped``: a coordinator's result, or a future of it, and the function that makes the response of it. A coordinator
  may also leave a request ``Undecided``, which is then decided in a coroutine;
* a coroutine of any of these: the connection's next request waits until it is done (a produce that must first be
  verified, and may then leave a future). It costs a task, so it is for work that awaits, and for long work
  (``oncelog.broker.dispatch.sliced_work``). Its response may be large, and is encoded in slices.

Expected errors are fields of responses. Raising ``CloseConnection`` ends the connection; any other exception is a bug
of the broker, which the dispatcher reports.
"""

import asyncio
import inspect
import sys
from collections.abc import Callable, Coroutine
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

from oncelog.broker.dispatch.request import CloseConnection, RequestContext
from oncelog.coordinator.promise import Response
from oncelog.protocol.api_keys import ApiKey
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.schema import Message, MessageType, Versions, parse_versions

Later: TypeAlias = asyncio.Future[Any]
"""Of a message or None. Futures are invariant, and handlers make futures of their own response type, hence Any."""
T = TypeVar("T")


class Shaped(NamedTuple, Generic[T]):
    """A result that is there already or comes later, and the function that makes the API's response of it."""

    result: Response[T]
    shape: Callable[[T], Message]


Outcome: TypeAlias = Message | None | Later | Shaped[Any] | Coroutine[Any, Any, Message | None | Later | Shaped[Any]]

R = TypeVar("R", bound=Message)
ErrorResponse: TypeAlias = Callable[[R, int, ErrorCode], Message]
"""(request, version, error) to the response that carries this error everywhere where one is expected."""

HandlerFunction: TypeAlias = Callable[[Any, RequestContext, R], Outcome]
"""(broker, context, request) to the outcome. Dispatching hands the broker on and knows nothing of it."""


class ApiHandler(Generic[R]):
    """The handler of one API, the versions that it serves, and those that it advertises."""

    __slots__ = ("advertised", "api_key", "error_response", "function", "in_turn", "name", "request_type", "versions")

    def __init__(
        self,
        api_key: ApiKey,
        function: HandlerFunction[R],
        versions: Versions,
        advertised: Versions,
        error_response: ErrorResponse[R] | None,
        *,
        in_turn: bool = False,
    ) -> None:
        self.api_key = api_key
        self.in_turn = in_turn
        self.function = function
        self.versions = versions
        self.advertised = advertised
        self.request_type = _request_type(function)
        self.name = self.request_type.__name__.removesuffix("Request")
        self.error_response = error_response or generic_error_response
        assert self.request_type.api_key == api_key, f"{self.name} is not the request of {api_key.name}"

    def __call__(self, broker: Any, context: RequestContext, request: R) -> Outcome:
        return self.function(broker, context, request)

    def __repr__(self) -> str:
        return f"<handler of {self.name} {self.versions.first}-{self.versions.last}>"


def handles(
    api_key: ApiKey,
    *,
    versions: str,
    advertised: str | None = None,
    error_response: ErrorResponse[R] | None = None,
    in_turn: bool = False,
) -> Callable[[HandlerFunction[R]], ApiHandler[R]]:
    """Return a decorator that makes a function the handler of ``api_key`` in ``versions``.

    With ``in_turn`` a request begins only when all earlier requests of its connection have their responses: its own may
    be large, and would have to be held until theirs have left.
    """

    def decorate(function: HandlerFunction[R]) -> ApiHandler[R]:
        served = parse_versions(versions)
        shown = served if advertised is None else parse_versions(advertised)
        return ApiHandler(api_key, function, served, shown, error_response, in_turn=in_turn)

    return decorate


def _request_type(function: Callable[..., Any]) -> type[Any]:
    annotation = list(inspect.signature(function).parameters.values())[2].annotation
    assert isinstance(annotation, MessageType), f"{function}: the third parameter is the request, by its class"
    return annotation


def generic_error_response(request: Message, version: int, error: ErrorCode) -> Message:
    """Return the response whose top-level ``error_code`` is the error.

    Raises ``CloseConnection`` if the response has no such field in this version.
    """
    response_type = response_type_of(type(request))
    for field in response_type.fields:
        if field.name == "error_code" and version in field.versions:
            return response_type(error_code=error)
    raise CloseConnection(f"{response_type.__name__} v{version} cannot carry {error.name}")


def response_type_of(request_type: type[Message]) -> type[Message]:
    """Return the response class of a request class: it is declared in the same module."""
    name = request_type.__name__.removesuffix("Request") + "Response"
    response_type: type[Message] = getattr(sys.modules[request_type.__module__], name)
    return response_type
