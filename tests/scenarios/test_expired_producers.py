"""Producers that a partition forgets after ``producer.id.expiration.ms``, beside transactions of others (version 1)."""

import asyncio

from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.internal.topics import GROUP_METADATA_TOPIC_NAME
from tests.scenarios.greeted_client import greeted
from tests.scenarios.scripted_producer import ScriptedProducer, ok
from tests.scenarios.stage import Stage, scenario
from tests.scenarios.test_late_batches import CHALLENGED, NONE, Writer
from tests.scenarios.test_timely_connections import COORDINATOR_CHALLENGED, GROUP, commit_offset

EXPIRY_MS = 60_000
QUICK_EXPIRY = {"producer.id.expiration.ms": str(EXPIRY_MS), "producer.id.expiration.check.interval.ms": str(EXPIRY_MS)}


async def until_forgotten(stage: Stage, producer: ScriptedProducer, topic: str) -> None:
    def is_forgotten() -> bool:
        assert stage.broker.broker is not None
        led = stage.broker.broker.replica_manager.led_partitions()
        known = [each for each in led if producer.producer_id in each.log.producer_state.producers]
        return all(each.topic_partition.topic != topic for each in known)

    await stage.until(is_forgotten, within=3 * EXPIRY_MS / 1000)


async def forgotten_producer(stage: Stage, *values: bytes) -> tuple[ScriptedProducer, Writer]:
    """One that has committed these batches and is forgotten, and a connection from before that."""
    (invoices,) = await stage.create_topic("invoices")
    producer = stage.producer("billing", timeout_ms=600_000)
    ok(await producer.init())
    ok(await producer.add(invoices))
    batches = list(enumerate(values))
    written = await Writer(await greeted(stage), producer, invoices).write_at_once(*batches)
    assert set(written) == {NONE}
    ok(await producer.end(commit=True))
    former = Writer(await stage.connect(), producer, invoices)
    await until_forgotten(stage, producer, "invoices")
    return producer, former


async def idle_producer_of_offsets(stage: Stage) -> ScriptedProducer:
    """One that has committed offsets of the group, and does nothing more."""
    (returns,) = await stage.create_topic("returns")
    producer = stage.producer("retired")
    ok(await producer.init())
    ok(await producer.add_offsets(GROUP))
    assert await commit_offset(await greeted(stage), producer, returns, 1) == NONE
    ok(await producer.end(commit=True))
    return producer


@scenario(settings=QUICK_EXPIRY)
async def test_expiry_of_another_producer_does_not_let_late_offsets_overtake(stage: Stage) -> None:
    """B108: the leader still knows that the group's owner has acted, and over which connection."""
    (purchases,) = await stage.create_topic("purchases")
    await stage.find_coordinator(GROUP, transactional=False)
    idle = await idle_producer_of_offsets(stage)
    await asyncio.sleep(EXPIRY_MS / 1000 - 5)
    producer = stage.producer("billing", timeout_ms=600_000)
    ok(await producer.init())
    late = await producer.connection()
    ok(await producer.add_offsets(GROUP))
    assert await commit_offset(late, producer, purchases, 3) == NONE
    live = await greeted(stage)
    assert [await commit_offset(live, producer, purchases, offset) for offset in (5, 7)] == [NONE, NONE]
    await until_forgotten(stage, idle, GROUP_METADATA_TOPIC_NAME)
    assert await commit_offset(late, producer, purchases, 5) == COORDINATOR_CHALLENGED
    producer.client = live
    ok(await producer.end(commit=True))
    assert await stage.group_offset(GROUP, purchases) == 7


@scenario(settings=QUICK_EXPIRY)
async def test_expiry_of_another_producer_challenges_no_session(stage: Stage) -> None:
    (invoices,) = await stage.create_topic("invoices")
    producer, idle = stage.producer("billing", timeout_ms=600_000), stage.producer("idle")
    for each in (producer, idle):
        ok(await each.init())
        ok(await each.add(invoices))
    assert await Writer(await greeted(stage), idle, invoices).write(0, b"idle") is NONE
    ok(await idle.end(commit=True))
    live = Writer(await greeted(stage), producer, invoices)
    for sequence in range(0, 8, 2):
        assert await live.write(sequence, b"a") is NONE
        await asyncio.sleep(EXPIRY_MS / 2000)
        assert await live.write(sequence + 1, b"a") is NONE
    await until_forgotten(stage, idle, "invoices")
    assert await live.write(8, b"a") is NONE


@scenario(settings=QUICK_EXPIRY)
async def test_late_batch_does_not_hold_back_the_next_one_where_the_producer_was_forgotten(stage: Stage) -> None:
    """A copy of a batch that was acknowledged long ago arrives before the first one of the transaction."""
    producer, late = await forgotten_producer(stage, b"a", b"b")
    invoices = late.partition
    ok(await producer.add(invoices))
    live = Writer(await greeted(stage), producer, invoices)
    assert await late.write(0, b"a") is CHALLENGED
    assert await live.write(2, b"c") is NONE
    ok(await producer.end(commit=True))
    assert await stage.committed(invoices) == [b"a", b"b", b"c"]


@scenario(settings=QUICK_EXPIRY)
async def test_late_batch_outside_of_a_transaction_does_not_hold_back_the_next_one(stage: Stage) -> None:
    producer, late = await forgotten_producer(stage, b"a", b"b")
    invoices = late.partition
    assert await late.write(0, b"a") is ErrorCode.INVALID_TXN_STATE
    ok(await producer.add(invoices))
    assert await Writer(await greeted(stage), producer, invoices).write(2, b"c") is NONE
    ok(await producer.end(commit=True))
    assert await stage.committed(invoices) == [b"a", b"b", b"c"]


@scenario(settings=QUICK_EXPIRY)
async def test_batches_in_flight_together_are_repeated_in_order_where_the_producer_was_forgotten(stage: Stage) -> None:
    """Any sequence would do for the first of them, so the others wait behind the one that is challenged."""
    producer, live = await forgotten_producer(stage, b"a")
    invoices = live.partition
    ok(await producer.add(invoices))
    batches = [(1, b"b"), (2, b"c"), (3, b"d")]
    assert await live.write_at_once(*batches) == [CHALLENGED] * 3
    assert await live.write_at_once(*batches) == [NONE] * 3
    ok(await producer.end(commit=True))
    assert await stage.committed(invoices) == [b"a", b"b", b"c", b"d"]


@scenario(settings=QUICK_EXPIRY)
async def test_batch_whose_client_does_not_repeat_the_one_before_is_challenged_itself(stage: Stage) -> None:
    """The first may be a copy that its client never sends again."""
    producer, live = await forgotten_producer(stage, b"a")
    invoices = live.partition
    ok(await producer.add(invoices))
    assert await live.write(0, b"a") is CHALLENGED
    errors = [await live.write(1, b"b") for _ in range(2)]
    assert errors == [CHALLENGED, NONE]
    ok(await producer.end(commit=True))
    assert await stage.committed(invoices) == [b"a", b"b"]
