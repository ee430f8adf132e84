"""Markers: one per partition, each with its own fate; offsets are there before anybody hears of success."""

import asyncio
from typing import Any

import pytest

from oncelog.broker.dispatch.request import CloseConnection
from oncelog.broker.handlers.write_txn_markers import handle_write_txn_markers
from oncelog.broker.replication.fetch_session import FetchIsolation
from oncelog.coordinator.ports import TransactionMarker
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from oncelog.protocol.records.control_records import parse_end_txn_marker
from oncelog.protocol.records.record_batch import iter_batches
from oncelog.protocol.schema import ZERO_UUID
from oncelog.protocol.topic_partition import TopicPartition
from tests.unit.broker.batches import batch
from tests.unit.broker.replica_side import ME, OTHER, OnlyTopics, ReplicaSide, topic_id
from tests.unit.broker.virtual_time import in_virtual_time


def markers(
    *partitions: tuple[str, int],
    producer_id: int = 1,
    epoch: int = 0,
    commit: bool = True,
    coordinator_epoch: int = 0,
    transaction_version: int = 0,
    decision_offset: int = -1,
    leader_epochs: tuple[int, ...] = (),
    id_of_topic: bytes = ZERO_UUID,
) -> WriteTxnMarkersRequest:
    return WriteTxnMarkersRequest(
        markers=[
            WritableTxnMarker(
                producer_id=producer_id,
                producer_epoch=epoch,
                transaction_result=commit,
                coordinator_epoch=coordinator_epoch,
                topics=[
                    WritableTxnMarkerTopic(
                        name=topic,
                        partition_indexes=[index],
                        leader_epochs=list(leader_epochs),
                        topic_id=id_of_topic,
                    )
                    for topic, index in partitions
                ],
                transaction_version=transaction_version,
                decision_offset=decision_offset,
            )
        ]
    )


def errors(response: WriteTxnMarkersResponse) -> list[ErrorCode]:
    return [
        ErrorCode(partition.error_code)
        for marker in response.markers
        for topic in marker.topics
        for partition in topic.partitions
    ]


def written(broker: ReplicaSide, topic: str = "t", index: int = 0) -> list[tuple[int, int, bool, int]]:
    """(producer id, epoch, commit, coordinator epoch) of the markers in a log."""
    log = broker.partition(topic, index).log
    assert log is not None
    data = log.segments.active.file.read_at(1 << 20, 0)
    found = []
    for position, header in iter_batches(data):
        if header.is_control:
            marker = parse_end_txn_marker(data, position, header)
            assert marker is not None
            found.append((header.producer_id, header.producer_epoch, marker.commit, marker.coordinator_epoch))
    return found


async def call(broker: ReplicaSide, request: WriteTxnMarkersRequest, version: int = 1) -> Any:
    """The response, at once if nothing has to wait."""
    return broker.call(handle_write_txn_markers, request, version)


def transactional(producer_id: int = 1, epoch: int = 0, sequence: int = 0) -> bytearray:
    return batch(producer_id=producer_id, epoch=epoch, sequence=sequence, transactional=True)


@pytest.mark.parametrize("version", handle_write_txn_markers.versions)
@pytest.mark.parametrize("commit", [True, False])
@in_virtual_time
async def test_marker_ends_a_transaction_in_each_partition(version: int, commit: bool) -> None:
    broker = ReplicaSide()
    broker.lead("t", 2)
    for index in (0, 1):
        broker.append(transactional(), index=index)
        assert broker.partition("t", index).visible_end(FetchIsolation.TXN_COMMITTED) == 0
    request = markers(("t", 0), ("t", 1), commit=commit, coordinator_epoch=4)
    response = await call(broker, request, version)
    assert errors(response) == [ErrorCode.NONE] * 2
    assert response.markers[0].producer_id == 1
    for index in (0, 1):
        assert broker.partition("t", index).visible_end(FetchIsolation.TXN_COMMITTED) == 2
        assert written(broker, "t", index) == [(1, 0, commit, 4)]


@in_virtual_time
async def test_marker_that_comes_again_changes_nothing() -> None:
    """B07: success again, and the transaction stays what it was."""
    broker = ReplicaSide()
    broker.lead()
    broker.append(transactional())
    for _ in range(2):
        assert errors(await call(broker, markers(("t", 0), commit=False))) == [ErrorCode.NONE]
    log = broker.partition().log
    assert log is not None
    assert log.last_stable_offset == log.high_watermark
    assert log.aborted_transactions(0, 10) == [(1, 0)]


@in_virtual_time
async def test_marker_without_a_transaction_is_accepted() -> None:
    broker = ReplicaSide()
    broker.lead()
    assert errors(await call(broker, markers(("t", 0)))) == [ErrorCode.NONE]


@in_virtual_time
async def test_older_coordinator_is_fenced() -> None:
    """B31"""
    broker = ReplicaSide()
    broker.lead()
    broker.append(transactional())
    await call(broker, markers(("t", 0), coordinator_epoch=5))
    broker.append(transactional(sequence=1))
    response = await call(broker, markers(("t", 0), coordinator_epoch=4))
    assert errors(response) == [ErrorCode.TRANSACTION_COORDINATOR_FENCED]
    assert broker.partition().visible_end(FetchIsolation.TXN_COMMITTED) == 2


@in_virtual_time
async def test_older_producer_epoch_is_refused() -> None:
    broker = ReplicaSide()
    broker.lead()
    broker.append(transactional(epoch=3))
    assert errors(await call(broker, markers(("t", 0), epoch=2))) == [ErrorCode.INVALID_PRODUCER_EPOCH]
    assert broker.partition().visible_end(FetchIsolation.TXN_COMMITTED) == 0


@in_virtual_time
async def test_newer_producer_epoch_ends_the_transaction_and_fences() -> None:
    broker = ReplicaSide()
    broker.lead()
    broker.append(transactional(epoch=3))
    assert errors(await call(broker, markers(("t", 0), epoch=4, commit=False))) == [ErrorCode.NONE]
    assert broker.partition().visible_end(FetchIsolation.TXN_COMMITTED) == 2


@in_virtual_time
async def test_marker_of_version_2_with_the_present_epoch_is_refused() -> None:
    """B06: it is meant for the transaction before, and would tear the open one."""
    broker = ReplicaSide()
    broker.lead()
    broker.append(transactional(epoch=3))
    first = markers(("t", 0), epoch=4, transaction_version=2)
    assert errors(await call(broker, first, 2)) == [ErrorCode.NONE]
    assert broker.partition().visible_end(FetchIsolation.TXN_COMMITTED) == 2
    broker.append(transactional(epoch=4))
    assert errors(await call(broker, first, 2)) == [ErrorCode.INVALID_PRODUCER_EPOCH]
    assert broker.partition().visible_end(FetchIsolation.TXN_COMMITTED) == 2
    second = markers(("t", 0), epoch=5, commit=False, transaction_version=2)
    assert errors(await call(broker, second, 2)) == [ErrorCode.NONE]
    assert written(broker) == [(1, 4, True, 0), (1, 5, False, 0)]


@in_virtual_time
async def test_marker_of_version_2_that_comes_again_changes_nothing() -> None:
    """B07: its transaction has ended, and no other has begun."""
    broker = ReplicaSide()
    broker.lead()
    broker.append(transactional())
    for _ in range(2):
        request = markers(("t", 0), epoch=1, commit=False, transaction_version=2)
        assert errors(await call(broker, request, 2)) == [ErrorCode.NONE]
    log = broker.partition().log
    assert log is not None
    assert log.last_stable_offset == log.high_watermark
    assert log.aborted_transactions(0, 10) == [(1, 0)]


@in_virtual_time
async def test_stale_marker_of_version_2_materialises_no_offsets() -> None:
    """B06, B17: those are of the transaction that is open now."""
    broker = ReplicaSide()
    broker.lead("__consumer_offsets")
    broker.append(transactional(epoch=4), "__consumer_offsets")
    stale = markers(("__consumer_offsets", 0), epoch=4, transaction_version=2)
    assert errors(await call(broker, stale, 2)) == [ErrorCode.INVALID_PRODUCER_EPOCH]
    assert broker.offsets_markers == []


@pytest.mark.parametrize(("producer_id", "epoch"), [(-1, 0), (-7, 3), (5, -1)])
@in_virtual_time
async def test_marker_of_an_invalid_producer_is_not_written(producer_id: int, epoch: int) -> None:
    """It would end nothing, and a producer that is known by epoch -1 could begin anywhere."""
    broker = ReplicaSide()
    broker.lead()
    request = markers(("t", 0), producer_id=producer_id, epoch=epoch)
    assert errors(await call(broker, request)) == [ErrorCode.INVALID_REQUEST]
    assert written(broker) == []


@in_virtual_time
async def test_write_txn_markers_has_an_error_for_each_partition() -> None:
    """B15, B16: partitions that are gone or led elsewhere do not keep the others from their marker."""
    broker = ReplicaSide()
    broker.lead()
    broker.lead("elsewhere", leader=OTHER, replicas=(OTHER,))
    broker.lead("few", replicas=(ME, OTHER), isr=(ME,))
    response = await call(broker, markers(("gone", 0), ("elsewhere", 0), ("t", 0), ("t", 9)))
    assert errors(response) == [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]


@in_virtual_time
async def test_failed_log_returns_kafka_storage_error() -> None:
    """B41"""
    broker = ReplicaSide()
    broker.lead()
    broker.disk.fail("append", ".log")
    assert errors(await call(broker, markers(("t", 0)))) == [ErrorCode.KAFKA_STORAGE_ERROR]


@in_virtual_time
async def test_write_txn_markers_response_waits_for_replication() -> None:
    broker = ReplicaSide()
    broker.lead("t", 2, replicas=(ME, OTHER))
    response = await call(broker, markers(("t", 0), ("t", 1)))
    assert isinstance(response, asyncio.Future)
    for index in (0, 1):
        assert not response.done()
        broker.follower_fetched(1, "t", index)
    assert errors(await response) == [ErrorCode.NONE] * 2


@in_virtual_time
async def test_marker_not_replicated_in_time_times_out_without_delaying_later_requests() -> None:
    """B16: responses of a connection leave in order, and among them are those that may let the replicas go on."""
    broker = ReplicaSide()
    broker.lead("t", 2, replicas=(ME, OTHER))
    response = await call(broker, markers(("t", 0), ("t", 1)))
    broker.follower_fetched(1, "t", 1)
    started = asyncio.get_running_loop().time()
    assert errors(await response) == [ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NONE]
    assert asyncio.get_running_loop().time() - started < broker.config.request_timeout_ms / 1000
    again = await call(broker, markers(("t", 0)))
    broker.follower_fetched(2, "t", 0)
    assert errors(await again) == [ErrorCode.NONE]
    assert errors(await response) == [ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NONE], "it was told, and stays told"


@in_virtual_time
async def test_leader_that_resigns_meanwhile_returns_an_error() -> None:
    broker = ReplicaSide()
    broker.lead(replicas=(ME, OTHER))
    response = await call(broker, markers(("t", 0)))
    broker.lead(epoch=1, leader=OTHER, replicas=(ME, OTHER))
    assert errors(await response) == [ErrorCode.NOT_LEADER_OR_FOLLOWER]


@in_virtual_time
async def test_offsets_are_materialised_before_the_response() -> None:
    """B17: the group coordinator has heard of the marker by the time that anybody hears of success."""
    broker = ReplicaSide()
    broker.lead("__consumer_offsets", 3, replicas=(ME, OTHER))
    broker.append(transactional(), "__consumer_offsets", 2)
    response = await call(broker, markers(("__consumer_offsets", 2)))
    assert broker.offsets_markers == [(2, 1, True)]
    assert not response.done()
    await call(broker, markers(("__consumer_offsets", 2), commit=False, producer_id=7))
    assert broker.offsets_markers[1:] == [(2, 7, False)]


@in_virtual_time
async def test_refused_marker_materialises_nothing() -> None:
    """B17"""
    broker = ReplicaSide()
    broker.lead("__consumer_offsets")
    broker.append(transactional(epoch=3), "__consumer_offsets")
    assert errors(await call(broker, markers(("__consumer_offsets", 0), epoch=2))) == [ErrorCode.INVALID_PRODUCER_EPOCH]
    assert broker.offsets_markers == []


@in_virtual_time
async def test_clients_may_not_end_transactions_of_others() -> None:
    broker = ReplicaSide()
    broker.lead()
    broker.authorizer = OnlyTopics("t")
    assert errors(await call(broker, markers(("t", 0)))) == [ErrorCode.CLUSTER_AUTHORIZATION_FAILED]
    assert written(broker) == []


@in_virtual_time
async def test_write_txn_markers_without_markers_gets_a_response() -> None:
    assert errors(await call(ReplicaSide(), WriteTxnMarkersRequest())) == []


@in_virtual_time
async def test_local_coordinator_writes_markers_without_a_socket() -> None:
    broker = ReplicaSide()
    broker.lead()
    marker = TransactionMarker(1, 0, commit=True, coordinator_epoch=0, transaction_version=0)
    written_markers = broker.marker_writer.write(marker, [TopicPartition("t", 0), TopicPartition("gone", 0)])
    assert written_markers.value == [ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert written(broker) == [(1, 0, True, 0)]


@in_virtual_time
async def test_exception_in_a_local_marker_is_the_error_of_its_partition_only() -> None:
    """B101: as it is for a coordinator on another broker; the sender sends it again."""
    broker = ReplicaSide()
    broker.lead("__consumer_offsets", 3)

    def fail(partition: int, producer_id: int, *, commit: bool) -> None:
        if partition == 1:
            raise ValueError("unforeseen")

    broker.marker_writer.serve(broker.replica_manager, fail)
    marker = TransactionMarker(1, 0, commit=True, coordinator_epoch=0, transaction_version=0)
    partitions = [TopicPartition("__consumer_offsets", index) for index in range(3)]
    written_markers = broker.marker_writer.write(marker, partitions)
    assert written_markers.value == [ErrorCode.NONE, ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.NONE]


@in_virtual_time
async def test_many_markers_are_written_in_slices_and_in_their_order() -> None:
    """Among them several of one producer, and an older coordinator's, which is fenced by the one before it."""
    broker = ReplicaSide()
    broker.lead()
    request = WriteTxnMarkersRequest()
    for number in range(200):
        request.markers += markers(
            ("t", 0), producer_id=number % 7, coordinator_epoch=1, commit=number % 2 == 0
        ).markers
    request.markers += markers(("t", 0), producer_id=3, coordinator_epoch=0).markers
    writing = broker.call(handle_write_txn_markers, request, 1)
    assert asyncio.iscoroutine(writing)
    at_once = len(written(broker))
    assert 0 < at_once < 50
    assert errors(await writing) == [ErrorCode.NONE] * 200 + [ErrorCode.TRANSACTION_COORDINATOR_FENCED]
    assert written(broker) == [(number % 7, 0, number % 2 == 0, 1) for number in range(200)]


@in_virtual_time
async def test_many_markers_for_a_connection_that_is_lost_end_before_the_next_slice() -> None:
    """Its coordinator sends them again, over another connection."""
    broker = ReplicaSide()
    broker.lead()
    request = WriteTxnMarkersRequest()
    for number in range(200):
        request.markers += markers(("t", 0), producer_id=number).markers
    writing = broker.call(handle_write_txn_markers, request, 1)
    at_once = len(written(broker))
    broker.connection.is_open = False
    with pytest.raises(CloseConnection):
        await writing
    assert len(written(broker)) == at_once


# The record that decided the end


@in_virtual_time
async def test_late_marker_of_an_earlier_transaction_is_refused() -> None:
    """B109: in version 1 only the record that decided the end tells two transactions apart."""
    broker = ReplicaSide()
    broker.lead("t")
    broker.append(transactional())
    assert errors(await call(broker, markers(("t", 0), decision_offset=11))) == [ErrorCode.NONE]
    broker.append(transactional(sequence=1))
    for late in (11, 3):
        refused = await call(broker, markers(("t", 0), decision_offset=late))
        assert errors(refused) == [ErrorCode.INVALID_PRODUCER_EPOCH]
    assert errors(await call(broker, markers(("t", 0), commit=False, decision_offset=14))) == [ErrorCode.NONE]
    assert written(broker) == [(1, 0, True, 0), (1, 0, False, 0)]


@in_virtual_time
async def test_marker_of_a_later_coordinator_is_not_late_although_its_log_has_lost_its_end() -> None:
    """B109: its offsets come again. Such a marker, refused as late, would leave its transaction open for ever."""
    broker = ReplicaSide()
    broker.lead("t")
    broker.append(transactional())
    earlier = markers(("t", 0), decision_offset=11, coordinator_epoch=3)
    assert errors(await call(broker, earlier)) == [ErrorCode.NONE]
    broker.append(transactional(sequence=1))
    later = markers(("t", 0), decision_offset=5, coordinator_epoch=4)
    assert errors(await call(broker, later)) == [ErrorCode.NONE]
    broker.append(transactional(sequence=2))
    assert errors(await call(broker, later)) == [ErrorCode.INVALID_PRODUCER_EPOCH]
    assert len(written(broker)) == 2


@pytest.mark.parametrize(
    ("leader_epochs", "error"),
    [
        ((), ErrorCode.NONE),
        ((-1,), ErrorCode.NONE),
        ((4,), ErrorCode.NONE),
        ((3,), ErrorCode.NOT_LEADER_OR_FOLLOWER),
        ((5,), ErrorCode.NOT_LEADER_OR_FOLLOWER),
        ((3, 3), ErrorCode.NONE),
    ],
)
@in_virtual_time
async def test_marker_that_was_sent_to_another_leadership_is_refused(
    leader_epochs: tuple[int, ...], error: ErrorCode
) -> None:
    """B109: this broker led before, and has forgotten what it decided then. The coordinator sends a good one again."""
    broker = ReplicaSide()
    broker.lead("t", epoch=4)
    broker.append(transactional())
    assert errors(await call(broker, markers(("t", 0), leader_epochs=leader_epochs))) == [error]
    assert len(written(broker)) == (error is ErrorCode.NONE)


@pytest.mark.parametrize("version", [1, 2])
@in_virtual_time
async def test_late_marker_of_a_deleted_topic_ends_nothing_in_the_next_topic_of_its_name(version: int) -> None:
    """B123: its leader epochs begin again, and its log knows no decision. The coordinator sends a good marker."""
    broker = ReplicaSide()
    broker.lead("t", id_of_topic=topic_id("later"))
    broker.append(transactional())
    late = markers(("t", 0), leader_epochs=(0,), id_of_topic=topic_id("earlier"), decision_offset=11)
    assert errors(await call(broker, late, version)) == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    assert written(broker) == []
    good = markers(("t", 0), leader_epochs=(0,), id_of_topic=topic_id("later"), decision_offset=11)
    assert errors(await call(broker, good, version)) == [ErrorCode.NONE]


@pytest.mark.parametrize(("of_log", "of_marker"), [("t", None), (None, "t"), (None, None)])
@in_virtual_time
async def test_marker_for_a_topic_whose_id_is_not_known_is_accepted(of_log: str | None, of_marker: str | None) -> None:
    """Of an older broker, or of a topic without an id."""
    broker = ReplicaSide()
    broker.lead("t", id_of_topic=topic_id(of_log) if of_log else ZERO_UUID)
    broker.append(transactional())
    named = topic_id(of_marker) if of_marker else ZERO_UUID
    assert errors(await call(broker, markers(("t", 0), leader_epochs=(0,), id_of_topic=named))) == [ErrorCode.NONE]


@in_virtual_time
async def test_marker_that_is_sent_again_before_the_next_transaction_is_accepted() -> None:
    broker = ReplicaSide()
    broker.lead("t")
    broker.append(transactional())
    for _ in range(2):
        assert errors(await call(broker, markers(("t", 0), decision_offset=11))) == [ErrorCode.NONE]


@pytest.mark.parametrize("version", [0, 1, 2])
@in_virtual_time
async def test_marker_without_a_decision_offset_ends_the_open_transaction(version: int) -> None:
    """Of Kafka's tools, of a broker that is not upgraded yet, and of version 0, which has no tagged fields."""
    broker = ReplicaSide()
    broker.lead("t")
    broker.append(transactional())
    assert errors(await call(broker, markers(("t", 0), decision_offset=11))) == [ErrorCode.NONE]
    broker.append(transactional(sequence=1))
    assert errors(await call(broker, markers(("t", 0)), version)) == [ErrorCode.NONE]
    broker.append(transactional(sequence=2))
    assert errors(await call(broker, markers(("t", 0), decision_offset=17))) == [ErrorCode.NONE]
    assert len(written(broker)) == 3
