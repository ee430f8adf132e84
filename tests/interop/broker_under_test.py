"""Which broker the scenarios run on: ours, or Apache Kafka with ``INTEROP_BROKER=kafka``, to prove them themselves.

``INTEROP_BROKER=kafka-3.9`` is Apache Kafka 3.9, the last before version 2 of the transaction protocol.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from tests.processes import KAFKA_3_9, KafkaProcess, OncelogProcess

BROKER = os.environ.get("INTEROP_BROKER", "oncelog")
TRANSACTION_VERSION: Literal[1, 2] = 1 if BROKER == "kafka-3.9" else 2
"""The version of the transaction protocol that the broker offers its clients."""


def broker_process(directory: Path, settings: Sequence[str]) -> OncelogProcess | KafkaProcess:
    """A broker of that kind, with settings of its own."""
    if BROKER == "kafka-3.9":
        return KafkaProcess(directory, settings, KAFKA_3_9)
    kind = {"oncelog": OncelogProcess, "kafka": KafkaProcess}[BROKER]
    return kind(directory, settings)
