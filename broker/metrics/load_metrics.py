"""How long a coordinator took to load partitions (Kafka: partition-load-time of both coordinators).

Kafka's figures are about the last thirty seconds; these are about the time since the start, so that no scrape misses
a load. They have no sample before the first one.
"""

from collections.abc import Iterator

from prometheus_client import Metric
from prometheus_client.metrics_core import GaugeMetricFamily

from oncelog.coordinator.load_times import LoadTimes


def load_metrics(coordinator: str, times: LoadTimes) -> Iterator[Metric]:
    """Yield the times of the coordinator that the names say, ``group`` or ``transaction``."""
    for kind, doc, value in (
        ("max", "Longest time since the start, in milliseconds, to load a partition.", times.max_ms),
        ("avg", "Mean of these times.", times.total_ms / max(1, times.count)),
    ):
        name = f"kafka_server_{coordinator}_coordinator_metrics_partition_load_time_{kind}"
        family = GaugeMetricFamily(name, f"{doc} Absent before the first.", labels=())
        if times.count:
            family.add_metric((), value)
        yield family
