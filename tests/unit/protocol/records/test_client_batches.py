"""Batches go to and fro between us and two Python clients' own builders and parsers, in every codec that they have."""

from collections.abc import Sequence
from typing import Any

import aiokafka.record.default_records as aiokafka_records
import kafka.record.default_records as kafka_python_records
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.protocol.records.compression import Compression
from oncelog.protocol.records.control_records import build_end_txn_marker
from oncelog.protocol.records.record_batch import BatchHeader, NewRecord, build_batch, iter_records, read_header
from tests.stored_batch import stored
from tests.unit.protocol.records import walks

NOW = 1_700_000_000_000

header_lists = st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=20)), max_size=2)
nullable_bytes = st.none() | st.binary(max_size=100)
records = st.builds(NewRecord, st.integers(0, 2**43), nullable_bytes, nullable_bytes, header_lists)
batches = st.lists(records, min_size=1, max_size=70)
producers = st.just((-1, -1, -1)) | st.tuples(
    st.integers(0, 2**63 - 1), st.integers(0, 2**15 - 1), st.integers(0, 2**31 - 1)
)

CLIENTS = [
    pytest.param(aiokafka_records, codec, id=f"aiokafka-{codec.name.lower()}") for codec in Compression
] + [
    pytest.param(kafka_python_records, codec, id=f"kafka-python-{codec.name.lower()}")
    for codec in (Compression.NONE, Compression.GZIP, Compression.LZ4)  # Its other codecs want packages of their own.
]  # fmt: skip


def build_with(
    client: Any, contents: Sequence[NewRecord], codec: Compression, producer: tuple[int, int, int], transactional: bool
) -> bytes:
    builder = client.DefaultRecordBatchBuilder(
        magic=2,
        compression_type=int(codec),
        is_transactional=transactional,
        producer_id=producer[0],
        producer_epoch=producer[1],
        base_sequence=producer[2],
        batch_size=2**20,
    )
    for offset, record in enumerate(contents):
        assert builder.append(offset, record.timestamp, record.key, record.value, list(record.headers)) is not None
    return bytes(builder.build())


@pytest.mark.parametrize(("client", "codec"), CLIENTS)
@given(contents=batches, producer=producers)
def test_batch_of_a_client_is_valid_and_readable(
    client: Any, codec: Compression, contents: list[NewRecord], producer: tuple[int, int, int]
) -> None:
    transactional = producer[0] >= 0
    batch = bytearray(build_with(client, contents, codec, producer, transactional))
    header = walks.validate(batch)
    assert isinstance(header, BatchHeader)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == producer
    assert header.is_transactional == transactional
    read = list(iter_records(batch, 0, header, max_decompressed_bytes=2**20))
    assert [NewRecord(timestamp, key, value, headers) for _, timestamp, key, value, headers in read] == contents
    assert [record.offset for record in read] == list(range(len(contents)))


@pytest.mark.parametrize(("client", "codec"), CLIENTS)
@given(contents=batches, producer=producers, base_offset=st.integers(0, 2**62))
def test_batch_of_ours_is_readable_by_a_client(
    client: Any, codec: Compression, contents: list[NewRecord], producer: tuple[int, int, int], base_offset: int
) -> None:
    ours = stored(
        build_batch(
            contents,
            compression=codec,
            producer_id=producer[0],
            producer_epoch=producer[1],
            base_sequence=producer[2],
            is_transactional=producer[0] >= 0,
        ),
        base_offset=base_offset,
    )
    theirs = client.DefaultRecordBatch(bytes(ours))
    assert theirs.validate_crc()
    assert (theirs.producer_id, theirs.producer_epoch, theirs.base_sequence) == producer
    assert theirs.is_transactional == (producer[0] >= 0)
    assert not theirs.is_control_batch
    assert theirs.max_timestamp == max(record.timestamp for record in contents)
    read = list(theirs)
    assert [NewRecord(r.timestamp, r.key, r.value, list(r.headers)) for r in read] == contents
    assert [record.offset for record in read] == list(range(base_offset, base_offset + len(contents)))


@pytest.mark.parametrize("client", [aiokafka_records, kafka_python_records])
@given(contents=batches, producer=producers)
def test_uncompressed_batches_are_the_same_bytes(
    client: Any, contents: list[NewRecord], producer: tuple[int, int, int]
) -> None:
    theirs = build_with(client, contents, Compression.NONE, producer, False)
    their_header = read_header(theirs)
    ours = stored(
        build_batch(contents, producer_id=producer[0], producer_epoch=producer[1], base_sequence=producer[2]),
        partition_leader_epoch=their_header.partition_leader_epoch,
    )
    assert ours == theirs


@pytest.mark.parametrize("client", [aiokafka_records, kafka_python_records])
def test_clients_see_our_markers(client: Any) -> None:
    """B75: as every client tells markers from records, and commits from aborts, by these bytes."""
    for commit in (True, False):
        marker = stored(
            build_end_txn_marker(producer_id=7, producer_epoch=3, commit=commit, coordinator_epoch=5, timestamp=NOW),
            base_offset=12,
        )
        theirs = client.DefaultRecordBatch(bytes(marker))
        assert theirs.validate_crc()
        assert theirs.is_control_batch
        assert theirs.is_transactional
        (record,) = list(theirs)
        assert record.offset == 12
        assert record.key == (b"\0\0\0\1" if commit else b"\0\0\0\0")
