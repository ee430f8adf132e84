"""Text from a client or a server, made safe for a terminal. Pure.

A record, a client id or an error message can hold control sequences: they set a window's title, move the cursor over
what was printed before, or make the terminal send input. Unicode adds format characters, which change the order in
which a line is shown (U+202E) or show nothing at all, and two line ends of its own. All of them are shown as escapes
instead.
"""

import re
import unicodedata
from typing import Final

_UNSAFE_CATEGORIES: Final = frozenset({"Cc", "Cf", "Zl", "Zp"})
"""Categories: controls, formats, line and paragraph separators."""
_SHORT: Final = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}
_PERHAPS_UNSAFE: Final = re.compile(r"[^\x20-\x7e]")
_PERHAPS_UNSAFE_WITHIN_TEXT: Final = re.compile(r"[^\n\t\x20-\x7e]")


def one_line(text: str) -> str:
    """Return the text with every control and format character escaped, line ends and tabs too."""
    return text if text.isprintable() else _PERHAPS_UNSAFE.sub(_escape, text)


def without_controls(text: str) -> str:
    """Return the text with control and format characters escaped, except line feeds and tabs."""
    return text if text.isprintable() else _PERHAPS_UNSAFE_WITHIN_TEXT.sub(_escape, text)


def _escape(found: re.Match[str]) -> str:
    character = found.group()
    if unicodedata.category(character) not in _UNSAFE_CATEGORIES:
        return character
    code = ord(character)
    if code < 0x100:
        return _SHORT.get(character, f"\\x{code:02x}")
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
