"""Brokers that are registered and cannot be reached: replaced as leaders until they respond again.

Wherever another in-sync replica is up, that one leads and the unreachable broker is in no ISR; it does not return, and
clients are not sent to it. All of that is conditional writes and new leader epochs, so a broker that was taken for
unreachable by mistake costs a moment, and nothing else. Where it is the only replica that could lead, it remains the
leader.

An unreachable broker is sent all requests as before. When it responds to LeaderAndIsr it knows what it leads no more; a
broker without replicas gets none, and any response will do. It is trusted after it has been reachable for some seconds
since then (its probation): a link that comes and goes would otherwise raise the leader epochs of all its partitions
each time. Where a partition refuses writes without it, because other brokers are gone, it is trusted at once.
"""

import asyncio
import logging
from collections.abc import Callable, Collection

from oncelog.coordinator.controller.controller_context import ControllerContext
from oncelog.coordinator.controller.partition_states import elect
from oncelog.coordinator.controller.propagation import (
    has_leaderships,
    send_changes,
    send_changes_now,
    send_leaderships,
    send_leaderships_now,
    send_live_brokers,
)
from oncelog.coordinator.controller.unreachable_backoff import FIRST_PAUSE_SECONDS, UnreachableBackoff
from oncelog.protocol.messages.leader_and_isr import LeaderAndIsrResponse
from oncelog.protocol.messages.update_metadata import UpdateMetadataResponse
from oncelog.protocol.schema import Message
from oncelog.protocol.topic_partition import TopicPartition

logger = logging.getLogger(__name__)


class UnreachableBrokers:
    """The unreachable brokers of one controller epoch; ``ClusterState.unreachable`` has their ids."""

    def __init__(
        self, context: ControllerContext, backoff: UnreachableBackoff, on_trusted: Callable[[int], None]
    ) -> None:
        """Begin without any; ``on_trusted`` is called with a broker that can be reached again."""
        self._context = context
        self._on_trusted = on_trusted
        self.backoff = backoff
        """Outlives the epoch."""
        self._on_probation: dict[int, asyncio.TimerHandle] = {}
        """Brokers that respond again, and the timer that ends their probation."""

    async def report(self, broker_id: int, now: float) -> None:
        """Replace a broker that cannot be reached at the time ``now`` of the loop, unless it is backed off."""
        self._still_unreachable(broker_id)
        state = self._context.state
        if broker_id in state.brokers.keys() - state.unreachable and self.backoff.allows(broker_id, now):
            self.backoff.note(broker_id, now)
            await self._add(broker_id)

    async def _add(self, broker_id: int) -> None:
        logger.warning("Broker %d cannot be reached: others lead its partitions, where they can", broker_id)
        context = self._context
        self._end_probation(broker_id)  # Of a former registration.
        context.mark_unreachable(broker_id)
        concerned = list(context.state.partitions_on(broker_id))
        elected = await elect(context, concerned)
        await send_changes(context, elected, concerned)
        await send_leaderships(context, broker_id)  # Its response begins the probation, also if it leads as before.

    def _still_unreachable(self, broker_id: int) -> None:
        if self._end_probation(broker_id):  # The response to one of these begins the next probation.
            send_leaderships_now(self._context, broker_id)
            send_live_brokers(self._context, broker_id)

    def on_response(self, broker_id: int, response: Message) -> None:
        """Put an unreachable broker that has responded to a control request on probation."""
        if broker_id not in self._context.state.unreachable or broker_id in self._on_probation:
            return
        match response:
            case LeaderAndIsrResponse(error_code=0):
                self._begin_probation(broker_id)
            case UpdateMetadataResponse(error_code=0) if not has_leaderships(self._context, broker_id):
                self._begin_probation(broker_id)

    def end(self) -> None:
        """Stop all timers: the controller epoch has ended."""
        for timer in self._on_probation.values():
            timer.cancel()
        self._on_probation.clear()

    def _end_probation(self, broker_id: int) -> bool:
        """End a broker's probation without trusting it; return whether there was one."""
        timer = self._on_probation.pop(broker_id, None)
        if timer is not None:
            timer.cancel()
        return timer is not None

    def _begin_probation(self, broker_id: int) -> None:
        seconds = self.backoff.steady_seconds(broker_id)
        logger.info("Broker %d responds again: trusted after %g s without interruption", broker_id, seconds)
        self._on_probation[broker_id] = asyncio.get_running_loop().call_later(seconds, self._trust, broker_id)
        state = self._context.state
        if any(state.is_needed(broker_id, partition) for partition in state.partitions_on(broker_id)):
            self._trust_early(broker_id)

    def on_probation(self) -> Collection[int]:
        """Return the brokers that respond again and are not trusted yet."""
        return self._on_probation.keys()

    def note_states(self, *partitions: TopicPartition) -> None:
        """Trust brokers on probation that partitions need, now that these have other states or settings."""
        if self._on_probation:
            needed = self._context.state.is_needed
            for broker_id in self._on_probation:
                if any(needed(broker_id, partition) for partition in partitions):
                    asyncio.get_running_loop().call_soon(self._trust_early, broker_id)

    def _trust_early(self, broker_id: int) -> None:
        if self._end_probation(broker_id):
            self.backoff.end(broker_id, asyncio.get_running_loop().time())
            self._trust(broker_id)

    def _trust(self, broker_id: int) -> None:
        self._on_probation.pop(broker_id, None)
        if self._context.ended:
            return
        if not self._context.is_active:  # The session is in doubt, but the epoch may go on.
            timer = asyncio.get_running_loop().call_later(FIRST_PAUSE_SECONDS, self._trust, broker_id)
            self._on_probation[broker_id] = timer
            return
        if broker_id in self._context.state.unreachable:
            logger.info("Broker %d can be reached again", broker_id)
            self._context.state.unreachable.discard(broker_id)
            send_changes_now(self._context, (), self._context.state.partitions_on(broker_id))
            self._on_trusted(broker_id)
