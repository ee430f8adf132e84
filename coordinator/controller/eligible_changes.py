"""Deciding again about partitions whose leader depends on settings of the cluster, when these have changed.

The minimum of the ISR may be lower now, the strategy of an unclean recovery another one, or the cluster may keep
eligible replicas no more.
"""

from oncelog.coordinator.controller.cluster_image import NO_LEADER
from oncelog.coordinator.controller.controller_context import ControllerContext
from oncelog.coordinator.controller.partition_states import elect
from oncelog.coordinator.controller.propagation import send_changes
from oncelog.coordinator.metadata_store.znodes import PartitionState


async def decide_eligible(context: ControllerContext) -> None:
    """Decide anew the states of all partitions that have no leader or remember eligible replicas."""
    state = context.state
    concerned = [
        partition
        for partition in state.partitions()
        if (known := state.state(partition)) is not None and depends_on_settings(known.state)
    ]
    elected = await elect(context, concerned)
    await send_changes(context, elected, elected)


def depends_on_settings(state: PartitionState) -> bool:
    """Return whether other settings could change the state."""
    return state.leader == NO_LEADER or bool(state.elr or state.last_known_elr)
