"""Rounds of a rolling change, from the command line to the exit code.

Odd rounds end brokers by SIGTERM, even ones by kill -9. Each round has a new cluster; the directory of one with
violations is kept.
"""

import argparse
import asyncio
import shutil
import signal
import sys
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from time import perf_counter
from typing import Final, TypeAlias

from tests.faults.audit import describe
from tests.faults.client_process import CLIENTS, lacking
from tests.rolling.loaded_cluster import LegResult
from tests.rolling.report import sums, table, violated_legs

_ROUNDS: Final = 2
Say: TypeAlias = Callable[[str], None]
Results: TypeAlias = list[tuple[str, LegResult]]
Play: TypeAlias = Callable[[Path, Sequence[str], Say, bool], Awaitable[list[LegResult]]]
"""Plays one round in a directory, with clients; the last argument is whether brokers are killed."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add what all rolling changes can be told."""
    parser.add_argument("--rounds", type=int, default=_ROUNDS, help=f"how many; every second with kill -9 [{_ROUNDS}]")
    parser.add_argument("--clients", nargs="+", choices=[*CLIENTS], default=[*CLIENTS], help=f"of {', '.join(CLIENTS)}")
    parser.add_argument("--dir", type=Path, help="where the clusters are")


def play_rounds(arguments: argparse.Namespace, what: str, play: Play) -> None:
    """Play all rounds, print the table, and exit with 1 on any violation. ``what`` describes the rounds."""
    missing = lacking(arguments.clients)
    if missing:
        sys.exit(missing)
    directory = arguments.dir or Path(tempfile.mkdtemp(prefix="oncelog-rolling-"))
    began = perf_counter()
    results = asyncio.run(_play(arguments, directory, play))
    print(f"\n{table(results)}\n")
    print(f"{arguments.rounds} rounds {what} in {perf_counter() - began:.0f} s: {sums(results)}")
    if directory.is_dir() and not any(directory.iterdir()):
        directory.rmdir()
    sys.exit(1 if violated_legs(results) else 0)


async def _play(arguments: argparse.Namespace, directory: Path, play: Play) -> Results:
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    began = perf_counter()
    results: Results = []

    def say(text: str) -> None:
        print(f"{perf_counter() - began:7.1f} s  {text}", flush=True)

    for number in range(1, arguments.rounds + 1):
        kill = number % 2 == 0
        name = f"{number}, {'kill -9' if kill else 'SIGTERM'}"
        place = directory / f"round-{number}"
        say(f"round {name}: {place}")
        found = await play(place, arguments.clients, say, kill)
        results += [(name, result) for result in found]
        violations = [violation for result in found for violation in result.violations]
        for line in describe(violations):
            say(f"  VIOLATED {line}")
        if not violations:
            shutil.rmtree(place)
    return results
