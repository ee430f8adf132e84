"""``make bench-cluster``: three brokers of ours beside three of Apache Kafka 3.9 in ZooKeeper mode, on this machine.

Both have replication factor 3, two in sync required, acks=all, the same clients, and data on the same disk. Rounds of
the two alternate; the table shows medians and their ratio. The processor time that the brokers of each used for a row
is printed beside, since clients and six brokers share the machine.
"""

import os
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

from tests.benchmarks import librdkafka, transactions, wire
from tests.benchmarks.kafka_cluster import KafkaCluster
from tests.benchmarks.side_by_side import (
    PARTITIONS,
    Figures,
    Measured,
    Measurements,
    create_topic,
    isolated,
    leader_address,
    measure_throughput,
    percentile,
    print_table,
    resident_mib,
    run,
)
from tests.processes import ClusterProcess

MODULE = "tests.benchmarks.cluster_side_by_side"
_SYNCHRONOUS = 3_000
_SECONDS = 4.0
_PRODUCERS = (1, 5, 20)
_WARM_SECONDS = 15.0
_WARM_UP = "warm-up"
_TICKS = os.sysconf("SC_CLK_TCK")


def measure_small(address: str, round_number: int) -> Figures:
    return measure_throughput(address, round_number, 100, 60)


def measure_large(address: str, round_number: int) -> Figures:
    return measure_throughput(address, round_number, 1024, 300)


def measure_warm_up(address: str, round_number: int) -> Figures:
    """Nothing: internal topics are made, and a JVM compiles what it runs often."""
    topic = f"warm-up-{round_number}"
    create_topic(address, topic, PARTITIONS)
    transactions.commits(address, topic, producers=_PRODUCERS[-1], seconds=_WARM_SECONDS, patience=120.0)
    librdkafka.produce(address, topic, size=100, count=400_000)
    wire.synchronous_latencies(leader_address(address, topic), topic, size=100, count=_SYNCHRONOUS)
    return {}


def measure_latency(address: str, round_number: int) -> Figures:
    topic = f"latency-{round_number}"
    create_topic(address, topic, 1)
    leader = leader_address(address, topic)
    wire.synchronous_latencies(leader, topic, size=100, count=_SYNCHRONOUS // 3)
    latencies = wire.synchronous_latencies(leader, topic, size=100, count=_SYNCHRONOUS)
    return {
        "synchronous produce p50, us": percentile(latencies, 0.5) * 1e6,
        "synchronous produce p99, us": percentile(latencies, 0.99) * 1e6,
        "pipelined small produces, 1/s": wire.pipelined_requests_per_second(leader, topic, size=100, count=20_000),
    }


def measure_transactions(address: str, round_number: int) -> Figures:
    figures: Figures = {}
    for producers in _PRODUCERS:
        topic = f"transactions-{producers}-{round_number}"
        create_topic(address, topic, PARTITIONS)
        latencies = transactions.commits(address, topic, producers=producers, seconds=_SECONDS)
        figures[f"transactions, {producers} at once, 1/s"] = len(latencies) / _SECONDS
        figures[f"commit p50, {producers} at once, ms"] = percentile(latencies, 0.5) * 1e3
    return figures


MEASUREMENTS: Measurements = {
    _WARM_UP: measure_warm_up,
    "latency": measure_latency,
    "transactions": measure_transactions,
    "small": measure_small,
    "large": measure_large,
}


class Cluster(Measured):
    """One side: a running cluster."""

    def __init__(self, name: str, address: str, pids: Sequence[int]) -> None:
        super().__init__(name)
        self.address = address
        self._pids = pids

    def measure(self, measurement: str, round_number: int) -> None:
        before = self._processor_seconds()
        figures = isolated(measurement, self.address, round_number, module=MODULE)
        used = self._processor_seconds() - before
        print(f"{self.name} {measurement} {round_number}: {used:.1f} s in brokers, {figures}", file=sys.stderr)
        if measurement != _WARM_UP:
            self.add(figures)
            self.add({f"processor time of all, {measurement}, s": used})

    def measure_memory(self, when: str) -> None:
        self.add({f"memory of a broker {when}, MiB": max(resident_mib(pid) for pid in self._pids)})

    def _processor_seconds(self) -> float:
        return sum(map(processor_seconds, self._pids))


def processor_seconds(pid: int) -> float:
    """User and system time of a process since its start."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def broker_pids(cluster: ClusterProcess) -> list[int]:
    return [member["pid"] for name, member in cluster.verb("status").items() if name != "zookeeper"]


def started(folder: Path, stack: ExitStack) -> Iterator[Cluster]:
    ours = stack.enter_context(ClusterProcess(folder / "oncelog", settings=["group.initial.rebalance.delay.ms=0"]))
    yield Cluster("oncelog", ours.address, broker_pids(ours))
    theirs = stack.enter_context(KafkaCluster(folder / "kafka"))
    yield Cluster(theirs.name, theirs.address, theirs.pids)


def compare(rounds: int, only: Sequence[str]) -> None:
    began = time.perf_counter()
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="oncelog-bench-") as folder, ExitStack() as stack:
        clusters = list(started(Path(folder), stack))
        for cluster in clusters:
            cluster.measure_memory("idle")
            cluster.measure(_WARM_UP, 0)
        for measurement in only or [name for name in MEASUREMENTS if name != _WARM_UP]:
            for round_number in range(rounds):
                for cluster in clusters:
                    cluster.measure(measurement, round_number)
        for cluster in clusters:
            cluster.measure_memory("after the load")
        print_table(*clusters)
    print(f"\n{rounds} rounds, load {load:.1f} at their start, wall time {time.perf_counter() - began:.0f} s")


if __name__ == "__main__":
    run(__doc__, MEASUREMENTS, compare)
