"""``python -m tests.mutations [row …]``: take each safeguard away in a temporary copy, and see its test fail.

Printed is ``killed`` where the test failed, ``survived`` where it did not notice, ``hung`` where it did not end (which
is noticed, too). A test hangs when it has used too much processor time, so that a busy machine makes none hang; tests
that wait end by their own limits. The exit status is 1 if anything survived, or if a mutation cannot be made or makes
no program.
"""

import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from enum import Enum
from pathlib import Path
from typing import Final

from tests.mutations.table import MUTATIONS, Mutation

REPOSITORY: Final = Path(__file__).resolve().parent.parent.parent
_COPIED: Final = (
    "oncelog",
    "protocol",
    "coordinator",
    "broker",
    "clients",
    "spark_connector",
    "tests",
    "pyproject.toml",
)
_LONGEST_CPU_SECONDS: Final = 300
"""Of the tests of one mutation."""
_LONGEST_SECONDS: Final = 3_600
"""For what neither computes nor has a limit of its own."""
_TESTS_FAILED: Final = 1
_INTERRUPTED_BY_ERRORS: Final = 2


class Verdict(Enum):
    """What became of one mutation."""

    KILLED = "killed"
    HUNG = "hung"
    SURVIVED = "survived"
    BROKEN = "broken"


def main(rows: list[str]) -> int:
    unknown = sorted(set(rows) - {mutation.row for mutation in MUTATIONS})
    if unknown:
        print(f"No mutation belongs to a row {', '.join(unknown)}; rows are those of docs/internals/invariants.md.")
        return 1
    chosen = [mutation for mutation in MUTATIONS if not rows or mutation.row in rows]
    with tempfile.TemporaryDirectory(prefix="oncelog-mutations-") as directory:
        copy = Path(directory)
        _copy_repository(copy)
        untouched = _run(copy, sorted({mutation.test for mutation in chosen}))
        if untouched.returncode != 0:
            print(untouched.stdout)
            print("These tests must pass before anything is taken away.")
            return 1
        verdicts = Counter(_judge(copy, mutation) for mutation in chosen)
    print(", ".join(f"{verdicts[verdict]} {verdict.value}" for verdict in Verdict))
    return 1 if verdicts[Verdict.SURVIVED] or verdicts[Verdict.BROKEN] else 0


def _copy_repository(copy: Path) -> None:
    for name in _COPIED:
        source = REPOSITORY / name
        if source.is_dir():
            shutil.copytree(source, copy / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
        elif source.exists():
            shutil.copy(source, copy)


def _judge(copy: Path, mutation: Mutation) -> Verdict:
    path = copy / mutation.path
    original = path.read_text()
    if original.count(mutation.old) != 1:
        verdict = Verdict.BROKEN
    else:
        path.write_text(original.replace(mutation.old, mutation.new))
        try:
            verdict = _verdict(_run(copy, [mutation.test], cpu_seconds=_LONGEST_CPU_SECONDS))
        except subprocess.TimeoutExpired:
            verdict = Verdict.HUNG
        finally:
            path.write_text(original)
    print(f"{verdict.value:<9} {mutation.row}  {mutation.path}  {mutation.test}", flush=True)
    return verdict


def _verdict(run: "subprocess.CompletedProcess[str]") -> Verdict:
    if run.returncode == 0:
        return Verdict.SURVIVED
    if run.returncode == -signal.SIGXCPU:
        return Verdict.HUNG
    if run.returncode == _TESTS_FAILED and "error" not in run.stdout.splitlines()[-1]:
        return Verdict.KILLED
    print(run.stdout)
    return Verdict.BROKEN


def _run(copy: Path, tests: list[str], cpu_seconds: int = resource.RLIM_INFINITY) -> "subprocess.CompletedProcess[str]":
    """Run tests of the copy on the copy, whatever is installed. Nothing is cached: files change within a second.

    ``cpu_seconds`` of processor time end the run by SIGXCPU.
    """
    program = (
        "import sys, pathlib, resource, oncelog.broker, pytest; "
        f"resource.setrlimit(resource.RLIMIT_CPU, ({cpu_seconds}, {resource.RLIM_INFINITY})); "
        f"assert pathlib.Path(oncelog.broker.__file__).is_relative_to({str(copy)!r}), oncelog.broker.__file__; "
        "sys.exit(pytest.main(sys.argv[1:]))"
    )
    return subprocess.run(
        [sys.executable, "-c", program, "-q", "-x", "--tb=no", "-p", "no:cacheprovider", *tests],
        cwd=copy,
        env={**os.environ, "PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=_LONGEST_SECONDS,
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
