"""Changes of in-sync replicas that leaders ask for (AlterPartition), decided and written.

A leader knows which followers keep up; the controller knows which brokers are alive and which one leads. So the leader
proposes and the controller decides, each partition on its own, with Apache Kafka's error codes:

* a proposal of an older leader epoch is FENCED_LEADER_EPOCH; one of a newer one than is known here says that this is
  not the controller any more (NOT_CONTROLLER);
* what is so already is a success, whatever it was proposed on, because the first response may have been lost;
* a proposal on an older state than the present one is INVALID_UPDATE_VERSION: the leader will be sent the newer one;
* a replica that is not alive, that restarted since the leader learned of it (KIP-903), or that would come back although
  it is suspected to be gone, is an INELIGIBLE_REPLICA; so is one that would join without the broker epoch of its last
  fetch, where the cluster keeps eligible leader replicas.

What is written is conditional on the version of the state's znode, so a leader and an election never overwrite each
other.
"""

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Final, NamedTuple, TypeAlias

from oncelog.coordinator.controller.cluster_state import ClusterState, VersionedState
from oncelog.coordinator.controller.controller_context import ControllerContext
from oncelog.coordinator.controller.partition_states import chunks, log_changes, read_again, remember
from oncelog.coordinator.controller.replica_standing import broken_members, completed
from oncelog.coordinator.controller.state_changes import StateChanges
from oncelog.coordinator.metadata_store import paths, znodes
from oncelog.coordinator.metadata_store.store import MultiFailed, SetData
from oncelog.coordinator.metadata_store.znodes import LeaderRecoveryState, PartitionState
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.topic_partition import TopicPartition

logger = logging.getLogger(__name__)

UNKNOWN_EPOCH: Final = -1


class IsrProposal(NamedTuple):
    """What a leader wants the state of one partition to be."""

    leader: int
    leader_epoch: int
    partition_epoch: int
    """Of the state that the leader knows."""
    isr: Mapping[int, int]
    """The epoch of each broker that shall be in sync, or -1 where the leader does not know it."""
    leader_recovery_state: int = LeaderRecoveryState.RECOVERED


Outcome: TypeAlias = VersionedState | ErrorCode
"""The state that holds now, or why the proposal was refused."""


async def alter_isr(
    context: ControllerContext, proposals: Mapping[TopicPartition, IsrProposal]
) -> dict[TopicPartition, Outcome]:
    """Decide and write; return the outcome of every proposal. No broker has been sent what was written yet."""
    outcomes: dict[TopicPartition, Outcome] = {}
    accepted: dict[TopicPartition, PartitionState] = {}
    for partition, proposal in proposals.items():
        decided = decide(proposal, partition, context.state, context.epoch)
        if isinstance(decided, PartitionState):
            accepted[partition] = decided
        else:
            outcomes[partition] = decided
    before = {partition: context.state.state(partition) for partition in accepted}
    refused = await _write(context, accepted)
    changes = StateChanges()
    for partition, known in before.items():
        if known is not None and partition not in refused:
            changes.add(partition, known.state, accepted[partition])
    log_changes(changes)
    for partition in accepted:
        state = context.state.state(partition)
        if partition in refused or state is None:
            logger.info("The state of %s has changed: its leader's proposal is refused", partition)
            outcomes[partition] = ErrorCode.INVALID_UPDATE_VERSION
        else:
            outcomes[partition] = state
    return outcomes


def decide(
    proposal: IsrProposal, partition: TopicPartition, cluster: ClusterState, controller_epoch: int
) -> PartitionState | Outcome:
    """Return the state to write, or the outcome if nothing is to be written."""
    current = cluster.state(partition)
    if current is None or partition.topic in cluster.topics_to_delete:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    state = current.state
    if proposal.partition_epoch > current.version or proposal.leader_epoch > state.leader_epoch:
        return ErrorCode.NOT_CONTROLLER
    if proposal.leader_epoch < state.leader_epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if proposal.leader != state.leader or not _makes_sense(proposal, state, cluster.replicas(partition).replicas):
        return ErrorCode.INVALID_REQUEST
    if proposal.isr.keys() == set(state.isr) and proposal.leader_recovery_state == state.leader_recovery_state:
        return current
    if proposal.partition_epoch < current.version:
        return ErrorCode.INVALID_UPDATE_VERSION
    broken = broken_members(cluster, current) if cluster.keeps_eligible() else ()
    ineligible = [
        broker
        for broker, epoch in proposal.isr.items()
        if not (
            _stays(broker, epoch, broken, cluster) if broker in state.isr else _joins(partition, broker, epoch, cluster)
        )
    ]
    if ineligible:
        logger.debug("%s cannot have brokers %s in its ISR now", partition, ineligible)
        return ErrorCode.INELIGIBLE_REPLICA
    decided = replace(
        state,
        isr=tuple(proposal.isr),
        controller_epoch=controller_epoch,
        leader_recovery_state=LeaderRecoveryState(proposal.leader_recovery_state),
    )
    return completed(cluster, partition, decided, controller_epoch)


def _makes_sense(proposal: IsrProposal, state: PartitionState, replicas: Sequence[int]) -> bool:
    if proposal.leader not in proposal.isr or not proposal.isr.keys() <= set(replicas):
        return False
    if proposal.leader_recovery_state == LeaderRecoveryState.RECOVERING:
        return len(proposal.isr) == 1 and state.leader_recovery_state is LeaderRecoveryState.RECOVERING
    return proposal.leader_recovery_state == LeaderRecoveryState.RECOVERED


def _stays(broker_id: int, epoch: int, broken: Collection[int], cluster: ClusterState) -> bool:
    broker = cluster.brokers.get(broker_id)
    return broker is not None and epoch in (UNKNOWN_EPOCH, broker.epoch) and broker_id not in broken


def _joins(partition: TopicPartition, broker_id: int, epoch: int, cluster: ClusterState) -> bool:
    """Return whether a broker may join the ISR: in the incarnation in which the leader saw it fetch.

    An unknown epoch proves nothing: the leader may propose what a former incarnation had. It counts only in a cluster
    without eligible replicas, which may have leaders that send none.
    """
    broker = cluster.brokers.get(broker_id)
    if broker is None or broker_id not in cluster.reliable_brokers(partition):
        return False
    return epoch == broker.epoch or (epoch == UNKNOWN_EPOCH and not cluster.keeps_eligible())


async def _write(context: ControllerContext, accepted: Mapping[TopicPartition, PartitionState]) -> list[TopicPartition]:
    """Write states, many at once; return those that another writer changed first."""
    together = list(chunks(list(accepted)))
    alone: list[TopicPartition] = []
    for group, written in zip(together, await _commit(context, accepted, together), strict=True):
        if not written:
            alone += group
    if not alone:
        return []
    singles = [[partition] for partition in alone]
    results = await _commit(context, accepted, singles)
    refused = [partition for partition, written in zip(alone, results, strict=True) if not written]
    await read_again(context, refused)
    return refused


async def _commit(
    context: ControllerContext,
    states: Mapping[TopicPartition, PartitionState],
    groups: Sequence[Sequence[TopicPartition]],
) -> list[bool]:
    """Write groups of states; return for each group whether all of it was written, or nothing."""
    results = await context.commit_many([[_set(context, p, states[p]) for p in group] for group in groups])
    for group, result in zip(groups, results, strict=True):
        if not isinstance(result, MultiFailed):
            remember(context, group, states, result)
    return [not isinstance(result, MultiFailed) for result in results]


def _set(context: ControllerContext, partition: TopicPartition, state: PartitionState) -> SetData:
    known = context.state.state(partition)
    assert known is not None, "only a state that is known is changed"
    return SetData(
        path=paths.partition_state(partition), data=znodes.encode_partition_state(state), version=known.version
    )
