"""Transactions a second and commit latency, with confluent-kafka (librdkafka).

One record a transaction, so that what is measured is the transaction and not the data.
"""

import threading
import time

from confluent_kafka import Producer


def _run(
    address: str, topic: str, transactional_id: str, patience: float, stop_at: float, commits: list[float]
) -> None:
    producer = Producer({"bootstrap.servers": address, "transactional.id": transactional_id, "linger.ms": 0})
    producer.init_transactions(patience)
    while time.perf_counter() < stop_at:
        producer.begin_transaction()
        producer.produce(topic, b"x" * 100)
        started = time.perf_counter()
        producer.commit_transaction(patience)
        commits.append(time.perf_counter() - started)


def commits(address: str, topic: str, *, producers: int, seconds: float, patience: float = 30.0) -> list[float]:
    """Run ``producers`` transactional producers for ``seconds``; return each commit's latency in seconds, sorted."""
    stop_at = time.perf_counter() + seconds
    latencies: list[list[float]] = [[] for _ in range(producers)]
    threads = [
        threading.Thread(
            target=_run, args=(address, topic, f"benchmark-{number}", patience, stop_at, latencies[number])
        )
        for number in range(producers)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sorted(latency for own in latencies for latency in own)
