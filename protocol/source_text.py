"""Source text of a codec under construction: lines, the objects that they name, and runs of fixed-width fields."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from oncelog.protocol.primitives import FIXED
from oncelog.protocol.schema import Field, Kind, MessageType

BATCHED: Final = frozenset(FIXED) - {Kind.UUID}
"""Kinds of which a whole array is one ``struct`` call."""


class SourceText:
    """The text of one function for one version of a message, and the run of fixed-width fields not yet written."""

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
        """Return a variable name not used before."""
        self._serial += 1
        return f"{prefix}{self._serial}"

    def constant(self, prefix: str, value: object) -> str:
        """Return a name for an object that the function refers to."""
        name = self.fresh(prefix)
        self.names[name] = value
        return name

    def literal(self, value: object) -> str:
        """Return an expression for a field's default."""
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
