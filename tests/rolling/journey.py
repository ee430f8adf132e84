"""One round: all brokers on the former code, then one after the other on this, the feature up and down, back, and up.

After each restart every client goes on and every partition gets all its replicas in sync. After each leg the load
pauses and everything is checked from the beginning, record by record.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from oncelog.clients.admin.features import FeatureUpdate
from oncelog.clients.errors import ClientError
from tests.faults import names
from tests.faults.audit import audit
from tests.faults.checker import Violation, check
from tests.faults.client_process import ClientDied
from tests.faults.history import Evidence
from tests.faults.load import Load
from tests.faults.reader import CannotRead
from tests.faults.roles import Roles
from tests.faults.rounds import SETTINGS
from tests.processes import REPOSITORY, BrokerDied
from tests.rolling.mixed_cluster import MixedCluster
from tests.rolling.second_reader import read_committed_again

FEATURE: Final = "eligible.leader.replicas.version"
_IN_SYNC_SECONDS: Final = 60.0
_COMMITS_AT_LEVEL: Final = 20
"""Of each role after the feature has changed."""
_EXPIRED_SECONDS: Final = 60.0
"""Longer than ZooKeeper keeps the registration of a killed broker."""
_LOOK_SECONDS: Final = 0.1
_RETRY_SECONDS: Final = 1.0


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


class Journey:
    """A cluster with its load, through all legs."""

    def __init__(
        self, directory: Path, former: Path, clients: Sequence[str], say: Callable[[str], None], *, kill: bool
    ) -> None:
        """``former``: the tree of the former commit; ``kill``: end brokers by kill -9 and not by SIGTERM."""
        self._directory = directory
        self._former = former
        self._clients = tuple(clients)
        self._say = say
        self._kill = kill
        self._outcomes: Counter[str] = Counter()

    async def play(self) -> list[LegResult]:
        """Play all legs, or those before the first with a violation and that one."""
        self._directory.mkdir(parents=True)
        self._cluster = MixedCluster(self._directory, SETTINGS, self._former)
        self._roles = Roles(self._cluster.bootstrap)
        self._load = Load(self._cluster.bootstrap, self._roles, self._clients, self._directory)
        results: list[LegResult] = []
        try:
            await self._cluster.start()
            await self._load.start()
            self._former_supports = await self._supports()
            for leg, walk in self._legs().items():
                results.append(await self._play_leg(leg, walk))
                if results[-1].violations:
                    break
        finally:
            await self._load.stop()
            await self._cluster.stop()
        return results

    def _legs(self) -> dict[str, Callable[[LegResult], Awaitable[None]]]:
        return {
            "upgrade": lambda result: self._roll(result, REPOSITORY),
            "raise": lambda result: self._set_level(result, 1),
            "restart at level 1": lambda result: self._roll(result, REPOSITORY),
            "lower": lambda result: self._set_level(result, 0),
            "back": lambda result: self._roll(result, self._former),
            "upgrade again": lambda result: self._roll(result, REPOSITORY),
            "raise again": lambda result: self._set_level(result, 1),
            "lower again": lambda result: self._set_level(result, 0),
            "back again": lambda result: self._roll(result, self._former),
            "raise while one is down": self._raise_while_one_is_down,
        }

    async def _play_leg(self, leg: str, walk: Callable[[LegResult], Awaitable[None]]) -> LegResult:
        loop = asyncio.get_running_loop()
        result = LegResult(leg=leg)
        began = loop.time()
        try:
            await walk(result)
            result.stall = max(self._load.stalls(began, loop.time()).values())
            await self._pause_and_check(result)
            self._load.run()
            await self._load.until_progress()
        except (TimeoutError, ClientDied, CannotRead, ClientError, BrokerDied) as error:
            result.violations.append(Violation("stalled", f"{type(error).__name__}: {error}"))
        result.seconds = loop.time() - began
        return result

    async def _roll(self, result: LegResult, tree: Path) -> None:
        """Restart one broker after the other with the code of a tree, the controller last."""
        controller = await self._roles.controller()
        for broker in sorted(self._cluster.brokers, key=lambda broker: broker.broker_id == controller):
            await self._cluster.change(broker, tree, kill=self._kill)
            result.restarts += 1
            await self._settle(result, f"broker {broker.broker_id} restarted for {result.leg!r}")
            await self._check_that_mixed_clusters_refuse(result)
        expected = self._former_supports or tree == REPOSITORY
        if await self._supports() != expected:
            result.violations.append(Violation("code", f"the brokers do not run the code of {tree}"))

    async def _raise_while_one_is_down(self, result: LegResult) -> None:
        """Raise the level when the only broker on the former code is down; that code must not start then."""
        *others, last = self._cluster.brokers
        for broker in others:
            await self._cluster.change(broker, REPOSITORY, kill=self._kill)
            result.restarts += 1
            await self._settle(result, f"broker {broker.broker_id} restarted for {result.leg!r}")
        await self._cluster.end(last, kill=self._kill)
        await self._raise_once_allowed()
        await self._load.until_progress()
        if not self._former_supports:
            try:
                await self._cluster.change(last, self._former, kill=self._kill)
                result.violations.append(Violation("code", f"the former code serves a cluster with {FEATURE}"))
            except BrokerDied as error:
                if f"has finalised {FEATURE}" not in str(error):
                    raise
        await self._cluster.change(last, REPOSITORY, kill=self._kill)
        result.restarts += 1
        await self._settle(result, f"broker {last.broker_id} back with the present code")

    async def _raise_once_allowed(self) -> None:
        """Raise the level; it is refused until the registration of a killed broker has expired."""
        async with asyncio.timeout(_EXPIRED_SECONDS):
            while (refusal := await self._update(1)) is not None:
                self._say(f"  one is down: {refusal}")
                await asyncio.sleep(_RETRY_SECONDS)

    async def _supports(self) -> bool:
        """Whether the controller's code has the feature, which shows that it is the code that was meant."""
        async with self._roles.admin() as admin:
            described = await admin.describe_features()
        return any(each.feature == FEATURE and each.highest for each in described.features)

    async def _check_that_mixed_clusters_refuse(self, result: LegResult) -> None:
        trees = {broker.tree for broker in self._cluster.brokers}
        if self._former_supports or len(trees) == 1:
            return
        refusal = await self._update(1)
        if refusal is None:
            result.violations.append(Violation("feature", f"{FEATURE} was raised while a broker runs the former code"))
        self._say(f"  mixed: {refusal}")

    async def _set_level(self, result: LegResult, level: int) -> None:
        refusal = await self._update(level)
        if refusal is not None:
            result.violations.append(Violation("feature", f"level {level} was refused: {refusal}"))
            return
        await self._load.until_progress(commits=_COMMITS_AT_LEVEL)
        await self._settle(result, f"level {level}")

    async def _update(self, level: int) -> str | None:
        """Finalise a level; return why it was refused, None if it was not."""
        async with self._roles.admin() as admin:
            outcomes = await admin.update_features({FEATURE: FeatureUpdate(level, allow_downgrade=level == 0)})
        refusal = outcomes[FEATURE]
        return None if refusal is None else str(refusal)

    async def _settle(self, result: LegResult, what: str) -> None:
        """Wait until each role has committed again and every replica is in sync."""
        await self._load.until_progress()
        loop = asyncio.get_running_loop()
        began = loop.time()
        while behind := await self._roles.out_of_sync():
            if loop.time() > began + _IN_SYNC_SECONDS:
                result.violations.append(Violation("isr", f"{what}: {len(behind)} partitions are not in sync"))
                return
            await asyncio.sleep(_LOOK_SECONDS)
        self._say(f"  {what}: in sync after {loop.time() - began:.1f} s")

    async def _pause_and_check(self, result: LegResult) -> None:
        inputs = await self._load.pause()
        evidence = await self._load.evidence(inputs)
        so_far = Counter(str(transaction.outcome) for transaction in evidence.transactions.values())
        result.outcomes, self._outcomes = so_far - self._outcomes, so_far
        result.violations += check(evidence)
        result.violations += await self._compare_readers(evidence, result)
        result.violations += await audit(self._cluster.places, self._roles)

    async def _compare_readers(self, evidence: Evidence, result: LegResult) -> list[Violation]:
        """Read all topics with another client; both have to find the same places, and the same inputs."""
        found = []
        texts = {record.at: record.text for record in evidence.inputs}
        again = {at: text for text, at in await read_committed_again(self._cluster.bootstrap, names.INPUTS)}
        if texts != again:
            found.append(Violation("readers", f"inputs: {len(texts)} and {len(again)} records"))
        for client, outputs in evidence.outputs.items():
            one = [(output.at.partition, output.at.offset) for output in outputs]
            second = await read_committed_again(self._cluster.bootstrap, names.outputs(client))
            if sorted(one) != sorted((at.partition, at.offset) for _, at in second):
                found.append(Violation("readers", f"outputs of {client}: {len(one)} and {len(second)} records"))
            result.compared += len(one)
        result.compared += len(texts)
        return found
