"""Verification that partitions, coordinator and group offsets agree on the end of an aborted transaction.

Each check has a sentence and whether it agrees. Verification changes nothing, and does not wait.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from oncelog.clients.admin.group_offsets import committed_offsets_of_groups
from oncelog.clients.admin.groups import list_groups
from oncelog.clients.admin.hanging_transactions import OpenTransaction, coordinators_know, open_transactions
from oncelog.clients.admin.offsets import LATEST, list_offsets
from oncelog.clients.admin.transaction_abort import AbortAction, AbortPlan
from oncelog.clients.cluster import Cluster
from oncelog.clients.errors import Refusal
from oncelog.clients.fan_out import call_leaders
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.internal.placement import partition_for
from oncelog.protocol.internal.topics import GROUP_METADATA_TOPIC_NAME
from oncelog.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from oncelog.protocol.topic_partition import TopicPartition

_NEWEST_FETCH_WITH_TOPIC_NAMES: Final = 12
_READ_COMMITTED: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """The result of one check."""

    subject: str
    agrees: bool
    says: str


async def verify_abort(cluster: Cluster, plan: AbortPlan) -> tuple[Check, ...]:
    """Check everything that the abort concerns. Raises ``BrokerRefused`` for a broker that refuses a request."""
    return (
        await _check_partitions(cluster, plan),
        await _check_end(cluster, plan.open),
        await _check_last_stable_offset(cluster, plan.open),
        await _check_coordinator(cluster, plan),
        await _check_group_offsets(cluster, plan),
    )


def is_same_transaction(plan: AbortPlan, found: OpenTransaction) -> bool:
    """Return whether the open transaction of a partition is still the one that was to be aborted.

    A fenced producer has no other transaction open. One that was not fenced may be in its next transaction, which began
    at another offset of the partition.
    """
    if plan.action is AbortAction.FENCE or found.topic_partition != plan.open.topic_partition:
        aborted, now = plan.open.producer, found.producer
        return now.producer_id == aborted.producer_id and now.producer_epoch <= aborted.producer_epoch
    return found.identity == plan.open.identity


async def _check_partitions(cluster: Cluster, plan: AbortPlan) -> Check:
    opened, failed = await open_transactions(cluster, plan.partitions)
    left = [each for each in opened if is_same_transaction(plan, each)]
    partitions = ", ".join(map(str, plan.partitions))
    if failed:
        says = "could not be described: " + ", ".join(f"{tp} ({refused})" for tp, refused in failed.items())
    elif left:
        says = "still open in " + ", ".join(f"{each.topic_partition} from offset {each.start_offset}" for each in left)
    else:
        says = f"producer {plan.open.producer.producer_id} has nothing of it open in {partitions}"
    return Check(subject="partitions", agrees=not failed and not left, says=says)


async def _check_end(cluster: Cluster, aborted: OpenTransaction) -> Check:
    """Fetch read_committed from the offset where it began: the response lists aborted transactions."""
    topic_partition = aborted.topic_partition
    wanted = FetchPartition(
        partition=topic_partition.partition, fetch_offset=aborted.start_offset, partition_max_bytes=1
    )
    request = FetchRequest(
        replica_id=-1,
        max_wait_ms=0,
        max_bytes=1,
        isolation_level=_READ_COMMITTED,
        session_epoch=-1,
        topics=[FetchTopic(topic=topic_partition.topic, partitions=[wanted])],
    )
    results = await call_leaders(
        cluster,
        {topic_partition: None},
        lambda _: request,
        FetchResponse,
        lambda response: [(topic_partition, each.error_code, each) for each in _partitions(response)],
        at_most=_NEWEST_FETCH_WITH_TOPIC_NAMES,
    )
    if topic_partition in results.failed:
        error = results.failed[topic_partition]
        return Check(subject="records", agrees=False, says=f"cannot be read: {error.name}")
    ended = {
        (each.producer_id, each.first_offset) for each in results.found[topic_partition].aborted_transactions or ()
    }
    is_aborted = (aborted.producer.producer_id, aborted.start_offset) in ended
    says = "aborted, and not shown to readers of committed records" if is_aborted else "not aborted"
    return Check(subject="records", agrees=is_aborted, says=says)


def _partitions(response: FetchResponse) -> list[PartitionData]:
    return [partition for topic in response.responses for partition in topic.partitions]


async def _check_last_stable_offset(cluster: Cluster, aborted: OpenTransaction) -> Check:
    topic_partition = aborted.topic_partition
    results = await list_offsets(cluster, {topic_partition: LATEST}, read_committed=True)
    if topic_partition in results.failed:
        return Check(subject="last stable offset", agrees=False, says=results.failed[topic_partition].name)
    offset = results.found[topic_partition].offset
    opened, _ = await open_transactions(cluster, [topic_partition])
    holding = next((each for each in opened if each.start_offset == offset), None)
    if offset is not None and offset > aborted.start_offset:
        return Check(subject="last stable offset", agrees=True, says=f"{offset}, past {aborted.start_offset}")
    if holding is not None and holding.identity != aborted.identity:
        says = f"{offset}: held back by an earlier transaction, of producer {holding.producer.producer_id}"
        return Check(subject="last stable offset", agrees=True, says=says)
    return Check(subject="last stable offset", agrees=False, says=f"{offset}, not past {aborted.start_offset}")


async def _check_coordinator(cluster: Cluster, plan: AbortPlan) -> Check:
    producer_id = plan.open.producer.producer_id
    says = (await coordinators_know(cluster, [producer_id])).get(producer_id)
    if says is None:
        return Check(subject="coordinator", agrees=True, says=f"none knows producer {producer_id}")
    has_it = plan.open.topic_partition in says.partitions
    text = f"{says.transactional_id} is {says.state}, producer {says.producer_id} epoch {says.producer_epoch}"
    return Check(
        subject="coordinator", agrees=not has_it, says=f"{text}, with {plan.open.topic_partition}" if has_it else text
    )


async def _check_group_offsets(cluster: Cluster, plan: AbortPlan) -> Check:
    """Check that no offsets of the transaction are pending, in the log of their coordinator or in its memory."""
    topic = (await cluster.topics([GROUP_METADATA_TOPIC_NAME]))[GROUP_METADATA_TOPIC_NAME]
    if topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return Check(subject="group offsets", agrees=True, says="no group has any")
    everywhere = [
        TopicPartition(GROUP_METADATA_TOPIC_NAME, partition.partition_index) for partition in topic.partitions
    ]
    opened, _ = await open_transactions(cluster, everywhere)
    known = await coordinators_know(cluster, [plan.open.producer.producer_id])
    ongoing = {tp for says in known.values() for tp in says.partitions}
    left = [each for each in opened if is_same_transaction(plan, each) and each.topic_partition not in ongoing]
    if left:
        where = ", ".join(f"{each.topic_partition} from offset {each.start_offset}" for each in left)
        return Check(subject="group offsets", agrees=False, says=f"pending in {where}: abort it there, too")
    others = {each.topic_partition for each in opened}
    concerned = {tp.partition for tp in plan.partitions if tp.topic == GROUP_METADATA_TOPIC_NAME and tp not in others}
    listed = await list_groups(cluster) if concerned else []
    groups = [each.group_id for each in listed if partition_for(each.group_id, len(everywhere)) in concerned]
    unstable = await _unstable_groups(cluster, groups)
    if unstable:
        return Check(subject="group offsets", agrees=False, says=f"pending in {', '.join(unstable)}")
    stable = f"stable in {', '.join(groups)}" if groups else "none of its offsets is pending"
    return Check(subject="group offsets", agrees=True, says=stable)


async def _unstable_groups(cluster: Cluster, group_ids: Collection[str]) -> list[str]:
    results = await committed_offsets_of_groups(cluster, dict.fromkeys(group_ids), require_stable=True)
    return [
        group_id
        for group_id, offsets in results.items()
        if not isinstance(offsets, Refusal) and ErrorCode.UNSTABLE_OFFSET_COMMIT in offsets.failed.values()
    ]
