"""A topic as ``oncelog topic describe`` sees it: its partitions, their offsets, and leaders that are not reached.

Offsets come from the leaders, which may take long while one of them has just failed. So they are requested first, for
most of the command's time, and the partitions that are shown are those of afterwards.
"""

import asyncio
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from oncelog.clients.admin.offsets import EARLIEST, LATEST, list_offsets
from oncelog.clients.admin.topic_pages import describe_eligible
from oncelog.clients.admin.topics import TopicDescription
from oncelog.clients.cli.election_settings import ElectionSettings, election_settings
from oncelog.clients.cli.in_sync_minimum import about_minimum, in_sync_minimums
from oncelog.clients.cli.reassigned_partitions import Reassignments, list_reassignments
from oncelog.clients.cli.recovery_overrides import recovery_level
from oncelog.clients.cli.topic_description import recovery_of
from oncelog.clients.cluster import Cluster
from oncelog.clients.errors import NO_CONNECTION, ClientError, Refusal
from oncelog.clients.retry import one_deadline
from oncelog.clients.timely_connection import connection_within
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.topic_partition import TopicPartition

_OFFSETS_SHARE: Final = 0.8
"""The part of the command's time in which offsets may be requested."""
_VISIT_SECONDS: Final = 2.0
"""Far above what a healthy leader needs to accept a connection."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenTopic:
    """What brokers say of a topic, and whether its leaders are reached."""

    description: TopicDescription
    ends: Mapping[int, Mapping[str, int | None]]
    """By partition, its first and its next offset, where both are known."""
    without_end: Mapping[TopicPartition, ErrorCode]
    """Why a partition has no known end."""
    alive: frozenset[int]
    moves: Reassignments
    elections: ElectionSettings
    """How the controller elects a leader for partitions that have none."""
    unreached: Mapping[int, ClientError]
    """By broker, where and why a leader is not reached."""
    refusing: str | None
    """What it means that partitions have fewer replicas in sync than ``min.insync.replicas``; None if none have."""


async def see_topic(cluster: Cluster, name: str, seconds: float, *, offsets: bool) -> SeenTopic:
    """Return what is seen of a topic, within ``seconds``. Raises ``ClientError``."""
    with one_deadline(seconds):
        described = await _describe(cluster, name)
        ends: dict[int, dict[str, int | None]] = {}
        without_end: Mapping[TopicPartition, ErrorCode] = {}
        if offsets:
            with one_deadline(seconds * _OFFSETS_SHARE):
                ends, without_end = await _log_ends(cluster, described)
            described = await _describe(cluster, name)
        alive = frozenset(cluster.brokers)
        refusing = await _refused_writes(cluster, name, alive)
        unreached = await _unreached(cluster, {each.leader for each in described.partitions if each.leader is not None})
        moves = await list_reassignments(cluster, cluster.metadata.controller_id)
        leaderless = [each for each in described.partitions if each.leader is None]
        level = await recovery_level(cluster) if leaderless else None
        recoveries = [(name, recovery_of(each)) for each in leaderless]
        return SeenTopic(
            description=described,
            ends=ends,
            without_end=without_end,
            alive=alive,
            moves={key: each for key, each in moves.items() if key[0] == name},
            elections=await election_settings(cluster, level, recoveries),
            unreached=unreached,
            refusing=refusing,
        )


async def _describe(cluster: Cluster, name: str) -> TopicDescription:
    described = await describe_eligible(cluster, name)
    if isinstance(described, Refusal):
        raise described.as_error(f"topic {name}")
    return described


async def _refused_writes(cluster: Cluster, name: str, alive: Collection[int]) -> str | None:
    metadata, connection = await cluster.refresh([name]), await cluster.connection_to_any()
    minimums = await in_sync_minimums(connection, metadata, cluster.attempts().remaining_seconds)
    return about_minimum(metadata, minimums, alive)


async def _log_ends(
    cluster: Cluster, topic: TopicDescription
) -> tuple[dict[int, dict[str, int | None]], Mapping[TopicPartition, ErrorCode]]:
    """Return the first and next offset of each partition that has a leader, and why a partition has none."""
    led = [
        TopicPartition(topic.name, partition.partition)
        for partition in topic.partitions
        if partition.leader is not None
    ]
    async with asyncio.TaskGroup() as group:
        begins_task = group.create_task(list_offsets(cluster, dict.fromkeys(led, EARLIEST)))
        ends_task = group.create_task(list_offsets(cluster, dict.fromkeys(led, LATEST)))
    begins, ends = begins_task.result().found, ends_task.result().found
    known = {
        tp.partition: {"begin": begins[tp].offset, "end": ends[tp].offset} for tp in led if tp in begins and tp in ends
    }
    return known, ends_task.result().failed


async def _unreached(cluster: Cluster, leaders: Iterable[int]) -> dict[int, ClientError]:
    """Return the leaders that are not reached, with the address and the reason."""
    seconds = min(_VISIT_SECONDS, cluster.attempts().remaining_seconds)

    async def visit(broker_id: int) -> ClientError | None:
        try:
            await connection_within(cluster, broker_id, seconds)
        except NO_CONNECTION as error:
            return error
        return None

    async with asyncio.TaskGroup() as group:
        visits = {broker_id: group.create_task(visit(broker_id)) for broker_id in sorted(leaders)}
    failures = {broker_id: task.result() for broker_id, task in visits.items()}
    return {broker_id: failure for broker_id, failure in failures.items() if failure is not None}
