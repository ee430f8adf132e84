"""What consumer groups have committed, and how far behind that is, from this broker's logs and from other leaders."""

import asyncio
from functools import partial
from typing import Final

from oncelog.broker.metrics.exposition import Families
from oncelog.broker.metrics.group_metrics import GroupOffsets, committed_offsets, group_offset_metrics
from oncelog.broker.parts import Broker
from oncelog.broker.peers.partition_ends import PartitionEnds
from oncelog.broker.replication.replica_manager import ReplicaManager
from oncelog.protocol.topic_partition import TopicPartition

_OFFSETS_AT_ONCE: Final = 5_000
"""Looked at in one turn of the loop."""


async def consumer_families(broker: Broker, ends: PartitionEnds | None) -> Families:
    """Return the offsets of the groups that this broker coordinates; ``ends``: None if no other broker leads any."""
    replicas = broker.replica_manager
    offsets = await committed_offsets(broker.group_coordinator)
    elsewhere = {} if ends is None else await ends.of(await _not_here(replicas, offsets))
    return group_offset_metrics(offsets, partial(_end_of, replicas, elsewhere))


async def _not_here(replicas: ReplicaManager, offsets: GroupOffsets) -> set[TopicPartition]:
    """Return the partitions of which this broker has no replica."""
    found: set[TopicPartition] = set()
    for start in range(0, len(offsets.shown), _OFFSETS_AT_ONCE):
        part = offsets.shown[start : start + _OFFSETS_AT_ONCE]
        found.update([row.partition for row in part if _end_here(replicas, row.partition) is None])
        await asyncio.sleep(0)
    return found


def _end_of(
    replicas: ReplicaManager, elsewhere: dict[TopicPartition, int], topic_partition: TopicPartition
) -> int | None:
    end = _end_here(replicas, topic_partition)
    return elsewhere.get(topic_partition) if end is None else end


def _end_here(replicas: ReplicaManager, topic_partition: TopicPartition) -> int | None:
    partition = replicas.partition(topic_partition)
    log = None if partition is None else partition.readable_log
    return None if log is None else log.high_watermark
