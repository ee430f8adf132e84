"""Lines of text as records: where they end, and what is key and value in them. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass

from protocol.records.record_batch import NewRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class LineFormat:
    """How a line becomes a record."""

    key: bytes | None
    key_separator: bytes | None
    headers: tuple[tuple[str, bytes], ...]
    empty_is_null: bool

    def record(self, line: bytes, now_ms: int) -> NewRecord:
        key, value = self.key, line
        if self.key_separator is not None:
            before, separator, after = line.partition(self.key_separator)
            if separator:
                key, value = before, after
        return NewRecord(now_ms, key, None if self.empty_is_null and not value else value, self.headers)


class LineSplitter:
    """Cuts what was read into lines; the last one may go on in the next read."""

    __slots__ = ("_rest",)

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[bytes]:
        *lines, self._rest = (self._rest + data).split(b"\n")
        return [line.removesuffix(b"\r") for line in lines]

    def finish(self) -> Iterator[bytes]:
        """The last line, if the input did not end with a line's end."""
        if self._rest:
            yield self._rest.removesuffix(b"\r")
