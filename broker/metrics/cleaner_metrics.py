"""The cleaner of the data directory (Kafka: LogCleaner, LogCleanerManager). What was not measured yet has no sample."""

from collections.abc import Iterator
from typing import Final

from prometheus_client import Metric
from prometheus_client.metrics_core import GaugeMetricFamily

from oncelog.broker.process.supervisor import Supervisor
from oncelog.broker.storage.log_manager import LogManager

_MANAGER: Final = "kafka_log_logcleanermanager"
_CLEANER: Final = "kafka_log_logcleaner"
_TASK: Final = "log cleaner"


def cleaner_metrics(logs: LogManager, supervisor: Supervisor) -> Iterator[Metric]:
    uncleanable = logs.uncleanable()
    dirty = sum(log.size_between(log.cleaned_offset, log.log_end_offset) for log in uncleanable)
    for name, doc, value in (
        (
            "partitions_count",
            "Logs that the cleaner skips until the next start: a batch is corrupt, or cleaning failed; see the log.",
            len(uncleanable),
        ),
        ("bytes", "About how many bytes of these logs were never cleaned.", dirty),
    ):
        family = GaugeMetricFamily(f"{_MANAGER}_uncleanable_{name}", doc, labels=("logDirectory",))
        family.add_metric((logs.log_dir,), value)
        yield family
    yield from _figures(logs)
    yield GaugeMetricFamily(
        f"{_CLEANER}_deadthreadcount",
        "1 while the last round of the cleaner has failed unexpectedly. The next one is tried all the same.",
        value=int(_TASK in supervisor.failing),
    )


def _figures(logs: LogManager) -> Iterator[Metric]:
    figures = logs.cleaning
    since = None if figures.last_round_ms is None else max(0, logs.wall_clock() - figures.last_round_ms)
    for name, doc, measured in (
        (f"{_MANAGER}_time_since_last_run_ms", "Milliseconds since the last round of the cleaner ended.", since),
        (
            f"{_MANAGER}_max_dirty_percent",
            "Highest dirty ratio, in percent, of a log that was worth cleaning when the last round began.",
            _percent(figures.highest_dirty_ratio),
        ),
        (f"{_CLEANER}_max_clean_time_secs", "Seconds that the last pass over a log took.", figures.pass_seconds),
        (
            f"{_CLEANER}_cleaner_recopy_percent",
            "Bytes that the last pass kept, in percent of those that it read.",
            _percent(figures.recopied_ratio),
        ),
        (
            f"{_CLEANER}_max_buffer_utilization_percent",
            "Room for keys that the last pass has used, in percent.",
            _percent(figures.buffer_utilization),
        ),
    ):
        family = GaugeMetricFamily(name, doc, labels=())
        if measured is not None:
            family.add_metric((), measured)
        yield family


def _percent(ratio: float | None) -> float | None:
    return None if ratio is None else 100 * ratio
