"""From a declaration to the codec that serves: one flat function per (message class, version) and direction.

The source text of a function is written from the declared fields, compiled on first use and kept on the message class.
It has no calls per field: nested structures are inlined as nested loops, and a run of adjacent fixed-width fields,
length prefixes and first bytes of varints becomes one precompiled ``struct.Struct`` call. For example, the partitions
of a ProduceResponse v9 are read and written by (abridged)::

    for _ in range(n):
        m2 = new(PartitionProduceResponse)
        add2(m2)
        m2.index, m2.error_code, m2.base_offset, m2.log_append_time_ms, m2.log_start_offset, n = run3(b, p)
        ...
    for m2 in m1.partition_responses:
        n3 = len(m2.record_errors) + 1
        out += run4(m2.index, m2.error_code, ..., n3 if n3 < 128 else n3 & 127 | 128)
        ...

Rules that the generated code keeps:

* A count or length is compared with the bytes that are left before anything is allocated for it.
* The elements of all arrays of a message are counted together, and so are tagged fields: an element that takes one byte
  costs a hundred in memory and up to a microsecond, so bytes alone do not bound the work.
* Reading past the end is an exception of ``struct`` or of indexing, turned into ``DecodeError`` once, around all of it.
* ``records`` are views into the frame; they are not copied on the way in nor (above a small size) on the way out.
* Encoding checks nothing on the way: when it fails, ``oncelog.protocol.blame`` looks for the field to name in
  ``EncodeError``.
* The elements of a ``SharedList`` are encoded for the first message that holds it, and not copied into the others.
* Tagged fields with their default value are left out; unknown ones are stepped over.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from struct import Struct, calcsize, unpack_from
from struct import error as StructError
from typing import Any, Final, Protocol, TypeVar

from oncelog.protocol.blame import encode_error
from oncelog.protocol.primitives import (
    FIXED,
    MAX_STRING_BYTES,
    DecodeError,
    bad_length,
    bad_tag,
    encode_uvarint,
    finish_tag_count,
    finish_uvarint,
    put_records,
    put_shared,
    read_tag,
    skip_tags,
    too_many_elements,
)
from oncelog.protocol.schema import Buffer, Field, Kind, Message, MessageType, SharedList, layout

M = TypeVar("M", bound=Message)
M_contra = TypeVar("M_contra", bound=Message, contravariant=True)
M_co = TypeVar("M_co", bound=Message, covariant=True)

UNLIMITED_ELEMENTS: Final = 1 << 62


class Decoder(Protocol[M_co]):
    """Reads a message at a position and returns it with the position after it; raises ``DecodeError``.

    ``max_elements`` bounds the array elements and tagged fields of the whole message, at every depth together.
    """

    def __call__(
        self, buffer: Buffer, position: int, max_elements: int = UNLIMITED_ELEMENTS, /
    ) -> tuple[M_co, int]: ...


class Encoder(Protocol[M_contra]):
    """Appends a message to ``start`` (or begins anew) and returns the buffers that hold all of it."""

    def __call__(self, message: M_contra, start: bytearray | None = None) -> list[Buffer]: ...


def decoder(cls: type[M], version: int) -> Decoder[M]:
    """The function from (buffer, position) to (message, position after it); it raises ``DecodeError``."""
    try:
        return cls._decoders[version]
    except KeyError:
        return cls._decoders.setdefault(version, DecoderSource(cls, version).compile())


def encoder(cls: type[M], version: int) -> Encoder[M]:
    """The function from a message to the buffers of its encoding; it raises ``EncodeError``."""
    try:
        return cls._encoders[version]
    except KeyError:
        return cls._encoders.setdefault(version, EncoderSource(cls, version).compile())


def decode(cls: type[M], version: int, buffer: Buffer) -> M:
    """The message at the start of ``buffer``; as in Kafka, bytes after it are ignored."""
    return decoder(cls, version)(buffer, 0)[0]


def encode(message: Message, version: int) -> bytes:
    """The message's encoding in one piece."""
    return b"".join(encoder(type(message), version)(message))


BYTES_PER_UNIT: Final = 1_024
"""What is copied in about a microsecond, or less."""
NUMBERS_PER_UNIT: Final = 64
FIELDS_PER_UNIT: Final = 4
_BATCHED: Final = frozenset(FIXED) - {Kind.UUID}
"""Kinds of which a whole array is one ``struct`` call."""


class _Source:
    """Source text under construction: lines, the objects they name, and a run of fixed-width fields still to write."""

    def __init__(self, cls: MessageType, version: int) -> None:
        if version not in cls.versions:
            raise ValueError(f"{cls.__name__} has no version {version}")
        self.cls = cls
        self.version = version
        self.flexible = version in cls.flexible
        self.names: dict[str, Any] = {}
        self._lines: list[str] = []
        self._indent = 1
        self._run: list[tuple[str, str]] = []
        self._serial = 0

    def line(self, text: str) -> None:
        self._lines.append("    " * self._indent + text)

    @contextmanager
    def block(self, header: str) -> Iterator[None]:
        """Indent what is written inside; no run of fields crosses a block's border."""
        self.flush()
        self.line(header)
        self._indent += 1
        yield
        self.flush()
        self._indent -= 1

    def fresh(self, prefix: str) -> str:
        """A variable name not used before."""
        self._serial += 1
        return f"{prefix}{self._serial}"

    def constant(self, prefix: str, value: object) -> str:
        """A name for an object that the function refers to."""
        name = self.fresh(prefix)
        self.names[name] = value
        return name

    def literal(self, value: object) -> str:
        """An expression for a field's default."""
        if value is None or isinstance(value, (bool, int, str)):
            return repr(value)
        return self.constant("default", value)

    def fixed(self, code: str, expression: str) -> None:
        """Add a fixed-width field to the run: the target that it is read into, or the value that is written."""
        self._run.append((code, expression))

    def flush(self) -> None:
        """Write the run as one call."""
        if self._run:
            run, self._run = self._run, []
            self.emit_run("".join(code for code, _ in run), [expression for _, expression in run])

    def emit_run(self, codes: str, expressions: list[str]) -> None:
        raise NotImplementedError

    def compact(self, field: Field) -> bool:
        return self.flexible if field.flexible is None else self.version in field.flexible

    def nullable(self, field: Field) -> bool:
        return self.version in field.nullable

    def compile_function(self, name: str, parameters: str) -> Any:
        source = f"def {name}({parameters}):\n" + "\n".join(self._lines)
        exec(compile(source, f"<{name} {self.cls.__name__} v{self.version}>", "exec"), self.names)
        return self.names[name]


class DecoderSource(_Source):
    """Variables of the generated function.

    b buffer, p position, end; e elements still allowed; n length or count; q end of a value; t tags.
    """

    parameters = f"b, p, e={UNLIMITED_ELEMENTS}"

    def compile(self) -> Any:
        self.names |= {
            "new": object.__new__,
            "unpack_from": unpack_from,
            "StructError": StructError,
            "DecodeError": DecodeError,
            "bad_length": bad_length,
            "bad_tag": bad_tag,
            "too_many_elements": too_many_elements,
            "finish_uvarint": finish_uvarint,
            "finish_tag_count": finish_tag_count,
            "read_tag": read_tag,
            "skip_tags": skip_tags,
        }
        title = f"{self.cls.__name__} v{self.version}"
        self.line("if b.__class__ is not memoryview: b = memoryview(b)")
        self.line("end = len(b)")
        with self.block("try:"):
            message = self.structure(self.cls)
            self.flush()
            self.line(f"return {message}, p")
        self.line("except (StructError, IndexError):")
        self.line(f"    raise DecodeError({f'{title} ends before its last field'!r}) from None")
        self.line("except UnicodeDecodeError:")
        self.line(f"    raise DecodeError({f'{title} holds a string that is not UTF-8'!r}) from None")
        return self.compile_function("decode", self.parameters)

    def pause(self) -> None:
        """Count an element, and pause when enough is done, where that is done (``oncelog.protocol.sliced_decoder``)."""

    def emit_run(self, codes: str, expressions: list[str]) -> None:
        if codes == "B":
            self.line(f"{expressions[0]} = b[p]; p += 1")
            return
        run = self.constant("run", Struct(">" + codes).unpack_from)
        targets = ", ".join(expressions) + ("," if len(expressions) == 1 else "")
        self.line(f"{targets} = {run}(b, p); p += {calcsize('>' + codes)}")

    def structure(self, cls: MessageType) -> str:
        """Read a structure into a new variable and return its name."""
        variable = self.fresh("m")
        self.line(f"{variable} = new({self.constant('T', cls)})")
        shape = layout(cls, self.version)
        for field in (*shape.absent, *shape.tagged):
            self.line(f"{variable}.{field.name} = {self.default(field)}")
        for field in shape.regular:
            self.value(field, f"{variable}.{field.name}", f"{cls.__name__}.{field.name}")
        if self.flexible:
            self.tags(shape.tagged, variable, cls.__name__)
        return variable

    def default(self, field: Field) -> str:
        if field.default_factory is list:
            return "[]"
        if field.default_factory is not None:
            return self.constant("make", field.default_factory) + "()"
        return self.literal(field.default)

    def tags(self, tagged: tuple[Field, ...], variable: str, owner: str) -> None:
        self.fixed("B", "t")
        with self.block("if t:"):
            self.charge("t", owner)  # A count that needs a second byte is charged 128 or more, and allowed no more.
            if not tagged:
                self.line("p = skip_tags(b, p, t, end)")
                return
            self.line("if t > 127: t, p = finish_tag_count(b, p, t)")
            stop = self.fresh("q")
            with self.block("for _ in range(t):"):
                self.line(f"t, p, {stop} = read_tag(b, p, end)")
                for field in tagged:
                    with self.block(f"if t == {field.tag}:"):
                        self.value(field, f"{variable}.{field.name}", f"{owner}.{field.name}")
                        self.flush()
                        self.line(f"if p != {stop}: raise bad_tag({f'{owner}.{field.name}'!r})")
                        self.line("continue")
                self.line(f"p = {stop}")

    def value(self, field: Field, target: str, path: str) -> None:
        """Read one field into ``target``."""
        match field.kind:
            case Kind.STRING | Kind.BYTES | Kind.RECORDS:
                self.blob(field, target, path)
            case Kind.ARRAY:
                self.array(field, target, path)
            case Kind.STRUCT:
                self.nested(field, target)
            case _:
                self.fixed(FIXED[field.kind], target)

    def length(self, field: Field, path: str) -> None:
        """Read a length or count into n, -1 for null."""
        if not self.compact(field):
            self.fixed("h" if field.kind is Kind.STRING else "i", "n")
            self.flush()
            return
        self.fixed("B", "n")
        self.flush()
        with self.block("if n > 127:"):
            self.line("n, p = finish_uvarint(b, p, n)")
            if field.kind is Kind.STRING:
                self.line(f"if n > {MAX_STRING_BYTES + 1}: raise bad_length({path!r}, n - 1, end - p)")
        self.line("n -= 1")

    @contextmanager
    def unless_null(self, field: Field, target: str, too_long: str, path: str) -> Iterator[None]:
        """Refuse a bad n; write what reads a value that is not null inside."""
        if not self.nullable(field):
            self.line(f"if n < 0 or {too_long}: raise bad_length({path!r}, n, end - p)")
            yield
            return
        self.line(f"if n < 0: {target} = None")
        with self.block("else:"):
            self.line(f"if {too_long}: raise bad_length({path!r}, n, end - p)")
            yield

    def charge(self, count: str, path: str) -> None:
        """Take elements from those that the message may still have."""
        self.line(f"e -= {count}")
        self.line(f"if e < 0: raise too_many_elements({path!r})")

    def blob(self, field: Field, target: str, path: str) -> None:
        self.length(field, path)
        convert = {Kind.STRING: "str(b[p:q], 'utf-8')", Kind.BYTES: "bytes(b[p:q])", Kind.RECORDS: "b[p:q]"}[field.kind]
        with self.unless_null(field, target, "n > end - p", path):
            self.line("q = p + n")
            self.line(f"{target} = {convert}")
            self.line("p = q")

    def array(self, field: Field, target: str, path: str) -> None:
        self.length(field, path)
        element = field.element
        assert element is not None
        size = self.least_size(element)
        with self.unless_null(field, target, f"n * {size} > end - p" if size > 1 else "n > end - p", path):
            self.charge("n", path)
            if element.kind in _BATCHED:
                self.numbers(FIXED[element.kind], target, size)
            else:
                self.elements(element, target, path)

    def numbers(self, code: str, target: str, size: int) -> None:
        self.line(f"{target} = list(unpack_from(f'>{{n}}{code}', b, p)); p += n * {size}")

    def elements(self, element: Field, target: str, path: str) -> None:
        add = self.fresh("add")
        self.line(f"{target} = values = []")
        self.line(f"{add} = values.append")
        with self.block("for _ in range(n):"):
            self.pause()
            if element.struct is not None:
                self.line(f"{add}({self.structure(element.struct)})")
            else:
                self.value(element, "value", f"{path}[]")
                self.flush()
                self.line(f"{add}(value)")

    def nested(self, field: Field, target: str) -> None:
        assert field.struct is not None
        if not self.nullable(field):
            self.line(f"{target} = {self.structure(field.struct)}")
            return
        self.fixed("b", "n")
        self.flush()
        self.line(f"if n < 0: {target} = None")
        with self.block("else:"):
            self.line(f"{target} = {self.structure(field.struct)}")

    def least_size(self, field: Field) -> int:
        """The fewest bytes that a value of this field takes, at least 1."""
        match field.kind:
            case Kind.STRING:
                return 1 if self.compact(field) else 2
            case Kind.BYTES | Kind.RECORDS | Kind.ARRAY:
                return 1 if self.compact(field) else 4
            case Kind.STRUCT:
                assert field.struct is not None
                regular = layout(field.struct, self.version).regular
                return max(1, sum(self.least_size(inner) for inner in regular) + self.flexible)
            case _:
                return calcsize(">" + FIXED[field.kind])


class EncoderSource(_Source):
    """Variables of the generated function: out, the bytes so far; parts, the buffers before them; n a length."""

    parameters = "message, out=None"

    def compile(self) -> Any:
        self.names |= {
            "StructError": StructError,
            "encode_error": encode_error,
            "encode_uvarint": encode_uvarint,
            "put_records": put_records,
            "put_shared": put_shared,
            "SharedList": SharedList,
        }
        self.line("if out is None: out = bytearray()")
        self.line("parts = []")
        with self.block("try:"):
            self.structure(self.cls, "message")
            self.flush()
            self.line("if out: parts.append(out)")
            self.line("return parts")
        self.line("except (StructError, AttributeError, TypeError, ValueError) as error:")
        self.line(f"    raise encode_error(message, {self.version}, error) from error")
        return self.compile_function("encode", self.parameters)

    def count(self, units: str, *, indent: int = 0) -> None:
        """Count the work of what is written next, where that is done (``oncelog.protocol.sliced_encoder``)."""

    def pause(self) -> None:
        """Pause when enough is done, where that is done."""

    def emit_run(self, codes: str, expressions: list[str]) -> None:
        if codes == "B":  # The length of a short string, or the end of a structure without tags.
            self.line(f"out.append({expressions[0]})")
            return
        run = self.constant("run", Struct(">" + codes).pack)
        self.line(f"out += {run}({', '.join(expressions)})")

    def structure(self, cls: MessageType, variable: str) -> None:
        shape = layout(cls, self.version)
        for field in shape.regular:
            self.value(field, f"{variable}.{field.name}")
        if self.flexible:
            self.tags(shape.tagged, variable)

    def tags(self, tagged: tuple[Field, ...], variable: str) -> None:
        if not tagged:
            self.fixed("B", "0")
            return
        present = [self.differs(field, f"{variable}.{field.name}") for field in tagged]
        count = self.fresh("t")
        self.line(f"{count} = {' + '.join(f'({condition})' for condition in present)}")
        self.fixed("B", count)
        with self.block(f"if {count}:"):
            for field, condition in zip(tagged, present, strict=True):
                with self.block(f"if {condition}:"):
                    self.tagged_value(field, f"{variable}.{field.name}")

    def differs(self, field: Field, source: str) -> str:
        """The condition under which a tagged field must be written."""
        if field.default_factory is list:
            return f"{source} is None or len({source}) > 0" if self.nullable(field) else f"len({source}) > 0"
        if field.default is None and field.struct is not None:
            default = self.constant("default", field.struct())
            return f"{source} is not None and {source} != {default}"
        if field.default is None:
            return f"{source} is not None"
        if field.default is False:
            return f"{source} is True"
        return f"{source} != {self.literal(field.default)}"

    def tagged_value(self, field: Field, source: str) -> None:
        """Write tag, size and value; the size is known only after the value."""
        assert field.tag is not None
        assert field.kind is not Kind.RECORDS  # They may become parts of their own, whose size is not in ``out``.
        outer = self.fresh("outer")
        self.line(f"{outer} = out")
        self.line("out = bytearray()")
        self.value(field, source)
        self.flush()
        tag = self.constant("tag", encode_uvarint(field.tag))
        self.line(f"{outer} += {tag} + encode_uvarint(len(out)) + out")
        self.line(f"out = {outer}")

    def value(self, field: Field, source: str) -> None:
        """Write one field from the expression ``source``."""
        match field.kind:
            case Kind.STRING:
                self.text(field, source)
            case Kind.BYTES:
                self.blob(field, source)
            case Kind.RECORDS:
                self.records(field, source)
            case Kind.ARRAY:
                self.array(field, source)
            case Kind.STRUCT:
                self.nested(field, source)
            case _:
                self.fixed(FIXED[field.kind], source)

    def length(self, field: Field, expression: str) -> None:
        """Write a length or count, where -1 stands for null."""
        if not self.compact(field):
            self.fixed("h" if field.kind is Kind.STRING else "i", expression)
            self.flush()
            return
        size = self.fresh("n")
        self.line(f"{size} = {expression} + 1")
        self.fixed("B", f"{size} if {size} < 128 else {size} & 127 | 128")
        self.flush()
        with self.block(f"if {size} > 127:"):
            if field.kind is Kind.STRING:
                self.line(f"if {size} > {MAX_STRING_BYTES + 1}: raise ValueError('too long')")
            self.line(f"out += encode_uvarint({size} >> 7)")

    def text(self, field: Field, source: str) -> None:
        encoded = self.fresh("s")
        if self.nullable(field):
            self.line(f"{encoded} = None if {source} is None else {source}.encode()")
            self.length_and_bytes(field, encoded, nullable=True)
        else:
            self.line(f"{encoded} = {source}.encode()")
            self.length_and_bytes(field, encoded, nullable=False)

    def blob(self, field: Field, source: str) -> None:
        data = self.fresh("s")
        self.line(f"{data} = {source}")
        self.length_and_bytes(field, data, nullable=self.nullable(field))

    def length_and_bytes(self, field: Field, data: str, *, nullable: bool) -> None:
        self.count(f"len({data} or ()) // {BYTES_PER_UNIT}")
        if nullable:
            self.length(field, f"(-1 if {data} is None else len({data}))")
            self.line(f"if {data}: out += {data}")
        else:
            self.length(field, f"len({data})")
            self.line(f"out += {data}")

    def records(self, field: Field, source: str) -> None:
        data, size = self.fresh("s"), self.fresh("z")
        self.line(f"{data} = {source}")
        measured = f"sum(map(len, {data})) if {data}.__class__ is list else len({data})"
        null = f"-1 if {data} is None else " if self.nullable(field) else ""
        self.line(f"{size} = {null}{measured}")
        self.length(field, size)
        self.line(f"if {size} > 0: out = put_records(parts, out, {data}, {size})")

    def array(self, field: Field, source: str) -> None:
        element = field.element
        assert element is not None
        values = self.fresh("v")
        self.line(f"{values} = {source}")
        null = f"-1 if {values} is None else " if self.nullable(field) else ""
        self.length(field, f"({null}len({values}))")
        if element.kind in _BATCHED:
            pack = self.constant("pack", _packer(FIXED[element.kind]))
            self.count(f"len({values} or ()) // {NUMBERS_PER_UNIT}")
            self.line(f"if {values}: out += {pack}({values})")
            return
        if field.shared:
            self.line(f"if {values}.__class__ is SharedList:")
            encode_all = self.constant("encode_all", _ElementsSource(self.cls, self.version).compile_elements(field))
            self.count(f"0 if {self.version} in {values}.encodings else len({values})", indent=1)
            self.line(f"    out = put_shared(parts, out, {values}, {self.version}, {encode_all})")
            self.line(f"    {values} = ()")
        self.elements(field, values, or_none=bool(null))

    def width(self, element: Field) -> int:
        """How many fields an element of an array has."""
        return 1 if element.struct is None else len(layout(element.struct, self.version).regular)

    def elements(self, field: Field, values: str, *, or_none: bool = False) -> None:
        """Write the elements of an array, without their count."""
        element = field.element
        assert element is not None
        item = self.fresh("m")
        with self.block(f"for {item} in {values}{' or ()' if or_none else ''}:"):
            self.count(f"{1 + self.width(element) // FIELDS_PER_UNIT}")
            self.pause()
            if element.struct is not None:
                self.structure(element.struct, item)
            else:
                self.value(element, item)

    def nested(self, field: Field, source: str) -> None:
        assert field.struct is not None
        inner = self.fresh("m")
        self.line(f"{inner} = {source}")
        if not self.nullable(field):
            if field.default is None and field.default_factory is None:
                default = self.constant("default", field.struct())
                self.line(f"if {inner} is None: {inner} = {default}")
            self.structure(field.struct, inner)
            return
        self.fixed("b", f"-1 if {inner} is None else 1")
        with self.block(f"if {inner} is not None:"):
            self.structure(field.struct, inner)


class _ElementsSource(EncoderSource):
    """The function from the list of an array of structures to the encoding of its elements."""

    def compile_elements(self, field: Field) -> Callable[[list[Any]], bytearray]:
        self.names["encode_uvarint"] = encode_uvarint
        self.line("out = bytearray()")
        self.elements(field, "values")
        self.flush()
        self.line("return out")
        function: Callable[[list[Any]], bytearray] = self.compile_function("encode_elements", "values")
        return function


def _packer(code: str) -> Callable[[list[Any]], bytes]:
    def pack_all(values: list[Any]) -> bytes:
        return Struct(f">{len(values)}{code}").pack(*values)

    return pack_all
