"""Where an id lives. The expected hashes are computed by Java's String.hashCode."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.protocol.internal.placement import java_hash, partition_for


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", 0),
        ("a", 97),
        ("hello", 99162322),
        ("transactional-id", 510590431),
        ("group-中文", 506956552),
        ("polygenelubricants", -(2**31)),
        ("é", 233),
        ("𝄞", 1772394),
        ("Aa", 2112),
        ("BB", 2112),
    ],
)
def test_java_hash_of_text_equals_java(text: str, expected: int) -> None:
    assert java_hash(text) == expected


@given(st.text(st.characters(), min_size=250, max_size=300))
def test_java_hash_of_long_text_equals_sum_over_units(text: str) -> None:
    expected = 0
    for unit in memoryview(text.encode("utf-16-le", "surrogatepass")).cast("H"):
        expected = (31 * expected + unit) & 0xFFFF_FFFF
    assert java_hash(text) & 0xFFFF_FFFF == expected


def test_partition_for_hash_without_absolute_value_is_0() -> None:
    assert partition_for("polygenelubricants", 50) == 0
    assert partition_for("hello", 50) == 22
