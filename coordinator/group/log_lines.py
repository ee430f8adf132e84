"""The broker's log lines about groups: which member caused a rebalance and why, and what was refused."""

import logging

from oncelog.coordinator.group.group import Group
from oncelog.coordinator.group.memory import Refusal
from oncelog.coordinator.group.state import GroupState

logger = logging.getLogger(__name__)


def log_rebalance(group: Group, before: GroupState, what: str, reason: str | None) -> None:
    """Log a rebalance, with the reason that the client gave (KIP-800)."""
    if group.state is not before:
        logger.info(
            "Group %s, generation %d: %s -> %s: %s; reason given: %s",
            group.group_id,
            group.generation,
            before.value,
            group.state.value,
            what,
            reason or "none",
        )


def log_refusal(api: str, group: Group, refusal: Refusal) -> None:
    logger.warning("Refused a %s of group %s: %s is %d", api, group.group_id, refusal.setting, refusal.limit)
