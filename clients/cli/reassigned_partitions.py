"""Partitions that are being moved to other brokers (KIP-455): a cause of replicas that are not in sync."""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from oncelog.clients.cluster import Cluster
from oncelog.clients.errors import ClientError
from oncelog.clients.timely_connection import connection_within
from oncelog.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)

_SECONDS: Final = 3.0
_SHOWN: Final = 3


class Reassignment(NamedTuple):
    """The move of one partition."""

    adding: tuple[int, ...]
    removing: tuple[int, ...]


Reassignments = Mapping[tuple[str, int], Reassignment]
"""By topic and partition."""


async def list_reassignments(cluster: Cluster, controller_id: int | None) -> Reassignments:
    """Return all that are under way; empty if there is no controller or it does not say."""
    if controller_id is None:
        return {}
    try:
        connection = await connection_within(cluster, controller_id, _SECONDS)
        listed = await connection.send(
            ListPartitionReassignmentsRequest(), ListPartitionReassignmentsResponse, timeout=_SECONDS
        )
    except ClientError:
        return {}
    return {
        (topic.name, each.partition_index): Reassignment(tuple(each.adding_replicas), tuple(each.removing_replicas))
        for topic in listed.topics
        for each in topic.partitions
    }


def about_reassignments(reassignments: Reassignments, leaderless: Iterable[tuple[str, int]]) -> list[str]:
    """Return a sentence for the partitions that move, and one for those that must have a leader before they do."""
    waiting = {key: each for key, each in reassignments.items() if key in set(leaderless)}
    moving = {key: each for key, each in reassignments.items() if key not in waiting}
    sentences = []
    if moving:
        sentences.append(f"{_are(moving)} being reassigned, and added replicas are in sync when they have caught up")
    if waiting:
        sentences.append(f"{_are(waiting)} to be reassigned, which waits until there is a leader")
    return [
        f"{sentence} ({_names(group)})"
        for sentence, group in zip(sentences, filter(None, (moving, waiting)), strict=True)
    ]


def _are(group: Reassignments) -> str:
    return "1 partition is" if len(group) == 1 else f"{len(group)} partitions are"


def _names(group: Reassignments) -> str:
    shown = [
        f"{topic}-{index}: adds {_ids(each.adding)}, removes {_ids(each.removing)}"
        for (topic, index), each in sorted(group.items())[:_SHOWN]
    ]
    more = [f"and {len(group) - _SHOWN} more"] if len(group) > _SHOWN else []
    return "; ".join([*shown, *more])


def _ids(brokers: tuple[int, ...]) -> str:
    return ", ".join(map(str, brokers)) or "none"
