"""The chain of an audit log: each line has a seal that depends on all lines before it.

A line is one object of JSON, and ends with ``"seal"``: SHA-256, in hexadecimal, of the seal before and of the line's
text up to its own. So no line can be changed, removed or put in without all later seals being wrong. With a key the
seal is an HMAC: without the key, later seals cannot be made right either. Lines at the end can be removed without a
trace in the file, which is why brokers write the last seal to their own log from time to time.
"""

import hashlib
import hmac
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

_GENESIS: Final = "0" * 64
_SEALED: Final = re.compile(rb'(\{"line":(\d+),.*),"seal":"([0-9a-f]{64})"\}')
LINE_START: Final = b'{"line":'
"""How every line begins."""
MIN_KEY_BYTES: Final = 16
_MOST_PROBLEMS: Final = 20


class Head(NamedTuple):
    """The last line of a chain."""

    line: int
    """Its number, from 1; 0 of an empty chain."""
    seal: str


EMPTY: Final = Head(0, _GENESIS)


class AuditChain:
    """The end of a chain, to which lines are added."""

    def __init__(self, key: bytes | None, head: Head = EMPTY) -> None:
        self._key = key
        self.head = head

    def add(self, fields: Mapping[str, Any]) -> bytes:
        """Return the next line, sealed, with its line break."""
        number = self.head.line + 1
        text = json.dumps({"line": number, **fields}, separators=(",", ":"), ensure_ascii=True)
        body = text[:-1].encode()
        self.head = Head(number, _seal(self._key, self.head.seal, body))
        return b'%s,"seal":"%s"}\n' % (body, self.head.seal.encode())


def parse_line(line: bytes) -> tuple[bytes, Head] | None:
    """Return what a line's seal is about, and its own place in the chain; None if it is no line of an audit log."""
    match = _SEALED.fullmatch(line)
    return None if match is None else (match[1], Head(int(match[2]), match[3].decode()))


def _seal(key: bytes | None, before: str, body: bytes) -> str:
    data = before.encode() + body
    return hashlib.sha256(data).hexdigest() if key is None else hmac.digest(key, data, "sha256").hex()


@dataclass(slots=True)
class Verdict:
    """What is wrong with an audit log; nothing, if there are no problems."""

    head: Head = EMPTY
    lines: int = 0
    problems: list[str] = field(default_factory=list)
    unlisted: int = 0
    """Problems beyond those that are listed."""

    def add(self, problem: str) -> None:
        if len(self.problems) < _MOST_PROBLEMS:
            self.problems.append(problem)
        else:
            self.unlisted += 1


def verify(lines: Iterable[bytes], key: bytes | None, expected: Head | None = None) -> Verdict:
    """Judge a whole log. ``expected`` is a line that is known to have been written, from a broker's own log."""
    verdict = Verdict()
    for place, line in _numbered(lines):
        verdict.lines = place
        parsed = parse_line(line)
        if parsed is None:
            verdict.add(f"line {place} is no line of an audit log, or is torn")
            continue
        body, head = parsed
        if head.line != verdict.head.line + 1:
            verdict.add(f"line {place} has number {head.line} where {verdict.head.line + 1} is due")
        elif not hmac.compare_digest(_seal(key, verdict.head.seal, body), head.seal):
            verdict.add(
                f"line {place} is not what was written, or another was before it, or the key is not the broker's"
            )
        if expected is not None and head.line == expected.line and head.seal != expected.seal:
            verdict.add(f"line {place} has another seal than the one that is expected")
        verdict.head = head
    if expected is not None and verdict.head.line < expected.line:
        verdict.add(f"the log ends with number {verdict.head.line}, and number {expected.line} was written")
    return verdict


def _numbered(lines: Iterable[bytes]) -> Iterator[tuple[int, bytes]]:
    for place, line in enumerate(lines, 1):
        yield place, line.removesuffix(b"\n")
