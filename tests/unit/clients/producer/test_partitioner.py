"""Keys go where every other Kafka client puts them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.partitioner.default import murmur2 as kafka_python_murmur2  # type: ignore[import-untyped]

from oncelog.clients.producer.partitioner import murmur2, partition_for_key


@pytest.mark.parametrize(
    ("key", "signed"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_hashes_equal_those_of_the_java_client(key: bytes, signed: int) -> None:
    assert murmur2(key) == signed & 0xFFFFFFFF


@given(st.binary(max_size=40))
def test_hashes_equal_those_of_kafka_python(key: bytes) -> None:
    assert murmur2(key) == kafka_python_murmur2(key) & 0xFFFFFFFF


def test_negative_hash_loses_its_sign_bit() -> None:
    assert partition_for_key(b"21", 10) == (-973932308 & 0x7FFFFFFF) % 10
