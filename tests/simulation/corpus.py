"""The histories that failed once: ``corpus.txt``, one a line. See there what such an entry still shows."""

from pathlib import Path
from typing import Final, NamedTuple

from tests.simulation.histories import KINDS, HistoryName

CORPUS: Final = Path(__file__).with_name("corpus.txt")
_FIELDS: Final = 3


class CorpusEntry(NamedTuple):
    """A history that failed once."""

    name: HistoryName
    origin: str
    """The commit, or the row of docs/internals/invariants.md, that it belongs to."""
    finding: str
    """One sentence."""


def read_corpus() -> list[CorpusEntry]:
    """Return the entries in the order of the file; raise ValueError for a line that is none."""
    lines = CORPUS.read_text(encoding="utf-8").splitlines()
    return [parse_entry(line) for line in lines if line and not line.startswith("#")]


def parse_entry(line: str) -> CorpusEntry:
    """Return the entry of a line; raise ValueError if it is none."""
    fields = [field.strip() for field in line.split("|")]
    kind, _, seed = fields[0].partition(":")
    if len(fields) != _FIELDS or not all(fields) or kind not in KINDS or not seed.isdecimal():
        raise ValueError(f"not an entry of the corpus: {line!r}")
    return CorpusEntry(HistoryName(kind, int(seed)), fields[1], fields[2])
