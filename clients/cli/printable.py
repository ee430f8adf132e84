"""Text that somebody else wrote, made safe for a terminal. Pure.

A record, a client id or an error message can hold control sequences: they set a window's title, move the cursor over
what was printed before, or make the terminal answer. They are shown as ``\\x1b`` instead.
"""

from collections.abc import Mapping
from typing import Final

_C0: Final = range(0x20)
_DEL_AND_C1: Final = range(0x7F, 0xA0)
_ESCAPES: Final[Mapping[int, str]] = {
    **{code: f"\\x{code:02x}" for code in (*_C0, *_DEL_AND_C1)},
    ord("\n"): "\\n",
    ord("\r"): "\\r",
    ord("\t"): "\\t",
}
_ESCAPES_WITHIN_TEXT: Final = {code: escape for code, escape in _ESCAPES.items() if code not in (0x09, 0x0A)}


def one_line(text: str) -> str:
    """Return the text with every control character escaped, line ends and tabs too."""
    return text.translate(_ESCAPES)


def without_controls(text: str) -> str:
    """Return the text with control characters escaped, except line feeds and tabs."""
    return text.translate(_ESCAPES_WITHIN_TEXT)
