"""What stands in the records of ``__transaction_state`` and ``__consumer_offsets``, as text.

A key is its type as an int16 and the fields of that type; a value is its version as an int16 and the fields of that
version. They are read through the reference structures, which share nothing with the codec that wrote them but the
declaration. The form is that of Kafka's dump tool: JSON objects with Kafka's own field names.
"""

import json
import struct
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

from construct import ConstructError

from oncelog.protocol.internal.group_metadata import (
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from oncelog.protocol.internal.transaction_log import TransactionLogKey, TransactionLogValue
from oncelog.protocol.records.record_batch import Record
from oncelog.protocol.reference import parse
from oncelog.protocol.schema import Message, layout

RecordDecoder: TypeAlias = Callable[[Record], tuple[str, str]]
"""From a record to the texts of its key and value."""
_KeysAndValues: TypeAlias = Mapping[int, tuple[type[Message], type[Message]]]

_INT16: Final = struct.Struct(">h")
_KEY_VERSION: Final = 0

_TRANSACTION_LOG: Final[_KeysAndValues] = {0: (TransactionLogKey, TransactionLogValue)}
_CONSUMER_OFFSETS: Final[_KeysAndValues] = {
    0: (OffsetCommitKey, OffsetCommitValue),
    1: (OffsetCommitKey, OffsetCommitValue),
    2: (GroupMetadataKey, GroupMetadataValue),
}


def decode_transaction_log(record: Record) -> tuple[str, str]:
    """Decode key and value of a record of ``__transaction_state``."""
    return _decode(_TRANSACTION_LOG, record)


def decode_consumer_offsets(record: Record) -> tuple[str, str]:
    """Decode key and value of a record of ``__consumer_offsets``."""
    return _decode(_CONSUMER_OFFSETS, record)


def decode_text(record: Record) -> tuple[str, str]:
    """Decode key and value as UTF-8."""
    return _text(record.key), _text(record.value)


def _text(data: bytes | None) -> str:
    return "null" if data is None else data.decode("utf-8", "backslashreplace")


def _decode(types: _KeysAndValues, record: Record) -> tuple[str, str]:
    try:
        key_type, key = _split(record.key)
        if key_type not in types or key is None:
            return _unknown("type", key_type), _text(record.value)
        key_class, value_class = types[key_type]
        decoded_key = parse(key_class, _KEY_VERSION, key)
        version, value = _split(record.value)
        if value is not None and version not in value_class.versions:
            return _json("type", key_type, _fields(decoded_key, _KEY_VERSION)), _unknown("version", version)
        data = None if value is None else _fields(parse(value_class, version, value), version)
    except (struct.error, ConstructError, UnicodeDecodeError) as error:
        reason = " ".join(str(error).split())
        return f"<not decodable: {reason}>", _text(record.value)
    return (
        _json("type", key_type, _fields(decoded_key, _KEY_VERSION)),
        "null" if data is None else _json("version", version, data),
    )


def _split(data: bytes | None) -> tuple[int, bytes | None]:
    if data is None:
        return -1, None
    return _INT16.unpack_from(data)[0], data[_INT16.size :]


def _json(name: str, number: int, data: Mapping[str, Any]) -> str:
    return json.dumps({name: str(number), "data": data}, separators=(",", ":"))


def _unknown(name: str, number: int) -> str:
    return json.dumps({name: str(number), "data": "unknown"}, separators=(",", ":"))


def _fields(message: Message, version: int) -> dict[str, Any]:
    """Return the fields that this version carries, by Kafka's names."""
    shape = layout(type(message), version)
    return {
        _camel_case(field.name): _plain(getattr(message, field.name), version)
        for field in (*shape.regular, *shape.tagged)
    }


def _plain(value: Any, version: int) -> Any:
    if isinstance(value, Message):
        return _fields(value, version)
    if isinstance(value, list):
        return [_plain(item, version) for item in value]
    if isinstance(value, bytes):
        return value.hex()
    return value


def _camel_case(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(word.capitalize() for word in others)
