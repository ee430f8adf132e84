"""All clients of the experiment, by the version of the transaction protocol that they speak."""

from collections.abc import Sequence

from tests.interop.drivers.oncelog_client import OncelogClient
from tests.interop.late_frames.aiokafka_client import PhasedAioKafka
from tests.interop.late_frames.client import PhasedClient
from tests.interop.late_frames.confluent_client import PhasedConfluent
from tests.interop.late_frames.kafka_python_client import PhasedKafkaPython
from tests.interop.late_frames.program_clients import PhasedJavaClient, PhasedKafkaJs

VERSION_2: Sequence[PhasedClient] = (PhasedJavaClient("java-client-4"), OncelogClient("2"))
"""Clients that speak version 2 where the broker has it."""
VERSION_1: Sequence[PhasedClient] = (
    PhasedJavaClient("java-client-3"),
    OncelogClient("1"),
    PhasedConfluent(),
    PhasedAioKafka(),
    PhasedKafkaPython(),
    PhasedKafkaJs(),
)
"""Clients that always speak version 1."""
