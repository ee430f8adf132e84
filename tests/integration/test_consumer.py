"""The consumer against a real broker: groups and their rebalances, commits, transactions, crashes, positions.

One process and virtual time for all but the end, where a broker process is killed for real.
"""

import asyncio
import re
from collections import Counter
from collections.abc import Collection
from pathlib import Path
from random import Random

import pytest

from oncelog.clients.consumer import (
    Consumer,
    ConsumerConfig,
    ConsumerGroupMetadata,
    OffsetAndMetadata,
    RebalanceListener,
)
from oncelog.clients.consumer.consumer_errors import InstanceFenced, RebalanceInProgress
from oncelog.clients.errors import BrokerRefused, CommitFailed
from oncelog.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from oncelog.protocol.messages.delete_topics import DeleteTopicsRequest
from oncelog.protocol.topic_partition import TopicPartition
from tests.integration.group_members import Member, Place, all_places, new_consumer, places, produce, settled
from tests.processes import OncelogProcess
from tests.scenarios.scripted_producer import ScriptedProducer
from tests.scenarios.stage import Stage, scenario
from tests.simulation.virtual_loop import SimProcess
from tests.simulation.wire_client import WireClient

# Sharing


@pytest.mark.parametrize("assignor", ["cooperative-sticky", "range", "roundrobin", "sticky"])
def test_members_share_take_over_and_see_every_record_once(assignor: str) -> None:
    @scenario(seeds=[1])
    async def play(stage: Stage) -> None:
        partitions = await stage.create_topic("orders", 4)
        await produce(stage, partitions, 5)
        settings = {"assignors": (assignor,)}
        first = Member(stage, ["orders"], **settings).start()
        await settled(stage, first, partitions=partitions)
        second = Member(stage, ["orders"], **settings).start()
        await settled(stage, first, second, partitions=partitions)
        assert {len(first.assignment), len(second.assignment)} == {2}
        await produce(stage, partitions, 5, begin=5)
        await stage.until(lambda: len(first.seen) + len(second.seen) >= 40)
        await first.stop()
        await settled(stage, second, partitions=partitions)
        await produce(stage, partitions, 5, begin=10)
        await stage.until(lambda: len(first.seen) + len(second.seen) >= 60)
        await second.stop()
        assert Counter(first.seen + second.seen) == all_places(partitions, 15)

    play()


@scenario()
async def test_cooperation_goes_on_reading_what_stays(stage: Stage) -> None:
    partitions = await stage.create_topic("orders", 4)
    first = Member(stage, ["orders"]).start()
    await settled(stage, first, partitions=partitions)
    second = Member(stage, ["orders"]).start()
    await settled(stage, first, second, partitions=partitions)
    assert sorted(first.revoked) == sorted(second.assigned)
    assert len(first.revoked) == 2
    assert first.assigned == sorted(partitions)
    assert not first.lost
    await second.stop()
    await settled(stage, first, partitions=partitions)
    assert sorted(first.assigned[4:]) == sorted(second.assigned)
    await first.stop()


@scenario(settings={"group.initial.rebalance.delay.ms": "0"})
async def test_rebalance_that_waits_for_a_member_stops_no_cooperative_member(stage: Stage) -> None:
    """The third member has joined and does not poll: until its rebalance ends, the first goes on with what it owns."""
    partitions = await stage.create_topic("orders", 2)
    await produce(stage, partitions, 5)
    busy = Member(stage, ["orders"]).start()
    idle = Member(stage, ["orders"]).start()
    await settled(stage, busy, idle, partitions=partitions)
    await stage.until(lambda: len(busy.seen) + len(idle.seen) == 10)
    idle.abandon()
    newcomer = Member(stage, ["orders"]).start()
    await stage.until(lambda: busy.consumer._group._membership.is_rebalancing)  # type: ignore[union-attr]
    (kept,) = busy.assignment
    seen = len(busy.seen)
    await produce(stage, [kept], 5, begin=5)
    await stage.until(lambda: len(busy.seen) == seen + 5)
    assert busy.consumer._group._membership.is_rebalancing  # type: ignore[union-attr]
    await idle.consumer.close()
    await settled(stage, busy, newcomer, partitions=partitions)
    await busy.stop()
    await newcomer.stop()


@scenario()
async def test_eager_protocol_gives_everything_up_first(stage: Stage) -> None:
    partitions = await stage.create_topic("orders", 4)
    first = Member(stage, ["orders"], assignors=("range",)).start()
    await settled(stage, first, partitions=partitions)
    second = Member(stage, ["orders"], assignors=("range",)).start()
    await settled(stage, first, second, partitions=partitions)
    assert first.revoked[:4] == sorted(partitions)
    assert first.consumer.assignment == frozenset(partitions[:2]) or first.consumer.assignment == frozenset(
        partitions[2:]
    )
    await first.stop()
    await second.stop()


@scenario()
async def test_members_that_prefer_different_assignors_agree_on_one(stage: Stage) -> None:
    partitions = await stage.create_topic("orders", 2)
    first = Member(stage, ["orders"], assignors=("range", "roundrobin")).start()
    second = Member(stage, ["orders"], assignors=("sticky", "roundrobin")).start()
    await settled(stage, first, second, partitions=partitions)
    await first.stop()
    await second.stop()


@scenario()
async def test_member_without_an_assignor_in_common_is_refused(stage: Stage) -> None:
    partitions = await stage.create_topic("orders", 2)
    first = Member(stage, ["orders"], assignors=("range",)).start()
    await settled(stage, first, partitions=partitions)
    stranger = new_consumer(stage, group_id="group", assignors=("roundrobin",))
    async with stranger:
        stranger.subscribe(["orders"])
        with pytest.raises(BrokerRefused, match="INCONSISTENT_GROUP_PROTOCOL"):
            await stranger.poll(10)
    await first.stop()


# Static members


@scenario()
async def test_static_member_that_comes_back_moves_nothing(stage: Stage) -> None:
    partitions = await stage.create_topic("orders", 4)
    await produce(stage, partitions, 5)
    first = Member(stage, ["orders"], group_instance_id="first").start()
    second = Member(stage, ["orders"], group_instance_id="second").start()
    await settled(stage, first, second, partitions=partitions)
    await stage.until(lambda: len(first.seen) + len(second.seen) == 20)
    owned, generation = second.assignment, first.consumer.group_metadata().generation_id
    moved = list(first.revoked)
    await second.stop()
    again = Member(stage, ["orders"], group_instance_id="second").start()
    await produce(stage, partitions, 5, begin=5)
    await settled(stage, first, again, partitions=partitions)
    assert again.assignment == owned
    assert first.revoked == moved
    assert first.consumer.group_metadata().generation_id == generation
    await stage.until(lambda: len(first.seen) + len(second.seen) + len(again.seen) == 40)
    assert Counter(first.seen + second.seen + again.seen) == all_places(partitions, 10)
    await first.stop()
    await again.stop()


@scenario()
async def test_second_of_two_with_one_instance_id_fences_the_first(stage: Stage) -> None:
    partitions = await stage.create_topic("orders", 2)
    first = Member(stage, ["orders"], group_instance_id="same").start()
    await settled(stage, first, partitions=partitions)
    second = Member(stage, ["orders"], group_instance_id="same").start()
    await settled(stage, second, partitions=partitions)
    await stage.until(lambda: first.failure is not None)
    assert isinstance(first.failure, InstanceFenced)
    for call in (first.consumer.poll(1), first.consumer.commit({partitions[0]: OffsetAndMetadata(1)})):
        with pytest.raises(InstanceFenced):
            await call
    await first.consumer.close()
    assert second.assignment == frozenset(partitions)
    await second.stop()


# Members that stop


@scenario()
async def test_member_that_does_not_poll_in_time_loses_its_partitions_and_cannot_commit(stage: Stage) -> None:
    partitions = await stage.create_topic("orders", 2)
    await produce(stage, partitions, 3)
    slow = Member(stage, ["orders"], max_poll_interval_ms=10_000, heartbeat_interval_ms=1_000)
    await slow.consumer.start()
    slow.consumer.subscribe(["orders"], slow)
    taken = places(await slow.consumer.poll(10))
    assert taken
    quick = Member(stage, ["orders"]).start()
    await settled(stage, quick, partitions=partitions)  # Which takes more than ten seconds.
    with pytest.raises(CommitFailed):
        await slow.consumer.commit()
    await stage.until(lambda: len(quick.seen) == 6)
    everything = dict.fromkeys(partitions, OffsetAndMetadata(3, 0))

    async def is_committed() -> bool:
        return await slow.consumer.committed(partitions) == everything

    await stage.eventually(is_committed)
    slow._task = asyncio.get_running_loop().create_task(_poll_on(slow))
    await settled(stage, quick, slow, partitions=partitions)
    assert sorted(slow.lost) == sorted(partitions)
    assert not slow.revoked
    await slow.stop()
    await quick.stop()


async def _poll_on(member: Member) -> None:
    while not member._stopping:
        await member.step()


@scenario()
async def test_member_that_dies_is_replaced_when_its_session_ends(stage: Stage) -> None:
    partitions = await stage.create_topic("orders", 2)
    await produce(stage, partitions, 3)
    process = SimProcess(stage.loop, "member")
    mortal = Member(stage, ["orders"])
    process.run(_run_forever(mortal))
    survivor = Member(stage, ["orders"]).start()
    await settled(stage, mortal, survivor, partitions=partitions)
    await stage.until(lambda: len(mortal.seen) + len(survivor.seen) == 6)
    process.kill()
    died_at = stage.loop.time()
    await settled(stage, survivor, partitions=partitions)
    assert 5 < stage.loop.time() - died_at < 6 + 3 + 0.5  # The session, and the survivor's next heartbeat.
    await produce(stage, partitions, 3, begin=3)
    await stage.until(lambda: len(mortal.seen) + len(survivor.seen) == 12)
    assert Counter(mortal.seen + survivor.seen) == all_places(partitions, 6)
    await survivor.stop()


async def _run_forever(member: Member) -> None:
    await member.consumer.start()
    member.consumer.subscribe(member.topics, member)
    await _poll_on(member)


# The coordinator


@scenario()
async def test_coordinator_that_is_killed_and_comes_back_moves_nothing(stage: Stage) -> None:
    partitions = await stage.create_topic("orders", 4)
    await produce(stage, partitions, 5)
    members = [Member(stage, ["orders"]).start() for _ in range(2)]
    await settled(stage, *members, partitions=partitions)
    generation = members[0].consumer.group_metadata().generation_id
    for number in range(3):
        await stage.restart()
        await produce(stage, partitions, 5, begin=5 * (number + 1))
        total = 20 * (number + 2)
        await stage.until(lambda total=total: sum(len(member.seen) for member in members) >= total)
    await settled(stage, *members, partitions=partitions)
    assert members[0].consumer.group_metadata().generation_id == generation
    for member in members:
        await member.stop()
    assert Counter(members[0].seen + members[1].seen) == all_places(partitions, 20)


@scenario()
async def test_coordinator_that_is_killed_in_the_middle_of_a_rebalance(stage: Stage) -> None:
    partitions = await stage.create_topic("orders", 4)
    await produce(stage, partitions, 5)
    first = Member(stage, ["orders"]).start()
    await settled(stage, first, partitions=partitions)
    second = Member(stage, ["orders"]).start()
    await stage.until(lambda: first.consumer._group._membership.is_rebalancing)  # type: ignore[union-attr]
    await stage.restart()
    await settled(stage, first, second, partitions=partitions)
    await stage.until(lambda: len(first.seen) + len(second.seen) >= 20)
    await first.stop()
    await second.stop()
    assert set(first.seen + second.seen) == set(all_places(partitions, 5))


# Commits


@scenario(settings={"log.flush.interval.messages": "1"})
async def test_rebalance_while_a_commit_is_under_way(stage: Stage) -> None:
    """The commit of the old generation counts, and the new owner begins after it."""
    partitions = await stage.create_topic("orders", 2)
    await produce(stage, partitions, 3)
    first = new_consumer(stage, group_id="group", assignors=("range",))
    await first.start()
    first.subscribe(["orders"])
    while sum(map(len, [await first.poll(1)])) == 0:
        pass
    consumed = {partition: await first.position(partition) for partition in first.assignment}
    stage.slow_fsync(0.2)
    second = new_consumer(stage, group_id="group", assignors=("range",))
    await second.start()
    second.subscribe(["orders"])
    committing = stage.loop.create_task(first.commit())
    joining = stage.loop.create_task(second.poll(20))
    polling = stage.loop.create_task(_poll_until_shared(first))
    await committing
    await joining
    await polling
    (partition,) = second.assignment
    assert await second.position(partition) >= consumed[partition]
    begins = [offset for place, offset in places(joining.result()) if place == partition]
    assert begins == sorted(begins)
    assert not begins or begins[0] == consumed[partition]
    await first.close()
    await second.close()


async def _poll_until_shared(consumer: Consumer) -> None:
    while len(consumer.assignment) != 1:
        await consumer.poll(0.1)


@scenario()
async def test_commit_that_outlives_its_generation_does_not_overwrite_its_successors(stage: Stage) -> None:
    """It is repeated because its coordinator is gone; when that is back, the partition is another member's."""
    partitions = await stage.create_topic("orders", 1)
    await produce(stage, partitions, 6)
    slow = Member(stage, ["orders"], max_poll_interval_ms=8_000, heartbeat_interval_ms=500)
    await slow.consumer.start()
    slow.consumer.subscribe(["orders"], slow)
    assert len(await slow.consumer.poll(10, 2)) == 2
    stage.crash()
    committing = stage.loop.create_task(slow.consumer.commit(timeout_seconds=300))
    await asyncio.sleep(20)
    await stage.broker.start()
    quick = Member(stage, ["orders"]).start()
    await settled(stage, quick, partitions=partitions)
    await stage.until(lambda: bool(quick.seen) and quick.seen[-1][1] == 5)
    with pytest.raises((CommitFailed, RebalanceInProgress)):
        await committing
    await quick.stop()
    assert await stage.group_offset("group", partitions[0]) == 6
    await slow.consumer.close()


@scenario()
async def test_automatic_commits_come_with_polls_rebalances_and_the_end(stage: Stage) -> None:
    partitions = await stage.create_topic("orders", 2)
    await produce(stage, partitions, 4)
    settings = {"group_id": "group", "enable_auto_commit": True, "auto_commit_interval_ms": 1_000}
    first = new_consumer(stage, **settings)
    await first.start()
    first.subscribe(["orders"])
    seen = []
    while len(seen) < 4:
        seen += places(await first.poll(5, 2))
    await asyncio.sleep(2)
    assert sum([max(0, await stage.group_offset("group", partition)) for partition in partitions]) == 0
    seen += places(await first.poll(0, 1))  # What earlier polls returned is committed with a later one.

    async def committed() -> int:
        return sum([max(0, await stage.group_offset("group", partition)) for partition in partitions])

    async def is_committed() -> bool:
        return await committed() == 4

    await stage.eventually(is_committed)
    await first.close()
    assert await committed() == len(seen)
    second = new_consumer(stage, **settings)
    async with second:
        second.subscribe(["orders"])
        while len(seen) < 8:
            seen += places(await second.poll(5))
    assert Counter(seen) == all_places(partitions, 4)
    assert await committed() == 8


@pytest.mark.parametrize("assignor", ["cooperative-sticky", "range"])
def test_automatic_commits_make_rebalances_seamless(assignor: str) -> None:
    @scenario()
    async def play(stage: Stage) -> None:
        partitions = await stage.create_topic("orders", 4)
        await produce(stage, partitions, 8)
        settings = {
            "group_id": "group",
            "enable_auto_commit": True,
            "assignors": (assignor,),
            "heartbeat_interval_ms": 100,
        }
        consumers = [new_consumer(stage, **settings) for _ in range(2)]
        seen: list[list[Place]] = [[], []]

        async def run(number: int) -> None:
            consumer = consumers[number]
            await consumer.start()
            consumer.subscribe(["orders"])
            while sum(map(len, seen)) < 32 or not all(seen):
                seen[number] += places(await consumer.poll(0.2, 1))
                await asyncio.sleep(0.05)
            await consumer.close()

        first = stage.loop.create_task(run(0))
        await stage.until(lambda: len(seen[0]) > 3)
        await run(1)
        await first
        assert Counter(seen[0] + seen[1]) == all_places(partitions, 8)

    play()


@scenario()
async def test_committed_offsets_of_an_open_transaction_are_returned_after_its_end(stage: Stage) -> None:
    partitions = await stage.create_topic("orders", 1)
    await produce(stage, partitions, 5)
    await stage.find_coordinator("group", transactional=False)
    producer = stage.producer("producer")
    await producer.init()
    assert await producer.add_offsets("group") == 0
    assert await producer.commit_offsets("group", {partitions[0]: 3}) == 0
    consumer = new_consumer(stage, group_id="group")
    async with consumer:
        consumer.subscribe(["orders"])
        assert await consumer.poll(5) == []
        assert consumer.assignment == frozenset(partitions)
        await producer.end(commit=True)
        assert places(await consumer.poll(10)) == [(partitions[0], 3), (partitions[0], 4)]


@scenario()
async def test_partitions_of_ones_own_can_be_committed_while_the_group_has_no_members(stage: Stage) -> None:
    partitions = await stage.create_topic("orders", 1)
    await produce(stage, partitions, 3)
    alone = new_consumer(stage, group_id="group")
    async with alone:
        alone.assign(partitions)
        assert len(await alone.poll(5)) == 3
        await alone.commit()
        assert await alone.committed(partitions) == {partitions[0]: OffsetAndMetadata(3, 0)}
        assert alone.group_metadata() == ConsumerGroupMetadata(group_id="group")
        member = Member(stage, ["orders"]).start()
        await settled(stage, member, partitions=partitions)
        with pytest.raises(CommitFailed):
            await alone.commit({partitions[0]: OffsetAndMetadata(1, -1, "mine")})
        await member.stop()
        await alone.commit({partitions[0]: OffsetAndMetadata(1, 0, "mine")})
        assert await alone.committed(partitions) == {partitions[0]: OffsetAndMetadata(1, 0, "mine")}


# Subscriptions that change


@scenario()
async def test_pattern_finds_topics_that_come_and_go(stage: Stage) -> None:
    (old,) = await stage.create_topic("orders-1")
    await stage.create_topic("returns-1")
    member = Member(stage, re.compile("orders-.*"), metadata_max_age_ms=2_000).start()
    await settled(stage, member, partitions=[old])
    (new,) = await stage.create_topic("orders-2")
    await settled(stage, member, partitions=[old, new])
    await produce(stage, [new], 2)
    await stage.until(lambda: len(member.seen) == 2)
    await stage.call(DeleteTopicsRequest(topic_names=["orders-1"], timeout_ms=5_000), 5)
    await settled(stage, member, partitions=[new])
    assert member.consumer.subscription == {"orders-2"}
    await member.stop()


@scenario()
async def test_new_partitions_and_new_subscriptions_are_shared_out(stage: Stage) -> None:
    partitions = await stage.create_topic("orders", 1)
    (click,) = await stage.create_topic("clicks", 1)
    members = [Member(stage, ["orders"], metadata_max_age_ms=2_000).start() for _ in range(2)]
    await settled(stage, *members, partitions=partitions)
    wanted = CreatePartitionsTopic(name="orders", count=3, assignments=None)
    await stage.call(CreatePartitionsRequest(topics=[wanted], timeout_ms=5_000), 3)
    partitions = [TopicPartition("orders", index) for index in range(3)]
    await settled(stage, *members, partitions=partitions)
    members[0].consumer.subscribe(["orders", "clicks"], members[0])
    await settled(stage, *members, partitions=[*partitions, click])
    members[0].consumer.subscribe(["clicks"], members[0])
    await settled(stage, *members, partitions=[*partitions, click])
    assert members[0].assignment == {click}
    await members[0].consumer.unsubscribe()
    assert members[0].assignment == frozenset()
    members[0].consumer.assign([click])
    await settled(stage, members[1], partitions=partitions)
    for member in members:
        await member.stop()


# For real


async def test_broker_process_that_is_killed_and_started_again(tmp_path: Path) -> None:
    with OncelogProcess(tmp_path, ["num.partitions=2"]) as broker:
        config = ConsumerConfig(bootstrap=broker.address, group_id="group", auto_offset_reset="earliest")
        consumers = [Consumer(config, rng=Random(seed), wall_clock=lambda: 0) for seed in range(2)]
        seen: list[Place] = []
        partitions = [TopicPartition("orders", index) for index in range(2)]
        producer = ScriptedProducer(lambda: WireClient.connect(broker.port), None, timeout_ms=60_000)

        shared = asyncio.Event()

        class Watch(RebalanceListener):
            async def on_partitions_assigned(self, _: Collection[TopicPartition]) -> None:
                if all(len(consumer.assignment) == 1 for consumer in consumers):
                    shared.set()

        async def consume(consumer: Consumer) -> None:
            await consumer.start()
            consumer.subscribe(["orders"], Watch())
            while len(seen) < 80:
                seen.extend(places(await consumer.poll(0.1)))
            await consumer.commit()
            await consumer.close()

        async with asyncio.timeout(60), asyncio.TaskGroup() as tasks:
            for consumer in consumers:
                tasks.create_task(consume(consumer))
            await shared.wait()
            await producer.init()
            for number in range(40):
                if number == 20:
                    broker.kill()
                    broker.start()
                for partition in partitions:
                    assert (await producer.send(partition, str(number).encode())).error_code == 0
        assert Counter(seen) == all_places(partitions, 40)
        async with Consumer(config, rng=Random(3), wall_clock=lambda: 0) as successor:
            assert await successor.committed(partitions) == dict.fromkeys(partitions, OffsetAndMetadata(40, 1))
