"""A broker, an ordinary client that is timed, ordinary clients that work, and the figures of each attack on it."""

import asyncio
import json
import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import uvloop

from tests.hostile.attacks import Tally
from tests.hostile.companion import Companion
from tests.hostile.process_memory import ProcessMemory
from tests.hostile.raw_connection import NeverResponded
from tests.processes import OncelogProcess
from tests.simulation.wire_client import NoResponse

_BYSTANDER_SECONDS: Final = 400.0
_RAW_CONTROL: Final = re.compile(rb"[\x00-\x08\x0b-\x1f\x7f]")


@dataclass(frozen=True, slots=True)
class Measured:
    """One attack and what it did."""

    name: str
    inputs: int
    fates: str
    pause_ms: float
    """The longest response time of an ordinary client meanwhile."""
    overrun_ms: float
    """How late that client was woken meanwhile: the machine's part."""
    growth_mib: int
    """The broker's greatest memory meanwhile, above what it had at the start of the stage."""
    harms: int
    """Effects that no client may have; ``Stage.problems`` tells them."""


class Stage:
    """``with Stage(directory, settings) as stage``: the broker and the companions run."""

    def __init__(self, directory: Path, settings: Sequence[str]) -> None:
        self.broker = OncelogProcess(directory, settings)
        self.measured: list[Measured] = []
        self.problems: list[str] = []
        self.bystander: dict[str, Any] = {}

    def __enter__(self) -> Self:
        self.broker.start()
        self._prober = Companion("tests.hostile.prober", str(self.broker.port))
        self._bystander = Companion("tests.hostile.bystander", self.broker.address)
        assert self._bystander.process.stdout is not None
        self._bystander.process.stdout.readline()
        self._prober.ask()
        self._memory = ProcessMemory(self.broker.pid)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for companion in (self._prober, self._bystander):
            if companion.process.poll() is None:
                companion.process.kill()
                companion.process.communicate()
        self.broker.stop()

    def measure(self, name: str, attack: Callable[[Tally], Awaitable[None]]) -> Measured:
        """Run an attack, and return what the others saw meanwhile."""
        tally = Tally()
        self._memory.forget_peak()
        self._prober.ask()
        try:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(attack(tally))  # type: ignore[arg-type]
        except (NeverResponded, NoResponse, OSError) as error:
            tally.harm(repr(error))
        self.problems += [f"{name}: {count} times {harm}" for harm, count in tally.harms.items()]
        seen = self._prober.ask()
        fates = ", ".join(f"{count} {fate}" for fate, count in tally.fates.most_common(4))
        measured = Measured(
            name=name,
            inputs=tally.inputs,
            fates=fates,
            pause_ms=seen["response"] * 1000,
            overrun_ms=seen["overrun"] * 1000,
            growth_mib=self._memory.growth_mib(),
            harms=tally.harms.total(),
        )
        self.measured.append(measured)
        return measured

    def finish(self) -> None:
        """Let the ordinary clients end, restart the broker, kill and restart it, and judge its log."""
        self._prober.end(30.0)
        self._judge_bystander(self._bystander.end(_BYSTANDER_SECONDS))
        code = self.broker.stop()
        if code:
            self.problems.append(f"the broker stopped with exit code {code}")
        self.broker.start()
        self.broker.kill()
        self.broker.start()
        self._judge_log()

    def _judge_bystander(self, said: str) -> None:
        try:
            self.bystander = json.loads(said.splitlines()[-1])
        except (IndexError, ValueError):
            self.problems.append("the ordinary clients did not come to an end")
            return
        for figure in ("failed", "lost", "doubled", "reordered"):
            if self.bystander[figure]:
                self.problems.append(f"ordinary clients: {figure} {self.bystander[figure]}")

    def _judge_log(self) -> None:
        for name in ("stdout.log", "stderr.log"):
            data = (self.broker.directory / name).read_bytes()
            if b"Traceback" in data:
                self.problems.append(f"{data.count(b'Traceback')} tracebacks in {name}")
            raw = _RAW_CONTROL.search(data)
            if raw is not None:
                self.problems.append(f"a raw control character in {name}: {data[max(0, raw.start() - 60) :][:120]!r}")
            longest = max((len(line) for line in data.splitlines()), default=0)
            if longest > 5_000:
                self.problems.append(f"a line of {longest} bytes in {name}")
