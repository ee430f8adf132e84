"""Print the measures of the house: ``python -m tests.house [--before COMMIT] [--list WORDS]``."""

import argparse
import io
import subprocess
import tarfile
import tempfile
from pathlib import Path

from tests.house.sources import REPOSITORY
from tests.house.table import rows


def main() -> None:
    """Print the table; with ``--list`` what is behind the rows whose names contain these words."""
    parser = argparse.ArgumentParser(prog="python -m tests.house", description="Print the measures of the house.")
    parser.add_argument("--before", metavar="COMMIT", help="print this commit's figures in a column before")
    parser.add_argument("--list", metavar="WORDS", help="list what is counted in the rows whose names contain this")
    chosen = parser.parse_args()
    before = _figures_of(chosen.before) if chosen.before else None
    for row in rows():
        if chosen.list is None:
            former = "" if before is None else f"{before.get(row.name, '-'):>7}"
            print(f"{row.name:<56}{former}{row.figure:>7}")
        elif chosen.list in row.name:
            print(f"{row.name}: {row.figure}", *row.listed, sep="\n  ")


def _figures_of(commit: str) -> dict[str, int]:
    """Return the figures of a commit by the names of the rows."""
    archive = subprocess.run(["git", "archive", commit], cwd=REPOSITORY, check=True, capture_output=True).stdout
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(fileobj=io.BytesIO(archive)) as files:
            files.extractall(folder, filter="data")
        return {row.name: row.figure for row in rows(Path(folder).resolve())}


if __name__ == "__main__":
    main()
