"""One broker in a simulated process on a simulated disk: it can be killed, lose power, and start again."""

import random
from collections.abc import Mapping
from typing import Any

from oncelog.broker.config.sources import load_config
from oncelog.broker.metadata.store_choice import OpenStore, open_store
from oncelog.broker.parts import Broker
from oncelog.broker.start import start_broker
from tests.simulation.sim_disk import CrashKind
from tests.simulation.stopping_disk import StoppingDisk
from tests.simulation.virtual_loop import SimProcess, SimSideLoop, VirtualLoop

PORT = 9092
EPOCH_MS = 1_750_000_000_000
SMALL: Mapping[str, str] = {
    "listeners": f"PLAINTEXT://127.0.0.1:{PORT}",
    "log.dirs": "/data",
    "num.partitions": "2",
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "2",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
}
"""Few internal partitions, so that a start takes milliseconds, and a quick sweep of timed-out transactions."""


class SimulatedBroker:
    """``start``, then ``crash`` or ``stop``, then ``start`` again, on the same disk."""

    def __init__(
        self,
        loop: VirtualLoop,
        rng: random.Random,
        settings: Mapping[str, str] | None = None,
        *,
        name: str | None = None,
        open_store: OpenStore = open_store,
    ) -> None:
        """``name``: of its processes, in all of its lives; else each has one of its own."""
        self._loop = loop
        self._rng = rng
        self._name = name
        self._open_store = open_store
        self.disk = StoppingDisk()
        self.disk.name = f"disk of {name or 'broker'}"
        self.disk.on_stop = self._halt
        swarm = loop.swarm
        self.settings = {**SMALL, **(settings or {}), **swarm.settings()}
        self._skew_ms = swarm.rng.randint(-500, 500) if swarm.strikes("skewed clock") else 0
        self.process: SimProcess | None = None
        self.broker: Broker | None = None
        self.starts = 0

    def wall_clock(self) -> int:
        return EPOCH_MS + self._skew_ms + int(self._loop.time() * 1000)

    def jump_clock(self, milliseconds: int, kind: str) -> None:
        """Put the wall clock forward, or back; ``kind``: of the event."""
        self._skew_ms += milliseconds
        self._note(kind, f"{milliseconds} ms")

    async def start(self) -> None:
        self.starts += 1
        self._note("start")
        self.process = SimProcess(self._loop, self._name or f"broker-{self.starts}")
        self.broker = await self.process.run(self._start())

    async def _start(self) -> Broker:
        config = load_config(
            overrides=[f"{key}={value}" for key, value in self.settings.items()], environment={}
        ).config
        rng = random.Random(self._rng.getrandbits(64))
        return await start_broker(
            config,
            disk=self.disk,
            wall_clock=self.wall_clock,
            rng=rng,
            open_store=self._open_store,
            side_loop=SimSideLoop(self._loop),
        )

    @property
    def is_down(self) -> bool:
        """Whether the machine has stopped, or the broker says that it cannot go on."""
        return self.disk.stopped or (self.broker is not None and self.broker.failure.done())

    def _halt(self) -> None:
        """The machine has stopped in the middle of a call: nothing that handles this may respond to a client."""
        if self.broker is not None and self.process is not None:
            self.process.kill()

    def crash(self, kind: CrashKind) -> None:
        """kill -9 (``process``), or the machine loses power."""
        assert self.process is not None
        if kind == "process":
            self._note("kill")
        self.process.kill()
        self.disk.crash(kind, self._rng)
        self.process = self.broker = None

    async def stop(self) -> None:
        """A clean shutdown."""
        self._note("stop")
        assert self.process is not None
        assert self.broker is not None
        await self.process.run(self._stop(self.broker))
        self.process.kill()
        self.disk.crash("process", self._rng)  # Nothing is lost; the lock goes with its process.
        self.process = self.broker = None

    def _note(self, event: str, detail: str = "") -> None:
        self._loop.journal.note(self._name or "broker", event, detail)

    @staticmethod
    async def _stop(broker: Any) -> None:
        await broker.stop()
