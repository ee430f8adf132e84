"""One fault after the other on one cluster: strike, hold, heal, see everybody go on, pause, check everything."""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Final

from oncelog.clients.errors import ClientError
from tests.faults.audit import audit
from tests.faults.checker import Violation, check
from tests.faults.client_process import ClientDied
from tests.faults.cluster_under_test import ClusterUnderTest, OrderFailed, plan_cluster
from tests.faults.fault import Fault, Scene
from tests.faults.load import Load
from tests.faults.network import Network
from tests.faults.reader import CannotRead
from tests.faults.roles import Roles, RoleUnknown
from tests.faults.volumes import Volumes

_CALM_SECONDS: Final = (0.3, 1.0)
"""Of load before a fault strikes."""
_STRIKE_SECONDS: Final = 180.0
_HEAL_SECONDS: Final = 120.0
SETTINGS: Final = (
    "auto.create.topics.enable=false",
    "group.initial.rebalance.delay.ms=0",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms=1000",
)


@dataclass(slots=True, kw_only=True)
class RoundResult:
    """What came of one fault."""

    fault: str
    reported: str = ""
    outcomes: Counter[str] = field(default_factory=Counter)
    """The round's transactions, by what is known of their end."""
    stalls: dict[tuple[str, str], float] = field(default_factory=dict)
    """The longest time without a commit, of each client's roles, in seconds."""
    seconds: float = 0.0
    violations: list[Violation] = field(default_factory=list)


class Stage:
    """A cluster with its load, for several rounds."""

    def __init__(
        self,
        directory: Path,
        network: Network,
        clients: Sequence[str],
        rng: Random,
        tell: Callable[[str], None],
        *,
        has_volumes: bool = False,
        settings: Sequence[str] = (),
        is_secured: bool = False,
    ) -> None:
        """``has_volumes``: each broker gets a file system of its own. ``settings``: of brokers, besides the usual.
        ``is_secured``: all connections have TLS and logins."""
        self._is_secured = is_secured
        self._has_volumes = has_volumes
        self._settings = settings
        self._volumes = Volumes()
        self.directory = directory
        self._network = network
        self._clients = tuple(clients)
        self._rng = rng
        self._tell = tell
        self._outcomes: Counter[str] = Counter()

    async def open(self) -> None:
        """Start everything."""
        layout = plan_cluster(self.directory, self._rng)
        settings = [*SETTINGS, *self._settings, *await self._network.open(layout)]
        self._cluster = ClusterUnderTest(self.directory, layout, settings, is_secured=self._is_secured)
        if self._has_volumes:
            places = [self._cluster.place(broker_id) for broker_id in self._cluster.broker_ids]
            self._volumes.open(self.directory / "volumes", places)
        await self._cluster.start()
        self._roles = Roles(self._cluster.access)
        self._load = Load(self._roles, self._clients, self.directory)
        await self._load.start()

    async def close(self) -> None:
        """Stop everything, as far as it was started."""
        if hasattr(self, "_load"):
            await self._load.stop()
        if hasattr(self, "_cluster"):
            await self._cluster.stop()
        self._volumes.close()
        await self._network.close()

    async def play(self, fault: Fault, *, is_brief: bool = False) -> RoundResult:
        """One round, held as briefly as it may be, or not. After a violation a stage should not be played on."""
        loop = asyncio.get_running_loop()
        result = RoundResult(fault=fault.name)
        shortest, longest = fault.hold_seconds
        hold_seconds = shortest if is_brief else self._rng.uniform(shortest, longest)
        began = loop.time()
        try:
            await self._strike_and_heal(fault, hold_seconds, result)
            await self._pause_and_check(result)
            self._load.run()
        except (TimeoutError, ClientDied, CannotRead, OrderFailed, ClientError, RoleUnknown) as error:
            result.violations.append(Violation("stalled", f"{type(error).__name__}: {error}"))
        result.seconds = loop.time() - began
        return result

    async def _strike_and_heal(self, fault: Fault, hold_seconds: float, result: RoundResult) -> None:
        loop = asyncio.get_running_loop()
        scene = Scene(
            cluster=self._cluster,
            roles=self._roles,
            network=self._network,
            volumes=self._volumes,
            rng=self._rng,
            clients=self._clients,
            restart_client=self._load.restart_client,
        )
        await self._load.until_progress()
        await asyncio.sleep(self._rng.uniform(*_CALM_SECONDS))
        struck = loop.time()
        try:
            async with asyncio.timeout(_STRIKE_SECONDS):
                result.reported = await fault.strike(scene)
            await asyncio.sleep(hold_seconds)
        finally:
            async with asyncio.timeout(_HEAL_SECONDS):
                await fault.heal(scene)
                await self._network.heal()
        healed = loop.time()
        self._tell(f"{fault.name}: {result.reported}; healed after {healed - struck:.1f} s")
        try:
            await self._load.until_progress()
        finally:
            result.stalls = self._load.stalls(struck, loop.time())

    async def _pause_and_check(self, result: RoundResult) -> None:
        inputs = await self._load.pause()
        evidence = await self._load.evidence(inputs)
        so_far = Counter(str(transaction.outcome) for transaction in evidence.transactions.values())
        result.outcomes, self._outcomes = so_far - self._outcomes, so_far
        result.violations += check(evidence)
        result.violations += await audit(self._places(), self._roles)

    def _places(self) -> dict[int, Path]:
        return {broker_id: self._cluster.place(broker_id) for broker_id in self._cluster.broker_ids}
