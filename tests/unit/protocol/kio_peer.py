"""Our messages through ``kio``: an instance of its class with the same values by name, encoded by its writer.

kio gives many fields richer types than the wire has (durations, instants, error codes, None for the zero UUID) and
drops units from their names; both are undone here from its own field metadata.
"""

import dataclasses
import io
import re
import types
import typing
import uuid
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

from hypothesis import reject
from kio.index import UnknownEntity, load_entity_module
from kio.schema.errors import ErrorCode
from kio.serial import entity_writer
from kio.static.constants import EntityType

from oncelog.protocol.schema import ZERO_UUID, Message

_LONGEST_MS = 999_999_998 * 86_400_000
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@cache
def peer_class(name: str, version: int) -> type | None:
    """kio's class for a message, if it has that version."""
    stem = re.sub("(Request|Response)$", "", name)
    kind = {"Request": EntityType.request, "Response": EntityType.response}.get(name[len(stem) :], EntityType.data)
    if stem == "" or name.endswith("Header"):
        kind, stem = EntityType.header, name
    module = re.sub("(?<!^)(?=[A-Z])", "_", stem).lower()
    try:
        loaded = load_entity_module(module, version, kind)
    except UnknownEntity:
        return None
    found: type = getattr(loaded, name)
    return found


def encode(message: Message, version: int) -> bytes:
    cls = peer_class(type(message).__name__, version)
    assert cls is not None
    written = io.BytesIO()
    entity_writer(cls)(written, convert(message, cls))
    return written.getvalue()


def convert(message: Message, cls: Any) -> Any:
    hints = typing.get_type_hints(cls)
    values = {}
    for field in dataclasses.fields(cls):
        value = getattr(message, our_name(message, field.name))
        values[field.name] = convert_value(value, hints[field.name], field)
    return cls(**values)


def our_name(message: Message, name: str) -> str:
    names = {field.name for field in type(message).fields}
    return next(ours for ours in (name, f"{name}_ms", name.rstrip("_")) if ours in names)


def convert_value(value: Any, hint: Any, field: Any) -> Any:
    if value is None:
        is_left_out = "tag" in field.metadata and field.default is not dataclasses.MISSING
        return field.default if is_left_out else None
    inner = without_none(hint)
    if isinstance(value, list):
        return tuple(convert_value(item, typing.get_args(inner)[0], field) for item in value)
    if dataclasses.is_dataclass(inner):
        return convert(value, inner)
    return convert_primitive(value, inner, field.metadata["kafka_type"])


def without_none(hint: Any) -> Any:
    if typing.get_origin(hint) not in (types.UnionType, typing.Union):
        return hint
    return next(part for part in typing.get_args(hint) if part is not types.NoneType)


def convert_primitive(value: Any, inner: Any, kafka_type: str) -> Any:
    match kafka_type:
        case "error_code":
            return ErrorCode(value)
        case "timedelta_i32" | "timedelta_i64":
            if abs(value) > _LONGEST_MS:
                reject()  # A ``timedelta`` of Python cannot be longer.
            return inner.parse(timedelta(milliseconds=value))
        case "datetime_i64":
            return None if value == -1 else inner.parse(EPOCH + timedelta(milliseconds=value))
        case "uuid":
            return None if value == ZERO_UUID else uuid.UUID(bytes=value)
        case "bytes" | "records":
            return inner(value)
        case _:
            return value
