"""``/metrics`` and ``/ready`` of a broker process, read as Prometheus reads them."""

import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from tests.processes import LIMIT_SECONDS, REPOSITORY, OncelogProcess, free_port

SECONDS = LIMIT_SECONDS


class Watched(OncelogProcess):
    """A broker with its pages."""

    def __init__(self, directory: Path) -> None:
        self.http_port = free_port()
        settings = [
            f"oncelog.http.listener=127.0.0.1:{self.http_port}",
            "transaction.abort.timed.out.transaction.cleanup.interval.ms=100",
        ]
        super().__init__(directory, settings)

    def page(self, path: str) -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.http_port}{path}", timeout=SECONDS) as response:
            body: bytes = response.read()
            return body.decode()

    def scrape(self) -> "Scrape":
        return Scrape(self.page("/metrics"))


class Scrape:
    """The samples of one visit."""

    def __init__(self, text: str) -> None:
        self.families: dict[str, Metric] = {}
        self._samples: dict[tuple[str, frozenset[tuple[str, str]]], float] = {}
        for family in text_string_to_metric_families(text):
            assert family.name not in self.families, f"{family.name} twice"
            self.families[family.name] = family
            for sample in family.samples:
                key = sample.name, frozenset(sample.labels.items())
                assert key not in self._samples, f"{key} twice"
                self._samples[key] = sample.value

    def value(self, name: str, **labels: str) -> float:
        return self._samples[name, frozenset(labels.items())]

    def get(self, name: str, **labels: str) -> float:
        """0 for what has not happened yet."""
        return self._samples.get((name, frozenset(labels.items())), 0)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    with Watched(tmp_path_factory.mktemp("broker")) as process:
        yield process


def create(broker: Watched, topic: str, partitions: int = 1) -> None:
    admin = AdminClient({"bootstrap.servers": broker.address})
    (created,) = admin.create_topics([NewTopic(topic, partitions, 1)]).values()
    try:
        created.result(SECONDS)
    finally:  # A future that failed and this frame refer to each other, which would keep the client connected.
        del created, admin


def transactional(broker: Watched, transactional_id: str, **settings: object) -> Producer:
    config = {"bootstrap.servers": broker.address, "transactional.id": transactional_id, **settings}
    producer = Producer(config)
    producer.init_transactions(SECONDS)
    return producer


def test_broker_that_serves_is_ready(broker: Watched) -> None:
    assert broker.page("/ready") == "ready\n"
    with socket.create_connection(("127.0.0.1", broker.http_port), timeout=SECONDS) as client:
        client.sendall(b"HEAD /ready HTTP/1.1\r\nHost: x\r\n\r\n")
        response = client.makefile("rb").read()
    assert response.startswith(b"HTTP/1.1 200 OK\r\n")
    assert response.endswith(b"\r\n\r\n")


@pytest.mark.parametrize(("path", "status"), [("/", 404), ("/metrics/x", 404)])
def test_other_paths_are_not_found(broker: Watched, path: str, status: int) -> None:
    with pytest.raises(urllib.error.HTTPError) as refused:
        broker.page(path)
    assert refused.value.code == status
    assert "/metrics, /ready" in refused.value.read().decode()


def test_metrics_are_all_on_the_page_of_the_documentation(broker: Watched) -> None:
    page = (REPOSITORY / "docs" / "reference" / "metrics.md").read_text()
    usual = ("process_", "python_gc_")
    names = [name for name in broker.scrape().families if not name.startswith(usual)]
    assert [name for name in names if f"`{name}" not in page] == []


def test_produced_and_fetched_records_are_counted(broker: Watched) -> None:
    create(broker, "counted", partitions=3)
    before = broker.scrape()
    producer = Producer({"bootstrap.servers": broker.address, "linger.ms": 0})
    for _ in range(100):
        producer.produce("counted", b"x" * 1000, partition=0)
    assert producer.flush(SECONDS) == 0
    consumer = Consumer({"bootstrap.servers": broker.address, "group.id": "counting", "enable.auto.commit": False})
    consumer.assign([TopicPartition("counted", 0, 0)])
    assert len(consumer.consume(100, SECONDS)) == 100
    after = broker.scrape()
    consumer.close()

    def grown(name: str, **labels: str) -> float:
        return after.value(name, **labels) - before.get(name, **labels)

    topic = "kafka_server_brokertopicmetrics_"
    assert grown(topic + "messagesin_total", topic="counted") == 100
    assert 100_000 <= grown(topic + "bytesin_total", topic="counted") <= 120_000
    assert grown(topic + "bytesout_total", topic="counted") >= 100_000
    assert grown(topic + "totalproducerequests_total") >= 1
    assert grown(topic + "totalfetchrequests_total") >= 1
    sockets = "kafka_server_socket_server_metrics_"
    assert grown(sockets + "incoming_byte_total", listener="PLAINTEXT") >= 100_000
    assert grown(sockets + "outgoing_byte_total", listener="PLAINTEXT") >= 100_000
    assert after.value(sockets + "connection_count", listener="PLAINTEXT") >= 2
    assert after.value("kafka_log_log_logendoffset", topic="counted", partition="0") == 100
    assert after.value("kafka_log_log_logendoffset", topic="counted", partition="1") == 0
    (uncleanable,) = after.families["kafka_log_logcleanermanager_uncleanable_partitions_count"].samples
    assert uncleanable.value == 0
    replicas = "kafka_server_replicamanager_"
    assert after.value(replicas + "leadercount") == after.value(replicas + "partitioncount") >= 3
    assert after.value(replicas + "underreplicatedpartitions") == 0
    assert after.value("kafka_controller_kafkacontroller_activecontrollercount") == 1
    assert after.value("kafka_controller_kafkacontroller_offlinepartitionscount") == 0
    assert after.value("oncelog_feature_level", feature="transaction.version") == 2
    assert after.value("process_open_fds") > 0
    assert after.value("oncelog_event_loop_lag_seconds_bucket", le="+Inf") == after.value(
        "oncelog_event_loop_lag_seconds_count"
    )


def test_requests_are_counted_by_api_and_version_and_their_errors_by_name(broker: Watched) -> None:
    name, api = (
        "kafka_network_requestmetrics_errors_total",
        {"request": "CreateTopics", "error": "TOPIC_ALREADY_EXISTS"},
    )
    create(broker, "existing")
    before = broker.scrape()
    with pytest.raises(KafkaException):
        create(broker, "existing")
    after = broker.scrape()
    assert after.value(name, **api) - before.get(name, **api) == 1
    counted = [
        (sample.labels["version"], sample.value)
        for sample in after.families["kafka_network_requestmetrics_requests"].samples
        if sample.labels["request"] == "CreateTopics"
    ]
    assert len(counted) == 1
    assert counted[0][1] >= 2


def test_open_transactions_verifications_and_zombies_are_counted(broker: Watched) -> None:
    create(broker, "transactional")
    manager = "kafka_server_addpartitionstotxnmanager_"
    before = broker.scrape()
    zombie = transactional(broker, "twice")
    zombie.begin_transaction()
    zombie.produce("transactional", b"x")
    assert zombie.flush(SECONDS) == 0
    during = broker.scrape()
    assert during.value("oncelog_transactions_open") == before.value("oncelog_transactions_open") + 1
    assert 0 < during.value("oncelog_transactions_oldest_open_seconds") < 60
    assert during.value("kafka_cluster_partition_laststableoffsetlag", topic="transactional", partition="0") == 1
    verifications = manager + "verificationtimems_count"
    assert during.value(verifications) == before.value(verifications) + 1
    assert during.value(manager + "verificationtimems_sum") >= 0
    assert during.value(manager + "verificationtimems_max") >= 0
    assert during.value(manager + "verificationfailure_total") == before.value(manager + "verificationfailure_total")

    transactional(broker, "twice")
    with pytest.raises(KafkaException):
        zombie.commit_transaction(SECONDS)
    after = broker.scrape()
    assert after.value("oncelog_zombie_fences_total") > during.value("oncelog_zombie_fences_total")
    assert after.value("oncelog_transactions_open") == before.value("oncelog_transactions_open")
    assert after.value("kafka_cluster_partition_laststableoffsetlag", topic="transactional", partition="0") == 0


def test_transactions_that_time_out_are_counted(broker: Watched) -> None:
    create(broker, "slow")
    before = broker.scrape().value("oncelog_transactions_timed_out_total")
    producer = transactional(broker, "slow", **{"transaction.timeout.ms": 1000})
    producer.begin_transaction()
    producer.produce("slow", b"x")
    assert producer.flush(SECONDS) == 0
    # The abort shows itself to a reader who waits for the marker: what comes after it becomes visible.
    consumer = Consumer({"bootstrap.servers": broker.address, "group.id": "slow", "isolation.level": "read_committed"})
    plain = Producer({"bootstrap.servers": broker.address})
    plain.produce("slow", b"y")
    assert plain.flush(SECONDS) == 0
    consumer.assign([TopicPartition("slow", 0, 0)])
    (message,) = consumer.consume(1, SECONDS)
    consumer.close()
    assert message.value() == b"y"
    assert broker.scrape().value("oncelog_transactions_timed_out_total") == before + 1


def test_metrics_library_is_not_imported_without_an_http_listener() -> None:
    """The library would cost every broker a part of its start and of its memory."""
    code = (
        "import sys, oncelog.broker.__main__, oncelog.broker.serve; "
        "sys.exit([name for name in sys.modules if "
        "'prometheus' in name or name.startswith('oncelog.broker.metrics.')] != [])"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("address", ["9404", "localhost:99999", "http://localhost:1"])
def test_malformed_http_listener_is_refused(tmp_path: Path, address: str) -> None:
    assert "oncelog.http.listener" in refusal(tmp_path, address)


def test_http_listener_on_a_taken_port_is_refused(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        assert f"oncelog.http.listener={address} cannot be opened" in refusal(tmp_path, address)


def refusal(directory: Path, address: str) -> str:
    command = [sys.executable, "-m", "oncelog", "serve", "--port", "0", "--data-dir", str(directory / "data")]
    done = subprocess.run(
        [*command, "--set", f"oncelog.http.listener={address}"],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    return done.stderr
