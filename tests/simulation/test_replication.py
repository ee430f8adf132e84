"""Leaders and followers with real logs, sessions and connections between them, in virtual time."""

import asyncio
import random
from collections.abc import Awaitable, Callable

from oncelog.broker.replication.leading_partition import ACKS_ALL
from oncelog.broker.storage.log_config import LogConfig
from oncelog.broker.storage.partition_log import AppendInfo, AppendOrigin, PartitionLog
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.records.record_batch import iter_batches
from tests.simulation.replica_cluster import LAG_MS, Member, ReplicaCluster
from tests.simulation.virtual_loop import VirtualLoop
from tests.unit.broker.batches import batch, with_header


def in_a_cluster(
    test: Callable[[ReplicaCluster], Awaitable[None]], *, log_config: LogConfig | None = None, partitions: int = 1
) -> None:
    """Run a test with three members and some partitions, led by 1, 2, 3, 1, …"""
    loop = VirtualLoop(random.Random(5))

    cluster = ReplicaCluster(loop, random.Random(6), log_config=log_config or LogConfig())

    async def run() -> None:
        await cluster.start(partitions)
        await test(cluster)

    try:
        loop.run_until_complete(run())
    finally:
        cluster.kill()
        loop.close()


def append(member: Member, *values: bytes, index: int = 0, acks: int = ACKS_ALL) -> int:
    view, header = with_header(batch(*values))
    info = member.act(member.leading(index).append, view, header, origin=AppendOrigin.CLIENT, required_acks=acks)
    assert isinstance(info, AppendInfo), info
    return info.last_offset + 1


async def acknowledged(member: Member, end_offset: int, index: int = 0) -> ErrorCode:
    future: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()
    member.leading(index).when_acknowledged(end_offset, ACKS_ALL, future.set_result)
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


def test_followers_receive_what_the_leader_appends() -> None:
    async def test(cluster: ReplicaCluster) -> None:
        leader = cluster.leader()
        end = append(leader, b"a", b"b")
        assert await acknowledged(leader, end) is ErrorCode.NONE
        for member in cluster.members.values():
            assert content(member.log()) == content(leader.log())
        await cluster.until(lambda: all(m.log().high_watermark == 2 for m in cluster.members.values()), "told", 0.05)

    in_a_cluster(test)


def test_follower_that_was_away_returns_into_the_isr() -> None:
    """B52, B60: out of the ISR it delays no response; back in it, it has everything."""

    async def test(cluster: ReplicaCluster) -> None:
        leader, controller = cluster.leader(), cluster.controller
        cluster[3].crash("process", cluster.rng)
        controller.lost(3)
        await cluster.until(lambda: leader.in_sync() == {1, 2}, "told")
        assert await acknowledged(leader, append(leader, b"a")) is ErrorCode.NONE
        await cluster[3].start()
        controller.returned(3)
        await cluster.until(lambda: set(controller.states[0].isr) == {1, 2, 3}, "in sync again", 2)
        assert content(cluster[3].log()) == content(leader.log())

    in_a_cluster(test)


def test_follower_that_hangs_leaves_the_isr_and_delays_no_writes() -> None:
    async def test(cluster: ReplicaCluster) -> None:
        leader, controller = cluster.leader(), cluster.controller
        cluster.isolate(3)
        end = append(leader, b"a")
        began = cluster.loop.time()
        assert await acknowledged(leader, end) is ErrorCode.NONE
        assert LAG_MS / 1000 <= cluster.loop.time() - began <= 2 * LAG_MS / 1000
        assert set(controller.states[0].isr) == {1, 2}
        cluster.loop.network.heal()
        await cluster.until(lambda: set(controller.states[0].isr) == {1, 2, 3}, "in sync again", 2)

    in_a_cluster(test)


def test_idle_follower_is_never_taken_for_a_slow_one() -> None:
    async def test(cluster: ReplicaCluster) -> None:
        leader = cluster.leader()
        await acknowledged(leader, append(leader, b"a"))
        await asyncio.sleep(10 * LAG_MS / 1000)
        end = append(leader, b"b")
        leader.leading().check_followers()
        assert cluster.controller.states[0].version == 0
        assert await acknowledged(leader, end) is ErrorCode.NONE

    in_a_cluster(test)


def test_unreplicated_tail_is_truncated_by_leader_epoch() -> None:
    """B49: the old leader's high watermark covers less than both logs share, and its end more."""

    async def test(cluster: ReplicaCluster) -> None:
        old = cluster.leader()
        await acknowledged(old, append(old, b"a"))
        cluster.isolate(1)
        append(old, b"lost", b"lost", acks=1)
        cluster.controller.delay = lambda: 0.05
        cluster.controller.elect(0, 2, isr=[2, 3])
        await cluster.until(lambda: cluster[2].partition().leading is not None, "elected")
        new = cluster[2]
        assert await acknowledged(new, append(new, b"kept")) is ErrorCode.NONE
        cluster.loop.network.heal()
        await cluster.until(lambda: set(cluster.controller.states[0].isr) == {1, 2, 3}, "in sync again", 3)
        assert content(old.log()) == content(new.log())
        assert [epoch for _, epoch, _ in content(old.log())] == [0, 1]

    in_a_cluster(test)


def test_follower_behind_all_that_the_leader_still_has_begins_anew() -> None:
    async def test(cluster: ReplicaCluster) -> None:
        leader, controller = cluster.leader(), cluster.controller
        await acknowledged(leader, append(leader, b"a"))
        cluster[3].crash("process", cluster.rng)
        controller.lost(3)
        await cluster.until(lambda: leader.in_sync() == {1, 2}, "told")
        for value in (b"b", b"c"):
            await acknowledged(leader, append(leader, value))
        assert leader.leading().delete_records(2) == (2, 0)
        leader.log().roll()
        await cluster.until(lambda: leader.leading().progress.low_watermark == 2, "deleted")
        await cluster[3].start()
        controller.returned(3)
        await cluster.until(lambda: set(controller.states[0].isr) == {1, 2, 3}, "in sync again", 2)
        assert (cluster[3].log().log_start_offset, cluster[3].log().log_end_offset) == (2, 3)

    in_a_cluster(test)


def test_leader_learns_at_once_that_a_partition_came() -> None:
    """A fetch that waits for records of other partitions does not hold up one that was just elected."""

    async def test(cluster: ReplicaCluster) -> None:
        for index in range(3):
            leader = cluster.leader(index)
            await acknowledged(leader, append(leader, b"a", index=index), index)
        await asyncio.sleep(0.05)
        cluster.controller.elect(0, 2)
        await cluster.until(lambda: cluster[2].partition().leading is not None, "elected")
        began = cluster.loop.time()
        assert await acknowledged(cluster[2], append(cluster[2], b"b")) is ErrorCode.NONE
        assert cluster.loop.time() - began < 0.1

    in_a_cluster(test, partitions=3)


def test_restarted_follower_does_not_enter_the_isr_by_its_former_incarnation() -> None:
    """B56"""

    async def test(cluster: ReplicaCluster) -> None:
        leader, controller = cluster.leader(), cluster.controller
        await acknowledged(leader, append(leader, b"a"))
        cluster[3].epoch += 1000  # As if it had restarted, and the leader had not heard from the new incarnation.
        controller.elect(0, 1, isr=[1, 2])
        await cluster.until(lambda: len(controller.refusals) > 1, "refused", 5)
        assert set(controller.refusals) == {ErrorCode.INELIGIBLE_REPLICA}
        assert controller.states[0].isr == (1, 2)
        assert leader.in_sync() == {1, 2}

    in_a_cluster(test)


def test_failed_log_takes_out_one_partition() -> None:
    async def test(cluster: ReplicaCluster) -> None:
        follower = cluster[3]
        follower.disk.fail("append", "t-0/00000000000000000000.log")
        for index in (0, 1):
            append(cluster.leader(index), b"a", index=index, acks=1)
        await cluster.until(lambda: follower.log(0).failed, "failed")
        assert await acknowledged(cluster[2], 1, 1) is ErrorCode.NONE
        assert content(follower.log(1)) == content(cluster[2].log(1))

    in_a_cluster(test, partitions=2)


def test_follower_with_flush_each_is_synced_before_it_counts() -> None:
    async def test(cluster: ReplicaCluster) -> None:
        leader = cluster.leader()
        assert await acknowledged(leader, append(leader, b"a")) is ErrorCode.NONE
        assert [member.log().flushed_offset for member in cluster.members.values()] == [1, 1, 1]

    in_a_cluster(test, log_config=LogConfig(flush_interval_messages=1))


def test_deleting_waits_for_the_followers() -> None:
    async def test(cluster: ReplicaCluster) -> None:
        leader = cluster.leader()
        await acknowledged(leader, append(leader, b"a", b"b"))
        deleted: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()
        assert leader.leading().delete_records(2) == (2, 0)
        leader.leading().when_deleted(2, deleted.set_result)
        assert await asyncio.wait_for(deleted, 1) is ErrorCode.NONE
        assert [member.log().log_start_offset for member in cluster.members.values()] == [2, 2, 2]

    in_a_cluster(test)


def test_leader_that_missed_an_epoch_forgets_how_far_its_followers_were() -> None:
    """B60: they may have followed another leader meanwhile, which lacked what they had from this one."""

    async def test(cluster: ReplicaCluster) -> None:
        controller, leader = cluster.controller, cluster.leader()
        await acknowledged(leader, append(leader, b"a"))
        cluster.isolate(2)
        await cluster.until(lambda: cluster[3].log().high_watermark == 1, "told")
        append(leader, b"b")
        await cluster.until(lambda: leader.leading().progress.followers[3].end == 2, "fetched")
        cluster.loop.network.heal()
        cluster.isolate(1)
        controller.states[0].leader, controller.states[0].leader_epoch = 2, 1
        for member in (2, 3):  # The controller falls before it has told the leader.
            controller.tell([0], only=member)
        await cluster.until(lambda: cluster[3].log().log_end_offset == 1, "cut off")
        cluster[2].crash("process", cluster.rng)
        controller.elect(0, 1, isr=[1, 3])
        reported: list[ErrorCode] = []
        leader.act(leader.leading().when_replicated, 2, reported.append)
        await cluster.until(lambda: leader.partition().leader_epoch == 2, "elected")
        assert reported == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
        assert leader.log().high_watermark == 1
        cluster.loop.network.heal()
        await cluster.until(lambda: cluster[3].log().log_end_offset == leader.log().high_watermark == 2, "replicated")

    in_a_cluster(test)
