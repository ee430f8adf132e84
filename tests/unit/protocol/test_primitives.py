"""Unsigned varints at their borders."""

import pytest
from construct import VarInt
from hypothesis import given
from hypothesis import strategies as st

from oncelog.protocol.primitives import DecodeError, encode_uvarint, read_uvarint, skip_tags


@given(st.one_of(st.integers(0, 300), st.integers(0, 2**32 - 1)))
def test_uvarints_are_those_of_construct(value: int) -> None:
    encoded = encode_uvarint(value)
    assert encoded == VarInt.build(value)
    assert read_uvarint(b"?" + encoded + b"?", 1) == (value, 1 + len(encoded))


@pytest.mark.parametrize("encoded", [b"\xff\xff\xff\xff\x10", b"\x80\x80\x80\x80\x80\x01", b"\xff" * 9])
def test_varint_beyond_32_bits_is_refused(encoded: bytes) -> None:
    with pytest.raises(DecodeError):
        read_uvarint(encoded, 0)


@pytest.mark.parametrize("encoded", [b"", b"\x80", b"\xff\xff\xff\xff"])
def test_varint_that_does_not_end_is_an_index_error(encoded: bytes) -> None:
    with pytest.raises(IndexError):
        read_uvarint(encoded, 0)


def test_tag_larger_than_what_was_received_is_refused() -> None:
    assert skip_tags(b"\x00\x02ab", 0, 1, 4) == 4
    with pytest.raises(DecodeError, match="tagged field 0 of 3 bytes where 2 are left"):
        skip_tags(b"\x00\x03ab", 0, 1, 4)
