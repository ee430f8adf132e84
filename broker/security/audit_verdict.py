"""Judging an audit log: whether its lines are those that the broker has written, in one file or in several.

A broker begins a new file when one is large, and the chain goes on. So the first line of a file depends on the last one
of the file before it, and a file that is missing leaves a gap, which is named. The first line of a new file also says
the seal before it: what follows a gap is judged by that.
"""

import hmac
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from oncelog.broker.security.audit_chain import EMPTY, Head, parse_line, previous_seal, seal_line

_MOST_PROBLEMS: Final = 20


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


class Verification:
    """Reads the files of one log in their order, and gives the verdict at the end."""

    def __init__(self, key: bytes | None, *, expected: Head | None = None, after: Head = EMPTY) -> None:
        """Begin after the line ``after``; ``expected`` is a line that is known to have been written."""
        self._key = key
        self._expected = expected
        self._verdict = Verdict(head=after)
        self._former = ""
        """The name of the last file."""
        self._wrong_seals = 0

    def read(self, lines: Iterable[bytes], name: str = "") -> None:
        """Judge the next file. Problems name it if it has a name."""
        is_first, verdict = True, self._verdict
        for place, line in _numbered(lines):
            verdict.lines += 1
            where = f"{name}: line {place}" if name else f"line {place}"
            parsed = parse_line(line)
            if parsed is None:
                verdict.add(f"{where} is no line of an audit log, or is torn")
                continue
            body, head = parsed
            if is_first and head.line > verdict.head.line + 1:
                self._note_gap(name, head.line)
                verdict.head = Head(head.line - 1, previous_seal(body))
            is_first = False
            self._judge(where, body, head)
        self._former = name

    def end(self) -> Verdict:
        """Return the verdict on all files."""
        verdict, expected = self._verdict, self._expected
        if self._wrong_seals == verdict.lines > 1:
            key = "no key is given" if self._key is None else "this is another key"
            verdict.problems = [f"no line has the seal that is due: {key}, or all lines were written anew"]
            verdict.unlisted = 0
        if expected is not None and verdict.head.line < expected.line:
            verdict.add(f"the log ends with number {verdict.head.line}, and number {expected.line} was written")
        return verdict

    def _note_gap(self, name: str, line: int) -> None:
        begin, end = self._verdict.head.line + 1, line - 1
        gap = f"lines {begin} to {end} are" if end > begin else f"line {end} is"
        between = f"between {self._former} and {name}" if self._former else f"before {name or 'this one'}"
        self._verdict.add(f"{gap} missing: the file or files {between}")

    def _judge(self, where: str, body: bytes, head: Head) -> None:
        verdict, expected = self._verdict, self._expected
        if head.line != verdict.head.line + 1:
            verdict.add(f"{where} has number {head.line} where {verdict.head.line + 1} is due")
        elif not hmac.compare_digest(seal_line(self._key, verdict.head.seal, body), head.seal):
            self._wrong_seals += 1
            verdict.add(f"{where} is not what was written, or another was before it, or the key is not the broker's")
        if expected is not None and head.line == expected.line and head.seal != expected.seal:
            verdict.add(f"{where} has another seal than the one that is expected")
        verdict.head = head


def verify(lines: Iterable[bytes], key: bytes | None, expected: Head | None = None) -> Verdict:
    """Judge a log in one file."""
    verification = Verification(key, expected=expected)
    verification.read(lines)
    return verification.end()


def first_number(line: bytes) -> int | None:
    """Return the number of a file's first line, by which files are put in order; None if it has none."""
    parsed = parse_line(line.removesuffix(b"\n"))
    return None if parsed is None else parsed[1].line


def _numbered(lines: Iterable[bytes]) -> Iterator[tuple[int, bytes]]:
    for place, line in enumerate(lines, 1):
        yield place, line.removesuffix(b"\n")
