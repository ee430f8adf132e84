"""Eligible leader replicas (KIP-966): who leads a partition so that nothing acknowledged is lost. Pure.

A record is acknowledged (``acks=all``) when every in-sync replica has it and there are at least ``min.insync.replicas``
of them. Below that minimum the high watermark stands still. So a replica that leaves an ISR which is too small without
it goes on having everything that is acknowledged: it is an *eligible leader replica*, and the state of the partition
names it in its ELR.

Every member of ISR and ELR is recorded with the broker epoch of the incarnation in which it was last known to have
everything. A member whose broker registers again says since which epoch its logs have lost nothing. If that is later
than what is recorded, or its data directory has not seen the recorded epoch, the member is *broken*: it may lack
acknowledged records, and neither leads nor is eligible.

The order of an election: the leader that is there and intact; an intact member of the ISR; an intact member of the ELR,
which is the new ISR; none, while a member is absent that may be intact. When every member is back and broken, the
last leader is elected, marked as RECOVERING: no replica certainly has everything, and it had the most. An unclean
election, if it is allowed, does not wait.

These rules hold where the feature ``eligible.leader.replicas.version`` is finalised at 1; else those of ``election``.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from oncelog.coordinator.controller.cluster_image import NO_LEADER
from oncelog.coordinator.metadata_store.znodes import LeaderRecoveryState, PartitionState


class Standing(NamedTuple):
    """The replicas of one partition, as the controller knows them when it decides."""

    replicas: Sequence[int]
    """As assigned, the preferred leader first."""
    incarnations: Mapping[int, int]
    """By registered broker, its broker epoch."""
    usable: Collection[int]
    """The registered brokers among which the partition may have its leader and its ISR."""
    broken: Collection[int]
    """The registered members of ISR and ELR that may lack acknowledged records."""
    min_isr: int
    """``min.insync.replicas`` of the topic."""
    controller_epoch: int

    @property
    def effective_min_isr(self) -> int:
        """The minimum, but never more than the partition has replicas."""
        return min(self.min_isr, len(self.replicas))


def next_state(
    state: PartitionState, standing: Standing, *, leader_restarted: bool, unclean_allowed: bool
) -> PartitionState | None:
    """Return the state that the partition must get now; None if it can stay as it is."""
    isr = _able(state.isr, standing) or _able(_in_order(state.elr, standing), standing)[:1]
    if not isr:
        return _without_eligible(state, standing, unclean_allowed=unclean_allowed)
    keeps_leader = state.leader in isr and not leader_restarted
    stays = keeps_leader and isr == state.isr
    if stays and not state.elr:
        return None
    leader = state.leader if keeps_leader else _in_order(isr, standing)[0]
    decided = with_eligible(_elected(state, leader, isr, standing), state, standing)
    return None if stays and decided.elr else decided


def with_eligible(decided: PartitionState, before: PartitionState, standing: Standing) -> PartitionState:
    """Return a decided state, which has a leader, with the ELR and the epochs that follow from the state before.

    Members keep their recorded epoch while their brokers are not registered, or broken. A leader keeps it during a
    leader epoch, so that its restart is noticed.
    """
    members = [*before.isr, *before.elr] if len(decided.isr) < standing.effective_min_isr else []
    elr = tuple(
        member
        for member in dict.fromkeys(members)
        if member not in decided.isr and member in standing.replicas and member not in standing.broken
    )
    same_leadership = decided.leader_epoch == before.leader_epoch
    epochs = {
        member: epoch
        for member in (*decided.isr, *elr)
        if (epoch := _epoch_of(member, before, standing, keep=same_leadership and member == decided.leader)) is not None
    }
    return replace(decided, elr=elr, epochs=epochs, last_leader=None)


def without_eligible(state: PartitionState) -> PartitionState:
    """Return a state without ELR, for a cluster that keeps none: what waits for an eligible replica waits for any."""
    if not (state.elr or state.epochs or state.last_leader is not None):
        return state
    isr = state.isr if state.leader != NO_LEADER else (*state.isr, *state.elr)
    return replace(state, isr=tuple(dict.fromkeys(isr)), elr=(), epochs={}, last_leader=None)


def _epoch_of(member: int, before: PartitionState, standing: Standing, *, keep: bool) -> int | None:
    """Return the incarnation in which a member is known to have everything; None if none is known."""
    known = before.epochs.get(member)
    if member not in standing.incarnations or (keep and known is not None):
        return known
    if member in before.isr and member in standing.broken:
        return known  # It has not joined anew: only that would prove that it has everything.
    return standing.incarnations[member]


def _able(members: Iterable[int], standing: Standing) -> tuple[int, ...]:
    return tuple(member for member in members if member in standing.usable and member not in standing.broken)


def _in_order(members: Sequence[int], standing: Standing) -> list[int]:
    """Return the members in the order of the assignment; those that are not assigned any more come last."""
    return [*(r for r in standing.replicas if r in members), *(m for m in members if m not in standing.replicas)]


def _without_eligible(state: PartitionState, standing: Standing, *, unclean_allowed: bool) -> PartitionState | None:
    last = state.last_leader if state.leader == NO_LEADER else state.leader
    members = dict.fromkeys([*([] if last is None else [last]), *_in_order((*state.isr, *state.elr), standing)])
    chosen = None
    if standing.broken and {*state.isr, *state.elr} <= set(standing.broken):
        chosen = next((member for member in members if member in standing.incarnations), None)
    elif unclean_allowed:
        chosen = next((replica for replica in (*members, *standing.replicas) if replica in standing.usable), None)
    if chosen is not None:
        return _recovering(state, chosen, standing)
    if state.leader == NO_LEADER:
        return None
    return replace(
        state,
        leader=NO_LEADER,
        leader_epoch=state.leader_epoch + 1,
        controller_epoch=standing.controller_epoch,
        last_leader=last,
    )


def _recovering(state: PartitionState, leader: int, standing: Standing) -> PartitionState:
    """Return the state of a partition whose leader may lack acknowledged records: its log is what counts from now."""
    elected = _elected(state, leader, (leader,), standing)
    is_lone = len(standing.replicas) == 1  # There is no other replica that it could still learn anything from.
    return replace(
        elected,
        elr=(),
        epochs={leader: standing.incarnations[leader]},
        last_leader=None,
        leader_recovery_state=LeaderRecoveryState.RECOVERED if is_lone else LeaderRecoveryState.RECOVERING,
    )


def _elected(state: PartitionState, leader: int, isr: tuple[int, ...], standing: Standing) -> PartitionState:
    return replace(
        state,
        leader=leader,
        leader_epoch=state.leader_epoch + 1,
        isr=isr,
        controller_epoch=standing.controller_epoch,
    )
