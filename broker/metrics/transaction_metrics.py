"""Transactions of the ids that this broker coordinates, and the verifications of its partition leaders.

(Kafka: AddPartitionsToTxnManager. What it has nothing for begins with ``oncelog_``.)
"""

from collections.abc import Iterator
from typing import Final

from prometheus_client import Metric
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, SummaryMetricFamily

from oncelog.broker.transactions.verification_metrics import VerificationMetrics
from oncelog.coordinator.transaction.coordinator import TransactionCoordinator

_MANAGER: Final = "kafka_server_addpartitionstotxnmanager"


def transaction_metrics(coordinator: TransactionCoordinator, now_ms: int) -> Iterator[Metric]:
    started = [txn.metadata.start_ms for txn in coordinator.open_transactions()]
    yield GaugeMetricFamily(
        "oncelog_transactions_open", "Open transactions of the ids that this broker coordinates.", value=len(started)
    )
    yield GaugeMetricFamily(
        "oncelog_transactions_oldest_open_seconds",
        "Age of the oldest open transaction, 0 if there is none.",
        value=max(0, now_ms - min(started, default=now_ms)) / 1000,
    )
    yield CounterMetricFamily(
        "oncelog_transactions_timed_out",
        "Transactions aborted because they exceeded their time-out.",
        value=coordinator.timed_out_count,
    )


def verification_metrics(metrics: VerificationMetrics) -> Iterator[Metric]:
    yield SummaryMetricFamily(
        f"{_MANAGER}_verificationtimems",
        "Milliseconds that partition leaders waited for a transaction coordinator to verify a first batch.",
        count_value=metrics.verification_count,
        sum_value=metrics.verification_time_ms_total,
    )
    yield GaugeMetricFamily(
        f"{_MANAGER}_verificationtimems_max",
        "Longest of these times since the start.",
        value=metrics.verification_time_ms_max,
    )
    yield CounterMetricFamily(
        f"{_MANAGER}_verificationfailure",
        "Partitions that a coordinator did not verify, for whatever reason, transient ones included.",
        value=metrics.verification_failures,
    )
