"""The compiled codecs and the reference codec are the same function, for every message and version that is declared."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from protocol import reference
from protocol.compiler import decode, encode
from protocol.records.record_walk import WorkBudget
from protocol.schema import Message
from protocol.sliced_encoder import sliced_encoder
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
