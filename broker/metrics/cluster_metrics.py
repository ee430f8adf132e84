"""What a broker knows of its cluster (Kafka: KafkaController; kafka_exporter), and of features."""

from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final, NamedTuple

from prometheus_client import Metric
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily

from oncelog.broker.metrics.exposition import PAUSE
from oncelog.broker.metrics.family_parts import in_parts
from oncelog.broker.parts import Broker
from oncelog.coordinator.controller.cluster_image import NO_LEADER, BrokerImage, ClusterImage, PartitionImage
from oncelog.coordinator.metadata_store.session_health import SessionState

_CONTROLLER: Final = "kafka_controller_kafkacontroller"
_SESSION: Final = "kafka_server_sessionexpirelistener"
_PARTITIONS_AT_ONCE: Final = 5_000
"""Counted in one turn of the loop."""


def controller_metrics(broker: Broker) -> Iterator[Metric | None]:
    """Yield counts of the whole cluster; 0 on a broker that is not the controller, so that they can be added up."""
    active = broker.controller.is_active
    image = broker.metadata.image if active else ClusterImage()
    counts: Counter[str] = Counter()
    partitions = _partitions_of(image)
    for start in range(0, len(partitions), _PARTITIONS_AT_ONCE):
        part = partitions[start : start + _PARTITIONS_AT_ONCE]
        counts["offline"] += sum(each.image.leader not in image.brokers for each in part)
        counts["imbalanced"] += sum(not _leads_preferred(each.image) for each in part)
        yield PAUSE
    for name, doc, value in (
        ("activecontrollercount", "1 on the controller, 0 on other brokers.", int(active)),
        (
            "activebrokercount",
            "Live brokers; 0 on brokers that are not the controller, as the next four.",
            len(image.brokers),
        ),
        ("globaltopiccount", "Topics of the cluster.", len(image.topics)),
        ("globalpartitioncount", "Partitions of the cluster.", len(partitions)),
        ("offlinepartitionscount", "Partitions of the cluster without a live leader.", counts["offline"]),
        (
            "preferredreplicaimbalancecount",
            "Partitions of the cluster that another replica than the first one leads, or none.",
            counts["imbalanced"],
        ),
    ):
        yield GaugeMetricFamily(f"{_CONTROLLER}_{name}", doc, value=value)
    for spelling in ("", "persec"):
        yield CounterMetricFamily(
            f"kafka_controller_controllerstats_uncleanleaderelections{spelling}",
            "Leaders that this broker, as the controller, elected although they may lack acknowledged records.",
            value=broker.controller.unclean_elections.count,
        )
    malformed = len(broker.controller.malformed_znodes)
    yield GaugeMetricFamily(
        "oncelog_malformed_znodes",
        "Znodes that this broker cannot decode; what they describe is not controlled until they are repaired.",
        value=malformed,
    )
    yield from _exporter_metrics(image, broker.listeners.inter_broker, partitions)


class _PartitionRow(NamedTuple):
    """One partition of the cluster."""

    topic: str
    number: str
    image: PartitionImage


def _partitions_of(image: ClusterImage) -> list[_PartitionRow]:
    return [
        _PartitionRow(topic.name, str(number), partition)
        for topic in image.topics.values()
        for number, partition in topic.partitions.items()
    ]


def _leads_preferred(partition: PartitionImage) -> bool:
    return partition.replicas[:1] == (partition.leader,)


def _exporter_metrics(image: ClusterImage, listener: str, partitions: list[_PartitionRow]) -> Iterator[Metric]:
    """Yield what kafka_exporter says of the cluster. Only the controller has rows, so that sums count each one once."""
    brokers = GaugeMetricFamily("kafka_brokers", "Live brokers; of kafka_exporter, as the next seven.", labels=())
    if image.brokers:
        brokers.add_metric((), len(image.brokers))
    yield brokers
    yield from in_parts(
        partial(GaugeMetricFamily, "kafka_broker_info", "1 for each live broker.", labels=("id", "address")),
        lambda family, each: family.add_sample(family.name, _broker_labels(each, listener), 1),
        list(image.brokers.values()),
    )
    yield from in_parts(
        partial(GaugeMetricFamily, "kafka_topic_partitions", "Partitions of a topic.", labels=("topic",)),
        lambda family, each: family.add_sample(family.name, {"topic": each.name}, len(each.partitions)),
        list(image.topics.values()),
    )
    of_partition: tuple[tuple[str, str, Callable[[PartitionImage], int]], ...] = (
        ("leader", "Id of the leader, -1 if there is none.", lambda each: max(NO_LEADER, each.leader)),
        ("leader_is_preferred", "1 if the first replica leads.", lambda each: int(_leads_preferred(each))),
        ("replicas", "Replicas that a partition should have.", lambda each: len(each.replicas)),
        ("in_sync_replica", "Replicas in sync.", lambda each: len(each.isr)),
        (
            "under_replicated_partition",
            "1 if a replica is out of sync.",
            lambda each: int(len(each.isr) < len(each.replicas)),
        ),
    )
    for name, doc, value in of_partition:
        yield from in_parts(
            partial(GaugeMetricFamily, f"kafka_topic_partition_{name}", doc, labels=("topic", "partition")),
            partial(_add_partition, value),
            partitions,
        )


def _broker_labels(broker: BrokerImage, listener: str) -> dict[str, str]:
    endpoint = broker.endpoint(listener)
    return {"id": str(broker.id), "address": "" if endpoint is None else f"{endpoint.host}:{endpoint.port}"}


def _add_partition(value: Callable[[PartitionImage], int], family: Metric, row: _PartitionRow) -> None:
    family.add_sample(family.name, {"topic": row.topic, "partition": row.number}, value(row.image))


def session_metrics(broker: Broker) -> Iterator[Metric]:
    """Yield the session with ZooKeeper; nothing on a broker with the embedded store."""
    if broker.config.is_embedded:
        return
    health, state = broker.session_health, broker.session_health.state
    states = GaugeMetricFamily(
        f"{_SESSION}_sessionstate",
        "1 for the current state of the ZooKeeper session: CONNECTED, DISCONNECTED (no response) or EXPIRED.",
        labels=("state",),
    )
    for known in SessionState:
        states.add_metric((known.name,), int(known is state))
    yield states
    yield CounterMetricFamily(
        f"{_SESSION}_zookeeperexpires", "ZooKeeper sessions that expired.", value=health.expirations
    )
    yield CounterMetricFamily(
        f"{_SESSION}_zookeeperdisconnects", "Lost connections to ZooKeeper.", value=health.disconnections
    )
    yield GaugeMetricFamily(
        "oncelog_zookeeper_last_contact_seconds",
        "Seconds since the last request to which ZooKeeper responded; some seconds are normal.",
        value=health.seconds_since_contact,
    )


def feature_metrics(broker: Broker) -> Iterator[Metric]:
    family = GaugeMetricFamily("oncelog_feature_level", "Finalised level of a feature.", labels=("feature",))
    for name in broker.features.supported:
        family.add_metric((name,), broker.features.levels.get(name, 0))
    yield family
