"""Deciding again about partitions that remember eligible leader replicas, when the rules have changed.

The minimum of the ISR may be lower now, or the cluster may keep eligible replicas no more.
"""

from oncelog.coordinator.controller.controller_context import ControllerContext
from oncelog.coordinator.controller.partition_states import elect
from oncelog.coordinator.controller.propagation import send_changes


async def decide_eligible(context: ControllerContext) -> None:
    """Decide the states of all partitions that remember eligible replicas by the present rules."""
    state = context.state
    concerned = [
        partition
        for partition in state.partitions()
        if (known := state.state(partition)) is not None and (known.state.elr or known.state.last_leader is not None)
    ]
    elected = await elect(context, concerned)
    await send_changes(context, elected, elected)
