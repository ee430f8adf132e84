"""Run TLC, the model checker of TLA+, and read what it found."""

import re
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from tests.model.configurations import LIVENESS
from tests.processes import REPOSITORY

JARS: Final = REPOSITORY / ".peers" / "tla-tools" / "lib"
OUTPUT: Final = REPOSITORY / "build" / "model"
HEAP_MEGABYTES: Final = 3072

_INVARIANT = re.compile(r"^Error: Invariant (\w+) is violated", re.MULTILINE)
_STATES = re.compile(r"^([\d,]+) states generated, ([\d,]+) distinct states found, ([\d,]+) states left", re.MULTILINE)
_DEPTH = re.compile(r"^The depth of the complete state graph search is (\d+)", re.MULTILINE)
_STATE = re.compile(r"^State \d+: .*$", re.MULTILINE)
_VARIABLE = re.compile(r"^/\\ (\w+) = ", re.MULTILINE)
_FINISHED: Final = "Model checking completed. No error has been found."
_UNFAIR: Final = "Error: Temporal properties were violated."


class Found(NamedTuple):
    """What one run of TLC found."""

    violated: str | None
    """The violated property; None if there is none."""
    is_complete: bool
    """Whether TLC visited every state, or stopped at a violation."""
    distinct_states: int
    depth: int
    seconds: float
    trace: Sequence[dict[str, str]]
    """The states of the counterexample: by variable, its value as TLC prints it."""
    output: Path


def check(module: Path, configuration: str, name: str, workers: int) -> Found:
    """Check a module by a configuration; everything that is written lies in ``build/model/NAME``."""
    directory = OUTPUT / name
    directory.mkdir(parents=True, exist_ok=True)
    (directory / module.name).write_text(module.read_text())
    (directory / f"{module.stem}.cfg").write_text(configuration)
    output = directory / "tlc.log"
    started = time.perf_counter()
    with output.open("w") as log:
        subprocess.run(_command(module.stem, workers), cwd=directory, stdout=log, stderr=subprocess.STDOUT, check=False)
    return _read(output, time.perf_counter() - started)


def _command(module: str, workers: int) -> list[str]:
    java = ["java", "-XX:+UseParallelGC", f"-Xmx{HEAP_MEGABYTES}m", "-cp", f"{JARS}/*", "tlc2.TLC"]
    return [*java, "-workers", str(workers), "-deadlock", "-nowarning", "-cleanup", "-metadir", "states", module]


def _read(output: Path, seconds: float) -> Found:
    text = output.read_text()
    invariant = _INVARIANT.search(text)
    violated = invariant[1] if invariant else LIVENESS if _UNFAIR in text else None
    counts = _STATES.findall(text)
    depth = _DEPTH.search(text)
    return Found(
        violated=violated,
        is_complete=_FINISHED in text or violated is not None,
        distinct_states=int(counts[-1][1].replace(",", "")) if counts else 0,
        depth=int(depth[1]) if depth else 0,
        seconds=seconds,
        trace=[_variables(state) for state in _STATE.split(text)[1:]],
        output=output,
    )


def _variables(state: str) -> dict[str, str]:
    body = state.partition("\n\n")[0]
    _, *pieces = _VARIABLE.split(body)
    return {name: " ".join(value.split()) for name, value in zip(pieces[::2], pieces[1::2], strict=True)}
