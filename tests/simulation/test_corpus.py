"""The cheap part of the corpus. ``make simulate CORPUS=1`` plays all of it."""

import time
from typing import Final

import pytest

from tests.simulation.corpus import parse_entry, read_corpus
from tests.simulation.histories import play

_BUDGET_CPU_SECONDS: Final = 5.0
"""After which no further history begins; the last one may take some seconds more."""
_FEWEST: Final = 2
"""Histories that are played on a machine however slow."""


def test_histories_that_failed_once_hold() -> None:
    """B57"""
    begun = time.process_time()
    for number, entry in enumerate(read_corpus()):
        if number >= _FEWEST and time.process_time() - begun > _BUDGET_CPU_SECONDS:
            return
        one = play(entry.name)
        assert not one.failure, f"{one.failure}\n{entry.finding}\nreplay it with: make simulate SEED={entry.name}"


def test_corpus_names_each_history_once() -> None:
    names = [entry.name for entry in read_corpus()]
    assert names
    assert len(names) == len(set(names))


@pytest.mark.parametrize(
    "line", ["writers:1 | B57", "writers | B57 | lost", "unknown:1 | B57 | lost", "writers:1 | | lost"]
)
def test_line_that_is_no_entry_is_refused(line: str) -> None:
    with pytest.raises(ValueError, match="not an entry"):
        parse_entry(line)
