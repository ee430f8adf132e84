"""The columns of a topic: names, types and order of Spark's own Kafka source.

    key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, timestampType int
    headers array<struct<key: string, value: binary>>, only with ``includeHeaders``

``timestampType`` is 0 where the producer gave the time, 1 where the broker did. ``headers`` is null for a record
without headers. A selection of them may be read; the others are not decoded.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from oncelog.spark_connector.plain_errors import UserError

HEADERS: Final = "headers"
_DDL: Final = {
    "key": "binary",
    "value": "binary",
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "timestampType": "int",
    HEADERS: "array<struct<key: string, value: binary>>",
}
NAMES: Final = tuple(_DDL)
WITHOUT_HEADERS: Final = NAMES[:-1]
_BY_LOWER_CASE: Final = {name.lower(): name for name in NAMES}


class SchemaRefused(UserError):
    """The given schema is not the source's."""


@dataclass(frozen=True, slots=True)
class Columns:
    """Which columns are read, in their order."""

    names: tuple[str, ...] = WITHOUT_HEADERS

    def __contains__(self, name: str) -> bool:
        return name in self.names

    @property
    def ddl(self) -> str:
        """The schema as Spark parses it."""
        return ", ".join(f"`{name}` {_DDL[name]}" for name in self.names)

    def check(self, fields: Sequence[tuple[str, str]]) -> None:
        """Raise ``SchemaRefused`` unless the given schema (names and types) is this one."""
        if [(name, text.replace(" ", "")) for name, text in fields] != [
            (name, _DDL[name].replace(" ", "")) for name in self.names
        ]:
            raise SchemaRefused(f"the schema is {self.ddl}: leave .schema(...) out, and select with the option columns")


def parse_columns(text: str) -> Columns:
    """Parse a selection such as ``key,value``; its order is kept. Raises ``ValueError``."""
    chosen = [name.strip() for name in text.split(",")]
    unknown = [name for name in chosen if name.lower() not in _BY_LOWER_CASE]
    if unknown:
        raise ValueError(f"there is no column {', '.join(map(repr, unknown))}")
    names = tuple(_BY_LOWER_CASE[name.lower()] for name in chosen)
    if _repeats(names):
        raise ValueError("a column is named twice")
    return Columns(names)


def _repeats(names: Sequence[str]) -> bool:
    return len(set(names)) < len(names)
