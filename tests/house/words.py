"""Words that hide what is meant: where the field has a term, or where an actor has no name.

Counted in the product's modules, in ``README.md`` and in ``docs/``; in names too, whose parts are words of their own
(``LeaderTerm``, ``why_disobey``).
"""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from tests.house.sources import Source

RIDDLES: Final[Mapping[str, str]] = {
    "nobody, whoever, somebody": r"nobody|whoever|somebody",
    "who asks": r"who asks?",
    "told": r"told",
    "asked": r"asked",
    "question": r"questions?",
    "answer": r"answer(s|ed|ing)?",
    "life": r"life|lives",
    "term": r"(leader )?terms?",
    "reign": r"reigns?",
    "suspects": r"suspects?",
    "disobey": r"(dis)?obey(s|ed)?",
    "look away, go without, let go": r"looks? away|goes without|go without|lets? go",
    "waited for": r"waited for",
    "so long": r"so long",
    "be content": r"be content|content with",
}
"""What it is listed as, and the expression that finds it between two edges of words."""

_PARTS: Final = re.compile(r"_|(?<=[a-z0-9])(?=[A-Z])")


def riddle_counts(texts: Iterable[str]) -> dict[str, int]:
    """Return how often each of ``RIDDLES`` occurs."""
    apart = [" ".join(_PARTS.sub(" ", text).split()) for text in texts]
    return {
        name: sum(len(re.findall(rf"\b(?:{expression})\b", text, re.IGNORECASE)) for text in apart)
        for name, expression in RIDDLES.items()
    }


def pages(root: Path, sources: Iterable[Source]) -> list[str]:
    """Return the texts in which the words are counted."""
    documents = sorted((root / "docs").rglob("*.md"))
    return [*(source.text for source in sources), *(page.read_text() for page in [root / "README.md", *documents])]
