"""Leaders and followers with real logs, sessions and connections between them, in virtual time."""

import asyncio
import random
from collections.abc import Awaitable, Callable

from broker.replication.partition import ACKS_ALL
from broker.storage.log_config import LogConfig
from broker.storage.partition_log import AppendInfo, AppendOrigin, PartitionLog
from protocol.errors import ErrorCode
from protocol.records.record_batch import iter_batches
from tests.simulation.replica_cluster import Member, ReplicaCluster
from tests.simulation.virtual_loop import VirtualLoop
from tests.unit.broker.batches import batch, with_header


def in_a_cluster(
    test: Callable[[ReplicaCluster], Awaitable[None]], *, log_config: LogConfig | None = None, partitions: int = 1
) -> None:
    """Run a test with three members and some partitions, led by 1, 2, 3, 1, …"""
    loop = VirtualLoop(random.Random(5))

    async def run() -> None:
        cluster = ReplicaCluster(loop, random.Random(6), log_config=log_config or LogConfig())
        await cluster.start(partitions)
        await test(cluster)

    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.run(run())


def append(member: Member, *values: bytes, index: int = 0, acks: int = ACKS_ALL) -> int:
    view, header = with_header(batch(*values))
    info = member.partition(index).append(view, header, origin=AppendOrigin.CLIENT, required_acks=acks)
    assert isinstance(info, AppendInfo), info
    return info.last_offset + 1


async def acknowledged(member: Member, end_offset: int, index: int = 0) -> ErrorCode:
    future: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()
    member.partition(index).when_acknowledged(end_offset, ACKS_ALL, future.set_result)
    return await asyncio.wait_for(future, 30)


def content(log: PartitionLog) -> list[tuple[int, int, bytes]]:
    """(offset, leader epoch, bytes) of every batch."""
    found = []
    for segment in log.segments:
        data = memoryview(segment.file.read_at(segment.size, 0))
        for position, header in iter_batches(data):
            found.append(
                (header.base_offset, header.partition_leader_epoch, bytes(data[position + 21 : position + header.size]))
            )
    return found


def test_what_the_leader_has_its_followers_get() -> None:
    async def test(cluster: ReplicaCluster) -> None:
        leader = cluster.leader()
        end = append(leader, b"a", b"b")
        assert await acknowledged(leader, end) is ErrorCode.NONE
        for member in cluster.members.values():
            assert content(member.log()) == content(leader.log())
        await cluster.until(lambda: all(m.log().high_watermark == 2 for m in cluster.members.values()), "told", 0.05)

    in_a_cluster(test)
