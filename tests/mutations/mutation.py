"""A safeguard that can be taken away."""

from typing import NamedTuple


class Mutation(NamedTuple):
    """One safeguard that is taken away."""

    row: str
    path: str
    old: str
    new: str
    test: str
