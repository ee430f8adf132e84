"""KAFKA-17754 for version-1 clients: a request of an earlier transaction that arrives over another connection."""

import asyncio

from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.topic_partition import TopicPartition
from tests.scenarios.greeted_client import greeted
from tests.scenarios.scripted_producer import ScriptedProducer, ok
from tests.scenarios.stage import Stage, scenario
from tests.simulation import requests

GROUP = "billing"
BACKOFF_SECONDS = 0.1
CHALLENGED = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
OFFSETS_CHALLENGED = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


async def in_second_transaction(stage: Stage, partition: TopicPartition) -> ScriptedProducer:
    """A producer that has committed one transaction, and has another open."""
    producer = stage.producer("billing")
    ok(await producer.init())
    await producer.transaction({partition: [b"first"]})
    await producer.open_transaction({partition: [b"second"]})
    return producer


@scenario()
async def test_late_end_txn_over_another_connection_ends_nothing(stage: Stage) -> None:
    """B107."""
    (invoices,) = await stage.create_topic("invoices")
    producer = await in_second_transaction(stage, invoices)
    late = await stage.call(producer.end_request(commit=True), requests.END_TXN_VERSION)
    assert late.error_code == CHALLENGED
    ok(await producer.end(commit=False))
    assert await stage.committed(invoices) == [b"first"]


@scenario()
async def test_late_end_txns_in_one_write_end_nothing(stage: Stage) -> None:
    """B107: the second one was sent before the response to the first, so it is no repetition."""
    (invoices,) = await stage.create_topic("invoices")
    producer = await in_second_transaction(stage, invoices)
    late = await stage.connect()
    request = producer.end_request(commit=True)
    sent = [late.send(request, requests.END_TXN_VERSION) for _ in range(3)]
    for frame in sent:
        response = await late.response_to(request, requests.END_TXN_VERSION, frame)
        assert response.error_code == CHALLENGED
    ok(await producer.end(commit=False))
    assert await stage.committed(invoices) == [b"first"]


@scenario()
async def test_client_that_reconnects_repeats_its_end_txn(stage: Stage) -> None:
    (invoices,) = await stage.create_topic("invoices")
    producer = await in_second_transaction(stage, invoices)
    producer.disconnect()
    ok(await producer.end(commit=True))
    ok(await producer.add(invoices))
    assert await stage.committed(invoices) == [b"first", b"second"]


@scenario()
async def test_owner_is_unknown_after_a_restart(stage: Stage) -> None:
    """B107: connections are numbered anew, and the first one may be any."""
    (invoices,) = await stage.create_topic("invoices")
    producer = await in_second_transaction(stage, invoices)
    await stage.restart()
    late = await stage.call(producer.end_request(commit=True), requests.END_TXN_VERSION)
    assert late.error_code == CHALLENGED
    ok(await producer.end(commit=False))
    assert await stage.committed(invoices) == [b"first"]


@scenario()
async def test_late_offsets_over_another_connection_are_not_committed(stage: Stage) -> None:
    """B108."""
    (purchases,) = await stage.create_topic("purchases")
    await stage.find_coordinator(GROUP, transactional=False)
    producer = stage.producer("billing")
    ok(await producer.init())
    for offset in (5, 6):
        ok(await producer.add_offsets(GROUP))
        ok(await producer.commit_offsets(GROUP, {purchases: offset}))
        if offset == 5:
            ok(await producer.end(commit=True))
    late = requests.txn_offset_commit("billing", producer.producer_id, producer.epoch, GROUP, {purchases: 5})
    response = await stage.call(late, requests.TXN_OFFSET_COMMIT_VERSION)
    assert response.topics[0].partitions[0].error_code == OFFSETS_CHALLENGED
    ok(await producer.end(commit=True))
    assert await stage.group_offset(GROUP, purchases) == 6


@scenario()
async def test_first_offsets_of_an_epoch_need_no_repetition(stage: Stage) -> None:
    (purchases,) = await stage.create_topic("purchases")
    await stage.find_coordinator(GROUP, transactional=False)
    producer = stage.producer("billing")
    ok(await producer.init())
    ok(await producer.add_offsets(GROUP))
    ok(await producer.commit_offsets(GROUP, {purchases: 4}))
    ok(await producer.end(commit=True))
    ok(await producer.init())
    ok(await producer.add_offsets(GROUP))
    first = requests.txn_offset_commit("billing", producer.producer_id, producer.epoch, GROUP, {purchases: 5})
    response = await stage.call(first, requests.TXN_OFFSET_COMMIT_VERSION)
    assert response.topics[0].partitions[0].error_code == ErrorCode.NONE


@scenario()
async def test_challenged_offsets_get_an_error_that_clients_of_their_version_retry(stage: Stage) -> None:
    """franz-go aborts at UNKNOWN_TOPIC_OR_PARTITION, again and again, because each abort forgets the owner."""
    (purchases,) = await stage.create_topic("purchases")
    await stage.find_coordinator(GROUP, transactional=False)
    producer = stage.producer("billing")
    ok(await producer.init())
    group = await stage.connect()

    async def commit(offset: int, version: int) -> ErrorCode:
        request = requests.txn_offset_commit(
            "billing", producer.producer_id, producer.epoch, GROUP, {purchases: offset}
        )
        response = await group.call(request, version)
        await asyncio.sleep(BACKOFF_SECONDS)
        return ErrorCode(response.topics[0].partitions[0].error_code)

    for offset, (version, error) in enumerate([(2, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), (3, OFFSETS_CHALLENGED)]):
        ok(await producer.add_offsets(GROUP))
        await commit(0, version)
        ok(await producer.end(commit=False))
        ok(await producer.add_offsets(GROUP))
        assert [await commit(offset, version), await commit(offset, version)] == [error, ErrorCode.NONE]
        ok(await producer.end(commit=True))
        assert await stage.group_offset(GROUP, purchases) == offset


@scenario()
async def test_late_offsets_of_an_aborted_transaction_are_not_committed_by_the_owner(stage: Stage) -> None:
    """B108: the client gave up the connection that was the owner, and aborted at the transaction coordinator."""
    (purchases,) = await stage.create_topic("purchases")
    await stage.find_coordinator(GROUP, transactional=False)
    producer = stage.producer("billing")
    ok(await producer.init())
    given_up = await greeted(stage)

    async def commit(offset: int) -> ErrorCode:
        request = requests.txn_offset_commit(
            "billing", producer.producer_id, producer.epoch, GROUP, {purchases: offset}
        )
        response = await given_up.call(request, requests.TXN_OFFSET_COMMIT_VERSION)
        return ErrorCode(response.topics[0].partitions[0].error_code)

    for offset, is_committed in ((5, True), (6, False)):
        ok(await producer.add_offsets(GROUP))
        ok(await commit(offset))
        ok(await producer.end(commit=is_committed))
    ok(await producer.add_offsets(GROUP))
    assert await commit(7) == OFFSETS_CHALLENGED
    ok(await producer.end(commit=True))
    assert await stage.group_offset(GROUP, purchases) == 5


@scenario()
async def test_offsets_over_the_same_connection_after_an_abort_need_one_repetition(stage: Stage) -> None:
    (purchases,) = await stage.create_topic("purchases")
    await stage.find_coordinator(GROUP, transactional=False)
    producer = stage.producer("billing")
    ok(await producer.init())
    connection = await greeted(stage)
    errors = []
    for offset, is_committed in ((5, False), (6, True), (7, True)):
        ok(await producer.add_offsets(GROUP))
        request = requests.txn_offset_commit(
            "billing", producer.producer_id, producer.epoch, GROUP, {purchases: offset}
        )
        for _ in range(2):
            response = await connection.call(request, requests.TXN_OFFSET_COMMIT_VERSION)
            errors.append(response.topics[0].partitions[0].error_code)
            await asyncio.sleep(BACKOFF_SECONDS)
        ok(await producer.end(commit=is_committed))
    assert errors == [ErrorCode.NONE] * 2 + [OFFSETS_CHALLENGED] + [ErrorCode.NONE] * 3
    assert await stage.group_offset(GROUP, purchases) == 7
