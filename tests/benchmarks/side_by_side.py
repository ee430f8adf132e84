"""``make bench``: this broker beside Apache Kafka, on this machine, in one run, with the same clients.

Every measurement runs in a process of its own against each broker in turn, several rounds interleaved; the table shows
the median of each and the ratio of the medians, since absolute times on a shared machine drift. Both brokers run with
one node, their own defaults, data on the same disk, and are warmed up first (a JVM compiles what it runs often).
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from confluent_kafka.admin import AdminClient, NewTopic

from tests.benchmarks import librdkafka, raw_transactions, transactions, wire
from tests.processes import BrokerProcess, KafkaProcess, OncelogProcess

Figures: TypeAlias = dict[str, float]
Measurements: TypeAlias = dict[str, Callable[[str, int], Figures]]
"""By name; each is told an address and the number of the round."""
PARTITIONS = 4
MODULE = "tests.benchmarks.side_by_side"


def percentile(ordered: list[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def measure_throughput(address: str, round_number: int, size: int, megabytes: int) -> Figures:
    topic = f"throughput-{size}-{round_number}"
    create_topic(address, topic, PARTITIONS)
    count = megabytes * 1_000_000 // size
    produced = librdkafka.produce(address, topic, size=size, count=count)
    consumed = librdkafka.consume(address, topic, partitions=PARTITIONS, count=count)
    scale = size * count / 1e6
    return {f"produce {size} B, MB/s": scale / produced, f"consume {size} B, MB/s": scale / consumed}


def measure_small(address: str, round_number: int) -> Figures:
    return measure_throughput(address, round_number, 100, 150)


def measure_large(address: str, round_number: int) -> Figures:
    return measure_throughput(address, round_number, 1024, 800)


def measure_latency(address: str, round_number: int) -> Figures:
    topic = f"latency-{round_number}"
    create_topic(address, topic, 1)
    wire.synchronous_latencies(address, topic, size=100, count=2000)
    latencies = wire.synchronous_latencies(address, topic, size=100, count=5000)
    rate = wire.pipelined_requests_per_second(address, topic, size=100, count=60_000)
    return {
        "synchronous produce p50, us": percentile(latencies, 0.5) * 1e6,
        "synchronous produce p99, us": percentile(latencies, 0.99) * 1e6,
        "pipelined small produces, 1/s": rate,
    }


def measure_transactions(address: str, round_number: int) -> Figures:
    figures: Figures = {}
    for producers in (1, 20):
        topic = f"transactions-{producers}-{round_number}"
        create_topic(address, topic, PARTITIONS)
        seconds = 5.0
        latencies = transactions.commits(address, topic, producers=producers, seconds=seconds)
        label = "producer" if producers == 1 else "producers"
        figures[f"transactions, {producers} {label}, 1/s"] = len(latencies) / seconds
        if producers == 1:
            figures["commit p50, ms"] = percentile(latencies, 0.5) * 1e3
            figures["commit p99, ms"] = percentile(latencies, 0.99) * 1e3
    return figures


def measure_raw_transactions(address: str, round_number: int) -> Figures:
    figures: Figures = {}
    for producers in (1, 20):
        topic = f"raw-transactions-{producers}-{round_number}"
        create_topic(address, topic, PARTITIONS)
        seconds = 5.0
        latencies = raw_transactions.commits(
            address, topic, partitions=PARTITIONS, producers=producers, seconds=seconds
        )
        figures[f"raw transactions, {producers} at once, 1/s"] = len(latencies) / seconds
        figures[f"raw commit p50, {producers} at once, ms"] = percentile(latencies, 0.5) * 1e3
    return figures


MEASUREMENTS: Measurements = {
    "latency": measure_latency,
    "transactions": measure_transactions,
    "raw-transactions": measure_raw_transactions,
    "small": measure_small,
    "large": measure_large,
}


def create_topic(address: str, topic: str, partitions: int) -> None:
    """With as many replicas as the brokers' default says; returns when all partitions have leaders."""
    admin = AdminClient({"bootstrap.servers": address})
    admin.create_topics([NewTopic(topic, partitions)])[topic].result(30)
    for _ in range(1_000):
        found = admin.list_topics(topic, 30).topics[topic].partitions
        if len(found) == partitions and all(partition.leader >= 0 for partition in found.values()):
            return
    raise TimeoutError(f"{topic} has no leaders")


def leader_address(address: str, topic: str) -> str:
    """Where the leader of partition 0 is."""
    metadata = AdminClient({"bootstrap.servers": address}).list_topics(topic, 30)
    leader = metadata.brokers[metadata.topics[topic].partitions[0].leader]
    return f"{leader.host}:{leader.port}"


def resident_mib(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) / 1024
    raise LookupError(f"no VmRSS of process {pid}")


def isolated(measurement: str, address: str, round_number: int, *, module: str = MODULE) -> Figures:
    """Run one measurement of a module in a process of its own and return its figures."""
    command = [sys.executable, "-m", module, "--measure", measurement]
    command += ["--address", address, "--round", str(round_number)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{measurement} of {address} failed:\n{done.stderr[-2000:]}")
    figures: Figures = json.loads(done.stdout.splitlines()[-1])
    return figures


@dataclass
class Measured:
    """What was measured of one side of the comparison, a list of values a figure."""

    name: str
    figures: dict[str, list[float]] = field(default_factory=dict)

    def add(self, figures: Figures) -> None:
        for name, value in figures.items():
            self.figures.setdefault(name, []).append(value)


class Contender(Measured):
    """A broker of the comparison."""

    def __init__(self, broker: BrokerProcess) -> None:
        super().__init__(broker.name)
        self.broker = broker

    def start_and_time(self) -> None:
        """From exec to the first successful Metadata, on an empty and then on its own directory."""
        self.broker.prepare()
        started = time.perf_counter()
        self.broker.launch()
        wire.seconds_to_metadata(self.broker.address, 60)
        self.add({"start to ready, s": time.perf_counter() - started})


def start_up(contender: Contender, rounds: int) -> None:
    for _ in range(rounds):
        contender.start_and_time()
        contender.broker.stop()
    contender.broker.start()
    contender.add({"memory idle, MiB": resident_mib(contender.broker.pid)})


def print_table(ours: Measured, theirs: Measured) -> None:
    cpu = platform.processor() or platform.machine()
    print(f"\n{os.cpu_count()} cores, {cpu}, Python {platform.python_version()}; medians\n")
    print(f"{'':34}{ours.name:>12}{theirs.name:>12}{'ratio':>8}")
    for name, values in ours.figures.items():
        mine, other = statistics.median(values), statistics.median(theirs.figures[name])
        print(f"{name:34}{mine:12.2f}{other:12.2f}{mine / other:8.2f}")


def compare(rounds: int, only: list[str]) -> None:
    started = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="oncelog-bench-") as folder:
        contenders = [
            Contender(OncelogProcess(Path(folder) / "oncelog")),
            Contender(KafkaProcess(Path(folder) / "kafka")),
        ]
        try:
            for contender in contenders:
                start_up(contender, rounds)
            for measurement in only or MEASUREMENTS:
                for round_number in range(rounds):
                    for contender in contenders:
                        figures = isolated(measurement, contender.broker.address, round_number)
                        print(f"{contender.broker.name} {measurement} {round_number}: {figures}", file=sys.stderr)
                        contender.add(figures)
            for contender in contenders:
                contender.add({"memory after the load, MiB": resident_mib(contender.broker.pid)})
        finally:
            for contender in contenders:
                contender.broker.stop()
        print_table(*contenders)
    print(f"\n{rounds} rounds, wall time {time.perf_counter() - started:.0f} s")


def run(description: str | None, measurements: Measurements, compare: Callable[[int, list[str]], None]) -> None:
    """The command line of a comparison; it calls itself for a single measurement."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", action="append", default=[], choices=list(measurements))
    parser.add_argument("--measure", choices=list(measurements))
    parser.add_argument("--address")
    parser.add_argument("--round", type=int, default=0)
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(measurements[options.measure](options.address, options.round)), flush=True)
        os._exit(0)  # librdkafka's consumer holds records that were never given back.
    compare(options.rounds, options.only)


if __name__ == "__main__":
    run(__doc__, MEASUREMENTS, compare)
