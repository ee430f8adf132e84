"""Seven failures of a transactional application, and what exactly-once guarantees in each.

A purchase is read, an invoice and a shipment are written, and the position in the purchases is committed, all in one
transaction; then something breaks. These are the seven cases in which the well-known walk through Kafka's transactions
says what must hold. With one broker "a new leader takes over" is the same broker started again on the same disk: what a
successor learns by replication it learns from its log.
"""

import pytest

from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.topic_partition import TopicPartition
from tests.scenarios.scripted_producer import ScriptedProducer, ok
from tests.scenarios.stage import Stage, scenario
from tests.simulation import requests
from tests.simulation.sim_disk import CrashKind

DURABLE = {"log.flush.interval.messages": "1"}
GROUP = "billing"


class Shop:
    """The three topics of the example."""

    def __init__(self, purchases: TopicPartition, invoices: TopicPartition, shipments: TopicPartition) -> None:
        self.purchases = purchases
        self.invoices = invoices
        self.shipments = shipments

    @classmethod
    async def open(cls, stage: Stage) -> "Shop":
        """Create the topics, and put three purchases in."""
        (purchases,) = await stage.create_topic("purchases")
        (invoices,) = await stage.create_topic("invoices")
        (shipments,) = await stage.create_topic("shipments")
        customers = stage.producer(None)
        ok(await customers.init())
        ok(await customers.send(purchases, b"p0", b"p1", b"p2"))
        await stage.find_coordinator(GROUP, transactional=False)
        return cls(purchases, invoices, shipments)

    async def process(self, producer: ScriptedProducer, number: int) -> None:
        """The transaction for one purchase, without its end."""
        await producer.open_transaction({self.invoices: [b"invoice %d" % number], self.shipments: [b"to %d" % number]})
        ok(await producer.add_offsets(GROUP))
        ok(await producer.commit_offsets(GROUP, {self.purchases: number + 1}))

    async def expect(self, stage: Stage, *, processed: int) -> None:
        """The outputs of the first so many purchases are visible, once, and the position is after them."""
        assert await stage.committed(self.invoices) == [b"invoice %d" % n for n in range(processed)]
        assert await stage.committed(self.shipments) == [b"to %d" % n for n in range(processed)]
        position = await stage.group_offset(GROUP, self.purchases, require_stable=True)
        assert position == (processed or -1)


# 1. KafkaProducer.send() fails


@scenario()
async def test_1_send_failure_response_lost(stage: Stage) -> None:
    """A batch that was written but whose response got lost is sent again, and is in the log once.

    The retry is acknowledged with the original offset (where the older design had an error that the
    producer ignores), and the transaction goes on.
    """
    shop = await Shop.open(stage)
    producer = stage.producer("billing")
    ok(await producer.init())
    ok(await producer.add(shop.invoices))
    batch = producer.batch(shop.invoices, b"invoice 0")
    lost = requests.produce(shop.invoices, bytearray(batch), transactional_id="billing")
    await producer.unheard(lost, requests.PRODUCE_VERSION)
    again = await producer.produce(batch, shop.invoices)
    assert (again.error_code, again.base_offset) == (ErrorCode.NONE, 0)
    producer.advance(shop.invoices, 1)
    assert (await producer.send(shop.invoices, b"invoice 1")).base_offset == 1
    ok(await producer.end(commit=True))
    assert await stage.committed(shop.invoices) == [b"invoice 0", b"invoice 1"]


@scenario()
async def test_1_send_failure_request_lost(stage: Stage) -> None:
    """A batch that never arrived is sent again with the same sequence, and is accepted."""
    shop = await Shop.open(stage)
    producer = stage.producer("billing")
    ok(await producer.init())
    ok(await producer.add(shop.invoices))
    batch = producer.batch(shop.invoices, b"invoice 0")
    client = await producer.connection()
    frame = client.encode(requests.produce(shop.invoices, bytearray(batch), transactional_id="billing"), 9)
    client.send_bytes(frame[: len(frame) // 2])
    producer.disconnect()
    assert await stage.everything(shop.invoices) == []
    assert (await producer.produce(batch, shop.invoices)).base_offset == 0
    ok(await producer.end(commit=True))
    assert await stage.committed(shop.invoices) == [b"invoice 0"]


@scenario()
async def test_1_send_failure_with_several_batches_in_flight(stage: Stage) -> None:
    """Five batches are on their way when the connection breaks; all five are sent again, and each is there once."""
    shop = await Shop.open(stage)
    producer = stage.producer("billing")
    ok(await producer.init())
    ok(await producer.add(shop.invoices))
    batches = [producer.batch(shop.invoices, b"invoice %d" % n, sequence=n) for n in range(5)]
    for batch in batches:
        request = requests.produce(shop.invoices, bytearray(batch), transactional_id="billing")
        await producer.abandoned(request, requests.PRODUCE_VERSION)
    producer.disconnect()
    for offset, batch in enumerate(batches):
        assert (await producer.produce(batch, shop.invoices)).base_offset == offset
    ok(await producer.end(commit=True))
    assert await stage.committed(shop.invoices) == [b"invoice %d" % n for n in range(5)]


# 2. KafkaProducer fails


@scenario()
async def test_2_producer_failure(stage: Stage) -> None:
    """A restarted producer gets the same id with the next epoch, and its predecessor's open transaction is aborted.

    What the predecessor wrote, positions included, is never seen by read_committed consumers; the purchase is processed
    again, and has its effects once.
    """
    shop = await Shop.open(stage)
    first = stage.producer("billing")
    ok(await first.init())
    await shop.process(first, 0)
    ok(await first.end(commit=True))
    await shop.process(first, 1)
    first.disconnect()

    second = stage.producer("billing")
    ok(await second.init())
    assert second.producer_id == first.producer_id
    assert second.epoch > first.epoch
    await shop.expect(stage, processed=1)
    await shop.process(second, 1)
    ok(await second.end(commit=True))
    await shop.expect(stage, processed=2)
    assert await stage.everything(shop.invoices) == [b"invoice 0", b"invoice 1", b"invoice 1"]


# 3. KafkaProducer hangs for a long time


@scenario()
async def test_3_producer_hangs(stage: Stage) -> None:
    """A producer that comes back after its successor has started can neither write nor end a transaction.

    The coordinator answers PRODUCER_FENCED, the partitions INVALID_PRODUCER_EPOCH: they have learnt the new epoch from
    the abort markers. A partition that was not part of the aborted transaction has no marker, and asks the coordinator.
    """
    shop = await Shop.open(stage)
    zombie = stage.producer("billing")
    ok(await zombie.init())
    await shop.process(zombie, 0)
    successor = stage.producer("billing")
    ok(await successor.init())

    for partition in (shop.invoices, shop.shipments, shop.purchases):
        assert (await zombie.send(partition, b"undead")).error_code == ErrorCode.INVALID_PRODUCER_EPOCH
    assert await zombie.add(shop.invoices) is ErrorCode.PRODUCER_FENCED
    assert await zombie.add_offsets(GROUP) is ErrorCode.PRODUCER_FENCED
    assert await zombie.commit_offsets(GROUP, {shop.purchases: 3}) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert await zombie.end(commit=True) is ErrorCode.PRODUCER_FENCED
    assert await zombie.init(keep=True) is ErrorCode.PRODUCER_FENCED

    await shop.process(successor, 0)
    ok(await successor.end(commit=True))
    await shop.expect(stage, processed=1)


@scenario()
async def test_3_producer_hangs_while_its_successor_is_in_a_transaction(stage: Stage) -> None:
    """The zombie's EndTxn does not end its successor's transaction, and its batches do not get into it."""
    shop = await Shop.open(stage)
    zombie = stage.producer("billing")
    ok(await zombie.init())
    await shop.process(zombie, 0)
    successor = stage.producer("billing")
    ok(await successor.init())
    await shop.process(successor, 0)
    assert await zombie.end(commit=False) is ErrorCode.PRODUCER_FENCED
    assert await zombie.end(commit=True) is ErrorCode.PRODUCER_FENCED
    assert (await zombie.send(shop.invoices, b"undead")).error_code == ErrorCode.INVALID_PRODUCER_EPOCH
    assert await stage.committed(shop.invoices) == []
    ok(await successor.end(commit=True))
    await shop.expect(stage, processed=1)


@scenario()
async def test_3_old_clients_get_the_fencing_error_of_their_version(stage: Stage) -> None:
    """Clients from before PRODUCER_FENCED existed are told INVALID_PRODUCER_EPOCH by the coordinator."""
    (invoices,) = await stage.create_topic("invoices")
    zombie = stage.producer("billing")
    ok(await zombie.init())
    ok(await stage.producer("billing").init())
    end = await stage.call(zombie.end_request(commit=True), 1)
    assert end.error_code == ErrorCode.INVALID_PRODUCER_EPOCH
    add = await stage.call(zombie.add_request(invoices), 1)
    assert set(requests.added_partitions(add).values()) == {ErrorCode.INVALID_PRODUCER_EPOCH}
    init = requests.init_producer_id("billing", producer_id=zombie.producer_id, epoch=zombie.epoch)
    assert (await stage.call(init, 3)).error_code == ErrorCode.INVALID_PRODUCER_EPOCH


# 4. KafkaConsumer of the outputs fails


@scenario()
async def test_4_consumer_failure(stage: Stage) -> None:
    """A consumer of the invoices that acted on them but did not commit its position gets the same invoices again.

    Nothing protects what it did outside of Kafka: processing twice is possible. What is guaranteed is that it reads the
    same committed records in the same order, and never an aborted one, before and after its crash.
    """
    shop = await Shop.open(stage)
    producer = stage.producer("billing")
    ok(await producer.init())
    await producer.transaction({shop.invoices: [b"invoice 0"]})
    await producer.transaction({shop.invoices: [b"wrong"]}, commit=False)
    await producer.transaction({shop.invoices: [b"invoice 1"]})
    before = await stage.committed(shop.invoices)
    assert await stage.group_offset("readers", shop.invoices) == -1
    await stage.restart()
    assert before == await stage.committed(shop.invoices) == [b"invoice 0", b"invoice 1"]


# 5. The transaction coordinator fails


@scenario()
async def test_5_coordinator_failure_in_the_middle_of_a_transaction(stage: Stage) -> None:
    """A transaction that is open when its coordinator dies is not aborted: the producer goes on and commits it."""
    shop = await Shop.open(stage)
    producer = stage.producer("billing")
    ok(await producer.init())
    await shop.process(producer, 0)
    await stage.restart()
    ok(await producer.add(shop.purchases))
    ok(await producer.send(shop.invoices, b"postscript"))
    ok(await producer.end(commit=True))
    assert await stage.committed(shop.invoices) == [b"invoice 0", b"postscript"]
    assert await stage.group_offset(GROUP, shop.purchases) == 1


STEPS = {
    "before the decision": ("__transaction_state-", 0),
    "before the marker of the offsets": ("__consumer_offsets-", 0),
    "before the first marker of an output": ("invoices-", 0),
    "between two markers": ("shipments-", 0),
    "before the completion": ("__transaction_state-", 1),
}
"""{step: the log that the coordinator is about to append to, and how many appends to it come before}."""


@pytest.mark.parametrize("commit", [True, False], ids=["commit", "abort"])
@pytest.mark.parametrize("kind", ["process", "power"])
@pytest.mark.parametrize("step", STEPS)
@scenario(settings=DURABLE)
async def test_5_coordinator_failure_while_it_ends_a_transaction(
    stage: Stage, step: str, kind: CrashKind, commit: bool
) -> None:
    """Whatever the coordinator was about to do when it died, the transaction ends as the producer wanted, everywhere.

    Before the decision is in its log, the producer's repeated EndTxn decides; after, the restarted coordinator carries
    it out by itself, and the repeated EndTxn is told that it is done.
    """
    shop = await Shop.open(stage)
    producer = stage.producer("billing")
    ok(await producer.init())
    await shop.process(producer, 0)
    log, appends_before = STEPS[step]
    stage.disk.stop_before("append", log, skip=appends_before)
    await producer.abandoned(producer.end_request(commit=commit), requests.END_TXN_VERSION)
    await stage.machine_stopped()
    await stage.restart(kind)
    ok(await producer.end(commit=commit))
    await shop.expect(stage, processed=1 if commit else 0)


@pytest.mark.parametrize("commit", [True, False], ids=["commit", "abort"])
@scenario()
async def test_5_coordinator_failure_after_the_decision_needs_no_producer(stage: Stage, commit: bool) -> None:
    """A decided transaction ends although its producer never comes back: PrepareCommit rolls forward, never back."""
    shop = await Shop.open(stage)
    producer = stage.producer("billing")
    ok(await producer.init())
    await shop.process(producer, 0)
    stage.disk.stop_before("append", "invoices-0")
    await producer.abandoned(producer.end_request(commit=commit), requests.END_TXN_VERSION)
    await stage.machine_stopped()
    await stage.restart()

    async def ended() -> bool:
        content = await stage.read(shop.invoices, read_committed=False)
        return content.last_stable_offset == content.high_watermark

    await stage.eventually(ended)
    await shop.expect(stage, processed=1 if commit else 0)


# 6. The leader of an output partition fails


@pytest.mark.parametrize("kind", ["process", "power"])
@scenario(settings=DURABLE)
async def test_6_broker_failure(stage: Stage, kind: CrashKind) -> None:
    """The broker dies after it wrote a batch and before it answered: the retry is recognised by the restarted one.

    Sequences are in the log, so whoever leads the partition next knows them; acks=all made sure that it has the batch.
    """
    shop = await Shop.open(stage)
    producer = stage.producer("billing")
    ok(await producer.init())
    ok(await producer.add(shop.invoices))
    ok(await producer.send(shop.invoices, b"invoice 0"))
    stage.slow_fsync()
    batch = producer.batch(shop.invoices, b"invoice 1")
    request = requests.produce(shop.invoices, bytearray(batch), transactional_id="billing")
    await producer.unheard(request, requests.PRODUCE_VERSION)
    await stage.restart(kind)
    stage.disk.delay = None
    assert (await producer.produce(batch, shop.invoices)).base_offset == 1
    producer.advance(shop.invoices, 1)
    assert (await producer.send(shop.invoices, b"invoice 2")).base_offset == 2
    ok(await producer.end(commit=True))
    assert await stage.committed(shop.invoices) == [b"invoice 0", b"invoice 1", b"invoice 2"]


@pytest.mark.parametrize("kind", ["process", "power"])
@scenario(settings=DURABLE)
async def test_6_broker_failure_in_the_middle_of_a_write(stage: Stage, kind: CrashKind) -> None:
    """The broker dies with a part of a batch on its disk: it is cut off, and the retry is appended in its place."""
    shop = await Shop.open(stage)
    producer = stage.producer("billing")
    ok(await producer.init())
    ok(await producer.add(shop.invoices))
    ok(await producer.send(shop.invoices, b"invoice 0"))
    batch = producer.batch(shop.invoices, b"invoice 1")
    stage.disk.stop_after(stage.rng.randint(1, len(batch) - 1))
    request = requests.produce(shop.invoices, bytearray(batch), transactional_id="billing")
    await producer.abandoned(request, requests.PRODUCE_VERSION)
    await stage.machine_stopped()
    await stage.restart(kind)
    assert (await producer.produce(batch, shop.invoices)).base_offset == 1
    ok(await producer.end(commit=True))
    assert await stage.committed(shop.invoices) == [b"invoice 0", b"invoice 1"]


# 7. The consumer group coordinator fails


@pytest.mark.parametrize("commit", [True, False], ids=["commit", "abort"])
@pytest.mark.parametrize("kind", ["process", "power"])
@scenario(settings=DURABLE)
async def test_7_group_coordinator_failure(stage: Stage, kind: CrashKind, commit: bool) -> None:
    """Positions that are part of an open transaction survive their coordinator, as pending ones.

    Until the end of the transaction the old position counts, and a consumer that insists on a stable one is told to
    wait; the commit makes them count, the abort drops them.
    """
    shop = await Shop.open(stage)
    producer = stage.producer("billing")
    ok(await producer.init())
    await shop.process(producer, 0)
    ok(await producer.end(commit=True))
    await shop.process(producer, 1)
    await stage.restart(kind)
    assert await stage.group_offset(GROUP, shop.purchases) == 1
    unstable = await stage.group_position(GROUP, shop.purchases, require_stable=True)
    assert unstable.error is ErrorCode.UNSTABLE_OFFSET_COMMIT
    ok(await producer.end(commit=commit))
    await shop.expect(stage, processed=2 if commit else 1)
