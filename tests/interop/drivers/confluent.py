"""confluent-kafka: librdkafka under Python."""

from collections.abc import Sequence

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.interop.broker_under_test import REPLICATION_FACTOR
from tests.interop.drivers.deadline import Deadline
from tests.interop.drivers.driver import TIMEOUT_SECONDS, Batch, Consumed


def _consumed(message: Message) -> Consumed:
    key, value = message.key(), message.value()
    assert value is not None
    return Consumed(message.partition(), message.offset(), key.decode() if key else None, value.decode())


def _partitions(consumer: Consumer, topic: str) -> Sequence[int]:
    """Return a topic's partitions; the broker that responds may be told of a new topic after another one."""
    deadline = Deadline()
    while not (partitions := list(consumer.list_topics(topic, TIMEOUT_SECONDS).topics[topic].partitions)):
        deadline.check(f"a broker knows the partitions of {topic}")
    return partitions


def _seek_to_beginning(member: Consumer, deadline: Deadline) -> None:
    """Seek on all partitions as soon as librdkafka has started them, a little after they are assigned."""
    while True:
        try:
            for partition in member.assignment():
                member.seek(TopicPartition(partition.topic, partition.partition, 0))
            return
        except KafkaException as error:
            if error.args[0].code() != KafkaError._STATE:
                raise
        deadline.check("the partitions of a member are started")
        _poll(member, 0.05)


def _poll(consumer: Consumer, seconds: float = 0.2) -> Message | None:
    message = consumer.poll(seconds)
    if message is None:
        return None
    error = message.error()
    assert error is None or error.code() == KafkaError._PARTITION_EOF, error
    return message


class ConfluentKafka:
    name = "confluent-kafka"
    transactional = True
    compressions = ("none", "gzip", "snappy", "lz4", "zstd")

    def create_topic(self, address: str, topic: str, partitions: int) -> None:
        admin = AdminClient({"bootstrap.servers": address})
        admin.create_topics([NewTopic(topic, partitions, REPLICATION_FACTOR)])[topic].result(TIMEOUT_SECONDS)

    def produce(self, address: str, topic: str, values: Sequence[str], *, compression: str = "none") -> None:
        settings = {"enable.idempotence": True, "compression.type": compression, "linger.ms": 5}
        producer = Producer({"bootstrap.servers": address, **settings})
        errors: list[object] = []
        for value in values:
            producer.produce(topic, value, key=value, on_delivery=lambda error, _: errors.append(error))
        assert producer.flush(TIMEOUT_SECONDS) == 0
        assert errors == [None] * len(values)

    def consume(self, address: str, topic: str, count: int, *, read_committed: bool = False) -> list[Consumed]:
        level = "read_committed" if read_committed else "read_uncommitted"
        consumer = Consumer({"bootstrap.servers": address, "group.id": "unused", "isolation.level": level})
        try:
            consumer.assign([TopicPartition(topic, partition, 0) for partition in _partitions(consumer, topic)])
            return self._read(consumer, count)
        finally:
            consumer.close()

    def _read(self, consumer: Consumer, count: int) -> list[Consumed]:
        deadline, records = Deadline(), []
        while len(records) < count:
            deadline.check(f"{len(records)} of {count} records")
            message = _poll(consumer)
            if message is not None:
                records.append(_consumed(message))
        return records

    def _member(self, address: str, group: str) -> Consumer:
        settings = {"auto.offset.reset": "earliest", "enable.auto.commit": False, "session.timeout.ms": 10000}
        return Consumer({"bootstrap.servers": address, "group.id": group, **settings})

    def consume_with_two_members(self, address: str, topic: str, group: str, count: int) -> list[list[Consumed]]:
        members = [self._member(address, group), self._member(address, group)]
        results: list[list[Consumed]] = [[], []]
        try:
            for member in members:
                member.subscribe([topic])
            deadline = Deadline()
            while not all(member.assignment() for member in members):
                deadline.check("both members have partitions")
                for member in members:
                    _poll(member)
            for member in members:
                _seek_to_beginning(member, deadline)  # Forget what came while the other one was joining.
            while sum(map(len, results)) < count:
                deadline.check(f"{results} of {count}")
                for member, records in zip(members, results, strict=True):
                    message = _poll(member, 0.05)
                    if message is not None:
                        records.append(_consumed(message))
                        member.commit(message, asynchronous=False)
            return results
        finally:
            for member in members:
                member.close()

    def _transactional_producer(self, address: str, transactional_id: str) -> Producer:
        producer = Producer({"bootstrap.servers": address, "transactional.id": transactional_id})
        producer.init_transactions(TIMEOUT_SECONDS)
        return producer

    def transact(self, address: str, topic: str, transactional_id: str, batches: Sequence[Batch]) -> None:
        producer = self._transactional_producer(address, transactional_id)
        for batch in batches:
            producer.begin_transaction()
            for value in batch.values:
                producer.produce(topic, value, key=value)
            producer.flush(TIMEOUT_SECONDS)
            if batch.commit:
                producer.commit_transaction(TIMEOUT_SECONDS)
            else:
                producer.abort_transaction(TIMEOUT_SECONDS)

    def consume_transform_produce(
        self, address: str, source: str, target: str, group: str, transactional_id: str, count: int
    ) -> None:
        producer = self._transactional_producer(address, transactional_id)
        consumer = self._member(address, group)
        consumer.subscribe([source])
        try:
            done = 0
            while done < count:
                record = self._read(consumer, 1)[0]
                producer.begin_transaction()
                producer.produce(target, record.value.upper(), key=record.key)
                positions = consumer.position(consumer.assignment())
                producer.send_offsets_to_transaction(positions, consumer.consumer_group_metadata(), TIMEOUT_SECONDS)
                producer.commit_transaction(TIMEOUT_SECONDS)
                done += 1
        finally:
            consumer.close()
