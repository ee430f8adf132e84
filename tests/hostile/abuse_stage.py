"""A secured broker, a client beside it that is timed, and the figures of each abuse: ``AbuseStage``."""

import asyncio
import multiprocessing
import os
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import uvloop

from tests.hostile.abuse import ABUSES, Abuse, Abuser
from tests.hostile.attacks import Tally
from tests.hostile.companion import Companion
from tests.hostile.process_memory import ProcessMemory
from tests.hostile.raw_connection import NeverResponded
from tests.hostile.secured_broker import Place, SecuredBroker
from tests.simulation.wire_client import NoResponse

QUIET_SECONDS: Final = 5.0
_LESS_URGENT: Final = 15
"""Niceness of the abuse, which would run on other machines."""


@dataclass(frozen=True, slots=True)
class Abused:
    """One abuse and what the client beside it saw. Times are in milliseconds."""

    name: str
    inputs: int
    fate: str
    quiet_p99: float
    """Response times before it."""
    p50: float
    p99: float
    longest: float
    pause: float
    """The longest response time of ApiVersions on a listener without TLS."""
    overrun: float
    """How late a client was woken: the machine's part."""
    growth_mib: int

    @property
    def ratio(self) -> float:
        return self.p99 / self.quiet_p99


class AbuseStage:
    """``with AbuseStage(directory, abuse) as stage``: the broker and the clients beside it run."""

    def __init__(self, directory: Path, abuse: Abuse, quiet_seconds: float = QUIET_SECONDS) -> None:
        self._abuse = abuse
        self._quiet_seconds = quiet_seconds
        self.broker = SecuredBroker(directory)
        self.problems: list[str] = []

    def __enter__(self) -> Self:
        self.broker.process.start()
        uvloop.run(self.broker.prepare(self._abuse.lists))
        place = self.broker.place
        self._loop_prober = Companion("tests.hostile.prober", str(place.plain_port))
        self._prober = Companion("tests.hostile.secured_prober", *map(str, (place.port, place.authority)))
        self._abusers = ProcessPoolExecutor(
            1, multiprocessing.get_context("spawn"), initializer=os.nice, initargs=(_LESS_URGENT,)
        )
        self._ask()
        self._memory = ProcessMemory(self.broker.process.pid)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._abusers.shutdown(cancel_futures=True)
        for companion in (self._prober, self._loop_prober):
            companion.end(10.0)
        self.broker.process.stop()

    def measure_all(self, wanted: str = "") -> Sequence[Abused]:
        """Commit each abuse that has ``wanted`` in its name."""
        return [self._measure(number) for number, (name, _) in enumerate(ABUSES) if wanted in name]

    def _ask(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """End a measurement of both clients."""
        return self._prober.ask(), self._loop_prober.ask()

    def _measure(self, number: int) -> Abused:
        name, _ = ABUSES[number]
        asyncio.run(asyncio.sleep(self._quiet_seconds))
        quiet, _ = self._ask()
        self._memory.forget_peak()
        tally = self._abusers.submit(_commit, number, self.broker.place, self._abuse).result()
        seen, loop = self._ask()
        self.problems += [f"{name}: {count} times {harm}" for harm, count in tally.harms.items()]
        return Abused(
            name=name,
            inputs=tally.inputs,
            fate=", ".join(tally.fates),
            quiet_p99=quiet["p99"] * 1000,
            p50=seen["p50"] * 1000,
            p99=seen["p99"] * 1000,
            longest=seen["longest"] * 1000,
            pause=loop["response"] * 1000,
            overrun=loop["overrun"] * 1000,
            growth_mib=self._memory.growth_mib(),
        )


def _commit(number: int, place: Place, abuse: Abuse) -> Tally:
    _, act = ABUSES[number]
    tally = Tally()
    try:
        uvloop.run(act(Abuser(place, abuse, tally)))  # type: ignore[arg-type]
    except (NeverResponded, NoResponse, OSError, TimeoutError) as error:
        tally.harm(repr(error))
    return tally
