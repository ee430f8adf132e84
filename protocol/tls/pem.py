"""The blocks of a text in PEM (RFC 7468), and what else stands in it. Pure.

A block counts only in the form that programs write: its BEGIN and its END line begin their lines and are alone on them,
and the lines between are of base64, of 76 characters at most. So a text that has passed through a log, where a client
put it on one line, or behind other words, contains no block.
"""

import re
from typing import Final, NamedTuple

LONGEST_LINE: Final = 76
"""Characters of base64 on one line: 64 in RFC 7468, 76 in MIME."""
_LABEL: Final = rb"-----%s ([A-Z0-9 ]{1,64})-----[ \t]*"
_BEGIN: Final = re.compile(_LABEL % b"BEGIN")
_END: Final = re.compile(_LABEL % b"END")
_INSIDE: Final = re.compile(rb"(?:[A-Za-z0-9+/=]{1,%d}|(?:Proc-Type|DEK-Info): [ -~]{1,100})?[ \t]*" % LONGEST_LINE)
"""Base64, a blank line, or a header of OpenSSL's older encrypted keys."""
_BESIDE: Final = re.compile(
    rb"\s*"
    rb"|#.*"
    rb"|(?:Bag|Key) Attributes(?:: <(?:Empty|No) Attributes>)?\s*"
    rb"|[ \t]+(?:friendlyName|localKeyID|Microsoft [A-Za-z0-9 ]+|[0-9]+(?:\.[0-9]+)+): ?[ -~]*"
    rb"|[ \t]+[0-9A-F]{2}(?: [0-9A-F]{2})*\s*"
    rb"|(?:subject|issuer)=.*"
)
"""What OpenSSL writes around the blocks of a PKCS#12 store that it converts, comments and blank lines."""
_ON_ONE_LINE: Final = re.compile(r"-----BEGIN ([A-Z0-9 ]{1,64})-----\s([A-Za-z0-9+/=\s]*)-----END \1-----")


class Block(NamedTuple):
    """One object in PEM."""

    label: bytes
    pem: bytes


class Text(NamedTuple):
    """What a text has in PEM. Lines count from 1; 0 is none."""

    blocks: tuple[Block, ...]
    broken_line: int
    """The first BEGIN line whose block has another form, or does not end."""
    foreign_line: int
    """The first line that neither is of a block nor stands beside the blocks of a store."""


def parse_pem(data: bytes) -> Text:
    """Return the blocks of a text, in one pass whatever the data are."""
    blocks: list[Block] = []
    broken_line = foreign_line = begun_at = 0
    label, lines = b"", list[bytes]()
    for number, line in enumerate(data.split(b"\n"), start=1):
        bare = line.removesuffix(b"\r")
        if begun_at:
            end = _END.fullmatch(bare)
            if end is not None and end[1] == label:
                blocks.append(Block(label, b"\n".join([*lines, bare]) + b"\n"))
                begun_at = 0
                continue
            if _INSIDE.fullmatch(bare):
                lines.append(bare)
                continue
            broken_line = broken_line or begun_at
        begin = _BEGIN.fullmatch(bare)
        begun_at = number if begin else 0
        if begin:
            label, lines = begin[1], [bare]
        elif not _BESIDE.fullmatch(bare):
            foreign_line = foreign_line or number
    return Text(tuple(blocks), broken_line or begun_at, foreign_line)


def unfold(text: str) -> str:
    """Return the text of a setting with each line of its blocks on a line of its own.

    In a file of properties a value is often on one line, with spaces where its lines ended.
    """
    return _ON_ONE_LINE.sub(_in_lines, text)


def _in_lines(block: re.Match[str]) -> str:
    label, body = block[1], "".join(block[2].split())
    lines = [body[start : start + 64] for start in range(0, len(body), 64)]
    return "\n".join([f"\n-----BEGIN {label}-----", *lines, f"-----END {label}-----\n"])
