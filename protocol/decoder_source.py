"""The source text of a decoder (see ``oncelog.protocol.compiler``)."""

from collections.abc import Iterator
from contextlib import contextmanager
from struct import Struct, calcsize, unpack_from
from struct import error as StructError
from typing import Any, Final

from oncelog.protocol.primitives import (
    FIXED,
    MAX_STRING_BYTES,
    DecodeError,
    bad_length,
    bad_tag,
    finish_tag_count,
    finish_uvarint,
    read_tag,
    skip_tags,
    too_many_elements,
)
from oncelog.protocol.schema import Field, Kind, MessageType, layout
from oncelog.protocol.source_text import BATCHED, SourceText

UNLIMITED_ELEMENTS: Final = 1 << 62


class DecoderSource(SourceText):
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
            if element.kind in BATCHED:
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
        """Return the fewest bytes that a value of this field takes, at least 1."""
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
