"""Hanging transactions: open in a partition, and no coordinator will end them there (KIP-664).

The open transaction of a partition keeps every read_committed consumer below its first offset. It ends when its
coordinator writes a marker, which it does for the partitions that it has in the transaction. So a transaction hangs
when the partition has it open and its coordinator does not have the partition.

The partitions are described first and the coordinators second, because the coordinator has a partition before anything
is written to it. A transaction that ends in between would look like one that hangs; so candidates are described again,
and only those whose transaction is still the same one are reported, however young they are. (Kafka's tool describes
once, and therefore considers only producers that have not written for longer than the longest time-out.)

A transaction that its coordinator knows, but that is open for longer than the longest time-out, is reported as well: it
has no time-out (two-phase commit), or its coordinator does not work.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final, TypeVar

from oncelog.clients.admin.named_brokers import require_broker
from oncelog.clients.admin.producers import ActiveProducer, describe_producers
from oncelog.clients.admin.topics import TopicDescription, describe_topics, list_topics
from oncelog.clients.admin.transactions import TransactionDescription, describe_transactions, list_transactions
from oncelog.clients.cluster import Cluster
from oncelog.clients.errors import Refusal
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.topic_partition import TopicPartition

T = TypeVar("T")

DEFAULT_MAX_TRANSACTION_TIMEOUT_MS: Final = 15 * 60 * 1000
"""Kafka's default of ``transaction.max.timeout.ms``."""
_AT_ONCE: Final = 500
"""Maximum number of partitions or producer ids in one request, as in Kafka's TransactionsCommand."""


class Reason(Enum):
    """The reason why an open transaction is reported."""

    NO_COORDINATOR = "no coordinator knows its producer"
    NOT_IN_TRANSACTION = "not in its coordinator's transaction"
    TOO_LONG = "open for longer than allowed"


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenTransaction:
    """An open transaction of a partition."""

    topic_partition: TopicPartition
    producer: ActiveProducer

    @property
    def start_offset(self) -> int:
        """The offset of the transaction's first batch in the partition."""
        assert self.producer.transaction_start_offset is not None
        return self.producer.transaction_start_offset

    @property
    def identity(self) -> tuple[TopicPartition, int, int]:
        """The fields that differ from those of the next transaction of the same producer."""
        return self.topic_partition, self.producer.producer_id, self.start_offset


@dataclass(frozen=True, slots=True, kw_only=True)
class HangingTransaction:
    """An open transaction with its description by a coordinator, if one has it."""

    open: OpenTransaction
    reason: Reason
    coordinator_says: TransactionDescription | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """Hanging transactions by partition, and the partitions that could not be described."""

    hanging: tuple[HangingTransaction, ...]
    failed: dict[TopicPartition, Refusal]


def why_hanging(
    open_transaction: OpenTransaction, description: TransactionDescription | None, oldest_start_ms: int
) -> Reason | None:
    """Return the reason to report a transaction, by its coordinator's description; None if there is none."""
    if description is None:
        return Reason.NO_COORDINATOR
    if open_transaction.topic_partition not in description.partitions:
        return Reason.NOT_IN_TRANSACTION
    if description.start_ms is not None and description.start_ms < oldest_start_ms:
        return Reason.TOO_LONG
    return None


async def partitions_to_search(
    cluster: Cluster, *, topic: str | None = None, broker_id: int | None = None
) -> list[TopicPartition]:
    """Return the partitions of a topic, or of all topics; with ``broker_id`` those with a replica on that broker.

    Raises ``BrokerRefused``, and ``BrokerAbsent`` for a broker that is not in the cluster.
    """
    if broker_id is not None:
        await require_broker(cluster, broker_id)
    topics = await list_topics(cluster) if topic is None else [await _describe(cluster, topic)]
    return [
        TopicPartition(described.name, partition.partition)
        for described in topics
        for partition in described.partitions
        if broker_id is None or broker_id in partition.replicas
    ]


async def _describe(cluster: Cluster, topic: str) -> TopicDescription:
    described = (await describe_topics(cluster, [topic]))[topic]
    if isinstance(described, Refusal):
        raise described.as_error(f"topic {topic}")
    return described


async def find_hanging_transactions(
    cluster: Cluster,
    partitions: Sequence[TopicPartition],
    *,
    now_ms: int,
    max_transaction_timeout_ms: int = DEFAULT_MAX_TRANSACTION_TIMEOUT_MS,
    broker_id: int | None = None,
) -> Findings:
    """Return the hanging transactions of some partitions, by the state of their leaders or of one broker.

    Raises ``BrokerRefused`` for a coordinator that refuses.
    """
    opened, failed = await open_transactions(cluster, partitions, broker_id=broker_id)
    known = await coordinators_know(cluster, {each.producer.producer_id for each in opened})
    oldest_start_ms = now_ms - max_transaction_timeout_ms
    candidates = [
        HangingTransaction(open=each, reason=reason, coordinator_says=known.get(each.producer.producer_id))
        for each in opened
        if (reason := why_hanging(each, known.get(each.producer.producer_id), oldest_start_ms)) is not None
    ]
    again, _ = await open_transactions(
        cluster, sorted({candidate.open.topic_partition for candidate in candidates}), broker_id=broker_id
    )
    still_open = {each.identity for each in again}
    hanging = tuple(candidate for candidate in candidates if candidate.open.identity in still_open)
    return Findings(hanging=hanging, failed=failed)


async def open_transactions(
    cluster: Cluster, partitions: Sequence[TopicPartition], *, broker_id: int | None = None
) -> tuple[list[OpenTransaction], dict[TopicPartition, Refusal]]:
    """Return the open transactions in the order of partitions and offsets, and the partitions that refused."""
    opened: list[OpenTransaction] = []
    failed: dict[TopicPartition, Refusal] = {}
    for some in _in_batches(partitions):
        results = await describe_producers(cluster, some, broker_id=broker_id)
        failed |= results.refusals
        opened += [
            OpenTransaction(topic_partition=topic_partition, producer=producer)
            for topic_partition, producers in results.found.items()
            for producer in producers
            if producer.transaction_start_offset is not None
        ]
    return sorted(opened, key=lambda each: (each.topic_partition, each.start_offset)), failed


async def coordinators_know(cluster: Cluster, producer_ids: Collection[int]) -> dict[int, TransactionDescription]:
    """Return the descriptions of the transactional ids with these producer ids. Raises ``BrokerRefused``."""
    known: dict[int, TransactionDescription] = {}
    for some in _in_batches(sorted(producer_ids)):
        listed = await list_transactions(cluster, producer_ids=some)
        described = await describe_transactions(cluster, [each.transactional_id for each in listed])
        for transactional_id, description in described.items():
            if not isinstance(description, Refusal):
                known[description.producer_id] = description
            elif description.error is not ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                raise description.as_error(f"transactional id {transactional_id}")
    return known


def _in_batches(items: Sequence[T]) -> Iterator[Sequence[T]]:
    return (items[start : start + _AT_ONCE] for start in range(0, len(items), _AT_ONCE))
