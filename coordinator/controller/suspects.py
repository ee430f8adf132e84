"""Brokers that are registered and cannot be reached: passed over while that lasts, trusted when they answer again.

To be passed over means: wherever another in-sync replica is up, that one leads, and the suspect is in no ISR; nothing
brings it back, and clients are not sent to it. All of that is conditional writes and new leader epochs, so a suspicion
that was wrong costs a moment, and nothing else. Where the suspect is the only one that could lead, it stays the leader.

A suspect is told everything as before. When it accepts LeaderAndIsr it has heard what was taken from it; a broker
without replicas gets none, and any response will do. It is trusted once it has been reachable for some seconds since
then: a link that comes and goes would otherwise raise the leader epochs of all its partitions each time.
"""

import asyncio
import logging
from collections.abc import Callable

from oncelog.coordinator.controller.leadership import (
    UncleanAllowed,
    elect,
    tell,
    tell_leaderships,
    tell_leaderships_now,
    tell_now,
)
from oncelog.coordinator.controller.reign import Reign
from oncelog.protocol.messages.leader_and_isr import LeaderAndIsrResponse
from oncelog.protocol.messages.update_metadata import UpdateMetadataResponse
from oncelog.protocol.schema import Message

logger = logging.getLogger(__name__)


class Suspects:
    """Those of one reign; ``ClusterState.suspects`` names them."""

    def __init__(self, reign: Reign, unclean_allowed: UncleanAllowed, steady_seconds: Callable[[int], float]) -> None:
        """``steady_seconds``: for how long a suspect must be reachable before it is trusted."""
        self._reign = reign
        self._unclean_allowed = unclean_allowed
        self._steady_seconds = steady_seconds
        self._on_probation: dict[int, asyncio.TimerHandle] = {}
        """Suspects that respond, and when they will be trusted."""

    def may_be_added(self, broker_id: int) -> bool:
        return broker_id in self._reign.state.brokers and broker_id not in self._reign.state.suspects

    async def add(self, broker_id: int) -> None:
        """Pass a broker over from now on."""
        logger.warning("Broker %d cannot be reached: others lead its partitions, where they can", broker_id)
        reign = self._reign
        self._end_probation(broker_id)  # Of a former registration.
        reign.suspect(broker_id)
        concerned = list(reign.state.partitions_on(broker_id))
        elected = await elect(reign, concerned, self._unclean_allowed)
        await tell(reign, elected, concerned)
        await tell_leaderships(reign, broker_id)  # Something to accept, also if nothing could be taken from it.

    def still_unreachable(self, broker_id: int) -> None:
        """A suspect could not be reached again: its probation, if it has begun, is over."""
        if self._end_probation(broker_id):
            tell_leaderships_now(self._reign, broker_id)  # Something to accept when it is back.

    def on_response(self, broker_id: int, response: Message) -> None:
        """A broker has responded to an order: put it on probation if it is a suspect."""
        if broker_id not in self._reign.state.suspects or broker_id in self._on_probation:
            return
        match response:
            case LeaderAndIsrResponse(error_code=0):
                self._begin_probation(broker_id)
            case UpdateMetadataResponse(error_code=0) if not any(self._reign.state.partitions_on(broker_id)):
                self._begin_probation(broker_id)

    def end(self) -> None:
        for timer in self._on_probation.values():
            timer.cancel()
        self._on_probation.clear()

    def _end_probation(self, broker_id: int) -> bool:
        """End a broker's probation without trusting it. Returns whether there was one."""
        timer = self._on_probation.pop(broker_id, None)
        if timer is not None:
            timer.cancel()
        return timer is not None

    def _begin_probation(self, broker_id: int) -> None:
        seconds = self._steady_seconds(broker_id)
        logger.info("Broker %d responds again: trusted after %g s without interruption", broker_id, seconds)
        self._on_probation[broker_id] = asyncio.get_running_loop().call_later(seconds, self._trust, broker_id)

    def _trust(self, broker_id: int) -> None:
        del self._on_probation[broker_id]
        if self._reign.is_active and broker_id in self._reign.state.suspects:
            logger.info("Broker %d can be reached again", broker_id)
            self._reign.state.suspects.discard(broker_id)
            tell_now(self._reign, (), self._reign.state.partitions_on(broker_id))
