"""Operators' tools for transactions, in one form: Apache Kafka's TransactionsCommand and ``oncelog txn``."""

from typing import NamedTuple, Protocol

from oncelog.protocol.topic_partition import TopicPartition
from tests.command import Oncelog
from tests.interop.drivers.kafka_tools import KafkaTools


class Hanging(NamedTuple):
    """A transaction that hangs, as a tool reports it."""

    topic_partition: TopicPartition
    producer_id: int
    start_offset: int


class TransactionTool(Protocol):
    """One tool. Each method is one run of it, which must succeed."""

    def states(self, address: str) -> dict[str, str]:
        """The state of every transactional id."""

    def partitions_of(self, address: str, transactional_id: str) -> set[TopicPartition]:
        """The partitions of an id's transaction."""

    def open_since(self, address: str, partition: TopicPartition) -> dict[int, int]:
        """For each producer of a partition with an open transaction, where that began."""

    def find_hanging(self, address: str, topic: str) -> list[Hanging]: ...

    def abort(self, address: str, partition: TopicPartition, start_offset: int) -> None: ...

    def force_terminate(self, address: str, transactional_id: str) -> None: ...


class TransactionsCommand:
    """``kafka-transactions.sh`` of Apache Kafka 4.3, which prints tables."""

    def __init__(self, tools: KafkaTools) -> None:
        self._tools = tools

    def _rows(self, address: str, *words: str) -> list[dict[str, str]]:
        out = self._tools(address, "TransactionsCommand", *words)
        lines = [line.split("\t") for line in out.splitlines() if "\t" in line]
        header = [cell.strip() for cell in lines[0]] if lines else []
        return [dict(zip(header, (cell.strip() for cell in line), strict=False)) for line in lines[1:]]

    def states(self, address: str) -> dict[str, str]:
        return {row["TransactionalId"]: row["TransactionState"] for row in self._rows(address, "list")}

    def partitions_of(self, address: str, transactional_id: str) -> set[TopicPartition]:
        (row,) = self._rows(address, "describe", "--transactional-id", transactional_id)
        named = [name.rpartition("-") for name in row["TopicPartitions"].split(",") if name]
        return {TopicPartition(topic, int(index)) for topic, _, index in named}

    def open_since(self, address: str, partition: TopicPartition) -> dict[int, int]:
        words = ["--topic", partition.topic, "--partition", str(partition.partition)]
        rows = self._rows(address, "describe-producers", *words)
        starts = {int(row["ProducerId"]): row["CurrentTransactionStartOffset"] for row in rows}
        return {producer: int(start) for producer, start in starts.items() if start not in ("None", "-1")}

    def find_hanging(self, address: str, topic: str) -> list[Hanging]:
        rows = self._rows(address, "find-hanging", "--topic", topic)
        return [
            Hanging(
                TopicPartition(row["Topic"], int(row["Partition"])), int(row["ProducerId"]), int(row["StartOffset"])
            )
            for row in rows
        ]

    def abort(self, address: str, partition: TopicPartition, start_offset: int) -> None:
        words = ["--topic", partition.topic, "--partition", str(partition.partition)]
        self._rows(address, "abort", *words, "--start-offset", str(start_offset))

    def force_terminate(self, address: str, transactional_id: str) -> None:
        self._rows(address, "forceTerminateTransaction", "--transactionalId", transactional_id)


class OncelogTxn:
    """``oncelog txn``, whose JSON is read."""

    def states(self, address: str) -> dict[str, str]:
        return {row["transactional_id"]: row["state"] for row in Oncelog(address).json("txn list")}

    def partitions_of(self, address: str, transactional_id: str) -> set[TopicPartition]:
        described = Oncelog(address).json(f"txn describe {transactional_id}")
        return {TopicPartition(row["topic"], row["partition"]) for row in described["partitions"]}

    def open_since(self, address: str, partition: TopicPartition) -> dict[int, int]:
        rows = Oncelog(address).json(f"txn producers {partition.topic} --partition {partition.partition}")
        starts = {row["producer_id"]: row["transaction_start_offset"] for row in rows}
        return {producer: start for producer, start in starts.items() if start is not None}

    def find_hanging(self, address: str, topic: str) -> list[Hanging]:
        rows = Oncelog(address).json(f"txn find-hanging --topic {topic}")
        return [
            Hanging(TopicPartition(row["topic"], row["partition"]), row["producer_id"], row["start_offset"])
            for row in rows
        ]

    def abort(self, address: str, partition: TopicPartition, start_offset: int) -> None:
        where = f"--topic {partition.topic} --partition {partition.partition}"
        done = Oncelog(address).json(f"txn abort {where} --start-offset {start_offset}")
        assert done["agreed"], done

    def force_terminate(self, address: str, transactional_id: str) -> None:
        Oncelog(address)(f"txn force-terminate {transactional_id}")
