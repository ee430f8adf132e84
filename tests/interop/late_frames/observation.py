"""Read everything there is about a topic and a few transactional ids."""

import asyncio
from collections.abc import Collection, Sequence
from random import Random

from oncelog.clients.admin.fencing import fence_producers
from oncelog.clients.admin.group_offsets import committed_offsets
from oncelog.clients.admin.offsets import EARLIEST, LATEST, list_offsets
from oncelog.clients.admin.transactions import describe_transaction
from oncelog.clients.bootstrap import parse_bootstrap
from oncelog.clients.cluster import Cluster
from oncelog.clients.errors import BrokerRefused
from oncelog.clients.log_reader import LogReader
from oncelog.protocol.topic_partition import TopicPartition
from tests.interop.late_frames.verdict import Observation

_SECONDS = 30.0
_STABLE_SECONDS = 2.0
_BEING_COMPLETED = {"PrepareCommit", "PrepareAbort"}
_OPEN = _BEING_COMPLETED | {"Ongoing"}


async def observe(
    address: str, topic: str, partitions: int, producers: int, given_up: Collection[int] = ()
) -> Observation:
    """Wait until what is being completed is complete, then read. Transactional ids are ``<topic>-<producer>``.

    ``given_up``: the producers whose client gave up its last transaction. What that left open is aborted first, as by
    the client's next start: it is the client's, and would hide all that comes behind it until its time-out.
    """
    transactional_ids = [f"{topic}-{producer}" for producer in range(producers)]
    all_partitions = [TopicPartition(topic, index) for index in range(partitions)]
    cluster = Cluster(parse_bootstrap(address), rng=Random(0))
    try:
        async with asyncio.timeout(_SECONDS):
            await fence_producers(cluster, [transactional_ids[producer] for producer in sorted(given_up)])
            states = [f"{id} {await _settled_state(cluster, id)}" for id in transactional_ids]
            committed, stable_ends = await _read(cluster, all_partitions, read_committed=True)
            uncommitted, ends = await _read(cluster, all_partitions, read_committed=False)
            offsets, unstable = await _offsets(address, TopicPartition(topic, 0), transactional_ids)
    finally:
        await cluster.close()
    held_back = [f"{tp} {stable_ends[tp]} < {ends[tp]}" for tp in all_partitions if stable_ends[tp] < ends[tp]]
    open_ids = [state for state in states if state.split()[1] in _OPEN]
    undecided = [*held_back, *unstable, *open_ids]
    return Observation(committed=committed, uncommitted=uncommitted, offsets=offsets, undecided=undecided)


async def await_group_coordinator(address: str, group: str) -> None:
    """Return when the group has a coordinator. A new Apache Kafka broker has none until it has made their topic.

    librdkafka, if it meets that broker while its connections break, waits in ``send_offsets_to_transaction`` until its
    time-out.
    """
    async with Cluster(parse_bootstrap(address), rng=Random(0)) as cluster:
        await committed_offsets(cluster, group)


async def _offsets(address: str, partition: TopicPartition, groups: Sequence[str]) -> tuple[dict[int, int], list[str]]:
    """What each group has committed for a partition, and the groups that an open transaction keeps from saying so."""
    found: dict[int, int] = {}
    unstable: list[str] = []
    async with Cluster(parse_bootstrap(address), rng=Random(0), operation_seconds=_STABLE_SECONDS) as cluster:
        for producer, group in enumerate(groups):
            try:
                committed = await committed_offsets(cluster, group, require_stable=True)
            except BrokerRefused as refused:
                unstable.append(str(refused))
                continue
            if partition in committed:
                found[producer] = committed[partition].offset
    return found, unstable


async def _settled_state(cluster: Cluster, transactional_id: str) -> str:
    while True:
        try:
            state = (await describe_transaction(cluster, transactional_id)).state
        except BrokerRefused:
            return "Unknown"
        if state not in _BEING_COMPLETED:
            return state


async def _read(
    cluster: Cluster, partitions: Sequence[TopicPartition], *, read_committed: bool
) -> tuple[dict[int, list[str]], dict[TopicPartition, int]]:
    begins = await list_offsets(cluster, dict.fromkeys(partitions, EARLIEST))
    latest = await list_offsets(cluster, dict.fromkeys(partitions, LATEST), read_committed=read_committed)
    ends = {tp: found.offset or 0 for tp, found in latest.found.items()}
    positions = {tp: found.offset or 0 for tp, found in begins.found.items()}
    reader = LogReader(cluster, positions, read_committed=read_committed)
    values: dict[int, list[str]] = {tp.partition: [] for tp in partitions}
    while any(reader.positions[tp] < ends[tp] for tp in partitions):
        for fetched in await reader.poll():
            records = [record for record in fetched.records if record.offset < ends[fetched.topic_partition]]
            values[fetched.topic_partition.partition] += [(record.value or b"").decode() for record in records]
    return values, ends
