"""Three failures of an idempotent producer that uses no transactions, and what is guaranteed in each.

With one broker "the replicas have the same state" is the state that the restarted broker builds from its log.
"""

import asyncio
import random

import pytest

from oncelog.protocol.errors import ErrorCode
from tests.scenarios.scripted_producer import ok
from tests.scenarios.stage import Stage, scenario
from tests.simulation import requests
from tests.simulation.pipelined_producer import PipelinedProducer
from tests.simulation.recorded_history import SimulatedHistory
from tests.simulation.routes import OneBroker
from tests.simulation.sim_disk import CrashKind
from tests.simulation.simulated_broker import PORT

DURABLE = {"log.flush.interval.messages": "1"}


@scenario()
async def test_1_produce_timeout(stage: Stage) -> None:
    """B34: a batch that was saved without its producer hearing of it is not saved again when it is sent again.

    The retry gets the original offset. A batch older than the last five is not known any more: it is refused, which
    tells a producer that it did something that no producer does, and it is not appended either.
    """
    (purchases,) = await stage.create_topic("purchases")
    producer = stage.producer(None)
    ok(await producer.init())
    first = producer.batch(purchases, b"p0", b"p1")
    await producer.unheard(requests.produce(purchases, bytearray(first)), requests.PRODUCE_VERSION)
    again = await producer.produce(first, purchases)
    assert (again.error_code, again.base_offset) == (ErrorCode.NONE, 0)
    producer.advance(purchases, 2)
    for number in range(2, 7):
        ok(await producer.send(purchases, b"p%d" % number))
    too_old = await producer.produce(first, purchases)
    assert too_old.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert await stage.everything(purchases) == [b"p%d" % number for number in range(7)]


@scenario()
async def test_1_a_gap_is_refused(stage: Stage) -> None:
    """A batch that comes before its predecessor is refused, so that a lost one cannot leave a hole."""
    (purchases,) = await stage.create_topic("purchases")
    producer = stage.producer(None)
    ok(await producer.init())
    ok(await producer.send(purchases, b"p0"))
    ahead = producer.batch(purchases, b"p2", sequence=2)
    assert (await producer.produce(ahead, purchases)).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    ok(await producer.send(purchases, b"p1"))
    assert (await producer.produce(ahead, purchases)).base_offset == 2


@scenario()
async def test_2_producer_restart(stage: Stage) -> None:
    """A restarted application gets another producer id, so nobody can know that it repeats itself: a duplicate.

    This is the limit of idempotence without a transactional id, and it is not hidden.
    """
    (purchases,) = await stage.create_topic("purchases")
    first, second = stage.producer(None), stage.producer(None)
    ok(await first.init())
    await first.unheard(requests.produce(purchases, first.batch(purchases, b"p0")), requests.PRODUCE_VERSION)
    ok(await second.init())
    assert second.producer_id != first.producer_id
    ok(await second.send(purchases, b"p0"))
    assert await stage.everything(purchases) == [b"p0", b"p0"]


@pytest.mark.parametrize("kind", ["process", "power"])
@scenario(settings=DURABLE)
async def test_3_broker_restart(stage: Stage, kind: CrashKind) -> None:
    """The broker dies between writing a batch and saying so: the restarted one recognises it when it comes again."""
    (purchases,) = await stage.create_topic("purchases")
    producer = stage.producer(None)
    ok(await producer.init())
    ok(await producer.send(purchases, b"p0"))
    stage.slow_fsync()
    batch = producer.batch(purchases, b"p1", b"p2")
    await producer.unheard(requests.produce(purchases, bytearray(batch)), requests.PRODUCE_VERSION)
    await stage.restart(kind)
    assert (await producer.produce(batch, purchases)).base_offset == 1
    producer.advance(purchases, 2)
    assert (await producer.send(purchases, b"p3")).base_offset == 3
    assert await stage.everything(purchases) == [b"p0", b"p1", b"p2", b"p3"]


@scenario(settings={"log.segment.bytes": "600"})
async def test_3_broker_restart_without_its_snapshots(stage: Stage) -> None:
    """B36: the log is the truth. With no snapshot, or a broken one, what producers did is read from the log."""
    (purchases,) = await stage.create_topic("purchases")
    producer = stage.producer(None)
    ok(await producer.init())
    for number in range(30):
        ok(await producer.send(purchases, b"p%d" % number))
    last = producer.batch(purchases, b"p29", sequence=29)
    await asyncio.sleep(70)  # Until closed segments are flushed and recovery would begin behind them.
    stage.crash()
    directory = "/data/purchases-0"
    snapshots = [name for name in stage.disk.list_dir(directory) if name.endswith(".snapshot")]
    assert len(snapshots) > 1
    for number, name in enumerate(snapshots):
        if number % 2:
            stage.disk.remove(f"{directory}/{name}")
        else:
            stage.disk.write_atomic(f"{directory}/{name}", b"\0\1no snapshot at all")
    await stage.broker.start()
    assert (await producer.produce(last, purchases)).base_offset == 29
    assert (await producer.send(purchases, b"p30")).base_offset == 30


@scenario(settings=DURABLE)
async def test_five_in_flight_none_overtakes_another(stage: Stage) -> None:
    """B85: five batches on one connection are appended in their order, though all wait for a slow fsync."""
    (purchases,) = await stage.create_topic("purchases")
    stage.slow_fsync()
    producer = stage.producer(None)
    ok(await producer.init())
    client = await producer.connection()
    sent = []
    for number in range(5):
        batch = producer.batch(purchases, b"p%d" % number, sequence=number)
        request = requests.produce(purchases, batch)
        sent.append((request, client.send(request, requests.PRODUCE_VERSION)))
    for number, (request, frame) in enumerate(sent):
        response = await client.response_to(request, requests.PRODUCE_VERSION, frame)
        partition = response.responses[0].partition_responses[0]
        assert (partition.error_code, partition.base_offset) == (ErrorCode.NONE, number)
    assert await stage.everything(purchases) == [b"p%d" % number for number in range(5)]


@scenario()
async def test_five_in_flight_of_which_the_disk_does_not_take_the_first(stage: Stage) -> None:
    """B85: what a new producer sends behind a batch that was refused is refused as well, until that one has come.

    The partition knows nothing of the producer yet, and lets those begin anywhere; a later batch must not profit.
    """
    stage.expects_errors = True  # The disk is said to be full.
    (purchases,) = await stage.create_topic("purchases")
    producer = stage.producer(None)
    ok(await producer.init())
    client = await producer.connection()
    batches = [producer.batch(purchases, b"p%d" % number, sequence=number) for number in range(5)]
    stage.disk.shorten_append("purchases-0/00000000000000000000.log", 10)
    codes = []
    frames = [client.send(requests.produce(purchases, bytearray(batch)), 9) for batch in batches]
    for batch, frame in zip(batches, frames, strict=True):
        response = await client.response_to(requests.produce(purchases, batch), 9, frame)
        codes.append(ErrorCode(response.responses[0].partition_responses[0].error_code))
    assert codes == 5 * [ErrorCode.KAFKA_STORAGE_ERROR]
    for number, batch in enumerate(batches):
        assert (await producer.produce(batch, purchases)).base_offset == number


@scenario(settings=DURABLE, seeds=(1, 2, 3, 4))
async def test_five_in_flight_over_a_network_that_loses_and_delays(stage: Stage) -> None:
    """B34, B85: retries of up to five batches, some of which arrive late over a connection that was given up."""
    (purchases,) = await stage.create_topic("purchases")
    stage.loop.network.delay_seconds = (0.0001, 0.02)
    stage.loop.network.stall_probability = 0.05
    rng, history = random.Random(stage.rng.random()), SimulatedHistory(stage.loop)
    producer = PipelinedProducer("p", OneBroker(PORT), purchases, rng, 100, response_within=0.03, history=history)
    await producer.run()
    assert producer.retries > 0
    content = await stage.read(purchases, read_committed=False)
    assert content.values == [b"p-%d" % number for number in range(100)]
    where = {record.value: record.offset for record in content.records}
    for batch in producer.done:
        assert [where[value] for value in batch.values] == list(range(batch.offset, batch.offset + len(batch.values)))
