"""The faults that strike processes: what happens, to whom, and how it is undone. Those of the network: ``links.py``."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import Final, TypeAlias

from oncelog.broker.metadata.session_file import SESSION_FILE, parse_credentials
from oncelog.coordinator.metadata_store.zookeeper import end_session
from oncelog.protocol.topic_partition import TopicPartition
from tests.faults import names
from tests.faults.cluster_under_test import BROKERS
from tests.faults.fault import Fault, Scene

Choice: TypeAlias = tuple[int, str]
"""A broker, and what it is in the cluster."""
Choose: TypeAlias = Callable[[Scene], Awaitable[Choice]]

KILL_SECONDS: Final = (0.5, 3.0)
PAUSE_SECONDS: Final = (3.0, 8.0)
PAST_SESSION_SECONDS: Final = (11.0, 13.0)
"""ZooKeeper is started with ticks of 500 ms, and grants a session of 20 ticks at most."""
_IN_SYNC_SECONDS: Final = 45.0
_SESSION_MS: Final = 6_000
_CONNECTION_MS: Final = 5_000


def some_partition(scene: Scene) -> TopicPartition:
    topics = [names.INPUTS, *map(names.outputs, scene.clients)]
    return TopicPartition(scene.rng.choice(topics), scene.rng.randrange(names.PARTITIONS))


async def partition_leader(scene: Scene) -> Choice:
    partition = some_partition(scene)
    return await scene.roles.leader(partition), f"leader of {partition}"


async def follower(scene: Scene) -> Choice:
    partition = some_partition(scene)
    followers = await scene.roles.followers(partition)
    return scene.rng.choice(followers), f"follower of {partition}"


async def transaction_coordinator(scene: Scene) -> Choice:
    name = scene.rng.choice([names.writer_id, names.worker_id])(scene.rng.choice(scene.clients))
    return await scene.roles.transaction_coordinator(name), f"coordinator of {name}"


async def group_coordinator(scene: Scene) -> Choice:
    name = names.group(scene.rng.choice(scene.clients))
    return await scene.roles.group_coordinator(name), f"coordinator of {name}"


async def controller(scene: Scene) -> Choice:
    return await scene.roles.controller(), "controller"


ROLES: Final[dict[str, Choose]] = {
    "leader": partition_leader,
    "follower": follower,
    "transaction-coordinator": transaction_coordinator,
    "group-coordinator": group_coordinator,
    "controller": controller,
}


@dataclass(frozen=True, slots=True)
class Kill:
    """kill -9 of whoever has a role, and a start some time later."""

    role: str
    choose: Choose
    hold_seconds: tuple[float, float] = KILL_SECONDS

    @property
    def name(self) -> str:
        return f"kill-{self.role}"

    async def strike(self, scene: Scene) -> str:
        victim, what = await self.choose(scene)
        await scene.cluster.order("kill", victim)
        return f"kill -9 broker {victim}, {what}"

    async def heal(self, scene: Scene) -> None:
        await scene.cluster.start_whatever_is_down()


@dataclass(frozen=True, slots=True)
class Pause:
    """SIGSTOP of whoever has a role, and SIGCONT some seconds later: it does not know that time has passed."""

    role: str
    choose: Choose
    hold_seconds: tuple[float, float] = PAUSE_SECONDS

    @property
    def name(self) -> str:
        return f"pause-{self.role}"

    async def strike(self, scene: Scene) -> str:
        victim, what = await self.choose(scene)
        await scene.cluster.order("pause", victim)
        return f"SIGSTOP broker {victim}, {what}"

    async def heal(self, scene: Scene) -> None:
        await scene.cluster.start_whatever_is_down()


class RollingRestart:
    """SIGTERM and start of one broker after the other; the next one when all replicas are in sync again."""

    name = "rolling-restart"
    hold_seconds = (0.0, 0.0)

    async def strike(self, scene: Scene) -> str:
        order = scene.rng.sample(scene.cluster.broker_ids, len(scene.cluster.broker_ids))
        for broker_id in order:
            await scene.cluster.order("restart", broker_id)
            await scene.roles.until_in_sync(_IN_SYNC_SECONDS)
        return f"SIGTERM and start of {', '.join(map(str, order))} in turn"

    async def heal(self, scene: Scene) -> None:
        await scene.cluster.start_whatever_is_down()


class KillAll:
    """kill -9 of all brokers at once."""

    name = "kill-all"
    hold_seconds = (0.0, 2.0)

    async def strike(self, scene: Scene) -> str:
        await scene.cluster.order("kill", *scene.cluster.broker_ids)
        return "kill -9 all brokers"

    async def heal(self, scene: Scene) -> None:
        await scene.cluster.start_whatever_is_down()


@dataclass(frozen=True, slots=True)
class KillAllInOrder:
    """kill -9 of all brokers at once, and a start of one after the other in a given order."""

    order: tuple[int, ...]
    hold_seconds: tuple[float, float] = (0.0, 2.0)

    @property
    def name(self) -> str:
        return f"kill-all-start-{'-'.join(map(str, self.order))}"

    async def strike(self, scene: Scene) -> str:
        await scene.cluster.order("kill", *scene.cluster.broker_ids)
        return f"kill -9 all brokers, which start in the order {self.order}"

    async def heal(self, scene: Scene) -> None:
        for broker_id in self.order:
            await scene.cluster.order("start", broker_id)


class KillTwo:
    """kill -9 of a partition's leader and of one of its followers: the third alone may not take acks=all."""

    name = "kill-two"
    hold_seconds = KILL_SECONDS

    async def strike(self, scene: Scene) -> str:
        partition = some_partition(scene)
        leader = await scene.roles.leader(partition)
        other = scene.rng.choice(await scene.roles.followers(partition))
        await scene.cluster.order("kill", leader, other)
        return f"kill -9 brokers {leader} and {other}, leader and follower of {partition}"

    async def heal(self, scene: Scene) -> None:
        await scene.cluster.start_whatever_is_down()


class KillEverything:
    """kill -9 of all brokers and ZooKeeper at once."""

    name = "kill-everything"
    hold_seconds = (0.0, 2.0)

    async def strike(self, scene: Scene) -> str:
        await scene.cluster.order("kill", *scene.cluster.broker_ids, "zookeeper")
        return "kill -9 all brokers and ZooKeeper"

    async def heal(self, scene: Scene) -> None:
        await scene.cluster.start_whatever_is_down()


class RestartZooKeeper:
    """kill -9 of ZooKeeper, and a start some time later."""

    name = "restart-zookeeper"
    hold_seconds = (0.0, 4.0)

    async def strike(self, scene: Scene) -> str:
        await scene.cluster.order("kill", "zookeeper")
        return "kill -9 ZooKeeper"

    async def heal(self, scene: Scene) -> None:
        await scene.cluster.start_whatever_is_down()


class KillClient:
    """kill -9 of a client within its transactions; a successor with the same transactional ids shuts it out."""

    name = "kill-client"
    hold_seconds = (0.0, 0.0)

    async def strike(self, scene: Scene) -> str:
        victim = scene.rng.choice(scene.clients)
        await scene.restart_client(victim)
        return f"kill -9 the client {victim}, and start it again"

    async def heal(self, scene: Scene) -> None:
        pass


class ExpireSession:
    """A broker's ZooKeeper session is ended behind its back: another connection takes it over and closes it."""

    name = "expire-session"
    hold_seconds = (0.0, 1.0)

    async def strike(self, scene: Scene) -> str:
        chosen = scene.rng.choice([controller, partition_leader])
        victim, what = await chosen(scene)
        credentials = parse_credentials((scene.cluster.place(victim) / SESSION_FILE).read_text().splitlines()[0])
        assert credentials is not None, "a broker writes what it can read"
        await end_session(
            scene.cluster.zookeeper_address,
            credentials,
            session_timeout_ms=_SESSION_MS,
            connection_timeout_ms=_CONNECTION_MS,
            security=scene.cluster.zookeeper_security,
        )
        return f"end the session of broker {victim}, {what}"

    async def heal(self, scene: Scene) -> None:
        pass


PROCESS_FAULTS: Final[Sequence[Fault]] = (
    *(Kill(role, choose) for role, choose in ROLES.items()),
    *(Pause(role, choose) for role, choose in ROLES.items()),
    Pause("controller-past-its-session", controller, PAST_SESSION_SECONDS),
    Pause("leader-past-its-session", partition_leader, PAST_SESSION_SECONDS),
    RollingRestart(),
    KillTwo(),
    KillAll(),
    *(KillAllInOrder(order) for order in permutations(range(1, BROKERS + 1))),
    KillEverything(),
    RestartZooKeeper(),
    ExpireSession(),
    KillClient(),
)
