"""Sets of old messages, built and read without our code where kafka-python has some of its own."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from hypothesis import strategies as st
from kafka.record.legacy_records import LegacyRecordBatch, LegacyRecordBatchBuilder
from kafka.record.memory_records import MemoryRecords

from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.records.compression import Compression, compress
from oncelog.protocol.records.old_messages import encode_message, with_checksum_of_version_0
from oncelog.protocol.records.record_batch import BatchHeader, Record, iter_records
from oncelog.protocol.records.record_walk import RecordRules, WorkBudget
from oncelog.protocol.records.up_conversion import convert_message_set
from oncelog.protocol.records.validation import BatchRules, RejectedRecords

NOW = 1_700_000_000_000
OLD_CODECS = (Compression.NONE, Compression.GZIP, Compression.SNAPPY, Compression.LZ4)
KAFKA_PYTHONS_CODECS = (Compression.NONE, Compression.GZIP, Compression.LZ4)
"""What kafka-python can do without further packages: lz4 in version 1 only."""


class OldRecord(NamedTuple):
    timestamp: int
    key: bytes | None
    value: bytes | None


FIELDS = st.one_of(st.none(), st.binary(max_size=200), st.just(bytes(20_000)))
OLD_RECORDS = st.lists(
    st.builds(OldRecord, st.integers(min_value=NOW, max_value=NOW + 10**6), FIELDS, FIELDS), min_size=1, max_size=20
)


def rules(
    *,
    compression: Compression | None = None,
    append_time: int | None = None,
    max_message_bytes: int = 1 << 22,
    max_decompressed_bytes: int = 1 << 24,
    records: RecordRules = RecordRules(),  # noqa: B008
) -> BatchRules:
    return BatchRules(records, max_message_bytes, max_decompressed_bytes, compression, append_time)


def run(steps, budget: WorkBudget, units: int):  # type: ignore[no-untyped-def]
    """The result of a generator of sliced work, and the number of its pauses."""
    pauses = 0
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            return stop.value, pauses
        assert budget.left <= 0, "it pauses only when the budget is used up"
        pauses += 1
        budget.left = units


def convert_up(
    entries: bytes, wanted: BatchRules | None = None, units: int = 50
) -> tuple[memoryview, BatchHeader] | ErrorCode | RejectedRecords:
    budget = WorkBudget(units)
    result, _ = run(convert_message_set(memoryview(entries), wanted or rules(), budget), budget, units)
    return result  # type: ignore[no-any-return]


def records_of(converted: object) -> list[Record]:
    assert isinstance(converted, tuple), converted
    batch, header = converted
    return list(iter_records(batch, 0, header, max_decompressed_bytes=1 << 24))


def plain(magic: int, records: Sequence[OldRecord], first_offset: int = 0) -> bytes:
    return b"".join(
        encode_message(magic, first_offset + index, 0, timestamp, key, value)
        for index, (timestamp, key, value) in enumerate(records)
    )


def wrapped(
    magic: int,
    codec: Compression,
    entries: bytes,
    *,
    offset: int = 0,
    timestamp: int = NOW,
    attributes: int = 0,
) -> bytes:
    value = bytes(compress(codec, entries))
    if codec is Compression.LZ4 and magic == 0:
        value = with_checksum_of_version_0(value)
    return encode_message(magic, offset, codec | attributes, timestamp, None, value)


def built_by_kafka_python(magic: int, codec: Compression, records: Sequence[OldRecord]) -> bytes:
    builder = LegacyRecordBatchBuilder(magic=magic, compression_type=int(codec), batch_size=1 << 24)
    for index, (timestamp, key, value) in enumerate(records):
        builder.append(index, timestamp if magic else None, key, value)
    return bytes(builder.build())


def read_by_kafka_python(entries: bytes) -> Iterator[tuple[int, int | None, bytes | None, bytes | None]]:
    """Offset, timestamp, key and value of all messages."""
    sets = MemoryRecords(entries)
    while (batch := sets.next_batch()) is not None:
        assert isinstance(batch, LegacyRecordBatch)
        assert batch.validate_crc()
        for record in batch:
            yield record.offset, record.timestamp, record.key, record.value
