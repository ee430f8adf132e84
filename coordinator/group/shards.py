"""The partitions of ``__consumer_offsets`` that this broker owns, and the shard of groups in each.

A group belongs to the partition that its id hashes to, and its coordinator is that partition's leader. A shard exists
from an election to the next leadership change; an attempt to load that fails is followed by another, with a new shard.
"""

import asyncio
import logging
from functools import partial

from oncelog.coordinator.group.memory import GroupMemory
from oncelog.coordinator.group.offset_counts import OffsetCounts
from oncelog.coordinator.group.settings import GroupSettings
from oncelog.coordinator.group.shard import GroupShard, Producer
from oncelog.coordinator.load_report import LoadReport
from oncelog.coordinator.load_times import LoadTimes
from oncelog.coordinator.log_loading import batch_by_batch, load
from oncelog.coordinator.ports import Cancellable, ReplicatedLog, TaskOwner, TopicMetadata, WallClock
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.internal.placement import partition_for
from oncelog.protocol.internal.topics import GROUP_METADATA_TOPIC_NAME
from oncelog.protocol.records.record_batch import NO_PRODUCER_ID

logger = logging.getLogger(__name__)


class GroupShards:
    """Finds the shard of a group, and loads and drops shards."""

    def __init__(
        self,
        settings: GroupSettings,
        memory: GroupMemory,
        *,
        metadata: TopicMetadata,
        tasks: TaskOwner,
        wall_clock: WallClock,
    ) -> None:
        self._settings = settings
        self._memory = memory
        self._metadata = metadata
        self._tasks = tasks
        self._wall_clock = wall_clock
        self.owned: dict[int, GroupShard] = {}
        """By partition, those that are open and those that are being loaded."""
        self._loads: dict[int, Cancellable] = {}
        """Of each shard, for as long as it is owned."""
        self._loading: set[GroupShard] = set()
        """Those that are being read. One that could not be read is not among them until the next attempt."""
        self._load_report = LoadReport(GROUP_METADATA_TOPIC_NAME, "groups", logger)
        self.load_times = LoadTimes()
        self.offset_counts = OffsetCounts()
        self._load_turn = asyncio.Lock()

    def elect(self, partition: int, log: ReplicatedLog) -> None:
        """Load a partition that this broker leads from now on."""
        self.resign(partition)
        shard = self.owned[partition] = self._new_shard(partition, log)
        self._loading.add(shard)
        self._loads[partition] = self._tasks.retry(
            partial(self._load, partition, log), f"load {GROUP_METADATA_TOPIC_NAME}-{partition}"
        )

    def resign(self, partition: int) -> None:
        """Drop the shard of a partition that this broker does not lead any more, or leads anew."""
        shard = self.owned.pop(partition, None)
        if shard is not None:
            self._loads.pop(partition).cancel()
            self._loading.discard(shard)
            shard.close()

    def stop(self) -> None:
        """Drop all shards; their parked requests get NOT_COORDINATOR."""
        for partition in list(self.owned):
            self.resign(partition)

    def _new_shard(self, partition: int, log: ReplicatedLog) -> GroupShard:
        return GroupShard(partition, log, self._settings, self._wall_clock, self._memory, self.offset_counts)

    async def _load(self, partition: int, log: ReplicatedLog) -> None:
        """Make one attempt to load; after an exception the next attempt begins with nothing."""
        before = self.owned[partition]
        before.close()
        self._loading.discard(before)
        shard = self.owned[partition] = self._new_shard(partition, log)
        self._loading.add(shard)
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            loaded = await load(
                log,
                batch_by_batch(shard.replay),
                lambda: self.owned.get(partition) is shard,
                turn=self._load_turn,
            )
        finally:
            self._loading.discard(shard)
        if loaded:
            shard.open()
            self.load_times.note(loop.time() - began)
            self._load_report.note(partition, len(shard.groups))
        if not self._loading:
            self._load_report.conclude()

    @property
    def is_loading(self) -> bool:
        """Return whether a partition is still being read."""
        return bool(self._loading)

    def open(self) -> list[GroupShard]:
        """Return the shards that are loaded."""
        return [shard for shard in self.owned.values() if shard.is_open]

    def partition_for(self, group_id: str) -> int | None:
        """Return the partition of ``__consumer_offsets`` of a group; None while that topic is not known."""
        count = self._metadata.partition_count(GROUP_METADATA_TOPIC_NAME)
        return None if count is None else partition_for(group_id, count)

    def find(self, group_id: str) -> GroupShard | ErrorCode:
        """Return the shard for offsets, or for describing and deleting groups: a group id may be empty there."""
        partition = self.partition_for(group_id)
        shard = None if partition is None else self.owned.get(partition)
        if shard is None:
            return ErrorCode.NOT_COORDINATOR
        if not shard.is_open:
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        if len(group_id) > self._settings.group_id_max_length and group_id not in shard.groups:
            return ErrorCode.INVALID_GROUP_ID
        return shard

    def find_named(self, group_id: str) -> GroupShard | ErrorCode:
        """Return the shard for the membership of a group, whose id must not be empty."""
        return self.find(group_id) if group_id else ErrorCode.INVALID_GROUP_ID

    def find_for_commit(self, group_id: str, producer: Producer | None) -> GroupShard | ErrorCode:
        """Return the shard for a commit of offsets, inside the transaction of a producer or outside of any."""
        if producer is None:
            return self.find(group_id)
        shard = self.find_named(group_id)
        if not isinstance(shard, ErrorCode) and producer.id <= NO_PRODUCER_ID:
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING
        return shard
