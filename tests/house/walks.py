"""The walks of ``docs/explanation/walks.md``: numbered stops, each a file and a function with a sentence."""

import re
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from tests.house.sources import REPOSITORY

PAGE: Final = REPOSITORY / "docs" / "explanation" / "walks.md"
TRANSACTION: Final = "One transaction, from socket to marker"
REPLICA_FETCH: Final = "One replica fetch, from follower to high watermark"
SPARK_ROW: Final = "One Spark row, from topic to DataFrame"


class Stop(NamedTuple):
    """One function of a walk."""

    file: str
    """From the root of the repository."""
    function: str
    """Its qualified name, as ``co_qualname`` has it."""


class Entry(NamedTuple):
    """An entry of the page's lists."""

    number: int
    stop: Stop
    sentence: str


def read_walks() -> Mapping[str, Sequence[Entry]]:
    """Return the entries of each walk, by its heading."""
    _, *sections = re.split(r"^## ", PAGE.read_text(), flags=re.MULTILINE)
    return {section.partition("\n")[0]: [_parse(item) for item in _items(section)] for section in sections}


def _items(section: str) -> Sequence[str]:
    """Return the entries of a section's numbered list, each in one line."""
    items = re.findall(r"^\d+\. .*(?:\n +.*)*", section, re.MULTILINE)
    return [re.sub(r"\n +", " ", item) for item in items]


def _parse(item: str) -> Entry:
    found = re.fullmatch(r"(\d+)\. `([\w/]+\.py)::([\w.]+)`: (.+\.)", item)
    assert found is not None, f"not `path.py::function`: and a sentence: {item}"
    number, file, function, sentence = found.groups()
    return Entry(int(number), Stop(file, function), sentence)
