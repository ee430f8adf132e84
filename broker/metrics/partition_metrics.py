"""Partitions of this broker: how many, how whole, how far (Kafka: ReplicaManager, BrokerTopicMetrics, Partition, Log).

A family with a row for each partition comes in parts, of the same name and in a row, so that the writer can let
other tasks run between two parts. Partitions may come and go meanwhile.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Final, TypeAlias

from prometheus_client import Metric
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily

from oncelog.broker.replication.partition import Partition
from oncelog.broker.replication.replica_control import ReplicaControl
from oncelog.broker.replication.replica_manager import ReplicaManager
from oncelog.broker.storage.partition_log import PartitionLog

ROWS_AT_ONCE: Final = 200

_OfLog: TypeAlias = Callable[[PartitionLog], int]


def replica_metrics(replicas: ReplicaManager, control: ReplicaControl) -> Iterator[Metric]:
    counts: Counter[str] = Counter()
    for partition in replicas.partitions():
        counts.update(_what_it_is(partition))
    for name, doc in (
        ("partitioncount", "Replicas on this broker."),
        ("leadercount", "Partitions that this broker leads."),
        ("offlinereplicacount", "Replicas on this broker whose log has failed."),
        ("underreplicatedpartitions", "Partitions led by this broker that have a replica out of sync."),
        ("underminisrpartitioncount", "Partitions led by this broker below min.insync.replicas: acks=all is refused."),
        ("atminisrpartitioncount", "Partitions led by this broker with exactly min.insync.replicas in sync."),
        ("produceridcount", "Producers with state in the replicas on this broker."),
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


def _what_it_is(partition: Partition) -> dict[str, int]:
    """Return what one partition adds to each count."""
    log, leading = partition.log, partition.leading
    counts = {"partitioncount": 1, "offlinereplicacount": int(partition.failed)}
    if log is not None:
        counts["produceridcount"] = len(log.producer_state.producers)
    if leading is not None:
        in_sync = leading.progress.in_sync
        minimum = in_sync.effective_min_isr(leading.log.config.min_insync_replicas)
        counts["leadercount"] = 1
        counts["underreplicatedpartitions"] = int(len(in_sync.isr) < len(in_sync.replicas))
        counts["underminisrpartitioncount"] = int(len(in_sync.isr) < minimum)
        counts["atminisrpartitioncount"] = int(len(in_sync.isr) == minimum)
    return counts


def topic_metrics(replicas: ReplicaManager) -> Iterator[Metric]:
    taken, given, messages = Counter[str](), Counter[str](), Counter[str]()
    for partition in replicas.partitions():
        topic = partition.topic_partition.topic
        messages[topic] += partition.traffic.messages_in
        taken[topic] += partition.traffic.bytes_in
        given[topic] += partition.traffic.bytes_out
    for name, doc, counts in (
        ("messagesin", "Records appended by producers and coordinators, and markers.", messages),
        ("bytesin", "Bytes of appended batches, as stored.", taken),
        ("bytesout", "Bytes of batches in responses to fetches.", given),
    ):
        family = CounterMetricFamily(f"kafka_server_brokertopicmetrics_{name}", doc, labels=("topic",))
        for topic, count in counts.items():
            family.add_metric((topic,), count)
        yield family


def log_metrics(replicas: ReplicaManager) -> Iterator[Metric]:
    for name, doc, value in (
        (
            "kafka_cluster_partition_laststableoffsetlag",
            "Offsets from the last stable offset to the high watermark: hidden from read_committed consumers.",
            lambda log: log.high_watermark - log.last_stable_offset,
        ),
        (
            "kafka_log_log_logstartoffset",
            "First offset of the log, of partitions led by this broker.",
            lambda log: log.log_start_offset,
        ),
        ("kafka_log_log_logendoffset", "Next offset of the log.", lambda log: log.log_end_offset),
        ("kafka_log_log_size", "Bytes of all segments.", lambda log: log.size),
        ("kafka_log_log_numlogsegments", "Number of segments.", lambda log: len(log.segments)),
    ):
        yield from _of_led_logs(replicas, name, doc, value)


def _of_led_logs(replicas: ReplicaManager, name: str, doc: str, value: _OfLog) -> Iterator[Metric]:
    partitions = list(replicas.partitions())
    for start in range(0, max(1, len(partitions)), ROWS_AT_ONCE):
        family = GaugeMetricFamily(name, doc, labels=("topic", "partition"))
        for partition in partitions[start : start + ROWS_AT_ONCE]:
            leading = partition.leading
            if leading is not None:
                topic, index = partition.topic_partition
                family.add_metric((topic, str(index)), value(leading.log))
        yield family
