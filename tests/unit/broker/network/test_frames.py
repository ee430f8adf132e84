"""However a stream of frames is segmented, the same frames come out, and nothing is allocated on a promise."""

import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oncelog.broker.network.frames import SCRATCH_SIZE, FrameReader, new_scratch
from oncelog.protocol.api_keys import ApiKey


def feed(reader: FrameReader, data: bytes, segment: int) -> list[memoryview]:
    """Give ``data`` to the reader as a transport would, at most ``segment`` bytes at a time."""
    frames: list[memoryview] = []
    position = 0
    while position < len(data):
        buffer = reader.get_buffer()
        part = data[position : position + min(segment, len(buffer))]
        buffer[: len(part)] = part
        frames += reader.buffer_updated(len(part))
        position += len(part)
    return frames


def stream(*payloads: bytes) -> bytes:
    return b"".join(len(payload).to_bytes(4, "big") + payload for payload in payloads)


@settings(max_examples=60)
@given(st.lists(st.integers(0, 3 * SCRATCH_SIZE), max_size=8), st.integers(1, 2 * SCRATCH_SIZE), st.integers(0, 255))
def test_frames_of_any_segmentation_are_the_same(sizes: list[int], segment: int, fill: int) -> None:
    payloads = [bytes([(fill + i) % 256]) * size for i, size in enumerate(sizes)]
    segment = max(segment, sum(sizes) // 500)
    frames = feed(FrameReader(10 * SCRATCH_SIZE, new_scratch()), stream(*payloads), segment)
    assert [bytes(frame) for frame in frames] == payloads


def test_frame_does_not_share_the_scratch_buffer() -> None:
    """B76: two connections share a scratch buffer; what one received stays as it was."""
    scratch = new_scratch()
    one, other = FrameReader(1000, scratch), FrameReader(1000, scratch)
    kept = feed(one, stream(b"a" * 100, b"b" * 100), 1000)
    feed(one, stream(b"c" * 100)[:50], 1000)
    feed(other, stream(b"z" * 900), 1000)
    assert [bytes(frame) for frame in kept] == [b"a" * 100, b"b" * 100]
    assert [bytes(frame) for frame in feed(one, stream(b"c" * 100)[50:], 1000)] == [b"c" * 100]


def test_frames_are_writable_for_offsets_patched_in_place() -> None:
    small, large = feed(FrameReader(10 << 20, new_scratch()), stream(b"small", bytes(3 << 20)), 1 << 20)
    small[:1] = b"S"
    large[-1:] = b"L"
    assert bytes(small) == b"Small"


@pytest.mark.parametrize("size", [-1, 1001, -(2**31), 2**31 - 1])
def test_frame_size_out_of_bounds_is_refused(size: int) -> None:
    reader = FrameReader(1000, new_scratch())
    assert [bytes(frame) for frame in feed(reader, b"\0\0\0\1a" + size.to_bytes(4, "big", signed=True), 10)] == [b"a"]
    assert reader.refusal == f"a frame of {size} bytes: at most 1000 are accepted"
    assert feed(reader, b"\0\0\0\1b", 10) == []


def test_frame_memory_is_allocated_as_bytes_arrive() -> None:
    """B77: 100 MiB that are only announced cost no more than what has come."""
    reader = FrameReader(1 << 30, new_scratch())
    tracemalloc.start()
    try:
        feed(reader, (100 << 20).to_bytes(4, "big") + bytes(100), 1 << 20)
        feed(reader, bytes(3 << 20), 1 << 18)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 16 << 20


def test_frame_buffer_grows_with_received_bytes() -> None:
    """Connections that send five bytes each of a large frame cost a few KiB each."""
    scratch = new_scratch()
    tracemalloc.start()
    try:
        readers = [FrameReader(1 << 30, scratch) for _ in range(20)]
        for reader in readers:
            feed(reader, (50 << 20).to_bytes(4, "big") + bytes(5), 1 << 20)
            reader.get_buffer()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 20 * 8 * 1024


@pytest.mark.parametrize("segment", [1, 5, 6, 1000])
@pytest.mark.parametrize(
    ("api_key", "size", "name"),
    [
        (ApiKey.API_VERSIONS, (512 << 10) + 1, "API_VERSIONS"),
        (ApiKey.METADATA, (16 << 20) + 1, "METADATA"),
        (999, (16 << 20) + 1, "API key 999"),
    ],
)
def test_frame_too_large_for_its_api_is_refused_by_its_first_six_bytes(
    segment: int, api_key: int, size: int, name: str
) -> None:
    reader = FrameReader(100 << 20, new_scratch())
    feed(reader, (size - 1).to_bytes(4, "big") + api_key.to_bytes(2, "big"), segment)
    assert reader.refusal == ""
    reader = FrameReader(100 << 20, new_scratch())
    feed(reader, size.to_bytes(4, "big") + api_key.to_bytes(2, "big"), segment)
    assert reader.refusal == f"a request of {size} bytes for {name}: at most {size - 1} are accepted"


def test_produce_frame_may_have_socket_request_max_bytes() -> None:
    reader = FrameReader(100 << 20, new_scratch())
    feed(reader, (100 << 20).to_bytes(4, "big") + ApiKey.PRODUCE.to_bytes(2, "big"), 100)
    assert reader.refusal == ""


def test_connection_with_large_frames_gets_full_buffer_for_the_next() -> None:
    reader = FrameReader(100 << 20, new_scratch())
    sizes = []
    for _ in range(2):
        feed(reader, (900 << 10).to_bytes(4, "big") + bytes(100), 1 << 20)
        sizes.append(len(reader.get_buffer()))
        feed(reader, bytes((900 << 10) - 100), 1 << 20)
    assert sizes == [4096 - 100, (900 << 10) - 100]
