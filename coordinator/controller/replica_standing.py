"""What the controller's state says of one partition's replicas, for the decisions of ``eligible_leaders``. Pure."""

from collections.abc import Collection

from oncelog.coordinator.controller.cluster_image import NO_LEADER
from oncelog.coordinator.controller.cluster_state import ClusterState, VersionedState
from oncelog.coordinator.controller.eligible_leaders import with_eligible, without_eligible
from oncelog.coordinator.controller.standing import Standing
from oncelog.coordinator.metadata_store.znodes import PartitionState
from oncelog.protocol.topic_partition import TopicPartition


def standing_of(cluster: ClusterState, partition: TopicPartition, controller_epoch: int) -> Standing:
    """Return the standing of the replicas that are assigned to a partition, which has a state."""
    versioned = cluster.state(partition)
    assert versioned is not None, partition
    state, broken = versioned.state, broken_members(cluster, versioned)
    members, incarnations = (*state.isr, *state.elr), cluster.broker_epochs()
    return Standing(
        replicas=cluster.replicas(partition).replicas,
        incarnations=incarnations,
        usable=cluster.usable_brokers(partition, [member for member in members if member not in broken]),
        broken=broken,
        min_isr=cluster.min_isr(partition.topic),
        controller_epoch=controller_epoch,
        written_at=versioned.mzxid,
        unreachable=cluster.unreachable,
        log_ends=cluster.log_ends.of(partition, state.leader_epoch, incarnations),
    )


def broken_members(cluster: ClusterState, versioned: VersionedState) -> Collection[int]:
    """Return the registered members of ISR and ELR that may lack acknowledged records.

    A state that was written while the cluster kept no ELR has no epochs. Then its members are judged by when it was
    written: nothing may have been lost since. So are members that have been absent since then (``judged_at``).
    """
    state = versioned.state
    judged_at = state.judged_at if state.epochs or state.judged_at is not None else versioned.mzxid
    broken = set()
    for member in (*state.isr, *state.elr):
        broker = cluster.brokers.get(member)
        if broker is None:
            continue
        known = state.epochs.get(member)
        if known is not None:
            is_whole = broker.has_kept(known)
        else:
            is_whole = judged_at is not None and broker.has_kept_since(judged_at)
        if not is_whole:
            broken.add(member)
    return broken


def described_eligible(cluster: ClusterState, versioned: VersionedState) -> tuple[list[int], list[int]]:
    """Return ELR and last known ELR as clients read them: no replica that is known to be broken is eligible.

    While there is no leader the members of the ISR count as eligible, as in Kafka, where the ISR is empty then.
    """
    state = versioned.state
    members = state.elr if state.leader != NO_LEADER else tuple(dict.fromkeys((*state.isr, *state.elr)))
    if not members or not cluster.keeps_eligible():
        return list(state.elr), list(state.last_known_elr)
    broken = broken_members(cluster, versioned)
    former = [*(member for member in members if member in broken), *state.last_known_elr]
    return [member for member in members if member not in broken], list(dict.fromkeys(former))


def fit_to_lead(cluster: ClusterState, versioned: VersionedState, candidates: Collection[int]) -> Collection[int]:
    """Return the candidates without the members of ISR and ELR that may lack acknowledged records."""
    if not cluster.keeps_eligible():
        return candidates
    broken = broken_members(cluster, versioned)
    return [candidate for candidate in candidates if candidate not in broken]


def leader_restarted(cluster: ClusterState, versioned: VersionedState) -> bool:
    """Return whether the leader registered anew since it was elected."""
    known, leader = versioned.state.epochs.get(versioned.state.leader), versioned.state.leader
    if known is None:
        return cluster.leader_restarted(versioned)
    return leader in cluster.brokers and cluster.brokers[leader].epoch != known


def completed(
    cluster: ClusterState,
    partition: TopicPartition,
    decided: PartitionState,
    controller_epoch: int,
    *,
    replicas: Collection[int] | None = None,
) -> PartitionState:
    """Return a decided state, which has a leader, with what the cluster remembers of eligible replicas.

    ``replicas``: the assignment that is written together with the state, if it changes.
    """
    if not cluster.keeps_eligible():
        return without_eligible(decided)
    versioned = cluster.state(partition)
    if versioned is None:
        return decided
    standing = standing_of(cluster, partition, controller_epoch)
    if replicas is not None:
        standing = standing._replace(replicas=tuple(replicas))
    return with_eligible(decided, versioned.state, standing)


def first_state(cluster: ClusterState, decided: PartitionState) -> PartitionState:
    """Return the first state of a partition, with the incarnations of its in-sync replicas."""
    if not cluster.keeps_eligible():
        return decided
    standing = Standing(
        replicas=decided.isr,
        incarnations=cluster.broker_epochs(),
        usable=decided.isr,
        broken=(),
        min_isr=len(decided.isr),
        controller_epoch=decided.controller_epoch,
    )
    return with_eligible(decided, decided, standing)
