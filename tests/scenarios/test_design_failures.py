"""The failures that the design of Kafka's transactions reckons with, one test for each.

In the design's order: the errors that a producer must handle; the coordinator dying at each of its writes; what ends
without its producer; what a restarted broker knows; what nobody but a coordinator may write. Where the design speaks of
several brokers, this is the part that one broker can break: "fails over" means "is started again".
"""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from oncelog.coordinator.transaction.log_records import build_record_batch
from oncelog.coordinator.transaction.state import TransactionMetadata
from oncelog.coordinator.transaction.transaction_state import TransactionState
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.delete_topics import DeleteTopicsRequest
from oncelog.protocol.messages.describe_producers import DescribeProducersRequest, ProducerState, TopicRequest
from oncelog.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from oncelog.protocol.records.control_records import build_end_txn_marker
from oncelog.protocol.records.record_batch import patch_offset_and_epoch
from oncelog.protocol.topic_partition import TopicPartition
from tests.scenarios.scripted_producer import ScriptedProducer, ok
from tests.scenarios.stage import Stage, scenario
from tests.simulation import requests
from tests.simulation.sim_disk import CrashKind
from tests.simulation.simulated_broker import EPOCH_MS

GROUP = "billing"
DURABLE = {"log.flush.interval.messages": "1"}
ONE_PARTITION = {"transaction.state.log.num.partitions": "1", "offsets.topic.num.partitions": "1"}


async def initialised(stage: Stage, *, timeout_ms: int = 60_000) -> ScriptedProducer:
    producer = stage.producer("billing", timeout_ms=timeout_ms)
    ok(await producer.init())
    return producer


async def write_marker(
    stage: Stage, producer: ScriptedProducer, partition: TopicPartition, *, commit: bool, coordinator_epoch: int
) -> ErrorCode:
    """What a coordinator, or an operator who plays one, sends."""
    topic = WritableTxnMarkerTopic(name=partition.topic, partition_indexes=[partition.partition])
    marker = WritableTxnMarker(
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        transaction_result=commit,
        topics=[topic],
        coordinator_epoch=coordinator_epoch,
    )
    response = await stage.call(WriteTxnMarkersRequest(markers=[marker]), 1)
    return ErrorCode(response.markers[0].topics[0].partitions[0].error_code)


async def is_decided(stage: Stage, partition: TopicPartition) -> bool:
    """Nothing in the partition is held back from readers of committed records."""
    content = await stage.read(partition, read_committed=False)
    return content.last_stable_offset == content.high_watermark


# The errors that a producer must handle


@scenario()
async def test_invalid_producer_epoch(stage: Stage) -> None:
    """B28: a zombie is told that it is one, by the partition and by the coordinator, and has to stop."""
    (invoices,) = await stage.create_topic("invoices")
    zombie = await initialised(stage)
    await zombie.open_transaction({invoices: [b"undead"]})
    await initialised(stage)
    assert (await zombie.send(invoices, b"undead")).error_code == ErrorCode.INVALID_PRODUCER_EPOCH
    assert await zombie.end(commit=True) is ErrorCode.PRODUCER_FENCED
    assert await stage.committed(invoices) == []


@scenario()
async def test_invalid_producer_epoch_where_the_zombie_never_wrote(stage: Stage) -> None:
    """A partition that has not heard of the new epoch asks the coordinator, and the zombie's batch is not appended."""
    (invoices,) = await stage.create_topic("invoices")
    zombie = await initialised(stage)
    await initialised(stage)
    refused = ErrorCode((await zombie.send(invoices, b"undead")).error_code)
    assert refused is ErrorCode.INVALID_PRODUCER_EPOCH, refused.name
    assert await stage.everything(invoices) == []


@scenario()
async def test_invalid_producer_id_mapping(stage: Stage) -> None:
    """A transactional id that the coordinator does not know, or that has another producer id by now."""
    (invoices,) = await stage.create_topic("invoices")
    known = await initialised(stage)
    stranger = stage.producer("nobody")
    stranger.producer_id, stranger.epoch = known.producer_id, known.epoch
    assert await stranger.add(invoices) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert await stranger.add_offsets(GROUP) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert await stranger.end(commit=True) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    ok(await stranger.init())
    await stranger.transaction({invoices: [b"after a new InitProducerId"]})


@scenario()
async def test_coordinator_not_available(stage: Stage) -> None:
    """While the coordinator is not there yet, everybody is asked to come back, and nothing is decided meanwhile."""
    (invoices,) = await stage.create_topic("invoices")
    request = requests.find_coordinator("billing", transactional=True)
    first = await stage.call(request, requests.FIND_COORDINATOR_VERSION)
    assert first.error_code in (ErrorCode.NONE, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    producer = await initialised(stage)
    await producer.open_transaction({invoices: [b"invoice"]})
    await stage.restart()
    response = await stage.call(producer.end_request(commit=True), requests.END_TXN_VERSION)
    at_once = ErrorCode(response.error_code)
    assert at_once in (
        ErrorCode.NONE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ), at_once.name
    ok(await producer.end(commit=True))
    assert await stage.committed(invoices) == [b"invoice"]


@scenario()
async def test_invalid_txn_state(stage: Stage) -> None:
    """Whoever ends what was never begun, or ends it the other way round, breaks the protocol and is told so."""
    (invoices,) = await stage.create_topic("invoices")
    producer = await initialised(stage)
    assert await producer.end(commit=True) is ErrorCode.INVALID_TXN_STATE
    await producer.transaction({invoices: [b"invoice"]})
    assert await producer.end(commit=False) is ErrorCode.INVALID_TXN_STATE
    assert await stage.committed(invoices) == [b"invoice"]


@scenario()
async def test_duplicate_sequence_number(stage: Stage) -> None:
    """A batch that the log has is acknowledged with its offset; the design had an error that means the same."""
    (invoices,) = await stage.create_topic("invoices")
    producer = await initialised(stage)
    await producer.open_transaction({invoices: [b"invoice"]})
    again = await producer.produce(producer.batch(invoices, b"invoice", sequence=0), invoices)
    assert (again.error_code, again.base_offset) == (ErrorCode.NONE, 0)
    assert await stage.everything(invoices) == [b"invoice"]


@scenario()
async def test_out_of_order_sequence_number_after_a_lost_log(stage: Stage) -> None:
    """Without replicas and without fsync a power loss takes acknowledged records; the producer notices, and stops.

    Its next sequence does not follow what is left, so no gap is papered over. This is what the settings that this
    broker starts with promise against a loss of power, and no more.
    """
    (purchases,) = await stage.create_topic("purchases")
    producer = stage.producer(None)
    ok(await producer.init())
    ok(await producer.send(purchases, b"p0"))
    await stage.broker.stop()  # Writes all of it to the medium.
    await stage.broker.start()
    for number in range(1, 20):
        ok(await producer.send(purchases, b"p%d" % number))
    await stage.restart("power")
    left = len(await stage.everything(purchases))
    assert left >= 1
    response = await producer.send(purchases, b"p20")
    expected = ErrorCode.NONE if left == 20 else ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert response.error_code == expected


@scenario()
async def test_invalid_transaction_timeout(stage: Stage) -> None:
    """A time-out that the broker does not allow is refused when the producer starts, not when it is needed."""
    for timeout_ms in (0, -1, 900_001):
        assert await stage.producer("billing", timeout_ms=timeout_ms).init() is ErrorCode.INVALID_TRANSACTION_TIMEOUT
    ok(await stage.producer("billing", timeout_ms=900_000).init())


# The coordinator dies at one of its writes


Steps = Callable[[ScriptedProducer, TopicPartition, TopicPartition], Awaitable[None]]


async def whole_transaction(producer: ScriptedProducer, invoices: TopicPartition, purchases: TopicPartition) -> None:
    """From InitProducerId to EndTxn. Every step is repeated until the broker is there to answer it."""
    ok(await producer.init())
    ok(await producer.add(invoices))
    ok(await producer.send(invoices, b"invoice"))
    ok(await producer.add_offsets(GROUP))
    ok(await producer.commit_offsets(GROUP, {purchases: 7}))
    ok(await producer.end(commit=True))


WRITES = {
    "the transactional id": ("__transaction_state-", 0),
    "the first partition": ("__transaction_state-", 1),
    "a batch": ("invoices-", 0),
    "the partition of the offsets": ("__transaction_state-", 2),
    "the offsets": ("__consumer_offsets-", 0),
    "the decision": ("__transaction_state-", 3),
    "a marker": ("invoices-", 1),
    "the marker of the offsets": ("__consumer_offsets-", 1),
    "the completion": ("__transaction_state-", 4),
}
"""{what is about to be written: to which log, and how many appends to it come before}"""


@pytest.mark.parametrize("kind", ["process", "power"])
@pytest.mark.parametrize("write", WRITES)
@scenario(settings={**DURABLE, **ONE_PARTITION})
async def test_failure_before_writing(stage: Stage, write: str, kind: CrashKind) -> None:
    """The broker dies before one write of a transaction; its producer repeats what was not answered, and gets through.

    Whatever had been answered is there, whatever had not is repeated without harm, and the whole happens once.
    """
    (invoices,) = await stage.create_topic("invoices")
    (purchases,) = await stage.create_topic("purchases")
    await stage.find_coordinator("billing", transactional=True)
    await stage.find_coordinator(GROUP, transactional=False)
    log, appends_before = WRITES[write]
    stage.disk.stop_before("append", log, skip=appends_before)
    transaction = stage.loop.create_task(whole_transaction(stage.producer("billing"), invoices, purchases))
    await stage.machine_stopped()
    await stage.restart(kind)
    await transaction
    assert await stage.committed(invoices) == [b"invoice"]
    assert await stage.everything(invoices) == [b"invoice"]
    assert await stage.group_offset(GROUP, purchases, require_stable=True) == 7


@scenario()
async def test_coordinator_failure_before_the_response_to_end_txn(stage: Stage) -> None:
    """The transaction is complete and its producer does not know: repeating the request is safe, and tells it."""
    (invoices,) = await stage.create_topic("invoices")
    producer = await initialised(stage)
    for commit in (True, False):
        await producer.open_transaction({invoices: [b"%d" % commit]})
        await producer.unheard(producer.end_request(commit=commit), requests.END_TXN_VERSION)
        await stage.restart()
        ok(await producer.end(commit=commit))
        assert await producer.end(commit=not commit) is ErrorCode.INVALID_TXN_STATE
    assert await stage.committed(invoices) == [b"1"]


@scenario(settings=ONE_PARTITION)
async def test_transaction_log_that_contradicts_itself(stage: Stage) -> None:
    """A log in which an epoch goes back is corrupt: its transactional ids are not served, and nothing else suffers."""
    (invoices,) = await stage.create_topic("invoices")
    producer = await initialised(stage)
    for _ in range(3):
        ok(await producer.init())
    stage.expects_errors = True
    await stage.broker.stop()
    older = TransactionMetadata(
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch - 1,
        timeout_ms=60_000,
        state=TransactionState.EMPTY,
        partitions=frozenset(),
        start_ms=-1,
        last_update_ms=EPOCH_MS,
    )
    batch = build_record_batch("billing", older, EPOCH_MS)
    patch_offset_and_epoch(batch, 0, 4, 1)
    log = stage.disk.open("/data/__transaction_state-0/00000000000000000000.log")
    before = log.size()
    log.append((batch,))
    await stage.broker.start()
    for _ in range(20):
        response = await stage.call(producer.end_request(commit=True), requests.END_TXN_VERSION)
        await asyncio.sleep(0.05)
    assert response.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "the log is read again, now and then"
    plain = stage.producer(None)
    ok(await plain.init())
    ok(await plain.send(invoices, b"still written"))
    await stage.broker.stop()
    stage.disk.open("/data/__transaction_state-0/00000000000000000000.log").truncate(before)  # An operator repairs it.
    await stage.broker.start()


# What ends without its producer


@scenario(settings={"transaction.abort.timed.out.transaction.cleanup.interval.ms": "500"})
async def test_transaction_that_expires_is_aborted(stage: Stage) -> None:
    """B29: a transaction that stays open too long is aborted with a new epoch, so that its producer is fenced too.

    Its values are never committed, others' values behind it are released, and what the producer still sends is refused
    by its partitions and by the coordinator.
    """
    (invoices,) = await stage.create_topic("invoices")
    slow = await initialised(stage, timeout_ms=2_000)
    await slow.open_transaction({invoices: [b"too slow"]})
    other = stage.producer("other")
    ok(await other.init())
    await other.transaction({invoices: [b"behind it"]})
    assert await stage.committed(invoices) == []
    await stage.eventually(lambda: is_decided(stage, invoices), within=3.0)
    assert await stage.committed(invoices) == [b"behind it"]
    assert (await slow.send(invoices, b"too late")).error_code == ErrorCode.INVALID_PRODUCER_EPOCH
    assert await slow.end(commit=True) is ErrorCode.PRODUCER_FENCED


@scenario(settings={"transaction.abort.timed.out.transaction.cleanup.interval.ms": "500"})
async def test_transaction_expiration_over_a_restart(stage: Stage) -> None:
    """The time of a transaction runs on while its coordinator is down."""
    (invoices,) = await stage.create_topic("invoices")
    slow = await initialised(stage, timeout_ms=5_000)
    await slow.open_transaction({invoices: [b"too slow"]})
    await asyncio.sleep(3)
    stage.crash()
    await asyncio.sleep(3)
    await stage.broker.start()
    await stage.eventually(lambda: is_decided(stage, invoices), within=1.0)
    assert await stage.committed(invoices) == []


@scenario(
    settings={
        "transactional.id.expiration.ms": "60000",
        "transaction.remove.expired.transaction.cleanup.interval.ms": "5000",
    }
)
async def test_transactional_id_expiration(stage: Stage) -> None:
    """B33: an id that nobody uses is forgotten, one with an open transaction never is.

    The producer that comes back after that is told to start anew and gets another producer id; whoever had the old one
    can not begin a transaction with it any more.
    """
    (invoices,) = await stage.create_topic("invoices")
    idle = await initialised(stage)
    await idle.transaction({invoices: [b"invoice"]})
    busy = stage.producer("busy", timeout_ms=900_000)
    ok(await busy.init())
    await busy.open_transaction({invoices: [b"long"]})
    await asyncio.sleep(70)
    assert await idle.add(invoices) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    ok(await busy.end(commit=True))
    successor = await initialised(stage)
    assert successor.producer_id != idle.producer_id
    await stage.restart()
    assert await idle.add(invoices) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    await successor.transaction({invoices: [b"next"]})
    assert await stage.committed(invoices) == [b"invoice", b"long", b"next"]


@scenario(settings={"producer.id.expiration.ms": "60000", "producer.id.expiration.check.interval.ms": "1000"})
async def test_producer_id_expiration(stage: Stage) -> None:
    """B32, B33: a partition forgets idle producers, but not those with an open transaction.

    A producer that was forgotten and goes on is accepted as it is, as Kafka does since 2.5: the design would have
    refused it, and with it every producer that pauses for longer than the retention.
    """
    (invoices,) = await stage.create_topic("invoices")
    idle = stage.producer(None)
    ok(await idle.init())
    ok(await idle.send(invoices, b"p0"))
    busy = await initialised(stage, timeout_ms=900_000)
    await busy.open_transaction({invoices: [b"long"]})
    await asyncio.sleep(70)
    assert [state.producer_id for state in await active_producers(stage, invoices)] == [busy.producer_id]
    ok(await idle.send(invoices, b"p1"))
    ok(await busy.send(invoices, b"longer"))
    ok(await busy.end(commit=True))
    assert await stage.committed(invoices) == [b"p0", b"long", b"p1", b"longer"]


async def active_producers(stage: Stage, partition: TopicPartition) -> list[ProducerState]:
    topic = TopicRequest(name=partition.topic, partition_indexes=[partition.partition])
    response = await stage.call(DescribeProducersRequest(topics=[topic]), 0)
    states: list[ProducerState] = response.topics[0].partitions[0].active_producers
    return states


@pytest.mark.parametrize("step", ["before its end", "between its decision and its markers"])
@scenario(settings=DURABLE)
async def test_unavailable_partition_that_never_comes_back(stage: Stage, step: str) -> None:
    """B15: the topic of one partition is deleted, and the transaction completes on the others."""
    (invoices,) = await stage.create_topic("invoices")
    (shipments,) = await stage.create_topic("shipments")
    producer = await initialised(stage)
    await producer.open_transaction({invoices: [b"invoice"], shipments: [b"to"]})
    if step == "before its end":
        await delete_topic(stage, "shipments")
    else:
        stage.disk.stop_before("append", "shipments-")
        await producer.abandoned(producer.end_request(commit=True), requests.END_TXN_VERSION)
        await stage.machine_stopped()
        await stage.restart()
        await delete_topic(stage, "shipments")
    ok(await producer.end(commit=True))
    await producer.transaction({invoices: [b"next"]})
    assert await stage.committed(invoices) == [b"invoice", b"next"]


async def delete_topic(stage: Stage, name: str) -> None:
    await stage.call(DeleteTopicsRequest(topic_names=[name], timeout_ms=5_000), 4)


# Zombie coordinators, lost markers, and who may write what


@scenario()
async def test_zombie_coordinator_is_fenced(stage: Stage) -> None:
    """B16: a marker of an older coordinator, held up somewhere, does not end the transaction that is open now."""
    (invoices,) = await stage.create_topic("invoices")
    producer = await initialised(stage)
    await stage.restart()  # So that the coordinator's epoch is not the first.
    await producer.transaction({invoices: [b"invoice"]})
    await producer.open_transaction({invoices: [b"next"]})
    for commit in (True, False):
        outcome = await write_marker(stage, producer, invoices, commit=commit, coordinator_epoch=0)
        assert outcome is ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert not await is_decided(stage, invoices)
    ok(await producer.end(commit=True))
    assert await stage.committed(invoices) == [b"invoice", b"next"]


@scenario()
async def test_repeated_marker_changes_nothing(stage: Stage) -> None:
    """B07: a coordinator that does not know whether its marker arrived writes it again, and the log bears it."""
    (invoices,) = await stage.create_topic("invoices")
    producer = await initialised(stage)
    await producer.transaction({invoices: [b"invoice"]})
    for commit in (True, False):
        ok(await write_marker(stage, producer, invoices, commit=commit, coordinator_epoch=100))
    assert await is_decided(stage, invoices)
    assert await stage.committed(invoices) == [b"invoice"]
    await stage.restart()
    assert await stage.committed(invoices) == [b"invoice"]


@scenario(settings=ONE_PARTITION)
async def test_transaction_that_hangs_after_a_disaster(stage: Stage) -> None:
    """A marker is lost for good: readers of committed records are held up, visibly, and an operator can end it.

    DescribeProducers says which producer it is, and WriteTxnMarkers aborts its transaction.
    """
    (invoices,) = await stage.create_topic("invoices")
    producer = await initialised(stage)
    await producer.open_transaction({invoices: [b"orphan"]})
    await stage.broker.stop()
    stage.disk.remove_tree("/data/__transaction_state-0")  # The coordinator's memory is gone.
    await stage.broker.start()
    await asyncio.sleep(120)
    assert not await is_decided(stage, invoices)
    (hanging,) = [state for state in await active_producers(stage, invoices) if state.current_txn_start_offset >= 0]
    assert (hanging.producer_id, hanging.producer_epoch) == (producer.producer_id, producer.epoch)
    assert hanging.current_txn_start_offset == 0
    ok(await write_marker(stage, producer, invoices, commit=False, coordinator_epoch=hanging.coordinator_epoch))
    assert await is_decided(stage, invoices)
    assert await stage.committed(invoices) == []


@pytest.mark.parametrize("commit", [True, False], ids=["commit", "abort"])
@scenario(settings=DURABLE)
async def test_marker_survives_a_power_loss_after_the_response_to_end_txn(stage: Stage, commit: bool) -> None:
    """B21: with an fsync for every batch nothing that was answered is lost, decisions and markers included."""
    (invoices,) = await stage.create_topic("invoices")
    producer = await initialised(stage)
    await producer.open_transaction({invoices: [b"invoice"]})
    stage.slow_fsync()
    ok(await producer.end(commit=commit))
    await stage.restart("power")
    await stage.eventually(lambda: is_decided(stage, invoices))
    assert await stage.committed(invoices) == ([b"invoice"] if commit else [])


@scenario()
async def test_clients_cannot_write_markers(stage: Stage) -> None:
    """A control batch that comes with a Produce request is refused: only coordinators end transactions."""
    (invoices,) = await stage.create_topic("invoices")
    victim = await initialised(stage)
    await victim.open_transaction({invoices: [b"invoice"]})
    marker = build_end_txn_marker(
        producer_id=victim.producer_id,
        producer_epoch=victim.epoch,
        commit=False,
        coordinator_epoch=9,
        timestamp=EPOCH_MS,
    )
    assert (await victim.produce(marker, invoices)).error_code == ErrorCode.INVALID_RECORD
    ok(await victim.end(commit=True))
    assert await stage.committed(invoices) == [b"invoice"]


@pytest.mark.parametrize("topic", ["__transaction_state", "__consumer_offsets"])
@scenario()
async def test_clients_cannot_write_to_the_coordinators_logs(stage: Stage, topic: str) -> None:
    """What the coordinators know comes from the coordinators."""
    await initialised(stage)
    await stage.find_coordinator(GROUP, transactional=False)
    forged = requests.produce(TopicPartition(topic, 0), requests.batch([b"forged"]))
    response = await stage.call(forged, requests.PRODUCE_VERSION)
    assert response.responses[0].partition_responses[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


@scenario()
async def test_zombie_cannot_commit_offsets(stage: Stage) -> None:
    """The group coordinator knows from the markers which epoch counts; a zombie's positions never become visible."""
    (purchases,) = await stage.create_topic("purchases")
    await stage.find_coordinator(GROUP, transactional=False)
    zombie = await initialised(stage)
    ok(await zombie.add_offsets(GROUP))
    ok(await zombie.commit_offsets(GROUP, {purchases: 5}))
    successor = await initialised(stage)
    assert await zombie.commit_offsets(GROUP, {purchases: 6}) is ErrorCode.INVALID_PRODUCER_EPOCH
    ok(await successor.add_offsets(GROUP))
    ok(await successor.commit_offsets(GROUP, {purchases: 7}))
    assert await stage.group_offset(GROUP, purchases) == -1
    ok(await successor.end(commit=True))
    assert await stage.group_offset(GROUP, purchases, require_stable=True) == 7
