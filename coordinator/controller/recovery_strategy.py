"""``unclean.recovery.strategy`` (KIP-966): what becomes of a partition that no replica may lead without risk. Pure.

``unclean.leader.election.enable``, which is older, is translated: true means the longest log, false excludes it. A
topic's settings go before those of the brokers, and the strategy before the older setting at the same place.
"""

from collections.abc import Mapping
from enum import Enum
from typing import Final, NamedTuple

STRATEGY_KEY: Final = "unclean.recovery.strategy"
UNCLEAN_ELECTION_KEY: Final = "unclean.leader.election.enable"


class RecoveryStrategy(Enum):
    """Named as in the setting."""

    NONE = "none"
    """Wait until every member of the ISR and the ELR is back; then the last leader leads, unless one has everything."""
    BALANCED = "balanced"
    """Wait until these and the last known ELR are back; then the longest of their logs leads, unless one is whole."""
    LONGEST_LOG = "longest_log"
    """Wait a bounded time; then the longest log among the replicas that are there leads. In the KIP: aggressive."""


class RecoverySettings(NamedTuple):
    """The settings of the brokers, for topics that do not say."""

    strategy: RecoveryStrategy | None = None
    """None: not set."""
    unclean_election: bool = False
    """``unclean.leader.election.enable``."""

    @property
    def default_strategy(self) -> RecoveryStrategy:
        """The strategy of topics that do not say."""
        if self.strategy is not None:
            return self.strategy
        return RecoveryStrategy.LONGEST_LOG if self.unclean_election else RecoveryStrategy.BALANCED

    def strategy_of(self, overrides: Mapping[str, str]) -> RecoveryStrategy:
        """Return the strategy of a topic with these overrides. A value that is not valid is left out."""
        own = _known(overrides.get(STRATEGY_KEY, ""))
        if own is not None:
            return own
        allowed, default = _flag(overrides.get(UNCLEAN_ELECTION_KEY, "")), self.default_strategy
        if allowed is None:
            return default
        if allowed:
            return RecoveryStrategy.LONGEST_LOG
        return RecoveryStrategy.BALANCED if default is RecoveryStrategy.LONGEST_LOG else default

    def allows_unclean_election(self, overrides: Mapping[str, str]) -> bool:
        """Return ``unclean.leader.election.enable`` of a topic: what counts where no eligible replicas are kept."""
        allowed = _flag(overrides.get(UNCLEAN_ELECTION_KEY, ""))
        return self.unclean_election if allowed is None else allowed


def _known(text: str) -> RecoveryStrategy | None:
    return next((each for each in RecoveryStrategy if each.value == text.strip()), None)


def _flag(text: str) -> bool | None:
    return {"true": True, "false": False}.get(text.strip().lower())
