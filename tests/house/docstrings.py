"""Docstrings of functions that do not begin with a verb in the imperative.

The rule: the first word of the docstring has a capital letter and is in ``verbs.txt``, as a verb's base form; a missing
verb is added there. A word that is a verb and a noun counts as the noun when ``of`` follows ("End of the log").
Properties are left out, as in pydocstyle: they are described as the noun that they are. This is stricter than ruff's
D401, which lets every word pass that it does not know; ``ruff_count`` is D401's own figure.
"""

import ast
import json
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

from tests.house.sources import PACKAGES, Function, Source, functions

VERBS_FILE: Final = Path(__file__).parent / "verbs.txt"
_VERBS: Final = frozenset(VERBS_FILE.read_text().split())
_WORD: Final = re.compile(r"([A-Z][a-z-]+)[.,:;]?")
_VERBS_WITH_OF: Final = frozenset({"Dispose", "Hear"})
_PROPERTIES: Final = frozenset({"property", "cached_property", "setter", "getter"})


class Opening(NamedTuple):
    """How a function's docstring begins."""

    place: str
    words: str
    is_imperative: bool


def openings(sources: Iterable[Source]) -> Iterator[Opening]:
    """Yield the opening of every function's docstring."""
    for source in sources:
        for node in functions(source):
            text = ast.get_docstring(node)
            if text and not _is_property(node):
                words = " ".join(text.split()[:4])
                yield Opening(f"{source.path}:{node.lineno} {node.name}", words, begins_with_verb(text))


def begins_with_verb(text: str) -> bool:
    """Return whether the first word of a text is a verb in the imperative."""
    match text.split(maxsplit=2)[:2]:
        case [first, "of"] if first not in _VERBS_WITH_OF:
            return False
        case [first, *_]:
            word = _WORD.fullmatch(first)
            return word is not None and word[1].lower() in _VERBS
    return False


def ruff_count(root: Path) -> int:
    """Return how many docstrings ruff's rule D401 reports."""
    folders = [package for package in PACKAGES if (root / package).is_dir()]
    command = [sys.executable, "-m", "ruff", "check", "--isolated", "--no-cache", "--exit-zero", "--select", "D401"]
    command += ["--output-format", "json", *folders]
    found = subprocess.run(command, cwd=root, check=True, capture_output=True, text=True).stdout
    return len(json.loads(found))


def _is_property(node: Function) -> bool:
    return any(
        each.id in _PROPERTIES if isinstance(each, ast.Name) else getattr(each, "attr", "") in _PROPERTIES
        for each in node.decorator_list
    )
