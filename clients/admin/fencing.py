"""Fencing of producers by an administrator, which aborts their open transactions.

The request is the first one of a successor (InitProducerId): the coordinator bumps the epoch, aborts an open
transaction on every partition and in every group of it, and from then on refuses all requests of the fenced producer.
Java's ``Admin.fenceProducers`` and ``Admin.forceTerminateTransaction`` (KIP-939) do the same.

InitProducerId creates a transactional id that does not exist yet, and changes the time-out of one that does. So the id
is described first: an unknown id is refused, and the time-out stays as it is where the broker allows that.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from oncelog.clients.admin.transactions import TransactionDescription, describe_transaction, describe_transactions
from oncelog.clients.cluster import Cluster
from oncelog.clients.errors import Refusal, refusal
from oncelog.clients.routes import Coordinator
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

_FALLBACK_TIMEOUT_MS: Final = 30_000
"""The time-out for an id whose own the broker no longer allows, such as that of a two-phase commit."""
_NEWEST_WITHOUT_TWO_PHASE_COMMIT: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Fencing:
    """A fenced transactional id: its state before, and the producer id and epoch that it has now."""

    before: TransactionDescription
    producer_id: int
    producer_epoch: int


async def fence_producers(cluster: Cluster, transactional_ids: Sequence[str]) -> dict[str, Fencing | Refusal]:
    """Fence the producers with these transactional ids, and abort their open transactions.

    Returns when the aborts are complete; CONCURRENT_TRANSACTIONS means that one was not within the operation's time,
    TRANSACTIONAL_ID_NOT_FOUND that there is no such id.
    """
    outcomes: dict[str, Fencing | Refusal] = {}
    for transactional_id, before in (await describe_transactions(cluster, transactional_ids)).items():
        outcomes[transactional_id] = before if isinstance(before, Refusal) else await _fence(cluster, before)
    return outcomes


async def force_terminate_transaction(cluster: Cluster, transactional_id: str) -> Fencing:
    """Fence the producer with a transactional id, and abort its open transaction. Raises ``BrokerRefused``."""
    outcome = await _fence(cluster, await describe_transaction(cluster, transactional_id))
    if isinstance(outcome, Refusal):
        raise outcome.as_error(f"transactional id {transactional_id}")
    return outcome


async def _fence(cluster: Cluster, before: TransactionDescription) -> Fencing | Refusal:
    response = await _init_producer_id(cluster, before.transactional_id, before.timeout_ms)
    if response.error_code == ErrorCode.INVALID_TRANSACTION_TIMEOUT:
        response = await _init_producer_id(cluster, before.transactional_id, _FALLBACK_TIMEOUT_MS)
    return refusal(response.error_code) or Fencing(
        before=before, producer_id=response.producer_id, producer_epoch=response.producer_epoch
    )


async def _init_producer_id(cluster: Cluster, transactional_id: str, timeout_ms: int) -> InitProducerIdResponse:
    return await cluster.call(
        Coordinator.of_transactional_id(transactional_id),
        InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=timeout_ms),
        InitProducerIdResponse,
        errors=lambda response: [response.error_code],
        at_most=_NEWEST_WITHOUT_TWO_PHASE_COMMIT,
    )
