"""Brokers that come and go: what the controller does about it.

The registrations are read again and compared with those that are known. A broker whose registration is another one than
before went and came: both happen, in that order, so that it leaves every ISR that another member can hold.
"""

import logging
from dataclasses import dataclass

from oncelog.coordinator.controller.cluster_loading import read_brokers
from oncelog.coordinator.controller.cluster_state import LiveBroker
from oncelog.coordinator.controller.leadership import UncleanAllowed, elect, tell, tell_all_metadata
from oncelog.coordinator.controller.reign import Reign
from oncelog.coordinator.metadata_store.store import Watch

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerChanges:
    """The difference between the brokers that were known and those that are registered."""

    stopped: frozenset[int]
    started: frozenset[int]
    modified: frozenset[int]
    """The same life of a broker, but another address or rack."""


def compare(known: dict[int, LiveBroker], registered: dict[int, LiveBroker]) -> BrokerChanges:
    staying = {
        broker_id
        for broker_id in known.keys() & registered.keys()
        if known[broker_id].epoch == registered[broker_id].epoch
    }
    return BrokerChanges(
        stopped=frozenset(known.keys() - staying),
        started=frozenset(registered.keys() - staying),
        modified=frozenset(broker_id for broker_id in staying if known[broker_id] != registered[broker_id]),
    )


async def follow_broker_changes(reign: Reign, changed: Watch, unclean_allowed: UncleanAllowed) -> BrokerChanges:
    """Find out what changed, and give every concerned partition the leader and ISR that it needs now."""
    registered = await read_brokers(reign.session, reign.state, changed)
    changes = compare(reign.state.brokers, registered)
    if changes.stopped:
        await _on_stopped(reign, changes, unclean_allowed)
    if changes.started or changes.modified:
        reign.state.brokers = registered
        await _on_started(reign, changes, unclean_allowed)
    return changes


async def _on_stopped(reign: Reign, changes: BrokerChanges, unclean_allowed: UncleanAllowed) -> None:
    logger.info("Brokers that are gone: %s", sorted(changes.stopped))
    concerned = [p for broker_id in sorted(changes.stopped) for p in reign.state.partitions_on(broker_id)]
    for broker_id in changes.stopped:
        reign.state.remove_broker(broker_id)
        reign.forget(broker_id)
    elected = await elect(reign, dict.fromkeys(concerned), unclean_allowed)
    await tell(reign, elected, concerned)


async def _on_started(reign: Reign, changes: BrokerChanges, unclean_allowed: UncleanAllowed) -> None:
    logger.info("Brokers that are new: %s, changed: %s", sorted(changes.started), sorted(changes.modified))
    concerned = [p for broker_id in sorted(changes.started) for p in reign.state.partitions_on(broker_id)]
    await elect(reign, dict.fromkeys(concerned), unclean_allowed)
    tell_all_metadata(reign, changes.started)
    await tell(reign, concerned, concerned)
