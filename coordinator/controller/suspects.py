"""Brokers that are registered and cannot be reached: passed over while that lasts, trusted when they answer again.

To be passed over means: wherever another in-sync replica is up, that one leads, and the suspect is in no ISR; nothing
brings it back, and clients are not sent to it. All of that is conditional writes and new leader epochs, so a suspicion
that was wrong costs a moment, and nothing else. Where the suspect is the only one that could lead, it stays the leader.

A suspect is told everything as before. It is trusted as soon as it accepts LeaderAndIsr, which says that it has heard
what was taken from it; a broker without replicas gets none, and is trusted when it answers anything.
"""

import logging

from coordinator.controller.leadership import UncleanAllowed, elect, tell, tell_leaderships
from coordinator.controller.reign import Reign
from protocol.messages.leader_and_isr import LeaderAndIsrResponse
from protocol.messages.update_metadata import UpdateMetadataResponse
from protocol.schema import Message

logger = logging.getLogger(__name__)


class Suspects:
    """Those of one reign; ``ClusterState.suspects`` names them."""

    def __init__(self, reign: Reign, unclean_allowed: UncleanAllowed) -> None:
        self._reign = reign
        self._unclean_allowed = unclean_allowed

    def may_be_added(self, broker_id: int) -> bool:
        return broker_id in self._reign.state.brokers and broker_id not in self._reign.state.suspects

    async def add(self, broker_id: int) -> None:
        """Pass a broker over from now on."""
        logger.warning("Broker %d cannot be reached: others lead its partitions, where they can", broker_id)
        reign = self._reign
        reign.state.suspects.add(broker_id)
        concerned = list(reign.state.partitions_on(broker_id))
        elected = await elect(reign, concerned, self._unclean_allowed)
        tell(reign, elected, concerned)
        tell_leaderships(reign, broker_id)  # Something to accept, also if nothing could be taken from it.

    def on_answer(self, broker_id: int, response: Message) -> None:
        """A broker has answered an order."""
        if broker_id not in self._reign.state.suspects:
            return
        match response:
            case LeaderAndIsrResponse(error_code=0):
                self._trust(broker_id)
            case UpdateMetadataResponse(error_code=0) if not any(self._reign.state.partitions_on(broker_id)):
                self._trust(broker_id)

    def _trust(self, broker_id: int) -> None:
        logger.info("Broker %d can be reached again", broker_id)
        self._reign.state.suspects.discard(broker_id)
        tell(self._reign, (), self._reign.state.partitions_on(broker_id))
