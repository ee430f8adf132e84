"""Names of topics as the arguments of a command that a user can paste. Pure."""

from collections.abc import Sequence
from typing import Final

_MOST: Final = 20


def topic_arguments(topics: Sequence[str]) -> str:
    """Return the names for a command line: all of them, or the first 20."""
    return " ".join(topics[:_MOST])


def left_out(topics: Sequence[str]) -> str | None:
    """Return what to do about topics that are not among the arguments; None if all are."""
    more = len(topics) - _MOST
    if more <= 0:
        return None
    return f"and again for {more} more topic{'' if more == 1 else 's'}, which `oncelog health` names then"
