"""From a request frame to its handler, and from the handler's outcome to the buffers of the response.

A large request is decoded in slices before its handler is called; the connection's next request waits for that, too.

An exception other than ``CloseConnection`` is a bug of the broker and ends here: it is logged and counted, and the
response has UNKNOWN_SERVER_ERROR where the API has a field for it (``error_response``); for an API without such a field
the connection is closed, as in Kafka.

Unknown APIs and versions that are not served close the connection, except for ApiVersions, whose client does not know
the versions yet: its handler is called with the version that was requested, and the response is written as version 0
(KIP-511).
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

from oncelog.broker.dispatch.api_handler import ApiHandler, Later, Outcome, R, Shaped, response_type_of
from oncelog.broker.dispatch.loop_meter import LoopMeter
from oncelog.broker.dispatch.request import CloseConnection, ConnectionInfo, RequestContext
from oncelog.broker.dispatch.request_limits import is_of_controller, limit_of
from oncelog.broker.dispatch.sliced_work import SlicedWork
from oncelog.coordinator.promise import Undecided
from oncelog.protocol.api_keys import ApiKey
from oncelog.protocol.compiler import Decoder, decoder
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.framing import parse_request_header, response_encoder
from oncelog.protocol.primitives import DecodeError
from oncelog.protocol.schema import Buffer, Message

logger = logging.getLogger(__name__)
request_log = logging.getLogger("oncelog.broker.requests")
"""At DEBUG one line for each request. It can be switched on while the broker runs (BROKER_LOGGER)."""

Watcher: TypeAlias = Callable[[RequestContext, str, Message, Message | ErrorCode], None]
"""Sees the API's name, a request and its response."""
ResponseBuffers: TypeAlias = list[Buffer]
"""The buffers of one response frame; empty if the request has no response."""

DEFAULT_MAX_ELEMENTS: Final = 10_000
"""The default of ``oncelog.request.max.elements``."""
_LARGE_FRAME: Final = 32 * 1024
"""Bytes of a request above which it is decoded in slices: of the smallest elements, so many take some milliseconds."""
_NEVER: Final = 1 << 62
_UNDIVIDED: Final = frozenset({ApiKey.PRODUCE, ApiKey.API_VERSIONS})
"""Produce has records, which are not decoded here; ApiVersions has no arrays, and comes before authentication."""
_LARGEST_REFUSED: Final = 8 * 1024
"""Bytes of a request that is decoded for the sake of its refusal."""
_NO_RESPONSE: Final[ResponseBuffers] = []
_new_tuple: Final = tuple.__new__
"""Creates a named tuple without the cost of its constructor."""


class _Route:
    """One served (API, version): what is looked up once per request."""

    __slots__ = (
        "decode",
        "divided_above",
        "encode",
        "failures",
        "handler",
        "is_watched",
        "max_elements",
        "requests",
        "response_version",
        "version",
    )

    def __init__(self, handler: ApiHandler[Any], version: int, max_elements: int, *, is_watched: bool) -> None:
        self.handler = handler
        self.is_watched = is_watched
        self.version = version
        self.requests = 0
        self.failures = 0
        self.max_elements = max_elements
        if version in handler.versions:
            self.decode: Decoder[Any] = decoder(handler.request_type, version)
            self.divided_above = _NEVER if handler.api_key in _UNDIVIDED else _LARGE_FRAME
            self.response_version = version
        else:
            self.decode = _decode_nothing(handler.request_type)
            self.divided_above = _NEVER
            self.response_version = 0
        self.encode = response_encoder(response_type_of(handler.request_type), self.response_version)


def _decode_nothing(request_type: type[R]) -> Decoder[R]:
    """Return a decoder that makes a request of defaults: the body of an unknown version cannot be read."""

    def decode(buffer: Buffer, position: int, max_elements: int = 0, /) -> tuple[R, int]:
        return request_type(), len(buffer)

    return decode


class _Encoded(NamedTuple):
    """A response that was encoded in slices."""

    buffers: ResponseBuffers


class PendingResponse:
    """A request whose response is not ready: a future completes it, or a coroutine that the connection must run."""

    __slots__ = ("_context", "_dispatcher", "_is_under_way", "_route", "_shape", "awaitable", "request")

    awaitable: Later | Coroutine[Any, Any, Message | _Encoded | None | Later]

    def __init__(self, dispatcher: "Dispatcher", route: _Route, context: RequestContext, request: Message) -> None:
        self._dispatcher = dispatcher
        self._route = route
        self._context = context
        self._shape: Callable[[Any], Message] | None = None
        """Makes the response of the future's result, unless that is the response."""
        self._is_under_way = False
        self.request = request
        """The request; one with default fields until a large request is decoded."""

    @property
    def name(self) -> str:
        return self._route.handler.name

    def resolve(self, outcome: Outcome) -> Message | None | Later | Coroutine[Any, Any, Any]:
        """Return an outcome without its shape: the response, or what is to be awaited."""
        if not isinstance(outcome, Shaped):
            return outcome
        result, shape = outcome
        if isinstance(result, Undecided):
            return _decide(result, shape)
        if isinstance(result, asyncio.Future):
            self._shape = shape
            return result
        return shape(result)

    def begin(self) -> None:
        """Note that the handler of a watched API begins: what it changes is seen though its client goes."""
        if not self._is_under_way:
            self._is_under_way = True
            self._context.connection.changes_under_way += 1

    def finish(self, done: "asyncio.Future[Any]") -> ResponseBuffers:
        """Return the response, once the future (or the task of the coroutine) is done."""
        if self._is_under_way:
            self._is_under_way = False
            self._context.connection.changes_under_way -= 1
        dispatcher, route, context, request = self._dispatcher, self._route, self._context, self.request
        if done.cancelled():
            dispatcher.watch_unknown(route, context, request)
            raise CloseConnection(f"{self.name} was cancelled")
        failure = done.exception()
        if failure is not None:
            return dispatcher.fail(route, context, request, failure)
        try:
            message = done.result() if self._shape is None else self._shape(done.result())
        except Exception as error:
            return dispatcher.fail(route, context, request, error)
        return dispatcher.encode(route, context, request, message)


async def _decide(undecided: Undecided[Any], shape: Callable[[Any], Message]) -> Message:
    return shape(await undecided.decide())


def _allow(context: RequestContext) -> bool:
    """Allow everything: there is no authorizer."""
    return True


def _ignore_request(context: RequestContext, name: str, request: Message, outcome: Message | ErrorCode) -> None:
    """Do nothing: no API is watched."""


def _log_request(route: _Route, context: RequestContext, frame: memoryview) -> None:
    what = (route.handler.name, *context, len(frame))
    request_log.debug("%s v%d, correlation id %d, of client %r at %s: %d bytes", *what)


class ServedBroker(Protocol):
    """The part of the broker that ``Dispatcher`` uses; handlers are called with the whole broker."""

    @property
    def sliced_work(self) -> SlicedWork: ...


class Dispatcher:
    """The handlers of one broker, found by API key and version."""

    def __init__(
        self, broker: ServedBroker, handlers: Iterable[ApiHandler[Any]], *, max_elements: int = DEFAULT_MAX_ELEMENTS
    ) -> None:
        self._broker = broker
        self._max_elements = max_elements
        self._handlers = {int(handler.api_key): handler for handler in handlers}
        self._in_turn = frozenset(key.to_bytes(2, "big") for key, each in self._handlers.items() if each.in_turn)
        self._routes: dict[tuple[int, int], _Route] = {}
        self.on_response: Callable[[str, Message], None] | None = None
        """Called with the API's name and every response of its handler; None if no metric needs it."""
        self._watched: frozenset[ApiKey] = frozenset()
        self._on_watched: Watcher = _ignore_request
        self.meter: LoopMeter | None = None
        """Measures what requests take; None if no quota needs it."""
        self.may_act: Callable[[RequestContext], bool] = _allow
        """Whether a client may do what the controller does; a large request of another is not decoded."""

    def watch(self, api_keys: frozenset[ApiKey], on_response: "Watcher") -> None:
        """Have the requests of some APIs seen with their responses. Call it before the first request."""
        self._watched = api_keys
        self._on_watched = on_response

    def dispatch(self, frame: memoryview, connection: ConnectionInfo) -> ResponseBuffers | PendingResponse:
        """Begin one request. Raises CloseConnection, and nothing else."""
        began = 0 if self.meter is None else self.meter.nanoseconds()
        try:
            header, position = parse_request_header(frame)
            api_key, version, correlation_id, client_id = header
            route = self._routes.get((api_key, version)) or self._add_route(api_key, version)
            if len(frame) > route.divided_above:
                context = RequestContext(version, correlation_id, client_id, connection)
                return self._begin_large(route, context, frame, position)
            request, _ = route.decode(frame, position, route.max_elements)
        except DecodeError as error:
            raise CloseConnection(f"a malformed request: {error}") from None
        context = _new_tuple(RequestContext, (version, correlation_id, client_id, connection))
        route.requests += 1
        if request_log.isEnabledFor(logging.DEBUG):
            _log_request(route, context, frame)
        try:
            outcome = route.handler.function(self._broker, context, request)
            if began and self.meter is not None:
                connection.loop_nanoseconds += self.meter.nanoseconds() - began
            if outcome is not None and not isinstance(outcome, Message):
                return self._begin(PendingResponse(self, route, context, request), route, context, outcome)
        except Exception as error:
            return self.fail(route, context, request, error)
        return self.encode(route, context, request, outcome)

    def _begin(
        self, pending: PendingResponse, route: _Route, context: RequestContext, outcome: Outcome
    ) -> ResponseBuffers | PendingResponse:
        """Return the response if it is there already, else what completes it."""
        resolved = pending.resolve(outcome)
        if resolved is None or isinstance(resolved, Message):
            return self.encode(route, context, pending.request, resolved)
        if isinstance(resolved, asyncio.Future):
            if route.is_watched:
                pending.begin()
            pending.awaitable = resolved
            return pending.finish(resolved) if resolved.done() else pending
        if route.is_watched:
            pending.begin()
        pending.awaitable = self._encode_in_slices(pending, route, context, resolved)
        return pending

    def _begin_large(self, route: _Route, context: RequestContext, frame: memoryview, position: int) -> PendingResponse:
        """Decode a large request in slices, then call its handler."""
        most = route.max_elements
        if is_of_controller(route.handler.api_key) and not self.may_act(context):
            most = self._max_elements

        async def decode_and_handle() -> Message | _Encoded | None | Later:
            decoding = self._broker.sliced_work.decode(
                route.handler.request_type, route.version, frame, position, most, context.connection
            )
            try:
                request = pending.request = await decoding
            except DecodeError as error:
                raise CloseConnection(f"a malformed request: {error}") from None
            route.requests += 1
            _log_request(route, context, frame)
            began = 0 if self.meter is None else self.meter.nanoseconds()
            if route.is_watched:
                pending.begin()
            outcome = pending.resolve(route.handler.function(self._broker, context, request))
            if began and self.meter is not None:
                context.connection.loop_nanoseconds += self.meter.nanoseconds() - began
            if outcome is None or isinstance(outcome, Message | asyncio.Future):
                return outcome
            return await self._encode_in_slices(pending, route, context, outcome)

        pending = PendingResponse(self, route, context, route.handler.request_type())
        pending.awaitable = decode_and_handle()
        return pending

    def refuse(self, frame: memoryview, error: ErrorCode, *, max_elements: int) -> ResponseBuffers:
        """Return the response that has this error wherever the API has a field for one.

        Return none to a request that is large or malformed: its client may be anybody. Raises CloseConnection.
        """
        if len(frame) > _LARGEST_REFUSED:
            return _NO_RESPONSE
        try:
            header, position = parse_request_header(frame)
            route = self._routes.get(header[:2]) or self._add_route(header.api_key, header.api_version)
            request, _ = route.decode(frame, position, min(max_elements, route.max_elements))
        except DecodeError:
            return _NO_RESPONSE
        response = route.handler.error_response(request, route.response_version, error)
        return route.encode(header.correlation_id, response)

    def is_in_turn(self, frame: memoryview) -> bool:
        """Return whether this request begins only when all before it have their responses."""
        return bytes(frame[:2]) in self._in_turn

    def encode(
        self, route: _Route, context: RequestContext, request: Message, message: "Message | _Encoded | None"
    ) -> ResponseBuffers:
        """Return the response's buffers. A response that cannot be encoded is a bug like any other of its handler."""
        if isinstance(message, _Encoded):
            return message.buffers
        try:
            if self.meter is not None:
                self.meter.settle(route.handler.api_key, context, message)
            if message is None:
                return _NO_RESPONSE
            if self.on_response is not None:
                self.on_response(route.handler.name, message)
            if route.is_watched:
                self._on_watched(context, route.handler.name, request, message)
            return route.encode(context.correlation_id, message)
        except Exception as error:
            return self.fail(route, context, request, error)

    async def _encode_in_slices(
        self, pending: PendingResponse, route: _Route, context: RequestContext, coroutine: Coroutine[Any, Any, Any]
    ) -> "_Encoded | None | Later":
        outcome = pending.resolve(await coroutine)
        if outcome is None or isinstance(outcome, asyncio.Future):
            return outcome
        assert isinstance(outcome, Message), "what a coroutine leaves behind is decided"
        if self.meter is not None:
            self.meter.settle(route.handler.api_key, context, outcome)
        if self.on_response is not None:
            self.on_response(route.handler.name, outcome)
        if route.is_watched:
            self._on_watched(context, route.handler.name, pending.request, outcome)
        encoding = self._broker.sliced_work.encode(
            context.correlation_id, outcome, route.response_version, context.connection
        )
        return _Encoded(await encoding)

    def watch_unknown(self, route: _Route, context: RequestContext, request: Message) -> None:
        """Have a request of a watched API seen whose outcome is not known: it may have changed something."""
        if route.is_watched:
            self._on_watched(context, route.handler.name, request, ErrorCode.NETWORK_EXCEPTION)

    def fail(self, route: _Route, context: RequestContext, request: Message, error: BaseException) -> ResponseBuffers:
        """Return the response to an unexpected exception of a request: the one place where these end."""
        if isinstance(error, CloseConnection):  # A new one: ``error`` would reference itself through its traceback.
            raise CloseConnection(str(error)) from None
        route.failures += 1
        name = route.handler.name
        logger.error(
            "%s v%d of client %r at %s failed",
            name,
            route.version,
            context.client_id,
            context.connection,
            exc_info=error,
        )
        try:
            if route.is_watched:
                self._on_watched(context, name, request, ErrorCode.UNKNOWN_SERVER_ERROR)
            response = route.handler.error_response(request, route.response_version, ErrorCode.UNKNOWN_SERVER_ERROR)
            return route.encode(context.correlation_id, response)
        except CloseConnection:
            raise
        except Exception as another:
            logger.exception("%s v%d has no response for its failure", name, route.version)
            raise CloseConnection(f"{name} failed") from another

    def request_counts(self) -> dict[tuple[str, int], tuple[int, int]]:
        """Return how many requests came, and how many failed unexpectedly, by (API name, version)."""
        return {(r.handler.name, r.version): (r.requests, r.failures) for r in self._routes.values()}

    def _add_route(self, api_key: int, version: int) -> _Route:
        handler = self._handlers.get(api_key)
        if handler is None:
            raise CloseConnection(f"a request for API key {api_key}, which is not served")
        if version not in handler.versions and api_key != ApiKey.API_VERSIONS:
            raise CloseConnection(f"a request for {handler.name} v{version}, which is not served")
        max_elements = int(limit_of(api_key).elements_factor * self._max_elements)
        route = _Route(handler, version, max_elements, is_watched=handler.api_key in self._watched)
        if version in handler.versions:  # Others would let a client grow this table.
            self._routes[api_key, version] = route
        return route
