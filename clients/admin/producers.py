"""The active producers of a partition, with the start of their open transactions (DescribeProducers, KIP-664)."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from oncelog.clients.admin.named_brokers import require_broker
from oncelog.clients.by_topic import indexes_by_topic
from oncelog.clients.cluster import Cluster
from oncelog.clients.errors import Refusal, error_code
from oncelog.clients.fan_out import call_leaders, send_to_each
from oncelog.clients.partition_results import PartitionResults
from oncelog.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    TopicRequest,
)
from oncelog.protocol.topic_partition import TopicPartition

_NONE: Final = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class ActiveProducer:
    """A producer that wrote to a partition, with the first offset of its open transaction, if it has one."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp: int
    """Timestamp of its last batch or marker, in milliseconds since the epoch, by the clock of its writer."""
    coordinator_epoch: int | None
    """The coordinator epoch of the last marker; None if there was none."""
    transaction_start_offset: int | None


ProducersOfPartitions = PartitionResults[tuple[ActiveProducer, ...]]


async def describe_producers(
    cluster: Cluster, partitions: Collection[TopicPartition], *, broker_id: int | None = None
) -> ProducersOfPartitions:
    """Return the active producers of partitions, from their leaders or from one broker with replicas.

    Raises ``BrokerAbsent`` for a broker that is not in the cluster.
    """
    if broker_id is None:
        items = dict.fromkeys(partitions)
        return await call_leaders(cluster, items, _request, DescribeProducersResponse, _split)
    await require_broker(cluster, broker_id)
    requests = {broker_id: _request(partitions)}
    seconds = cluster.attempts().remaining_seconds
    responses = await send_to_each(cluster, requests, DescribeProducersResponse, seconds)
    response = responses[broker_id]
    if isinstance(response, Refusal):
        return PartitionResults.of({}, dict.fromkeys(partitions, response))
    results = list(_split(response))
    return PartitionResults(
        {tp: producers for tp, error, producers in results if not error},
        {tp: error_code(error) for tp, error, _ in results if error},
    )


def _request(partitions: Collection[TopicPartition] | Mapping[TopicPartition, None]) -> DescribeProducersRequest:
    return DescribeProducersRequest(
        topics=[
            TopicRequest(name=name, partition_indexes=indexes) for name, indexes in indexes_by_topic(partitions).items()
        ]
    )


def _split(response: DescribeProducersResponse) -> Iterable[tuple[TopicPartition, int, tuple[ActiveProducer, ...]]]:
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
