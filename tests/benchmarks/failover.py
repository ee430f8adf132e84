"""``make bench-failover``: how long partitions accept nothing when a broker goes, on three real processes.

Replication factor 3, two in sync required, acks=all, a hundred partitions; a light prober (``produce_prober``) produces
to each of them all the time. Every figure is the time from the deed (a kill, a stop) to the response that a partition
gave after it, so it has everything in it: that the death is noticed, elections, and that the client hears of them.

The prober, three brokers, ZooKeeper and whatever else runs share one machine, whose load is printed beside.
"""

import argparse
import asyncio
import os
import re
import signal
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from itertools import cycle
from pathlib import Path
from random import Random
from typing import Final, NamedTuple

import uvloop

from oncelog.clients.connection import Address
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from oncelog.protocol.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse
from tests.benchmarks import default_clients
from tests.benchmarks.produce_prober import Accepted, ProduceProber, View
from tests.faults.access import Access
from tests.faults.cluster_under_test import plan_cluster
from tests.faults.links import LinkNetwork, both_ways, isolation
from tests.faults.network import DirectNetwork, Network
from tests.processes import ClusterProcess

TOPIC: Final = "failover"
PARTITIONS: Final = 100
MANY_PARTITIONS: Final = 1_000
BROKERS: Final = 3
_BEAT_SECONDS: Final = 0.5
_CLOSE_BEAT_SECONDS: Final = 0.2
_QUIET_BEAT_SECONDS: Final = 10.0
_BEFORE_SECONDS: Final = 1.5
_AFTER_SECONDS: Final = 1.5
_NEVER_SECONDS: Final = 3600.0
_CLOCK_SECONDS: Final = 0.01
"""By which times in logs, which are cut to milliseconds, may be early."""
_ASK_SECONDS: Final = 0.005
_SETTLE_SECONDS: Final = 120.0
_RECOVERY_SECONDS: Final = 60.0
_LOOK_SECONDS: Final = 0.1


class Plan(NamedTuple):
    """How to measure."""

    directory: Path
    repetitions: int
    is_secured: bool
    """TLS and logins between all, clients too."""

    def links(self) -> LinkNetwork:
        return LinkNetwork(Random(), self.directory / "cluster" if self.is_secured else None)


class Cluster:
    """A running cluster, its members by name, and its prober."""

    def __init__(self, process: ClusterProcess, access: Access, prober: ProduceProber, partitions: int) -> None:
        self._process = process
        self.access = access
        self.prober = prober
        self.partitions = partitions

    @property
    def address(self) -> str:
        return self._process.address

    async def verb(self, verb: str, *members: object) -> None:
        await asyncio.to_thread(self._process.verb, verb, *members)

    async def process_id(self, broker_id: int) -> int:
        members = await asyncio.to_thread(self._process.verb, "status")
        found: int = members[str(broker_id)]["pid"]
        return found

    async def settle(self) -> View:
        """Wait until every replica is in sync and every preferred replica leads, as all brokers say one after another.

        A broker that was cut off says so before it hears what has happened meanwhile.
        """
        agreeing = 0
        async with asyncio.timeout(_SETTLE_SECONDS):
            while True:
                view = await self.prober.look()
                agreeing += 1
                if not _all_in_sync(view, self.partitions):
                    agreeing = 0
                elif any(view.leaders[p] != replicas[0] for p, replicas in view.replicas.items()):
                    agreeing = 0
                    await self._elect_preferred(view.controller_id)
                elif agreeing >= 2 * BROKERS:
                    return view
                await asyncio.sleep(_LOOK_SECONDS)

    def noticed_at(self, broker_id: int, controller_id: int) -> list[float]:
        """When, by the wall clock, a broker noticed that the controller is gone."""
        log = (self._process.cluster_directory / f"broker-{broker_id}.log").read_text()
        text = f"The controller, broker {controller_id}, cannot be reached"
        stamps = re.findall(rf"^\[([^\]]+)\] WARNING {text}", log, re.MULTILINE)
        return [datetime.strptime(stamp, "%Y-%m-%d %H:%M:%S,%f").timestamp() for stamp in stamps]

    async def _elect_preferred(self, controller_id: int) -> None:
        connection = await self.access.connector()(addresses(self.address)[controller_id])
        request = ElectLeadersRequest(election_type=0, topic_partitions=None)
        await connection.send(request, ElectLeadersResponse)
        connection.close()

    async def until_accepted(self, partitions: Sequence[int], since: float, *, not_by: int) -> list[float]:
        """The seconds from a moment until each of these partitions accepted a record from another leader."""
        return await self._until_found(partitions, since, lambda p: self.prober.first_accepted(p, since, not_by=not_by))

    async def until_written(self, partitions: Sequence[int], since: float) -> list[float]:
        """The seconds from a moment until each of these partitions accepted a record that was sent after it."""
        return await self._until_found(partitions, since, lambda p: self.prober.first_begun(p, since))

    async def _until_found(
        self, partitions: Sequence[int], since: float, find: Callable[[int], Accepted | None]
    ) -> list[float]:
        self.prober.hurry()
        async with asyncio.timeout(_RECOVERY_SECONDS):
            while True:
                found = [find(partition) for partition in partitions]
                if None not in found:
                    return [accepted.ended - since for accepted in found if accepted is not None]
                await asyncio.sleep(_LOOK_SECONDS)


def wall_clock() -> float:
    return time.time_ns() / 1e9


def _all_in_sync(view: View, partitions: int) -> bool:
    everybody = len(view.replicas) == partitions
    return (
        everybody
        and len(view.live) == BROKERS
        and all(view.isr[p] == frozenset(replicas) for p, replicas in view.replicas.items())
    )


def addresses(bootstrap: str) -> dict[int, Address]:
    """Of broker 1, 2, and so on."""
    split = [word.rpartition(":") for word in bootstrap.split(",")]
    return {number: Address(host, int(port)) for number, (host, _, port) in enumerate(split, 1)}


@asynccontextmanager
async def running_cluster(
    plan: Plan,
    *,
    partitions: int,
    led_by: int | None = None,
    beat_seconds: float = _BEAT_SECONDS,
    network: Network | None = None,
) -> AsyncIterator[Cluster]:
    """A cluster with a topic, all replicas in sync, and a prober at work. ``led_by``: one broker leads everything."""
    network = network or DirectNetwork()
    settings = await network.open(plan_cluster(plan.directory, Random()))
    process = ClusterProcess(plan.directory, BROKERS, settings, secure=plan.is_secured)
    try:
        await asyncio.to_thread(process.start)
        access = Access(process.address)
        if plan.is_secured:
            access = Access.of_administrator(process.address, process.cluster_directory)
        await asyncio.to_thread(create_topic, access, TOPIC, partitions, led_by)
        prober = ProduceProber(
            addresses(process.address), TOPIC, partitions, beat_seconds=beat_seconds, connector=access.connector()
        )
        async with asyncio.TaskGroup() as group:
            probing = group.create_task(prober.run())
            try:
                cluster = Cluster(process, access, prober, partitions)
                await cluster.settle()
                yield cluster
            finally:
                probing.cancel()
    finally:
        await asyncio.to_thread(process.stop)
        await network.close()


def create_topic(access: Access, topic: str, partitions: int, led_by: int | None = None) -> None:
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.cimpl import NewTopic

    others = [broker_id for broker_id in range(1, BROKERS + 1) if broker_id != led_by]
    if led_by is None:
        new_topic = NewTopic(topic, partitions, BROKERS)
    else:
        new_topic = NewTopic(topic, partitions, replica_assignment=[[led_by, *others]] * partitions)
    admin = AdminClient({"bootstrap.servers": access.bootstrap, **access.of_librdkafka()})
    admin.create_topics([new_topic])[topic].result(_SETTLE_SECONDS)


# What is measured


async def kill_leaders(plan: Plan) -> None:
    """kill -9 of a leader, the controller every third time."""
    everything: list[float] = []
    of_controllers: list[float] = []
    async with running_cluster(plan, partitions=PARTITIONS) as cluster:
        for repetition in range(plan.repetitions):
            view = await cluster.settle()
            victim, role = _victim(view, repetition)
            affected = [p for p, leader in view.leaders.items() if leader == victim]
            process_id = await cluster.process_id(victim)
            started = asyncio.get_running_loop().time()
            os.kill(process_id, signal.SIGKILL)
            seconds = await cluster.until_accepted(affected, started, not_by=victim)
            report(f"kill -9 of broker {victim} ({role}), {len(affected)} partitions", seconds)
            (of_controllers if role == "controller" else everything).extend(seconds)
            await cluster.verb("start", victim)
    report("kill -9, all: wanted p50 <= 300 ms, p99 <= 1 s", everything + of_controllers)
    report("  of leaders that are no controllers", everything)
    report("  of controllers", of_controllers)


async def pause_leaders(plan: Plan) -> None:
    """SIGSTOP of a leader, the controller every third time."""
    everything: list[float] = []
    async with running_cluster(plan, partitions=PARTITIONS) as cluster:
        for repetition in range(plan.repetitions):
            view = await cluster.settle()
            victim, role = _victim(view, repetition)
            affected = [p for p, leader in view.leaders.items() if leader == victim]
            process_id = await cluster.process_id(victim)
            started = asyncio.get_running_loop().time()
            os.kill(process_id, signal.SIGSTOP)
            try:
                seconds = await cluster.until_accepted(affected, started, not_by=victim)
            finally:
                os.kill(process_id, signal.SIGCONT)
            report(f"SIGSTOP of broker {victim} ({role}), {len(affected)} partitions", seconds)
            everything += seconds
    report("SIGSTOP, all: wanted max <= 3 s", everything)


async def isolate_leaders(plan: Plan) -> None:
    """A leader is cut off from all other brokers and from ZooKeeper, both ways, the controller every third time.
    Clients still reach it."""
    everything: list[float] = []
    network = plan.links()
    async with running_cluster(plan, partitions=PARTITIONS, network=network) as cluster:
        for repetition in range(plan.repetitions):
            view = await cluster.settle()
            victim, role = _victim(view, repetition)
            affected = [p for p, leader in view.leaders.items() if leader == victim]
            started = asyncio.get_running_loop().time()
            network.cut(isolation(victim, range(1, BROKERS + 1)))
            try:
                seconds = await cluster.until_accepted(affected, started, not_by=victim)
            finally:
                await network.heal()
            report(f"partition of broker {victim} ({role}), {len(affected)} partitions", seconds)
            everything += seconds
    report("partition, all: wanted max <= 3 s", everything)


async def cut_pairs(plan: Plan) -> None:
    """Two brokers are cut off from each other only, both ways: nobody is passed over, but each leads what the other
    follows."""
    everything: list[float] = []
    network = plan.links()
    async with running_cluster(plan, partitions=PARTITIONS, network=network) as cluster:
        for repetition in range(plan.repetitions):
            view = await cluster.settle()
            one, other = _victim(view, repetition)[0], repetition % BROKERS + 1
            if other == one:
                other = other % BROKERS + 1
            affected = [p for p, leader in view.leaders.items() if leader in (one, other)]
            started = asyncio.get_running_loop().time()
            network.cut(both_ways(one, other))
            try:
                seconds = await cluster.until_written(affected, started)
            finally:
                await network.heal()
            report(f"cut between brokers {one} and {other}, {len(affected)} partitions", seconds)
            everything += seconds
    report("cut between two, all: wanted max <= 3 s", everything)


async def shut_leaders_down(plan: Plan) -> None:
    """SIGTERM of a broker that leads everything, under the eyes of the prober and of two default clients."""
    async with running_cluster(plan, partitions=PARTITIONS, led_by=1) as cluster:
        for _ in range(plan.repetitions):
            await cluster.settle()
            cluster.prober.beat_seconds = _CLOSE_BEAT_SECONDS
            cluster.prober.hurry()
            await asyncio.sleep(_BEFORE_SECONDS)
            started = asyncio.get_running_loop().time()
            await cluster.verb("stop", 1)
            await asyncio.sleep(_AFTER_SECONDS)
            report("SIGTERM, 100 partitions, prober: wanted <= 250 ms", [cluster.prober.longest_stall(started)])
            await cluster.verb("start", 1)
        cluster.prober.beat_seconds = _QUIET_BEAT_SECONDS
        for name, client in (("confluent-kafka", default_clients.confluent), ("our client", default_clients.ours)):
            for _ in range(plan.repetitions):
                await cluster.settle()
                stop = asyncio.Event()
                async with asyncio.TaskGroup() as group:
                    writing = group.create_task(client(cluster.access, TOPIC, PARTITIONS, stop))
                    await asyncio.sleep(_BEFORE_SECONDS)
                    await cluster.verb("stop", 1)
                    await asyncio.sleep(_AFTER_SECONDS)
                    stop.set()
                seen = writing.result()
                report(f"SIGTERM, {name}: {len(seen.errors)} errors", seen.seconds)
                for error in sorted(set(seen.errors)):
                    print(f"    {seen.errors.count(error)} times {error}")
                await cluster.verb("start", 1)


async def replace_controllers(plan: Plan) -> None:
    """kill -9 of the controller of a thousand partitions: from the moment that another broker notices it, by its log,
    until a controller carries out what a client asks."""
    serving: list[float] = []
    leading: list[float] = []
    noticing: list[float] = []
    async with running_cluster(plan, partitions=MANY_PARTITIONS, beat_seconds=_NEVER_SECONDS) as cluster:
        for _ in range(plan.repetitions):
            view = await cluster.settle()
            victim, survivors = view.controller_id, addresses(cluster.address)
            del survivors[view.controller_id]
            process_id = await cluster.process_id(victim)
            killed_at = wall_clock()
            os.kill(process_id, signal.SIGKILL)
            await until_a_controller_serves(list(survivors.values()), cluster.access)
            served_at = wall_clock()
            while victim in (await cluster.prober.look()).leaders.values():
                pass
            led_at = wall_clock()
            noticed_at = min(
                found
                for b in survivors
                for found in cluster.noticed_at(b, victim)
                if found >= killed_at - _CLOCK_SECONDS
            )
            noticing.append(noticed_at - killed_at)
            serving.append(served_at - noticed_at)
            leading.append(led_at - killed_at)
            await cluster.verb("start", victim)
    report("controller of 1,000 partitions killed: until it is noticed", noticing)
    report("  from then on until another serves: wanted max <= 500 ms", serving)
    report("  from the kill on until all partitions have leaders", leading)


async def until_a_controller_serves(survivors: Sequence[Address], access: Access) -> None:
    """Ask all of them, over and over, to check whether a topic could be created: only a controller can say."""
    connector = access.connector()
    connections = [await connector(address) for address in survivors]
    topic = CreatableTopic(name="could-be", num_partitions=1, replication_factor=1)
    request = CreateTopicsRequest(topics=[topic], timeout_ms=10_000, validate_only=True)
    async with asyncio.timeout(_RECOVERY_SECONDS):
        for connection in cycle(connections):
            (response,) = (await connection.send(request, CreateTopicsResponse)).topics
            if response.error_code == ErrorCode.NONE:
                break
            await asyncio.sleep(_ASK_SECONDS)
    for connection in connections:
        connection.close()


def _victim(view: View, repetition: int) -> tuple[int, str]:
    """Whom to strike, and what it is: the controller every third time."""
    if repetition % 3 == 2:
        return view.controller_id, "controller"
    others = sorted(set(range(1, BROKERS + 1)) - {view.controller_id})
    return others[repetition % 2], "leader"


def report(what: str, seconds: Sequence[float]) -> None:
    if not seconds:
        return
    ordered = sorted(seconds)
    p50, p99 = (ordered[min(len(ordered) - 1, int(len(ordered) * share))] for share in (0.5, 0.99))
    figures = f"p50 {p50 * 1e3:6.0f} ms  p99 {p99 * 1e3:6.0f} ms  max {ordered[-1] * 1e3:6.0f} ms"
    print(f"{what:<60} {figures}  (load {os.getloadavg()[0]:.1f})", flush=True)


MEASUREMENTS: Final[dict[str, Callable[[Plan], Awaitable[None]]]] = {
    "kill": kill_leaders,
    "pause": pause_leaders,
    "partition": isolate_leaders,
    "pair": cut_pairs,
    "shutdown": shut_leaders_down,
    "controller": replace_controllers,
}


async def _measure(names: Sequence[str], plan: Plan) -> None:
    for name in names:
        await MEASUREMENTS[name](plan._replace(directory=plan.directory / name))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--only", choices=list(MEASUREMENTS), action="append")
    parser.add_argument("--repetitions", type=int, default=9)
    parser.add_argument("--dir", type=Path, help="Keeps data and logs there")
    parser.add_argument("--secured", action="store_true", help="TLS and logins between all, clients too")
    options = parser.parse_args()
    names = options.only or list(MEASUREMENTS)
    with tempfile.TemporaryDirectory(prefix="oncelog-failover-") as temporary:
        uvloop.run(_measure(names, Plan(options.dir or Path(temporary), options.repetitions, options.secured)))


if __name__ == "__main__":
    main()
