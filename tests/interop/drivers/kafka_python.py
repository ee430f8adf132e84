"""kafka-python."""

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer
from kafka import TopicPartition as KafkaTopicPartition
from kafka.admin import NewTopic
from kafka.structs import OffsetAndMetadata

from tests.interop.broker_under_test import REPLICATION_FACTOR
from tests.interop.drivers.deadline import Deadline
from tests.interop.drivers.driver import TIMEOUT_SECONDS, Batch, Consumed


def _consumed(record: Any) -> Consumed:
    return Consumed(record.partition, record.offset, record.key.decode() if record.key else None, record.value.decode())


class KafkaPython:
    name = "kafka-python"
    transactional = True
    compressions = ("none", "gzip")

    def create_topic(self, address: str, topic: str, partitions: int) -> None:
        admin = KafkaAdminClient(bootstrap_servers=address)
        try:
            admin.create_topics([NewTopic(topic, partitions, REPLICATION_FACTOR)])
        finally:
            admin.close()

    def produce(self, address: str, topic: str, values: Sequence[str], *, compression: str = "none") -> None:
        codec = None if compression == "none" else compression
        producer = KafkaProducer(bootstrap_servers=address, acks="all", enable_idempotence=True, compression_type=codec)
        try:
            sent = [producer.send(topic, key=value.encode(), value=value.encode()) for value in values]
            for future in sent:
                future.get(TIMEOUT_SECONDS)
        finally:
            producer.close(TIMEOUT_SECONDS)

    def consume(self, address: str, topic: str, count: int, *, read_committed: bool = False) -> list[Consumed]:
        level = "read_committed" if read_committed else "read_uncommitted"
        consumer = KafkaConsumer(bootstrap_servers=address, isolation_level=level)
        try:
            partitions = [KafkaTopicPartition(topic, index) for index in consumer.partitions_for_topic(topic)]
            consumer.assign(partitions)
            consumer.seek_to_beginning(*partitions)
            return self._read(consumer, count)
        finally:
            consumer.close()

    def _read(self, consumer: Any, count: int) -> list[Consumed]:
        deadline, records = Deadline(), list[Consumed]()
        while len(records) < count:
            deadline.check(f"{len(records)} of {count} records")
            for batch in consumer.poll(timeout_ms=200).values():
                records.extend(map(_consumed, batch))
        return records

    def _member(self, address: str, topic: str, group: str) -> Any:
        consumer = KafkaConsumer(
            bootstrap_servers=address,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=10000,
        )
        # A leader of this client that knows no metadata yet assigns nothing, and does not look again (also on Kafka).
        assert consumer.partitions_for_topic(topic)
        consumer.subscribe([topic])
        return consumer

    def consume_with_two_members(self, address: str, topic: str, group: str, count: int) -> list[list[Consumed]]:
        results: list[list[Consumed]] = [[], []]
        both_assigned = threading.Barrier(2)
        with ThreadPoolExecutor(2) as threads:  # A member that is not polled holds up the other one's rebalance.
            running = [
                threads.submit(self._run_member, address, topic, group, both_assigned, mine, results, count)
                for mine in results
            ]
            for member in running:
                member.result(2 * TIMEOUT_SECONDS)
        return results

    def _run_member(
        self,
        address: str,
        topic: str,
        group: str,
        both_assigned: threading.Barrier,
        mine: list[Consumed],
        results: list[list[Consumed]],
        count: int,
    ) -> None:
        member, deadline, waiting = self._member(address, topic, group), Deadline(), True
        try:
            while sum(map(len, results)) < count:
                deadline.check(f"{results} of {count}")
                polled = member.poll(timeout_ms=100)
                if waiting:
                    if len(member.assignment()) == 1:  # Two partitions, two members.
                        both_assigned.wait(TIMEOUT_SECONDS)
                        member.seek_to_beginning(*member.assignment())
                        waiting = False
                    continue
                for batch in polled.values():
                    mine.extend(map(_consumed, batch))
                member.commit()
        finally:
            member.close()

    def _transactional_producer(self, address: str, transactional_id: str) -> Any:
        producer = KafkaProducer(bootstrap_servers=address, transactional_id=transactional_id)
        producer.init_transactions()
        return producer

    def transact(self, address: str, topic: str, transactional_id: str, batches: Sequence[Batch]) -> None:
        producer = self._transactional_producer(address, transactional_id)
        try:
            for batch in batches:
                producer.begin_transaction()
                for value in batch.values:
                    producer.send(topic, key=value.encode(), value=value.encode())
                producer.flush(TIMEOUT_SECONDS)
                if batch.commit:
                    producer.commit_transaction()
                else:
                    producer.abort_transaction()
        finally:
            producer.close(TIMEOUT_SECONDS)

    def consume_transform_produce(
        self, address: str, source: str, target: str, group: str, transactional_id: str, count: int
    ) -> None:
        producer = self._transactional_producer(address, transactional_id)
        consumer = self._member(address, source, group)
        try:
            deadline, done = Deadline(), 0
            while done < count:
                deadline.check(f"{done} of {count}")
                for partition, batch in consumer.poll(timeout_ms=200).items():
                    producer.begin_transaction()
                    for record in batch:
                        producer.send(target, key=record.key, value=record.value.upper())
                    offset = OffsetAndMetadata(batch[-1].offset + 1, "", -1)
                    producer.send_offsets_to_transaction({partition: offset}, group)
                    producer.commit_transaction()
                    done += len(batch)
        finally:
            consumer.close()
            producer.close(TIMEOUT_SECONDS)
