"""What a setting is: a key of Kafka's, a type, a default, bounds, and a sentence that says what it does.

Tables of settings are dataclasses whose fields are made by the functions below; a field's key is its name with dots for
underscores. From such a table come the parsing of every source of configuration, DescribeConfigs, and the reference
page. A wrong value is a ``ConfigError`` that names the key, the value and what was expected.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from enum import IntEnum
from functools import lru_cache
from typing import Any, Final

INT32_MAX: Final = 2**31 - 1
INT64_MAX: Final = 2**63 - 1

_LONGEST_KEY: Final = 100
"""No key is as long."""
_TRUE_FALSE: Final = {"true": True, "false": False}


class ConfigError(ValueError):
    """A configuration that the broker refuses. The message is for the operator."""


class Kind(IntEnum):
    """The types of settings, by their number in DescribeConfigs."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    PASSWORD = 9


_BITS: Final = {Kind.SHORT: 16, Kind.INT: 32, Kind.LONG: 64}


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One row of a table of settings."""

    key: str
    kind: Kind
    default: Any
    """The parsed value when nothing is given; None when the key is optional."""
    doc: str
    low: float | None = None
    high: float | None = None
    choices: tuple[str, ...] = ()
    embedded: Any = None
    """Another default, of a standalone broker on the embedded metadata store."""
    unused: str = ""
    """Why the key is accepted and does nothing."""

    def parse(self, text: str) -> Any:
        """Return the value that ``text`` means. Raises ``ConfigError`` if it means none."""
        text = text.strip()
        if not text and self.default is None:
            return None
        try:
            value = self._parse(text)
        except (ValueError, KeyError):
            raise self._error(text) from None
        if isinstance(value, int | float) and not self._in_bounds(value):
            raise self._error(text)
        parts = value if isinstance(value, tuple) else (value,)
        if self.choices and not all(part in self.choices for part in parts):
            raise self._error(text)
        return value

    def format(self, value: Any) -> str | None:
        """Return the text that parses to ``value``."""
        if value is None:
            return None
        if isinstance(value, bool):
            return str(value).lower()
        return ",".join(value) if isinstance(value, tuple) else str(value)

    @property
    def expected(self) -> str:
        """What a value must be, in words."""
        if self.choices:
            joined = ", ".join(self.choices)
            return f"a list of {joined}" if self.kind is Kind.LIST else f"one of {joined}"
        words = {
            Kind.BOOLEAN: "true or false",
            Kind.STRING: "a string",
            Kind.INT: "a whole number",
            Kind.SHORT: "a whole number",
            Kind.LONG: "a whole number",
            Kind.DOUBLE: "a number",
            Kind.LIST: "a list with commas",
            Kind.PASSWORD: "a string",
        }[self.kind]
        if self.low is not None and self.high is not None:
            return f"{words} from {self.low} to {self.high}"
        if self.low is not None:
            return f"{words}, at least {self.low}"
        return words

    def _parse(self, text: str) -> Any:
        match self.kind:
            case Kind.BOOLEAN:
                return _TRUE_FALSE[text.lower()]
            case Kind.SHORT | Kind.INT | Kind.LONG:
                return int(text)
            case Kind.DOUBLE:
                return float(text)
            case Kind.LIST:
                return tuple(part.strip() for part in text.split(",") if part.strip())
            case Kind.STRING | Kind.PASSWORD:
                return text

    def _in_bounds(self, value: float) -> bool:
        if self.kind in _BITS and not -(1 << _BITS[self.kind] - 1) <= value < 1 << _BITS[self.kind] - 1:
            return False
        return (self.low is None or value >= self.low) and (self.high is None or value <= self.high)

    def _error(self, text: str) -> ConfigError:
        shown = "(hidden)" if self.kind is Kind.PASSWORD else repr(text)
        return ConfigError(f"{self.key}={shown} is not valid: expected {self.expected}")


def nearest_key(key: str, known: Iterable[str]) -> str | None:
    """Return a known key from which ``key`` differs by one or two letters, if there is one.

    A client may name any number of unknown keys in one request, so this takes microseconds.
    """
    if len(key) > _LONGEST_KEY:
        return None
    spellings = _misspellings(tuple(known))
    return next((spellings[each] for each in _with_a_letter_less(key) if each in spellings), None)


@lru_cache(maxsize=4)
def _misspellings(known: tuple[str, ...]) -> Mapping[str, str]:
    """Return the known keys by themselves and by what is left of them without any one letter."""
    return {each: key for key in reversed(known) for each in _with_a_letter_less(key)}


def _with_a_letter_less(key: str) -> Iterator[str]:
    """Yield ``key`` itself, then what is left of it without each of its letters."""
    yield key
    for index in range(len(key)):
        yield key[:index] + key[index + 1 :]


def did_you_mean(nearest: str | None) -> str:
    """Return the end of a message about an unknown key: empty if no known key is near."""
    return f": did you mean {nearest}?" if nearest else ""


def boolean(default: bool, doc: str, *, unused: str = "") -> Any:
    return _row(Kind.BOOLEAN, default, doc, unused=unused)


def integer(
    default: int | None, doc: str, *, low: int | None = None, high: int | None = None, embedded: int | None = None,
    unused: str = "",
) -> Any:  # fmt: skip
    """Declare a setting of 32 bits."""
    return _row(Kind.INT, default, doc, low=low, high=high, embedded=embedded, unused=unused)


def short(default: int, doc: str, *, low: int | None = None, embedded: int | None = None, unused: str = "") -> Any:
    """Declare a setting of 16 bits."""
    return _row(Kind.SHORT, default, doc, low=low, embedded=embedded, unused=unused)


def long(default: int | None, doc: str, *, low: int | None = None, unused: str = "") -> Any:
    """Declare a setting of 64 bits."""
    return _row(Kind.LONG, default, doc, low=low, unused=unused)


def double(default: float, doc: str, *, low: float | None = None, high: float | None = None, unused: str = "") -> Any:
    return _row(Kind.DOUBLE, default, doc, low=low, high=high, unused=unused)


def string(default: str | None, doc: str, *, choices: tuple[str, ...] = (), unused: str = "") -> Any:
    return _row(Kind.STRING, default, doc, choices=choices, unused=unused)


def strings(default: tuple[str, ...], doc: str, *, choices: tuple[str, ...] = (), unused: str = "") -> Any:
    """Declare a list with commas between its elements."""
    return _row(Kind.LIST, default, doc, choices=choices, unused=unused)


def password(doc: str, *, unused: str = "") -> Any:
    return _row(Kind.PASSWORD, None, doc, unused=unused)


def _row(kind: Kind, default: Any, doc: str, **options: Any) -> Any:
    return field(default=default, metadata={"kind": kind, "doc": doc, "options": options})


def named(rows: Mapping[str, Any]) -> dict[str, Setting]:
    """Return the settings of a table that maps keys to the rows that the functions above make."""
    return {
        key: Setting(
            key=key, kind=row.metadata["kind"], default=row.default, doc=row.metadata["doc"], **row.metadata["options"]
        )
        for key, row in rows.items()
    }


def settings_of(table: type[Any]) -> dict[str, Setting]:
    """Return the settings of a table that is a dataclass, by key, in the order of their declaration."""
    return named({row.name.replace("_", "."): row for row in fields(table) if "kind" in row.metadata})
