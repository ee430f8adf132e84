"""A cluster under a little of every kind of load, and what Prometheus reads of it."""

import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from tests.processes import LIMIT_SECONDS, ClusterProcess, free_port

SECONDS: Final = LIMIT_SECONDS
BROKERS: Final = 3
RECORDS: Final = 60
GROUP: Final = "readers"
TOPICS: Final = {"replicated": BROKERS, "single": 1}
"""Topics of three partitions, and the replicas of each."""
PARTITIONS: Final = 3
LAST_ROUND: Final = "kafka_log_logcleanermanager_time_since_last_run_ms"
SCRAPES: Final = 10_000


class Row(NamedTuple):
    """A sample of one broker's page."""

    broker: int
    sample: Sample

    def has(self, labels: dict[str, str]) -> bool:
        return labels.items() <= self.sample.labels.items()


class WatchedCluster(ClusterProcess):
    """Three brokers with their pages."""

    def __init__(self, directory: Path) -> None:
        self.http_ports = {broker: free_port() for broker in range(1, BROKERS + 1)}
        pages = [f"{broker}:oncelog.http.listener=127.0.0.1:{port}" for broker, port in self.http_ports.items()]
        super().__init__(
            directory, BROKERS, [*pages, "group.initial.rebalance.delay.ms=0", "log.cleaner.backoff.ms=100"]
        )

    def scrape(self) -> dict[str, list[Row]]:
        """Return the rows of all brokers by name."""
        found: dict[str, list[Row]] = {}
        for broker, port in self.http_ports.items():
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=SECONDS) as response:
                text: str = response.read().decode()
            for family in text_string_to_metric_families(text):
                for sample in family.samples:
                    found.setdefault(sample.name, []).append(Row(broker, sample))
        return found


def scrape_when_cleaned(cluster: WatchedCluster) -> dict[str, list[Row]]:
    """Scrape until every broker's cleaner has had a round."""
    for _ in range(SCRAPES):
        scraped = cluster.scrape()
        if len(scraped.get(LAST_ROUND, ())) == BROKERS:
            return scraped
    raise AssertionError(f"no {LAST_ROUND} after {SCRAPES} scrapes")


def load(cluster: WatchedCluster) -> None:
    """Produce and consume, inside of a transaction too, and have a request of each kind refused."""
    admin = AdminClient({"bootstrap.servers": cluster.address})
    topics = [NewTopic(name, PARTITIONS, replicas) for name, replicas in TOPICS.items()]
    for created in admin.create_topics(topics).values():
        created.result(SECONDS)
    for acks in ("all", "0"):
        _produce(Producer({"bootstrap.servers": cluster.address, "linger.ms": 0, "acks": acks}))
    transactional = Producer({"bootstrap.servers": cluster.address, "transactional.id": "writer"})
    transactional.init_transactions(SECONDS)
    transactional.begin_transaction()
    _produce(transactional)
    transactional.commit_transaction(SECONDS)
    _refuse_produce(cluster)
    _consume(cluster)
    _refuse_fetch(cluster)


def _produce(producer: Producer) -> None:
    for number in range(RECORDS):
        for topic in TOPICS:
            producer.produce(topic, b"x" * 100, partition=number % PARTITIONS)
    assert producer.flush(SECONDS) == 0


def _refuse_produce(cluster: WatchedCluster) -> None:
    """Send a batch that is larger than the broker's limit."""
    producer = Producer({"bootstrap.servers": cluster.address, "message.max.bytes": 4_000_000})
    errors = []
    producer.produce("replicated", b"x" * 2_000_000, partition=0, on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(SECONDS) == 0
    assert errors[0] is not None


def _consume(cluster: WatchedCluster) -> None:
    """Read half of everything as a group, commit that, and stay in the group."""
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.address,
            "group.id": GROUP,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe(list(TOPICS))
    assert consumer.poll(SECONDS) is not None
    half = [TopicPartition(topic, index, RECORDS // 4) for topic in TOPICS for index in range(PARTITIONS)]
    consumer.commit(offsets=half, asynchronous=False)
    consumer.close()


def _refuse_fetch(cluster: WatchedCluster) -> None:
    """Fetch from beyond the end of a partition."""
    config = {"bootstrap.servers": cluster.address, "group.id": "lost", "auto.offset.reset": "error"}
    consumer = Consumer(config)
    consumer.assign([TopicPartition("replicated", 0, 1_000_000)])
    try:
        message = consumer.poll(SECONDS)
        assert message is not None
        assert message.error() is not None
    except KafkaException:  # Also a way to say so.
        pass
    consumer.close()


def rows_of(scraped: dict[str, list[Row]], name: str, labels: dict[str, str]) -> Iterator[float]:
    for row in scraped.get(name, ()):
        if row.has(labels):
            yield row.sample.value
