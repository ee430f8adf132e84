"""A compacted topic of a real broker: it becomes small, and a kill -9 right after a cleaning loses nothing of it."""

from pathlib import Path

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.interop.drivers.deadline import Deadline
from tests.processes import LIMIT_SECONDS, OncelogProcess

MEBIBYTE = 1 << 20
RECORDS = 60_000
SETTINGS = ["log.cleaner.backoff.ms=100", "log.cleaner.min.cleanable.ratio=0.01"]
COMPACTED = {"cleanup.policy": "compact", "segment.bytes": str(MEBIBYTE)}


def write(address: str) -> dict[bytes, bytes | None]:
    """Many values of few keys, with tombstones between; returns the last value of each key."""
    producer = Producer({"bootstrap.servers": address, "linger.ms": 5, "queue.buffering.max.messages": 2 * RECORDS})
    last: dict[bytes, bytes | None] = {}
    for number in range(RECORDS):
        key = b"key%d" % (number % 300 if number < RECORDS // 2 else 300 + number % 50)
        value = None if number % 7 == 3 else b"%d" % number + b"x" * 100
        producer.produce("balances", value, key=key)
        last[key] = value
    assert producer.flush(LIMIT_SECONDS) == 0
    return last


def read(address: str) -> tuple[int, dict[bytes, bytes | None]]:
    """How many records there are, and the last value of each key."""
    consumer = Consumer({"bootstrap.servers": address, "group.id": "unused", "enable.partition.eof": True})
    consumer.assign([TopicPartition("balances", 0, 0)])
    last: dict[bytes, bytes | None] = {}
    count, deadline = 0, Deadline()
    while True:
        deadline.check(f"{count} records so far")
        message = consumer.poll(1.0)
        error = None if message is None else message.error()
        if error is not None and error.code() == KafkaError._PARTITION_EOF:
            break
        if message is not None and error is None:
            key = message.key()
            assert key is not None
            last[key] = message.value()
            count += 1
    consumer.close()
    return count, last


def live(values: dict[bytes, bytes | None]) -> dict[bytes, bytes]:
    return {key: value for key, value in values.items() if value is not None}


def is_cleaned(data: Path) -> bool:
    """Whether all segments but the newest have been cleaned: the first cleanings may run while records are written."""
    checkpoint = data / "cleaner-offset-checkpoint"
    newest = max(int(segment.stem) for segment in (data / "balances-0").glob("*.log"))
    return checkpoint.exists() and f"balances 0 {newest}" in checkpoint.read_text().splitlines()


def test_compacted_topic_survives_a_kill_after_its_cleaning(tmp_path: Path) -> None:
    with OncelogProcess(tmp_path, SETTINGS) as broker:
        admin = AdminClient({"bootstrap.servers": broker.address})
        admin.create_topics([NewTopic("balances", 1, 1, config=COMPACTED)])["balances"].result(LIMIT_SECONDS)
        written = write(broker.address)
        deadline = Deadline()
        while not is_cleaned(broker.data_directory):
            deadline.check("the cleaning")
            admin.list_topics("balances", LIMIT_SECONDS)
        broker.kill()
        broker.start()
        count, found = read(broker.address)
    assert live(found) == live(written)
    assert count < RECORDS // 2
