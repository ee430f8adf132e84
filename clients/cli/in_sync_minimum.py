"""Partitions that refuse writes with acks=all: fewer replicas are in sync than ``min.insync.replicas``."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from typing import Final, NamedTuple

from oncelog.clients.connection import Connection
from oncelog.clients.errors import ClientError
from oncelog.protocol.internal.topics import GROUP_METADATA_TOPIC_NAME, INTERNAL_TOPICS, TRANSACTION_STATE_TOPIC_NAME
from oncelog.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from oncelog.protocol.messages.metadata import MetadataResponse, MetadataResponsePartition

MINIMUM_KEY: Final = "min.insync.replicas"
_TOPIC_RESOURCE: Final = 2
_SECONDS: Final = 3.0
_MOST_TOPICS: Final = 1000
"""Topics of one request: enough to see the problem, with a response of moderate size."""
_SHOWN: Final = 3
_REFUSED_MEANWHILE: Final = {
    TRANSACTION_STATE_TOPIC_NAME: "transactions can neither begin nor end",
    GROUP_METADATA_TOPIC_NAME: "groups cannot commit offsets",
}
"""By internal topic, what clients whose transactional id or group is kept there cannot do."""

_Partitions = Mapping[tuple[str, int], MetadataResponsePartition]
"""By topic and partition."""


async def in_sync_minimums(
    connection: Connection, metadata: MetadataResponse, seconds: float = _SECONDS
) -> dict[str, int]:
    """Return ``min.insync.replicas`` of topics with replicas out of sync; empty if the broker does not say in time."""
    lacking = [topic.name for topic in metadata.topics if topic.name and any(map(_lacks, topic.partitions))]
    if not lacking:
        return {}
    request = DescribeConfigsRequest(
        resources=[
            DescribeConfigsResource(resource_type=_TOPIC_RESOURCE, resource_name=name, configuration_keys=[MINIMUM_KEY])
            for name in sorted(lacking)[:_MOST_TOPICS]
        ]
    )
    try:
        described = await connection.send(request, DescribeConfigsResponse, timeout=min(seconds, _SECONDS))
    except ClientError:
        return {}
    return {
        result.resource_name: minimum
        for result in described.results
        for entry in result.configs
        if not result.error_code and entry.name == MINIMUM_KEY and (minimum := _number(entry.value)) is not None
    }


def about_excess(minimum: str | None, factors: Mapping[str, int]) -> str | None:
    """Return what a ``min.insync.replicas`` above the replication factor of topics means; None if it is above none."""
    number = _number(minimum)
    if number is None:
        return None
    excessive = {topic: factor for topic, factor in sorted(factors.items()) if factor < number}
    if not excessive:
        return None
    topics = ", ".join(f"{topic} ({factor})" for topic, factor in list(excessive.items())[:_SHOWN])
    more = f" and {len(excessive) - _SHOWN} more" if len(excessive) > _SHOWN else ""
    return (
        f"{MINIMUM_KEY}={minimum} is above the replication factor of {topics}{more}: it acts as that number, so that "
        "writes with acks=all are refused while any replica is out of sync"
    )


def about_minimum(metadata: MetadataResponse, minimums: Mapping[str, int], alive: Collection[int]) -> str | None:
    """Return what it means for clients, which partitions are meant, and which brokers they wait for; None if none are.

    ``alive`` are the brokers that the cluster knows. Partitions without a leader are another matter.
    """
    refusing = {
        (topic.name or "", partition.partition_index): partition
        for topic in metadata.topics
        for partition in topic.partitions
        if partition.leader_id in alive and _missing_count(partition, minimums.get(topic.name or "", 0)) > 0
    }
    if not refusing:
        return None
    have = "1 partition has" if len(refusing) == 1 else f"{len(refusing)} partitions have"
    topics = {topic for topic, _ in refusing}
    effects = "".join(f", {effect}" for topic, effect in _REFUSED_MEANWHILE.items() if topic in topics)
    return (
        f"{have} fewer replicas in sync than {MINIMUM_KEY}: writes with acks=all are refused "
        f"({_names(refusing)}){effects}; {_ways_out(refusing, minimums, alive)}"
    )


class _Need(NamedTuple):
    """What a partition lacks to accept writes."""

    replicas: int
    """The number of replicas that must get in sync."""
    absent: tuple[int, ...]
    """Brokers of replicas that are not in the cluster."""
    lagging: tuple[int, ...]
    """Brokers of replicas that are in the cluster and not in sync."""


def _missing_count(partition: MetadataResponsePartition, minimum: int) -> int:
    """Return how many replicas must get in sync. A minimum above the number of replicas acts as that number."""
    return min(minimum, len(partition.replica_nodes)) - len(partition.isr_nodes)


def _ways_out(refusing: _Partitions, minimums: Mapping[str, int], alive: Collection[int]) -> str:
    """Return what the partitions wait for, by groups that wait for the same."""
    groups: defaultdict[_Need, dict[tuple[str, int], MetadataResponsePartition]] = defaultdict(dict)
    for (topic, index), partition in sorted(refusing.items()):
        out = sorted(set(partition.replica_nodes) - set(partition.isr_nodes))
        absent, lagging = (tuple(each for each in out if (each in alive) is is_in) for is_in in (False, True))
        need = _Need(_missing_count(partition, minimums[topic]), absent, lagging)
        groups[need][topic, index] = partition
    if len(groups) == 1:
        return _way_out(next(iter(groups)))
    shown = [f"{_way_out(need)} ({_names(group)})" for need, group in list(groups.items())[:_SHOWN]]
    more = ["others wait for other brokers: `oncelog topic describe TOPIC`"] if len(groups) > _SHOWN else []
    return "; ".join([*shown, *more])


def _way_out(need: _Need) -> str:
    """Return which brokers can end the refusal, how many of them are enough, and why."""
    steps = []
    choice = " or " if need.replicas == 1 else ", "
    if need.absent:
        steps.append(f"start {_brokers(need.absent, choice)}")
    if need.lagging:
        steps.append(f"check that {_brokers(need.lagging, choice)} can reach the leaders and catch up")
    candidates = len(need.absent) + len(need.lagging)
    enough = f": {need.replicas if need.replicas > 1 else 'one'} of them {'are' if need.replicas > 1 else 'is'} enough"
    which = "" if candidates == 1 else ": all are needed" if need.replicas >= candidates else enough
    replicas = "1 more replica" if need.replicas == 1 else f"{need.replicas} more replicas"
    return f"{(' or ' if need.replicas == 1 else ', and ').join(steps)}{which}, as {replicas} must be in sync"


def _brokers(broker_ids: tuple[int, ...], choice: str) -> str:
    return f"broker{'s' if len(broker_ids) > 1 and choice == ', ' else ''} {choice.join(map(str, broker_ids))}"


def _names(partitions: Iterable[tuple[str, int]]) -> str:
    """Return the first few names, those of users' partitions before internal ones."""
    ordered = sorted(partitions, key=lambda each: (each[0] in INTERNAL_TOPICS, each))
    more = f" and {len(ordered) - _SHOWN} more" if len(ordered) > _SHOWN else ""
    return ", ".join(f"{topic}-{index}" for topic, index in ordered[:_SHOWN]) + more


def _lacks(partition: MetadataResponsePartition) -> bool:
    return len(partition.isr_nodes) < len(partition.replica_nodes)


def _number(text: str | None) -> int | None:
    """Return the value of a setting as brokers read it, which take +2 for 2."""
    try:
        return None if text is None else int(text)
    except ValueError:
        return None
