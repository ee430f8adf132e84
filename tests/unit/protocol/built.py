"""Messages made of the fields that are given, as mappings and lists; the other fields have their defaults."""

from collections.abc import Mapping
from typing import Any

from oncelog.protocol.schema import Field, Kind, Message


def built(cls: type[Message], fields: Mapping[str, Any]) -> Message:
    """Return a message whose structures are given by their fields."""
    declared = {field.name: field for field in cls.fields}
    return cls(**{name: _value(declared[name], value) for name, value in fields.items()})


def _value(field: Field, value: Any) -> Any:
    if field.kind is Kind.ARRAY and value is not None:
        assert field.element is not None
        return [_value(field.element, each) for each in value]
    if field.kind is Kind.STRUCT and isinstance(value, Mapping):
        assert field.struct is not None
        return built(field.struct, value)
    return value
