"""The files of an audit log: the one that is written, and those that were ended because they were large.

An ended file has the number of its first line behind its name: ``audit.jsonl.0000000001``. The chain goes from file to
file. Nothing here removes one.
"""

import hmac
import re
from typing import Final, NamedTuple

from oncelog.broker.config.settings import ConfigError
from oncelog.broker.security.audit_chain import EMPTY, LINE_START, Head, parse_line, previous_seal, seal_line
from oncelog.broker.storage.disk import Disk, File

_LONGEST_LINE: Final = 1 << 16
_DIGITS: Final = 10
_FIRST: Final = re.compile(re.escape(LINE_START) + rb"(\d+),")
_SETTING: Final = "oncelog.audit.file"
_KEY: Final = "oncelog.audit.key.file"


class OpenFile(NamedTuple):
    """The file that is written, as it was found."""

    file: File
    size: int
    first: int
    """The number of its first line; that of the next line while it has none."""
    head: Head
    """The last line of the log, which may be in an ended file."""
    torn_bytes: int
    """Of a last line that a crash has torn, which was cut off."""


def ended_path(path: str, first: int) -> str:
    """Return what a file is called when it is ended."""
    return f"{path}.{first:0{_DIGITS}d}"


def open_file(disk: Disk, path: str, key: bytes | None) -> OpenFile:
    """Open the file to write, or make it. Raises ``ConfigError`` if it is no audit log of this key, ``OSError``."""
    file = disk.open(path, create=True)
    size = file.size()
    head, torn = _find_head(file, size, key)
    if torn:
        size -= torn
        file.truncate(size)
    if head == EMPTY:
        head = _last_ended(disk, path, key)
        return OpenFile(file, size, head.line + 1, head, torn)
    match = _FIRST.match(file.read_at(64, 0))
    if match is None:
        raise _no_audit_log()
    return OpenFile(file, size, int(match[1]), head, torn)


def _last_ended(disk: Disk, path: str, key: bytes | None) -> Head:
    """Return the last line of the ended files: after a crash there may be no other file."""
    folder, _, name = path.rpartition("/")
    pattern = re.compile(re.escape(name) + rf"\.\d{{{_DIGITS},}}")
    ended = [each for each in disk.list_dir(folder or ".") if pattern.fullmatch(each)]
    if not ended:
        return EMPTY
    last = max(ended, key=lambda each: int(each.rpartition(".")[2]))
    file = disk.open(f"{folder}/{last}" if folder else last)
    try:
        return _find_head(file, file.size(), key)[0]
    finally:
        file.close()


def _find_head(file: File, size: int, key: bytes | None) -> tuple[Head, int]:
    """Return the last line of a file, and how many bytes of a torn one are behind it."""
    begin = max(0, size - 2 * _LONGEST_LINE)
    data = file.read_at(size - begin, begin)
    end = data.rfind(b"\n") + 1
    torn = data[end:]
    head = EMPTY
    if end:
        *_, before, last = (b"", *data[:end].splitlines())
        parsed = parse_line(last)
        if parsed is None:
            raise _no_audit_log()
        body, head = parsed
        if not _follows(parse_line(before), body, head, key):
            raise _another_key()
    if torn[: len(LINE_START)] != LINE_START[: len(torn)] or (begin and not end):
        raise _no_audit_log()
    return head, len(torn)


def _follows(before: tuple[bytes, Head] | None, body: bytes, head: Head, key: bytes | None) -> bool:
    """Return whether a line has the seal that is due after the line before, as far as that is known."""
    if before is not None:
        seal = before[1].seal
    else:
        seal = EMPTY.seal if head.line == 1 else previous_seal(body)
    return not seal or hmac.compare_digest(seal_line(key, seal, body), head.seal)


def _another_key() -> ConfigError:
    return ConfigError(
        f"{_KEY} is another key than that with which the last line of {_SETTING} was written, or the line was changed: "
        "give the former key back, or move the log and its ended files away, to begin another one with this key"
    )


def _no_audit_log() -> ConfigError:
    return ConfigError(f"{_SETTING} names a file whose last line is none of an audit log: move it away")
