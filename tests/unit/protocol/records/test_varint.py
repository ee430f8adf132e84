import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.record.util import encode_varint as encode_varint_of_kafka_python

from oncelog.protocol.records.varint import decode_varint, encode_varint

INT64 = st.integers(-(2**63), 2**63 - 1)


@given(INT64)
def test_varint_round_trip_returns_the_value(value: int) -> None:
    encoded = encode_varint(value)
    assert decode_varint(b"\xff" + encoded + b"\xff", 1) == (value, 1 + len(encoded))


@given(INT64)
def test_same_bytes_as_kafka_python(value: int) -> None:
    theirs = bytearray()
    encode_varint_of_kafka_python(value, theirs.append)
    assert encode_varint(value) == theirs


@pytest.mark.parametrize(
    ("value", "encoded"),
    [(0, "00"), (-1, "01"), (1, "02"), (63, "7e"), (-64, "7f"), (64, "8001"), (-65, "8101"), (8191, "fe7f")]
    + [(8192, "808001"), (2**63 - 1, "feffffffffffffffff01"), (-(2**63), "ffffffffffffffffff01")],
)
def test_varint_has_known_encodings(value: int, encoded: str) -> None:
    assert encode_varint(value).hex() == encoded
    assert decode_varint(bytes.fromhex(encoded), 0) == (value, len(encoded) // 2)


@given(INT64)
def test_cut_off_varint_is_an_index_error(value: int) -> None:
    with pytest.raises(IndexError):
        decode_varint(encode_varint(value)[:-1], 0)


@pytest.mark.parametrize("encoded", [b"\xff" * 10 + b"\x01", b"\xff" * 9 + b"\x02", b"\x80" * 20])
def test_more_than_64_bits_are_refused(encoded: bytes) -> None:
    with pytest.raises(ValueError, match="64 bits"):
        decode_varint(encoded, 0)
