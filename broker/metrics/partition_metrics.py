"""Partitions of this broker: how many, how whole, how far (Kafka: ReplicaManager, Partition, Log).

A family with a row for each partition comes in parts, of the same name and in a row, so that the writer can let
other tasks run between two parts. Partitions may come and go meanwhile.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final, NamedTuple, TypeAlias

from prometheus_client import Metric
from prometheus_client.metrics_core import GaugeMetricFamily

from oncelog.broker.metrics.exposition import PAUSE
from oncelog.broker.metrics.family_parts import in_parts
from oncelog.broker.replication.leading_partition import LeadingPartition
from oncelog.broker.replication.partition import Partition
from oncelog.broker.replication.replica_control import ReplicaControl
from oncelog.broker.replication.replica_manager import ReplicaManager
from oncelog.broker.storage.partition_log import PartitionLog

PARTITIONS_AT_ONCE: Final = 250
"""Counted in one turn of the loop: some milliseconds."""

LATE_AFTER_MS: Final = 300_000
"""A transaction is late when it is open so much longer than any may be (Kafka's constant)."""

_OfLog: TypeAlias = Callable[[PartitionLog], int]
_OfLed: TypeAlias = Callable[[LeadingPartition], int]
_OfPartition: TypeAlias = Callable[[Partition], int | None]

_LABELS: Final = ("topic", "partition")


class Clock(NamedTuple):
    """What decides whether a transaction is late."""

    now_ms: int
    max_timeout_ms: int
    """``transaction.max.timeout.ms``"""


def replica_metrics(replicas: ReplicaManager, control: ReplicaControl, clock: Clock) -> Iterator[Metric | None]:
    counts: Counter[str] = Counter()
    for number, partition in enumerate(list(replicas.partitions()), 1):
        counts.update(_what_it_is(partition, clock))
        if number % PARTITIONS_AT_ONCE == 0:
            yield PAUSE
    for name, doc in (
        ("partitioncount", "Replicas on this broker."),
        ("leadercount", "Partitions that this broker leads."),
        ("offlinereplicacount", "Replicas on this broker whose log has failed."),
        ("underreplicatedpartitions", "Partitions led by this broker that have a replica out of sync."),
        ("underminisrpartitioncount", "Partitions led by this broker below min.insync.replicas: acks=all is refused."),
        ("atminisrpartitioncount", "Partitions led by this broker with exactly min.insync.replicas in sync."),
        ("produceridcount", "Producers with state in the replicas on this broker."),
        (
            "partitionswithlatetransactionscount",
            "Partitions led by this broker with a transaction that is open for five minutes longer than "
            "transaction.max.timeout.ms: it hangs, and hides records from read_committed consumers.",
        ),
    ):
        yield GaugeMetricFamily(f"kafka_server_replicamanager_{name}", doc, value=counts[name])
    yield GaugeMetricFamily(
        "oncelog_unopened_logs",
        "Replicas on this broker whose log cannot be opened for lack of file descriptors; retried automatically.",
        value=len(control.unopened),
    )
    yield GaugeMetricFamily(
        "oncelog_refusing_logs",
        "Replicas on this broker that take no writes for lack of file descriptors, with those of "
        "oncelog_unopened_logs; other in-sync replicas lead.",
        value=len(control.refusing),
    )
    yield GaugeMetricFamily(
        "oncelog_deserted_coordinator_partitions",
        "Partitions of internal topics led by this broker of which no in-sync follower has fetched for "
        "oncelog.coordinator.silence.max.ms: the coordinator serves no committed offsets and no transactions.",
        value=sum(1 for _ in replicas.deserted_coordinators()),
    )


def _what_it_is(partition: Partition, clock: Clock) -> dict[str, int]:
    """Return what one partition adds to each count."""
    log, leading = partition.log, partition.leading
    counts = {"partitioncount": 1, "offlinereplicacount": int(partition.failed)}
    if log is not None:
        counts["produceridcount"] = len(log.producer_state.producers)
    if leading is not None:
        counts["leadercount"] = 1
        counts["underreplicatedpartitions"] = _is_under_replicated(leading)
        counts["underminisrpartitioncount"] = _is_under_min_isr(leading)
        counts["atminisrpartitioncount"] = _is_at_min_isr(leading)
        counts["partitionswithlatetransactionscount"] = _has_late_transaction(leading.log, clock)
    return counts


def _is_under_replicated(leading: LeadingPartition) -> int:
    in_sync = leading.progress.in_sync
    return int(len(in_sync.isr) < len(in_sync.replicas))


def _is_under_min_isr(leading: LeadingPartition) -> int:
    return int(len(leading.progress.in_sync.isr) < _min_isr(leading))


def _is_at_min_isr(leading: LeadingPartition) -> int:
    return int(len(leading.progress.in_sync.isr) == _min_isr(leading))


def _min_isr(leading: LeadingPartition) -> int:
    return leading.progress.in_sync.effective_min_isr(leading.log.config.min_insync_replicas)


def _has_late_transaction(log: PartitionLog, clock: Clock) -> int:
    """Judge by the last batch of the producer whose transaction is the oldest open one, as Kafka does."""
    producer_id = log.producer_state.transactions.first_undecided_producer
    entry = None if producer_id is None else log.producer_state.producers.get(producer_id)
    if entry is None or entry.last_timestamp <= 0:
        return 0
    return int(clock.now_ms - entry.last_timestamp > clock.max_timeout_ms + LATE_AFTER_MS)


def log_metrics(replicas: ReplicaManager) -> Iterator[Metric]:
    """Yield one row for each log: those of followers too, as in Kafka."""
    of_log: tuple[tuple[str, str, _OfLog], ...] = (
        ("logstartoffset", "First offset of the log.", lambda log: log.log_start_offset),
        ("logendoffset", "Next offset of the log.", lambda log: log.log_end_offset),
        ("size", "Bytes of all segments.", lambda log: log.size),
        ("numlogsegments", "Number of segments.", lambda log: len(log.segments)),
    )
    for name, doc, value in of_log:
        yield from _rows(replicas, f"kafka_log_log_{name}", doc, _of_log(value))


def led_partition_metrics(replicas: ReplicaManager) -> Iterator[Metric]:
    """Yield one row for each partition that this broker leads, so that sums over brokers count each one once."""
    of_led: tuple[tuple[str, str, _OfLed], ...] = (
        (
            "kafka_cluster_partition_laststableoffsetlag",
            "Offsets from the last stable offset to the high watermark: hidden from read_committed consumers.",
            lambda led: led.log.high_watermark - led.log.last_stable_offset,
        ),
        (
            "kafka_cluster_partition_replicascount",
            "Replicas that the partition should have; of partitions led by this broker, as the next six.",
            lambda led: len(led.progress.in_sync.replicas),
        ),
        ("kafka_cluster_partition_insyncreplicascount", "Replicas in sync.", lambda led: len(led.progress.in_sync.isr)),
        ("kafka_cluster_partition_underreplicated", "1 if a replica is out of sync.", _is_under_replicated),
        ("kafka_cluster_partition_underminisr", "1 below min.insync.replicas: acks=all is refused.", _is_under_min_isr),
        ("kafka_cluster_partition_atminisr", "1 with exactly min.insync.replicas in sync.", _is_at_min_isr),
        (
            "kafka_topic_partition_current_offset",
            "High watermark: the next offset that consumers will read (kafka_exporter).",
            lambda led: led.log.high_watermark,
        ),
        (
            "kafka_topic_partition_oldest_offset",
            "First offset of the log (kafka_exporter).",
            lambda led: led.log.log_start_offset,
        ),
    )
    for name, doc, value in of_led:
        yield from _rows(replicas, name, doc, _of_led(value))


def _of_log(value: _OfLog) -> _OfPartition:
    return lambda partition: None if partition.log is None else value(partition.log)


def _of_led(value: _OfLed) -> _OfPartition:
    return lambda partition: None if (leading := partition.leading) is None else value(leading)


def _rows(replicas: ReplicaManager, name: str, doc: str, value: _OfPartition) -> Iterator[Metric]:
    """Yield a family in parts; a partition has no row if it has no value."""

    def add(family: Metric, partition: Partition) -> None:
        counted = value(partition)
        if counted is not None:
            topic, index = partition.topic_partition
            family.add_sample(name, {"topic": topic, "partition": str(index)}, counted)

    yield from in_parts(partial(GaugeMetricFamily, name, doc, labels=_LABELS), add, list(replicas.partitions()))
