"""Fencing producers from outside: somebody else takes their transactional ids, and what they have open is aborted.

It is what a successor's first request does (InitProducerId): the coordinator bumps the epoch, aborts an open
transaction on every partition and in every group that it touched, and refuses whatever the fenced producer sends from
then on. It is all that Java's ``Admin.fenceProducers`` and ``Admin.forceTerminateTransaction`` (KIP-939) do.

InitProducerId makes a transactional id that does not exist yet, and changes the time-out of one that does. So here the
id is looked at first: an unknown one is refused, and the time-out is left as it is where the broker allows that.
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
"""For an id whose own time-out the broker no longer allows, such as that of a two-phase commit."""
_NEWEST_WITHOUT_TWO_PHASE_COMMIT: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Fencing:
    """What became of a transactional id: how it was found, and the producer id and epoch that it has now."""

    before: TransactionDescription
    producer_id: int
    producer_epoch: int


async def fence_producers(cluster: Cluster, transactional_ids: Sequence[str]) -> dict[str, Fencing | Refusal]:
    """Fence whoever uses these transactional ids, and abort what they have open.

    An answer comes when the abort is complete; CONCURRENT_TRANSACTIONS means that it was not within the operation's
    time, TRANSACTIONAL_ID_NOT_FOUND that there is nobody to fence.
    """
    outcomes: dict[str, Fencing | Refusal] = {}
    for transactional_id, before in (await describe_transactions(cluster, transactional_ids)).items():
        outcomes[transactional_id] = before if isinstance(before, Refusal) else await _fence(cluster, before)
    return outcomes


async def force_terminate_transaction(cluster: Cluster, transactional_id: str) -> Fencing:
    """Fence whoever uses a transactional id, and abort what it has open. Raises ``BrokerRefused``."""
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
