"""An abort marker in one partition, without the transaction's coordinator (WriteTxnMarkers, KIP-664).

It is for transactions that no coordinator has. A coordinator that has the transaction could still commit the rest of
it, which leaves a torn transaction: ``oncelog.clients.admin.transaction_abort`` excludes that, and is the safe way.

The marker is one of transaction version 0, as Java's ``Admin.abortTransaction`` writes it (AbortTransactionHandler): it
carries the producer's own epoch, which the strict rule of version 2 (a marker's epoch is greater than its batches')
would refuse. A greater epoch must not be invented here: it would fence a producer whose coordinator does not know it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from oncelog.clients.checked_fields import checked_fields
from oncelog.clients.cluster import Cluster
from oncelog.clients.errors import Refusal
from oncelog.clients.fan_out import call_leaders
from oncelog.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from oncelog.protocol.topic_partition import TopicPartition


@checked_fields()
@dataclass(frozen=True, slots=True, kw_only=True)
class AbortMarker:
    """The identity of a transaction, from ``describe_producers``."""

    topic_partition: TopicPartition
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int | None
    """The coordinator epoch of the producer's last marker in the partition. Without one the marker has 0, the smallest
    epoch of a coordinator (Kafka's TransactionsCommand)."""


async def write_abort_marker(cluster: Cluster, marker: AbortMarker) -> Refusal | None:
    """Have the partition's leader write an abort marker; ``prepare_abort`` is the safe way to abort.

    Needs ALTER or CLUSTER_ACTION on the cluster. Refused with INVALID_PRODUCER_EPOCH if the partition knows a newer
    epoch of the producer, and with TRANSACTION_COORDINATOR_FENCED if it knows a newer epoch of its coordinator.
    """

    def build(partitions: Mapping[TopicPartition, None]) -> WriteTxnMarkersRequest:
        topics = [WritableTxnMarkerTopic(name=tp.topic, partition_indexes=[tp.partition]) for tp in partitions]
        written = WritableTxnMarker(
            producer_id=marker.producer_id,
            producer_epoch=marker.producer_epoch,
            transaction_result=False,
            topics=topics,
            coordinator_epoch=marker.coordinator_epoch or 0,
        )
        return WriteTxnMarkersRequest(markers=[written])

    results = await call_leaders(cluster, {marker.topic_partition: None}, build, WriteTxnMarkersResponse, _split)
    return results.refusals.get(marker.topic_partition)


def _split(response: WriteTxnMarkersResponse) -> Iterable[tuple[TopicPartition, int, None]]:
    for marker in response.markers:
        for topic in marker.topics:
            for partition in topic.partitions:
                yield TopicPartition(topic.name, partition.partition_index), partition.error_code, None
