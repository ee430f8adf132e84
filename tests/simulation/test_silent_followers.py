"""A coordinator whose followers stand still for a while: members of its groups keep their sessions and their commits.

A member here is as real ones are: heartbeats and commits go over one connection, on which responses come in the order
of the requests, and a heartbeat that is not answered within the session time-out ends its membership.
"""

import asyncio
import logging
from collections.abc import Mapping
from functools import partial
from typing import Any, Final

import pytest

from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.heartbeat import HeartbeatRequest
from oncelog.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from oncelog.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from oncelog.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.simulation import requests
from tests.simulation.cluster_stories import create
from tests.simulation.simulated_cluster import SimulatedCluster
from tests.simulation.test_cluster_transactions import (
    commit_offset,
    fetch_offset,
    group_led_by,
    group_partition,
    make_offsets,
    pause,
    play,
    resume,
    until,
    until_done,
)
from tests.simulation.wire_client import WireClient

SESSION_SECONDS: Final = 6.0
HEARTBEAT_SECONDS: Final = 2.0
COMMIT_SECONDS: Final = 0.7
JOIN_VERSION: Final = 5
SYNC_VERSION: Final = 3
HEARTBEAT_VERSION: Final = 3
COMMIT_VERSION: Final = 7
OFFSETS: Final[Mapping[str, Any]] = {"offsets_topic_replication_factor": "3", "offsets_topic_num_partitions": "8"}
MANAGER_LOG: Final = "oncelog.broker.replication.isr_checks"


class Member:
    """A static member, and the responses that it received."""

    def __init__(self, client: WireClient, group: str, instance: str, partition: int = 0) -> None:
        self.client = client
        self.group = group
        self.instance = instance
        self.partition = partition
        self.member_id = ""
        self.generation = -1
        self.heartbeats: list[ErrorCode] = []
        self.longest_wait = 0.0
        """From one heartbeat that was answered well to the next, in seconds."""
        self.sent = 0
        """The offset that was committed last, acknowledged or not."""
        self.acknowledged = 0
        self.commit_errors: set[ErrorCode] = set()

    async def join(self) -> None:
        request = JoinGroupRequest(
            group_id=self.group,
            session_timeout_ms=int(SESSION_SECONDS * 1000),
            rebalance_timeout_ms=60_000,
            group_instance_id=self.instance,
            protocol_type="test",
            protocols=[JoinGroupRequestProtocol(name="p", metadata=b"")],
        )
        joined = await self.client.call(request, JOIN_VERSION)
        assert joined.error_code == ErrorCode.NONE
        self.member_id, self.generation = joined.member_id, joined.generation_id
        assignments = [SyncGroupRequestAssignment(member_id=m.member_id, assignment=b"a") for m in joined.members]
        synced = await self.client.call(
            SyncGroupRequest(
                group_id=self.group,
                generation_id=self.generation,
                member_id=self.member_id,
                group_instance_id=self.instance,
                assignments=assignments,
            ),
            SYNC_VERSION,
        )
        assert synced.error_code == ErrorCode.NONE

    async def heartbeat(self) -> ErrorCode:
        request = HeartbeatRequest(
            group_id=self.group,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance,
        )
        return ErrorCode((await self.client.call(request, HEARTBEAT_VERSION)).error_code)

    async def commit(self) -> ErrorCode:
        self.sent += 1
        offset = self.sent
        partition = OffsetCommitRequestPartition(partition_index=self.partition, committed_offset=offset)
        request = OffsetCommitRequest(
            group_id=self.group,
            generation_id_or_member_epoch=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance,
            topics=[OffsetCommitRequestTopic(name="t", partitions=[partition])],
        )
        error = ErrorCode((await self.client.call(request, COMMIT_VERSION)).topics[0].partitions[0].error_code)
        if error is ErrorCode.NONE:
            self.acknowledged = max(self.acknowledged, offset)
        return error

    async def run(self, seconds: float, *, commits: bool) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._heartbeats(seconds))
            if commits:
                group.create_task(self._commits(seconds))

    async def _heartbeats(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        end, responded = loop.time() + seconds, loop.time()
        while loop.time() < end:
            await asyncio.sleep(HEARTBEAT_SECONDS)
            self.heartbeats.append(await self.heartbeat())
            if self.heartbeats[-1] is ErrorCode.NONE:
                self.longest_wait = max(self.longest_wait, loop.time() - responded)
                responded = loop.time()

    async def _commits(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        while loop.time() < end:
            self.commit_errors.add(await self.commit())
            await asyncio.sleep(COMMIT_SECONDS)


async def group_of_two(cluster: SimulatedCluster, coordinator: int) -> list[Member]:
    await make_offsets(cluster)
    await create(cluster, "t", (coordinator,), (coordinator,))
    group = group_led_by(cluster, coordinator)
    members = [Member(await cluster[coordinator].client(), group, f"instance-{i}", i) for i in range(2)]
    async with asyncio.TaskGroup() as tasks:
        for member in members:
            tasks.create_task(member.join())
    assert {member.generation for member in members} == {1}
    return members


@pytest.mark.parametrize(("how", "seconds"), [("pause", 4.0), ("stall", 4.0), ("stall", 8.0)])
def test_members_keep_session_and_commits_while_both_followers_stand_still(
    how: str, seconds: float, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, MANAGER_LOG)

    async def story(cluster: SimulatedCluster) -> None:
        members = await group_of_two(cluster, 1)
        async with asyncio.TaskGroup() as tasks:
            for member, commits in zip(members, (True, False), strict=True):
                tasks.create_task(member.run(seconds + 10.0, commits=commits))
            await asyncio.sleep(3.0)
            for follower in (2, 3):
                process: Any = cluster[follower].process
                getattr(process, how)()
            await asyncio.sleep(seconds)
            resume(cluster, 2)
            resume(cluster, 3)
        for member in members:
            assert set(member.heartbeats) == {ErrorCode.NONE}, member.heartbeats
            assert member.longest_wait < SESSION_SECONDS, "the client would have ended its session"
            assert member.commit_errors <= {ErrorCode.NONE, *requests.RETRIABLE}
            assert await member.commit() is ErrorCode.NONE
            assert await member.heartbeat() is ErrorCode.NONE
        error, offset = await fetch_offset(members[0].client, members[0].group)
        assert (error, offset) == (ErrorCode.NONE, members[0].acknowledged)

    play(story, **OFFSETS, group_initial_rebalance_delay_ms="500")
    lines = [record for record in caplog.records if "in-sync follower fetches" in record.getMessage()]
    assert [record.levelname for record in lines] == ["WARNING", "INFO"]


def test_followers_that_stand_still_one_after_the_other_lose_no_commit_and_show_no_old_offset() -> None:
    """The offset that is read is never below what was acknowledged before, whichever broker coordinates."""

    async def story(cluster: SimulatedCluster) -> None:
        await make_offsets(cluster)
        await create(cluster, "t", (1,))
        group = group_led_by(cluster, 1)
        acknowledged = -1

        async def write(offset: int) -> ErrorCode:
            client = await cluster[group_partition(cluster, group).leader].client()
            return await commit_offset(client, group, offset)

        for round_ in range(1, 9):
            victims = [(2, 3), (1, 2), (1, 3), (1,)][round_ % 4]
            for victim in victims:
                pause(cluster, victim)
            others = [broker for broker in (1, 2, 3) if broker not in victims]
            clients = [await cluster[broker].client() for broker in others]
            for client in clients:
                error = await commit_offset(client, group, round_)
                if error is ErrorCode.NONE:
                    acknowledged = round_
                error, offset = await fetch_offset(client, group)
                assert error is not ErrorCode.NONE or offset >= acknowledged
            for victim in victims:
                resume(cluster, victim)
            for broker in (1, 2, 3):
                error, offset = await fetch_offset(await cluster[broker].client(), group)
                assert error is not ErrorCode.NONE or offset >= acknowledged
            await until(lambda: len(group_partition(cluster, group).isr) == 3)
            await until_done(partial(write, round_))
            acknowledged = round_

    play(story, **OFFSETS)


def test_coordinator_that_was_replaced_dismisses_no_member_of_its_successor() -> None:
    """To a static member FENCED_INSTANCE_ID is the end, and the one that is fenced is the one that lives."""

    async def story(cluster: SimulatedCluster) -> None:
        await make_offsets(cluster)
        await create(cluster, "t", (1,))
        group = group_led_by(cluster, 2)
        old = Member(await cluster[2].client(), group, "one")
        await old.join()
        assert await old.commit() is ErrorCode.NONE
        pause(cluster, 2)
        await until(lambda: group_partition(cluster, group).leader != 2)
        successor = await cluster[group_partition(cluster, group).leader].client()
        new = Member(successor, group, "one")

        async def join() -> ErrorCode:
            try:
                await new.join()
            except AssertionError:  # It loads.
                return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            return ErrorCode.NONE

        await until_done(join)
        new.sent = 10
        assert await new.commit() is ErrorCode.NONE
        new.client = await cluster[2].client()
        pending = [asyncio.ensure_future(ask()) for ask in (new.heartbeat, new.commit, old.heartbeat)]  # noqa: TID251
        await asyncio.sleep(0.1)
        resume(cluster, 2)
        away = {ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR}
        errors = [await future for future in pending]
        assert set(errors[:2]) <= away, errors
        assert await fetch_offset(successor, group) == (ErrorCode.NONE, 11)

    play(story, **OFFSETS)
