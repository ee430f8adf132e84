"""Words that hide what is meant: where the field has a term, or where an actor has no name.

Counted in the product's modules, in ``README.md`` and in ``docs/``, and apart from these in the modules of ``tests/``;
in names too, whose parts are words of their own (``LeaderTerm``, ``why_disobey``). What is plain is not counted: a
setting that has the word in its name, "the leader lives", "in its own terms", "has waited for 5 ms".
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from tests.house.sources import Source

RIDDLES: Final[Mapping[str, str]] = {
    "nobody, whoever, somebody": r"nobody|whoever|somebody",
    "who asks": r"who asks?",
    "told": r"told",
    "asked": r"asked",
    "question": r"questions?",
    "answer": r"(?<!end.txn.)answer(s|ed|ing)?",
    "life": r"life",
    "term": r"leader terms?|term",
    "reign": r"reigns?",
    "suspects": r"suspects?",
    "disobey": r"(dis)?obey(s|ed)?",
    "look away, go without, let go": r"looks? away|goes without|go without|lets? go",
    "waited for": r"(is|are|was|were|be|been|being|not) waited for",
    "so long": r"so long",
    "be content": r"be content|content with",
}
"""What it is listed as, and the expression that finds it between two edges of words."""

_EXPRESSIONS: Final = {
    name: re.compile(rf"\b(?:{expression})\b".replace(" ", r"\s+"), re.IGNORECASE)
    for name, expression in RIDDLES.items()
}
_PARTS: Final = re.compile(r"_|(?<=[a-z0-9])(?=[A-Z])")


class Page(NamedTuple):
    """A text in which the words are counted."""

    path: str
    """Relative to the root of the repository."""
    text: str


def riddle_places(pages: Iterable[Page]) -> dict[str, list[str]]:
    """Return each occurrence of each of ``RIDDLES``, as ``path:line words``."""
    found: dict[str, list[str]] = {name: [] for name in RIDDLES}
    for page in pages:
        apart = _PARTS.sub(" ", page.text)
        for name, expression in _EXPRESSIONS.items():
            for match in expression.finditer(apart):
                line = apart.count("\n", 0, match.start()) + 1
                found[name].append(f"{page.path}:{line} {' '.join(match[0].split())}")
    return found


def product_pages(root: Path, sources: Iterable[Source]) -> list[Page]:
    """Return the product's modules and its documentation."""
    documents = _read([root / "README.md", *sorted((root / "docs").rglob("*.md"))], root)
    return [*(Page(source.path, source.text) for source in sources), *documents]


def pages_of_tests(root: Path) -> list[Page]:
    """Return the modules of tests, without the one that defines the words and the one that tests it."""
    own = {root / "tests/house/words.py", root / "tests/unit/house/test_words.py"}
    return list(_read((file for file in sorted((root / "tests").rglob("*.py")) if file not in own), root))


def _read(files: Iterable[Path], root: Path) -> Iterator[Page]:
    return (Page(str(file.relative_to(root)), file.read_text()) for file in files)
