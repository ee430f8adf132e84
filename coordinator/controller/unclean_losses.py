"""Elections of leaders that may lack acknowledged records, in words for the controller's log. Pure.

Elections that are alike are one line, so that the death of a whole cluster gives a few lines.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from oncelog.protocol.topic_partition import TopicPartition

_MOST_NAMES: Final = 5


class UncleanLoss(NamedTuple):
    """The election of a leader although no replica that certainly has everything is there."""

    leader: int
    isr_before: tuple[int, ...]
    elr_before: tuple[int, ...]
    partition: TopicPartition


def about_unclean_losses(losses: Iterable[UncleanLoss]) -> list[str]:
    """Return a line for each leader, and the replicas that were in sync and eligible before."""
    alike: defaultdict[tuple[int, tuple[int, ...], tuple[int, ...]], list[TopicPartition]] = defaultdict(list)
    for loss in losses:
        alike[loss.leader, loss.isr_before, loss.elr_before].append(loss.partition)
    return [
        f"Broker {leader} leads {_names(partitions)} now and may lack acknowledged records: no replica that certainly "
        f"has them is there. In sync before: {_ids(isr)}; eligible: {_ids(elr)}"
        for (leader, isr, elr), partitions in alike.items()
    ]


def _names(partitions: Sequence[TopicPartition]) -> str:
    more = f" and {len(partitions) - _MOST_NAMES} more" if len(partitions) > _MOST_NAMES else ""
    return f"{', '.join(map(str, partitions[:_MOST_NAMES]))}{more}"


def _ids(brokers: Iterable[int]) -> str:
    return ", ".join(map(str, brokers)) or "none"
