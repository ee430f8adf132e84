"""Declaring Kafka messages: one slotted class per structure, every version of it in one place.

A message is a class whose attributes are declared with the field functions below::

    class FindCoordinatorRequest(Message, api_key=10, versions="0-6", flexible="3+"):
        key: str = string("0-3", default="")
        key_type: int = int8("1+", default=0)
        coordinator_keys: list[str] = array_of(string, "4+", default_factory=list)

Each field states the versions that carry it, the versions in which it may be null, its tag (KIP-482) where it is a
tagged field, and the value it has when a version does not carry it. Handlers thus see one type for all versions.
``oncelog.protocol.compiler`` turns a declaration into the flat codec that serves; ``oncelog.protocol.reference`` turns
the same declaration into a readable ``construct`` structure. Names, order, ranges and defaults are those of Apache
Kafka's message definitions (``clients/src/main/resources/common/message``), in snake_case.

Classes are built by a metaclass of our own instead of ``dataclasses``, because some 400 structures must import within
the start-up budget: ``__init__`` is compiled on the first construction, not at import.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Final, NamedTuple, NoReturn, TypeAlias, TypeVar, dataclass_transform

Buffer: TypeAlias = bytes | bytearray | memoryview
Records: TypeAlias = memoryview | bytes | bytearray | list[Buffer]
"""What a ``records`` field holds: decoded, a view into the frame; to encode, any buffer or a list of them."""

ZERO_UUID: Final = bytes(16)
"""Kafka's sentinel for "no UUID" (``Uuid.ZERO_UUID``)."""

OWN_TAGS: Final = 10_000
"""The first tag of fields that Apache Kafka does not have, far above the tags that it gives out."""

T = TypeVar("T")


class SharedList(list[T]):
    """A list that several messages hold. Its elements are encoded once per version, so they must not change any more.

    Effective in fields that are declared ``shared``.
    """

    __slots__ = ("encodings",)

    def __init__(self, elements: Iterable[T] = ()) -> None:
        super().__init__(elements)
        self.encodings: dict[int, bytes] = {}
        """The encoding of all elements, by the version of the message."""


class Kind(Enum):
    """The wire types of Kafka's protocol guide."""

    BOOL = auto()
    INT8 = auto()
    INT16 = auto()
    UINT16 = auto()
    INT32 = auto()
    UINT32 = auto()
    INT64 = auto()
    FLOAT64 = auto()
    STRING = auto()
    BYTES = auto()
    RECORDS = auto()
    UUID = auto()
    STRUCT = auto()
    ARRAY = auto()


@dataclass(frozen=True, slots=True)
class Versions:
    """An inclusive range of versions; empty when ``first > last``."""

    first: int
    last: int

    def __contains__(self, version: int) -> bool:
        return self.first <= version <= self.last

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.first, self.last + 1))


NO_VERSIONS: Final = Versions(0, -1)
_OPEN_END: Final = 32_767


def parse_versions(text: str) -> Versions:
    """Parse Kafka's notation: ``"3"``, ``"0-4"``, ``"2+"`` or ``"none"``."""
    if text == "none":
        return NO_VERSIONS
    if text.endswith("+"):
        return Versions(int(text[:-1]), _OPEN_END)
    first, _, last = text.partition("-")
    return Versions(int(first), int(last or first))


@dataclass(slots=True)
class Field:
    """One declared field. ``name`` is filled in when its class is created."""

    kind: Kind
    versions: Versions
    nullable: Versions
    tag: int | None
    tagged: Versions
    default: Any
    default_factory: Callable[[], Any] | None = None
    flexible: Versions | None = None
    """Overrides the message's flexible range (the request header's client id is never compact)."""
    element: "Field | None" = None
    """For ARRAY: the element's type; its name and versions are unused."""
    struct: "type[Message] | None" = None
    """For STRUCT: the structure's class."""
    shared: bool = False
    """For ARRAY of structures: whether the list may be a ``SharedList``."""
    name: str = ""

    def make_default(self) -> Any:
        return self.default if self.default_factory is None else self.default_factory()


def _field(
    kind: Kind,
    versions: str,
    default: Any,
    *,
    nullable: str = "none",
    tag: int | None = None,
    tagged: str | None = None,
) -> Field:
    """Declare what every kind of field has; ``tagged``: the versions that carry it as a tagged field."""
    return Field(
        kind=kind,
        versions=parse_versions(versions),
        nullable=parse_versions(nullable),
        tag=tag,
        tagged=NO_VERSIONS if tag is None else parse_versions(tagged or versions),
        default=default,
    )


def boolean(versions: str, *, default: bool, tag: int | None = None, tagged: str | None = None) -> Any:
    """Declare a byte that is 0 or 1."""
    return _field(Kind.BOOL, versions, default, tag=tag, tagged=tagged)


def int8(versions: str, *, default: int, tag: int | None = None, tagged: str | None = None) -> Any:
    """Declare a signed 8-bit integer."""
    return _field(Kind.INT8, versions, default, tag=tag, tagged=tagged)


def int16(versions: str, *, default: int, tag: int | None = None, tagged: str | None = None) -> Any:
    """Declare a signed 16-bit integer."""
    return _field(Kind.INT16, versions, default, tag=tag, tagged=tagged)


def uint16(versions: str, *, default: int, tag: int | None = None, tagged: str | None = None) -> Any:
    """Declare an unsigned 16-bit integer."""
    return _field(Kind.UINT16, versions, default, tag=tag, tagged=tagged)


def int32(versions: str, *, default: int, tag: int | None = None, tagged: str | None = None) -> Any:
    """Declare a signed 32-bit integer."""
    return _field(Kind.INT32, versions, default, tag=tag, tagged=tagged)


def uint32(versions: str, *, default: int, tag: int | None = None, tagged: str | None = None) -> Any:
    """Declare an unsigned 32-bit integer."""
    return _field(Kind.UINT32, versions, default, tag=tag, tagged=tagged)


def int64(versions: str, *, default: int, tag: int | None = None, tagged: str | None = None) -> Any:
    """Declare a signed 64-bit integer."""
    return _field(Kind.INT64, versions, default, tag=tag, tagged=tagged)


def float64(versions: str, *, default: float, tag: int | None = None, tagged: str | None = None) -> Any:
    """Declare an IEEE 754 double."""
    return _field(Kind.FLOAT64, versions, default, tag=tag, tagged=tagged)


def uuid(versions: str, *, default: bytes = ZERO_UUID, tag: int | None = None, tagged: str | None = None) -> Any:
    """Declare sixteen raw bytes."""
    return _field(Kind.UUID, versions, default, tag=tag, tagged=tagged)


def string(
    versions: str,
    *,
    default: str | None,
    nullable: str = "none",
    tag: int | None = None,
    tagged: str | None = None,
    flexible: str | None = None,
) -> Any:
    """Declare a UTF-8 string of at most 32,767 bytes."""
    field = _field(Kind.STRING, versions, default, nullable=nullable, tag=tag, tagged=tagged)
    field.flexible = None if flexible is None else parse_versions(flexible)
    return field


def binary(
    versions: str,
    *,
    default: bytes | None,
    nullable: str = "none",
    tag: int | None = None,
    tagged: str | None = None,
) -> Any:
    """Declare opaque bytes, copied out of the frame when decoded."""
    return _field(Kind.BYTES, versions, default, nullable=nullable, tag=tag, tagged=tagged)


def records(
    versions: str,
    *,
    default: None = None,
    nullable: str = "none",
    tag: int | None = None,
    tagged: str | None = None,
) -> Any:
    """Declare record batches: a view into the frame when decoded, any buffer (or list of buffers) when encoded."""
    return _field(Kind.RECORDS, versions, default, nullable=nullable, tag=tag, tagged=tagged)


def struct(
    cls: "type[Message]",
    versions: str,
    *,
    default: None = None,
    default_factory: Callable[[], Any] | None = None,
    nullable: str = "none",
    tag: int | None = None,
    tagged: str | None = None,
) -> Any:
    """Declare a nested structure. A tagged one that is absent is None: most are, and need not be built."""
    field = _field(Kind.STRUCT, versions, default, nullable=nullable, tag=tag, tagged=tagged)
    field.struct, field.default_factory = cls, default_factory
    return field


def array(
    cls: "type[Message]",
    versions: str,
    *,
    default: None = None,
    default_factory: Callable[[], Any] | None = None,
    nullable: str = "none",
    tag: int | None = None,
    tagged: str | None = None,
    shared: bool = False,
) -> Any:
    """Declare a list of structures; if ``shared``, a ``SharedList`` is encoded once for all messages that hold it."""
    field = _field(Kind.ARRAY, versions, default, nullable=nullable, tag=tag, tagged=tagged)
    field.element, field.default_factory, field.shared = struct(cls, "0+"), default_factory, shared
    return field


def array_of(
    primitive: Callable[..., Any],
    versions: str,
    *,
    default: None = None,
    default_factory: Callable[[], Any] | None = None,
    nullable: str = "none",
    tag: int | None = None,
    tagged: str | None = None,
) -> Any:
    """Declare a list of primitives; ``primitive`` is one of this module's field functions, such as ``int32``."""
    field = _field(Kind.ARRAY, versions, default, nullable=nullable, tag=tag, tagged=tagged)
    field.element, field.default_factory = primitive("0+", default=None), default_factory
    return field


@dataclass_transform(
    kw_only_default=True,
    field_specifiers=(
        boolean, int8, int16, uint16, int32, uint32, int64, float64, uuid, string, binary, records, struct, array,
        array_of,
    ),
)  # fmt: skip
class MessageType(type):
    """Collects the declared fields of a class, gives it ``__slots__`` and a lazily compiled ``__init__``.

    What is known of a class is read through properties of this metaclass, so that a structure may itself declare a
    field called ``api_key`` or ``versions``.
    """

    _fields: tuple[Field, ...]
    _api_key: int | None
    _versions: Versions
    _flexible: Versions
    _decoders: dict[int, Callable[..., Any]]
    _encoders: dict[int, Callable[..., Any]]
    _sliced_decoders: dict[int, Callable[..., Any]]
    _sliced_encoders: dict[int, Callable[..., Any]]

    def __new__(
        mcs,
        name: str,
        bases: tuple[type, ...],
        namespace: dict[str, Any],
        *,
        api_key: int | None = None,
        versions: str = "none",
        flexible: str = "none",
    ) -> "MessageType":
        fields = []
        for attribute, value in list(namespace.items()):
            if isinstance(value, Field):
                value.name = attribute
                fields.append(value)
                del namespace[attribute]
        namespace["__slots__"] = tuple(field.name for field in fields)
        cls = super().__new__(mcs, name, bases, namespace)
        cls._fields = tuple(fields)
        cls._api_key = api_key
        cls._versions = parse_versions(versions)
        cls._flexible = parse_versions(flexible)
        cls._decoders = {}
        cls._encoders = {}
        cls._sliced_decoders = {}
        cls._sliced_encoders = {}
        return cls

    def __init__(cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **_: object) -> None:
        super().__init__(name, bases, namespace)

    @property
    def fields(cls) -> tuple[Field, ...]:
        """The declared fields, in the order of the wire."""
        return cls._fields

    @property
    def api_key(cls) -> int | None:
        """The API's number for a request or a response, None for anything else."""
        return cls._api_key

    @property
    def versions(cls) -> Versions:
        """The versions that this message has; none for a structure that occurs only inside messages."""
        return cls._versions

    @property
    def flexible(cls) -> Versions:
        """The versions with compact lengths and tagged fields (KIP-482)."""
        return cls._flexible


class Message(metaclass=MessageType):
    """The base of every declared structure: keyword-only construction, equality and ``repr`` over the fields."""

    def __init__(self, **values: Any) -> None:
        cls = type(self)
        cls.__init__ = compile_init(cls)  # type: ignore[method-assign]  # From now on without this detour.
        cls.__init__(self, **values)

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other):
            return NotImplemented
        return all(getattr(self, f.name) == getattr(other, f.name) for f in type(self).fields)

    def __hash__(self) -> NoReturn:
        raise TypeError(f"{type(self).__name__} is mutable and therefore not hashable")

    def __repr__(self) -> str:
        shown = ", ".join(f"{f.name}={_shown(getattr(self, f.name))}" for f in type(self).fields)
        return f"{type(self).__name__}({shown})"


def _shown(value: object) -> str:
    if isinstance(value, (bytes, bytearray, memoryview)):
        return f"<{len(value)} bytes>"
    return repr(value)


class Layout(NamedTuple):
    """A structure as one version has it on the wire: regular fields in order, then tagged ones by rising tag."""

    regular: tuple[Field, ...]
    tagged: tuple[Field, ...]
    absent: tuple[Field, ...]


def layout(cls: MessageType, version: int) -> Layout:
    """Sort the fields of a structure by how ``version`` carries them."""
    regular, tagged, absent = [], [], []
    for field in cls.fields:
        if version not in field.versions:
            absent.append(field)
        elif version in field.tagged:
            tagged.append(field)
        else:
            regular.append(field)
    tagged.sort(key=lambda field: field.tag or 0)
    return Layout(tuple(regular), tuple(tagged), tuple(absent))


def compile_init(cls: MessageType) -> Callable[..., None]:
    """Build the keyword-only ``__init__`` of a message class from its fields."""
    names: dict[str, Any] = {"missing": _MISSING}
    parameters, body = [], []
    for field in cls.fields:
        name = field.name
        if field.default_factory is None:
            names[f"default_{name}"] = field.default
            parameters.append(f"{name}=default_{name}")
            body.append(f"    self.{name} = {name}")
        else:
            names[f"new_{name}"] = field.default_factory
            fresh = "[]" if field.default_factory is list else f"new_{name}()"
            parameters.append(f"{name}=missing")
            body.append(f"    self.{name} = {fresh} if {name} is missing else {name}")
    star = "*, " if parameters else ""
    source = f"def __init__(self, {star}{', '.join(parameters)}):\n" + ("\n".join(body) or "    pass")
    exec(compile(source, f"<init of {cls.__name__}>", "exec"), names)
    init: Callable[..., None] = names["__init__"]
    return init


_MISSING: Final = object()
