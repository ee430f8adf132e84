"""The readable codec: a ``construct`` structure made from the same declaration that the compiler reads.

It is forty times slower than the compiled functions and shares nothing with them but the declaration, which makes it
the oracle in their tests, the picture to look at when bytes are unclear (a ``construct.Struct`` prints, names its path
in every error and can be tried piecewise), and the codec of what is cold: dump tools and small files.

A structure becomes a ``Struct`` of its regular fields in wire order. In flexible versions an entry ``tagged_fields``
follows: a list of (tag, value), where the values of unknown tags stay bytes. ``to_container`` and ``from_container``
go between that shape and messages.
"""

from typing import Any, Final, TypeVar

from construct import (
    Array,
    Bytes,
    Construct,
    Default,
    ExprAdapter,
    ExprValidator,
    Flag,
    Float64b,
    FocusedSeq,
    GreedyBytes,
    If,
    Int8sb,
    Int16sb,
    Int16ub,
    Int32sb,
    Int32ub,
    Int64sb,
    Prefixed,
    PrefixedArray,
    Rebuild,
    Struct,
    Switch,
    VarInt,
    this,
)

from oncelog.protocol.schema import Field, Kind, Message, MessageType, layout

M = TypeVar("M", bound=Message)

TAGGED_FIELDS: Final = "tagged_fields"

_FIXED: Final = {
    Kind.BOOL: Flag,
    Kind.INT8: Int8sb,
    Kind.INT16: Int16sb,
    Kind.UINT16: Int16ub,
    Kind.INT32: Int32sb,
    Kind.UINT32: Int32ub,
    Kind.INT64: Int64sb,
    Kind.FLOAT64: Float64b,
    Kind.UUID: Bytes(16),
}


def construct_struct(cls: MessageType, version: int) -> Construct:
    """Return the structure of one version of a message."""
    if version not in cls.versions:
        raise ValueError(f"{cls.__name__} has no version {version}")
    return _structure(cls, version, version in cls.flexible)


def parse(cls: type[M], version: int, data: bytes) -> M:
    """Decode a message through its reference structure."""
    return from_container(cls, version, construct_struct(cls, version).parse(data))


def build(message: Message, version: int) -> bytes:
    """Encode a message through its reference structure."""
    built: bytes = construct_struct(type(message), version).build(to_container(message, version))
    return built


def _structure(cls: MessageType, version: int, flexible: bool) -> Construct:
    shape = layout(cls, version)
    members = [field.name / _value(field, version, flexible) for field in shape.regular]
    if flexible:
        known = {field.tag: _value(field, version, flexible) for field in shape.tagged}
        tagged_field = Struct(
            "tag" / VarInt,
            "value" / Prefixed(VarInt, Switch(this.tag, known, default=GreedyBytes)),
        )
        members.append(TAGGED_FIELDS / Default(PrefixedArray(VarInt, tagged_field), []))
    return Struct(*members)


def _value(field: Field, version: int, flexible: bool) -> Construct:
    compact = flexible if field.flexible is None else version in field.flexible
    match field.kind:
        case Kind.STRING:
            text = ExprAdapter(_blob(_length(compact, Int16sb)), _decoded, _encoded)
            value = ExprValidator(text, _is_short) if compact else text
        case Kind.BYTES | Kind.RECORDS:
            value = _blob(_length(compact, Int32sb))
        case Kind.ARRAY:
            assert field.element is not None
            value = _array(_length(compact, Int32sb), _value(field.element, version, flexible))
        case Kind.STRUCT:
            assert field.struct is not None
            return _struct(field, field.struct, version, flexible)
        case _:
            return _FIXED[field.kind]
    return value if version in field.nullable else ExprValidator(value, lambda obj, context: obj is not None)


def _length(compact: bool, plain: Construct) -> Construct:
    """Return a length where -1 is null: as it is, or one more as a varint."""
    return ExprAdapter(VarInt, lambda obj, context: obj - 1, lambda obj, context: obj + 1) if compact else plain


def _blob(length: Construct) -> Construct:
    return FocusedSeq(
        "data",
        "length" / Rebuild(length, lambda context: -1 if context.data is None else len(context.data)),
        "data" / If(this.length >= 0, Bytes(this.length)),
    )


def _array(length: Construct, element: Construct) -> Construct:
    return FocusedSeq(
        "items",
        "count" / Rebuild(length, lambda context: -1 if context["items"] is None else len(context["items"])),
        "items" / If(this.count >= 0, Array(this.count, element)),
    )


def _struct(field: Field, cls: MessageType, version: int, flexible: bool) -> Construct:
    structure = _structure(cls, version, flexible)
    if version not in field.nullable:
        return structure
    return FocusedSeq(
        "struct",
        "present" / Rebuild(Int8sb, lambda context: -1 if context.struct is None else 1),
        "struct" / If(this.present >= 0, structure),
    )


def _decoded(data: bytes | None, context: Any) -> str | None:
    return None if data is None else data.decode()


def _encoded(text: str | None, context: Any) -> bytes | None:
    return None if text is None else text.encode()


def _is_short(text: str | None, context: Any) -> bool:
    return text is None or len(text.encode()) <= 32_767


def to_container(message: Message, version: int) -> dict[str, Any]:
    """Return the plain dictionaries that ``construct_struct(...).build`` takes."""
    shape = layout(type(message), version)
    container = {field.name: _plain(getattr(message, field.name), version) for field in shape.regular}
    container[TAGGED_FIELDS] = [
        {"tag": field.tag, "value": _plain(getattr(message, field.name), version)}
        for field in shape.tagged
        if not _is_default(field, getattr(message, field.name))
    ]
    return container


def _is_default(field: Field, value: Any) -> bool:
    return value == field.make_default() or (field.struct is not None and value == field.struct())


def _plain(value: Any, version: int) -> Any:
    if isinstance(value, Message):
        return to_container(value, version)
    if isinstance(value, list):
        return [_plain(item, version) for item in value]
    return value


def from_container(cls: type[M], version: int, container: Any) -> M:
    """Return the message for what ``construct_struct(...).parse`` returns; unknown tagged fields are dropped."""
    shape = layout(cls, version)
    values = {field.name: _typed(field, version, container[field.name]) for field in shape.regular}
    by_tag = {field.tag: field for field in shape.tagged}
    for entry in container.get(TAGGED_FIELDS, ()):
        field = by_tag.get(entry.tag)
        if field is not None:
            values[field.name] = _typed(field, version, entry.value)
    return cls(**values)


def _typed(field: Field, version: int, value: Any) -> Any:
    if value is None:
        return None
    if field.kind is Kind.ARRAY:
        assert field.element is not None
        return [_typed(field.element, version, item) for item in value]
    if field.struct is not None:
        return from_container(field.struct, version, value)
    return value
