"""Java's ``.properties``: the files of settings of Apache Kafka and its clients."""

import re
from collections.abc import Iterator


def parse_properties(text: str) -> dict[str, str]:
    """Parse Java's ``.properties``: comments; ``=``, ``:`` or space after the key; ``\\`` continues a line."""
    pairs = {}
    for line in _logical_lines(text):
        match = re.match(r"((?:\\.|[^\\=:\s])*)\s*[=:]?\s*(.*)", line, re.DOTALL)
        assert match is not None
        pairs[_unescape(match[1])] = _unescape(match[2])
    return pairs


def _logical_lines(text: str) -> Iterator[str]:
    pending = ""
    for raw in text.splitlines():
        line = raw.lstrip()
        if not pending and (not line or line[0] in "#!"):
            continue
        pending += line
        if (len(pending) - len(pending.rstrip("\\"))) % 2:
            pending = pending[:-1]
            continue
        yield pending
        pending = ""
    if pending:
        yield pending


def _unescape(text: str) -> str:
    named = {"n": "\n", "t": "\t", "r": "\r", "f": "\f"}

    def replacement(match: re.Match[str]) -> str:
        if match[1]:
            return chr(int(match[1], 16))
        return named.get(match[2], match[2])

    return re.sub(r"\\(?:u([0-9a-fA-F]{4})|(.))", replacement, text, flags=re.DOTALL)
