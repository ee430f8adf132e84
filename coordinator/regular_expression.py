r"""Regular expressions from clients: RE2 syntax, matched in time linear in the text, in bounded memory.

Kafka takes RE2 syntax where a request carries a pattern. The library behind it is ``google-re2``, and this is the only
module that knows it. It is imported by the first pattern: a broker that is never sent one saves 3 MB and 7 ms.

Three bounds refuse a pattern as invalid. ``MAX_PATTERN_LENGTH`` is for the time to parse it: RE2 takes 0.1 ms for a
class like ``\pL``. ``MAX_MEMORY_BYTES`` (RE2's ``max_mem``) is for a compiled pattern and the states of its matcher
together. ``MAX_PROGRAM_SIZE`` is for the time of one match: once the states do not fit in the memory, RE2 visits most
of the program's instructions at each byte of the text. The library caches compiled patterns; the cache is emptied, so
that no client's pattern outlives its request.

Compiling and matching take up to some milliseconds each, so a request that does so counts ``compile_units`` and
``match_units`` in its ``WorkBudget`` first.
"""

from typing import Any, Final

MAX_PATTERN_LENGTH: Final = 2_000
"""Characters."""
MAX_MEMORY_BYTES: Final = 1024 * 1024
MAX_PROGRAM_SIZE: Final = 2_048
"""Instructions: a pattern of ``MAX_PATTERN_LENGTH`` plain characters has fewer, a class like ``\\pL`` about 1,200."""

_COMPILE_UNITS_PER_CHARACTER: Final = 24
"""Microseconds for the costliest patterns, those that repeat ``\\pL``."""
_VISITS_PER_UNIT: Final = 128
"""Instructions that RE2 visits in a microsecond, the fewest that were measured."""


class InvalidRegularExpression(ValueError):
    """A pattern that is no RE2 syntax, or that is beyond one of the three bounds."""


class RegularExpression:
    """One compiled pattern."""

    __slots__ = ("_compiled", "_program_size")

    def __init__(self, pattern: str) -> None:
        """Compile the pattern. Raises InvalidRegularExpression."""
        self._compiled = _compile(pattern)
        self._program_size: int = self._compiled.programsize
        if self._program_size > MAX_PROGRAM_SIZE:
            raise InvalidRegularExpression(
                f"the pattern compiles to {self._program_size} instructions, more than {MAX_PROGRAM_SIZE}"
            )

    def fullmatch(self, text: str) -> bool:
        """Return whether the pattern matches the whole text."""
        return self._compiled.fullmatch(text) is not None

    def match_units(self, text: str) -> int:
        """Return how many microseconds ``fullmatch`` may take for this text."""
        return 1 + len(text.encode()) * self._program_size // _VISITS_PER_UNIT


def compile_units(pattern: str) -> int:
    """Return how many microseconds compiling the pattern may take."""
    return min(len(pattern), MAX_PATTERN_LENGTH) * _COMPILE_UNITS_PER_CHARACTER


def _compile(pattern: str) -> Any:
    if len(pattern) > MAX_PATTERN_LENGTH:
        raise InvalidRegularExpression(f"the pattern has {len(pattern)} characters, more than {MAX_PATTERN_LENGTH}")
    import re2  # Only a request with a pattern pays for it.

    options = re2.Options()
    options.max_mem = MAX_MEMORY_BYTES
    options.never_capture = True  # Groups are only parentheses here, and to find their spans takes longer.
    options.log_errors = False
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        raise InvalidRegularExpression(str(error)) from None
    finally:
        re2.purge()
