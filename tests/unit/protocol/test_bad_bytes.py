"""Whatever bytes arrive, a decoder returns a message or raises ``DecodeError``, and allocates in proportion to them."""

import random
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oncelog.protocol.compiler import decode, decoder, encode
from oncelog.protocol.framing import parse_request_header
from oncelog.protocol.primitives import DecodeError
from oncelog.protocol.schema import Message
from tests.unit.protocol.declared import every_version, full, title

CASES = list(every_version())
EXTREME_VERSIONS = [case for case in CASES if case[1] in (case[0].versions.first, case[0].versions.last)]
MUTATIONS = 60
ALLOCATED_PER_BYTE = 40
ALLOCATED_ALWAYS = 4000
COUNT = 60
TAILS = (
    b"\x7f\xff\xff\xff",
    b"\xff\xff\xff\xff\x07",
    b"\x80\x80\x80\x80\x10",
    b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
    COUNT.to_bytes(4) + bytes(COUNT * 40),
    COUNT.to_bytes(1) + b"\x01" * (COUNT * 40),
    COUNT.to_bytes(1) + b"\x00\x01" * (COUNT * 20),
)


def decodes(cls: type[Message], version: int, data: bytes) -> bool:
    """Whether the bytes are a message; if so, it can be encoded again."""
    try:
        message, _ = decoder(cls, version)(data, 0)
    except DecodeError:
        return False
    encode(message, version)
    return True


@pytest.mark.parametrize(("cls", "version"), CASES, ids=title)
def test_truncated_message_does_not_decode(cls: type[Message], version: int) -> None:
    encoded = encode(full(cls, version), version)
    assert [size for size in range(len(encoded)) if decodes(cls, version, encoded[:size])] == []


@pytest.mark.parametrize(("cls", "version"), CASES, ids=title)
def test_mutated_message_decodes_or_is_refused(cls: type[Message], version: int) -> None:
    encoded = encode(full(cls, version), version)
    randomness = random.Random(f"{cls.__name__} {version}")
    for _ in range(MUTATIONS):
        mutated = bytearray(encoded)
        for _ in range(randomness.randint(1, 4)):
            at = randomness.randint(0, len(mutated))
            mutated[at : at + randomness.randint(0, 2)] = randomness.randbytes(randomness.randint(0, 3))
        decodes(cls, version, bytes(mutated))


def peak_of_decoding(cls: type[Message], version: int, data: bytes) -> int:
    tracemalloc.reset_peak()
    before, _ = tracemalloc.get_traced_memory()
    try:
        decode(cls, version, data)
    except DecodeError:
        pass
    _, peak = tracemalloc.get_traced_memory()
    return peak - before


@pytest.mark.parametrize(("cls", "version"), EXTREME_VERSIONS, ids=title)
def test_decoding_allocates_in_proportion_to_what_was_received(cls: type[Message], version: int) -> None:
    """Counts and lengths that are huge, and counts of the smallest elements that are all there."""
    encoded = encode(full(cls, version), version)
    decode(cls, version, encoded)
    tracemalloc.start()
    try:
        for at in range(0, len(encoded), 2):
            for tail in TAILS:
                data = encoded[:at] + tail
                allowed = ALLOCATED_ALWAYS + ALLOCATED_PER_BYTE * len(data)
                assert peak_of_decoding(cls, version, data) < allowed, (tail, at)
    finally:
        tracemalloc.stop()


@settings(max_examples=300, deadline=None, database=None)
@given(st.sampled_from(CASES), st.binary(max_size=200))
def test_arbitrary_bytes_decode_or_are_refused(case: tuple[type[Message], int], data: bytes) -> None:
    decodes(*case, data)


@settings(max_examples=300, deadline=None, database=None)
@given(st.binary(max_size=40))
def test_arbitrary_headers_parse_or_are_refused(data: bytes) -> None:
    try:
        _, position = parse_request_header(memoryview(data))
    except DecodeError:
        return
    assert position <= len(data)
