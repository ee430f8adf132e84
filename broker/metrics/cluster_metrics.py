"""What a broker knows of its cluster and its groups (Kafka: KafkaController, GroupMetadataManager), and of features."""

from collections import Counter
from collections.abc import Iterator
from typing import Final

from prometheus_client import Metric
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily

from oncelog.broker.parts import Broker
from oncelog.coordinator.controller.cluster_image import ClusterImage
from oncelog.coordinator.group.state import GroupState
from oncelog.coordinator.metadata_store.session_health import SessionState

_CONTROLLER: Final = "kafka_controller_kafkacontroller"
_SESSION: Final = "kafka_server_sessionexpirelistener"
_GROUPS: Final = "kafka_coordinator_group_groupmetadatamanager_numgroups"


def controller_metrics(broker: Broker) -> Iterator[Metric]:
    """Yield counts of the whole cluster; 0 on a broker that is not the controller, so that they can be added up."""
    active = broker.controller.is_active
    image = broker.metadata.image if active else ClusterImage()
    partitions = [partition for topic in image.topics.values() for partition in topic.partitions.values()]
    offline = sum(partition.leader not in image.brokers for partition in partitions)
    for name, doc, value in (
        ("activecontrollercount", "1 on the controller, 0 on other brokers.", int(active)),
        (
            "activebrokercount",
            "Live brokers; 0 on brokers that are not the controller, as the next three.",
            len(image.brokers),
        ),
        ("globaltopiccount", "Topics of the cluster.", len(image.topics)),
        ("globalpartitioncount", "Partitions of the cluster.", len(partitions)),
        ("offlinepartitionscount", "Partitions of the cluster without a live leader.", offline),
    ):
        yield GaugeMetricFamily(f"{_CONTROLLER}_{name}", doc, value=value)
    yield CounterMetricFamily(
        "kafka_controller_controllerstats_uncleanleaderelections",
        "Leaders that this broker, as the controller, elected although they may lack acknowledged records.",
        value=broker.controller.unclean_elections.count,
    )
    malformed = len(broker.controller.malformed_znodes)
    yield GaugeMetricFamily(
        "oncelog_malformed_znodes",
        "Znodes that this broker cannot decode; what they describe is not controlled until they are repaired.",
        value=malformed,
    )


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


def group_metrics(broker: Broker) -> Iterator[Metric]:
    _, groups = broker.group_coordinator.list_groups()
    states = Counter(group.state for group in groups)
    yield GaugeMetricFamily(_GROUPS, "Groups that this broker coordinates.", value=len(groups))
    for state in GroupState:
        name = f"{_GROUPS}{state.value.lower()}"
        yield GaugeMetricFamily(name, f"Groups in state {state.value}.", value=states[state])
