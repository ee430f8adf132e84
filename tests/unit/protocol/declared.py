"""Every declared message, and instances of it made from its declaration: by rule and by hypothesis."""

import importlib
import pkgutil
from collections.abc import Iterator
from functools import cache
from typing import Any

from hypothesis import strategies as st

import oncelog.protocol.internal
import oncelog.protocol.messages
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.schema import Field, Kind, Message, MessageType, layout


@cache
def message_classes() -> dict[str, type[Message]]:
    """Every class of ``oncelog.protocol``'s ``messages`` and ``internal`` that has versions of its own, by name."""
    found = {}
    for package in (oncelog.protocol.messages, oncelog.protocol.internal):
        for module_info in pkgutil.iter_modules(package.__path__):
            module = importlib.import_module(f"{package.__name__}.{module_info.name}")
            for value in vars(module).values():
                if isinstance(value, MessageType) and value.__module__ == module.__name__ and list(value.versions):
                    found[value.__name__] = value
    return found


def every_version() -> Iterator[tuple[type[Message], int]]:
    for cls in message_classes().values():
        for version in cls.versions:
            yield cls, version


def title(case: object) -> str:
    return case.__name__ if isinstance(case, type) else f"v{case}"


RANGES = {
    Kind.INT8: (-(2**7), 2**7 - 1),
    Kind.INT16: (-(2**15), 2**15 - 1),
    Kind.UINT16: (0, 2**16 - 1),
    Kind.INT32: (-(2**31), 2**31 - 1),
    Kind.UINT32: (0, 2**32 - 1),
    Kind.INT64: (-(2**63), 2**63 - 1),
}
FIRST_TAG_OF_OURS = 10_000
LAST_SECOND = 253_402_300_799
"""Of the year 9999. A peer holds instants as ``datetime`` and accepts whole seconds from 1970 only."""

TEXT = st.one_of(st.text(max_size=8), st.sampled_from(["", "x" * 126, "x" * 127, "x" * 128, "é" * 100]))
BLOB = st.one_of(st.binary(max_size=8), st.sampled_from([b"", bytes(126), bytes(127), bytes(128), bytes(3000)]))
ERROR_CODES = st.sampled_from([int(code) for code in ErrorCode])


def is_error_code(field: Field) -> bool:
    return field.kind is Kind.INT16 and field.name.endswith("error_code")


def is_instant(field: Field) -> bool:
    return field.kind is Kind.INT64 and ("timestamp" in field.name or "time_ms" in field.name)


def integers(field: Field) -> st.SearchStrategy[int]:
    if is_error_code(field):
        return ERROR_CODES
    if is_instant(field):
        return st.integers(0, LAST_SECOND).map(lambda seconds: seconds * 1000)
    low, high = RANGES[field.kind]
    return st.one_of(st.integers(max(low, -1), 100), st.integers(low, high))


def values(field: Field, version: int) -> st.SearchStrategy[Any]:
    """The values that a field may have in a version which carries it."""
    strategy: st.SearchStrategy[Any]
    match field.kind:
        case Kind.BOOL:
            strategy = st.booleans()
        case Kind.FLOAT64:
            strategy = st.floats(allow_nan=False, allow_infinity=False)
        case Kind.UUID:
            strategy = st.binary(min_size=16, max_size=16)
        case Kind.STRING:
            strategy = TEXT
        case Kind.BYTES | Kind.RECORDS:
            strategy = BLOB
        case Kind.ARRAY:
            assert field.element is not None
            strategy = st.lists(values(field.element, version), max_size=2)
        case Kind.STRUCT:
            assert field.struct is not None
            strategy = messages(field.struct, version)
        case _:
            strategy = integers(field)
    return st.one_of(st.none(), strategy) if version in field.nullable else strategy


@cache
def messages(cls: type[Message], version: int) -> st.SearchStrategy[Message]:
    """Instances that differ from the defaults only in fields which the version carries."""
    shape = layout(cls, version)
    return st.builds(cls, **{field.name: values(field, version) for field in (*shape.regular, *shape.tagged)})


def full(cls: type[Message], version: int, salt: int = 1) -> Message:
    """An instance with something different from the default in every field that the version carries."""
    shape = layout(cls, version)
    numbered = enumerate((*shape.regular, *shape.tagged), start=salt)
    return cls(**{field.name: filled(field, version, number) for number, field in numbered})


def filled(field: Field, version: int, number: int) -> Any:
    match field.kind:
        case Kind.BOOL:
            return not field.default
        case Kind.FLOAT64:
            return number + 0.5
        case Kind.UUID:
            return bytes([number % 256] * 16)
        case Kind.STRING:
            return f"{field.name or 'item'}-{number}-ü"
        case Kind.BYTES | Kind.RECORDS:
            return b"%d bytes" % number
        case Kind.ARRAY:
            assert field.element is not None
            return [filled(field.element, version, number * 3 + index) for index in range(2)]
        case Kind.STRUCT:
            assert field.struct is not None
            return full(field.struct, version, number * 5)
        case _:
            return number * 1000 if is_instant(field) else number * 7 % 127


def as_peers_know_it(message: Message) -> Message:
    """The message without our own tagged fields, which no peer declares."""
    for field in type(message).fields:
        if (field.tag or 0) >= FIRST_TAG_OF_OURS:
            setattr(message, field.name, field.default if field.default_factory is None else field.default_factory())
            continue
        value = getattr(message, field.name)
        for part in value if isinstance(value, list) else [value]:
            if isinstance(part, Message):
                as_peers_know_it(part)
    return message


def sparse(cls: type[Message], version: int) -> Message:
    """An instance with null wherever the version allows it and one sparse element in every array of structures."""
    shape = layout(cls, version)
    chosen: dict[str, Any] = {}
    for field in shape.regular:
        if version in field.nullable:
            chosen[field.name] = None
        elif field.element is not None and field.element.struct is not None:
            chosen[field.name] = [sparse(field.element.struct, version)]
    return cls(**chosen)
