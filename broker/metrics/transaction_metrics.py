"""Transactions of the ids that this broker coordinates, and the verifications of its partition leaders.

(Kafka: TransactionMarkerChannelManager, AddPartitionsToTxnManager. What it has nothing for begins with ``oncelog_``.)
"""

from collections.abc import Iterator
from typing import Final

from prometheus_client import Metric
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, SummaryMetricFamily

from oncelog.broker.metrics.exposition import PAUSE
from oncelog.broker.metrics.load_metrics import load_metrics
from oncelog.broker.transactions.verification_metrics import VerificationMetrics
from oncelog.coordinator.transaction.coordinator import TransactionCoordinator
from oncelog.coordinator.transaction.figures import MarkerQueues

_MANAGER: Final = "kafka_server_addpartitionstotxnmanager"
_CHANNEL: Final = "kafka_coordinator_transaction_transactionmarkerchannelmanager"
_TRANSACTIONS_AT_ONCE: Final = 10_000
"""Looked at in one turn of the loop."""


def transaction_metrics(coordinator: TransactionCoordinator, now_ms: int) -> Iterator[Metric | None]:
    figures, open_count, oldest_ms = coordinator.figures, 0, now_ms
    for open_count, txn in enumerate(list(coordinator.open_transactions()), 1):
        oldest_ms = min(oldest_ms, txn.metadata.start_ms)
        if open_count % _TRANSACTIONS_AT_ONCE == 0:
            yield PAUSE
    yield GaugeMetricFamily(
        "oncelog_transactions_open", "Open transactions of the ids that this broker coordinates.", value=open_count
    )
    yield GaugeMetricFamily(
        "oncelog_transactions_oldest_open_seconds",
        "Age of the oldest open transaction, 0 if there is none.",
        value=(now_ms - oldest_ms) / 1000,
    )
    yield GaugeMetricFamily(
        "oncelog_transactional_ids", "Transactional ids that this broker coordinates.", value=figures.id_count
    )
    yield CounterMetricFamily(
        "oncelog_transactions_timed_out",
        "Transactions aborted because they exceeded their time-out.",
        value=figures.timed_out_count,
    )
    yield from _queue_metrics(figures.marker_queues)
    yield from load_metrics("transaction", figures.load_times)


def _queue_metrics(queues: MarkerQueues) -> Iterator[Metric]:
    yield GaugeMetricFamily(
        "oncelog_transactions_ending",
        "Decided transactions of which some partition has no marker yet.",
        value=queues.transactions,
    )
    yield GaugeMetricFamily(
        f"{_CHANNEL}_unknowndestinationqueuesize",
        "Markers of transactions that wait for their partition to have a leader.",
        value=queues.leaderless,
    )
    yield GaugeMetricFamily(
        f"{_CHANNEL}_logappendretryqueuesize",
        "Transactions whose completion the transaction log has refused; retried automatically.",
        value=queues.append_retries,
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
