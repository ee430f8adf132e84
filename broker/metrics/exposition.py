"""Metric families as Prometheus' text, written so that the broker does not stand still meanwhile.

One family is collected and written in one step of the loop, and others run between two of them. A row costs some
4 µs, so a family with many rows comes in parts: families of the same name, one after the other, are written as one.
What counts for long before it has a family yields ``PAUSE`` meanwhile.
"""

import asyncio
from collections.abc import Iterable
from typing import Final, TypeAlias

from prometheus_client import Metric
from prometheus_client.samples import Sample

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

PAUSE: Final = None
"""No family: the loop runs."""

Families: TypeAlias = Iterable[Metric | None]
"""In the order of the page, with pauses."""

_ROWS_IN_A_PART: Final = 500

_ESCAPES: Final = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})
_DOCUMENTATION_ESCAPES: Final = str.maketrans({"\\": r"\\", "\n": r"\n"})


async def write_families(families: Families) -> list[bytes]:
    """Return the text of all families, in parts that are sent one after the other; other work runs between them."""
    parts: list[bytes] = []
    rows: list[str] = []
    name = ""
    for family in families:
        if family is not None:
            if family.name != name:
                rows.append(_head(family))
            rows += map(_row, family.samples)
            name = family.name
            if len(rows) >= _ROWS_IN_A_PART:
                parts.append("".join(rows).encode())
                rows.clear()
        await asyncio.sleep(0)
    parts.append("".join(rows).encode())
    return parts


def _head(family: Metric) -> str:
    """Return the lines that name a family. In this format a counter's name has the suffix of its samples."""
    name = f"{family.name}_total" if family.type == "counter" else family.name
    return f"# HELP {name} {family.documentation.translate(_DOCUMENTATION_ESCAPES)}\n# TYPE {name} {family.type}\n"


def _row(sample: Sample) -> str:
    labels = ",".join([f'{name}="{value.translate(_ESCAPES)}"' for name, value in sample.labels.items()])
    return f"{sample.name}{{{labels}}} {sample.value}\n" if labels else f"{sample.name} {sample.value}\n"
