"""Who leads a partition: decisions about one partition's state, given which brokers are up.

The rules are Apache Kafka's. A leader stays while it is up; otherwise the first replica, in the order of the
assignment, that is up and in sync is elected; if there is none and the topic allows an unclean election, the first that
is up (and the ISR becomes that one, marked as recovering); if there is none, the partition has no leader. Each change
raises the leader epoch by one, also when only the ISR shrinks.

Two rules are stricter than those of Kafka's ZooKeeper mode:

* An election is for one incarnation of the leader. When a broker restarted since it was elected (its registration is
  younger than the partition's state), it is elected anew, as in KRaft, so that what a crash took from its log is never
  distinguished from what it writes next by offset alone.
* An ISR none of whose members is up is kept whole, so that any of them may come back and lead.
"""

from collections.abc import Collection, Sequence
from dataclasses import replace

from oncelog.coordinator.controller.cluster_image import NO_LEADER
from oncelog.coordinator.metadata_store.znodes import LeaderRecoveryState, PartitionState


def initial_state(replicas: Sequence[int], up: Collection[int], controller_epoch: int) -> PartitionState | None:
    """Return the first state of a new partition; None while none of its replicas is up."""
    isr = tuple(replica for replica in replicas if replica in up)
    if not isr:
        return None
    return PartitionState(leader=isr[0], leader_epoch=0, isr=isr, controller_epoch=controller_epoch)


def next_state(
    state: PartitionState,
    replicas: Sequence[int],
    up: Collection[int],
    controller_epoch: int,
    *,
    leader_restarted: bool,
    unclean_allowed: bool,
) -> PartitionState | None:
    """Return the state that the partition must get now that these brokers are up; None if it can stay as it is."""
    isr_up = tuple(replica for replica in state.isr if replica in up)
    if not isr_up:
        return _without_in_sync_replicas(state, replicas, up, controller_epoch, unclean_allowed=unclean_allowed)
    keeps_leader = state.leader in isr_up and not leader_restarted
    if keeps_leader and isr_up == state.isr:
        return None
    leader = state.leader if keeps_leader else next(r for r in (*replicas, *isr_up) if r in isr_up)
    return _elected(state, leader, isr_up, controller_epoch)


def preferred_state(
    state: PartitionState, replicas: Sequence[int], reliable: Collection[int], controller_epoch: int
) -> PartitionState | None:
    """Return the state in which the preferred replica leads; None if it does already, or is not fit to."""
    preferred = replicas[0]
    if preferred == state.leader or preferred not in state.isr or preferred not in reliable:
        return None
    return _elected(state, preferred, state.isr, controller_epoch)


def is_unclean(before: PartitionState, after: PartitionState, broken: Collection[int] = ()) -> bool:
    """Return whether a state gives a partition a leader that may lack acknowledged records.

    ``broken``: the members of the ISR and the ELR before that may lack some. A leader that is RECOVERING and intact
    may be elected again and lacks no more than it did.
    """
    if after.leader == NO_LEADER or after.leader_epoch == before.leader_epoch:
        return False
    if after.leader not in (*before.isr, *before.elr):
        return True
    recovering = LeaderRecoveryState.RECOVERING
    if after.leader_recovery_state is not recovering:
        return False
    return before.leader_recovery_state is not recovering or after.leader in broken


def _without_in_sync_replicas(
    state: PartitionState,
    replicas: Sequence[int],
    up: Collection[int],
    controller_epoch: int,
    *,
    unclean_allowed: bool,
) -> PartitionState | None:
    unclean = next((replica for replica in replicas if replica in up), None) if unclean_allowed else None
    if unclean is not None:
        elected = _elected(state, unclean, (unclean,), controller_epoch)
        return replace(elected, leader_recovery_state=LeaderRecoveryState.RECOVERING)
    if state.leader == NO_LEADER:
        return None
    return _elected(state, NO_LEADER, state.isr, controller_epoch)


def _elected(state: PartitionState, leader: int, isr: tuple[int, ...], controller_epoch: int) -> PartitionState:
    return PartitionState(
        leader=leader,
        leader_epoch=state.leader_epoch + 1,
        isr=isr,
        controller_epoch=controller_epoch,
        leader_recovery_state=state.leader_recovery_state,
    )
