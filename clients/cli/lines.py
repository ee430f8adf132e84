"""Lines of text as records: where they end, and what is key and value in them. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass

from oncelog.clients.errors import ClientError
from oncelog.protocol.records.record_batch import NewRecord


class SeparatorMissing(ClientError):
    """A line without the text between key and value, and no key for such lines."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LineFormat:
    """How a line becomes a record."""

    key: bytes | None
    key_separator: bytes | None
    headers: tuple[tuple[str, bytes], ...]
    empty_is_null: bool

    def record(self, line: bytes, now_ms: int) -> NewRecord:
        """Return the record of a line. Raises ``SeparatorMissing``."""
        key, value = self.key, line
        if self.key_separator is not None:
            before, separator, after = line.partition(self.key_separator)
            if separator:
                key, value = before, after
            elif key is None:
                raise SeparatorMissing(f"it has no key separator {self.key_separator.decode()!r}")
        return NewRecord(now_ms, key, None if self.empty_is_null and not value else value, self.headers)


class LineTooLong(ValueError):
    """A line of more bytes than any record may have."""


class LineSplitter:
    """Cuts what was read into lines; the last one may go on in the next read. Copies each byte a few times at most."""

    __slots__ = ("_longest_bytes", "_parts", "_size")

    def __init__(self, longest_bytes: int) -> None:
        self._longest_bytes = longest_bytes
        self._parts: list[bytes] = []
        """The beginning of a line whose end has not been read."""
        self._size = 0

    def feed(self, data: bytes) -> list[bytes]:
        """Return the lines that are whole now, without their ends. Raises ``LineTooLong``."""
        first, *others = data.split(b"\n")
        self._parts.append(first)
        self._size += len(first)
        if self._size > self._longest_bytes:
            raise LineTooLong(f"a line has more than {self._longest_bytes} bytes")
        if not others:
            return []
        lines = [b"".join(self._parts), *others[:-1]]
        self._parts = [others[-1]]
        self._size = len(others[-1])
        return [line.removesuffix(b"\r") for line in lines]

    def finish(self) -> Iterator[bytes]:
        """Return the last line, if the input did not end with a line feed."""
        if rest := b"".join(self._parts):
            yield rest.removesuffix(b"\r")
