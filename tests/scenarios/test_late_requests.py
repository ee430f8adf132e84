"""Requests that come too late, and producers that never come back: neither leaves a transaction that nobody ends.

The network may hold a request back until its transaction is over. A batch, an added partition or a position that takes
effect then would belong to a transaction that no EndTxn follows, and readers of committed records would wait behind it
for ever. What protocol version 1 cannot tell apart from a wish to begin anew is at least ended by the time-out.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from oncelog.broker.replication.coordinator_log import CoordinatorLog
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.internal.placement import partition_for
from oncelog.protocol.topic_partition import TopicPartition
from tests.scenarios.scripted_producer import ScriptedProducer, ok
from tests.scenarios.stage import Stage, scenario
from tests.simulation import requests

GROUP = "billing"
TIMEOUT_MS = 2_000
BOUND_SECONDS = TIMEOUT_MS / 1000 + 1.5
"""The time-out of a transaction, one interval of the sweep, and a little for the network."""


async def is_decided(stage: Stage, partition: TopicPartition) -> bool:
    """Nothing in the partition is held back from readers of committed records."""
    content = await stage.read(partition, read_committed=False)
    return content.last_stable_offset == content.high_watermark


@asynccontextmanager
async def without_coordinator(stage: Stage, transactional_id: str) -> AsyncIterator[None]:
    """The coordinator's partition is away, and at the end it comes back and is loaded again."""
    broker, process = stage.broker.broker, stage.broker.process
    assert broker is not None
    assert process is not None
    index = partition_for(transactional_id, 2)
    partition = broker.replica_manager.partition(TopicPartition("__transaction_state", index))
    assert partition is not None
    assert partition.leading is not None
    coordinator, epoch_log = broker.transaction_coordinator, CoordinatorLog(partition.leading)

    async def resign() -> None:
        coordinator.on_resigned(index)

    async def elect() -> None:
        coordinator.on_elected(index, epoch_log)

    await process.run(resign())
    yield
    await process.run(elect())


async def opened(stage: Stage, partition: TopicPartition) -> ScriptedProducer:
    """A producer in a transaction with one record."""
    producer = stage.producer("billing", timeout_ms=TIMEOUT_MS)
    ok(await producer.init())
    await producer.open_transaction({partition: [b"invoice"]})
    return producer


@scenario()
async def test_batch_after_the_end_of_its_transaction_is_refused(stage: Stage) -> None:
    """B02, B33: its partition is not in an ongoing transaction any more."""
    (invoices,) = await stage.create_topic("invoices")
    producer = await opened(stage, invoices)
    late = producer.batch(invoices, b"late")
    ok(await producer.end(commit=True))
    assert (await producer.produce(late, invoices)).error_code == ErrorCode.INVALID_TXN_STATE
    assert await is_decided(stage, invoices)
    assert await stage.committed(invoices) == [b"invoice"]


@scenario()
async def test_partition_added_after_the_end_of_its_transaction_is_decided_by_time_out(stage: Stage) -> None:
    """B33: version 1 takes it for the next transaction, which ends by its time-out, with whatever was written in it."""
    (invoices,) = await stage.create_topic("invoices")
    producer = await opened(stage, invoices)
    late = producer.batch(invoices, b"late")
    ok(await producer.end(commit=True))
    ok(await producer.add(invoices))
    assert (await producer.produce(late, invoices)).error_code == ErrorCode.NONE
    assert not await is_decided(stage, invoices)
    await stage.eventually(lambda: is_decided(stage, invoices), within=BOUND_SECONDS)
    assert await stage.committed(invoices) == [b"invoice"]


@scenario()
async def test_transaction_of_a_dead_producer_ends_in_bounded_time(stage: Stage) -> None:
    """B02, B71: readers of committed records and of stable positions wait for its time-out at most."""
    (invoices,) = await stage.create_topic("invoices")
    (purchases,) = await stage.create_topic("purchases")
    await stage.find_coordinator(GROUP, transactional=False)
    producer = await opened(stage, invoices)
    ok(await producer.add_offsets(GROUP))
    ok(await producer.commit_offsets(GROUP, {purchases: 7}))
    producer.disconnect()
    assert not await is_decided(stage, invoices)
    position = await stage.group_position(GROUP, purchases, require_stable=True)
    assert position.error is ErrorCode.UNSTABLE_OFFSET_COMMIT

    async def is_resolved() -> bool:
        position = await stage.group_position(GROUP, purchases, require_stable=True)
        return position.error is ErrorCode.NONE and await is_decided(stage, invoices)

    await stage.eventually(is_resolved, within=BOUND_SECONDS)
    assert await stage.group_offset(GROUP, purchases, require_stable=True) == -1
    assert await stage.committed(invoices) == []


@scenario(seeds=(1, 2))
async def test_marker_does_not_come_between_verification_and_append(stage: Stage) -> None:
    """B04: a batch that waited for its coordinator is in the transaction that was asked about, or nowhere.

    The transaction ends at every moment around the one in which the coordinator can say again what the batch waits for.
    """
    (invoices,) = await stage.create_topic("invoices")
    producer = stage.producer("billing")
    ok(await producer.init())
    for milliseconds in range(60):
        ok(await producer.add(invoices))
        request = requests.produce(invoices, producer.batch(invoices, b"%d" % milliseconds), transactional_id="billing")
        ending = await stage.connect()
        async with without_coordinator(stage, "billing"):
            response = await producer.abandoned(request, requests.PRODUCE_VERSION)
            await asyncio.sleep(0.01)
        await asyncio.sleep(milliseconds / 1000)
        await ending.call(producer.end_request(commit=False), requests.END_TXN_VERSION)
        await response
        ok(await producer.end(commit=False))
        assert await is_decided(stage, invoices), (
            f"the transaction ended {milliseconds} ms after the coordinator's return"
        )
        ending.close()
        ok(await producer.init())


@scenario()
async def test_zombie_is_fenced_without_a_request_to_the_coordinator(stage: Stage) -> None:
    """B09: the log knows a later epoch; whoever coordinates the transaction, and whether anybody does, is no matter."""
    (invoices,) = await stage.create_topic("invoices")
    zombie = await opened(stage, invoices)
    successor = stage.producer("billing")
    ok(await successor.init())
    async with without_coordinator(stage, "billing"):
        requested = stage.loop.time()
        assert (await zombie.send(invoices, b"undead")).error_code == ErrorCode.INVALID_PRODUCER_EPOCH
        assert stage.loop.time() - requested < 0.5


@scenario()
async def test_end_txn_after_a_successor_began_ends_nothing(stage: Stage) -> None:
    """B01: over whichever connection it comes, and however late. (Between sessions; within one it takes version 2.)"""
    (invoices,) = await stage.create_topic("invoices")
    first = await opened(stage, invoices)
    late = first.end_request(commit=True)
    ok(await first.end(commit=False))
    second = await opened(stage, invoices)
    response = await stage.call(late, requests.END_TXN_VERSION)
    assert response.error_code == ErrorCode.PRODUCER_FENCED
    ok(await second.send(invoices, b"postscript"))
    ok(await second.end(commit=True))
    assert await stage.committed(invoices) == [b"invoice", b"postscript"]


@scenario()
async def test_abort_without_a_transaction_does_no_harm(stage: Stage) -> None:
    """B18: after a commit there is nothing to abort; the producer is told so, and is not fenced by it."""
    (invoices,) = await stage.create_topic("invoices")
    producer = await opened(stage, invoices)
    ok(await producer.end(commit=True))
    assert await producer.end(commit=False) is ErrorCode.INVALID_TXN_STATE
    await producer.transaction({invoices: [b"next"]})
    assert await stage.committed(invoices) == [b"invoice", b"next"]
