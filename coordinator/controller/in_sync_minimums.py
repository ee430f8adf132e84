"""``min.insync.replicas`` as the leaders of partitions apply it: what the controller goes by must not be less.

A leader acknowledges nothing while fewer replicas are in sync than its own minimum says. A controller with a lower one
would forget replicas that still have every acknowledged record. So of topics that do not say, the largest counts that
any broker has: by its dynamic configuration, or else by what it was started with.
"""

from collections.abc import Callable, Mapping
from typing import Final

from oncelog.coordinator.controller.cluster_state import LiveBroker
from oncelog.coordinator.controller.config_repository import Overrides
from oncelog.coordinator.controller.stored_settings import StoredSettings

MINIMUM_KEY: Final = "min.insync.replicas"


def overriding_minimum(overrides: Overrides) -> int | None:
    """Return the minimum that overrides of a topic or broker have; None if they have none that brokers take."""
    text = overrides.get(MINIMUM_KEY)
    if text is None:
        return None
    try:
        minimum = int(text)
    except ValueError:
        return None
    return minimum if minimum >= 1 else None


def largest_default(
    own: int, brokers: Mapping[int, LiveBroker], of_broker: Callable[[int], Overrides], of_all: Overrides
) -> int:
    """Return the largest minimum by which a broker leads topics that do not say.

    ``own``: of the controller; ``of_broker`` returns the overrides of one broker, ``of_all`` are those of all brokers.
    """
    common = overriding_minimum(of_all)
    others = (
        overriding_minimum(of_broker(broker_id)) or common or broker.registration.min_insync_replicas
        for broker_id, broker in brokers.items()
    )
    return max([own, *(minimum for minimum in others if minimum is not None)])


class DefaultMinimums:
    """The largest default of the brokers that are registered, which each decision about a partition needs."""

    def __init__(self, stored: StoredSettings) -> None:
        self._stored = stored
        self._known: tuple[frozenset[int], int] | None = None
        """The epochs of the brokers of which it is the largest, and it."""

    def forget(self) -> None:
        """Look again: settings have changed."""
        self._known = None

    def largest(self, brokers: Mapping[int, LiveBroker]) -> int:
        """Return the largest default of these brokers."""
        epochs = frozenset(broker.epoch for broker in brokers.values())
        if self._known is None or self._known[0] != epochs:
            stored, configs = self._stored, self._stored.configs
            minimum = largest_default(
                stored.default_min_isr, brokers, configs.broker_overrides, configs.cluster_overrides()
            )
            self._known = epochs, minimum
        return self._known[1]
