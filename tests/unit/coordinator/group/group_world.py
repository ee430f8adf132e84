"""A group coordinator in a small world: its logs in memory, its time virtual, its faults at the test's command.

The log is the one that the transaction coordinator is tested with: the test moves the high watermark, refuses appends
and fails over. Every request is made inside the loop and kept as a ``Call``, with all answers that it got.
"""

import asyncio
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from oncelog.coordinator.controller.cluster_image import ClusterImage, MetadataChange, PartitionImage, TopicImage
from oncelog.coordinator.group.coordinator import GroupCoordinator, LeavingMember
from oncelog.coordinator.group.group import Group
from oncelog.coordinator.group.joining_member import JoiningMember
from oncelog.coordinator.group.log_records import GroupRecord, decode_record
from oncelog.coordinator.group.member import GroupProtocol, JoinResult, SyncResult
from oncelog.coordinator.group.offset_requests import (
    Committer,
    FetchedOffset,
    FetchedOffsets,
    OffsetToCommit,
    PartitionErrors,
)
from oncelog.coordinator.group.settings import GroupSettings
from oncelog.coordinator.group.shard import GroupShard, Producer
from oncelog.coordinator.group.state import SyncRequest
from oncelog.coordinator.ports import LeaderAndEpoch
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.internal.topics import GROUP_METADATA_TOPIC_NAME
from oncelog.protocol.records.control_records import build_end_txn_marker
from oncelog.protocol.records.record_batch import BatchHeader, iter_records, read_header
from oncelog.protocol.records.record_walk import WorkBudget
from oncelog.protocol.schema import ZERO_UUID
from oncelog.protocol.topic_partition import TopicPartition
from tests.simulation.virtual_loop import VirtualLoop
from tests.unit.coordinator.transaction.world import EpochLog, Log, Tasks

T = TypeVar("T")
R = TypeVar("R")

GROUP = "g"
P0 = TopicPartition("t", 0)
P1 = TopicPartition("t", 1)
TOPIC_ID = b"t" * 16
MEMBER = Committer(GROUP)
PRODUCER = Producer(7, 0)


@dataclass
class Call(Generic[R]):
    """One request, and every response that it got."""

    responses: list[R] = field(default_factory=list)

    @property
    def is_waiting(self) -> bool:
        return not self.responses

    @property
    def response(self) -> R:
        (response,) = self.responses
        return response


class OffsetsEpochLog(EpochLog):
    """Reads like a log: what does not fit ends the read, also when something smaller follows."""

    def read(self, start_offset: int, max_bytes: int) -> bytes:
        found = bytearray()
        for _, batch in self.log.batches:
            if found and len(found) + len(batch) > max_bytes:
                break
            if read_header(batch).next_offset > start_offset:
                found += batch
        return bytes(found)


class OffsetsLog(Log):
    """One partition of the offsets topic, over all its leaders."""

    def elect(self, *, lost_records: int = 0) -> OffsetsEpochLog:
        super().elect(lost_records=lost_records)
        self.epoch_log = epoch_log = OffsetsEpochLog(self, self.epoch)
        return epoch_log


class Metadata:
    """``TopicMetadata``: the offsets topic, and epochs of other topics' leaders."""

    def __init__(self, partitions: int) -> None:
        self.counts = {GROUP_METADATA_TOPIC_NAME: partitions}
        self.epochs: dict[TopicPartition, int] = {}

    def topic_exists(self, topic: str) -> bool:
        return topic in self.counts

    def partition_count(self, topic: str) -> int | None:
        return self.counts.get(topic)

    def topic_id(self, topic: str) -> bytes:
        return ZERO_UUID

    def leader(self, partition: TopicPartition) -> LeaderAndEpoch | None:
        epoch = self.epochs.get(partition)
        return None if epoch is None else LeaderAndEpoch(1, epoch)


class GroupWorld:
    """A coordinator that is elected for all partitions, and everything around it."""

    def __init__(self, *, partitions: int = 1, settings: GroupSettings | None = None) -> None:
        self.loop = VirtualLoop(random.Random(0))
        self.loop.set_exception_handler(lambda loop, context: self.failures.append(context))
        self.failures: list[dict[str, Any]] = []
        """What went wrong in callbacks of the loop, where no caller could see it."""
        self.settings = settings or GroupSettings(group_initial_rebalance_delay_ms=0)
        self.metadata = Metadata(partitions)
        self.logs = [OffsetsLog() for _ in range(partitions)]
        self.tasks = Tasks(self.loop)
        self.coordinator = GroupCoordinator(
            settings=self.settings,
            metadata=self.metadata,
            tasks=self.tasks,
            wall_clock=self.wall_clock,
            rng=random.Random(1),
        )

    @property
    def log(self) -> OffsetsLog:
        (log,) = self.logs
        return log

    @property
    def shard(self) -> GroupShard:
        return self.coordinator._shards.owned[0]

    @property
    def group(self) -> Group:
        return self.shard.groups[GROUP]

    def wall_clock(self) -> int:
        return 1_700_000_000_000 + int(self.loop.time() * 1000)

    # The loop

    def do(self, action: Callable[[], T]) -> T:
        """Run plain code inside the loop, in one turn of it."""

        async def run() -> T:
            return action()

        return self.loop.run_until_complete(run())

    def sleep(self, seconds: float) -> None:
        self.loop.run_until_complete(asyncio.sleep(seconds))
        self.tasks.check()

    def begin(self, request: Callable[[Callable[[R], None]], None]) -> Call[R]:
        call: Call[R] = Call()
        self.do(lambda: request(call.responses.append))
        return call

    # Leadership and the log

    def elect(self, partition: int = 0, *, lost_records: int = 0) -> None:
        """A failover, or a restart: the coordinator begins again with what the log has."""
        log = self.logs[partition]
        self.do(log.depose)
        self.do(lambda: self.coordinator.on_resigned(partition))
        epoch_log = log.elect(lost_records=lost_records)
        self.do(lambda: self.coordinator.on_elected(partition, epoch_log))

    def load(self) -> None:
        """Let loading go on as far as it can, without letting time pass."""
        self.sleep(0)
        for _ in range(20):
            self.sleep(0)

    def replicate(self, up_to: int | None = None) -> None:
        self.do(lambda: self.log.replicate(up_to))

    def hold_replication(self) -> None:
        self.log.replicates_at_once = False

    def log_size(self) -> int:
        return sum(len(batch) for _, batch in self.log.batches)

    def refuse(self, error: ErrorCode = ErrorCode.NOT_ENOUGH_REPLICAS) -> None:
        """The log's answer to the next append."""
        self.log.refusals.append(error)

    def marker(self, producer_id: int = PRODUCER.id, *, commit: bool = True, partition: int = 0) -> None:
        """What a WriteTxnMarkers request does to a partition of the offsets topic."""
        batch = build_end_txn_marker(
            producer_id=producer_id, producer_epoch=0, commit=commit, coordinator_epoch=0, timestamp=self.wall_clock()
        )
        epoch_log = self.logs[partition].epoch_log
        assert epoch_log is not None
        if not isinstance(epoch_log.append(batch), ErrorCode):
            self.do(lambda: self.coordinator.on_txn_marker(partition, producer_id, commit=commit))

    def batches(self, partition: int = 0) -> list[tuple[BatchHeader, list[GroupRecord | int]]]:
        """What the log says; a marker has no records here."""
        found = []
        for _, batch in self.logs[partition].batches:
            header = read_header(batch)
            records = [] if header.is_control else iter_records(batch, 0, header, max_decompressed_bytes=1 << 20)
            found.append((header, [decode_record(record) for record in records]))
        return found

    # Members

    def join(
        self,
        member_id: str = "",
        *,
        group: str = GROUP,
        instance: str | None = None,
        session_ms: int = 10_000,
        version: int = 3,
        protocols: Sequence[tuple[str, bytes]] = (("range", b""),),
    ) -> Call[JoinResult]:
        joining = JoiningMember(
            group_id=group,
            member_id=member_id,
            group_instance_id=instance,
            client_id="client",
            client_host="/127.0.0.1",
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=30_000,
            protocol_type="consumer",
            protocols=[GroupProtocol(name, metadata) for name, metadata in protocols],
            requires_known_member_id=version >= 4,
            supports_skipping_assignment=version >= 9,
        )
        return self.begin(lambda reply: self.coordinator.join_group(joining, reply))

    def sync(
        self,
        member_id: str,
        assignments: dict[str, bytes] | None = None,
        *,
        generation: int = 1,
        group: str = GROUP,
        instance: str | None = None,
    ) -> Call[SyncResult]:
        request = SyncRequest(
            member_id=member_id,
            group_instance_id=instance,
            generation=generation,
            protocol_type=None,
            protocol_name=None,
            assignments=assignments or {},
        )
        return self.begin(lambda reply: self.coordinator.sync_group(group, request, reply))

    def heartbeat(self, member_id: str, *, generation: int = 1, group: str = GROUP) -> ErrorCode:
        return self.do(lambda: self.coordinator.heartbeat(group, member_id, None, generation))

    def leave(self, *member_ids: str, group: str = GROUP) -> Call[list[ErrorCode] | ErrorCode]:
        leavers = [LeavingMember(member_id=member_id) for member_id in member_ids]
        return self.begin(lambda reply: self.coordinator.leave_group(group, leavers, reply))

    def member(self, *, group: str = GROUP, topics: bytes = b"", session_ms: int = 10_000) -> str:
        """The only member of a stable group; its generation is 1 in a new group."""
        joined = self.join(group=group, protocols=[("range", topics)], session_ms=session_ms).response
        assert joined.error is ErrorCode.NONE
        self.sync(joined.member_id, {joined.member_id: b"all"}, generation=joined.generation, group=group)
        return joined.member_id

    # Offsets

    def commit(
        self, offset: int = 1, *, committer: Committer = MEMBER, partition: TopicPartition = P0, leader_epoch: int = -1
    ) -> Call[PartitionErrors]:
        return self.commit_all([OffsetToCommit(partition, offset, leader_epoch)], committer=committer)

    def commit_all(self, offsets: Sequence[OffsetToCommit], *, committer: Committer = MEMBER) -> Call[PartitionErrors]:
        return self.begin(lambda reply: self.coordinator.commit_offsets(committer, offsets, reply))

    def txn_commit(
        self,
        offset: int = 1,
        *,
        committer: Committer = MEMBER,
        producer: Producer = PRODUCER,
        partition: TopicPartition = P0,
        metadata: str = "",
    ) -> Call[PartitionErrors]:
        offsets = [OffsetToCommit(partition, offset, metadata=metadata)]
        return self.begin(
            lambda reply: self.coordinator.commit_offsets(committer._replace(producer=producer), offsets, reply)
        )

    def fetch(
        self, *partitions: TopicPartition, group: str = GROUP, stable: bool = False, topic_id: bytes = ZERO_UUID
    ) -> Call[FetchedOffsets | ErrorCode]:
        """All partitions, if none is named."""
        requested = [(partition, topic_id) for partition in partitions] or None

        def fetch(reply: Callable[[FetchedOffsets | ErrorCode], None]) -> None:
            for _ in self.coordinator.fetch_offsets(group, requested, reply, WorkBudget(0), require_stable=stable):
                pass

        return self.begin(fetch)

    def fetched(self, partition: TopicPartition = P0, *, group: str = GROUP, stable: bool = False) -> FetchedOffset:
        response = self.fetch(partition, group=group, stable=stable).response
        assert not isinstance(response, ErrorCode)
        return response[partition]

    def delete_offsets(self, *partitions: TopicPartition, group: str = GROUP) -> Call[PartitionErrors | ErrorCode]:
        return self.begin(lambda reply: self.coordinator.delete_offsets(group, partitions, reply))

    def delete_groups(self, *groups: str) -> Call[dict[str, ErrorCode]]:
        return self.begin(lambda reply: self.coordinator.delete_groups(groups, reply))

    def delete_topic(self, name: str, topic_id: bytes = TOPIC_ID, *, successor: bytes | None = None) -> None:
        """The topic goes, and possibly another of its name comes."""
        after = {} if successor is None else {name: topic_image(name, successor)}
        change = MetadataChange(
            before=ClusterImage(topics={name: topic_image(name, topic_id)}),
            after=ClusterImage(topics=after),
            topics=frozenset({name}),
        )
        self.do(lambda: self.coordinator.on_metadata_change(change))

    def stop(self) -> None:
        """Nothing may be left that runs on, or that went wrong unseen."""
        try:
            self.do(self.coordinator.stop)
            self.loop.run_until_complete(self.tasks.stop())
            assert not self.failures
            assert self.loop.pending_timers() == 0
        finally:
            self.loop.close()


def topic_image(name: str, topic_id: bytes, partitions: int = 2) -> TopicImage:
    image = PartitionImage(leader=1, leader_epoch=0, replicas=(1,), isr=(1,))
    return TopicImage(name=name, topic_id=topic_id, partitions=dict.fromkeys(range(partitions), image))


@contextmanager
def group_world(*, partitions: int = 1, settings: GroupSettings | None = None) -> Iterator[GroupWorld]:
    """A world whose coordinator is loaded and swept."""
    world = GroupWorld(partitions=partitions, settings=settings)
    try:
        for partition in range(partitions):
            world.elect(partition)
        world.load()
        world.do(world.coordinator.start)
        yield world
    finally:
        world.stop()
