"""What commands print: a table for people or JSON for programs, both made of the same rows. Pure: values in, text out.

A row is a mapping from column to value. In a table a missing value is "-" and a list is joined with commas; in JSON
both are what they are. Neither holds control characters: names and ids may be anybody's.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from oncelog.protocol.printable import one_line

Row: TypeAlias = Mapping[str, Any]


def format_json(value: Any) -> str:
    return json.dumps(value, indent=2, default=_plain)


def format_json_line(value: Any) -> str:
    return json.dumps(value, default=_plain)


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, Iterable) else str(value)


def format_table(rows: Iterable[Row], columns: Sequence[str]) -> str:
    """Return a table: columns as wide as their content, columns of numbers aligned to the right."""
    cells = [[_cell(row.get(column)) for column in columns] for row in rows]
    title = [column.upper().replace("_", "-") for column in columns]
    widths = [max(map(len, column)) for column in zip(title, *cells, strict=True)]
    numeric = [all(_is_number(cell) for cell in column) for column in zip(*cells, strict=True)] or [False] * len(title)
    lines = [
        "  ".join(
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(line, widths, numeric, strict=True)
        ).rstrip()
        for line in (title, *cells)
    ]
    return "\n".join(lines)


def format_fields(fields: Row) -> str:
    """Return one value a line, after its name."""
    width = max(map(len, fields)) + 2
    return "\n".join(f"{name.upper().replace('_', '-'):<{width}}{_cell(value)}" for name, value in fields.items())


def _cell(value: Any) -> str:
    if value is None or value == ():
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return one_line(",".join(map(str, value)))
    return one_line(str(value))


def _is_number(cell: str) -> bool:
    return cell == "-" or cell.lstrip("-").isdecimal()
