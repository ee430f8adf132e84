"""A broker that is about to stop: its leaderships go to others first, so that clients need not wait for them.

From now on it leads nothing, and is in no ISR, where another in-sync replica can take its place; nothing brings it back
until it registers anew. Partitions that it alone can lead remain until it is gone. (Kafka: ``doControlledShutdown``.)
"""

import logging

from oncelog.coordinator.controller.leadership import UncleanAllowed, elect, tell
from oncelog.coordinator.controller.reign import Reign
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.controlled_shutdown import (
    ControlledShutdownRequest,
    ControlledShutdownResponse,
    RemainingPartition,
)

logger = logging.getLogger(__name__)

_UNKNOWN_EPOCH = -1


async def move_leaderships_away(
    reign: Reign, request: ControlledShutdownRequest, unclean_allowed: UncleanAllowed
) -> ControlledShutdownResponse:
    """Do what can be done, and name the partitions that the broker still leads although they have other replicas."""
    broker_id = request.broker_id
    broker = reign.state.brokers.get(broker_id)
    if broker is None:
        return ControlledShutdownResponse(error_code=ErrorCode.BROKER_NOT_AVAILABLE)
    if request.broker_epoch != _UNKNOWN_EPOCH and request.broker_epoch < broker.epoch:
        return ControlledShutdownResponse(error_code=ErrorCode.STALE_BROKER_EPOCH)
    logger.info("Broker %d is about to stop", broker_id)
    reign.state.leaving.add(broker_id)
    partitions = list(reign.state.partitions_on(broker_id))
    elected = await elect(reign, partitions, unclean_allowed)
    await tell(reign, elected, elected)
    remaining = []
    for partition in partitions:
        versioned = reign.state.state(partition)
        has_others = len(reign.state.replicas(partition).replicas) > 1
        if has_others and versioned is not None and versioned.state.leader == broker_id:
            remaining.append(RemainingPartition(topic_name=partition.topic, partition_index=partition.partition))
    return ControlledShutdownResponse(remaining_partitions=remaining)
