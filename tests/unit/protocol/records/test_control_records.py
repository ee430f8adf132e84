import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.protocol.records.compression import Compression
from oncelog.protocol.records.control_records import (
    ControlRecordType,
    EndTxnMarker,
    build_end_txn_marker,
    parse_control_record_type,
    parse_end_txn_marker,
)
from oncelog.protocol.records.record_batch import CorruptRecord, NewRecord, build_batch, crc_is_valid, read_header
from oncelog.protocol.records.rewriting import empty_batch
from tests.stored_batch import stored

NOW = 1_500_000_000_000


@given(
    producer_id=st.integers(0, 2**63 - 1),
    producer_epoch=st.integers(0, 2**15 - 1),
    commit=st.booleans(),
    coordinator_epoch=st.integers(-(2**31), 2**31 - 1),
    timestamp=st.integers(0, 2**50),
    base_offset=st.integers(0, 2**62),
    partition_leader_epoch=st.integers(-1, 2**31 - 1),
)
def test_markers_round_trip(
    producer_id: int,
    producer_epoch: int,
    commit: bool,
    coordinator_epoch: int,
    timestamp: int,
    base_offset: int,
    partition_leader_epoch: int,
) -> None:
    marker = b"before" + stored(
        build_end_txn_marker(
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            commit=commit,
            coordinator_epoch=coordinator_epoch,
            timestamp=timestamp,
        ),
        base_offset=base_offset,
        partition_leader_epoch=partition_leader_epoch,
    )
    header = read_header(marker, 6)
    assert crc_is_valid(marker, 6, header)
    assert header.is_control
    assert header.is_transactional
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (producer_id, producer_epoch, -1)
    assert (header.base_offset, header.last_offset, header.records_count) == (base_offset, base_offset, 1)
    assert header.partition_leader_epoch == partition_leader_epoch
    assert header.max_timestamp == timestamp
    expected = EndTxnMarker(commit=commit, coordinator_epoch=coordinator_epoch)
    assert parse_end_txn_marker(marker, 6, header) == expected


def test_marker_layout_is_that_of_kafka() -> None:
    marker = stored(
        build_end_txn_marker(producer_id=4000, producer_epoch=2, commit=True, coordinator_epoch=6, timestamp=NOW),
        base_offset=9,
        partition_leader_epoch=3,
    )
    fields = (
        "0000000000000009 00000042 00000003 02 277d59a4 0030 00000000 0000015d3ef79800 0000015d3ef79800"
        "0000000000000fa0 0002 ffffffff 00000001"
        "20 00 00 00 08 0000 0001 0c 0000 00000006 00"
    )
    assert marker == bytes.fromhex(fields)


def control_batch(key: bytes | None, value: bytes | None, codec: Compression = Compression.NONE) -> bytearray:
    record = NewRecord(NOW, key, value)
    return build_batch(
        [record], producer_id=1, producer_epoch=0, is_transactional=True, is_control=True, compression=codec
    )


COMMIT_KEY = b"\0\0\0\1"
EPOCH_SIX = b"\0\0\0\0\0\6"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, EPOCH_SIX),
        (b"", EPOCH_SIX),
        (b"\0\0\0", EPOCH_SIX),
        (b"\0\0\0\2", EPOCH_SIX),
        (b"\xff\xff\0\1", EPOCH_SIX),
        (COMMIT_KEY, None),
        (COMMIT_KEY, EPOCH_SIX[:-1]),
        (COMMIT_KEY, b"\xff\xff" + EPOCH_SIX[2:]),
    ],
)
def test_control_record_that_is_no_marker_is_corrupt(key: bytes | None, value: bytes | None) -> None:
    batch = control_batch(key, value)
    with pytest.raises(CorruptRecord):
        parse_end_txn_marker(batch, 0, read_header(batch))


@pytest.mark.parametrize("codec", Compression)
def test_later_versions_and_any_codec_are_read(codec: Compression) -> None:
    batch = control_batch(b"\0\1\0\1more", b"\0\1" + EPOCH_SIX[2:] + b"more", codec)
    assert parse_end_txn_marker(batch, 0, read_header(batch)) == EndTxnMarker(commit=True, coordinator_epoch=6)


def test_marker_that_compaction_removed_is_none() -> None:
    emptied = empty_batch(read_header(control_batch(COMMIT_KEY, EPOCH_SIX)))
    header = read_header(emptied)
    assert header.is_control
    assert parse_end_txn_marker(emptied, 0, header) is None


def test_control_record_types_are_those_that_kafka_shipped() -> None:
    assert parse_control_record_type(b"\0\0\0\0") is ControlRecordType.ABORT
    assert parse_control_record_type(b"\0\0\0\1") is ControlRecordType.COMMIT
