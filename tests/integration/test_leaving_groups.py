"""Members that leave a group in the middle of a rebalance, and those that a rebalance must not leave behind."""

import re

import pytest

from tests.integration.group_members import Member, new_consumer, places, produce, settled
from tests.scenarios.stage import Stage, scenario

_SETTINGS = {"group.initial.rebalance.delay.ms": "0"}


@pytest.mark.parametrize("assignor", ["cooperative-sticky", "range"])
def test_member_that_leaves_while_it_joins_delays_no_rebalance(assignor: str) -> None:
    """Its session has six seconds to go: the remaining member must not wait for that, nor share with it until then."""

    @scenario(settings=_SETTINGS)
    async def play(stage: Stage) -> None:
        partitions = await stage.create_topic("orders", 4)
        staying = Member(stage, ["orders"], assignors=(assignor,), heartbeat_interval_ms=500)
        await staying.consumer.start()
        staying.consumer.subscribe(["orders"], staying)
        while not staying.assignment:
            await staying.consumer.poll(0.1)
        leaving = new_consumer(stage, group_id="group", assignors=(assignor,))
        await leaving.start()
        leaving.subscribe(["orders"])
        await leaving.poll(1)  # It waits for the other one, which does not poll.
        await leaving.close()
        left_at = stage.loop.time()
        staying.start()
        await stage.until(lambda: staying.consumer.group_metadata().generation_id > 1)
        await settled(stage, staying, partitions=partitions)
        assert stage.loop.time() - left_at < 3
        await staying.stop()

    play()


@scenario(settings=_SETTINGS)
async def test_consumer_that_unsubscribes_while_it_joins_can_subscribe_again(stage: Stage) -> None:
    partitions = await stage.create_topic("orders", 2)
    await produce(stage, partitions, 1)
    idle = Member(stage, ["orders"])
    await idle.consumer.start()
    idle.consumer.subscribe(["orders"])
    while not idle.assignment:
        await idle.consumer.poll(0.1)
    consumer = new_consumer(stage, group_id="group")
    await consumer.start()
    consumer.subscribe(["orders"])
    await consumer.poll(1)
    await consumer.unsubscribe()
    await idle.consumer.close()
    consumer.subscribe(["orders"])
    seen = []
    for _ in range(10):
        seen += places(await consumer.poll(0.5))
    assert sorted(seen) == [(partition, 0) for partition in partitions]
    await consumer.close()


@pytest.mark.parametrize("assignor", ["cooperative-sticky", "range"])
def test_member_hears_of_a_rebalance_before_it_ends_without_it(assignor: str) -> None:
    """A rebalance waits for ``max_poll_interval_ms``; here the interval of heartbeats is longer than that."""

    @scenario(settings=_SETTINGS)
    async def play(stage: Stage) -> None:
        partitions = await stage.create_topic("orders", 4)
        settings = {"assignors": (assignor,), "max_poll_interval_ms": 2_000, "heartbeat_interval_ms": 3_000}
        members = [Member(stage, ["orders"], **settings).start()]
        await settled(stage, *members, partitions=partitions)
        for _ in range(3):
            members.append(Member(stage, ["orders"], **settings).start())
            await settled(stage, *members, partitions=partitions)
        assert not any(member.lost for member in members)
        for member in members:
            await member.stop()

    play()


@pytest.mark.parametrize("count", [1, 2])
def test_static_leader_that_comes_back_shares_out_topics_that_came_meanwhile(count: int) -> None:
    """Its return begins no rebalance, and no other member watches the topics."""

    @scenario(settings=_SETTINGS)
    async def play(stage: Stage) -> None:
        partitions = await stage.create_topic("orders", 4)
        pattern = re.compile("orders.*")
        members = [Member(stage, pattern, group_instance_id=str(index)).start() for index in range(count)]
        await settled(stage, *members, partitions=partitions)
        leader = next(member for member in members if member.consumer._group._rebalances._assigned_sizes is not None)  # type: ignore[union-attr]
        await leader.stop()
        partitions += await stage.create_topic("orders-2", 2)
        instance = leader.consumer._config.group_instance_id
        members[members.index(leader)] = Member(stage, pattern, group_instance_id=instance).start()
        await settled(stage, *members, partitions=partitions)
        for member in members:
            await member.stop()

    play()
