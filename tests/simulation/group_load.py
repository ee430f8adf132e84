"""The clients of a history of one consumer group: members that join, leave and die all the time, static ones too."""

import asyncio
import random
from collections.abc import Mapping
from typing import Any, Final

from oncelog.broker.storage.partition_log import PartitionLog
from oncelog.protocol.compiler import decode
from oncelog.protocol.internal.group_metadata import OffsetCommitKey, OffsetCommitValue
from oncelog.protocol.internal.placement import partition_for
from oncelog.protocol.internal.topics import GROUP_METADATA_TOPIC_NAME
from oncelog.protocol.records.record_batch import iter_batches, iter_records
from oncelog.protocol.topic_partition import TopicPartition
from tests.simulation import requests
from tests.simulation.cluster_history import log_of
from tests.simulation.cluster_routes import ClusterRoutes
from tests.simulation.cluster_shape import ClusterShape
from tests.simulation.cluster_stories import assignments, create, state_of
from tests.simulation.group_ledger import GroupLedger
from tests.simulation.group_member import GROUP, REBALANCE_MS, SESSION_MS, GroupMember
from tests.simulation.patient_client import PatientClient
from tests.simulation.simulated_cluster import SimulatedCluster

SETTINGS: Final[Mapping[str, str]] = {"group.min.session.timeout.ms": "1000"}
_PARTITIONS: Final = tuple(TopicPartition("inputs", index) for index in range(4))
_INSTANCES: Final = ("static-1", "static-2")
_MOST_MEMBERS: Final = 5
_STABLE_SECONDS: Final = (3 * SESSION_MS + 3 * REBALANCE_MS) / 1000
"""Members that died expire one after the other, and each of them ends one rebalance."""
_TRIES: Final = 20
"""Commits that a member may send until one is acknowledged, where followers copy it later than its client waits."""
_EXPIRY_CHECK: Final = "offsets.retention.check.interval.ms"
"""Without it a group is not removed within a history."""
_LOOK_SECONDS: Final = 0.2
_LONGEST_BATCH: Final = 1 << 20


class GroupLoad:
    """``setup``, ``start``, ``finish``, ``check``, in this order."""

    def __init__(self, cluster: SimulatedCluster, rng: random.Random, shape: ClusterShape) -> None:
        self._cluster = cluster
        self._rng = rng
        self._shape = shape
        buggified = cluster.loop.swarm.settings()
        self._ledger = GroupLedger(may_begin_anew=_EXPIRY_CHECK in buggified)
        self._stable_seconds = _STABLE_SECONDS + _TRIES * _replica_wait_seconds(buggified)
        self._members: dict[GroupMember, asyncio.Task[None]] = {}
        self._churning: asyncio.Task[None] | None = None
        self._longest_rest = rng.choice([1.0, 3.0, 8.0])

    async def setup(self) -> None:
        await create(self._cluster, "inputs", *self._shape.replicas(len(_PARTITIONS)))

    def start(self) -> None:
        for _ in range(self._rng.randint(1, 3)):
            self._add(None)
        self._churning = self._cluster.loop.create_task(self._churn())

    async def disturb(self) -> None:
        """One more member comes, or goes."""
        self._change()

    def progress(self) -> Mapping[TopicPartition, int]:
        """Nothing: the coordinator may be the one that a cut link takes from the others."""
        return {}

    def power_lost(self, broker: object) -> None:
        """Nothing: these clients are promised that nothing is lost."""

    async def finish(self) -> None:
        assert self._churning is not None
        self._churning.cancel()
        self._raise_failures()
        if not self._working:
            self._add(None)
        async with asyncio.timeout(self._stable_seconds):
            while not self._is_stable():
                self._raise_failures()
                await asyncio.sleep(_LOOK_SECONDS)
        self._cluster.loop.journal.note("group", "operation: group is stable")
        for member, task in self._members.items():
            member.leaving = True
            await asyncio.wait([task])
        self._raise_failures()

    async def check(self) -> None:
        client = PatientClient(ClusterRoutes(self._cluster, self._rng), self._rng)
        for partition in _PARTITIONS:
            response = await client.succeed(
                requests.offset_fetch(GROUP, partition, require_stable=True),
                requests.OFFSET_FETCH_VERSION,
                lambda response: {requests.fetched_position(response).error},
            )
            shown = response.groups[0].topics[0].partitions[0]
            newest = self._ledger.newest_acknowledged(partition)
            self._ledger.assert_is_current(partition, newest, shown.metadata, shown.committed_offset)
        await client.disconnect()
        written = _commits(self._log())
        for partition in _PARTITIONS:
            self._ledger.assert_order(partition, written.get(partition, ()))

    async def _churn(self) -> None:
        while True:
            await asyncio.sleep(self._rng.uniform(0.1, self._longest_rest))
            self._change()

    def _change(self) -> None:
        """Let one member come, go, or die; a new incarnation of a static member may come while the former is there."""
        working = self._working
        change = self._rng.choice(["add", "add", "replace", "leave", "die", "die and return"])
        if change == "replace" or not working:
            self._add(self._rng.choice(_INSTANCES))
        elif change == "add":
            if len(working) < _MOST_MEMBERS:
                self._add(None)
        elif change == "leave":
            self._rng.choice(working).leaving = True
        else:
            dead = self._rng.choice(working)
            self._members.pop(dead).cancel()
            self._cluster.loop.journal.note("group", "operation: member dies")
            if change == "die and return" and dead.instance_id is not None:
                self._add(dead.instance_id)

    def _add(self, instance_id: str | None) -> None:
        rng = random.Random(self._rng.random())
        member = GroupMember(ClusterRoutes(self._cluster, rng), rng, self._ledger, _PARTITIONS, instance_id)
        self._members[member] = self._cluster.loop.create_task(member.run())
        kind = "member" if instance_id is None else "static member"
        self._cluster.loop.journal.note("group", f"operation: {kind} starts")

    @property
    def _working(self) -> list[GroupMember]:
        return [member for member, task in self._members.items() if not task.done() and not member.leaving]

    def _is_stable(self) -> bool:
        """Whether all members are in one generation, own every partition together, and can commit."""
        working = self._working
        places = [member.place for member in working]
        if not working or any(place is None for place in places) or len(working) < self._unfinished:
            return False
        generations = {place.generation for place in places if place is not None}
        owned = [partition for member in working for partition in member.owned]
        return (
            len(generations) == 1
            and sorted(owned) == sorted(_PARTITIONS)
            and all(member.commits for member in working if member.owned)
        )

    @property
    def _unfinished(self) -> int:
        return sum(not task.done() for task in self._members.values())

    def _raise_failures(self) -> None:
        for task in self._members.values():
            if task.done():
                task.result()

    def _log(self) -> PartitionLog:
        count = sum(partition.topic == GROUP_METADATA_TOPIC_NAME for partition in assignments(self._cluster))
        partition = TopicPartition(GROUP_METADATA_TOPIC_NAME, partition_for(GROUP, count))
        return log_of(self._cluster, state_of(self._cluster, *partition).leader, partition)


def _replica_wait_seconds(buggified: Mapping[str, str]) -> float:
    """Return how long a follower waits before it copies a commit: for nothing, unless it waits for more bytes."""
    if "replica.fetch.min.bytes" not in buggified:
        return 0.0
    return int(buggified.get("replica.fetch.wait.max.ms", "500")) / 1000


def _commits(log: PartitionLog) -> dict[TopicPartition, list[str]]:
    """Return the metadata of the group's commits of each partition, in the order of the log."""
    found: dict[TopicPartition, list[str]] = {}
    for segment in log.segments:
        data = memoryview(segment.file.read_at(segment.size, 0))
        for position, header in iter_batches(data):
            for record in iter_records(data, position, header, max_decompressed_bytes=_LONGEST_BATCH):
                key = _key(record.key)
                if key is not None and record.value is not None:
                    found.setdefault(key, []).append(_value(record.value).metadata)
    return found


def _key(key: Any) -> TopicPartition | None:
    """Return the partition of a commit's key, or None for the key of the group."""
    version = int.from_bytes(key[:2], "big")
    if version > 1:
        return None
    decoded = decode(OffsetCommitKey, 0, bytes(key[2:]))
    return TopicPartition(decoded.topic, decoded.partition) if decoded.group == GROUP else None


def _value(value: Any) -> OffsetCommitValue:
    return decode(OffsetCommitValue, int.from_bytes(value[:2], "big"), bytes(value[2:]))
