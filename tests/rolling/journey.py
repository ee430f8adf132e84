"""One round: all brokers on the former code, then on this one by one, the feature up and down, back, and up."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from oncelog.clients.admin.features import FeatureUpdate
from tests.faults.checker import Violation
from tests.faults.rounds import SETTINGS
from tests.processes import REPOSITORY, BrokerDied
from tests.rolling.loaded_cluster import LegResult, LoadedCluster, Walk
from tests.rolling.mixed_cluster import MixedCluster

FEATURE: Final = "eligible.leader.replicas.version"
_COMMITS_AT_LEVEL: Final = 20
"""Of each role after the feature has changed."""
_EXPIRED_SECONDS: Final = 60.0
"""Longer than ZooKeeper keeps the registration of a killed broker."""
_RETRY_SECONDS: Final = 1.0


class Journey:
    """A cluster with its load, through all legs."""

    def __init__(
        self, directory: Path, former: Path, clients: Sequence[str], say: Callable[[str], None], *, kill: bool
    ) -> None:
        """``former``: the tree of the former commit; ``kill``: end brokers by kill -9 and not by SIGTERM."""
        directory.mkdir(parents=True)
        self._former = former
        self._say = say
        self._kill = kill
        self._cluster = MixedCluster(directory, SETTINGS, former)
        self._loaded = LoadedCluster(self._cluster, clients, directory, say)

    async def play(self) -> list[LegResult]:
        """Play all legs, or those before the first with a violation and that one."""
        try:
            await self._loaded.open()
            self._former_supports = await self._supports()
            return await self._loaded.play(self._legs())
        finally:
            await self._loaded.close()

    def _legs(self) -> Mapping[str, Walk]:
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

    async def _roll(self, result: LegResult, tree: Path) -> None:
        """Restart one broker after the other with the code of a tree, the controller last."""
        controller = await self._loaded.roles.controller()
        for broker in sorted(self._cluster.brokers, key=lambda broker: broker.broker_id == controller):
            await self._cluster.change(broker, tree, kill=self._kill)
            result.restarts += 1
            await self._loaded.settle(result, f"broker {broker.broker_id} restarted for {result.leg!r}")
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
            await self._loaded.settle(result, f"broker {broker.broker_id} restarted for {result.leg!r}")
        await self._cluster.end(last, kill=self._kill)
        await self._raise_once_allowed()
        await self._loaded.load.until_progress()
        if not self._former_supports:
            try:
                await self._cluster.change(last, self._former, kill=self._kill)
                result.violations.append(Violation("code", f"the former code serves a cluster with {FEATURE}"))
            except BrokerDied as error:
                if f"has finalised {FEATURE}" not in str(error):
                    raise
        await self._cluster.change(last, REPOSITORY, kill=self._kill)
        result.restarts += 1
        await self._loaded.settle(result, f"broker {last.broker_id} back with the present code")

    async def _raise_once_allowed(self) -> None:
        """Raise the level; it is refused until the registration of a killed broker has expired."""
        async with asyncio.timeout(_EXPIRED_SECONDS):
            while (refusal := await self._update(1)) is not None:
                self._say(f"  one is down: {refusal}")
                await asyncio.sleep(_RETRY_SECONDS)

    async def _supports(self) -> bool:
        """Whether the controller's code has the feature, which shows that it is the code that was meant."""
        async with self._loaded.roles.admin() as admin:
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
        await self._loaded.load.until_progress(commits=_COMMITS_AT_LEVEL)
        await self._loaded.settle(result, f"level {level}")

    async def _update(self, level: int) -> str | None:
        """Finalise a level; return why it was refused, None if it was not."""
        async with self._loaded.roles.admin() as admin:
            outcomes = await admin.update_features({FEATURE: FeatureUpdate(level, allow_downgrade=level == 0)})
        refusal = outcomes[FEATURE]
        return None if refusal is None else str(refusal)
