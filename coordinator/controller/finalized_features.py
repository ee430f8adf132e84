"""Which feature levels the cluster has finalised, as this broker knows them (KIP-584).

``/feature`` holds the levels, and its version is their epoch. Every broker reads it before it serves, and again when
it changes. A read that is older than what is known (a watch may arrive late) changes nothing; levels and epoch are
replaced together. Should the znode be gone, the known levels go on to hold: to forget them would silently change the
protocol of running transactions. If it is made anew, what it says then holds, although its version begins at 0 again;
so the store's transaction id, which only grows, shows which is older.

A broker that does not support what is finalised, or cannot read it, must not serve. At its start that is
``IncompatibleFeatures``; later ``on_incompatible`` is called, with the sentence that says what to do.
"""

import logging
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from oncelog.coordinator.metadata_store import paths, znodes
from oncelog.coordinator.metadata_store.store import Session, Stat, Watch
from oncelog.coordinator.metadata_store.znodes import FinalizedFeatures, MalformedZnode

logger = logging.getLogger(__name__)

TRANSACTION_VERSION: Final = "transaction.version"
ELIGIBLE_LEADER_REPLICAS_VERSION: Final = "eligible.leader.replicas.version"
SUPPORTED_FEATURES: Final[Mapping[str, tuple[int, int]]] = MappingProxyType(
    {TRANSACTION_VERSION: (0, 2), ELIGIBLE_LEADER_REPLICAS_VERSION: (0, 1)}
)
"""What this software supports, as (lowest level, highest level)."""
NOT_SUPPORTED: Final = (0, 0)
"""The range of a feature that a broker does not name."""
UNKNOWN_EPOCH: Final = -1


class IncompatibleFeatures(Exception):
    """The cluster uses feature levels that this broker does not support. The message says what to do."""


class FinalizedFeatureCache:
    """The newest levels that were read from ``/feature``."""

    __slots__ = ("_mzxid", "_newest", "on_incompatible", "supported", "transaction_version")

    def __init__(self, supported: Mapping[str, tuple[int, int]] = SUPPORTED_FEATURES) -> None:
        self.supported = supported
        self._newest: tuple[int, Mapping[str, int]] = UNKNOWN_EPOCH, MappingProxyType({})
        self._mzxid = -1
        self.transaction_version = 0
        """The finalised level of ``transaction.version``: 0, 1 or 2; 0 where nothing is finalised."""
        self.on_incompatible: Callable[[str], None] = _only_log
        """Called when a level was finalised, while the broker runs, that it does not support."""

    @property
    def levels(self) -> Mapping[str, int]:
        """By feature, the finalised level; a feature at level 0 is absent."""
        return self._newest[1]

    @property
    def keeps_eligible(self) -> bool:
        """Whether partition states remember eligible leader replicas (KIP-966)."""
        return self.levels.get(ELIGIBLE_LEADER_REPLICAS_VERSION, 0) > 0

    @property
    def epoch(self) -> int:
        """The version of the znode that holds the levels; ``UNKNOWN_EPOCH`` until it was read."""
        return self._newest[0]

    def learn(self, features: FinalizedFeatures, stat: Stat) -> None:
        """Take what the znode held in one of its versions. Raises ``IncompatibleFeatures``, and then takes nothing."""
        epoch = stat.version
        if stat.mzxid <= self._mzxid:
            if stat.mzxid < self._mzxid:
                logger.warning("Finalised features of epoch %d are older than those of %d", epoch, self.epoch)
            return
        levels = {name: level for name, level in features.levels.items() if level}
        reason = why_incompatible(self.supported, levels)
        if reason is not None:
            raise IncompatibleFeatures(reason)
        self._newest = epoch, MappingProxyType(levels)
        self.transaction_version = levels.get(TRANSACTION_VERSION, 0)
        self._mzxid = stat.mzxid
        logger.info("Finalised features of epoch %d: %s", epoch, levels or "none")

    async def load(self, session: Session, changed: Watch | None = None) -> None:
        """Read the znode; ``changed`` is called when ``refresh`` has something to do.

        Raises ``IncompatibleFeatures``, also for a znode that cannot be understood."""
        znode = await session.get(paths.FEATURE, changed)
        if znode is None:
            if self.epoch != UNKNOWN_EPOCH:
                logger.error("The znode %s is gone; the levels %s go on to hold", paths.FEATURE, dict(self.levels))
            return
        try:
            features = znodes.decode_features(znode.data)
        except MalformedZnode as error:
            raise IncompatibleFeatures(f"the znode {paths.FEATURE} cannot be understood: {error}") from error
        self.learn(features, znode.stat)

    async def refresh(self, session: Session, changed: Watch) -> None:
        """Read the znode again, on a broker that serves."""
        try:
            await self.load(session, changed)
        except IncompatibleFeatures as error:
            self.on_incompatible(str(error))


def why_incompatible(supported: Mapping[str, tuple[int, int]], levels: Mapping[str, int]) -> str | None:
    """Return why a broker of this software must not serve a cluster with these levels, or None."""
    for name, level in levels.items():
        lowest, highest = supported.get(name, NOT_SUPPORTED)
        if not lowest <= level <= highest:
            return (
                f"the cluster has finalised {name} at level {level}, and this broker supports {lowest} to {highest}: "
                f"run a newer oncelog here, or have a broker that supports it lower the level first "
                f"(`oncelog feature downgrade {name} {highest}`)"
            )
    return None


def _only_log(reason: str) -> None:
    logger.critical("%s", reason)
