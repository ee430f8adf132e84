"""``python -m tests.benchmarks.python_clients``: our Python client beside aiokafka, on one broker process of ours.

Every measurement is a process of its own; rounds are interleaved, and the table shows medians and their ratio to
aiokafka's, because absolute times on a shared machine drift. ``--uvloop`` gives all clients uvloop.

A half (produce, consume) is a module with ``MEASUREMENTS``: for each client a coroutine function of (address, topic,
size, count) that returns seconds. Before the consumers run, their topic is filled by our producer.
"""

import argparse
import asyncio
import importlib
import json
import statistics
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from random import Random
from typing import Final

import uvloop

from oncelog.clients.admin.topics import NewTopic, create_topics
from oncelog.clients.bootstrap import parse_bootstrap
from oncelog.clients.cluster import Cluster
from tests.benchmarks.python_producers import produce_without_waiting
from tests.processes import REPOSITORY, OncelogProcess

HALVES: Final = {
    half: module
    for half, module in (
        ("produce", "tests.benchmarks.python_producers"),
        ("consume", "tests.benchmarks.python_consumers"),
    )
    if find_spec(module) is not None
}
PEER: Final = "aiokafka"
PARTITIONS: Final = 4
SIZES: Final = {100: 20_000_000, 1024: 60_000_000}
"""Bytes of a record, and of all records of a measurement."""


async def measure_here(half: str, client: str, address: str, topic: str, size: int, count: int) -> float:
    """In this process."""
    async with Cluster(parse_bootstrap(address), rng=Random(1)) as cluster:
        new = NewTopic(name=topic, partitions=PARTITIONS, replication_factor=1)
        assert await create_topics(cluster, [new]) == {topic: None}
    if half == "consume":
        await produce_without_waiting(address, topic, size, count)
    measurements = importlib.import_module(HALVES[half]).MEASUREMENTS
    seconds: float = await measurements[client](address, topic, size, count)
    return seconds


def measure(words: list[str]) -> float:
    """In a process of its own."""
    command = [sys.executable, "-m", "tests.benchmarks.python_clients", "--child", *words]
    done = subprocess.run(command, cwd=REPOSITORY, check=True, stdout=subprocess.PIPE, text=True)
    seconds: float = json.loads(done.stdout)
    return seconds


def run_child(words: list[str], *, fast_loop: bool) -> None:
    half, client, address, topic, size, count = words
    work = measure_here(half, client, address, topic, int(size), int(count))
    factory = uvloop.new_event_loop if fast_loop else asyncio.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        print(json.dumps(runner.run(work)))


def rounds(address: str, half: str, size: int, count: int, number: int, *, fast_loop: bool) -> dict[str, list[float]]:
    """Seconds of each client, in each round."""
    clients = list(importlib.import_module(HALVES[half]).MEASUREMENTS)
    taken: dict[str, list[float]] = {client: [] for client in clients}
    for round_number in range(number):
        for place, client in enumerate(clients):
            topic = f"{half}-{size}-{round_number}-{place}"
            words = [half, client, address, topic, str(size), str(count)]
            taken[client].append(measure(words + (["--uvloop"] if fast_loop else [])))
    return taken


def report(half: str, size: int, count: int, taken: dict[str, list[float]]) -> None:
    peer = statistics.median(taken[PEER])
    for client, seconds in taken.items():
        median = statistics.median(seconds)
        megabytes, records = count * size / median / 1e6, count / median
        print(
            f"{half:<8} {size:>5} B  {client:<22} {megabytes:>8.1f} MB/s {records:>10,.0f} records/s"
            f"  {peer / median:>5.2f} x {PEER}",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--half", choices=HALVES, action="append")
    parser.add_argument("--share", type=float, default=1.0, help="of the records that a full run measures")
    parser.add_argument("--uvloop", action="store_true")
    parser.add_argument("--child", nargs=6, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        run_child(options.child, fast_loop=options.uvloop)
        return
    with tempfile.TemporaryDirectory() as directory, OncelogProcess(Path(directory)) as broker:
        for half in options.half or HALVES:
            for size, total in SIZES.items():
                count = int(total * options.share) // size
                taken = rounds(broker.address, half, size, count, options.rounds, fast_loop=options.uvloop)
                report(half, size, count, taken)


if __name__ == "__main__":
    main()
