"""The chain of an audit log: each line has a seal that depends on all lines before it.

A line is one object of JSON, and ends with ``"seal"``: SHA-256, in hexadecimal, of the seal before and of the line's
text up to its own. So no line can be changed, removed or put in without all later seals being wrong. With a key the
seal is an HMAC: without the key, later seals cannot be made right either. Lines at the end can be removed without a
trace in the file, which is why brokers write the last seal to their own log from time to time. ``audit_verdict`` judges
what it finds.
"""

import hashlib
import hmac
import json
import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

_GENESIS: Final = "0" * 64
_SEALED: Final = re.compile(rb'(\{"line":(\d+),.*),"seal":"([0-9a-f]{64})"\}')
LINE_START: Final = b'{"line":'
"""How every line begins."""
MIN_KEY_BYTES: Final = 16
PREVIOUS_SEAL: Final = "previous_seal"
"""The field of a file's first line with the last seal of the file before it."""


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
        self.head = Head(number, seal_line(self._key, self.head.seal, body))
        return b'%s,"seal":"%s"}\n' % (body, self.head.seal.encode())


def parse_line(line: bytes) -> tuple[bytes, Head] | None:
    """Return what a line's seal is about, and its own place in the chain; None if it is no line of an audit log."""
    match = _SEALED.fullmatch(line)
    return None if match is None else (match[1], Head(int(match[2]), match[3].decode()))


def seal_line(key: bytes | None, before: str, body: bytes) -> str:
    """Return the seal of a line whose text is ``body``, after a line with the seal ``before``."""
    data = before.encode() + body
    return hashlib.sha256(data).hexdigest() if key is None else hmac.digest(key, data, "sha256").hex()


def previous_seal(body: bytes) -> str:
    """Return the seal before the first line of a file, as that line says it; nothing if it does not."""
    try:
        found = json.loads(body + b"}").get(PREVIOUS_SEAL)
    except ValueError:
        return ""
    return found if isinstance(found, str) else ""
