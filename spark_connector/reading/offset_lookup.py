"""Which partitions a cluster has, and where they begin and end: the driver's requests.

A broker that has only just started may not know a topic yet. So topics that are missing are requested again for
``DOUBT_SECONDS`` before they count as missing.
"""

import asyncio
from collections.abc import Collection, Mapping
from typing import Final

from oncelog.clients.admin.offsets import list_offsets
from oncelog.clients.admin.topics import list_topics
from oncelog.clients.cluster import Cluster
from oncelog.clients.errors import BrokerRefused, Refusal, error_code
from oncelog.clients.retry import Backoff
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.topic_partition import TopicPartition
from oncelog.spark_connector.offset_ranges import listed
from oncelog.spark_connector.plain_errors import UserError
from oncelog.spark_connector.reading.offset_bounds import EARLIEST, LATEST, Bound, offsets_of, require_found
from oncelog.spark_connector.reading.topic_selection import Assign, Subscribe, SubscribePattern, TopicSelection

DOUBT_SECONDS: Final = 5.0
"""The time after which an unexpected response (a topic is gone) counts as true."""


class NothingToRead(UserError):
    """Topics or partitions that the options name do not exist."""


async def find_partitions(cluster: Cluster, selection: TopicSelection) -> dict[TopicPartition, bytes]:
    """Return the selected partitions that exist now, each with its topic's id (zeros if it has none)."""
    match selection:
        case SubscribePattern():
            topics = await list_topics(cluster)
            names = [topic.name for topic in topics if not topic.is_internal and selection.matches(topic.name)]
            return await _partitions(cluster, names)
        case Subscribe(topics=names):
            return await _partitions(cluster, names)
        case Assign(partitions):
            found = await _partitions(cluster, selection.topics)
            return {tp: found[tp] for tp in partitions if tp in found}


async def require_partitions(cluster: Cluster, selection: TopicSelection) -> dict[TopicPartition, bytes]:
    """Return the same for the first batch. Raises ``NothingToRead`` if a named topic or partition does not exist."""
    deadline = asyncio.get_running_loop().time() + DOUBT_SECONDS
    while True:
        found = await find_partitions(cluster, selection)
        missing = _missing(selection, found)
        if not missing:
            return found
        if asyncio.get_running_loop().time() >= deadline:
            raise NothingToRead(missing)
        await asyncio.sleep(Backoff(rng=cluster.rng).pause_seconds(2))


def _missing(selection: TopicSelection, found: Collection[TopicPartition]) -> str:
    """Return a message with the named topics or partitions that were not found; a pattern names none."""
    match selection:
        case Subscribe(topics):
            gone = sorted(set(topics) - {each.topic for each in found})
            return f"subscribe: there is no topic {', '.join(gone)}" if gone else ""
        case Assign(partitions):
            without = set(partitions) - set(found)
            return f"assign: there is no partition {listed(without)}" if without else ""
        case SubscribePattern():
            return ""


async def _partitions(cluster: Cluster, names: Collection[str]) -> dict[TopicPartition, bytes]:
    """Return the partitions of topics by fresh metadata, with topic ids. Topics that do not exist are left out."""
    for name in names:
        cluster.metadata.forget(name)
    found: dict[TopicPartition, bytes] = {}
    for name, topic in (await cluster.topics(names)).items():
        if topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            continue
        if topic.error_code != ErrorCode.NONE:
            raise BrokerRefused(name, Refusal(error=error_code(topic.error_code)))
        found |= {TopicPartition(name, each.partition_index): topic.topic_id for each in topic.partitions}
    return found


async def find_offsets(
    cluster: Cluster, timestamps: Mapping[TopicPartition, int], *, read_committed: bool
) -> dict[TopicPartition, int | None]:
    """Return the offset for each timestamp (ms, ``EARLIEST`` or ``LATEST``); None if no record is that young."""
    if not timestamps:
        return {}
    listed_offsets = await list_offsets(cluster, timestamps, read_committed=read_committed)
    return {tp: found.offset for tp, found in listed_offsets.require_all().items()}


async def resolve_bound(
    cluster: Cluster, bound: Bound, partitions: Collection[TopicPartition], *, read_committed: bool
) -> dict[TopicPartition, int]:
    """Return the bound's offset in each partition. Raises ``BoundInvalid`` if the bound does not fit them."""
    offsets = offsets_of(bound, partitions)
    found = await find_offsets(cluster, offsets.timestamps, read_committed=read_committed)
    without = [tp for tp, offset in found.items() if offset is None]
    require_found(bound, without)
    found |= await find_offsets(cluster, dict.fromkeys(without, LATEST), read_committed=read_committed)
    return {**offsets.known, **{tp: offset or 0 for tp, offset in found.items()}}


async def earliest_offsets(cluster: Cluster, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
    """Return the log start offsets."""
    found = await find_offsets(cluster, dict.fromkeys(partitions, EARLIEST), read_committed=False)
    return {tp: offset or 0 for tp, offset in found.items()}


async def latest_offsets(
    cluster: Cluster, partitions: Collection[TopicPartition], *, read_committed: bool
) -> dict[TopicPartition, int]:
    """Return the high watermarks; for ``read_committed`` the last stable offsets."""
    found = await find_offsets(cluster, dict.fromkeys(partitions, LATEST), read_committed=read_committed)
    return {tp: offset or 0 for tp, offset in found.items()}
