"""``Admin``: everything that operators ask of a cluster, in one place.

    async with Admin("localhost:9092") as admin:
        outcomes = await admin.create_topics([NewTopic(name="orders", partitions=3)])

Each method is a function of a module of this package, where the types of its arguments and results are, with units and
sources. How failure is told is the same everywhere: a request about several things has a value or a ``Refusal`` (or an
``ErrorCode``) for each of them; a request about one thing raises ``BrokerRefused``; when no answer comes at all, that
is another exception of ``oncelog.clients.errors``. Errors that pass are retried before. A call takes
``operation_seconds`` at most, however many requests it consists of.
"""

import asyncio
from collections.abc import Awaitable, Collection, Iterable, Mapping, Sequence
from random import Random
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self, TypeVar
from uuid import UUID

from oncelog.clients.admin import (
    abort_verification,
    cluster_description,
    configs,
    features,
    fencing,
    group_offsets,
    groups,
    hanging_transactions,
    log_dirs,
    offsets,
    producers,
    topic_pages,
    topics,
    transaction_abort,
    transactions,
    txn_markers,
)
from oncelog.clients.admin.abort_verification import Check
from oncelog.clients.admin.cluster_description import ClusterDescription
from oncelog.clients.admin.configs import ConfigChange, ConfigEntry, Resource
from oncelog.clients.admin.features import FeatureMetadata, FeatureUpdate
from oncelog.clients.admin.fencing import Fencing
from oncelog.clients.admin.group_offsets import CommittedOffset, GroupOffsets, PartitionOutcomes
from oncelog.clients.admin.groups import GroupDescription, GroupListing, MemberToRemove
from oncelog.clients.admin.hanging_transactions import DEFAULT_MAX_TRANSACTION_TIMEOUT_MS, Findings
from oncelog.clients.admin.log_dirs import LogDirDescription
from oncelog.clients.admin.offsets import FoundOffset
from oncelog.clients.admin.producers import ProducersOfPartitions
from oncelog.clients.admin.topics import NewTopic, Outcomes, TopicDescription
from oncelog.clients.admin.transaction_abort import AbortPlan, WhichTransaction
from oncelog.clients.admin.transactions import TransactionDescription, TransactionListing
from oncelog.clients.admin.txn_markers import AbortMarker
from oncelog.clients.bootstrap import parse_bootstrap
from oncelog.clients.cluster import Cluster
from oncelog.clients.errors import OperationTimedOut, Refusal
from oncelog.clients.obstacles import no_answer
from oncelog.clients.partition_results import PartitionResults
from oncelog.clients.retry import one_deadline
from oncelog.protocol.topic_partition import TopicPartition

if TYPE_CHECKING:
    from oncelog.clients.admin.transaction_history import TransactionHistory

T = TypeVar("T")

_ERROR_SECONDS: Final = 0.1
"""For an operation that ends by itself at its deadline to say why, before it is ended without a reason."""


class Admin:
    """An administrator of one cluster. Close it, or use it as a context manager."""

    def __init__(
        self,
        where: str | Cluster,
        *,
        rng: Random | None = None,
        client_id: str = "oncelog-admin",
        connect_seconds: float = 10.0,
        operation_seconds: float = 30.0,
    ) -> None:
        """Set up an administrator without connecting.

        ``where`` is ``host:port,host:port``, or a ``Cluster``, which its owner closes; the other arguments are for an
        address. ``rng`` spreads retries, and is seeded by the system by default. An attempt to connect takes at most
        ``connect_seconds``, and a call at most ``operation_seconds``. Raises ``TypeError`` for a ``where`` of another
        type, and ``ValueError`` for a ``host:port`` or a duration that cannot be one.
        """
        self._owned: Cluster | None = None
        if isinstance(where, Cluster):
            self.cluster = where
            return
        if not isinstance(where, str):
            raise TypeError(f"pass the brokers to connect to as 'host:port,host:port', not {type(where).__name__}")
        self.cluster = self._owned = Cluster(
            parse_bootstrap(where),
            rng=rng or Random(),
            client_id=client_id,
            connect_seconds=connect_seconds,
            operation_seconds=operation_seconds,
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections that this object made."""
        if self._owned is not None:
            await self._owned.close()

    async def _in_time(self, work: Awaitable[T]) -> T:
        """Wait for a method's work, all of it together for at most ``operation_seconds``."""
        seconds = self.cluster.operation_seconds
        try:
            with one_deadline(seconds) as deadline:
                async with asyncio.timeout_at(deadline + _ERROR_SECONDS):
                    return await work
        except TimeoutError:
            reasons = no_answer(seconds, self.cluster.obstacles(), self.cluster.pool.time_outs())
            raise OperationTimedOut(reasons) from None

    # The cluster

    async def describe_cluster(self, *, include_fenced_brokers: bool = False) -> ClusterDescription:
        return await self._in_time(
            cluster_description.describe_cluster(self.cluster, include_fenced_brokers=include_fenced_brokers)
        )

    async def describe_log_dirs(
        self, broker_ids: Collection[int] | None = None, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[int, tuple[LogDirDescription, ...] | Refusal]:
        return await self._in_time(log_dirs.describe_log_dirs(self.cluster, broker_ids, partitions))

    async def describe_features(self) -> FeatureMetadata:
        return await self._in_time(features.describe_features(self.cluster))

    async def update_features(
        self, updates: Mapping[str, FeatureUpdate], *, validate_only: bool = False
    ) -> dict[str, Refusal | None]:
        return await self._in_time(features.update_features(self.cluster, updates, validate_only=validate_only))

    # Topics

    async def list_topics(self) -> list[TopicDescription]:
        return await self._in_time(topics.list_topics(self.cluster))

    async def describe_topics(self, names: Sequence[str]) -> dict[str, TopicDescription | Refusal]:
        return await self._in_time(topics.describe_topics(self.cluster, names))

    async def describe_topic_pages(
        self, names: Sequence[str] = (), *, page_size: int = topic_pages.PAGE_SIZE
    ) -> dict[str, TopicDescription | Refusal]:
        return await self._in_time(topic_pages.describe_topic_pages(self.cluster, names, page_size=page_size))

    async def create_topics(self, new_topics: Sequence[NewTopic], *, validate_only: bool = False) -> Outcomes:
        return await self._in_time(topics.create_topics(self.cluster, new_topics, validate_only=validate_only))

    async def delete_topics(self, names: Sequence[str]) -> Outcomes:
        return await self._in_time(topics.delete_topics(self.cluster, names))

    async def delete_topics_by_id(self, topic_ids: Sequence[UUID]) -> dict[UUID, Refusal | None]:
        return await self._in_time(topics.delete_topics_by_id(self.cluster, topic_ids))

    async def create_partitions(self, totals: Mapping[str, int]) -> Outcomes:
        return await self._in_time(topics.add_partitions(self.cluster, totals))

    async def delete_records(self, before: Mapping[TopicPartition, int]) -> PartitionResults[int]:
        return await self._in_time(topics.delete_records(self.cluster, before))

    async def list_offsets(
        self, timestamps: Mapping[TopicPartition, int], *, read_committed: bool = False
    ) -> PartitionResults[FoundOffset]:
        return await self._in_time(offsets.list_offsets(self.cluster, timestamps, read_committed=read_committed))

    # Configurations

    async def describe_configs(
        self, wanted: Mapping[Resource, Sequence[str] | None], *, documentation: bool = False
    ) -> dict[Resource, list[ConfigEntry] | Refusal]:
        return await self._in_time(configs.describe_configs(self.cluster, wanted, documentation=documentation))

    async def alter_configs(
        self, changes: Mapping[Resource, Sequence[ConfigChange]], *, validate_only: bool = False
    ) -> dict[Resource, Refusal | None]:
        return await self._in_time(configs.alter_configs(self.cluster, changes, validate_only=validate_only))

    async def replace_configs(
        self, entries: Mapping[Resource, Mapping[str, str]], *, validate_only: bool = False
    ) -> dict[Resource, Refusal | None]:
        return await self._in_time(configs.replace_configs(self.cluster, entries, validate_only=validate_only))

    # Consumer groups

    async def list_groups(self, states: Sequence[str] = ()) -> list[GroupListing]:
        return await self._in_time(groups.list_groups(self.cluster, states))

    async def describe_groups(self, group_ids: Iterable[str]) -> dict[str, GroupDescription | Refusal]:
        return await self._in_time(groups.describe_groups(self.cluster, group_ids))

    async def delete_groups(self, group_ids: Iterable[str]) -> dict[str, Refusal | None]:
        return await self._in_time(groups.delete_groups(self.cluster, group_ids))

    async def remove_members(
        self, group_id: str, members: Sequence[MemberToRemove], *, reason: str | None = None
    ) -> dict[MemberToRemove, Refusal | None]:
        return await self._in_time(groups.remove_members(self.cluster, group_id, members, reason=reason))

    async def remove_all_members(
        self, group_id: str, *, reason: str | None = None
    ) -> dict[MemberToRemove, Refusal | None]:
        return await self._in_time(groups.remove_all_members(self.cluster, group_id, reason=reason))

    async def committed_offsets(
        self, group_id: str, *, require_stable: bool = False
    ) -> dict[TopicPartition, CommittedOffset]:
        return await self._in_time(
            group_offsets.committed_offsets(self.cluster, group_id, require_stable=require_stable)
        )

    async def committed_offsets_of_groups(
        self, wanted: Mapping[str, Collection[TopicPartition] | None], *, require_stable: bool = False
    ) -> dict[str, GroupOffsets | Refusal]:
        return await self._in_time(
            group_offsets.committed_offsets_of_groups(self.cluster, wanted, require_stable=require_stable)
        )

    async def alter_group_offsets(self, group_id: str, committed: Mapping[TopicPartition, int]) -> PartitionOutcomes:
        return await self._in_time(group_offsets.commit_offsets(self.cluster, group_id, committed))

    async def delete_group_offsets(self, group_id: str, partitions: Iterable[TopicPartition]) -> PartitionOutcomes:
        return await self._in_time(group_offsets.delete_offsets(self.cluster, group_id, partitions))

    # Transactions

    async def describe_producers(
        self, partitions: Collection[TopicPartition], *, broker_id: int | None = None
    ) -> ProducersOfPartitions:
        return await self._in_time(producers.describe_producers(self.cluster, partitions, broker_id=broker_id))

    async def list_transactions(
        self,
        *,
        states: Sequence[str] = (),
        producer_ids: Sequence[int] = (),
        running_longer_than_ms: int | None = None,
        transactional_id_pattern: str | None = None,
    ) -> list[TransactionListing]:
        return await self._in_time(
            transactions.list_transactions(
                self.cluster,
                states=states,
                producer_ids=producer_ids,
                running_longer_than_ms=running_longer_than_ms,
                transactional_id_pattern=transactional_id_pattern,
            )
        )

    async def describe_transactions(
        self, transactional_ids: Iterable[str]
    ) -> dict[str, TransactionDescription | Refusal]:
        return await self._in_time(transactions.describe_transactions(self.cluster, transactional_ids))

    async def fence_producers(self, transactional_ids: Sequence[str]) -> dict[str, Fencing | Refusal]:
        return await self._in_time(fencing.fence_producers(self.cluster, transactional_ids))

    async def force_terminate_transaction(self, transactional_id: str) -> Fencing:
        return await self._in_time(fencing.force_terminate_transaction(self.cluster, transactional_id))

    async def find_hanging_transactions(
        self,
        partitions: Sequence[TopicPartition],
        *,
        now_ms: int,
        max_transaction_timeout_ms: int = DEFAULT_MAX_TRANSACTION_TIMEOUT_MS,
        broker_id: int | None = None,
    ) -> Findings:
        return await self._in_time(
            hanging_transactions.find_hanging_transactions(
                self.cluster,
                partitions,
                now_ms=now_ms,
                max_transaction_timeout_ms=max_transaction_timeout_ms,
                broker_id=broker_id,
            )
        )

    async def prepare_abort(self, topic_partition: TopicPartition, which: WhichTransaction) -> AbortPlan:
        """What ``carry_out_abort`` would do about an open transaction."""

        async def prepare() -> AbortPlan:
            opened = await transaction_abort.find_open_transaction(self.cluster, topic_partition, which)
            return await transaction_abort.prepare_abort(self.cluster, opened)

        return await self._in_time(prepare())

    async def carry_out_abort(self, plan: AbortPlan) -> tuple[Check, ...]:
        """Abort a transaction by its plan; returns whether partitions, coordinator and group offsets agree then."""

        async def carry_out() -> tuple[Check, ...]:
            await transaction_abort.carry_out_abort(self.cluster, plan)
            return await abort_verification.verify_abort(self.cluster, plan)

        return await self._in_time(carry_out())

    async def abort_transaction(self, marker: AbortMarker) -> Refusal | None:
        """Only write the marker, as Java's ``Admin.abortTransaction`` does; ``prepare_abort`` is the safe way."""
        return await self._in_time(txn_markers.write_abort_marker(self.cluster, marker))

    async def transaction_history(self, transactional_id: str) -> "TransactionHistory":
        """Read what became of an id from a whole partition: each request has ``operation_seconds`` to itself."""
        from oncelog.clients.admin.transaction_history import read_transaction_history

        return await read_transaction_history(self.cluster, transactional_id)
