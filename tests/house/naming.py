"""Names of tests that cannot be ``test_<subject>_<condition>_<result>``.

Whether a name has all three parts cannot be decided from its words, so the count is a lower bound: names that begin
with an article, a pronoun, a question word, a preposition or a conjunction, where the subject should be, and names of
fewer than three words.
"""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from tests.house.sources import Function

_NO_SUBJECT: Final = frozenset(
    word
    for line in (
        "a after all an and as at before but by each every everything for from how if in it its no",
        "nobody none nothing of on one only or some somebody something that the there these they this",
        "those to two until we what whatever when where whether which while who whoever whose why with",
        "without",
    )
    for word in line.split()
)


class TestName(NamedTuple):
    """The name of a test, and where it is."""

    name: str
    place: str
    """As ``path:line``."""


def collected_names(root: Path) -> Iterator[TestName]:
    """Yield the name of every test function below ``tests``."""
    for file in sorted((root / "tests").rglob("test_*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, Function) and node.name.startswith("test_"):
                yield TestName(node.name, f"{file.relative_to(root)}:{node.lineno}")


def is_not_subject_first(name: str) -> bool:
    """Return whether a test's name does not begin with a subject, or is too short for a condition and a result."""
    words = name.removeprefix("test_").split("_")
    return words[0] in _NO_SUBJECT or len(words) < 3
