"""Frames come out whole, in order and equal, however the stream was cut."""

from struct import pack

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oncelog.clients.frames import MAX_FRAME_BYTES, BadFrame, FrameSplitter

frames = st.lists(st.binary(max_size=40), max_size=6)


@settings(max_examples=200)
@given(frames, st.lists(st.integers(1, 20), min_size=1))
def test_any_segmentation_gives_the_same_frames(sent: list[bytes], sizes: list[int]) -> None:
    stream = b"".join(pack(">i", len(frame)) + frame for frame in sent)
    splitter = FrameSplitter()
    received: list[bytes] = []
    position = turn = 0
    while position < len(stream):
        size = sizes[turn % len(sizes)]
        received += map(bytes, splitter.feed(stream[position : position + size]))
        position, turn = position + size, turn + 1
    assert received == sent


def test_frame_of_no_bytes_is_returned() -> None:
    assert [bytes(frame) for frame in FrameSplitter().feed(bytes(8))] == [b"", b""]


def test_frames_outlive_what_comes_after_them() -> None:
    splitter = FrameSplitter()
    splitter.feed(pack(">i", 3) + b"a")
    (first,) = splitter.feed(b"bc")
    splitter.feed(pack(">i", 100) + b"x" * 50)
    assert bytes(first) == b"abc"


@pytest.mark.parametrize("size", [-1, -(2**31), MAX_FRAME_BYTES + 1])
@pytest.mark.parametrize("first", [b"", b"1"])
def test_impossible_frame_size_raises_before_its_bytes_come(size: int, first: bytes) -> None:
    splitter = FrameSplitter()
    data = pack(">i", size)
    splitter.feed(data[: len(first)])
    with pytest.raises(BadFrame, match=str(size)):
        splitter.feed(data[len(first) :])
