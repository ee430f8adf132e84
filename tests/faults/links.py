"""Partitions of the network between real processes: which connections can be cut, and the faults that cut them.

Brokers reach each other over a listener of their own (``INTERNAL``), which is advertised at the port of a conduit, and
ZooKeeper at the port of another one; clients connect directly. So a broker that is cut off from all others still
answers clients, which is the harder case.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random
from typing import Final

from oncelog.broker.local_cluster.layout import Layout, free_ports
from tests.faults.cluster_under_test import OrderFailed
from tests.faults.conduits import ZOOKEEPER, Conduits, Cut
from tests.faults.deeds import PAST_SESSION_SECONDS, Choose, controller, partition_leader, some_partition
from tests.faults.fault import Fault, Scene
from tests.faults.socket_owner import broker_at

SHORT_SECONDS: Final = (2.0, 7.0)
"""Less than ZooKeeper grants a session."""
CUT_SECONDS: Final = (3.0, 8.0)
LINK_SECONDS: Final = (15.0, 20.0)


class LinkNetwork:
    """A ``Network`` in which conduits lie between the processes."""

    def __init__(self, rng: Random | None = None, secured_cluster: Path | None = None) -> None:
        """``secured_cluster``: the directory of a cluster in which all connections are encrypted."""
        self._rng = rng or Random(1)
        self._protocol = "PLAINTEXT" if secured_cluster is None else "SASL_SSL"
        owner_of = None if secured_cluster is None else partial(broker_at, directory=secured_cluster)
        self.conduits = Conduits(owner_of)

    async def open(self, layout: Layout) -> Sequence[str]:
        taken = {layout.zookeeper_port, *layout.broker_ports.values()}
        inner_ports = (port for port in free_ports(self._rng) if port not in taken)
        settings = [f"listener.security.protocol.map=EXTERNAL:{self._protocol},INTERNAL:{self._protocol}"]
        settings.append("inter.broker.listener.name=INTERNAL")
        for broker_id, port in layout.broker_ports.items():
            inner, name = next(inner_ports), str(broker_id)
            advertised = await self.conduits.lead_to(name, inner)
            zookeeper = await self.conduits.lead_to(ZOOKEEPER, layout.zookeeper_port, name)
            external = f"EXTERNAL://localhost:{port}"
            settings.append(f"{name}:listeners={external},INTERNAL://localhost:{inner}")
            settings.append(f"{name}:advertised.listeners={external},INTERNAL://localhost:{advertised}")
            settings.append(f"{name}:zookeeper.connect=127.0.0.1:{zookeeper}")
        return settings

    def cut(self, cuts: Iterable[Cut]) -> None:
        self.conduits.cut(cuts)

    async def heal(self) -> None:
        self.conduits.heal()
        assert not self.conduits.strangers, f"connections that cuts would spare: {self.conduits.strangers}"

    async def close(self) -> None:
        await self.conduits.close()


def both_ways(one: object, other: object) -> list[Cut]:
    return [(str(one), str(other)), (str(other), str(one))]


def isolation(broker_id: int, everybody: Iterable[int]) -> list[Cut]:
    """All that leads to a broker or away from it, ZooKeeper included."""
    others = [*(other for other in everybody if other != broker_id), ZOOKEEPER]
    return [cut for other in others for cut in both_ways(broker_id, other)]


def _network(scene: Scene) -> LinkNetwork:
    assert isinstance(scene.network, LinkNetwork), "nothing lies between the processes"
    return scene.network


class _Cutting:
    """What all of these have in common: the network heals by itself, when it is told to."""

    async def heal(self, scene: Scene) -> None:
        await _network(scene).heal()


@dataclass(frozen=True, slots=True)
class CutPair(_Cutting):
    """Nothing passes between a partition's leader and one of its followers: one way, or both."""

    ways: int
    hold_seconds: tuple[float, float] = CUT_SECONDS

    @property
    def name(self) -> str:
        return f"cut-{'one-way' if self.ways == 1 else 'two-way'}"

    async def strike(self, scene: Scene) -> str:
        partition = some_partition(scene)
        leader = await scene.roles.leader(partition)
        follower = scene.rng.choice(await scene.roles.followers(partition))
        cuts = scene.rng.sample(both_ways(leader, follower), self.ways)
        _network(scene).cut(cuts)
        reported = " and ".join(f"from {source} to {target}" for source, target in cuts)
        return f"cut {reported}: {leader} leads {partition}, {follower} follows"


@dataclass(frozen=True, slots=True)
class CutLink:
    """Nothing passes between two brokers, one way or both; each reaches the third one, and ZooKeeper.

    Held for long, because a controller that flaps does so every few seconds. The controller must stay the same.
    """

    with_controller: bool
    ways: int
    hold_seconds: tuple[float, float] = LINK_SECONDS

    @property
    def name(self) -> str:
        link = "controller-to-broker" if self.with_controller else "broker-to-broker"
        return f"cut-link-{link}-{'one-way' if self.ways == 1 else 'two-way'}"

    async def strike(self, scene: Scene) -> str:
        controller_id = await scene.roles.controller()
        others = [broker_id for broker_id in scene.cluster.broker_ids if broker_id != controller_id]
        link = [controller_id, scene.rng.choice(others)] if self.with_controller else scene.rng.sample(others, 2)
        cuts = scene.rng.sample(both_ways(*link), self.ways)
        _network(scene).cut(cuts)
        scene.notes["controller"] = str(controller_id)
        reported = " and ".join(f"from {source} to {target}" for source, target in cuts)
        return f"cut {reported}: {controller_id} is the controller"

    async def heal(self, scene: Scene) -> None:
        before, now = scene.notes["controller"], str(await scene.roles.controller())
        await _network(scene).heal()
        if now != before:
            raise OrderFailed(f"one link was cut, and broker {now} is the controller instead of {before}")


@dataclass(frozen=True, slots=True)
class Isolate(_Cutting):
    """A broker is cut off from all others and from ZooKeeper; clients still reach it."""

    role: str
    choose: Choose
    hold_seconds: tuple[float, float] = CUT_SECONDS

    @property
    def name(self) -> str:
        return f"isolate-{self.role}"

    async def strike(self, scene: Scene) -> str:
        victim, what = await self.choose(scene)
        _network(scene).cut(isolation(victim, scene.cluster.broker_ids))
        return f"isolate broker {victim}, {what}"


@dataclass(frozen=True, slots=True)
class CutFromZooKeeper(_Cutting):
    """A broker, the controller or another one, is cut off from ZooKeeper, one way or both, and from nobody else."""

    ways: int
    length: str
    hold_seconds: tuple[float, float]

    @property
    def name(self) -> str:
        return f"cut-from-zookeeper-{'one-way' if self.ways == 1 else 'two-way'}-{self.length}"

    async def strike(self, scene: Scene) -> str:
        victim, what = await scene.rng.choice([controller, partition_leader])(scene)
        cuts = scene.rng.sample(both_ways(victim, ZOOKEEPER), self.ways)
        _network(scene).cut(cuts)
        reported = " and ".join(f"from {source} to {target}" for source, target in cuts)
        return f"cut {reported}: broker {victim} is {what}"


LINK_FAULTS: Final[Sequence[Fault]] = (
    CutPair(1),
    CutPair(2),
    CutLink(with_controller=True, ways=1),
    CutLink(with_controller=True, ways=2),
    CutLink(with_controller=False, ways=1),
    CutLink(with_controller=False, ways=2),
    Isolate("leader", partition_leader),
    Isolate("controller", controller),
    Isolate("leader-past-its-session", partition_leader, PAST_SESSION_SECONDS),
    CutFromZooKeeper(1, "short", SHORT_SECONDS),
    CutFromZooKeeper(2, "short", SHORT_SECONDS),
    CutFromZooKeeper(1, "past-its-session", PAST_SESSION_SECONDS),
    CutFromZooKeeper(2, "past-its-session", PAST_SESSION_SECONDS),
)
