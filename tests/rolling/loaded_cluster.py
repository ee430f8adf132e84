"""A rolling cluster under the load of the fault tests, walked through legs, with everything checked after each.

After each restart every client goes on and every partition gets all its replicas in sync. After each leg the load
pauses and everything is checked from the beginning, record by record.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeAlias

from oncelog.clients.errors import ClientError
from tests.faults import names
from tests.faults.access import Access
from tests.faults.audit import audit
from tests.faults.checker import Violation, check
from tests.faults.client_process import ClientDied
from tests.faults.history import Evidence
from tests.faults.load import Load
from tests.faults.reader import CannotRead
from tests.faults.roles import Roles
from tests.processes import BrokerDied
from tests.rolling.rolling_cluster import RollingCluster
from tests.rolling.second_reader import read_committed_again

_IN_SYNC_SECONDS: Final = 60.0
_LOOK_SECONDS: Final = 0.1


class LegFailed(Exception):
    """A leg could not be walked to its end."""


@dataclass(slots=True, kw_only=True)
class LegResult:
    """What came of one leg of a round."""

    leg: str
    restarts: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    """The leg's transactions, by what is known of their end."""
    stall: float = 0.0
    """The longest time without a commit of any role, in seconds."""
    compared: int = 0
    """Committed records that both readers found."""
    seconds: float = 0.0
    violations: list[Violation] = field(default_factory=list)


Walk: TypeAlias = Callable[[LegResult], Awaitable[None]]
"""What happens in a leg."""


class LoadedCluster:
    """The cluster, its load and those who judge it; ``roles.access`` says where and as whom the judges connect."""

    def __init__(
        self, cluster: RollingCluster[Any], clients: Sequence[str], directory: Path, say: Callable[[str], None]
    ) -> None:
        self._cluster = cluster
        self._say = say
        self._outcomes: Counter[str] = Counter()
        self.roles = Roles(Access(cluster.bootstrap))
        self.load = Load(self.roles, clients, directory)

    async def open(self) -> None:
        """Start everything."""
        await self._cluster.start()
        await self.load.start()

    async def close(self) -> None:
        """Stop everything, as far as it was started."""
        await self.load.stop()
        await self._cluster.stop()

    async def play(self, legs: Mapping[str, Walk]) -> list[LegResult]:
        """Play all legs, or those before the first with a violation and that one."""
        results: list[LegResult] = []
        for leg, walk in legs.items():
            results.append(await self._play_leg(leg, walk))
            if results[-1].violations:
                break
        return results

    async def _play_leg(self, leg: str, walk: Walk) -> LegResult:
        loop = asyncio.get_running_loop()
        result = LegResult(leg=leg)
        began = loop.time()
        try:
            await walk(result)
            stalls = self.load.stalls(began, loop.time())
            (client, role), result.stall = max(stalls.items(), key=lambda item: item[1])
            self._say(f"  longest without a commit: {client} {role}, {result.stall:.1f} s")
            await self._pause_and_check(result)
            self.load.run()
            await self.load.until_progress()
        except (TimeoutError, ClientDied, CannotRead, ClientError, BrokerDied, LegFailed) as error:
            result.violations.append(Violation("stalled", f"{type(error).__name__}: {error}"))
        result.seconds = loop.time() - began
        return result

    async def settle(self, result: LegResult, what: str) -> None:
        """Wait until each role has committed again and every replica is in sync."""
        await self.load.until_progress()
        loop = asyncio.get_running_loop()
        began = loop.time()
        while behind := await self.roles.out_of_sync():
            if loop.time() > began + _IN_SYNC_SECONDS:
                result.violations.append(Violation("isr", f"{what}: {len(behind)} partitions are not in sync"))
                return
            await asyncio.sleep(_LOOK_SECONDS)
        self._say(f"  {what}: in sync after {loop.time() - began:.1f} s")

    async def _pause_and_check(self, result: LegResult) -> None:
        inputs = await self.load.pause()
        evidence = await self.load.evidence(inputs)
        so_far = Counter(str(transaction.outcome) for transaction in evidence.transactions.values())
        result.outcomes, self._outcomes = so_far - self._outcomes, so_far
        result.violations += check(evidence)
        result.violations += await self._compare_readers(evidence, result)
        result.violations += await audit(self._cluster.places, self.roles)

    async def _compare_readers(self, evidence: Evidence, result: LegResult) -> list[Violation]:
        """Read all topics with another client; both have to find the same places, and the same inputs."""
        found = []
        texts = {record.at: record.text for record in evidence.inputs}
        again = {at: text for text, at in await read_committed_again(self.roles.access, names.INPUTS)}
        if texts != again:
            found.append(Violation("readers", f"inputs: {len(texts)} and {len(again)} records"))
        for client, outputs in evidence.outputs.items():
            one = [(output.at.partition, output.at.offset) for output in outputs]
            second = await read_committed_again(self.roles.access, names.outputs(client))
            if sorted(one) != sorted((at.partition, at.offset) for _, at in second):
                found.append(Violation("readers", f"outputs of {client}: {len(one)} and {len(second)} records"))
            result.compared += len(one)
        result.compared += len(texts)
        return found
