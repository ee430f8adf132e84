"""Asking the coordinators of several groups, or of several transactional ids: one request to each broker concerned.

The answer has every key that was asked about, with what its coordinator said or with a ``Refusal``. Refusals that pass
(a coordinator that moved, or that is loading) are asked again until the operation's time is up.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Final, TypeAlias, TypeVar

from oncelog.clients.cluster import NOT_FINAL, Cluster
from oncelog.clients.errors import Refusal
from oncelog.clients.fan_out import send_to_each
from oncelog.clients.routes import Coordinator
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.schema import Message

R = TypeVar("R", bound=Message)
Answer = TypeVar("Answer")

Split: TypeAlias = Callable[[R], Iterable[tuple[str, Refusal | Answer]]]
"""Yields (key, answer or refusal) for each key in a response."""

_LEFT_OUT: Final = Refusal(error=ErrorCode.UNKNOWN_SERVER_ERROR, message="the coordinator did not say")


async def call_coordinators(
    cluster: Cluster,
    keys: Iterable[Coordinator],
    build: Callable[[Sequence[str]], Message],
    response_type: type[R],
    split: Split[R, Answer],
    *,
    at_least: int = 0,
    at_most: int | None = None,
    maybe_done: set[str] | None = None,
) -> dict[str, Answer | Refusal]:
    """Ask each key's coordinator. ``build`` makes the request for some of the keys.

    ``at_least`` and ``at_most`` bound its version. Keys whose request may have been carried out although no response
    came are added to ``maybe_done``.
    """
    retry = cluster.attempts()
    pending = {coordinator.key: coordinator for coordinator in keys}
    answers: dict[str, Answer | Refusal] = {}
    while pending:
        by_broker, refused = await _sort_by_broker(cluster, pending.values())
        answers.update(refused)
        requests = {node_id: build(asked) for node_id, asked in by_broker.items()}
        responses = await send_to_each(
            cluster, requests, response_type, retry.attempt_seconds, at_least=at_least, at_most=at_most
        )
        for node_id, response in responses.items():
            if isinstance(response, Refusal):
                answers.update(dict.fromkeys(by_broker[node_id], response))
            else:
                answers.update(dict.fromkeys(by_broker[node_id], _LEFT_OUT))
                answers.update(split(response))
        if maybe_done is not None:
            maybe_done |= {key for key in pending if _is_in_doubt(answers[key])}
        pending = {key: coordinator for key, coordinator in pending.items() if _passes(answers[key])}
        for coordinator in pending.values():
            cluster.forget_coordinator(coordinator)
        if pending and not await retry.pause():
            break
    return answers


async def _sort_by_broker(
    cluster: Cluster, keys: Iterable[Coordinator]
) -> tuple[dict[int, list[str]], dict[str, Refusal]]:
    """The keys that each broker coordinates, and a refusal for those that nobody does."""
    by_broker: dict[int, list[str]] = {}
    refused: dict[str, Refusal] = {}
    for coordinator, found in (await cluster.coordinators(list(keys))).items():
        if isinstance(found, Refusal):
            refused[coordinator.key] = found
        else:
            by_broker.setdefault(found, []).append(coordinator.key)
    return by_broker, refused


def _is_in_doubt(answer: object) -> bool:
    """Whether a request may have been carried out although there is no response that says so."""
    return isinstance(answer, Refusal) and answer.error in (ErrorCode.NETWORK_EXCEPTION, ErrorCode.REQUEST_TIMED_OUT)


def _passes(answer: object) -> bool:
    return isinstance(answer, Refusal) and answer.error in NOT_FINAL
