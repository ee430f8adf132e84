"""Partitions with one replica, whose log may have lost records, and that have no other replica. Pure.

The replica leads as soon as it is back, and its state shows nothing of the loss afterwards. So the controller logs it.
"""

from collections import defaultdict
from collections.abc import Iterable
from typing import Final, NamedTuple

from oncelog.protocol.topic_partition import TopicPartition

_MOST_NAMES: Final = 5


class LoneLoss(NamedTuple):
    """The election of an only replica that may lack acknowledged records."""

    partition: TopicPartition
    leader: int
    log_end: int | None
    """The offset from which on records may be missing; None if the broker has not reported it."""


def about_lone_losses(losses: Iterable[LoneLoss]) -> list[str]:
    """Return a line for each broker that leads such partitions."""
    by_leader: defaultdict[int, list[LoneLoss]] = defaultdict(list)
    for loss in losses:
        by_leader[loss.leader].append(loss)
    return [_line(leader, group) for leader, group in sorted(by_leader.items())]


def _line(leader: int, group: list[LoneLoss]) -> str:
    more = f" and {len(group) - _MOST_NAMES} more" if len(group) > _MOST_NAMES else ""
    names = ", ".join(map(_name, group[:_MOST_NAMES]))
    return (
        f"Broker {leader} leads {names}{more} and may lack acknowledged records, which no other broker has: it is the "
        f"only replica, and may have lost the ends of its logs. The log of broker {leader} names those that it knows of"
    )


def _name(loss: LoneLoss) -> str:
    return f"{loss.partition}{'' if loss.log_end is None else f' (from offset {loss.log_end} on)'}"
