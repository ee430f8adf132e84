"""The sink's requests to a cluster that is too old, or that does not response; the rest is seen on real brokers."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random

import pytest

from oncelog.clients.cluster import Cluster
from oncelog.protocol.api_keys import ApiKey
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from oncelog.protocol.messages.fetch import AbortedTransaction, FetchRequest, PartitionData
from oncelog.protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from oncelog.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from oncelog.protocol.records.control_records import build_end_txn_marker
from oncelog.protocol.records.record_batch import NewRecord, build_batch
from oncelog.protocol.schema import Message, Versions
from oncelog.protocol.topic_partition import TopicPartition
from oncelog.spark_connector.sink.cluster_broker import ClusterBroker, SinkSettings
from oncelog.spark_connector.sink.commit.endings import end_all
from oncelog.spark_connector.sink.commit.sink_broker import RowWriter, retry_transient
from oncelog.spark_connector.sink.commit.sink_errors import SinkUnavailable, UnsupportedBroker
from oncelog.spark_connector.sink.commit.sink_transactions import TaskTransaction
from oncelog.spark_connector.sink.commit.state_record import StateRecord
from oncelog.spark_connector.sink.state_log import StateMemory
from tests.stored_batch import stored
from tests.unit.clients.scripted_broker import Reaction, ScriptedBroker, ScriptedResponse
from tests.unit.spark_connector.scripted_partition import TOPIC, ScriptedPartition, respond

_SETTINGS = SinkSettings(state_topic=TOPIC, transaction_timeout_ms=1500, patience_seconds=0.6)


async def no_writer(transactional_id: str) -> RowWriter:
    raise AssertionError(transactional_id)


@asynccontextmanager
async def broker_over(scripted: ScriptedBroker) -> AsyncIterator[ClusterBroker]:
    address = await scripted.start()
    cluster = Cluster([address], rng=Random(1), operation_seconds=0.5)
    try:
        yield ClusterBroker(cluster, _SETTINGS, no_writer, StateMemory(), lambda: 0)
    finally:
        await cluster.close()
        scripted.stop()


def coordinates_all(request: FindCoordinatorRequest, scripted: ScriptedBroker) -> FindCoordinatorResponse:
    host, port = scripted.address
    found = [Coordinator(key=key, node_id=1, host=host, port=port) for key in request.coordinator_keys]
    return FindCoordinatorResponse(coordinators=found)


async def test_brokers_before_3_0_are_refused_by_what_they_lack() -> None:
    scripted = ScriptedBroker({})
    scripted.versions = {ApiKey.API_VERSIONS: Versions(0, 3), ApiKey.INIT_PRODUCER_ID: Versions(0, 4)}
    async with broker_over(scripted) as broker:
        with pytest.raises(UnsupportedBroker, match=r"LIST_TRANSACTIONS and DESCRIBE_TRANSACTIONS.*at-least-once"):
            await broker.require_support()


async def test_brokers_from_3_0_on_are_accepted() -> None:
    scripted = ScriptedBroker({})
    served = (ApiKey.API_VERSIONS, ApiKey.LIST_TRANSACTIONS, ApiKey.DESCRIBE_TRANSACTIONS)
    scripted.versions = {key: Versions(0, 0) for key in served}
    async with broker_over(scripted) as broker:
        await broker.require_support()
        assert await broker.transaction_version() == 1


@pytest.mark.parametrize(("version", "requested"), [(1, 4), (2, 5)])
async def test_transaction_ends_in_the_version_in_which_it_began(version: int, requested: int) -> None:
    """Version 5 and later of EndTxn bump the epoch, and mean version 2 of the protocol."""
    scripted = ScriptedBroker({EndTxnRequest: EndTxnResponse(producer_id=7, producer_epoch=4)})
    scripted.script[FindCoordinatorRequest] = lambda request: coordinates_all(request, scripted)  # type: ignore[arg-type]
    async with broker_over(scripted) as broker:
        (ended,) = await broker.end([TaskTransaction("s.1.p.0", 7, 3, version)], commit=True)
    assert ended.error is ErrorCode.NONE
    assert (EndTxnRequest, requested) in scripted.versions_requested


async def test_step_without_a_response_returns_a_transient_error() -> None:
    scripted = ScriptedBroker({EndTxnRequest: Reaction.CLOSE})
    scripted.script[FindCoordinatorRequest] = lambda request: coordinates_all(request, scripted)  # type: ignore[arg-type]
    async with broker_over(scripted) as broker:
        responses = await broker.end([TaskTransaction(f"s.1.p.{slot}", 7, 3, 2) for slot in range(3)], commit=True)
    assert [each.error for each in responses] == [ErrorCode.NETWORK_EXCEPTION] * 3


def coordinator_that_refuses(error: ErrorCode) -> ScriptedBroker:
    scripted = ScriptedBroker(
        {
            InitProducerIdRequest: InitProducerIdResponse(error_code=error),
            EndTxnRequest: EndTxnResponse(error_code=error),
        }
    )
    scripted.script[FindCoordinatorRequest] = lambda request: coordinates_all(request, scripted)  # type: ignore[arg-type]
    return scripted


async def test_step_after_its_last_retry_raises_the_reason() -> None:
    loop = asyncio.get_running_loop()
    async with broker_over(coordinator_that_refuses(ErrorCode.CONCURRENT_TRANSACTIONS)) as broker:
        began = loop.time()
        with pytest.raises(SinkUnavailable, match=r"within 0\.6 s: CONCURRENT_TRANSACTIONS.*kafka\.max\.block\.ms"):
            await retry_transient(broker, lambda: broker.init_producer_id("s.driver"))
        assert loop.time() - began < 1.4


async def test_step_has_its_own_time_whatever_the_previous_one_used() -> None:
    scripted = coordinator_that_refuses(ErrorCode.CONCURRENT_TRANSACTIONS)
    async with broker_over(scripted) as broker:
        with pytest.raises(SinkUnavailable):
            await retry_transient(broker, lambda: broker.init_producer_id("s.driver"))
        requested = len(scripted.requests)
        with pytest.raises(SinkUnavailable):
            await retry_transient(broker, lambda: broker.init_producer_id("s.driver"))
        assert len(scripted.requests) > requested + 1


async def test_decided_step_is_retried_until_its_transactions_have_timed_out() -> None:
    loop = asyncio.get_running_loop()
    async with broker_over(coordinator_that_refuses(ErrorCode.CONCURRENT_TRANSACTIONS)) as broker:
        began = loop.time()
        with pytest.raises(SinkUnavailable, match=r"within 1\.5 s"):
            await end_all(broker, [TaskTransaction("s.1.p.0", 7, 3, 2)], commit=True)
        assert loop.time() - began > 0.7


_DECIDED = StateRecord(sink="sink", generation=3)
_RECORD = bytes(
    build_batch(
        [NewRecord(0, b"sink", _DECIDED.encode())],
        producer_id=7,
        producer_epoch=3,
        base_sequence=0,
        is_transactional=True,
    )
)


def _marker(*, commit: bool) -> bytes:
    return bytes(
        stored(
            build_end_txn_marker(producer_id=7, producer_epoch=3, commit=commit, coordinator_epoch=0, timestamp=0),
            base_offset=1,
        )
    )


class _LateMarker(ScriptedPartition):
    """The state topic after the response to EndTxn: the marker comes with the ``due``-th read of the end.

    A read_committed fetch ends before the open record, and a read_uncommitted one returns it.
    """

    def __init__(self, *, commit: bool, due: int) -> None:
        super().__init__(1)
        self.ends_read = 0
        self._marker = _marker(commit=commit)
        self._aborted = [] if commit else [AbortedTransaction(producer_id=7, first_offset=0)]
        self._due = due

    def _list_offsets(self, request: Message) -> ScriptedResponse:
        self.ends_read += 1
        if self.ends_read >= self._due:
            self.end = 2
        return super()._list_offsets(request)

    def _fetch(self, request: Message) -> ScriptedResponse:
        assert isinstance(request, FetchRequest)
        if self.end == 2:
            records = _RECORD + self._marker
            return respond(PartitionData(records=records, high_watermark=2, aborted_transactions=self._aborted))
        records = b"" if request.isolation_level else _RECORD
        return respond(PartitionData(records=records, high_watermark=1))


@pytest.mark.parametrize(("commit", "state"), [(True, _DECIDED), (False, None)])
async def test_read_state_waits_for_the_marker_of_the_sinks_own_record(commit: bool, state: StateRecord | None) -> None:
    """Apache Kafka responds to EndTxn before the markers are in the partitions."""
    script = _LateMarker(commit=commit, due=2)
    async with broker_over(script) as broker:
        assert await broker.read_state("sink", TopicPartition(TOPIC, 0), 0) == state
    assert script.ends_read == 2


async def test_read_state_of_a_record_that_stays_open_fails_after_its_time() -> None:
    loop = asyncio.get_running_loop()
    script = _LateMarker(commit=True, due=1_000)
    async with broker_over(script) as broker:
        began = loop.time()
        with pytest.raises(SinkUnavailable, match="the record of sink sink is in a transaction that has not ended"):
            await broker.read_state("sink", TopicPartition(TOPIC, 0), 0)
        assert loop.time() - began < 1.4
    assert script.ends_read > 2
