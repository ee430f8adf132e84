"""Which broker the scenarios run on: ours, or Apache Kafka with ``INTEROP_BROKER=kafka``, to prove them themselves.

``INTEROP_BROKER=cluster`` is three brokers of ours on a real ZooKeeper (``oncelog cluster``): every topic has three
replicas, two of which must have a record before it is acknowledged. ``INTEROP_BROKER=kafka-3.9`` is Apache Kafka 3.9,
the last before version 2 of the transaction protocol.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import pytest

from tests.processes import KAFKA_3_9, BrokerProcess, ClusterProcess, KafkaProcess, OncelogProcess

BROKER = os.environ.get("INTEROP_BROKER", "oncelog")
TRANSACTION_VERSION: Literal[1, 2] = 1 if BROKER == "kafka-3.9" else 2
"""The version of the transaction protocol that the broker offers its clients."""
REPLICATION_FACTOR = 3 if BROKER == "cluster" else 1
"""Of every topic that a scenario creates."""

needs_cluster = pytest.mark.skipif(BROKER != "cluster", reason="about several brokers: make interop-cluster")


def needs_one_broker(reason: str) -> pytest.MarkDecorator:
    """``reason`` says what has no meaning on several."""
    return pytest.mark.skipif(BROKER == "cluster", reason=f"not about a cluster: {reason}")


def broker_process(directory: Path, settings: Sequence[str]) -> BrokerProcess:
    """A broker of that kind, or a cluster of them, with settings of its own."""
    if BROKER == "kafka-3.9":
        return KafkaProcess(directory, settings, KAFKA_3_9)
    if BROKER == "cluster":
        return ClusterProcess(directory, settings=settings)
    kind = {"oncelog": OncelogProcess, "kafka": KafkaProcess}[BROKER]
    return kind(directory, settings)
