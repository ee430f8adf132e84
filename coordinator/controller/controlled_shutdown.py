"""A broker that is about to stop: its leaderships go to others first, so that clients need not wait for them.

From now on it leads nothing, and is in no ISR, where another in-sync replica can take its place; nothing brings it back
until it registers anew. Partitions that it alone can lead remain until it is gone. (Kafka: ``doControlledShutdown``.)

When all brokers that are left are about to stop, no partition is named: there is no other broker to wait for.
"""

import logging

from oncelog.coordinator.controller.controller_context import ControllerContext
from oncelog.coordinator.controller.partition_states import elect, is_being_deleted
from oncelog.coordinator.controller.propagation import send_changes
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.controlled_shutdown import (
    ControlledShutdownRequest,
    ControlledShutdownResponse,
    RemainingPartition,
)

logger = logging.getLogger(__name__)

_UNKNOWN_EPOCH = -1


async def move_leaderships_away(
    context: ControllerContext, request: ControlledShutdownRequest
) -> ControlledShutdownResponse:
    """Do what can be done, and name the partitions that the broker still leads although others may lead them later."""
    broker_id = request.broker_id
    broker = context.state.brokers.get(broker_id)
    if broker is None:
        return ControlledShutdownResponse(error_code=ErrorCode.BROKER_NOT_AVAILABLE)
    if request.broker_epoch != _UNKNOWN_EPOCH and request.broker_epoch < broker.epoch:
        return ControlledShutdownResponse(error_code=ErrorCode.STALE_BROKER_EPOCH)
    logger.info("Broker %d is about to stop", broker_id)
    context.state.shutting_down.add(broker_id)
    partitions = list(context.state.partitions_on(broker_id))
    elected = await elect(context, partitions)
    await send_changes(context, elected, elected)
    if context.state.brokers.keys() <= context.state.shutting_down:
        return ControlledShutdownResponse()
    remaining = []
    for partition in partitions:
        if is_being_deleted(context, partition):
            continue  # No broker is to lead it any more.
        versioned = context.state.state(partition)
        has_others = len(context.state.replicas(partition).replicas) > 1
        if has_others and versioned is not None and versioned.state.leader == broker_id:
            remaining.append(RemainingPartition(topic_name=partition.topic, partition_index=partition.partition))
    return ControlledShutdownResponse(remaining_partitions=remaining)
