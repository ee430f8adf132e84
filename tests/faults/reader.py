"""Read everything that readers of committed records see. With librdkafka, whatever clients made the load."""

from confluent_kafka import Consumer, KafkaError, TopicPartition

from tests.faults.access import Access
from tests.faults.history import Place
from tests.faults.names import PARTITIONS

_SILENCE_SECONDS = 20.0


class CannotRead(Exception):
    """A topic could not be read to its end."""


def read_committed(access: Access, topic: str) -> list[tuple[str, Place]]:
    """The values of a topic from its beginning to its end, in the order of each partition. Raises ``CannotRead``."""
    consumer = Consumer(
        {
            **access.of_librdkafka(),
            "bootstrap.servers": access.bootstrap,
            "group.id": "audit",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "check.crcs": True,
        }
    )
    try:
        consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
        return _to_the_end(consumer, topic)
    finally:
        consumer.close()


def _to_the_end(consumer: Consumer, topic: str) -> list[tuple[str, Place]]:
    found: list[tuple[str, Place]] = []
    at_end: set[int] = set()
    while len(at_end) < PARTITIONS:
        message = consumer.poll(_SILENCE_SECONDS)
        if message is None:
            raise CannotRead(f"{topic}: nothing more after {len(found)} records, {at_end} are at their end")
        error = message.error()
        if error is None:
            value = message.value() or b""
            found.append((value.decode(), Place(message.partition() or 0, message.offset() or 0)))
        elif error.code() == KafkaError._PARTITION_EOF:
            at_end.add(message.partition() or 0)
        elif not error.retriable():
            raise CannotRead(f"{topic}: {error}")
    return found
