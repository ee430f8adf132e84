"""Transactional ids as their coordinators know them: list those of all coordinators, describe some (KIP-664)."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from oncelog.clients.admin.coordinators import call_coordinators
from oncelog.clients.admin.listings import list_of_all_brokers
from oncelog.clients.cluster import Cluster
from oncelog.clients.errors import Refusal, refusal
from oncelog.clients.routes import Coordinator
from oncelog.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
)
from oncelog.protocol.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from oncelog.protocol.topic_partition import TopicPartition

ONGOING: Final = "Ongoing"
STATES: Final = {
    0: "Empty",
    1: "Ongoing",
    2: "PrepareCommit",
    3: "PrepareAbort",
    4: "CompleteCommit",
    5: "CompleteAbort",
    6: "Dead",
    7: "PrepareEpochFence",
}
"""The status byte of each state, with its name in DescribeTransactions (Kafka's TransactionState)."""
_NONE: Final = -1
_FIRST_WITH_DURATION: Final = 1
_FIRST_WITH_PATTERN: Final = 2
"""The first versions of ListTransactions with the filters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionListing:
    """A transactional id in the list of its coordinator."""

    transactional_id: str
    coordinator: int
    producer_id: int
    state: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionDescription:
    """A transactional id; ``start_ms`` and ``partitions`` are those of the transaction that is open or ends.

    While it ends, ``partitions`` are those that have no marker yet.
    """

    transactional_id: str
    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    start_ms: int | None
    partitions: tuple[TopicPartition, ...]


async def list_transactions(
    cluster: Cluster,
    *,
    states: Sequence[str] = (),
    producer_ids: Sequence[int] = (),
    running_longer_than_ms: int | None = None,
    transactional_id_pattern: str | None = None,
) -> list[TransactionListing]:
    """Return the transactional ids of all coordinators, in the order of the ids. Raises ``BrokerRefused``.

    The filters by duration (KIP-994) and by an RE2 pattern that the whole id must match (KIP-1152) are newer: raises
    ``VersionNotSupported`` for a broker without them.
    """

    def listings(node_id: int, response: ListTransactionsResponse) -> Iterable[TransactionListing]:
        return (
            TransactionListing(
                transactional_id=listed.transactional_id,
                coordinator=node_id,
                producer_id=listed.producer_id,
                state=listed.transaction_state,
            )
            for listed in response.transaction_states
        )

    request = ListTransactionsRequest(
        state_filters=list(states),
        producer_id_filters=list(producer_ids),
        duration_filter=_NONE if running_longer_than_ms is None else running_longer_than_ms,
        transactional_id_pattern=transactional_id_pattern,
    )
    found = await list_of_all_brokers(
        cluster,
        request,
        ListTransactionsResponse,
        lambda r: r.error_code,
        listings,
        at_least=_oldest_version(running_longer_than_ms, transactional_id_pattern),
    )
    return sorted(found, key=lambda listed: listed.transactional_id)


def _oldest_version(running_longer_than_ms: int | None, transactional_id_pattern: str | None) -> int:
    """Return the first version that has the filters."""
    if transactional_id_pattern is not None:
        return _FIRST_WITH_PATTERN
    return 0 if running_longer_than_ms is None else _FIRST_WITH_DURATION


async def describe_transaction(cluster: Cluster, transactional_id: str) -> TransactionDescription:
    """Return one transactional id. Raises ``BrokerRefused``."""
    described = (await describe_transactions(cluster, [transactional_id]))[transactional_id]
    if isinstance(described, Refusal):
        raise described.as_error(f"transactional id {transactional_id}")
    return described


async def describe_transactions(
    cluster: Cluster, transactional_ids: Iterable[str]
) -> dict[str, TransactionDescription | Refusal]:
    """Return transactional ids; an unknown one is refused with TRANSACTIONAL_ID_NOT_FOUND."""
    described = await call_coordinators(
        cluster,
        map(Coordinator.of_transactional_id, transactional_ids),
        lambda some: DescribeTransactionsRequest(transactional_ids=list(some)),
        DescribeTransactionsResponse,
        lambda response: ((state.transactional_id, _description(state)) for state in response.transaction_states),
    )
    return described.outcomes


def _description(state: TransactionState) -> TransactionDescription | Refusal:
    refused = refusal(state.error_code)
    if refused is not None:
        return refused
    partitions = [TopicPartition(topic.topic, partition) for topic in state.topics for partition in topic.partitions]
    return TransactionDescription(
        transactional_id=state.transactional_id,
        state=state.transaction_state,
        producer_id=state.producer_id,
        producer_epoch=state.producer_epoch,
        timeout_ms=state.transaction_timeout_ms,
        start_ms=None if state.transaction_start_time_ms == _NONE else state.transaction_start_time_ms,
        partitions=tuple(sorted(partitions)),
    )
