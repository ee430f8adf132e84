"""The end of a topic that is not Spark: creates topics, writes records and transactions, reads what is there."""

import time
from collections.abc import Iterable, Mapping, Sequence
from random import Random
from types import TracebackType
from typing import Literal, Self

from clients.admin.topics import NewTopic
from clients.consumer.log_reader import LogReader
from clients.producer import Producer, ProducerConfig
from protocol.records.record_batch import Record
from protocol.topic_partition import TopicPartition
from spark_connector.offset_lookup import earliest_offsets, latest_offsets
from spark_connector.process_client import ClientSettings, ProcessClient

Codec = Literal["none", "gzip", "snappy", "lz4", "zstd"]
Row = tuple[bytes | None, bytes | None]
"""Key and value."""


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

    def create(self, topic: str, partitions: int = 1, configs: Mapping[str, str] | None = None) -> str:
        new = NewTopic(name=topic, partitions=partitions, replication_factor=1, configs=configs or {})
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
        config = ProducerConfig(
            bootstrap=self.address, compression=compression, transactional_id=transactional_id, linger_ms=5
        )

        async def produce() -> None:
            async with Producer(config, rng=Random(11), wall_clock=wall_clock) as producer:
                if transactional_id is not None:
                    await producer.init_transactions()
                    producer.begin_transaction()
                futures = [
                    await producer.send(
                        topic, value, key=key, partition=partition, timestamp_ms=timestamp_ms, headers=headers
                    )
                    for key, value in rows
                ]
                for future in futures:
                    await future
                if transactional_id is not None:
                    await (producer.commit_transaction() if commit else producer.abort_transaction())

        self.client.run(produce())

    def ends(self, topic: str, *, read_committed: bool = True) -> dict[int, int]:
        """Where each partition ends."""
        return self._offsets(topic, read_committed)

    def wait_until_ended(self, topic: str) -> None:
        """Until no transaction is open in it: Apache Kafka answers a commit before its markers are written."""

        async def wait() -> None:
            retry = self.client.cluster.attempts()
            while await self._find_ends(topic, True) != await self._find_ends(topic, False):
                assert await retry.pause(), f"transactions stay open in {topic}"

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

        async def read() -> dict[int, list[Record]]:
            partitions = await self._partitions(topic)
            cluster = self.client.cluster
            ends = await latest_offsets(cluster, partitions, read_committed=read_committed)
            reader = LogReader(cluster, await earliest_offsets(cluster, partitions), read_committed=read_committed)
            records: dict[int, list[Record]] = {tp.partition: [] for tp in partitions}
            while any(reader.positions[tp] < end for tp, end in ends.items()):
                for fetched in await reader.poll():
                    records[fetched.topic_partition.partition] += fetched.records
            return records

        return self.client.run(read())

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
