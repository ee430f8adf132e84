"""The field that made an encoding fail: looked for afterwards, so that encoding itself need not check anything."""

from struct import error as StructError
from struct import pack
from typing import Any

from oncelog.protocol.primitives import FIXED, MAX_STRING_BYTES, EncodeError
from oncelog.protocol.schema import Field, Kind, Message, MessageType, layout


def encode_error(message: Message, version: int, error: Exception) -> EncodeError:
    """Return the error that names the first field, if any, whose value ``version`` cannot carry."""
    title = f"{type(message).__name__} v{version}"
    problem = _in_structure(message, type(message), version, "")
    return EncodeError(f"{title}: {problem or error}")


def _in_structure(structure: object, cls: MessageType, version: int, path: str) -> str | None:
    if not isinstance(structure, cls):
        return f"{path} is a {type(structure).__name__}, not a {cls.__name__}"
    shape = layout(cls, version)
    for field in (*shape.regular, *shape.tagged):
        inner = f"{path}.{field.name}" if path else field.name
        problem = _in_value(getattr(structure, field.name), field, version, inner)
        if problem is not None:
            return problem
    return None


def _in_value(value: Any, field: Field, version: int, path: str) -> str | None:
    if value is None:
        absent = field.kind is Kind.STRUCT and field.default is None
        return None if absent or version in field.nullable else f"{path} is None"
    match field.kind:
        case Kind.STRUCT:
            assert field.struct is not None
            return _in_structure(value, field.struct, version, path)
        case Kind.ARRAY:
            return _in_array(value, field, version, path)
        case Kind.STRING:
            return _in_string(value, path)
        case Kind.BYTES:
            return None if isinstance(value, (bytes, bytearray, memoryview)) else f"{path} is a {type(value).__name__}"
        case Kind.RECORDS:
            return None if isinstance(value, (bytes, bytearray, memoryview, list)) else f"{path} holds no buffers"
        case _:
            return _in_fixed(value, field, path)


def _in_array(values: Any, field: Field, version: int, path: str) -> str | None:
    assert field.element is not None
    if not isinstance(values, (list, tuple)):
        return f"{path} is a {type(values).__name__}, not a list"
    problems = (_in_value(value, field.element, version, f"{path}[{index}]") for index, value in enumerate(values))
    return next((problem for problem in problems if problem is not None), None)


def _in_string(value: Any, path: str) -> str | None:
    if not isinstance(value, str):
        return f"{path} is a {type(value).__name__}, not a str"
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        return f"{path} is not valid Unicode"
    return f"{path} is longer than {MAX_STRING_BYTES} bytes" if size > MAX_STRING_BYTES else None


def _in_fixed(value: Any, field: Field, path: str) -> str | None:
    try:
        pack(f">{FIXED[field.kind]}", value)
    except StructError as error:
        return f"{path} = {value!r}: {error}"
    return None
