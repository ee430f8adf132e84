"""The rows of a batch in two numbers that do not depend on their order or on their distribution over tasks. Pure.

If the offsets of a batch do not determine its rows (``Planned``), this distinguishes a batch that is run again from
another one under the same number. ``row_digest`` computes it from columns.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

_DIGESTS: Final = 2**64


class Content(NamedTuple):
    """The number of rows, and the sum of their hashes modulo 2**64."""

    rows: int
    digest: int

    def plus(self, other: "Content") -> "Content":
        """Return the content of the rows of both."""
        return Content(self.rows + other.rows, (self.digest + other.digest) % _DIGESTS)

    def __str__(self) -> str:
        return f"{self.rows} rows of digest {self.digest:016x}"


NO_ROWS: Final = Content(0, 0)


def content_of_all(parts: Iterable[Content | None]) -> Content | None:
    """Return the content of a batch; None if the content of a part is not known."""
    whole = NO_ROWS
    for part in parts:
        if part is None:
            return None
        whole = whole.plus(part)
    return whole
