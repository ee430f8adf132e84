"""What a member does about each error of its group's coordinator: tables, one for each request. Pure.

The generation is what makes a member one. An error that takes it away takes the partitions, too: they are *lost*, not
revoked, and nothing may be committed for them any more. The member id is kept where the coordinator may still know it,
because a member that comes back with a new one leaves its old self behind until that times out.

The rules are those of Kafka's ``AbstractCoordinator.java`` and ``ConsumerCoordinator.java``.
"""

from collections.abc import Mapping
from enum import Enum, auto
from typing import Final

from oncelog.protocol.errors import RETRIABLE, ErrorCode


class Reaction(Enum):
    """What to do next."""

    PROCEED = auto()
    """Nothing has happened."""
    RETRY = auto()
    """The same, a little later."""
    FIND_COORDINATOR = auto()
    """The same, but it is another broker that coordinates the group."""
    REJOIN = auto()
    """Join again, as the member of the generation that one is."""
    REJOIN_WITHOUT_GENERATION = auto()
    """The generation is over for this member: what it read is lost. Join again with the same member id."""
    REJOIN_AS_NEW = auto()
    """The coordinator does not know this member at all: what it read is lost. Join again as a new one."""
    FENCED = auto()
    """Another consumer has this one's group instance id: the end."""
    FAIL = auto()
    """Raise the error to the application."""


_ELSEWHERE: Final = {
    ErrorCode.COORDINATOR_NOT_AVAILABLE: Reaction.FIND_COORDINATOR,
    ErrorCode.NOT_COORDINATOR: Reaction.FIND_COORDINATOR,
}
_OUT: Final = {
    ErrorCode.ILLEGAL_GENERATION: Reaction.REJOIN_WITHOUT_GENERATION,
    ErrorCode.UNKNOWN_MEMBER_ID: Reaction.REJOIN_AS_NEW,
    ErrorCode.FENCED_INSTANCE_ID: Reaction.FENCED,
}

JOIN: Final[Mapping[ErrorCode, Reaction]] = {
    **_ELSEWHERE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: Reaction.RETRY,
    ErrorCode.UNKNOWN_MEMBER_ID: Reaction.REJOIN_AS_NEW,
    ErrorCode.MEMBER_ID_REQUIRED: Reaction.REJOIN,
    ErrorCode.REBALANCE_IN_PROGRESS: Reaction.REJOIN,
    ErrorCode.FENCED_INSTANCE_ID: Reaction.FENCED,
}
"""JoinGroup. MEMBER_ID_REQUIRED brings the id to join again with (KIP-394)."""

SYNC: Final[Mapping[ErrorCode, Reaction]] = {
    **_ELSEWHERE,
    **_OUT,
    ErrorCode.REBALANCE_IN_PROGRESS: Reaction.REJOIN,
}
"""SyncGroup. The next rebalance may begin before this one's assignment was handed out."""

HEARTBEAT: Final[Mapping[ErrorCode, Reaction]] = {
    **_ELSEWHERE,
    **_OUT,
    ErrorCode.REBALANCE_IN_PROGRESS: Reaction.REJOIN,
    ErrorCode.GROUP_AUTHORIZATION_FAILED: Reaction.FAIL,
}
"""Heartbeat. Whatever else comes is a heartbeat that failed: the next one may succeed."""

COMMIT: Final[Mapping[ErrorCode, Reaction]] = {
    **_ELSEWHERE,
    **_OUT,
    ErrorCode.REQUEST_TIMED_OUT: Reaction.FIND_COORDINATOR,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: Reaction.RETRY,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: Reaction.RETRY,
    ErrorCode.REBALANCE_IN_PROGRESS: Reaction.REJOIN,
}
"""OffsetCommit, for each partition."""


def reaction(table: Mapping[ErrorCode, Reaction], error: ErrorCode) -> Reaction:
    """Return a table's reaction to an error; an unknown error that may not pass fails the call."""
    if error is ErrorCode.NONE:
        return Reaction.PROCEED
    known = table.get(error)
    if known is not None:
        return known
    if table is HEARTBEAT or error in RETRIABLE:
        return Reaction.RETRY
    return Reaction.FAIL
