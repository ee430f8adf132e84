"""Transactions: list those of all coordinators, describe one, and the producers that a partition's leader knows."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from clients.cluster import Cluster, Coordinator, LeaderAnswers
from clients.errors import require_success
from protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    TopicRequest,
)
from protocol.messages.describe_transactions import DescribeTransactionsRequest, DescribeTransactionsResponse
from protocol.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from protocol.topic_partition import TopicPartition

_NONE: Final = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionListing:
    """A transactional id, as its coordinator lists it."""

    transactional_id: str
    producer_id: int
    state: str
    coordinator: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionDescription:
    """A transactional id; ``start_ms`` and ``partitions`` belong to the transaction that is open or being ended."""

    transactional_id: str
    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    start_ms: int | None
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ActiveProducer:
    """A producer that wrote to a partition lately; with the offset where its open transaction began, if one is."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp: int
    coordinator_epoch: int | None
    transaction_start_offset: int | None


async def list_transactions(
    cluster: Cluster,
    *,
    states: Sequence[str] = (),
    producer_ids: Sequence[int] = (),
    running_longer_than_ms: int | None = None,
) -> list[TransactionListing]:
    """The transactional ids of all coordinators, by id."""
    request = ListTransactionsRequest(
        state_filters=list(states),
        producer_id_filters=list(producer_ids),
        duration_filter=_NONE if running_longer_than_ms is None else running_longer_than_ms,
    )
    found = []
    answers = await cluster.call_every_broker(request, ListTransactionsResponse, lambda r: [r.error_code])
    for node_id, response in answers:
        require_success(f"broker {node_id}", response.error_code)
        found += [
            TransactionListing(
                transactional_id=listed.transactional_id,
                producer_id=listed.producer_id,
                state=listed.transaction_state,
                coordinator=node_id,
            )
            for listed in response.transaction_states
        ]
    return sorted(found, key=lambda listed: listed.transactional_id)


async def describe_transaction(cluster: Cluster, transactional_id: str) -> TransactionDescription:
    """One transactional id. Raises ``BrokerRefused``."""
    response = await cluster.call(
        Coordinator.of_transactional_id(transactional_id),
        DescribeTransactionsRequest(transactional_ids=[transactional_id]),
        DescribeTransactionsResponse,
        errors=lambda r: [state.error_code for state in r.transaction_states],
    )
    state = response.transaction_states[0]
    require_success(f"transactional id {transactional_id}", state.error_code)
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


async def describe_producers(
    cluster: Cluster, partitions: Iterable[TopicPartition]
) -> LeaderAnswers[tuple[ActiveProducer, ...]]:
    """The producers that the leader of each partition knows."""
    return await cluster.call_leaders(
        dict.fromkeys(partitions), _describe_producers_request, DescribeProducersResponse, _split_producers
    )


def _describe_producers_request(partitions: Mapping[TopicPartition, None]) -> DescribeProducersRequest:
    topics: dict[str, TopicRequest] = {}
    for name, partition in partitions:
        topics.setdefault(name, TopicRequest(name=name)).partition_indexes.append(partition)
    return DescribeProducersRequest(topics=list(topics.values()))


def _split_producers(
    response: DescribeProducersResponse,
) -> Iterable[tuple[TopicPartition, int, tuple[ActiveProducer, ...]]]:
    for topic in response.topics:
        for partition in topic.partitions:
            producers = tuple(
                ActiveProducer(
                    producer_id=producer.producer_id,
                    producer_epoch=producer.producer_epoch,
                    last_sequence=producer.last_sequence,
                    last_timestamp=producer.last_timestamp,
                    coordinator_epoch=None if producer.coordinator_epoch == _NONE else producer.coordinator_epoch,
                    transaction_start_offset=(
                        None if producer.current_txn_start_offset == _NONE else producer.current_txn_start_offset
                    ),
                )
                for producer in partition.active_producers
            )
            yield TopicPartition(topic.name, partition.partition_index), partition.error_code, producers
