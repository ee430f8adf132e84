"""``make bench-before BEFORE=COMMIT``: this broker beside itself at a former commit, on this machine, in one run.

Two starts of the same code differ by more than two versions of it, and a shared machine drifts. So both versions are
started anew several times, both run at once, and each workload is played against both, one right after the other, in
an order that alternates. The rows come in pairs: the rate or latency, and the brokers' processor time for each
operation, which is the figure that survives a machine with other work. A ratio is the median over all pairs of
this version's figure over the former one's; beside it stand the least and the greatest.

The former version runs from a temporary Git worktree, with this environment's interpreter and packages.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from tests.benchmarks import librdkafka, raw_transactions, transactions, wire
from tests.benchmarks.cluster_side_by_side import broker_pids
from tests.benchmarks.side_by_side import create_topic, leader_address, percentile, resident_mib
from tests.former_code import code_of, command_of, worktree
from tests.processes import BrokerProcess, ClusterProcess, OncelogProcess

_MODULE: Final = "tests.benchmarks.before_and_after"
_PARTITIONS: Final = 4
_SECONDS: Final = 4.0
_WORKLOAD_SECONDS: Final = 300
_CLUSTER_SETTINGS: Final = ("group.initial.rebalance.delay.ms=0",)


class Outcome(NamedTuple):
    """What one play of a workload came to."""

    operations: int
    value: float


class Workload(NamedTuple):
    """One row: what is done to a broker, and what is reported of it."""

    row: str
    unit: str
    play: Callable[[str, str], Outcome]
    """With the address of a broker and the name of a topic that does not exist yet, unless ``reuses`` names its row."""
    reuses: str = ""


def _produce(size: int, count: int) -> Callable[[str, str], Outcome]:
    def play(address: str, topic: str) -> Outcome:
        create_topic(address, topic, _PARTITIONS)
        return Outcome(count, size * count / 1e6 / librdkafka.produce(address, topic, size=size, count=count))

    return play


def _consume(size: int, count: int) -> Callable[[str, str], Outcome]:
    def play(address: str, topic: str) -> Outcome:
        seconds = librdkafka.consume(address, topic, partitions=_PARTITIONS, count=count)
        return Outcome(count, size * count / 1e6 / seconds)

    return play


def _synchronous(address: str, topic: str) -> Outcome:
    create_topic(address, topic, 1)
    count = 4_000
    latencies = wire.synchronous_latencies(leader_address(address, topic), topic, size=100, count=count)
    return Outcome(count, percentile(latencies, 0.5) * 1e6)


def _pipelined(address: str, topic: str) -> Outcome:
    create_topic(address, topic, 1)
    count = 40_000
    leader = leader_address(address, topic)
    return Outcome(count, wire.pipelined_requests_per_second(leader, topic, size=100, count=count))


def _transactions(producers: int) -> Callable[[str, str], Outcome]:
    def play(address: str, topic: str) -> Outcome:
        create_topic(address, topic, _PARTITIONS)
        done = len(transactions.commits(address, topic, producers=producers, seconds=_SECONDS, patience=120.0))
        return Outcome(done, done / _SECONDS)

    return play


def _raw_transactions(producers: int) -> Callable[[str, str], Outcome]:
    def play(address: str, topic: str) -> Outcome:
        create_topic(address, topic, _PARTITIONS)
        done = len(
            raw_transactions.commits(address, topic, partitions=_PARTITIONS, producers=producers, seconds=_SECONDS)
        )
        return Outcome(done, done / _SECONDS)

    return play


_SMALL: Final = (100, 1_000_000)
_LARGE: Final = (1024, 300_000)
_COMMON: Final = (
    Workload("synchronous produce p50", "us", _synchronous),
    Workload("pipelined small produces", "1/s", _pipelined),
    Workload("transactions, 1 producer", "1/s", _transactions(1)),
    Workload("transactions, 20 producers", "1/s", _transactions(20)),
    Workload("produce 100 B", "MB/s", _produce(*_SMALL)),
    Workload("consume 100 B", "MB/s", _consume(*_SMALL), reuses="produce 100 B"),
    Workload("produce 1024 B", "MB/s", _produce(*_LARGE)),
    Workload("consume 1024 B", "MB/s", _consume(*_LARGE), reuses="produce 1024 B"),
)
_RAW: Final = (
    Workload("raw transactions, 1 at once", "1/s", _raw_transactions(1)),
    Workload("raw transactions, 20 at once", "1/s", _raw_transactions(20)),
)
"""Of one broker only: their clients ask one address for everything."""
WORKLOADS: Final = {workload.row: workload for workload in (*_COMMON, *_RAW)}


class FormerBroker(OncelogProcess):
    """A broker that runs the code of another tree."""

    def __init__(self, directory: Path, tree: Path) -> None:
        super().__init__(directory)
        self._tree = tree

    def command(self) -> list[str]:
        return command_of(self._tree, super().command())

    def environment(self) -> dict[str, str]:
        return {**super().environment(), **code_of(self._tree)}


class FormerCluster(ClusterProcess):
    """A cluster that runs the code of another tree."""

    def __init__(self, directory: Path, tree: Path) -> None:
        super().__init__(directory, settings=_CLUSTER_SETTINGS)
        self._tree = tree

    def command(self) -> list[str]:
        return command_of(self._tree, super().command())

    def environment(self) -> dict[str, str]:
        return {**super().environment(), **code_of(self._tree)}


class Version:
    """One version of the code while it runs."""

    def __init__(self, name: str, broker: BrokerProcess) -> None:
        self.name = name
        self._broker = broker
        self._pids = broker_pids(broker) if isinstance(broker, ClusterProcess) else [broker.pid]

    def play(self, workload: Workload, topic: str) -> dict[str, float]:
        """Play a workload in a process of its own; return its value, and the brokers' microseconds an operation."""
        before = self._processor_seconds()
        command = [sys.executable, "-m", _MODULE, "--play", workload.row, self._broker.address, topic]
        done = subprocess.run(command, capture_output=True, text=True, timeout=_WORKLOAD_SECONDS, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"{workload.row} on {self.name} failed:\n{done.stderr[-2000:]}")
        outcome = Outcome(*json.loads(done.stdout.splitlines()[-1]))
        used = self._processor_seconds() - before
        return {
            f"{workload.row}, {workload.unit}": outcome.value,
            f"  processor time of each, {workload.row}, us": used / outcome.operations * 1e6,
        }

    def memory(self) -> dict[str, float]:
        return {"memory after the load, MiB": max(map(resident_mib, self._pids))}

    def _processor_seconds(self) -> float:
        return sum(map(precise_processor_seconds, self._pids))


def precise_processor_seconds(pid: int) -> float:
    """Return the processor time of a process's living threads, to the nanosecond where ``/proc/PID/stat`` has ticks."""
    tasks = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(task.read_text().split()[0]) for task in tasks) / 1e9


@contextmanager
def both(tree: Path, folder: Path, *, cluster: bool, former_first: bool) -> Iterator[tuple[Version, Version]]:
    """Run the former version and this one; yield them in this order."""

    before, after = folder / "before", folder / "after"
    former: BrokerProcess = FormerCluster(before, tree) if cluster else FormerBroker(before, tree)
    present: BrokerProcess = ClusterProcess(after, settings=_CLUSTER_SETTINGS) if cluster else OncelogProcess(after)
    with ExitStack() as stack:
        for broker in (former, present) if former_first else (present, former):
            stack.enter_context(broker)
        yield Version("before", former), Version("after", present)


def compare(commit: str, starts: int, rounds: int, workloads: Sequence[Workload], *, cluster: bool) -> None:
    """Play everything and print the table."""
    began, load = time.perf_counter(), os.getloadavg()[0]
    pairs: dict[str, list[tuple[float, float]]] = {}
    turn = 0
    with worktree(commit) as tree:
        for start in range(starts):
            with (
                tempfile.TemporaryDirectory(prefix="oncelog-bench-") as folder,
                both(tree, Path(folder), cluster=cluster, former_first=start % 2 == 0) as versions,
            ):
                warm_up = Workload("transactions, 20 producers", "1/s", _transactions(20))
                for version in versions:
                    version.play(warm_up, "warm-up")
                for workload in workloads:
                    for round_number in range(rounds):
                        turn += 1
                        order = versions if turn % 2 else versions[::-1]
                        topic = f"{workload.reuses or workload.row}-{round_number}"
                        name = "".join(letter if letter.isalnum() else "-" for letter in topic)
                        played = {version.name: version.play(workload, name) for version in order}
                        for row, value in played["before"].items():
                            pairs.setdefault(row, []).append((value, played["after"][row]))
                        print(f"start {start} {played}", file=sys.stderr, flush=True)
                memory = {version.name: version.memory() for version in versions}
                for row, value in memory["before"].items():
                    pairs.setdefault(row, []).append((value, memory["after"][row]))
    print_table(commit, pairs)
    print(f"\n{starts} starts, {rounds} rounds each, load {load:.1f} before, {time.perf_counter() - began:.0f} s")


def print_table(commit: str, pairs: dict[str, list[tuple[float, float]]]) -> None:
    print(f"\n{'':58}{commit[:10]:>11}{'now':>11}{'ratio':>8}{'least':>8}{'most':>8}")
    for row, values in pairs.items():
        ratios = sorted(after / before for before, after in values)
        before, after = (statistics.median(side) for side in zip(*values, strict=True))
        print(f"{row:58}{before:11.4g}{after:11.4g}{statistics.median(ratios):8.3f}{ratios[0]:8.2f}{ratios[-1]:8.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(prog=f"python -m {_MODULE}", description=__doc__)
    parser.add_argument("commit", nargs="?", help="the former version")
    parser.add_argument("--cluster", action="store_true", help="three brokers instead of one")
    parser.add_argument("--starts", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=2, help="of each workload after each start")
    parser.add_argument("--only", nargs="+", choices=list(WORKLOADS), metavar="ROW")
    parser.add_argument("--play", nargs=3, metavar=("ROW", "ADDRESS", "TOPIC"), help="one workload (used by itself)")
    options = parser.parse_args()
    if options.play:
        row, address, topic = options.play
        print(json.dumps(WORKLOADS[row].play(address, topic)), flush=True)
        os._exit(0)  # librdkafka's consumer holds records that were never given back.
    if not options.commit:
        parser.error("name the commit to compare with")
    rows = [workload for row, workload in WORKLOADS.items() if row in (options.only or ())] or list(
        _COMMON if options.cluster else WORKLOADS.values()
    )
    compare(options.commit, options.starts, options.rounds, rows, cluster=options.cluster)


if __name__ == "__main__":
    main()
