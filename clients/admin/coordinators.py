"""Requests to the coordinators of several groups, or of several transactional ids: one to each broker concerned.

The outcomes have every key of the call, with the result of its coordinator or with a ``Refusal``. Transient refusals (a
coordinator that moved, or that is loading) are retried until the operation's time is up.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Final, TypeAlias, TypeVar

from oncelog.clients.admin.item_requests import ANY_VERSION, ItemOutcomes
from oncelog.clients.cluster import NOT_FINAL, Cluster
from oncelog.clients.errors import Refusal
from oncelog.clients.fan_out import send_to_each
from oncelog.clients.routes import Coordinator
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.schema import Message, Versions

R = TypeVar("R", bound=Message)
Result = TypeVar("Result")

Split: TypeAlias = Callable[[R], Iterable[tuple[str, Refusal | Result]]]
"""Yields (key, result or refusal) for each key in a response."""

_LEFT_OUT: Final = Refusal(error=ErrorCode.UNKNOWN_SERVER_ERROR, message="the coordinator did not say")


async def call_coordinators(
    cluster: Cluster,
    keys: Iterable[Coordinator],
    build: Callable[[Sequence[str]], Message],
    response_type: type[R],
    split: Split[R, Result],
    *,
    versions: Versions = ANY_VERSION,
) -> ItemOutcomes[str, Result]:
    """Send a request to the coordinator of each key. ``build`` makes the request for some of the keys."""
    retry = cluster.attempts()
    pending = {coordinator.key: coordinator for coordinator in keys}
    outcomes: dict[str, Result | Refusal] = {}
    maybe_done: set[str] = set()
    while pending:
        by_broker, refused = await _sort_by_broker(cluster, pending.values())
        outcomes.update(refused)
        requests = {node_id: build(group) for node_id, group in by_broker.items()}
        responses = await send_to_each(
            cluster, requests, response_type, retry.attempt_seconds, at_least=versions.first, at_most=versions.last
        )
        for node_id, response in responses.items():
            if isinstance(response, Refusal):
                outcomes.update(dict.fromkeys(by_broker[node_id], response))
            else:
                outcomes.update(dict.fromkeys(by_broker[node_id], _LEFT_OUT))
                outcomes.update(split(response))
        maybe_done |= {key for key in pending if _is_in_doubt(outcomes[key])}
        pending = {key: coordinator for key, coordinator in pending.items() if _is_transient(outcomes[key])}
        for coordinator in pending.values():
            cluster.forget_coordinator(coordinator)
        if pending and not await retry.pause():
            break
    return ItemOutcomes(outcomes, frozenset(maybe_done))


async def _sort_by_broker(
    cluster: Cluster, keys: Iterable[Coordinator]
) -> tuple[dict[int, list[str]], dict[str, Refusal]]:
    """Return the keys that each broker coordinates, and a refusal for each key without a coordinator."""
    by_broker: dict[int, list[str]] = {}
    refused: dict[str, Refusal] = {}
    for coordinator, found in (await cluster.coordinators(list(keys))).items():
        if isinstance(found, Refusal):
            refused[coordinator.key] = found
        else:
            by_broker.setdefault(found, []).append(coordinator.key)
    return by_broker, refused


def _is_in_doubt(outcome: object) -> bool:
    """Return whether a request may have been carried out although no response says so."""
    return isinstance(outcome, Refusal) and outcome.error in (ErrorCode.NETWORK_EXCEPTION, ErrorCode.REQUEST_TIMED_OUT)


def _is_transient(outcome: object) -> bool:
    return isinstance(outcome, Refusal) and outcome.error in NOT_FINAL
