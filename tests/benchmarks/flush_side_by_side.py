"""``make bench-flush``: what it costs to sync every record before its response, beside Apache Kafka that does the same.

Three brokers of one node each take part: ours with its defaults ("lazy": the operating system writes when it likes),
ours with ``log.flush.interval.messages=1`` and Apache Kafka 4 with the same setting. Rounds of the three alternate;
every measurement runs in a process of its own. The table shows medians and ratios; "16 plain to 4" are 16 producers
that are not idempotent, writing to four partitions. The time of an ``fsync`` is measured in each round, too: all
figures of the flushing brokers follow from it.
"""

import os
import statistics
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Final

from tests.benchmarks import librdkafka, raw_producers, raw_transactions, wire
from tests.benchmarks.side_by_side import (
    Contender,
    Figures,
    Measured,
    Measurements,
    create_topic,
    isolated,
    percentile,
    run,
)
from tests.processes import KafkaProcess, OncelogProcess

MODULE: Final = "tests.benchmarks.flush_side_by_side"
FLUSH_EACH: Final = "log.flush.interval.messages=1"
_SECONDS: Final = 4.0
_WARM_UP: Final = "warm-up"
_FSYNCS: Final = 100
_CLIENTS: Final = 4


def measure_requests(
    address: str,
    round_number: int,
    *,
    partitions: int,
    is_idempotent: bool,
    producers: int = 16,
    seconds: float = _SECONDS,
) -> Figures:
    """Producers with five requests in flight each, one batch of one record of 100 B in each."""
    kind = f"{producers} {'idempotent' if is_idempotent else 'plain'}"
    topic = f"requests-{partitions}-{kind.replace(' ', '-')}-{round_number}"
    create_topic(address, topic, partitions)
    load = raw_producers.Load(
        topic=topic,
        partitions=partitions,
        producers=producers,
        in_flight=5,
        records=1,
        size=100,
        is_idempotent=is_idempotent,
        seconds=seconds,
    )
    latencies = raw_producers.latencies_of(address, load)
    name = f"{kind} to {partitions}"
    return {
        f"requests, {name}, 1/s": len(latencies) / seconds,
        f"request p50, {name}, ms": percentile(latencies, 0.5) * 1e3,
        f"request p99, {name}, ms": percentile(latencies, 0.99) * 1e3,
    }


def measure_clients(
    address: str, round_number: int, *, partitions: int, is_idempotent: bool, count: int = 250_000
) -> Figures:
    """Four producers of librdkafka, 100 B a record, as they batch them."""
    kind = "idempotent" if is_idempotent else "plain"
    topic = f"librdkafka-{partitions}-{kind}-{round_number}"
    create_topic(address, topic, partitions)
    settings = {"enable.idempotence": str(is_idempotent).lower()}
    produce = partial(librdkafka.produce, address, topic, size=100, count=count, **settings)
    started = time.perf_counter()
    with ThreadPoolExecutor(_CLIENTS) as threads:
        for future in [threads.submit(produce) for _ in range(_CLIENTS)]:
            future.result()
    seconds = time.perf_counter() - started
    return {f"librdkafka, 4 {kind} to {partitions}, MB/s": _CLIENTS * count * 100 / 1e6 / seconds}


def measure_synchronous(address: str, round_number: int) -> Figures:
    """One request at a time: this is the disk's time, and nothing can share it."""
    topic = f"synchronous-{round_number}"
    create_topic(address, topic, 1)
    latencies = wire.synchronous_latencies(address, topic, size=100, count=300)
    return {
        "synchronous produce p50, ms": percentile(latencies, 0.5) * 1e3,
        "synchronous produce p99, ms": percentile(latencies, 0.99) * 1e3,
    }


def measure_transactions(address: str, round_number: int, *, seconds: float = _SECONDS) -> Figures:
    """20 transactional producers, one record a transaction, over 16 partitions."""
    topic = f"transactions-{round_number}"
    create_topic(address, topic, 16)
    latencies = raw_transactions.commits(address, topic, partitions=16, producers=20, seconds=seconds)
    return {
        "transactions, 20 producers, 1/s": len(latencies) / seconds,
        "commit p50, 20 producers, ms": percentile(latencies, 0.5) * 1e3,
    }


def measure_warm_up(address: str, round_number: int) -> Figures:
    """Nothing: internal topics are made, and a JVM compiles what it runs often."""
    measure_clients(address, -1, partitions=16, is_idempotent=True)  # It retries until there are producer ids.
    measure_requests(address, -1, partitions=16, is_idempotent=True, seconds=10.0)
    measure_transactions(address, -1, seconds=10.0)
    return {}


MEASUREMENTS: Measurements = {
    _WARM_UP: measure_warm_up,
    "synchronous": measure_synchronous,
    "requests-1": partial(measure_requests, partitions=1, is_idempotent=False),
    "requests-1-idempotent": partial(measure_requests, partitions=1, is_idempotent=True),
    "requests-16": partial(measure_requests, partitions=16, is_idempotent=False),
    "requests-16-idempotent": partial(measure_requests, partitions=16, is_idempotent=True),
    "many-requests-1": partial(measure_requests, partitions=1, is_idempotent=True, producers=64),
    "many-requests-16": partial(measure_requests, partitions=16, is_idempotent=True, producers=64),
    "librdkafka-1": partial(measure_clients, partitions=1, is_idempotent=False),
    "librdkafka-1-idempotent": partial(measure_clients, partitions=1, is_idempotent=True),
    "librdkafka-16": partial(measure_clients, partitions=16, is_idempotent=False),
    "librdkafka-16-idempotent": partial(measure_clients, partitions=16, is_idempotent=True),
    "transactions": measure_transactions,
}


def fsync_seconds(folder: Path) -> list[float]:
    """Append 4 KiB to a file and sync it, again and again; return the time of each fsync, sorted."""
    path = folder / "fsync-probe"
    seconds = []
    with path.open("wb", buffering=0) as file:
        for _ in range(_FSYNCS):
            file.write(bytes(4096))
            started = time.perf_counter()
            os.fsync(file.fileno())
            seconds.append(time.perf_counter() - started)
    path.unlink()
    return sorted(seconds)


def print_ratios(lazy: Measured, flushing: Measured, kafka: Measured) -> None:
    print(f"\n{os.cpu_count()} cores; medians of {FLUSH_EACH}, and of our own default\n")
    print(f"{'':42}{lazy.name:>10}{flushing.name:>10}{kafka.name:>10}{'/ kafka':>9}{'/ lazy':>8}")
    for name in flushing.figures:
        at_ease, ours, theirs = (statistics.median(side.figures[name]) for side in (lazy, flushing, kafka))
        print(f"{name:42}{at_ease:10.2f}{ours:10.2f}{theirs:10.2f}{ours / theirs:9.2f}{ours / at_ease:8.2f}")


def measure_all(contenders: list[Contender], folder: Path, rounds: int, only: list[str]) -> list[float]:
    """Let the contenders alternate; return the times of fsync between the rounds, in seconds."""
    fsyncs = fsync_seconds(folder)
    for contender in contenders:
        isolated(_WARM_UP, contender.broker.address, 0, module=MODULE)
    for measurement in only or [name for name in MEASUREMENTS if name != _WARM_UP]:
        for round_number in range(rounds):
            for contender in contenders:
                figures = isolated(measurement, contender.broker.address, round_number, module=MODULE)
                print(f"{contender.name} {measurement} {round_number}: {figures}", file=sys.stderr)
                contender.add(figures)
            fsyncs += fsync_seconds(folder)
    return sorted(fsyncs)


def compare(rounds: int, only: list[str]) -> None:
    began = time.perf_counter()
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="oncelog-bench-") as name, ExitStack() as stack:
        folder = Path(name)
        brokers = {
            "lazy": OncelogProcess(folder / "lazy"),
            "flushing": OncelogProcess(folder / "flushing", [FLUSH_EACH]),
            "kafka": KafkaProcess(folder / "kafka", [FLUSH_EACH]),
        }
        contenders = [Contender(stack.enter_context(broker)) for broker in brokers.values()]
        for contender, label in zip(contenders, brokers, strict=True):
            contender.name = label
        fsyncs = measure_all(contenders, folder, rounds, only)
        print_ratios(*contenders)
    p50, p99 = percentile(fsyncs, 0.5) * 1e3, percentile(fsyncs, 0.99) * 1e3
    print(f"\nfsync of 4 KiB: p50 {p50:.2f} ms, p99 {p99:.2f} ms")
    print(f"{rounds} rounds, load {load:.1f} at their start, wall time {time.perf_counter() - began:.0f} s")


if __name__ == "__main__":
    run(__doc__, MEASUREMENTS, compare)
