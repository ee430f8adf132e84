import gzip
import struct
import tracemalloc
import zlib

import cramjam
import lz4.frame
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oncelog.protocol.records.compression import Compression, CorruptRecord, DecompressionBomb, compress, decompress

MEBIBYTE = 2**20
CODECS = [Compression.GZIP, Compression.SNAPPY, Compression.LZ4, Compression.ZSTD]

data_of_any_shape = st.binary(max_size=2000) | st.builds(
    lambda unit, times: unit * times, st.binary(min_size=1, max_size=9), st.integers(0, 20_000)
)


@given(data_of_any_shape, st.sampled_from(Compression))
def test_round_trip_within_the_exact_bound(data: bytes, codec: Compression) -> None:
    assert decompress(codec, compress(codec, data), max_bytes=len(data)) == data


@pytest.mark.parametrize("codec", Compression)
@pytest.mark.parametrize("buffer", [bytes, bytearray, memoryview])
def test_any_buffer_is_read(codec: Compression, buffer: type) -> None:
    data = bytes(range(256)) * 10_000
    assert decompress(codec, buffer(compress(codec, data)), max_bytes=len(data)) == data


@given(data_of_any_shape.filter(bool), st.sampled_from(Compression))
def test_output_one_byte_above_the_bound_is_a_bomb(data: bytes, codec: Compression) -> None:
    with pytest.raises(DecompressionBomb):
        decompress(codec, compress(codec, data), max_bytes=len(data) - 1)


@pytest.mark.parametrize("codec", CODECS)
def test_bomb_allocates_no_more_than_the_bound_and_a_block(codec: Compression) -> None:
    bomb = bytes(compress(codec, bytes(64 * MEBIBYTE)))
    tracemalloc.start()
    try:
        with pytest.raises(DecompressionBomb):
            decompress(codec, bomb, max_bytes=4 * MEBIBYTE)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < (4 + 2) * MEBIBYTE + len(bomb)


def test_raw_snappy_bomb_is_refused_by_its_preamble() -> None:
    declares_two_gigabytes = b"\xff\xff\xff\xff\x07" + b"\xfe\x01\x00" * 100
    with pytest.raises(DecompressionBomb):
        decompress(Compression.SNAPPY, declares_two_gigabytes, max_bytes=MEBIBYTE)


@pytest.mark.parametrize("codec", CODECS)
def test_cut_off_anywhere_is_corrupt(codec: Compression) -> None:
    compressed = compress(codec, bytes(range(200)))
    for size in range(len(compressed)):
        if codec is Compression.SNAPPY and size == 16:
            continue  # The framing without blocks: nothing, in good form.
        with pytest.raises(CorruptRecord):
            decompress(codec, compressed[:size], max_bytes=MEBIBYTE)


@pytest.mark.parametrize("codec", CODECS)
def test_trailing_bytes_are_corrupt(codec: Compression) -> None:
    with pytest.raises(CorruptRecord):
        decompress(codec, compress(codec, b"data" * 10) + b"\0", max_bytes=MEBIBYTE)


@settings(max_examples=400)
@given(st.sampled_from(CODECS), data_of_any_shape, st.data())
def test_mutations_decompress_or_are_corrupt(codec: Compression, data: bytes, mutations: st.DataObject) -> None:
    mutated = bytearray(compress(codec, data))
    for _ in range(mutations.draw(st.integers(1, 4))):
        mutated[mutations.draw(st.integers(0, len(mutated) - 1))] = mutations.draw(st.integers(0, 255))
    try:
        assert len(decompress(codec, mutated, max_bytes=MEBIBYTE)) <= MEBIBYTE
    except CorruptRecord:
        pass


@settings(max_examples=200)
@given(st.sampled_from(CODECS), st.binary(max_size=100))
def test_noise_is_corrupt_or_small(codec: Compression, noise: bytes) -> None:
    try:
        assert len(decompress(codec, noise, max_bytes=1000)) <= 1000
    except CorruptRecord:
        pass


def test_snappy_is_written_in_blocks_of_32_kib_as_snappy_java_does() -> None:
    data = bytes(range(256)) * 300
    compressed = compress(Compression.SNAPPY, data)
    assert compressed[:16] == b"\x82SNAPPY\x00" + b"\0\0\0\1" + b"\0\0\0\1"
    sizes, position = [], 16
    while position < len(compressed):
        (length,) = struct.unpack_from(">i", compressed, position)
        block = compressed[position + 4 : position + 4 + length]
        sizes.append(len(cramjam.snappy.decompress_raw(block)))
        position += 4 + length
    assert sizes == [32 * 1024, 32 * 1024, len(data) - 64 * 1024]


def test_raw_snappy_is_read_as_librdkafka_writes_it() -> None:
    data = b"raw " * 1000
    assert decompress(Compression.SNAPPY, bytes(cramjam.snappy.compress_raw(data)), max_bytes=4000) == data


@pytest.mark.parametrize("length", [-1, 1 << 30])
def test_snappy_block_of_impossible_length_is_corrupt(length: int) -> None:
    framed = compress(Compression.SNAPPY, b"")[:16] + struct.pack(">i", length) + b"\x01\x00a"
    with pytest.raises(CorruptRecord):
        decompress(Compression.SNAPPY, framed, max_bytes=MEBIBYTE)


def test_lz4_blocks_are_independent_because_java_reads_no_others() -> None:
    info = lz4.frame.get_frame_info(bytes(compress(Compression.LZ4, bytes(200_000))))
    assert not info["block_linked"]
    assert info["block_size"] == 64 * 1024
    assert not info["content_checksum"]
    assert not info["block_checksum"]
    assert info["content_size"] == 0


def test_linked_lz4_blocks_with_checksums_are_read() -> None:
    data = bytes(range(256)) * 1000
    compressed = lz4.frame.compress(data, block_linked=True, content_checksum=True, block_checksum=True)
    assert decompress(Compression.LZ4, compressed, max_bytes=len(data)) == data


def test_gzip_of_the_standard_library_is_read_and_written() -> None:
    data = b"gzip" * 5000
    assert gzip.decompress(compress(Compression.GZIP, data)) == data
    assert decompress(Compression.GZIP, gzip.compress(data), max_bytes=len(data)) == data


def test_zlib_stream_is_not_gzip() -> None:
    with pytest.raises(CorruptRecord):
        decompress(Compression.GZIP, zlib.compress(b"data"), max_bytes=MEBIBYTE)
