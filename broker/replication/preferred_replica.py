"""Which replica a consumer should read from: the leader, or a follower in the consumer's own rack (KIP-392)."""

from collections.abc import Mapping
from typing import Final

from oncelog.broker.replication.leading_partition import LeadingPartition
from oncelog.coordinator.controller.cluster_image import BrokerImage

NO_PREFERENCE: Final = -1


def preferred_read_replica(
    partition: LeadingPartition, brokers: Mapping[int, BrokerImage], leader_id: int, rack_id: str, offset: int
) -> int:
    """Return the farthest in-sync follower in the rack; -1 if the leader is there too, or no follower has the offset.

    A follower out of sync may stay behind for ever, and its consumers with it.
    """
    leader = brokers.get(leader_id)
    if leader is None or leader.rack == rack_id:
        return NO_PREFERENCE
    nearby = [
        (follower.end, follower.last_caught_up_ms, broker)
        for broker, follower in partition.progress.followers.items()
        if broker in partition.progress.in_sync.isr
        and 0 <= follower.log_start_offset <= offset <= follower.end
        and (image := brokers.get(broker)) is not None
        and image.rack == rack_id
    ]
    return max(nearby)[2] if nearby else NO_PREFERENCE
