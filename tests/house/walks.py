"""The walks of ``docs/explanation/walks.md``: numbered stops, each a file and a function with a sentence.

A walk is true if its functions are called in its order: ``recorded`` sees the calls, ``unreached`` compares.
"""

import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import CodeType, FrameType
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


@contextmanager
def recorded() -> Iterator[list[CodeType]]:
    """Record the functions that are called in this thread, in order."""
    calls: list[CodeType] = []

    def see(frame: FrameType, event: str, argument: object) -> None:
        if event == "call":
            calls.append(frame.f_code)

    previous = sys.getprofile()
    sys.setprofile(see)
    try:
        yield calls
    finally:
        sys.setprofile(previous)


def unreached(walk: str, calls: Sequence[CodeType]) -> Sequence[Stop]:
    """Return the stops of a walk that are not called, each after the one before it; empty if the walk is true."""
    stops = [entry.stop for entry in read_walks()[walk]]
    reached = 0
    for code in calls:
        if reached < len(stops) and _stop_of(code) == stops[reached]:
            reached += 1
    return stops[reached:]


def _items(section: str) -> Sequence[str]:
    """Return the entries of a section's numbered list, each in one line."""
    items = re.findall(r"^\d+\. .*(?:\n +.*)*", section, re.MULTILINE)
    return [re.sub(r"\n +", " ", item) for item in items]


def _parse(item: str) -> Entry:
    found = re.fullmatch(r"(\d+)\. `([\w/]+\.py)::([\w.]+)`: (.+\.)", item)
    assert found is not None, f"not `path.py::function`: and a sentence: {item}"
    number, file, function, sentence = found.groups()
    return Entry(int(number), Stop(file, function), sentence)


@cache
def _stop_of(code: CodeType) -> Stop:
    """Return where a function is; a file outside the repository keeps its whole path."""
    file = Path(code.co_filename).resolve()  # The packages are imported through links.
    name = str(file.relative_to(REPOSITORY)) if file.is_relative_to(REPOSITORY) else str(file)
    return Stop(name, code.co_qualname)
