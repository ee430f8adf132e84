"""The source text of an encoder (see ``oncelog.protocol.compiler``)."""

from collections.abc import Callable
from struct import Struct
from struct import error as StructError
from typing import Any, Final

from oncelog.protocol.blame import encode_error
from oncelog.protocol.primitives import FIXED, MAX_STRING_BYTES, encode_uvarint, put_records, put_shared
from oncelog.protocol.schema import Field, Kind, MessageType, SharedList, layout
from oncelog.protocol.source_text import BATCHED, SourceText

BYTES_PER_UNIT: Final = 1_024
"""Copied in about a microsecond, or less."""
NUMBERS_PER_UNIT: Final = 64
FIELDS_PER_UNIT: Final = 4


class EncoderSource(SourceText):
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
        """Return the condition under which a tagged field must be written."""
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
        if element.kind in BATCHED:
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
        """Return how many fields an element of an array has."""
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
