"""Elections that clients request (ElectLeaders, KIP-460), and those that return leadership to preferred replicas.

The first replica of a partition is its *preferred* leader: if every partition has that, load is spread as the
assignment spread it. After a broker has been away its partitions are led by others. A *preferred* election gives them
back, when the broker is in sync again; it happens by itself when too large a share of what a broker should lead is led
by others (``leader.imbalance.per.broker.percentage``). An *unclean* election finds a leader for partitions that have
none, among replicas that may lack acknowledged records, and only when a client requests it.
"""

import asyncio
from collections import Counter
from collections.abc import Iterable
from enum import IntEnum

from oncelog.coordinator.controller import eligible_leaders
from oncelog.coordinator.controller.api_error import NO_ERROR, ApiError
from oncelog.coordinator.controller.controller_context import ControllerContext
from oncelog.coordinator.controller.election import next_state, preferred_state
from oncelog.coordinator.controller.partition_states import PARTITIONS_PER_PASS, Decide, change_states, chunks
from oncelog.coordinator.controller.propagation import send_changes
from oncelog.coordinator.controller.recovery_strategy import RecoveryStrategy
from oncelog.coordinator.controller.replica_standing import completed, fit_to_lead, standing_of
from oncelog.coordinator.metadata_store.znodes import PartitionState
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.topic_partition import TopicPartition


class ElectionType(IntEnum):
    """By Kafka's numbers."""

    PREFERRED = 0
    UNCLEAN = 1


_FAILURES = {
    ElectionType.PREFERRED: ApiError(
        ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, "The preferred leader is not alive and in sync."
    ),
    ElectionType.UNCLEAN: ApiError(ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, "No replica is alive."),
}


async def elect_leaders(
    context: ControllerContext, partitions: Iterable[TopicPartition] | None, election: ElectionType
) -> dict[TopicPartition, ApiError]:
    """Hold elections for these partitions; for all (None), those that need none are left out of the result."""
    requested = list(context.state.partitions()) if partitions is None else list(dict.fromkeys(partitions))
    results: dict[TopicPartition, ApiError] = {}
    for portion in chunks(requested, PARTITIONS_PER_PASS):
        results |= await _elect_portion(context, portion, election)
        await asyncio.sleep(0)  # Between portions the loop has its turn.
    if partitions is None:
        return {p: error for p, error in results.items() if error.code is not ErrorCode.ELECTION_NOT_NEEDED}
    return results


async def _elect_portion(
    context: ControllerContext, partitions: Iterable[TopicPartition], election: ElectionType
) -> dict[TopicPartition, ApiError]:
    results = {partition: _why_not(context, partition, election) for partition in partitions}
    needed = [partition for partition, error in results.items() if error == NO_ERROR]
    if needed:
        decide = _preferred(context) if election is ElectionType.PREFERRED else _unclean(context)
        elected = await change_states(context, needed, decide)
        await send_changes(context, elected, elected)
        results |= dict.fromkeys([p for p in needed if not _has_leader(context, p, election)], _FAILURES[election])
    return results


def _why_not(context: ControllerContext, partition: TopicPartition, election: ElectionType) -> ApiError:
    """Return why no election is held for the partition, or NO_ERROR."""
    if partition.topic in context.state.topics_to_delete:
        return ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, "The topic is being deleted")
    if context.state.state(partition) is None:
        return ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The partition does not exist.")
    if _has_leader(context, partition, election):
        return ApiError(ErrorCode.ELECTION_NOT_NEEDED, "Leader election not needed for topic partition.")
    return NO_ERROR


def _has_leader(context: ControllerContext, partition: TopicPartition, election: ElectionType) -> bool:
    """Return whether the partition has the leader that the election is about."""
    versioned = context.state.state(partition)
    if versioned is None:
        return False
    if election is ElectionType.PREFERRED:
        return versioned.state.leader == context.state.replicas(partition).replicas[0]
    return versioned.state.leader in context.state.brokers


def _preferred(context: ControllerContext) -> Decide:
    def decide(partition: TopicPartition) -> PartitionState | None:
        versioned = context.state.state(partition)
        if versioned is None:
            return None
        replicas = context.state.replicas(partition).replicas
        fit = fit_to_lead(context.state, versioned, context.state.reliable_brokers(partition))
        decided = preferred_state(versioned.state, replicas, fit, context.epoch)
        return None if decided is None else completed(context.state, partition, decided, context.epoch)

    return decide


def _unclean(context: ControllerContext) -> Decide:
    def decide(partition: TopicPartition) -> PartitionState | None:
        versioned = context.state.state(partition)
        if versioned is None:
            return None
        if context.state.keeps_eligible():
            standing = standing_of(context.state, partition, context.epoch)._replace(usable=context.state.brokers)
            strategy = RecoveryStrategy.LONGEST_LOG  # As far as the logs are known now.
            return eligible_leaders.next_state(
                versioned.state, standing, leader_restarted=False, strategy=strategy, waited=True
            )
        return next_state(
            versioned.state,
            context.state.replicas(partition).replicas,
            context.state.brokers.keys(),
            context.epoch,
            leader_restarted=False,
            unclean_allowed=True,
        )

    return decide


async def balance_leaders(context: ControllerContext, tolerated_percentage: int) -> None:
    """Hold preferred elections for the partitions of brokers that lead too little of what they should."""
    preferred: dict[TopicPartition, int] = {
        partition: context.state.replicas(partition).replicas[0]
        for partition in context.state.partitions()
        if partition.topic not in context.state.topics_to_delete and context.state.state(partition) is not None
    }
    elsewhere = [p for p in preferred if not _has_leader(context, p, ElectionType.PREFERRED)]
    wanted, missing = Counter(preferred.values()), Counter(preferred[partition] for partition in elsewhere)
    unbalanced = {broker for broker in missing if missing[broker] * 100 > wanted[broker] * tolerated_percentage}
    moving = [p for p in elsewhere if preferred[p] in unbalanced and not _is_being_reassigned(context, p)]
    elected = await change_states(context, moving, _preferred(context))
    await send_changes(context, elected, elected)


def _is_being_reassigned(context: ControllerContext, partition: TopicPartition) -> bool:
    assignment = context.state.replicas(partition)
    return bool(assignment.adding or assignment.removing)
