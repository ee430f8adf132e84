"""Messages in the JSON form that Apache Kafka's own classes read: camelCase names, bytes and UUIDs as base64."""

from base64 import b64decode, b64encode, urlsafe_b64decode, urlsafe_b64encode
from typing import Any, TypeVar

from oncelog.protocol.schema import Field, Kind, Message, layout

M = TypeVar("M", bound=Message)


def to_json(message: Message, version: int) -> dict[str, Any]:
    """The fields that ``version`` carries; tagged fields with their default are left out."""
    shape = layout(type(message), version)
    present = [field for field in shape.tagged if getattr(message, field.name) != field.make_default()]
    carried = (*shape.regular, *present)
    return {camel_case(field.name): _to_json(field, getattr(message, field.name), version) for field in carried}


def from_json(cls: type[M], version: int, fields: dict[str, Any]) -> M:
    shape = layout(cls, version)
    carried = [field for field in (*shape.regular, *shape.tagged) if camel_case(field.name) in fields]
    return cls(**{field.name: _from_json(field, fields[camel_case(field.name)], version) for field in carried})


def camel_case(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def _to_json(field: Field, value: Any, version: int) -> Any:
    if value is None:
        return None
    match field.kind:
        case Kind.STRUCT:
            return to_json(value, version)
        case Kind.ARRAY:
            assert field.element is not None
            return [_to_json(field.element, item, version) for item in value]
        case Kind.UUID:
            return urlsafe_b64encode(value).decode().rstrip("=")
        case Kind.BYTES | Kind.RECORDS:
            return b64encode(value).decode()
        case _:
            return value


def _from_json(field: Field, value: Any, version: int) -> Any:
    if value is None:
        return None
    match field.kind:
        case Kind.STRUCT:
            assert field.struct is not None
            return from_json(field.struct, version, value)
        case Kind.ARRAY:
            assert field.element is not None
            return [_from_json(field.element, item, version) for item in value]
        case Kind.UUID:
            return urlsafe_b64decode(value + "==")
        case Kind.BYTES | Kind.RECORDS:
            return b64decode(value)
        case _:
            return value
