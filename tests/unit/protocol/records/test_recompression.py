import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.protocol.records.compression import Compression, DecompressionBomb, iter_decompressed
from oncelog.protocol.records.recompression import BatchTooLarge, Recompression
from oncelog.protocol.records.record_batch import (
    CorruptRecord,
    NewRecord,
    build_batch,
    crc_is_valid,
    iter_records,
    read_header,
)
from oncelog.protocol.records.record_walk import WorkBudget
from tests.stored_batch import stored

NOW = 1_700_000_000_000
RECORDS = [NewRecord(NOW + index, b"key", b"value %d" % index, [("h", None)]) for index in range(10)]


def recompress(batch: bytearray, target: Compression, *, max_bytes: int = 2**21) -> bytearray:
    header = read_header(batch)
    recompression = Recompression(target, max_bytes=max_bytes, budget=WorkBudget(0))
    blocks = iter_decompressed(header.compression, memoryview(batch)[61:], max_bytes=2**20)
    for _ in recompression.pass_on(blocks):
        pass
    return recompression.batch(header)


@given(st.sampled_from(Compression), st.sampled_from(Compression), st.sampled_from([1, 100_000]))
def test_recompression_keeps_all_but_the_codec(source: Compression, target: Compression, size: int) -> None:
    producer = {"producer_id": 5, "producer_epoch": 1, "base_sequence": 3}
    records = [*RECORDS, NewRecord(NOW, b"large", bytes(size))]

    def batch_of(codec: Compression) -> bytearray:
        batch = build_batch(records, compression=codec, is_transactional=True, **producer)
        return stored(batch, base_offset=7, partition_leader_epoch=2)

    batch = batch_of(source)
    recompressed = recompress(batch, target)
    header = read_header(recompressed)
    expected = read_header(batch_of(target))
    assert header == expected._replace(crc=header.crc, batch_length=header.batch_length)
    assert crc_is_valid(recompressed, 0, header)
    read = [list(iter_records(b, 0, read_header(b), max_decompressed_bytes=2**20)) for b in (batch, recompressed)]
    assert read[0] == read[1]


def test_recompression_is_bounded() -> None:
    batch = build_batch([NewRecord(NOW, None, bytes(2**20))], compression=Compression.ZSTD)
    with pytest.raises(DecompressionBomb):
        recompress(batch, Compression.NONE)


def test_recompression_to_more_than_a_batch_may_have_stops_there() -> None:
    batch = build_batch([NewRecord(NOW, None, bytes(2**19))], compression=Compression.ZSTD)
    with pytest.raises(BatchTooLarge):
        recompress(batch, Compression.NONE, max_bytes=2**19)


def test_recompression_of_what_does_not_decompress() -> None:
    batch = build_batch(RECORDS, compression=Compression.GZIP)
    batch[61] ^= 0xFF
    with pytest.raises(CorruptRecord):
        recompress(batch, Compression.NONE)
