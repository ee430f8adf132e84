"""Whether a broker that has lost the controller may take its place: decided by the majority. Pure.

A session with the metadata store outlives a cut link. So a broker that does not reach the controller must not conclude
that the controller is gone: its own link may be cut, and the controller, deposed, would depose it in turn. It asks the
other registered brokers first, as a candidate does in Raft's PreVote, and takes over only if the majority of the
brokers that count has lost the controller.

The controller itself counts, as a broker that still reaches it, unless it refuses connections: then its process has
ended. So in a cluster of two, silence is left to the store, and a process that has ended is replaced at once.
"""

from collections.abc import Collection
from enum import IntEnum


class ControllerContact(IntEnum):
    """What a broker says of its contact to the controller, by the numbers of AlterPartition's own field."""

    UNKNOWN = 0
    """It does not respond, or knows another controller or none, or cannot say, as a broker of Apache Kafka."""
    REACHED = 1
    LOST = 2


def may_take_over(others: Collection[ControllerContact], *, controller_refuses: bool) -> bool:
    """Return whether a broker that has lost the controller may stand for election in its place.

    ``others``: the responses of the other registered brokers, without the controller.
    """
    lost = 1 + sum(contact is ControllerContact.LOST for contact in others)
    counted = 1 + len(others) + (not controller_refuses)
    return 2 * lost > counted
