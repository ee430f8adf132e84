"""Families with many rows, in parts of the same name, so that the writer lets other tasks run between two parts."""

from collections.abc import Callable, Iterator, Sequence
from typing import Final, TypeVar

from prometheus_client import Metric

ROWS_AT_ONCE: Final = 100
"""In one part: collected and written in about a millisecond."""

T = TypeVar("T")


def in_parts(make: Callable[[], Metric], add: Callable[[Metric, T], None], items: Sequence[T]) -> Iterator[Metric]:
    """Yield what ``make`` returns, again and again, with what ``add`` makes of the items; once if there are none.

    What an item refers to may change while the loop runs: ``add`` adds what is true then, if anything.
    """
    for start in range(0, max(1, len(items)), ROWS_AT_ONCE):
        family = make()
        for item in items[start : start + ROWS_AT_ONCE]:
            add(family, item)
        yield family
