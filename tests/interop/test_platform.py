"""Apache Kafka's Connect, MirrorMaker 2 and Streams, unmodified, with nothing set for our sake."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from oncelog.protocol.records.record_batch import iter_batches
from tests.interop.broker_under_test import REPLICATION_FACTOR, broker_process
from tests.interop.drivers.confluent import ConfluentKafka
from tests.interop.drivers.deadline import Deadline
from tests.interop.drivers.platform import ConnectWorker, MirrorMaker, StreamsApplication
from tests.processes import LIMIT_SECONDS, BrokerProcess, OncelogProcess

Name = Callable[[str], str]
RECORDS = 300
KEYS = 3
READY_SECONDS = LIMIT_SECONDS


@pytest.fixture(scope="module")
def eager_cleaner(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """The broker under test with a log cleaner that looks several times a second."""
    settings = ["log.cleaner.backoff.ms=200", "log.retention.check.interval.ms=500"]
    with broker_process(tmp_path_factory.mktemp("broker"), settings) as process:
        yield process


def test_connect_worker_writes_a_file_exactly_once_over_a_restart(
    eager_cleaner: BrokerProcess, name: Name, tmp_path: Path
) -> None:
    topic, source, client = name("topic"), tmp_path / "lines.txt", ConfluentKafka()
    lines = [f"line {number}" for number in range(200)]
    source.write_text("".join(f"{line}\n" for line in lines[:100]))
    client.create_topic(eager_cleaner.address, topic, 1)
    worker = ConnectWorker(tmp_path / "worker", eager_cleaner.address, name("workers"))
    config = {
        "connector.class": "org.apache.kafka.connect.file.FileStreamSourceConnector",
        "tasks.max": "1",
        "file": str(source),
        "topic": topic,
    }
    worker.start(seconds=READY_SECONDS)
    try:
        worker.put("lines", config)
        first = client.consume(eager_cleaner.address, topic, 100, read_committed=True)
        worker.kill()
        with source.open("a") as file:
            file.writelines(f"{line}\n" for line in lines[100:])
        worker.start(seconds=READY_SECONDS)
        both = client.consume(eager_cleaner.address, topic, 200, read_committed=True)
    finally:
        worker.stop()
    assert [record.value for record in first] == lines[:100]
    assert [record.value for record in both] == lines


def test_mirror_maker_copies_a_topic(eager_cleaner: BrokerProcess, name: Name, tmp_path: Path) -> None:
    topic, client = name("topic"), ConfluentKafka()
    values = [f"value {number}" for number in range(100)]
    with OncelogProcess(tmp_path / "left") as left:
        client.produce(left.address, topic, values)  # Which creates it: this broker is alone.
        mirror = MirrorMaker(tmp_path / "mirror", left.address, eager_cleaner.address, topic)
        mirror.start(seconds=READY_SECONDS)
        try:
            deadline = Deadline(READY_SECONDS)
            while not _exists(eager_cleaner, f"left.{topic}"):
                deadline.check("the remote topic exists")
            copied = client.consume(eager_cleaner.address, f"left.{topic}", len(values))
        finally:
            mirror.stop()
    assert [record.value for record in copied] == values


def test_streams_counts_exactly_once_and_its_changelog_is_compacted_on_every_broker(
    eager_cleaner: BrokerProcess, name: Name, tmp_path: Path
) -> None:
    address, client = eager_cleaner.address, ConfluentKafka()
    source, target, application = name("source"), name("target"), name("application")
    client.create_topic(address, source, 1)
    client.create_topic(address, target, 1)
    streams = StreamsApplication(tmp_path / "streams", address, (source, target), application)
    keys = [f"key {number % KEYS}" for number in range(RECORDS)]
    client.produce(address, source, keys)
    streams.start(seconds=READY_SECONDS)
    try:
        counts = client.consume(address, target, RECORDS, read_committed=True)
        changelog = f"{application}-counts-changelog-0"
        deadline, more = Deadline(READY_SECONDS), 0
        while not all(count < RECORDS for count in _closed_records(eager_cleaner, changelog)):
            deadline.check(f"records of {changelog} on each broker: {_closed_records(eager_cleaner, changelog)}")
            client.produce(address, source, keys[:KEYS])  # A segment is rolled by the append after its time.
            more += KEYS
        expected = RECORDS + more
        everything = client.consume(address, target, expected, read_committed=True)
    finally:
        streams.stop()
    assert [record.value for record in counts] == [str(1 + number // KEYS) for number in range(RECORDS)]
    last = {record.key: int(record.value) for record in everything}
    assert last == {f"key {number}": expected // KEYS for number in range(KEYS)}


def _exists(broker: BrokerProcess, topic: str) -> bool:
    return topic in AdminClient({"bootstrap.servers": broker.address}).list_topics(timeout=LIMIT_SECONDS).topics


def _closed_records(broker: BrokerProcess, partition: str) -> list[int]:
    """The records in all but the active segment of a partition, on each broker; RECORDS where there is no such yet."""
    found = sorted(broker.directory.rglob(partition))
    assert len(found) == REPLICATION_FACTOR, found
    return [_records(sorted(directory.glob("*.log"))[:-1]) for directory in found]


def _records(segments: list[Path]) -> int:
    if not segments:
        return RECORDS
    batches = (header for segment in segments for _, header in iter_batches(segment.read_bytes()))
    return sum(header.records_count for header in batches)
