"""Writing an abort marker into one partition, past the transaction's coordinator (WriteTxnMarkers, KIP-664).

For transactions that no coordinator knows of. A coordinator that knows of it would go on, commit the rest, and leave a
torn transaction behind: ``oncelog.clients.admin.transaction_abort`` asks it first, and is what users should call.

The marker is one of transaction version 0, as Java's ``Admin.abortTransaction`` writes it (AbortTransactionHandler): it
carries the producer's own epoch, which the strict rule of version 2 (a marker's epoch is greater than its batches')
would refuse. A greater epoch must not be invented here: it would fence a producer whose coordinator does not know it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

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


@dataclass(frozen=True, slots=True, kw_only=True)
class AbortMarker:
    """What identifies the transaction: from ``describe_producers``."""

    topic_partition: TopicPartition
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int | None
    """Of the producer's last marker in the partition. Where there was none the marker says 0: no coordinator's epoch is
    less (Kafka's TransactionsCommand)."""


async def write_abort_marker(cluster: Cluster, marker: AbortMarker) -> Refusal | None:
    """Have the partition's leader write the marker. Needs ALTER or CLUSTER_ACTION on the cluster.

    INVALID_PRODUCER_EPOCH: the partition knows a newer epoch of the producer; TRANSACTION_COORDINATOR_FENCED: of its
    coordinator.
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

    answers = await call_leaders(cluster, {marker.topic_partition: None}, build, WriteTxnMarkersResponse, _split)
    return answers.refusals.get(marker.topic_partition)


def _split(response: WriteTxnMarkersResponse) -> Iterable[tuple[TopicPartition, int, None]]:
    for marker in response.markers:
        for topic in marker.topics:
            for partition in topic.partitions:
                yield TopicPartition(topic.name, partition.partition_index), partition.error_code, None
