"""The cleaner of the data directory (Kafka: LogCleanerManager)."""

from collections.abc import Iterator

from prometheus_client import Metric
from prometheus_client.metrics_core import GaugeMetricFamily

from oncelog.broker.storage.log_manager import LogManager


def cleaner_metrics(logs: LogManager) -> Iterator[Metric]:
    family = GaugeMetricFamily(
        "kafka_log_logcleanermanager_uncleanable_partitions_count",
        "Logs that the cleaner skips until the next start: a batch is corrupt, or cleaning failed; see the log.",
        labels=("logDirectory",),
    )
    family.add_metric((logs.log_dir,), logs.uncleanable_count)
    yield family
