"""Transaction version 2 over the wire: what comes late belongs to a transaction that is over, and the broker knows it.

Every transaction has an epoch of its own. So an EndTxn, a batch or a position that was held up names the transaction
that it was sent for, and cannot become part of a later one. These are the stories that version 1 has no good end for.
"""

import pytest

from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.write_txn_markers import WriteTxnMarkersRequest
from oncelog.protocol.topic_partition import TopicPartition
from tests.scenarios.scripted_producer import ok
from tests.scenarios.stage import Stage, scenario
from tests.scenarios.test_late_requests import is_decided
from tests.scenarios.version_2_producer import Version2Producer
from tests.simulation import requests
from tests.simulation.aged_producers import age_producers

DURABLE = {"log.flush.interval.messages": "1"}
GROUP = "billing"
TIMEOUT_MS = 2_000
LAST_LIVE_EPOCH = 32_766


def billing(stage: Stage) -> Version2Producer:
    return Version2Producer(stage.connect, "billing", timeout_ms=TIMEOUT_MS)


async def opened(stage: Stage, partition: TopicPartition, value: bytes = b"invoice") -> Version2Producer:
    """A producer in a transaction with one record."""
    producer = billing(stage)
    ok(await producer.init())
    await producer.open_transaction({partition: [value]})
    return producer


# What comes late


@pytest.mark.parametrize("late_commit", [True, False])
@pytest.mark.parametrize("is_open", [True, False])
@scenario()
async def test_late_end_txn_in_a_later_transaction_ends_nothing(stage: Stage, late_commit: bool, is_open: bool) -> None:
    """B01: within one session, over another connection, when the next transaction is open, or about to be."""
    (invoices,) = await stage.create_topic("invoices")
    producer = await opened(stage, invoices, b"first")
    late = producer.end_request(commit=late_commit)
    await producer.end(commit=True)
    await producer.transaction({invoices: [b"second"]})
    if is_open:
        await producer.open_transaction({invoices: [b"third"]})
    response = await stage.call(late, requests.TRANSACTION_2_END_TXN_VERSION)
    assert response.error_code == ErrorCode.PRODUCER_FENCED
    assert (response.producer_id, response.producer_epoch) == (-1, -1)
    if not is_open:
        await producer.open_transaction({invoices: [b"third"]})
    ok(await producer.send(invoices, b"more of it"))
    ok(await producer.end(commit=True))
    assert await stage.committed(invoices) == [b"first", b"second", b"third", b"more of it"]


@scenario()
async def test_retried_end_txn_gets_the_same_response(stage: Stage) -> None:
    """B01: as long as no transaction has begun since, it is a retry, also over a failover. Another end is none."""
    (invoices,) = await stage.create_topic("invoices")
    producer = await opened(stage, invoices)
    commit, abort = producer.end_request(commit=True), producer.end_request(commit=False)
    first = await producer.ask_for_end(commit=True)
    for failover in (False, True):
        if failover:
            await stage.restart()
        again = await producer.ask_for_end(commit=True)
        assert (again.error_code, again.producer_id, again.producer_epoch) == (
            ErrorCode.NONE,
            first.producer_id,
            first.producer_epoch,
        )
        other = await stage.call(abort, requests.TRANSACTION_2_END_TXN_VERSION)
        assert other.error_code == ErrorCode.INVALID_TXN_STATE
    producer.become(first)
    await producer.transaction({invoices: [b"next"]})
    late = await stage.call(commit, requests.TRANSACTION_2_END_TXN_VERSION)
    assert late.error_code == ErrorCode.PRODUCER_FENCED
    assert await stage.committed(invoices) == [b"invoice", b"next"]


@pytest.mark.parametrize("version", [9, 12])
@scenario()
async def test_late_batch_in_a_later_transaction_is_refused(stage: Stage, version: int) -> None:
    """B02, B33: by a partition of the later transaction, and by one that has never heard of the producer."""
    (invoices,) = await stage.create_topic("invoices")
    (shipments,) = await stage.create_topic("shipments")
    producer = await opened(stage, invoices)
    late_invoice, late_shipment = producer.batch(invoices, b"late"), producer.batch(shipments, b"late")
    ok(await producer.end(commit=True))
    await producer.open_transaction({invoices: [b"next"]})
    for partition, late in ((invoices, late_invoice), (shipments, late_shipment)):
        request = requests.produce(partition, late, transactional_id="billing")
        response = await stage.call(request, version)
        assert response.responses[0].partition_responses[0].error_code == ErrorCode.INVALID_PRODUCER_EPOCH
    ok(await producer.end(commit=True))
    assert await is_decided(stage, invoices)
    assert await is_decided(stage, shipments)
    assert await stage.committed(invoices) == [b"invoice", b"next"]
    assert await stage.everything(shipments) == []


@scenario()
async def test_late_partition_or_offset_opens_no_transaction(stage: Stage) -> None:
    """B33: version 1 takes it for the next transaction; version 2 knows that it is not."""
    (invoices,) = await stage.create_topic("invoices")
    (purchases,) = await stage.create_topic("purchases")
    await stage.find_coordinator(GROUP, transactional=False)
    producer = await opened(stage, invoices)
    ok(await producer.commit_offsets(GROUP, {purchases: 1}))
    late_add = producer.add_request(invoices)
    late_position = requests.txn_offset_commit("billing", *producer.identity, GROUP, {purchases: 2})
    ok(await producer.end(commit=True))
    added = await stage.call(late_add, requests.ADD_PARTITIONS_VERSION)
    assert set(requests.added_partitions(added).values()) == {ErrorCode.PRODUCER_FENCED}
    committed = await stage.call(late_position, requests.TRANSACTION_2_TXN_OFFSET_COMMIT_VERSION)
    assert requests.committed_partitions(committed)[purchases] is ErrorCode.INVALID_PRODUCER_EPOCH
    assert await stage.group_offset(GROUP, purchases, require_stable=True) == 1
    assert await is_decided(stage, invoices)
    await producer.transaction({invoices: [b"next"]})
    assert await stage.committed(invoices) == [b"invoice", b"next"]


@scenario()
async def test_transaction_of_a_dead_producer_ends_in_bounded_time(stage: Stage) -> None:
    """B02: nobody added its partitions but its batches, and they are let go of all the same."""
    (invoices,) = await stage.create_topic("invoices")
    producer = await opened(stage, invoices)
    producer.disconnect()
    assert not await is_decided(stage, invoices)
    await stage.eventually(lambda: is_decided(stage, invoices), within=TIMEOUT_MS / 1000 + 1.5)
    assert await stage.committed(invoices) == []
    assert (await producer.send(invoices, b"undead")).error_code == ErrorCode.INVALID_PRODUCER_EPOCH


# While the transaction before completes


@pytest.mark.parametrize("commit", [True, False])
@scenario(settings=DURABLE)
async def test_first_batch_waits_for_the_transaction_before_it(stage: Stage, commit: bool) -> None:
    """B05: it is kept back while the markers of the one before are on their way, and never becomes part of it."""
    (invoices,) = await stage.create_topic("invoices")
    producer = await opened(stage, invoices, b"first")
    stage.slow_fsync(0.3)  # The markers take that long, and the response to EndTxn does not wait for them.
    ok(await producer.end(commit=commit))
    assert not await is_decided(stage, invoices)
    ok(await producer.send(invoices, b"second"))
    ok(await producer.end(commit=not commit))
    await stage.eventually(lambda: is_decided(stage, invoices))
    assert await stage.committed(invoices) == ([b"first"] if commit else [b"second"])


# Markers


def marker(producer: Version2Producer, partition: TopicPartition) -> WriteTxnMarkersRequest:
    """The marker that ended the transaction before the present one, but for its result."""
    return WriteTxnMarkersRequest(markers=[requests.marker(*producer.identity, [partition], commit=False)])


async def marker_error(stage: Stage, request: WriteTxnMarkersRequest) -> ErrorCode:
    response = await stage.call(request, requests.WRITE_TXN_MARKERS_VERSION)
    return ErrorCode(response.markers[0].topics[0].partitions[0].error_code)


@scenario()
async def test_marker_of_the_previous_transaction_does_not_end_the_present_one(stage: Stage) -> None:
    """B06: the marker of one transaction has the epoch of the next, in which that one must not be ended by it."""
    (invoices,) = await stage.create_topic("invoices")
    producer = await opened(stage, invoices, b"first")
    ok(await producer.end(commit=True))
    await producer.open_transaction({invoices: [b"second"]})
    stale = marker(producer, invoices)
    assert await marker_error(stage, stale) is ErrorCode.INVALID_PRODUCER_EPOCH
    ok(await producer.send(invoices, b"more of it"))
    ok(await producer.end(commit=True))
    assert await stage.committed(invoices) == [b"first", b"second", b"more of it"]


@scenario()
async def test_repeated_marker_is_success(stage: Stage) -> None:
    """B07: its transaction has ended, so there is nothing that it could end, and its sender must not try for ever."""
    (invoices,) = await stage.create_topic("invoices")
    producer = await opened(stage, invoices)
    ok(await producer.end(commit=True))
    await stage.eventually(lambda: is_decided(stage, invoices))
    assert await marker_error(stage, marker(producer, invoices)) is ErrorCode.NONE
    assert await is_decided(stage, invoices)
    await producer.transaction({invoices: [b"next"]})
    assert await stage.committed(invoices) == [b"invoice", b"next"]


# Ends of nothing


@scenario()
async def test_abort_of_nothing_returns_a_new_epoch_and_fences_no_producer(stage: Stage) -> None:
    """B18: a client that does not know whether its transaction has begun aborts it to be sure, before and after."""
    (invoices,) = await stage.create_topic("invoices")
    producer = billing(stage)
    ok(await producer.init())
    epochs = [producer.epoch]
    for _ in range(2):
        ok(await producer.end(commit=False))
        epochs.append(producer.epoch)
        ok(await producer.end(commit=False))
        epochs.append(producer.epoch)
        await producer.transaction({invoices: [b"invoice"]})
        epochs.append(producer.epoch)
    assert epochs == list(range(len(epochs)))
    assert await stage.committed(invoices) == [b"invoice", b"invoice"]


@scenario()
async def test_commit_of_nothing_is_refused_and_does_no_harm(stage: Stage) -> None:
    """B19: clients do not send it; whoever does learns that there is no transaction, and goes on as it is."""
    (invoices,) = await stage.create_topic("invoices")
    producer = billing(stage)
    ok(await producer.init())
    assert await producer.end(commit=True) is ErrorCode.INVALID_TXN_STATE
    await producer.transaction({invoices: [b"invoice"]})
    assert await producer.end(commit=True) is ErrorCode.INVALID_TXN_STATE
    await producer.transaction({invoices: [b"next"]})
    assert await stage.committed(invoices) == [b"invoice", b"next"]


# The last epoch


@pytest.mark.parametrize("commit", [True, False])
@scenario()
async def test_producer_id_is_renewed_after_the_last_epoch(stage: Stage, commit: bool) -> None:
    """B23: the response that follows epoch 32,766 has another producer id and epoch 0; it is the same for a retry."""
    (invoices,) = await stage.create_topic("invoices")
    producer = await at_last_epoch(stage)
    await producer.open_transaction({invoices: [b"last"]})
    old_id, end = producer.producer_id, producer.end_request(commit=commit)
    ok(await producer.end(commit=commit))
    assert producer.producer_id != old_id
    assert producer.epoch == 0
    again = await stage.call(end, requests.TRANSACTION_2_END_TXN_VERSION)
    assert (again.error_code, again.producer_id, again.producer_epoch) == (ErrorCode.NONE, *producer.identity)
    await producer.transaction({invoices: [b"first"]})
    late = await stage.call(end, requests.TRANSACTION_2_END_TXN_VERSION)
    assert late.error_code == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert await stage.committed(invoices) == ([b"last", b"first"] if commit else [b"first"])


@pytest.mark.parametrize("step", ["invoices-0/", "__transaction_state-"])
@scenario(settings=DURABLE)
async def test_new_producer_id_survives_a_failover(stage: Stage, step: str) -> None:
    """B25: the broker dies when the end is decided, before its marker or its completion is written."""
    (invoices,) = await stage.create_topic("invoices")
    producer = await at_last_epoch(stage)
    await producer.open_transaction({invoices: [b"last"]})
    stage.disk.stop_before("append", step, skip=1 if step.startswith("__") else 0)
    await producer.abandoned(producer.end_request(commit=True), requests.TRANSACTION_2_END_TXN_VERSION)
    await stage.machine_stopped()
    await stage.restart("power")
    old_id = producer.producer_id
    ok(await producer.end(commit=True))
    assert producer.producer_id != old_id
    assert producer.epoch == 0
    await producer.transaction({invoices: [b"first"]})
    assert await stage.committed(invoices) == [b"last", b"first"]


@scenario()
async def test_transaction_that_times_out_in_the_last_epoch_costs_the_producer_id(stage: Stage) -> None:
    """B23, B24: the coordinator ends it like a client would; nobody is left with an epoch above 32,766."""
    (invoices,) = await stage.create_topic("invoices")
    producer = await at_last_epoch(stage)
    await producer.open_transaction({invoices: [b"last"]})
    await stage.eventually(lambda: is_decided(stage, invoices), within=TIMEOUT_MS / 1000 + 1.5)
    successor = billing(stage)
    ok(await successor.init())
    assert successor.producer_id != producer.producer_id
    assert successor.epoch <= 1
    await successor.transaction({invoices: [b"first"]})
    assert await stage.committed(invoices) == [b"first"]


async def at_last_epoch(stage: Stage) -> Version2Producer:
    """A producer whose next transaction has epoch 32,766."""
    await age_producers(stage.broker, ["billing"], stage.rng, epochs=(LAST_LIVE_EPOCH - 1, LAST_LIVE_EPOCH - 1))
    producer = billing(stage)
    ok(await producer.init())
    assert producer.epoch == LAST_LIVE_EPOCH
    return producer


# Both versions on one broker


@scenario()
async def test_client_of_the_newest_version_works_at_every_level(stage: Stage) -> None:
    """B11: whatever level is finalised, its requests get their responses, and its transactions are whole."""
    (invoices,) = await stage.create_topic("invoices")
    producer = billing(stage)
    ok(await producer.init())
    written: list[bytes] = []
    for level in (2, 0, 1, 2, 1, 0, 2):
        await finalize(stage, level)
        written.append(b"at level %d" % level)
        await producer.transaction({invoices: written[-1:]})
    assert await stage.committed(invoices) == written


@scenario()
async def test_producers_of_both_versions_take_turns(stage: Stage) -> None:
    """B11: one transactional id, initialised by a client of either kind after one of the other."""
    (invoices,) = await stage.create_topic("invoices")
    written: list[bytes] = []
    for number in range(6):
        producer = billing(stage) if number % 2 else stage.producer("billing")
        ok(await producer.init())
        for commit in (True, False, True):
            value = b"%d" % len(written)
            await producer.transaction({invoices: [value]}, commit=commit)
            written += [value] if commit else []
        await producer.open_transaction({invoices: [b"left open"]})
    await stage.eventually(lambda: is_decided(stage, invoices))
    assert await stage.committed(invoices) == written


async def finalize(stage: Stage, level: int) -> None:
    response = await stage.call(requests.api_versions(), requests.API_VERSIONS_VERSION)
    present = requests.finalized_transaction_version(response)
    if level != present:
        request = requests.finalize_transaction_version(level, present)
        response = await stage.call(request, requests.UPDATE_FEATURES_VERSION)
        assert response.error_code == ErrorCode.NONE, response
