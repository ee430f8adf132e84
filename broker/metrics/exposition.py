"""Metric families as Prometheus' text, written so that the broker does not stand still meanwhile.

One family is collected and written in one step of the loop, and others run between two of them. A row costs some 10 µs,
so a family with many rows comes in parts: families of the same name, one after the other, are written as one.
What counts for long before it has a family yields ``PAUSE`` meanwhile.
"""

import asyncio
from collections.abc import Iterable, Iterator
from typing import Final, TypeAlias

from prometheus_client import Metric, generate_latest
from prometheus_client.registry import Collector

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

PAUSE: Final = None
"""No family: the loop runs."""

Families: TypeAlias = Iterable[Metric | None]
"""In the order of the page, with pauses."""

_PART_BYTES: Final = 64 * 1024


class _One(Collector):
    """What the library takes for a registry that has one family."""

    def __init__(self, family: Metric) -> None:
        self._family = family

    def collect(self) -> Iterator[Metric]:
        yield self._family


async def write_families(families: Families) -> list[bytes]:
    """Return the text of all families, in parts that are sent one after the other; other work runs between them."""
    parts: list[bytes] = []
    text, name = bytearray(), ""
    for family in families:
        if family is not None:
            written = generate_latest(_One(family))
            text += _without_head(written) if family.name == name else written
            name = family.name
            if len(text) >= _PART_BYTES:
                parts.append(bytes(text))
                text.clear()
        await asyncio.sleep(0)
    parts.append(bytes(text))
    return parts


def _without_head(written: bytes) -> bytes:
    """Return a family's rows, without the lines that name it."""
    rows = [line for line in written.splitlines(keepends=True) if not line.startswith(b"#")]
    return b"".join(rows)
