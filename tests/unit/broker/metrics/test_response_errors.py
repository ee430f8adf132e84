"""Every error code of a response is counted, wherever its declaration has it."""

from collections import Counter
from typing import Any

import pytest

from oncelog.broker.metrics.response_errors import ResponseErrors
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.end_txn import EndTxnResponse
from oncelog.protocol.messages.fetch import EpochEndOffset, FetchableTopicResponse, FetchResponse, PartitionData
from oncelog.protocol.messages.produce import PartitionProduceResponse, ProduceResponse, TopicProduceResponse
from oncelog.protocol.messages.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersResponse,
)
from oncelog.protocol.schema import Message
from tests.unit.protocol.declared import every_version, full


def test_errors_of_partitions_are_counted_one_by_one() -> None:
    errors = ResponseErrors()
    codes = [
        ErrorCode.NONE,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_RECORD,
    ]
    partitions = [PartitionProduceResponse(index=index, error_code=code) for index, code in enumerate(codes)]
    for topics in ([partitions], [partitions[:2], partitions[3:]], []):
        named = [TopicProduceResponse(name="t", partition_responses=responses) for responses in topics]
        errors.note("Produce", ProduceResponse(responses=named))
    assert errors.counts == {
        ("Produce", ErrorCode.INVALID_PRODUCER_EPOCH): 3,
        ("Produce", ErrorCode.INVALID_RECORD): 2,
    }


def test_zombie_fences_count_both_errors() -> None:
    errors = ResponseErrors()
    for code in (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_TXN_STATE):
        errors.note("EndTxn", EndTxnResponse(error_code=code))
    assert errors.zombie_fences == 2


def test_stale_marker_counts_no_zombie_fence() -> None:
    """It tells a coordinator that its marker came twice, and no producer anything."""
    errors = ResponseErrors()
    partition = WritableTxnMarkerPartitionResult(partition_index=0, error_code=ErrorCode.INVALID_PRODUCER_EPOCH)
    topic = WritableTxnMarkerTopicResult(name="t", partitions=[partition])
    marker = WritableTxnMarkerResult(producer_id=1, topics=[topic])
    errors.note("WriteTxnMarkers", WriteTxnMarkersResponse(markers=[marker]))
    assert errors.counts == {("WriteTxnMarkers", ErrorCode.INVALID_PRODUCER_EPOCH): 1}
    assert errors.zombie_fences == 0


def test_absent_struct_has_no_errors() -> None:
    errors = ResponseErrors()
    partition = PartitionData(partition_index=0, diverging_epoch=None, aborted_transactions=None, records=None)
    errors.note("Fetch", FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=[partition])]))
    partition.diverging_epoch = EpochEndOffset()
    errors.note("Fetch", FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=[partition])]))
    assert not errors.counts


def found(value: Any) -> Counter[int]:
    """Every error code in a value, found by looking everywhere."""
    codes: Counter[int] = Counter()
    for part in value if isinstance(value, list) else [value] if isinstance(value, Message) else []:
        if isinstance(part, Message):
            for field in type(part).fields:
                held = getattr(part, field.name)
                if field.name.endswith("error_code") and held:
                    codes[held] += 1
                codes += found(held)
    return codes


@pytest.mark.parametrize(
    ("cls", "version"),
    [(cls, version) for cls, version in every_version() if cls.__name__.endswith("Response")],
    ids=lambda value: value.__name__ if isinstance(value, type) else str(value),
)
def test_errors_of_every_response_are_counted(cls: type[Message], version: int) -> None:
    errors = ResponseErrors()
    response = full(cls, version)
    errors.note("Any", response)
    assert errors.counts == {("Any", code): count for code, count in found(response).items()}
