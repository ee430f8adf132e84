"""The compiled codecs and the reference codec are the same function, for every message and version that is declared."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from oncelog.protocol import reference
from oncelog.protocol.compiler import decode, encode
from oncelog.protocol.decoder_source import UNLIMITED_ELEMENTS
from oncelog.protocol.primitives import DecodeError
from oncelog.protocol.records.record_walk import WorkBudget
from oncelog.protocol.schema import Message
from oncelog.protocol.sliced_decoder import sliced_decoder
from oncelog.protocol.sliced_encoder import sliced_encoder
from tests.unit.protocol.declared import every_version, full, messages, sparse, title

CASES = list(every_version())


def assert_same(message: Message, version: int) -> None:
    encoded = encode(message, version)
    assert encoded == reference.build(message, version)
    decoded = decode(type(message), version, encoded)
    assert decoded == reference.parse(type(message), version, encoded)
    assert encode(decoded, version) == encoded


@pytest.mark.parametrize(("cls", "version"), CASES, ids=title)
def test_compiled_equals_construct_for_generated_instances(cls: type[Message], version: int) -> None:
    @settings(max_examples=6, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(st.data())
    def check(data: st.DataObject) -> None:
        assert_same(data.draw(messages(cls, version)), version)

    check()


@pytest.mark.parametrize(("cls", "version"), CASES, ids=title)
def test_compiled_equals_construct_at_the_extremes(cls: type[Message], version: int) -> None:
    for message in (cls(), full(cls, version), sparse(cls, version)):
        assert_same(message, version)
        assert decode(cls, version, encode(message, version)) == message


@pytest.mark.parametrize(("cls", "version"), CASES, ids=title)
def test_encoding_in_slices_equals_encoding_at_once(cls: type[Message], version: int) -> None:
    for message in (cls(), full(cls, version), sparse(cls, version)):
        assert encoded_in_slices(message, version, units=1) == encode(message, version)


@pytest.mark.parametrize(("cls", "version"), CASES, ids=title)
def test_decoding_in_slices_equals_decoding_at_once(cls: type[Message], version: int) -> None:
    for message in (cls(), full(cls, version), sparse(cls, version)):
        encoded = encode(message, version)
        assert decoded_in_slices(cls, version, encoded) == decode(cls, version, encoded)
        for end in range(0, len(encoded), max(1, len(encoded) // 20)):
            assert outcome(decoded_in_slices, cls, version, encoded[:end]) == outcome(
                decode, cls, version, encoded[:end]
            )


def decoded_in_slices(cls: type[Message], version: int, encoded: bytes) -> Message:
    budget = WorkBudget(1)
    steps = sliced_decoder(cls, version)(memoryview(encoded), 0, UNLIMITED_ELEMENTS, budget)
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            message: Message = stop.value[0]
            return message
        assert budget.left <= 0
        budget.left = 1


def outcome(decoding: Callable[..., Message], *arguments: Any) -> Message | str:
    try:
        return decoding(*arguments)
    except DecodeError as error:
        return str(error)


def encoded_in_slices(message: Message, version: int, *, units: int) -> bytes:
    budget = WorkBudget(units)
    steps = sliced_encoder(type(message), version)(message, None, budget)
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            return b"".join(stop.value)
        assert budget.left <= 0
        budget.left = units
