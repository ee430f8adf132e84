"""Changes of the registered brokers, and the elections that follow.

The registrations are read again and compared with those that are known. A broker that has
another broker epoch than before stopped and started: both are handled, in that order, so that it leaves every ISR that
has another member.
"""

import logging
from typing import NamedTuple

from oncelog.coordinator.controller.cluster_loading import read_brokers
from oncelog.coordinator.controller.cluster_state import LiveBroker
from oncelog.coordinator.controller.controller_context import ControllerContext
from oncelog.coordinator.controller.partition_states import elect
from oncelog.coordinator.controller.propagation import send_changes, send_full_metadata
from oncelog.coordinator.metadata_store.store import Watch

logger = logging.getLogger(__name__)


class BrokerChanges(NamedTuple):
    """The difference between the brokers that were known and those that are registered."""

    stopped: frozenset[int]
    started: frozenset[int]
    modified: frozenset[int]
    """Of the same broker epoch, but with another address or rack."""


def compare(known: dict[int, LiveBroker], registered: dict[int, LiveBroker]) -> BrokerChanges:
    """Return the difference between the known brokers and those that are registered now."""
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


async def apply_broker_changes(context: ControllerContext, changed: Watch) -> BrokerChanges:
    """Read the registrations, and give every concerned partition the leader and ISR that it needs now."""
    registered = await read_brokers(context.session, context.state, changed)
    changes = compare(context.state.brokers, registered)
    if changes.stopped:
        await _on_stopped(context, changes)
    if changes.started or changes.modified:
        context.state.brokers = registered
        await _on_started(context, changes)
    return changes


async def _on_stopped(context: ControllerContext, changes: BrokerChanges) -> None:
    logger.info("Brokers that are gone: %s", sorted(changes.stopped))
    concerned = [p for broker_id in sorted(changes.stopped) for p in context.state.partitions_on(broker_id)]
    for broker_id in changes.stopped:
        context.state.remove_broker(broker_id)
        context.forget(broker_id)
    elected = await elect(context, dict.fromkeys(concerned))
    await send_changes(context, elected, concerned)


async def _on_started(context: ControllerContext, changes: BrokerChanges) -> None:
    logger.info("Brokers that are new: %s, changed: %s", sorted(changes.started), sorted(changes.modified))
    concerned = [p for broker_id in sorted(changes.started) for p in context.state.partitions_on(broker_id)]
    await elect(context, dict.fromkeys(concerned))
    send_full_metadata(context, changes.started)
    await send_changes(context, concerned, concerned)
