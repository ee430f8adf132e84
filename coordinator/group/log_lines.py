"""The broker's log lines about groups: each change of a group's state with its cause, and what was refused.

A rebalance has ended only when its last line says Stable or Empty.
"""

import logging
from collections.abc import Sequence
from typing import Final

from oncelog.coordinator.group.group import Group
from oncelog.coordinator.group.memory import Refusal
from oncelog.coordinator.group.state import GroupState, Transition, TransitionKind

logger = logging.getLogger(__name__)

_MOST_NAMED: Final = 5
"""Members that a line names; the others are counted."""


def log_request(group: Group, before: GroupState, what: str, reason: str | None) -> None:
    """Log a change of state that a request has caused, with the reason that the client gave (KIP-800)."""
    _log_change(group, before, f"{what}; reason given: {reason or 'none'}")


def log_transition(group: Group, before: GroupState, transition: Transition) -> None:
    """Log a change of state that became true with its record."""
    match transition.kind:
        case TransitionKind.ASSIGNED:
            members = len(transition.image.members)
            _log_change(group, before, f"leader {transition.member_id} sent the assignment of {members} members")
        case TransitionKind.EMPTIED:
            _log_change(group, before, "no member is left")
        case TransitionKind.REPLACED:
            pass  # The group stays stable.


def log_deadline(group: Group, before: GroupState, expired: Sequence[str]) -> None:
    """Log what a deadline has caused: members that were removed, and a change of state."""
    if expired:
        more = f" and {len(expired) - _MOST_NAMED} more" if len(expired) > _MOST_NAMED else ""
        cause = f"removed {', '.join(expired[:_MOST_NAMED])}{more}, which sent no request in time"
        if group.state is before:
            logger.info("Group %s, generation %d: %s: %s", group.group_id, group.generation, group.state.value, cause)
    else:
        cause = "the time to wait for members is over"
    _log_change(group, before, cause)


def log_refusal(api: str, group: Group, refusal: Refusal) -> None:
    logger.warning("Refused a %s of group %s: %s is %d", api, group.group_id, refusal.setting, refusal.limit)


def _log_change(group: Group, before: GroupState, cause: str) -> None:
    if group.state is not before:
        logger.info(
            "Group %s, generation %d: %s -> %s: %s",
            group.group_id,
            group.generation,
            before.value,
            group.state.value,
            cause,
        )
