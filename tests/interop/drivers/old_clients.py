"""Clients from before Kafka 0.11, or newer ones that take the broker for one of that time."""

from collections.abc import Sequence
from typing import Any, Protocol

from confluent_kafka import Consumer, Producer
from kafka import KafkaConsumer, KafkaProducer

from tests.interop.drivers.deadline import Deadline
from tests.interop.drivers.driver import TIMEOUT_SECONDS, Consumed
from tests.interop.drivers.program import JavaClient, parse, run


class OldClient(Protocol):
    """Its records have their value as their key."""

    @property
    def name(self) -> str: ...
    @property
    def compressions(self) -> Sequence[str]: ...

    def produce(self, address: str, topic: str, values: Sequence[str], *, compression: str = "none") -> None: ...

    def consume(self, address: str, topic: str, group: str, count: int) -> list[Consumed]:
        """Read at least ``count`` records behind what the group has committed, and commit."""
        ...


class OldKafkaPython:
    """kafka-python, which speaks as to the version of Kafka that it is given."""

    compressions = ("none", "gzip", "snappy", "lz4")

    def __init__(self, *version: int) -> None:
        self.name = f"kafka-python-{'.'.join(map(str, version))}"
        self._version = version

    def produce(self, address: str, topic: str, values: Sequence[str], *, compression: str = "none") -> None:
        producer = KafkaProducer(
            bootstrap_servers=address,
            api_version=self._version,
            acks="all",
            linger_ms=50,
            compression_type=None if compression == "none" else compression,
            enable_idempotence=False,
        )
        try:
            sent = [producer.send(topic, key=value.encode(), value=value.encode()) for value in values]
            for future in sent:
                future.get(TIMEOUT_SECONDS)
        finally:
            producer.close(TIMEOUT_SECONDS)

    def consume(self, address: str, topic: str, group: str, count: int) -> list[Consumed]:
        consumer: Any = KafkaConsumer(
            topic,
            bootstrap_servers=address,
            api_version=self._version,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        )
        try:
            deadline, records = Deadline(), list[Consumed]()
            while len(records) < count:
                deadline.check(f"{len(records)} of {count} records")
                for batch in consumer.poll(timeout_ms=200).values():
                    records += [Consumed(r.partition, r.offset, r.key.decode(), r.value.decode()) for r in batch]
            consumer.commit()
            return records
        finally:
            consumer.close()


class OldLibrdkafka:
    """librdkafka, set to take the broker for one of Kafka 0.9."""

    name = "librdkafka-0.9"
    compressions = ("none", "gzip", "snappy", "lz4")
    _settings = {"broker.version.fallback": "0.9.0.1", "api.version.request": False, "log_level": 2}  # noqa: RUF012

    def produce(self, address: str, topic: str, values: Sequence[str], *, compression: str = "none") -> None:
        settings = {"bootstrap.servers": address, "linger.ms": 50, "compression.type": compression, "acks": "all"}
        producer = Producer(settings | self._settings)
        for value in values:
            producer.produce(topic, key=value, value=value)
        assert producer.flush(TIMEOUT_SECONDS) == 0

    def consume(self, address: str, topic: str, group: str, count: int) -> list[Consumed]:
        settings = {
            "bootstrap.servers": address,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
        consumer = Consumer(settings | self._settings)
        try:
            consumer.subscribe([topic])
            deadline, records = Deadline(), list[Consumed]()
            while len(records) < count:
                deadline.check(f"{len(records)} of {count} records")
                message = consumer.poll(0.2)
                if message is None:
                    continue
                assert message.error() is None, message.error()
                key, value = message.key(), message.value()
                partition, offset = message.partition(), message.offset()
                assert key is not None
                assert value is not None
                assert partition is not None
                assert offset is not None
                records.append(Consumed(partition, offset, key.decode(), value.decode()))
            consumer.commit(asynchronous=False)
            return records
        finally:
            consumer.close()


class OldJavaClient(JavaClient):
    """The Java client of Kafka 0.10.2."""

    compressions = ("none", "gzip", "snappy", "lz4")

    def __init__(self) -> None:
        super().__init__("java-client-0.10")

    def produce(self, address: str, topic: str, values: Sequence[str], *, compression: str = "none") -> None:
        run(self.command("OldClient", "produce", address, topic, compression), values)

    def consume(self, address: str, topic: str, group: str, count: int) -> list[Consumed]:  # type: ignore[override]
        lines = run(self.command("OldClient", "consume", address, topic, group, count)).splitlines()
        return [parse(line) for line in lines]
