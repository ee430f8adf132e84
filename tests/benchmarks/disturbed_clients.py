"""``python -m tests.benchmarks.disturbed_clients``: what becomes of healthy partitions while something else is sick.

Our Python client, aiokafka and confluent-kafka, each with one producer or one consumer for all partitions of a topic on
three brokers of ours; every flow keeps a bounded number of records on its way (``client_flows``). A *disturbance* adds
flows of partitions that are sick, or that become so:

* nothing: the same windows without a disturbance show what the machine does to the ratio;
* a broker hangs (SIGSTOP), and with it the 33 partitions that it leads;
* one partition of 100 has no leader: its broker, a fourth one, is dead;
* one partition of 100 has fewer replicas in sync than it wants, so that every record is refused (produce);
* one partition of 100 does not have the offset that is requested, and there is no reset policy (consume);
* a topic is deleted while its flows run.

A window counts for a second what the healthy partitions take or give: records, processor time of the client process,
and the longest time that one of them stood still. Windows without and with the disturbance alternate in one process,
and a *ratio* is that of a window with it to the windows before and after; what is printed are medians. A producer keeps
the records of a sick partition after its flow has ended, so the partition is healed in between. Only the one without a
leader is not: there each repetition is a process, and those of the clients alternate. Topics have one replica, so that
a hung broker's partitions stay where they are.

All of it takes about ten minutes on two cores that do nothing else. A process has ``_CHILD_SECONDS``; what it has found
by then counts. Each pair is printed to standard error when it is found, the table to standard output.

Throughput depends on what else the machine does; records for a second of processor time depend on it much less.
"""

import argparse
import asyncio
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, replace
from pathlib import Path
from random import Random
from typing import Final

import uvloop

from oncelog.clients.admin.configs import ConfigChange, Operation, Resource, ResourceType, alter_configs
from oncelog.clients.admin.topics import delete_topics
from oncelog.clients.bootstrap import parse_bootstrap
from oncelog.clients.cluster import Cluster
from oncelog.clients.producer import Producer, ProducerConfig
from oncelog.clients.routes import Controller
from oncelog.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from oncelog.protocol.topic_partition import TopicPartition
from tests.benchmarks.client_flows import CONSUMERS, LOST, PRODUCERS, RECORDS, SIZE, Flows
from tests.benchmarks.python_producers import value_of, wall_clock
from tests.processes import REPOSITORY, ClusterProcess

_CLIENTS: Final = {"produce": PRODUCERS, "consume": CONSUMERS}
_DISTURBANCES: Final = {
    "produce": ("nothing", "hung broker", "no leader", "refused records", "deleted topic"),
    "consume": ("nothing", "hung broker", "no leader", "offset out of range", "deleted topic"),
}
_BROKERS: Final = (1, 2, 3)
_DEAD: Final = 4
_PARTITIONS: Final = 100
_LEADERLESS: Final = _PARTITIONS - 1
_DOOMED_PARTITIONS: Final = 6
_DOOMED_LEADERS: Final = [[_BROKERS[index % len(_BROKERS)]] for index in range(_DOOMED_PARTITIONS)]
_SECONDS: Final = 0.8
"""Of a window."""
_SETTLING_SECONDS: Final = 0.2
"""Between a change and its window, at least."""
_ROUNDS: Final = 5
_PATIENCE_SECONDS: Final = 30.0
_LOOK_SECONDS: Final = 0.02
_CHILD_SECONDS: Final = 45.0
_WANTED: Final = 0.9
_SETTINGS: Final = (
    "auto.create.topics.enable=false",
    "default.replication.factor=1",
    "min.insync.replicas=1",
    "file.delete.delay.ms=1000",
)


@dataclass(frozen=True, slots=True)
class Scene:
    """What a child process does."""

    half: str
    client: str
    disturbance: str
    first: int
    """The number of its first round."""
    rounds: int
    address: str
    hung_pid: int
    """Of the broker that will be stopped."""
    hung_broker: int

    @property
    def topic(self) -> str:
        return "consumed" if self.half == "consume" else f"produced-{self.client}"

    @property
    def refusing(self) -> TopicPartition:
        """It wants two replicas in sync, and one of its two is dead. (Of a single replica no broker wants more.)"""
        return TopicPartition("refusing", 0)

    def partitions(self, *, of_hung_broker: bool) -> list[TopicPartition]:
        """Of the main topic, but for the one without leader."""
        return [
            TopicPartition(self.topic, index)
            for index in range(_LEADERLESS)
            if (leader_of(index) == self.hung_broker) is of_hung_broker
        ]


@dataclass(frozen=True, slots=True)
class Window:
    """What the healthy partitions did for a while."""

    rate: float
    """Records a second."""
    efficiency: float
    """Records for a second of the client's processor time."""
    longest_stall: float
    """Seconds."""


@dataclass(frozen=True, slots=True)
class Finding:
    """Two neighbouring windows."""

    undisturbed: Window
    disturbed: Window
    errors: dict[str, int]
    """What the application was told during the disturbance."""


def doomed_topic(half: str, client: str, number: int) -> str:
    return f"doomed-{half}-{client}-{number}"


def leader_of(index: int) -> int:
    return _DEAD if index == _LEADERLESS else _BROKERS[index % len(_BROKERS)]


def is_once(half: str, disturbance: str) -> bool:
    """Whether a client cannot be rid of it."""
    return half == "produce" and disturbance == "no leader"


# One client


class Observer:
    """Disturbs one client, and counts meanwhile."""

    def __init__(self, scene: Scene, flows: Flows, cluster: Cluster) -> None:
        self._scene = scene
        self._flows = flows
        self._cluster = cluster

    async def observe(self) -> AsyncIterator[Finding]:
        for number in range(self._scene.first, self._scene.first + self._scene.rounds):
            yield await self._disturb(number)

    async def _disturb(self, number: int) -> Finding:
        scene = self._scene
        without, of_hung = scene.partitions(of_hung_broker=False), scene.partitions(of_hung_broker=True)
        match scene.disturbance:
            case "nothing":
                return await self._suffer(without + of_hung, {})
            case "hung broker":
                return await self._hang(without, of_hung)
            case "no leader":
                return await self._suffer(without + of_hung, {TopicPartition(scene.topic, _LEADERLESS): 0})
            case "refused records":
                return await self._refuse(without + of_hung)
            case "offset out of range":
                return await self._suffer(without + of_hung[:-1], {of_hung[-1]: LOST})
            case "deleted topic":
                return await self._delete(without + of_hung, number)
        raise ValueError(scene.disturbance)

    async def _hang(self, healthy: Collection[TopicPartition], sick: Collection[TopicPartition]) -> Finding:
        before = await self._undisturbed(healthy)
        await self._run_all(healthy, sick)
        os.kill(self._scene.hung_pid, signal.SIGSTOP)
        try:
            finding = await self._disturbed(before, healthy, sick)
        finally:
            os.kill(self._scene.hung_pid, signal.SIGCONT)
        await self._until_all_move(sick)
        return finding

    async def _suffer(self, healthy: Collection[TopicPartition], sick: Mapping[TopicPartition, int]) -> Finding:
        before = await self._undisturbed(healthy)
        await self._flows.run(dict.fromkeys(healthy, 0) | dict(sick))
        return await self._disturbed(before, healthy, sick)

    async def _refuse(self, healthy: Collection[TopicPartition]) -> Finding:
        refusing = self._scene.refusing
        await self._set_min_in_sync(2)
        finding = await self._suffer(healthy, {refusing: 0})
        await self._set_min_in_sync(1)
        await self._until_all_move([refusing])
        return finding

    async def _set_min_in_sync(self, replicas: int) -> None:
        topic = Resource(type=ResourceType.TOPIC, name=self._scene.refusing.topic)
        change = ConfigChange(name="min.insync.replicas", operation=Operation.SET, value=str(replicas))
        assert await alter_configs(self._cluster, {topic: [change]}) == {topic: None}

    async def _delete(self, healthy: Collection[TopicPartition], number: int) -> Finding:
        topic = doomed_topic(self._scene.half, self._scene.client, number)
        doomed = [TopicPartition(topic, index) for index in range(_DOOMED_PARTITIONS)]
        before = await self._undisturbed(healthy)
        await self._run_all(healthy, doomed)
        assert await delete_topics(self._cluster, [topic]) == {topic: None}
        finding = await self._disturbed(before, healthy, doomed)
        if self._scene.half == "produce":  # Until the records that it keeps have a place, the producer is not well.
            await create_assigned(self._cluster, {topic: _DOOMED_LEADERS}, {})
            await self._until_all_move(doomed)
        return finding

    async def _run_all(self, *groups: Collection[TopicPartition]) -> None:
        partitions = [each for group in groups for each in group]
        await self._flows.run(dict.fromkeys(partitions, 0))
        await self._until_all_move(partitions)

    async def _undisturbed(self, partitions: Collection[TopicPartition]) -> Window:
        await self._run_all(partitions)
        await asyncio.sleep(_SETTLING_SECONDS)
        return await self._window(partitions)

    async def _disturbed(
        self, before: Window, healthy: Collection[TopicPartition], sick: Collection[TopicPartition]
    ) -> Finding:
        errors = Counter(self._flows.errors)
        await self._until_still(sick)
        during = await self._window(healthy)
        return Finding(before, during, dict(self._flows.errors - errors))

    async def _until_still(self, sick: Collection[TopicPartition]) -> None:
        """What was read ahead of sick partitions is none of the disturbance."""
        for _ in range(int(_PATIENCE_SECONDS / _SETTLING_SECONDS)):
            counts = [self._flows.counts[each] for each in sick]
            await asyncio.sleep(_SETTLING_SECONDS)
            if counts == [self._flows.counts[each] for each in sick]:
                return
        raise TimeoutError(f"records of sick partitions for {_PATIENCE_SECONDS:g} s")

    async def _window(self, partitions: Collection[TopicPartition]) -> Window:
        loop, counts = asyncio.get_running_loop(), self._flows.counts
        started, processor = loop.time(), time.process_time()
        began = {each: counts[each] for each in partitions}
        seen, moved_at = dict(began), dict.fromkeys(partitions, started)
        longest, now = 0.0, started
        while now < started + _SECONDS:
            await asyncio.sleep(_LOOK_SECONDS)
            now = loop.time()
            for each in partitions:
                longest = max(longest, now - moved_at[each])
                if counts[each] != seen[each]:
                    seen[each], moved_at[each] = counts[each], now
        taken = sum(counts[each] - began[each] for each in partitions)
        return Window(taken / (now - started), taken / (time.process_time() - processor), longest)

    async def _until_all_move(self, partitions: Collection[TopicPartition]) -> None:
        counts = {each: self._flows.counts[each] for each in partitions}
        for _ in range(int(_PATIENCE_SECONDS / _LOOK_SECONDS)):
            if all(self._flows.counts[each] > count for each, count in counts.items()):
                return
            await asyncio.sleep(_LOOK_SECONDS)
        raise TimeoutError(f"no records for {_PATIENCE_SECONDS:g} s")


async def observe(scene: Scene) -> None:
    """Print what is found. Close nothing: clients wait for what will never be acknowledged."""
    flows = _CLIENTS[scene.half][scene.client](scene.address)
    async with Cluster(parse_bootstrap(scene.address), rng=Random(1)) as cluster, asyncio.TaskGroup() as group:
        await flows.open(group)
        async for finding in Observer(scene, flows, cluster).observe():
            print(json.dumps(asdict(finding)), flush=True)
        os._exit(0)


def run_child(words: list[str]) -> None:
    half, client, disturbance, first, rounds, address, pid, broker = words
    scene = Scene(half, client, disturbance, int(first), int(rounds), address, int(pid), int(broker))
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(observe(scene))


# All of them


async def prepare(address: str, clients: Collection[str], halves: Collection[str]) -> int:
    """Make the topics; return the controller's id."""
    async with Cluster(parse_bootstrap(address), rng=Random(1)) as cluster:
        wide = ["consumed"] if "consume" in halves else []
        wide += [f"produced-{client}" for client in clients if "produce" in halves]
        doomed = [
            doomed_topic(half, client, number) for half in halves for client in clients for number in range(_ROUNDS)
        ]
        assigned = {name: [[leader_of(index)] for index in range(_PARTITIONS)] for name in wide}
        assigned |= dict.fromkeys(doomed, _DOOMED_LEADERS)
        await create_assigned(cluster, assigned, {})
        await create_assigned(cluster, {"refusing": [[_BROKERS[0], _DEAD]]}, {"min.insync.replicas": "2"})
        filled = [name for name in doomed if name.startswith("doomed-consume")] + wide[: "consume" in halves]
        for name in filled:
            await _fill(address, name, len(assigned[name]))
        await cluster.refresh(())
        assert cluster.metadata.controller_id is not None
        return cluster.metadata.controller_id


async def create_assigned(cluster: Cluster, topics: Mapping[str, list[list[int]]], configs: Mapping[str, str]) -> None:
    """``topics``: the replicas of each partition."""
    request = CreateTopicsRequest(
        topics=[
            CreatableTopic(
                name=name,
                num_partitions=-1,
                replication_factor=-1,
                assignments=[
                    CreatableReplicaAssignment(partition_index=index, broker_ids=replicas)
                    for index, replicas in enumerate(partitions)
                ],
                configs=[CreatableTopicConfig(name=name, value=value) for name, value in configs.items()],
            )
            for name, partitions in topics.items()
        ]
    )
    response = await cluster.call(Controller(), request, CreateTopicsResponse)
    assert not any(topic.error_code for topic in response.topics), response


async def _fill(address: str, topic: str, partitions: int) -> None:
    value = value_of(SIZE)
    async with Producer(ProducerConfig(bootstrap=address), rng=Random(1), wall_clock=wall_clock) as producer:
        for index in range(partitions):
            sent = [await producer.send(topic, value, partition=index) for _ in range(RECORDS)]
            for each in sent:
                await each


def measure(scene: Scene) -> list[Finding]:
    """In a process of its own; what it found until it failed or was too late, if so."""
    words = [str(word) for word in astuple(scene)]
    command = [sys.executable, "-m", "tests.benchmarks.disturbed_clients", "--child", *words]
    findings = []
    with subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        bound = threading.Timer(_CHILD_SECONDS, child.kill)
        bound.start()
        try:
            for line in child.stdout:
                findings.append(_finding(**json.loads(line)))
                show_progress(scene, findings)
        finally:
            bound.cancel()
            os.kill(scene.hung_pid, signal.SIGCONT)
    if len(findings) < scene.rounds:
        print(
            f"  {scene.half} {scene.disturbance} {scene.client}: {scene.rounds - len(findings)} missing",
            file=sys.stderr,
        )
    return findings


def _finding(undisturbed: dict[str, float], disturbed: dict[str, float], errors: dict[str, int]) -> Finding:
    return Finding(Window(**undisturbed), Window(**disturbed), errors)


def show_progress(scene: Scene, findings: Sequence[Finding]) -> None:
    last = findings[-1]
    print(
        f"  {time.strftime('%H:%M:%S')} {scene.half} {scene.disturbance} {scene.client}"
        f" {scene.first + len(findings)} of {_ROUNDS}:"
        f" {last.undisturbed.rate:,.0f} -> {last.disturbed.rate:,.0f} records/s",
        file=sys.stderr,
        flush=True,
    )


def ratios(findings: Sequence[Finding], of: Callable[[Window], float], *, alternating: bool) -> list[float]:
    """Each disturbed window over its neighbours without: the one before it, and the one after it if there is one."""
    without = [of(each.undisturbed) for each in findings]
    after = [*without[1:], without[-1]] if alternating else without
    return [of(each.disturbed) * 2 / sum(pair) for each, *pair in zip(findings, without, after, strict=True)]


def report(half: str, disturbance: str, client: str, findings: Sequence[Finding]) -> None:
    """Print medians, and the lowest and the highest ratio."""
    name = f"{half:<8} {disturbance:<20} {client:<16}"
    if not findings:
        print(f"{name} nothing found", flush=True)
        return
    alternating = not is_once(half, disturbance)
    of_rates = ratios(findings, lambda window: window.rate, alternating=alternating)
    efficiency = statistics.median(ratios(findings, lambda window: window.efficiency, alternating=alternating))
    before, during = [each.undisturbed for each in findings], [each.disturbed for each in findings]
    rates = [statistics.median(window.rate for window in windows) for windows in (before, during)]
    stalls = [statistics.median(window.longest_stall for window in windows) * 1000 for windows in (before, during)]
    errors = sum((Counter(each.errors) for each in findings), Counter[str]())
    reported = ", ".join(f"{name} {count}" for name, count in sorted(errors.items()))
    ratio = statistics.median(of_rates)
    print(
        f"{name} {rates[0]:>9,.0f} -> {rates[1]:>9,.0f} records/s"
        f"  x {ratio:.2f} ({min(of_rates):.2f} to {max(of_rates):.2f}, {len(findings)} pairs)"
        f"  per cpu second x {efficiency:.2f}  longest stall {stalls[0]:>5,.0f} -> {stalls[1]:>5,.0f} ms"
        f"{'' if ratio >= _WANTED else f'  below {_WANTED}'}{'  reported: ' + reported if reported else ''}",
        flush=True,
    )


def compare(scene: Scene, clients: Collection[str]) -> None:
    """One disturbance, with the rounds of the clients in turn where each is a process of its own."""
    rounds = 1 if is_once(scene.half, scene.disturbance) else _ROUNDS
    findings: dict[str, list[Finding]] = {client: [] for client in clients}
    for first in range(0, _ROUNDS, rounds):
        for client in clients:
            findings[client] += measure(replace(scene, client=client, first=first, rounds=rounds))
    for client, found in findings.items():
        report(scene.half, scene.disturbance, client, found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--half", choices=_CLIENTS, action="append")
    parser.add_argument("--client", choices=PRODUCERS, action="append")
    parser.add_argument("--disturbance", choices=sorted({each for half in _DISTURBANCES.values() for each in half}))
    parser.add_argument("--child", nargs=8, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        run_child(options.child)
        return
    halves, clients = options.half or list(_CLIENTS), options.client or list(PRODUCERS)
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores", flush=True)
    with tempfile.TemporaryDirectory() as directory, ClusterProcess(Path(directory), _DEAD, _SETTINGS) as cluster:
        controller = asyncio.run(prepare(cluster.address, clients, halves))
        cluster.verb("kill", _DEAD)
        hung = max(broker for broker in _BROKERS if broker != controller)
        pid = cluster.verb("status")[str(hung)]["pid"]
        for half in halves:
            for disturbance in _DISTURBANCES[half]:
                if options.disturbance in (None, disturbance):
                    compare(Scene(half, "", disturbance, 0, 0, cluster.address, pid, hung), clients)
    print(f"load {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
