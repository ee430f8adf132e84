"""``python -m tests.rolling COMMIT``: rounds of upgrades and ways back; exits with 1 on any violation.

Odd rounds end brokers by SIGTERM, even ones by kill -9. Each round has a new cluster; the directory of one with
violations is kept.
"""

import argparse
import asyncio
import shutil
import signal
import sys
import tempfile
from pathlib import Path
from time import perf_counter
from typing import Final

from tests.faults.audit import describe
from tests.faults.client_process import CLIENTS, lacking
from tests.faults.report import aligned
from tests.former_code import worktree
from tests.rolling.journey import Journey, LegResult

_HEAD: Final = (
    "ROUND, END, LEG",
    "RESTARTS",
    "COMMITTED",
    "ABORTED",
    "UNKNOWN",
    "STALL S",
    "COMPARED",
    "LOST",
    "DUPLICATED",
    "TORN",
    "OTHER",
    "WALL S",
)
_NAMED: Final = ("lost", "duplicated", "torn")


def _row(name: str, result: LegResult) -> tuple[str, ...]:
    kinds = [violation.kind for violation in result.violations]
    return (
        f"{name}, {result.leg}",
        str(result.restarts),
        *(f"{result.outcomes[outcome]:,}" for outcome in ("committed", "aborted", "unknown")),
        f"{result.stall:.1f}",
        f"{result.compared:,}",
        *(str(kinds.count(kind)) for kind in _NAMED),
        str(sum(kind not in _NAMED for kind in kinds)),
        f"{result.seconds:.0f}",
    )


async def _play(commit: str, rounds: int, clients: list[str], directory: Path) -> list[tuple[str, LegResult]]:
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    began, results = perf_counter(), []

    def say(text: str) -> None:
        print(f"{perf_counter() - began:7.1f} s  {text}", flush=True)

    with worktree(commit) as former:
        for number in range(1, rounds + 1):
            kill = number % 2 == 0
            name = f"{number}, {'kill -9' if kill else 'SIGTERM'}"
            place = directory / f"round-{number}"
            say(f"round {name}: {place}")
            found = await Journey(place, former, clients, say, kill=kill).play()
            results += [(name, result) for result in found]
            violations = [violation for result in found for violation in result.violations]
            for line in describe(violations):
                say(f"  VIOLATED {line}")
            if not violations:
                shutil.rmtree(place)
    return results


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.rolling", description=__doc__)
    parser.add_argument("commit", help="the former version")
    parser.add_argument("--rounds", type=int, default=2, help="how many; every second with kill -9 [2]")
    parser.add_argument("--clients", nargs="+", choices=[*CLIENTS], default=[*CLIENTS], help=f"of {', '.join(CLIENTS)}")
    parser.add_argument("--dir", type=Path, help="where the clusters are")
    arguments = parser.parse_args()
    missing = lacking(arguments.clients)
    if missing:
        sys.exit(missing)
    directory = arguments.dir or Path(tempfile.mkdtemp(prefix="oncelog-rolling-"))
    began = perf_counter()
    results = asyncio.run(_play(arguments.commit, arguments.rounds, arguments.clients, directory))
    print()
    print(aligned(_HEAD, [_row(name, result) for name, result in results]))
    violated = sum(bool(result.violations) for _, result in results)
    committed = sum(result.outcomes["committed"] for _, result in results)
    restarts = sum(result.restarts for _, result in results)
    print(
        f"\n{arguments.rounds} rounds from {arguments.commit} in {perf_counter() - began:.0f} s: {restarts} restarts, "
        f"{committed:,} transactions committed, {violated} legs with violations"
    )
    if not any(directory.iterdir()):
        directory.rmdir()
    sys.exit(1 if violated else 0)


if __name__ == "__main__":
    main()
