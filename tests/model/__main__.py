"""Check the model in every configuration, print the table of results: python -m tests.model [--deep] [--only NAME …].

Fails when a configuration finds another property than its table says, finds nothing where something must be found, or
finds nothing in fewer states than it must have. The log of each run of TLC is in ``build/model/NAME/tlc.log``.
"""

import argparse
import sys
from pathlib import Path
from typing import Final

from tests.model.configurations import Configuration
from tests.model.story import tell
from tests.model.table import ALL
from tests.model.tlc import Found, check

MODULE: Final = Path(__file__).parent / "Transactions.tla"
TEXT: Final = "{:26}{:30}{:>11}{:>7}{:>9}"
MARKDOWN: Final = "| `{}` | {} | {} | {} | {} | {} |"


def main() -> int:
    """Return the exit status: 0 if each configuration found what its table says."""
    parser = argparse.ArgumentParser(prog="python -m tests.model", description=__doc__)
    parser.add_argument("--deep", action="store_true", help="Also run the configurations that take long.")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="Run only these configurations.")
    parser.add_argument("--story", action="store_true", help="Print every counterexample step by step.")
    parser.add_argument("--markdown", action="store_true", help="Print the rows of the page in docs/internals.")
    parser.add_argument("--workers", type=int, default=2, help="Threads of TLC.")
    options = parser.parse_args()
    chosen = [each for each in ALL if (each.name in options.only if options.only else options.deep or not each.deep)]
    if not chosen:
        parser.error("no such configuration")
    if not options.markdown:
        print(TEXT.format("configuration", "violated", "states", "depth", "seconds"), flush=True)
    failed = [each.name for each in chosen if not _run(each, options)]
    print(f"{len(chosen) - len(failed)} passed, {len(failed)} failed")
    if failed:
        print("Not as the table says:", *failed)
    return 1 if failed else 0


def _run(configuration: Configuration, options: argparse.Namespace) -> bool:
    found = check(MODULE, configuration.text(), configuration.name, options.workers)
    print(_row(configuration, found, as_markdown=options.markdown), flush=True)
    difference = problem(configuration, found)
    if difference:
        print(f"  FAILED: {difference}; see {found.output}")
    if found.violated and (options.story or difference):
        print(*tell(found.trace), sep="\n")
    return not difference


def _row(configuration: Configuration, found: Found, *, as_markdown: bool) -> str:
    figures = f"{found.distinct_states:,}", str(found.depth or ""), f"{found.seconds:.0f}"
    if not as_markdown:
        return TEXT.format(configuration.name, found.violated or "none", *figures)
    violated = f"`{found.violated}`" if found.violated else "none"
    return MARKDOWN.format(configuration.name, configuration.difference, violated, *figures)


def problem(configuration: Configuration, found: Found) -> str | None:
    """Return why a result is not what the table says; None if it is."""
    if not found.is_complete:
        return "TLC did not finish"
    if found.violated != configuration.violated:
        return f"expected {configuration.violated or 'no violation'}"
    if found.violated is None and found.distinct_states < configuration.least_states:
        return f"expected at least {configuration.least_states:,} states"
    return None


if __name__ == "__main__":
    sys.exit(main())
