"""The file format of histories: JSON Lines, a header line and then one line for each operation. Pure.

The reference page ``docs/reference/history-format.md`` describes it. The lines of one file may be in any order. A line
with an ``id`` replaces an earlier one of the same process and id: a client that may be killed writes an operation as
``info`` before its first request, and again with what became of it.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, NoReturn, TypeAlias, TypeVar

from oncelog.clients.history.operation import Kind, Operation, Outcome, Read, Send

FORMAT: Final = "oncelog-history"
VERSION: Final = 1
_HEADER: Final = f'{{"format": "{FORMAT}", "version": {VERSION}}}'
_MOST: Final = (1 << 63) - 1
"""The highest offset, and the latest time."""
_KNOWN: Final = frozenset(
    {"id", "process", "op", "outcome", "start", "end", "sends", "reads", "partitions", "moved", "positions", "error"}
)
_WRITERS: Final = frozenset({Kind.SEND, Kind.TXN})
_READERS: Final = frozenset({Kind.POLL, Kind.TXN, Kind.FINAL})
_WITH_PARTITIONS: Final = frozenset({Kind.ASSIGN, Kind.SUBSCRIBE, Kind.FINAL})
_WITH_POSITIONS: Final = frozenset({Kind.TXN, Kind.FINAL})

E = TypeVar("E", bound=Enum)
_Identity: TypeAlias = tuple[str, str | int]
"""Process and id."""


@dataclass(slots=True)
class MalformedHistory(Exception):
    """A line that is no part of a history."""

    origin: str
    """File and line."""
    problem: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.origin}: {self.problem}"


def header_line() -> str:
    """Return the first line of a file."""
    return _HEADER


def read_operations(lines: Iterable[bytes | str], name: str) -> Iterator[Operation]:
    """Yield the operations of a file. ``name`` is the file's, for errors. Raises ``MalformedHistory``."""
    return read_files([(name, lines)])


def read_files(files: Iterable[tuple[str, Iterable[bytes | str]]]) -> Iterator[Operation]:
    """Yield the operations of a history that has several files, each with its name. Raises ``MalformedHistory``.

    Lines of one process and id may be in different files, in any order: one that says ``info`` replaces none that says
    what became of the operation.
    """
    latest: dict[_Identity, Operation] = {}
    for name, lines in files:
        yield from _read(lines, name, latest)
    yield from latest.values()


def _read(lines: Iterable[bytes | str], name: str, latest: dict[_Identity, Operation]) -> Iterator[Operation]:
    """Yield the operations without an id, and put the others into ``latest``."""
    numbered = enumerate(lines, start=1)
    number, first = next(numbered, (1, b""))
    _check_header(_Line(f"{name}, line {number}", first))
    for number, text in numbered:
        if not text.strip():
            continue
        line = _Line(f"{name}, line {number}", text)
        operation = line.operation()
        identity = line.identity()
        if identity is None:
            yield operation
            continue
        former = latest.get((operation.process, identity))
        if former is None or former.outcome is Outcome.INFO or operation.outcome is not Outcome.INFO:
            latest[operation.process, identity] = operation


def _check_header(line: "_Line") -> None:
    if line.fields.get("format") != FORMAT:
        line.refuse("this is no header of a history", f"Begin the file with the line {_HEADER}")
    if line.fields.get("version") != VERSION:
        line.refuse(
            f"version {line.fields.get('version')!r} of the format is unknown", f"This program reads version {VERSION}."
        )


class _Line:
    """One line, and its fields as they are taken out and checked."""

    __slots__ = ("_origin", "fields")

    def __init__(self, origin: str, text: bytes | str) -> None:
        self._origin = origin
        try:
            fields = json.loads(text)
        except (ValueError, RecursionError) as error:
            self.refuse(
                f"this is no JSON: {error}",
                "Write one JSON object a line. If the recorder was killed in its last line, remove that line.",
            )
        if not isinstance(fields, dict):
            self.refuse("this is no JSON object", "Write one JSON object a line.")
        self.fields: dict[str, Any] = fields

    def refuse(self, problem: str, remedy: str) -> NoReturn:
        """Raise ``MalformedHistory`` for this line."""
        raise MalformedHistory(self._origin, problem, remedy)

    def identity(self) -> str | int | None:
        """Return the ``id``, if the line has one."""
        identity = self.fields.get("id")
        if identity is not None and not isinstance(identity, str | int):
            self.refuse(f"id is {identity!r}", "Use a text or a number that identifies the operation in its process.")
        return identity

    def operation(self) -> Operation:
        """Return the operation of this line."""
        if unknown := self.fields.keys() - _KNOWN:
            self.refuse(f"unknown field {min(unknown)!r}", f"The fields are {', '.join(sorted(_KNOWN))}.")
        kind = self._member(Kind, "op")
        start = self._time("start", self.fields.get("start"))
        end = self.fields.get("end")
        operation = Operation(
            process=self._process(),
            kind=kind,
            outcome=self._member(Outcome, "outcome"),
            start=start,
            end=None if end is None else self._time("end", end),
            sends=self._records("sends", self._send, _WRITERS, kind),
            reads=self._records("reads", self._read, _READERS, kind),
            partitions=self._names("partitions", kind),
            moved=self._names("moved", None),
            positions=self._positions(kind),
            error=self._text("error", self.fields.get("error", "")),
            origin=self._origin,
        )
        self._check_together(operation)
        return operation

    def _check_together(self, operation: Operation) -> None:
        if operation.end is not None and operation.end < operation.start:
            self.refuse("end is before start", "Take both from one clock that does not go back.")
        if operation.end is None and operation.outcome is Outcome.OK:
            self.refuse("the operation is ok, and has no end", "Add its end, or use the outcome info.")
        if operation.kind is Kind.FINAL:
            if operation.outcome is not Outcome.OK:
                self.refuse("a final read is not ok", "Repeat the read until it is whole; leave out what was not.")
            if strays := {read.partition for read in operation.reads} - {*operation.partitions}:
                self.refuse(
                    f"a final read has records of {min(strays)!r}, which is not among its partitions",
                    "List in partitions all that it read to the end, the empty ones as well.",
                )

    def _process(self) -> str:
        process = self.fields.get("process")
        if isinstance(process, bool) or not isinstance(process, str | int):
            self.refuse(f"process is {process!r}", "Use a text or a number for each client that works by itself.")
        return str(process)

    def _member(self, kind: type[E], name: str) -> E:
        try:
            return kind(self.fields.get(name))
        except ValueError:
            choices = ", ".join(str(member.value) for member in kind)
            self.refuse(f"{name} is {self.fields.get(name)!r}", f"Use one of {choices}.")

    def _time(self, name: str, value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not -_MOST <= value <= _MOST:
            self.refuse(f"{name} is {value!r}", "Use a whole number of nanoseconds.")
        return int(value)

    def _text(self, name: str, value: Any) -> str:
        if not isinstance(value, str):
            self.refuse(f"{name} has {value!r}", "Use a text.")
        return value

    def _offset(self, name: str, value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _MOST:
            self.refuse(f"{name} has the offset {value!r}", "Use a whole number from 0.")
        return int(value)

    def _records(self, name: str, record: Callable[[Any], Any], kinds: frozenset[Kind], kind: Kind) -> tuple[Any, ...]:
        records = self._list(name)
        if records and kind not in kinds:
            allowed = ", ".join(sorted(each.value for each in kinds))
            self.refuse(f"{name} in {kind.value!r}", f"Only these operations have {name}: {allowed}.")
        return tuple(record(each) for each in records)

    def _list(self, name: str) -> list[Any]:
        found = self.fields.get(name, [])
        if not isinstance(found, list):
            self.refuse(f"{name} is no list", f"Use a JSON array for {name}.")
        return found

    def _send(self, parts: Any) -> Send:
        partition, offset, value = self._triple("sends", parts)
        return Send(partition, None if offset is None else self._offset("sends", offset), value)

    def _read(self, parts: Any) -> Read:
        partition, offset, value = self._triple("reads", parts)
        return Read(partition, self._offset("reads", offset), value)

    def _triple(self, name: str, parts: Any) -> tuple[str, Any, str]:
        if not isinstance(parts, list) or len(parts) != 3:
            self.refuse(f"{name} has {parts!r}", "Use [partition, offset, value] for each record.")
        partition, offset, value = parts
        return self._text(name, partition), offset, self._text(name, value)

    def _names(self, name: str, kind: Kind | None) -> tuple[str, ...]:
        names = self._list(name)
        if names and kind is not None and kind not in _WITH_PARTITIONS:
            self.refuse(f"{name} in {kind.value!r}", "Only assign, final and subscribe have partitions.")
        return tuple(self._text(name, each) for each in names)

    def _positions(self, kind: Kind) -> Mapping[str, Mapping[str, int]]:
        found = self.fields.get("positions")
        if found is None:
            return _NO_POSITIONS
        if kind not in _WITH_POSITIONS:
            self.refuse(f"positions in {kind.value!r}", "Only final and txn have positions.")
        if not isinstance(found, dict) or not all(isinstance(each, dict) for each in found.values()):
            self.refuse("positions is malformed", 'Use {"group": {"partition": offset}}.')
        return {
            group: {partition: self._offset("positions", offset) for partition, offset in each.items()}
            for group, each in found.items()
        }


_NO_POSITIONS: Final[Mapping[str, Mapping[str, int]]] = {}


def operation_line(operation: Operation) -> str:
    """Return the line of an operation, without its end."""
    fields: dict[str, Any] = {
        "process": operation.process,
        "op": operation.kind.value,
        "outcome": operation.outcome.value,
        "start": operation.start,
        "end": operation.end,
        "sends": operation.sends,
        "reads": operation.reads,
        "partitions": operation.partitions,
        "moved": operation.moved,
        "positions": operation.positions,
        "error": operation.error,
    }
    return json.dumps({name: value for name, value in fields.items() if value or value == 0})
