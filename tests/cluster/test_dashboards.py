"""What the usual dashboards query, read from a live cluster: Strimzi's boards in both of its naming schemes, and 7589.

Each row of the tables is one query: the metric, the labels by which a panel selects or groups, and what its values must
be after the load of ``dashboard_cluster``. Panels of the JVM and of Kubernetes are not the broker's to fill.
"""

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

import pytest

from tests.cluster.dashboard_cluster import (
    BROKERS,
    GROUP,
    PARTITIONS,
    RECORDS,
    TOPICS,
    Row,
    WatchedCluster,
    load,
    rows_of,
    scrape_when_cleaned,
)
from tests.cluster.deployed import queried_metrics

Values = list[float]
WRITTEN: Final = 3 * RECORDS
"""Records of each topic: of acks=all, of acks=0, and of a transaction."""
MARKERS: Final = PARTITIONS
END: Final = WRITTEN // PARTITIONS + 1
"""Of each partition, its marker included."""
ALL: Final = PARTITIONS * len(TOPICS)


class Query(NamedTuple):
    """One query of a panel."""

    name: str
    labels: dict[str, str]
    is_plausible: Callable[[Values], bool]


def per_broker(check: Callable[[float], bool]) -> Callable[[Values], bool]:
    return lambda values: len(values) == BROKERS and all(map(check, values))


def total(expected: float) -> Callable[[Values], bool]:
    return lambda values: sum(values) == expected


def some(values: Values) -> bool:
    return sum(values) > 0


def each(expected: float, rows: int = PARTITIONS) -> Callable[[Values], bool]:
    return lambda values: values == [expected] * rows


def is_share(value: float) -> bool:
    return 0 < value < 1


TOPIC: Final = {"topic": "replicated"}
OF_GROUP: Final = {"consumergroup": GROUP, "topic": "single"}
REPLICAS: Final = "kafka_server_replicamanager_"
TRAFFIC: Final = "kafka_server_brokertopicmetrics_"
CONTROLLER: Final = "kafka_controller_"
HANDLERS: Final = "kafka_server_kafkarequesthandlerpool"

BOTH_SCHEMES: Final = (
    Query(f"{REPLICAS}leadercount", {}, per_broker(lambda count: count > 0)),
    Query(f"{REPLICAS}partitioncount", {}, per_broker(lambda count: count > PARTITIONS)),
    Query(f"{REPLICAS}underreplicatedpartitions", {}, total(0)),
    Query(f"{REPLICAS}underminisrpartitioncount", {}, total(0)),
    Query(f"{CONTROLLER}kafkacontroller_activecontrollercount", {}, total(1)),
    Query(f"{CONTROLLER}kafkacontroller_offlinepartitionscount", {}, total(0)),
    Query("kafka_cluster_partition_atminisr", {"topic": "single"}, each(1)),
    Query("kafka_cluster_partition_underminisr", TOPIC, each(0)),
    Query("kafka_cluster_partition_replicascount", TOPIC, each(BROKERS)),
    Query("kafka_server_kafkaserver_linux_disk_write_bytes", {}, some),
    Query("kafka_server_kafkaserver_linux_disk_read_bytes", {}, per_broker(lambda count: count >= 0)),
    Query("kafka_server_socket_server_metrics_connection_count", {"listener": "PLAINTEXT"}, some),
    Query("kafka_log_log_size", TOPIC, lambda sizes: len(sizes) == BROKERS * PARTITIONS and min(sizes) > RECORDS * 100),
    Query("kafka_log_logmanager_offlinelogdirectorycount", {}, per_broker(lambda count: count == 0)),
    Query("process_open_fds", {}, per_broker(lambda count: count > 10)),
)


def traffic(spelling: str) -> Iterator[Query]:
    for name, check in (
        ("messagesin", total(WRITTEN + MARKERS)),
        ("bytesin", lambda values: sum(values) > WRITTEN * 100),
        ("bytesout", some),
        ("totalproducerequests", some),
        ("totalfetchrequests", some),
        ("failedproducerequests", total(1)),
        ("failedfetchrequests", some),
    ):
        yield Query(f"{TRAFFIC}{name}{spelling}_total", TOPIC, check)
    yield Query(f"{CONTROLLER}controllerstats_uncleanleaderelections{spelling}_total", {}, total(0))


JMX_EXPORTER: Final = (
    *traffic(""),
    Query("kafka_network_socketserver_networkprocessoravgidle_percent", {}, per_broker(is_share)),
    Query(f"{HANDLERS}_requesthandleravgidle_percent", {}, per_broker(is_share)),
)
METRICS_REPORTER: Final = (
    *traffic("persec"),
    Query("kafka_network_socketserver_networkprocessoravgidlepercent", {}, per_broker(is_share)),
    Query(f"{HANDLERS}_requesthandleravgidlepercent_total", {}, per_broker(lambda nanoseconds: nanoseconds > 1e6)),
)
KAFKA_EXPORTER: Final = (
    Query("kafka_brokers", {}, total(BROKERS)),
    Query("kafka_broker_info", {}, total(BROKERS)),
    Query("kafka_topic_partitions", TOPIC, each(PARTITIONS, rows=1)),
    Query("kafka_topic_partition_replicas", TOPIC, each(BROKERS)),
    Query("kafka_topic_partition_in_sync_replica", TOPIC, each(BROKERS)),
    Query("kafka_topic_partition_under_replicated_partition", TOPIC, each(0)),
    Query("kafka_topic_partition_leader_is_preferred", TOPIC, each(1)),
    Query("kafka_topic_partition_current_offset", TOPIC, each(END)),
    Query("kafka_topic_partition_oldest_offset", TOPIC, each(0)),
    Query("kafka_consumergroup_current_offset", OF_GROUP, each(RECORDS // 4)),
    Query("kafka_consumergroup_lag", OF_GROUP, each(END - RECORDS // 4)),
    Query("kafka_consumergroup_members", {"consumergroup": GROUP}, each(0, rows=1)),
)
BEYOND_THE_BOARDS: Final = (
    Query(f"{REPLICAS}produceridcount", {}, some),
    Query(f"{REPLICAS}partitionswithlatetransactionscount", {}, total(0)),
    Query("kafka_cluster_partition_laststableoffsetlag", TOPIC, each(0)),
    Query("kafka_log_log_logendoffset", TOPIC, each(END, rows=BROKERS * PARTITIONS)),
    Query("kafka_log_log_numlogsegments", TOPIC, each(1, rows=BROKERS * PARTITIONS)),
    Query("kafka_coordinator_group_groupmetadatamanager_numoffsets", {}, total(ALL)),
    Query("kafka_server_group_coordinator_metrics_offset_commit_count", {}, total(ALL)),
    Query("kafka_server_group_coordinator_metrics_partition_load_time_max", {}, lambda values: min(values) >= 0),
    Query("kafka_server_transaction_coordinator_metrics_partition_load_time_avg", {}, lambda values: min(values) >= 0),
    Query("oncelog_transactional_ids", {}, total(1)),
    Query("kafka_log_logcleanermanager_uncleanable_bytes", {}, total(0)),
)
TABLE: Final = {
    "strimzi": BOTH_SCHEMES,
    "jmx_exporter": JMX_EXPORTER,
    "metrics_reporter": METRICS_REPORTER,
    "kafka_exporter": KAFKA_EXPORTER,
    "beyond": BEYOND_THE_BOARDS,
}
QUERIES: Final = [pytest.param(query, id=f"{board}-{query.name}") for board, rows in TABLE.items() for query in rows]


@pytest.fixture(scope="module")
def scraped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, list[Row]]]:
    with WatchedCluster(tmp_path_factory.mktemp("cluster")) as cluster:
        load(cluster)
        yield scrape_when_cleaned(cluster)


@pytest.mark.parametrize("query", QUERIES)
def test_query_of_a_board_has_plausible_values(scraped: dict[str, list[Row]], query: Query) -> None:
    values = list(rows_of(scraped, query.name, query.labels))
    assert values, "the panel is empty"
    assert query.is_plausible(values), values


@pytest.mark.parametrize("name", sorted(queried_metrics()))
def test_metric_of_our_own_board_and_rules_is_served(scraped: dict[str, list[Row]], name: str) -> None:
    assert scraped.get(name)
