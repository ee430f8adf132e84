"""Named points at which a simulated world is unkind within its contract: each enabled, or not, for a whole history.

A *setting* point replaces a setting of every broker by an extreme that the settings' table allows. A *world* point is
drawn by the simulated network, disk or ensemble each time it could strike. Nothing of this is in the product: the
points live in the seams that the simulation provides, so in production there is nothing to switch on, nor any cost.

``Swarm.drawn`` enables a random subset (swarm testing: a history with few points reaches what one with all of them
hides), and in a tenth of the histories lets world points strike ten times as often.
"""

import contextvars
import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final, NamedTuple

from tests.simulation.journal import current_journal


class SettingPoint(NamedTuple):
    """An extreme of a setting."""

    key: str
    values: tuple[str, ...]


class WorldPoint(NamedTuple):
    """Something that the simulated world may do."""

    probability: float
    """Of each time that it could."""
    about: str


SETTING_POINTS: Final[Mapping[str, SettingPoint]] = {
    "small segments": SettingPoint("log.segment.bytes", ("1024", "300")),
    "dense index": SettingPoint("log.index.interval.bytes", ("0", "1")),
    "sparse index": SettingPoint("log.index.interval.bytes", ("1048576",)),
    "small index": SettingPoint("log.index.size.max.bytes", ("64", "1024")),
    "early roll": SettingPoint("log.roll.ms", ("50", "1000")),
    "jittered roll": SettingPoint("log.roll.jitter.ms", ("1000",)),
    "frequent flush": SettingPoint("log.flush.interval.ms", ("10", "500")),
    "frequent recovery points": SettingPoint("log.flush.offset.checkpoint.interval.ms", ("100",)),
    "frequent log start checkpoints": SettingPoint("log.flush.start.offset.checkpoint.interval.ms", ("100",)),
    "frequent retention": SettingPoint("log.retention.check.interval.ms", ("500",)),
    "immediate file deletion": SettingPoint("log.segment.delete.delay.ms", ("0",)),
    "frequent high watermark checkpoints": SettingPoint("replica.high.watermark.checkpoint.interval.ms", ("50",)),
    "rare high watermark checkpoints": SettingPoint("replica.high.watermark.checkpoint.interval.ms", ("60000",)),
    "small replica fetches": SettingPoint("replica.fetch.max.bytes", ("1",)),
    "small replica responses": SettingPoint("replica.fetch.response.max.bytes", ("1",)),
    "short replica waits": SettingPoint("replica.fetch.wait.max.ms", ("25",)),
    "long replica waits": SettingPoint("replica.fetch.wait.max.ms", ("3000",)),
    "greedy replica waits": SettingPoint("replica.fetch.min.bytes", ("10000",)),
    "short replica backoff": SettingPoint("replica.fetch.backoff.ms", ("20",)),
    "long replica backoff": SettingPoint("replica.fetch.backoff.ms", ("3000",)),
    "no fetch sessions": SettingPoint("max.incremental.fetch.session.cache.slots", ("0",)),
    "few fetch sessions": SettingPoint("max.incremental.fetch.session.cache.slots", ("1", "2")),
    "small responses": SettingPoint("fetch.max.bytes", ("1024",)),
    "one request in flight": SettingPoint("queued.max.requests", ("1",)),
    "small transaction loads": SettingPoint("transaction.state.log.load.buffer.size", ("1",)),
    "small group loads": SettingPoint("offsets.load.buffer.size", ("1",)),
    "small transaction segments": SettingPoint("transaction.state.log.segment.bytes", ("300", "1024")),
    "small group segments": SettingPoint("offsets.topic.segment.bytes", ("300", "1024")),
    "frequent transaction sweep": SettingPoint("transaction.abort.timed.out.transaction.cleanup.interval.ms", ("50",)),
    "frequent id expiry check": SettingPoint("transaction.remove.expired.transaction.cleanup.interval.ms", ("100",)),
    "frequent offset expiry": SettingPoint("offsets.retention.check.interval.ms", ("100",)),
    "frequent balancing": SettingPoint("leader.imbalance.check.interval.seconds", ("1",)),
    "no balancing": SettingPoint("auto.leader.rebalance.enable", ("false",)),
    "eager cleaner": SettingPoint("log.cleaner.min.cleanable.ratio", ("0.0", "0.01")),
    "restless cleaner": SettingPoint("log.cleaner.backoff.ms", ("100",)),
    "validated records": SettingPoint("oncelog.validate.records", ("full",)),
    "immediate verification retry": SettingPoint("add.partitions.to.txn.retry.backoff.ms", ("1",)),
    "frequent producer expiry check": SettingPoint("producer.id.expiration.check.interval.ms", ("100",)),
}

WORLD_POINTS: Final[Mapping[str, WorldPoint]] = {
    "byte segments": WorldPoint(0.002, "a write crosses the network byte by byte"),
    "split in two": WorldPoint(0.05, "a write crosses the network in two parts"),
    "late segment": WorldPoint(0.002, "a segment, and all behind it, is late by up to 0.3 s"),
    "very late segment": WorldPoint(0.0002, "the same, by up to 3 s"),
    "reset on write": WorldPoint(0.000_5, "a connection is reset with a write on its way"),
    "reset after write": WorldPoint(0.000_5, "a connection is reset when a write has arrived"),
    "refused connection": WorldPoint(0.05, "nothing listens, for once"),
    "slow connection": WorldPoint(0.05, "a connection takes up to 0.5 s to be made"),
    "half of a write": WorldPoint(0.000_5, "a part of a write arrives, then the connection is reset"),
    "cold read": WorldPoint(0.05, "what is read is not in the page cache"),
    "slow read": WorldPoint(0.05, "a read off the loop takes up to 0.2 s"),
    "slow sync": WorldPoint(0.05, "an fsync off the loop takes up to 0.3 s"),
    "very slow sync": WorldPoint(0.005, "an fsync off the loop takes up to 5 s"),
    "slow disk": WorldPoint(0.1, "any call off the loop takes up to 0.05 s"),
    "slow ensemble": WorldPoint(0.02, "a message from or to the ensemble takes up to 0.3 s"),
    "very slow ensemble": WorldPoint(0.002, "the same, up to 1.5 s"),
    "lost store request": WorldPoint(0.002, "the connection breaks before a request reaches the ensemble"),
    "lost store response": WorldPoint(0.002, "the connection breaks after a request was carried out"),
    "spurious watch": WorldPoint(0.01, "a watch fires for no reason when it is left"),
    "late watch": WorldPoint(0.05, "a watch fires up to 0.5 s late"),
    "stale member": WorldPoint(0.002, "a client's member of the ensemble falls behind for up to 1 s"),
    "expired session": WorldPoint(0.000_1, "the ensemble closes a session at once"),
    "skewed clock": WorldPoint(0.3, "a broker's wall clock is wrong by up to half a second"),
}
BREAKING_POINTS: Final = frozenset(
    {
        "late segment",
        "very late segment",
        "reset on write",
        "reset after write",
        "refused connection",
        "slow connection",
        "half of a write",
        "slow ensemble",
        "very slow ensemble",
        "lost store request",
        "lost store response",
        "expired session",
    }
)
"""World points by which a broker may lose a connection or its session; others may be elected for that."""
_MIN_BYTES: Final = "replica.fetch.min.bytes"
_PARTITION_BYTES: Final = "replica.fetch.max.bytes"
_EXTREME_SHARE: Final = 0.1
_ONE_BATCH_EACH_TIME: Final = frozenset({"small replica fetches", "small replica responses"})
_EXTREME_FACTOR: Final = 10.0


class Swarm:
    """The points that are enabled in one history."""

    def __init__(self, enabled: frozenset[str], rng: random.Random, *, factor: float = 1.0) -> None:
        """``factor``: by which world points strike more often."""
        self.enabled = enabled
        self.rng = rng
        self._probabilities = {
            name: min(1.0, factor * point.probability) for name, point in WORLD_POINTS.items() if name in enabled
        }
        self._journal = current_journal()
        self._settings: dict[str, str] | None = None

    @classmethod
    def drawn(cls, seed: int) -> "Swarm":
        """Return that of a seed: a share of the points that is drawn, too."""
        rng = random.Random(f"swarm {seed}")
        share = rng.choice([0.05, 0.1, 0.3, 0.6])
        enabled = frozenset(name for name in (*SETTING_POINTS, *WORLD_POINTS) if rng.random() < share)
        if rng.random() >= _EXTREME_SHARE:
            return cls(enabled, rng)
        # A follower that gets one batch at a time, over a slow network to a slow disk, never catches up with writers.
        return cls(enabled - _ONE_BATCH_EACH_TIME, rng, factor=_EXTREME_FACTOR)

    def strikes(self, name: str) -> bool:
        """Return whether a world point strikes now, and count it."""
        probability = self._probabilities.get(name)
        if probability is None or self.rng.random() >= probability:
            return False
        self._journal.note("buggify", f"buggify: {name}")
        return True

    def calm(self) -> None:
        """Let no world point strike any more: everything has healed."""
        self._probabilities.clear()

    @contextmanager
    def calmed(self) -> Iterator[None]:
        """Let no world point strike inside."""
        probabilities, self._probabilities = self._probabilities, {}
        try:
            yield
        finally:
            self._probabilities = probabilities

    @property
    def breaks_connections(self) -> bool:
        """Whether connections and sessions may end without any fault that a history lists."""
        return not BREAKING_POINTS.isdisjoint(self.enabled)

    def delay(self, *points: tuple[str, float]) -> float:
        """Return the sum of what each point that strikes delays, in seconds: up to the second member."""
        if not self._probabilities:
            return 0.0
        return sum(self.rng.uniform(0.0, longest) for name, longest in points if self.strikes(name))

    def settings(self) -> dict[str, str]:
        """Return the extremes that are enabled, by key: the same for every broker, and for all of its starts."""
        if self._settings is None:
            self._settings = self._drawn_settings()
        return self._settings

    def _drawn_settings(self) -> dict[str, str]:
        found: dict[str, str] = {}
        for name, point in SETTING_POINTS.items():
            if name in self.enabled and point.key not in found:
                found[point.key] = self.rng.choice(point.values)
                self._journal.note("buggify", f"buggify: {name}", f"{point.key}={found[point.key]}")
        if found.keys() >= {_MIN_BYTES, _PARTITION_BYTES}:
            # More than a partition may count: each fetch would wait for its time to be up, as in Kafka, and a follower
            # that is behind would get one batch each time, no faster than new ones come.
            del found[_MIN_BYTES]
        return found


_CURRENT: contextvars.ContextVar[Swarm | None] = contextvars.ContextVar("swarm", default=None)
_KINDLY: Final = Swarm(frozenset(), random.Random(0))
"""The one in which nothing strikes."""


def current_swarm() -> Swarm:
    """Return the swarm of the history in whose context this is called."""
    return _CURRENT.get() or _KINDLY


@contextmanager
def swarming(swarm: Swarm) -> Iterator[Swarm]:
    """Make it the swarm of everything that is made inside."""
    token = _CURRENT.set(swarm)
    try:
        yield swarm
    finally:
        _CURRENT.reset(token)
