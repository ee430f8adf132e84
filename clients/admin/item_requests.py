"""Requests that change several items, each of which a broker accepts or refuses by itself.

Such a request is retried only for the items whose refusal is transient: retrying an item that was accepted would report
its success as a failure (a topic that was created is then TOPIC_ALREADY_EXISTS). If the response for an item was lost
or came too late, it is not known whether the item was changed, and the error of a retry may be a result of its own
first attempt. Such items are in ``maybe_done``, and the caller inspects the cluster before it judges them.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Generic, TypeAlias, TypeVar

from oncelog.clients.cluster import NOT_FINAL, Cluster
from oncelog.clients.errors import ClientError, ConnectionLost, NoBrokerReachable, Refusal, RequestTimedOut, Unreachable
from oncelog.clients.routes import Route
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.schema import Message, Versions, parse_versions

R = TypeVar("R", bound=Message)
Key = TypeVar("Key")
Item = TypeVar("Item")
Result = TypeVar("Result")

ANY_VERSION: Final = parse_versions("0+")
_LEFT_OUT: Final = Refusal(error=ErrorCode.UNKNOWN_SERVER_ERROR, message="the broker did not say")
_LONGEST_TIMEOUT_MS: Final = 30_000
_SHARE_OF_BROKER: Final = 0.9
"""Share of an attempt's time, so that the broker reports its time-out before the client's ends the connection."""

Build: TypeAlias = Callable[[Mapping[Key, Item], int], Message]
"""Makes the request for some items, with the time-out for the broker in milliseconds."""
Split: TypeAlias = Callable[[R], Iterable[tuple[Key, Refusal | None]]]
"""Yields (key, None or refusal) for each item in a response."""


@dataclass(frozen=True, slots=True)
class ItemOutcomes(Generic[Key, Result]):
    """The outcome of each item: its result, None where there is none to return, or a ``Refusal``."""

    outcomes: dict[Key, Result | Refusal]
    maybe_done: frozenset[Key]
    """Items that an attempt without a response may have changed."""

    def refused_in_doubt(self, error: ErrorCode) -> list[Key]:
        """Return the items that may be done, and whose last attempt was refused with ``error``."""
        return [
            key
            for key, outcome in self.outcomes.items()
            if key in self.maybe_done and isinstance(outcome, Refusal) and outcome.error is error
        ]

    def with_done(self: "ItemOutcomes[Key, None]", done: Iterable[Key]) -> dict[Key, Refusal | None]:
        """Return the outcomes, with success for the items that the cluster shows to be done."""
        return self.outcomes | dict.fromkeys(done)


async def send_items(
    cluster: Cluster,
    route: Route,
    items: Mapping[Key, Item],
    build: Build[Key, Item],
    response_type: type[R],
    split: Split[R, Key],
    *,
    versions: Versions = ANY_VERSION,
) -> ItemOutcomes[Key, None]:
    """Send a request about items until each is accepted, finally refused, or the operation's time is up.

    Raises ``ClientError`` if no item has an outcome; an item that has none beside others is NETWORK_EXCEPTION.
    """
    retry = cluster.attempts()
    outcomes: dict[Key, Refusal | None] = {}
    maybe_done: set[Key] = set()
    pending = dict(items)
    while pending:
        failure: ClientError | None = None
        throttle_ms = 0
        try:
            timeout_ms = min(int(retry.attempt_seconds * 1000 * _SHARE_OF_BROKER), _LONGEST_TIMEOUT_MS)
            request = build(pending, timeout_ms)
            response = await cluster.attempt(
                route, request, response_type, retry, at_least=versions.first, at_most=versions.last
            )
        except (Unreachable, ConnectionLost, RequestTimedOut) as error:
            failure = error
            if not isinstance(error, Unreachable):
                maybe_done |= pending.keys()
            outcomes |= dict.fromkeys(pending, Refusal.without_response(error))
        else:
            throttle_ms = getattr(response, "throttle_time_ms", 0)
            reported = dict(split(response))
            outcomes |= {key: reported.get(key, _LEFT_OUT) for key in pending}
            passing = [each for key in pending if (each := outcomes[key]) is not None and each.error in NOT_FINAL]
            cluster.is_hindered(request, [each.error for each in passing], passing[0].message if passing else None)
            maybe_done |= {key for key in pending if _error(outcomes[key]) is ErrorCode.REQUEST_TIMED_OUT}
        pending = {key: item for key, item in pending.items() if _error(outcomes[key]) in NOT_FINAL}
        if pending:
            cluster.forget_route(route)
            if isinstance(failure, NoBrokerReachable) or not await retry.pause(throttle_ms / 1000):
                if failure is not None and len(pending) == len(items):
                    raise failure
                break
    return ItemOutcomes(outcomes, frozenset(maybe_done))


def _error(outcome: Refusal | None) -> ErrorCode | None:
    return None if outcome is None else outcome.error
