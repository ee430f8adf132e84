"""Metric families as Prometheus' text, written so that the broker does not stand still meanwhile.

One family is collected and written in one step of the loop, and others run between two of them. A row costs some 10 µs,
so a family with many rows comes in parts: families of the same name, one after the other, are written as one.
"""

import asyncio
from collections.abc import Iterable, Iterator
from typing import Final

from prometheus_client import Metric, generate_latest
from prometheus_client.registry import Collector

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


class _One(Collector):
    """What the library takes for a registry that has one family."""

    def __init__(self, family: Metric) -> None:
        self._family = family

    def collect(self) -> Iterator[Metric]:
        yield self._family


async def write_families(families: Iterable[Metric]) -> bytes:
    """Return the text of all families; other work runs between them."""
    text, name = bytearray(), ""
    for family in families:
        written = generate_latest(_One(family))
        text += _without_head(written) if family.name == name else written
        name = family.name
        await asyncio.sleep(0)
    return bytes(text)


def _without_head(written: bytes) -> bytes:
    """Return a family's rows, without the lines that name it."""
    rows = [line for line in written.splitlines(keepends=True) if not line.startswith(b"#")]
    return b"".join(rows)
