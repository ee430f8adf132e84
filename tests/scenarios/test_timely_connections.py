"""Connections of version-1 clients that carry nothing late and need no repetition, and those that look like them."""

import asyncio

from oncelog.broker.dispatch.request import ConnectionInfo
from oncelog.coordinator.transaction.state import ProducerIdAndEpoch
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.topic_partition import TopicPartition
from tests.scenarios.greeted_client import HELLO, HELLO_VERSION, greeted
from tests.scenarios.scripted_producer import ScriptedProducer, ok
from tests.scenarios.stage import Stage, scenario
from tests.scenarios.test_connection_challenge import in_second_transaction
from tests.scenarios.test_late_batches import Writer, second_transaction
from tests.simulation import requests
from tests.simulation.wire_client import WireClient

GROUP = "billing"
COORDINATOR_CHALLENGED = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
BATCH_CHALLENGED = ErrorCode.NOT_ENOUGH_REPLICAS
NONE = ErrorCode.NONE
A_MOMENT = 0.01


@scenario()
async def test_connection_greeted_after_the_last_request_needs_no_repetition(stage: Stage) -> None:
    """A client whose connections break with every request goes on."""
    (invoices,) = await stage.create_topic("invoices")
    producer = await in_second_transaction(stage, invoices)
    ended = await (await greeted(stage)).call(producer.end_request(commit=True), requests.END_TXN_VERSION)
    assert ended.error_code == NONE
    added = await (await greeted(stage)).call(producer.add_request(invoices), requests.ADD_PARTITIONS_VERSION)
    assert set(requests.added_partitions(added).values()) == {NONE}
    assert await stage.committed(invoices) == [b"first", b"second"]


@scenario()
async def test_late_request_over_a_connection_greeted_before_changes_nothing(stage: Stage) -> None:
    """B107"""
    (invoices,) = await stage.create_topic("invoices")
    late = await greeted(stage)
    producer = await in_second_transaction(stage, invoices)
    ended = await late.call(producer.end_request(commit=True), requests.END_TXN_VERSION)
    assert ended.error_code == COORDINATOR_CHALLENGED
    ok(await producer.end(commit=False))
    assert await stage.committed(invoices) == [b"first"]


@scenario()
async def test_request_in_one_write_behind_api_versions_changes_nothing(stage: Stage) -> None:
    """B107: it was sent before the response, so the greeting says nothing of it."""
    (invoices,) = await stage.create_topic("invoices")
    producer = await in_second_transaction(stage, invoices)
    await asyncio.sleep(A_MOMENT)
    late = await stage.connect()
    ending = late.encode(producer.end_request(commit=True), requests.END_TXN_VERSION)
    late.send_bytes(late.encode(HELLO, HELLO_VERSION) + ending)
    await late.call(HELLO, HELLO_VERSION)
    ok(await producer.end(commit=False))
    assert await stage.committed(invoices) == [b"first"]


@scenario()
async def test_owner_that_acts_again_makes_a_connection_greeted_before_late(stage: Stage) -> None:
    """B107: its client has gone on over the owner since."""
    (invoices, payments) = await stage.create_topic("invoices", 2)
    producer = await in_second_transaction(stage, invoices)
    late = await greeted(stage)
    ok(await producer.add(payments))
    ended = await late.call(producer.end_request(commit=True), requests.END_TXN_VERSION)
    assert ended.error_code == COORDINATOR_CHALLENGED


@scenario()
async def test_offsets_over_a_connection_greeted_after_the_abort_need_no_repetition(stage: Stage) -> None:
    """B108: but over one greeted before it they do."""
    (purchases,) = await stage.create_topic("purchases")
    await stage.find_coordinator(GROUP, transactional=False)
    producer = stage.producer("billing")
    ok(await producer.init())
    ok(await producer.add_offsets(GROUP))
    late = await greeted(stage)
    ok(await producer.commit_offsets(GROUP, {purchases: 5}))
    ok(await producer.end(commit=False))
    ok(await producer.add_offsets(GROUP))
    young = await greeted(stage)
    request = requests.txn_offset_commit("billing", producer.producer_id, producer.epoch, GROUP, {purchases: 6})
    for client, error in ((late, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS), (young, NONE)):
        response = await client.call(request, requests.TXN_OFFSET_COMMIT_VERSION)
        assert response.topics[0].partitions[0].error_code == error


@scenario()
async def test_batch_over_a_connection_greeted_after_the_abort_needs_no_repetition(stage: Stage) -> None:
    """B111: but over one greeted before it, it does."""
    (invoices,) = await stage.create_topic("invoices")
    before = await greeted(stage)
    producer, _ = await second_transaction(stage, invoices, first_batch=[b"aborted"])
    assert await Writer(before, producer, invoices).write(1, b"given up") is BATCH_CHALLENGED
    assert await Writer(await greeted(stage), producer, invoices).write(1, b"kept") is NONE
    ok(await producer.end(commit=True))
    assert await stage.committed(invoices) == [b"kept"]


@scenario()
async def test_batch_over_the_connection_that_added_its_partition_needs_no_repetition(stage: Stage) -> None:
    """B111: within a connection everything keeps its order."""
    (invoices,) = await stage.create_topic("invoices")
    producer, given_up = await second_transaction(stage, invoices, first_batch=[b"aborted"])
    assert producer.client is not None
    same = Writer(producer.client, producer, invoices)
    assert await given_up.write(1, b"given up") is BATCH_CHALLENGED
    assert await same.write(1, b"kept") is NONE
    ok(await producer.end(commit=True))
    assert await stage.committed(invoices) == [b"kept"]


@scenario()
async def test_batch_over_the_connection_that_acted_before_the_present_transaction_is_repeated(stage: Stage) -> None:
    """B111: the client has given it up, and has begun the transaction over another one."""
    (invoices,) = await stage.create_topic("invoices")
    producer, _ = await second_transaction(stage, invoices, first_batch=[b"aborted"])
    former, producer.client = producer.client, None
    assert former is not None
    ok(await producer.end(commit=False))
    ok(await producer.add(invoices))
    assert await Writer(former, producer, invoices).write(1, b"given up") is BATCH_CHALLENGED


@scenario()
async def test_coordinator_that_a_marker_has_overtaken_knows_no_owner(stage: Stage) -> None:
    """B111: a later coordinator has written it, and has seen what this one has not."""
    (invoices,) = await stage.create_topic("invoices")
    producer = await in_second_transaction(stage, invoices)
    assert stage.broker.broker is not None
    coordinator = stage.broker.broker.transaction_coordinator
    known = ProducerIdAndEpoch(producer.producer_id, producer.epoch)
    connections = [ConnectionInfo(client_host="client", listener_name="PLAINTEXT", id=number) for number in range(50)]

    def owners(marker_epoch: int) -> int:
        return sum(
            coordinator.is_owner("billing", known, each, marker_epoch=marker_epoch, since_ms=0) for each in connections
        )

    assert [owners(-1), owners(0), owners(1)] == [1, 1, 0]


async def commit_offset(client: WireClient, producer: ScriptedProducer, partition: TopicPartition, offset: int) -> int:
    """The error of one TxnOffsetCommit; the pause is the client's backoff."""
    assert producer.transactional_id is not None
    identity = (producer.transactional_id, producer.producer_id, producer.epoch)
    request = requests.txn_offset_commit(*identity, GROUP, {partition: offset})
    response = await client.call(request, requests.TXN_OFFSET_COMMIT_VERSION)
    await asyncio.sleep(0.1)
    error: int = response.topics[0].partitions[0].error_code
    return error


@scenario()
async def test_offsets_that_were_repeated_and_committed_do_not_come_back(stage: Stage) -> None:
    """B108: no abort tells that the client gave them up over the connection that was greeted first."""
    (purchases,) = await stage.create_topic("purchases")
    await stage.find_coordinator(GROUP, transactional=False)
    producer = stage.producer("billing")
    ok(await producer.init())
    late, live = await greeted(stage), await greeted(stage)
    for offset in (5, 6):
        ok(await producer.add_offsets(GROUP))
        assert await commit_offset(live, producer, purchases, offset) == NONE
        if offset == 5:
            ok(await producer.end(commit=True))
    assert await commit_offset(late, producer, purchases, 5) == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    ok(await producer.end(commit=True))
    assert await stage.group_offset(GROUP, purchases) == 6


@scenario()
async def test_offsets_over_the_coordinators_owner_do_not_overtake_those_of_the_groups_owner(stage: Stage) -> None:
    """B108: the client has gone on over another connection to the group's coordinator."""
    (purchases,) = await stage.create_topic("purchases")
    await stage.find_coordinator(GROUP, transactional=False)
    producer = stage.producer("billing")
    ok(await producer.init())
    late = await producer.connection()
    ok(await producer.add_offsets(GROUP))
    assert await commit_offset(late, producer, purchases, 1) == NONE
    live = await stage.connect()
    assert [await commit_offset(live, producer, purchases, 5) for _ in range(2)] == [
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        NONE,
    ]
    assert await commit_offset(live, producer, purchases, 7) == NONE
    assert await commit_offset(late, producer, purchases, 5) == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    ok(await producer.end(commit=True))
    assert await stage.group_offset(GROUP, purchases) == 7


@scenario()
async def test_late_request_of_version_1_does_not_end_a_transaction_of_version_2(stage: Stage) -> None:
    """B107: the first transaction of version 2 has the epoch of the last one of version 1."""
    (invoices,) = await stage.create_topic("invoices")
    producer = stage.producer("billing")
    ok(await producer.init())
    await producer.open_transaction({invoices: [b"first"]})
    await producer.unheard(producer.end_request(commit=True), requests.END_TXN_VERSION)
    late, live = await greeted(stage), await greeted(stage)
    again = await live.call(producer.end_request(commit=True), requests.END_TXN_VERSION)
    assert again.error_code == NONE
    batch = bytearray(producer.batch(invoices, b"second"))
    begun = await live.call(requests.produce(invoices, batch, transactional_id="billing"), 12)
    assert begun.responses[0].partition_responses[0].error_code == NONE
    ended = await late.call(producer.end_request(commit=True), requests.END_TXN_VERSION)
    assert ended.error_code == COORDINATOR_CHALLENGED
    aborted = await live.call(producer.end_request(commit=False), 5)
    assert aborted.error_code == NONE
    assert await stage.committed(invoices) == [b"first"]


@scenario()
async def test_duplicate_over_a_greeted_connection_does_not_make_it_the_owner(stage: Stage) -> None:
    (invoices,) = await stage.create_topic("invoices")
    producer, _ = await second_transaction(stage, invoices, first_batch=[b"aborted"])
    live = Writer(await stage.connect(), producer, invoices)
    assert [await live.write(1, b"a") for _ in range(2)] == [BATCH_CHALLENGED, NONE]
    assert await Writer(await greeted(stage), producer, invoices).write(1, b"a") is NONE
    assert await live.write(2, b"b") is NONE
