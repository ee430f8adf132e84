"""The end of a topic that is not Spark: creates topics, writes records and transactions, reads what is there."""

import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from random import Random
from types import TracebackType
from typing import Final, Literal, NamedTuple, Self

from confluent_kafka import Producer as LibrdkafkaProducer

from oncelog.clients.admin.topics import NewTopic
from oncelog.clients.log_reader import LogReader
from oncelog.clients.producer import Producer, ProducerConfig
from oncelog.protocol.records.record_batch import Record
from oncelog.protocol.topic_partition import TopicPartition
from oncelog.spark_connector.process_client import ClientSettings, ProcessClient
from oncelog.spark_connector.reading.offset_lookup import earliest_offsets, latest_offsets

Codec = Literal["none", "gzip", "snappy", "lz4", "zstd"]
Row = tuple[bytes | None, bytes | None]
"""Key and value."""
Outcome = Literal["plain", "commit", "abort"]
"""Of what is written: without a transaction, or how its transaction ends."""
_SECONDS: Final = 60
_OPEN_MS: Final = 900_000
"""How long a transaction may be open: as long as brokers allow by default."""


class NewRecord(NamedTuple):
    """What a producer is given; the time is in ms since the epoch."""

    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]] = ()
    timestamp_ms: int | None = None


def wall_clock() -> int:
    return time.time_ns() // 1_000_000


class OtherEnd:
    """Synchronous, for tests that are."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.client = ProcessClient(ClientSettings(bootstrap=address), Random(7))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.client.close()

    def create(
        self, topic: str, partitions: int = 1, configs: Mapping[str, str] | None = None, *, replicas: int = 1
    ) -> str:
        new = NewTopic(name=topic, partitions=partitions, replication_factor=replicas, configs=configs or {})
        outcomes = self.client.run(self.client.admin.create_topics([new]))
        assert outcomes == {topic: None}, outcomes
        return topic

    def delete(self, topic: str) -> None:
        outcomes = self.client.run(self.client.admin.delete_topics([topic]))
        assert outcomes == {topic: None}, outcomes

    def write(
        self,
        topic: str,
        rows: Iterable[Row],
        *,
        partition: int | None = None,
        compression: Codec = "none",
        timestamp_ms: int | None = None,
        headers: Sequence[tuple[str, bytes | None]] = (),
        transactional_id: str | None = None,
        commit: bool = True,
    ) -> None:
        """Write records, in a transaction if there is an id."""
        outcome: Outcome = "plain" if transactional_id is None else "commit" if commit else "abort"
        records = [NewRecord(key, value, headers, timestamp_ms) for key, value in rows]
        self.send(
            topic,
            records,
            partition=partition,
            compression=compression,
            outcome=outcome,
            transactional_id=transactional_id,
        )

    def send(
        self,
        topic: str,
        records: Iterable[NewRecord],
        *,
        partition: int | None = None,
        compression: Codec = "none",
        outcome: Outcome = "plain",
        transactional_id: str | None = None,
    ) -> None:
        """Write records, in a transaction by the topic's name unless there is another one."""
        identifier = None if outcome == "plain" else transactional_id or topic
        config = ProducerConfig(
            bootstrap=self.address, compression=compression, transactional_id=identifier, linger_ms=5
        )

        async def produce() -> None:
            async with Producer(config, rng=Random(11), wall_clock=wall_clock) as producer:
                if identifier is not None:
                    await producer.init_transactions()
                    producer.begin_transaction()
                futures = [
                    await producer.send(
                        topic, value, key=key, partition=partition, timestamp_ms=timestamp_ms, headers=headers
                    )
                    for key, value, headers, timestamp_ms in records
                ]
                for future in futures:
                    await future
                if identifier is not None:
                    await (producer.commit_transaction() if outcome == "commit" else producer.abort_transaction())

        self.client.run(produce())

    def send_by_librdkafka(
        self, topic: str, records: Iterable[NewRecord], *, partition: int, compression: Codec, outcome: Outcome
    ) -> None:
        """The same, by another producer."""
        identifier = None if outcome == "plain" else topic
        producer = self.begin_by_librdkafka(identifier, compression)
        self.produce_by_librdkafka(producer, topic, records, partition)
        if outcome == "commit":
            producer.commit_transaction(_SECONDS)
        elif outcome == "abort":
            producer.abort_transaction(_SECONDS)

    def begin_by_librdkafka(self, transactional_id: str | None, compression: Codec) -> LibrdkafkaProducer:
        """A producer, in a transaction if there is an id."""
        settings = {"bootstrap.servers": self.address, "compression.type": compression, "linger.ms": 5}
        if transactional_id is None:
            return LibrdkafkaProducer(settings)
        settings |= {"transactional.id": transactional_id, "transaction.timeout.ms": _OPEN_MS}
        producer = LibrdkafkaProducer(settings)
        producer.init_transactions(_SECONDS)
        producer.begin_transaction()
        return producer

    def produce_by_librdkafka(
        self, producer: LibrdkafkaProducer, topic: str, records: Iterable[NewRecord], partition: int
    ) -> None:
        """Return when they are acknowledged."""
        failures: list[object] = []

        def note(error: object, _: object) -> None:
            if error is not None:
                failures.append(error)

        for key, value, headers, timestamp_ms in records:
            producer.produce(
                topic,
                value,
                key,
                partition=partition,
                timestamp=timestamp_ms or 0,
                headers=list(headers),
                on_delivery=note,
            )
        assert producer.flush(_SECONDS) == 0
        assert not failures, failures

    def ends(self, topic: str, *, read_committed: bool = True) -> dict[int, int]:
        """Where each partition ends."""
        return self._offsets(topic, read_committed)

    def wait_until_ended(self, topic: str) -> None:
        """Until no transaction is open in it: Apache Kafka responds to a commit before its markers are written."""

        async def is_ended() -> bool:
            return await self._find_ends(topic, True) == await self._find_ends(topic, False)

        self._wait(is_ended, f"transactions stay open in {topic}")

    def wait_until_written(self, topic: str) -> None:
        """Until something is in it, committed or not."""

        async def is_written() -> bool:
            return any((await self._find_ends(topic, False)).values())

        self._wait(is_written, f"nothing is written to {topic}")

    def wait_until_compacted(self, topic: str) -> None:
        """Until no key is twice in a partition."""

        async def is_compacted() -> bool:
            found = (await self._read(topic, True)).values()
            return all(len({record.key for record in records}) == len(records) for records in found)

        self._wait(is_compacted, f"{topic} is not compacted")

    def _wait(self, condition: Callable[[], Awaitable[bool]], otherwise: str) -> None:
        async def wait() -> None:
            retry = self.client.cluster.attempts()
            while not await condition():
                assert await retry.pause(), otherwise

        self.client.run(wait())

    def _offsets(self, topic: str, read_committed: bool) -> dict[int, int]:
        return self.client.run(self._find_ends(topic, read_committed))

    async def _find_ends(self, topic: str, read_committed: bool) -> dict[int, int]:
        partitions = await self._partitions(topic)
        found = await latest_offsets(self.client.cluster, partitions, read_committed=read_committed)
        return {tp.partition: offset for tp, offset in found.items()}

    async def _partitions(self, topic: str) -> list[TopicPartition]:
        self.client.cluster.metadata.forget(topic)
        found = (await self.client.cluster.topics([topic]))[topic]
        return [TopicPartition(topic, each.partition_index) for each in found.partitions]

    def read(self, topic: str, *, read_committed: bool = True) -> dict[int, list[Record]]:
        """All records of a topic up to its ends, by partition."""
        return self.client.run(self._read(topic, read_committed))

    async def _read(self, topic: str, read_committed: bool) -> dict[int, list[Record]]:
        partitions = await self._partitions(topic)
        cluster = self.client.cluster
        ends = await latest_offsets(cluster, partitions, read_committed=read_committed)
        reader = LogReader(cluster, await earliest_offsets(cluster, partitions), read_committed=read_committed)
        records: dict[int, list[Record]] = {tp.partition: [] for tp in partitions}
        while any(reader.positions[tp] < end for tp, end in ends.items()):
            for fetched in await reader.poll():
                records[fetched.topic_partition.partition] += fetched.records
        return records

    def add_partitions(self, topic: str, total: int) -> None:
        outcomes = self.client.run(self.client.admin.create_partitions({topic: total}))
        assert outcomes == {topic: None}, outcomes

    def committed(self, group_id: str) -> dict[tuple[str, int], int]:
        """What a group has committed."""
        found = self.client.run(self.client.admin.committed_offsets(group_id))
        return {(tp.topic, tp.partition): committed.offset for tp, committed in found.items()}

    def delete_records(self, topic: str, before: int) -> None:
        """Of partition 0."""
        deleted = self.client.run(self.client.admin.delete_records({TopicPartition(topic, 0): before}))
        assert not deleted.failed, deleted
