"""``Cell``: one thing that was tried, and what came of it."""

from typing import NamedTuple


class Cell(NamedTuple):
    """One trial."""

    name: str
    expected: str
    found: str

    @property
    def has_passed(self) -> bool:
        return self.found == self.expected


class NotTried(Exception):
    """This machine lacks what the cells need; the message names it, and the command that installs it."""
