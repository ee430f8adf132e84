"""What is committed in the state topic, also behind another sink's open transaction."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from oncelog.protocol.messages.fetch import AbortedTransaction, FetchRequest, PartitionData
from oncelog.protocol.records.control_records import build_end_txn_marker
from oncelog.protocol.records.record_batch import NewRecord, build_batch
from oncelog.protocol.schema import Message
from oncelog.protocol.topic_partition import TopicPartition
from oncelog.spark_connector.sink.commit.sink_errors import SinkUnavailable, UnreadableState, UnsuitableStateTopic
from oncelog.spark_connector.sink.commit.sink_transactions import TaskTransaction
from oncelog.spark_connector.sink.commit.state_record import StateRecord, decode_state
from oncelog.spark_connector.sink.state_topic import (
    Committed,
    StatePartition,
    StateTopicReader,
    apply_markers,
    read_committed,
    require_compaction,
)
from tests.stored_batch import stored
from tests.unit.clients.scripted_broker import ScriptedResponse
from tests.unit.spark_connector.scripted_partition import TOPIC, ScriptedPartition, connected_to, respond

KEY = b"mine"


def data(offset: int, producer_id: int, key: bytes, value: bytes) -> bytes:
    batch = stored(
        build_batch(
            [NewRecord(0, key, value)],
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=0,
            is_transactional=True,
        ),
        base_offset=offset,
    )
    return bytes(batch)


def marker(offset: int, producer_id: int, *, commit: bool) -> bytes:
    return bytes(
        stored(
            build_end_txn_marker(
                producer_id=producer_id, producer_epoch=0, commit=commit, coordinator_epoch=0, timestamp=0
            ),
            base_offset=offset,
        )
    )


def test_committed_fetch_advances_and_finds_the_newest_value() -> None:
    records = (
        data(5, 1, KEY, b"old")
        + marker(6, 1, commit=True)
        + data(7, 1, KEY, b"aborted")
        + marker(8, 1, commit=False)
        + data(9, 2, b"other", b"x")
        + marker(10, 2, commit=True)
    )
    fetched = PartitionData(records=records, aborted_transactions=[AbortedTransaction(producer_id=1, first_offset=7)])
    assert read_committed(fetched, Committed(5), KEY) == Committed(11, b"old")
    assert read_committed(PartitionData(records=None), Committed(3, b"kept"), KEY) == Committed(3, b"kept")


def test_records_after_anothers_open_transaction_count_by_their_markers() -> None:
    stuck = data(0, 9, b"other", b"open")
    mine = data(1, 1, KEY, b"first") + marker(2, 1, commit=True)
    aborted = data(3, 1, KEY, b"second") + marker(4, 1, commit=False)
    assert apply_markers([(0, stuck), (1, mine + aborted)], KEY, b"before") == b"first"
    assert apply_markers([(0, stuck)], KEY, b"before") == b"before"


def test_open_record_of_the_sink_itself_raises_record_open() -> None:
    with pytest.raises(SinkUnavailable, match="mine is in a transaction that has not ended"):
        apply_markers([(0, data(0, 1, KEY, b"open"))], KEY, None)


@given(st.lists(st.tuples(st.integers(1, 3), st.booleans(), st.booleans()), max_size=12))
def test_committed_and_uncommitted_reads_find_the_same_value(transactions: list[tuple[int, bool, bool]]) -> None:
    records, aborted, offset = b"", [], 0
    for number, (producer_id, is_mine, commit) in enumerate(transactions):
        records += data(offset, producer_id, KEY if is_mine else b"other", b"%d" % number)
        records += marker(offset + 1, producer_id, commit=commit)
        if not commit:
            aborted.append(AbortedTransaction(producer_id=producer_id, first_offset=offset))
        offset += 2
    fetched = PartitionData(records=records, aborted_transactions=aborted)
    assert read_committed(fetched, Committed(), KEY).value == apply_markers([(0, records)], KEY, None)


def test_state_record_survives_its_encoding() -> None:
    transactions = (TaskTransaction("sink.3.ab.0", 5, 6, 2), TaskTransaction("sink.3.ab.1", 7, 0, 1))
    record = StateRecord(
        sink="sink", generation=3, query="query", batch=41, decided_by=(1, 2), transactions=transactions
    )
    assert decode_state("sink", record.encode()) == record
    assert record.decides("query", 41)
    assert not record.decides("query", 40)
    assert not record.decides("query", 42)
    assert not record.decides("other", 41)
    assert record.is_beyond("query", 40)
    assert not record.is_beyond("query", 41)
    assert not record.is_beyond("other", 40)


@pytest.mark.parametrize("value", [b"", b"{}", b'{"v": 2}', b'{"v": 1, "generation": "x"}', b"[]"])
def test_record_of_another_format_is_refused(value: bytes) -> None:
    with pytest.raises(UnreadableState):
        decode_state("sink", value)


def test_ten_thousand_tasks_fit_into_a_message() -> None:
    """A record batch may have ``max.message.bytes`` (1 MiB by default), compressed."""
    transactions = [
        TaskTransaction(f"sink.12.{number * 7919:016x}.3", 10**6 + number, 0, 2) for number in range(10_000)
    ]
    value = StateRecord(sink="sink", transactions=tuple(transactions)).encode()
    from oncelog.protocol.records.compression import Compression, compress

    assert len(compress(Compression.GZIP, value)) < 500_000


class StatePartitionScript(ScriptedPartition):
    """One partition of the state topic, with records from ``begin`` on; ``fetched`` has where reading went on."""

    def __init__(self, records: dict[int, bytes]) -> None:
        super().__init__(max(records, default=-1) + 1)
        self.records = records
        self.begin = min(records, default=0)

    def _fetch(self, request: Message) -> ScriptedResponse:
        assert isinstance(request, FetchRequest)
        offset = request.topics[0].partitions[0].fetch_offset
        self.fetched.append(offset)
        if not self.begin <= offset <= self.end:
            return respond(PartitionData(error_code=ErrorCode.OFFSET_OUT_OF_RANGE))
        rest = b"".join(piece for at, piece in sorted(self.records.items()) if at >= offset)
        return respond(PartitionData(records=rest, high_watermark=self.end, last_stable_offset=self.end))


def decided(offset: int, value: bytes) -> dict[int, bytes]:
    return {offset: data(offset, 1, KEY, value), offset + 1: marker(offset + 1, 1, commit=True)}


@asynccontextmanager
async def reading(script: StatePartitionScript, begin: int | None = None) -> AsyncIterator[StateTopicReader]:
    async with connected_to(script) as cluster:
        yield StateTopicReader(StatePartition(cluster, TopicPartition(TOPIC, 0)), KEY, begin)


async def test_log_that_does_not_begin_at_0_is_read_from_its_start() -> None:
    async with reading(StatePartitionScript(decided(1000, b"first"))) as reader:
        assert await reader.newest() == b"first"


async def test_empty_log_that_does_not_begin_at_0_has_no_value() -> None:
    script = StatePartitionScript({})
    script.begin = script.end = 70
    async with reading(script) as reader:
        assert await reader.newest() is None
        script.records |= decided(70, b"later")
        script.end = 72
        assert await reader.newest() == b"later"


async def test_records_that_are_deleted_between_two_reads_are_forgotten() -> None:
    """A newer one may have been deleted with them."""
    script = StatePartitionScript(decided(0, b"known"))
    async with reading(script) as reader:
        assert await reader.newest() == b"known"
        script.records, script.begin, script.end = {}, 100, 100
        assert await reader.newest() is None
        script.records, script.end = decided(100, b"newer"), 102
        assert await reader.newest() == b"newer"


async def test_state_topic_that_was_created_again_is_read_again() -> None:
    script = StatePartitionScript(decided(50, b"known"))
    async with reading(script) as reader:
        assert await reader.newest() == b"known"
        script.records, script.begin, script.end = decided(0, b"newer"), 0, 2
        assert await reader.newest() == b"newer"


async def test_task_reads_only_records_after_its_prelude() -> None:
    """A new worker would read a day's records otherwise."""
    script = StatePartitionScript(decided(0, b"old") | decided(2, b"older") | decided(4, b"new"))
    async with reading(script, begin=4) as reader:
        assert await reader.newest() == b"new"
        assert set(script.fetched) == {4}
        reader.skip_to(6)
        script.records |= decided(6, b"newest")
        script.end = 8
        assert await reader.newest() == b"newest"
        assert set(script.fetched) == {4, 6}


@pytest.mark.parametrize("policy", ["delete", "compact,delete"])
async def test_state_topic_without_compaction_is_refused(policy: str) -> None:
    script = StatePartitionScript({})
    script.script[DescribeConfigsRequest] = policy_of(policy)
    async with connected_to(script) as cluster:
        with pytest.raises(UnsuitableStateTopic, match=f"cleanup.policy={policy}.*oncelog config alter topic orders"):
            await require_compaction(cluster, TOPIC)
        script.script[DescribeConfigsRequest] = policy_of("compact")
        await require_compaction(cluster, TOPIC)


def policy_of(policy: str) -> DescribeConfigsResponse:
    entry = DescribeConfigsResourceResult(name="cleanup.policy", value=policy)
    result = DescribeConfigsResult(resource_type=2, resource_name=TOPIC, configs=[entry])
    return DescribeConfigsResponse(results=[result])
