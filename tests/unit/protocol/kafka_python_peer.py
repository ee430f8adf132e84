"""Our messages through kafka-python's schemas, whose data classes have the same field names."""

import importlib
import warnings
from functools import cache
from typing import Any
from uuid import UUID

from oncelog.protocol.schema import Field, Kind, Message, layout

RENAMED = {
    "cluster_authorized_operations": "authorized_operations",
    "topic_authorized_operations": "authorized_operations",
}
with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # It reads its schemas by a deprecated function.
    from kafka.protocol.api_message import ApiMessage

    MODULES = [
        importlib.import_module(f"kafka.protocol.{name}") for name in ("admin", "consumer", "metadata", "producer")
    ]


@cache
def peer_classes() -> dict[str, Any]:
    classes = [value for module in MODULES for value in vars(module).values() if isinstance(value, type)]
    return {cls.__name__: cls for cls in classes if issubclass(cls, ApiMessage)}


def peer_class(name: str, version: int) -> Any | None:
    """kafka-python's class for a message, if it has that version."""
    cls = peer_classes().get(name)
    if cls is None:
        return None
    first, last = cls.valid_versions
    return cls if first <= version <= last else None


def encode(message: Message, version: int) -> bytes:
    cls = peer_class(type(message).__name__, version)
    assert cls is not None
    return bytes(convert(message, version, cls).encode(version=version))


def convert(message: Message, version: int, cls: Any) -> Any:
    shape = layout(type(message), version)
    present = [field for field in shape.tagged if not _is_default(getattr(message, field.name), field)]
    values = {}
    for field in (*shape.regular, *present):
        name = RENAMED.get(field.name, field.name)
        name = name if name in cls.fields else field.name
        values[name] = convert_value(getattr(message, field.name), version, field.kind, cls.fields[name])
    return cls(version=version, **values)


def _is_default(value: Any, field: Field) -> bool:
    """Whether a tagged field is left out. kafka-python writes a structure that is given, also if it is all defaults."""
    return value in (None, field.make_default()) or (isinstance(value, Message) and value == type(value)())


def convert_value(value: Any, version: int, kind: Kind, peer_field: Any) -> Any:
    if isinstance(value, list):
        return [convert_value(item, version, kind, peer_field) for item in value]
    if isinstance(value, Message):
        return convert(value, version, peer_field.data_class)
    if peer_field._json["type"] == "bitfield":
        return {bit for bit in range(32) if value >> bit & 1}
    return UUID(bytes=value) if kind is Kind.UUID else value
