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
which is the new ISR; none, while a member is absent that may be intact. When no replica certainly has everything,
``unclean_recovery`` says which one leads, and when; it is marked as RECOVERING.

A member that is broken when it leaves ISR and ELR may still have more than the others, and is remembered in the *last
known ELR*. When the ISR is large enough again, it is empty: more may be acknowledged from then on.

These rules hold where the feature ``eligible.leader.replicas.version`` is finalised at 1; else those of ``election``.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from oncelog.coordinator.controller.cluster_image import NO_LEADER
from oncelog.coordinator.controller.recovery_strategy import RecoveryStrategy
from oncelog.coordinator.controller.standing import Standing
from oncelog.coordinator.controller.unclean_recovery import recovery_of
from oncelog.coordinator.metadata_store.znodes import LeaderRecoveryState, PartitionState


def next_state(
    state: PartitionState,
    standing: Standing,
    *,
    leader_restarted: bool,
    strategy: RecoveryStrategy,
    waited: bool = False,
) -> PartitionState | None:
    """Return the state that the partition must get now; None if it can stay as it is.

    ``waited``: the bounded time of an unclean recovery is over.
    """
    isr = _able(state.isr, standing) or _able(standing.in_order(state.elr), standing)[:1]
    if not isr:
        return _without_eligible(state, standing, strategy, waited=waited)
    keeps_leader = state.leader in isr and not leader_restarted
    stays = keeps_leader and isr == state.isr
    is_large_enough = len(isr) >= standing.effective_min_isr
    if stays and not state.elr and not (state.last_known_elr and is_large_enough):
        return None
    leader = state.leader if keeps_leader else standing.in_order(isr)[0]
    decided = with_eligible(_elected(state, leader, isr, standing), state, standing)
    return None if stays and decided.elr else decided


def with_eligible(decided: PartitionState, before: PartitionState, standing: Standing) -> PartitionState:
    """Return a decided state, which has a leader, with the ELRs and the epochs that follow from the state before.

    Members keep their recorded epoch while their brokers are not registered, or broken. A leader keeps it during a
    leader epoch, so that its restart is noticed.
    """
    members = [*before.isr, *before.elr] if len(decided.isr) < standing.effective_min_isr else []
    known = [*before.last_known_elr, *members] if members else []
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
    last_known = tuple(
        member for member in dict.fromkeys(known) if member not in (*decided.isr, *elr) and member in standing.replicas
    )
    remembered = replace(decided, elr=elr, epochs=epochs, last_leader=None, last_known_elr=last_known)
    return judged_as_before(remembered, before, standing.written_at)


def judged_as_before(decided: PartitionState, before: PartitionState, written_at: int) -> PartitionState:
    """Return a decided state whose members without an epoch are judged as in the state before.

    A state of a cluster that kept no ELR has no epochs, and its members are judged by ``written_at``, the store's
    transaction that wrote it. A later state has another one, so those that are still absent need the former.
    """
    if all(member in decided.epochs for member in (*decided.isr, *decided.elr)):
        return replace(decided, judged_at=None) if decided.judged_at is not None else decided
    is_first = before.judged_at is None and not before.epochs
    return replace(decided, judged_at=written_at if is_first else before.judged_at)


def without_eligible(state: PartitionState) -> PartitionState:
    """Return a state without ELR, for a cluster that keeps none: what waits for an eligible replica waits for any."""
    if not (state.elr or state.epochs or state.last_known_elr or state.last_leader is not None):
        return state if state.judged_at is None else replace(state, judged_at=None)
    isr = state.isr if state.leader != NO_LEADER else (*state.isr, *state.elr)
    return replace(
        state, isr=tuple(dict.fromkeys(isr)), elr=(), epochs={}, judged_at=None, last_leader=None, last_known_elr=()
    )


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


def _without_eligible(
    state: PartitionState, standing: Standing, strategy: RecoveryStrategy, *, waited: bool
) -> PartitionState | None:
    recovery = recovery_of(state, standing, strategy)
    chosen = recovery.leader(waited=waited)
    if chosen is not None:
        return _recovering(state, chosen, standing, recovery.remembered)
    if state.leader == NO_LEADER:
        return None
    waiting = replace(
        state,
        leader=NO_LEADER,
        leader_epoch=state.leader_epoch + 1,
        controller_epoch=standing.controller_epoch,
        last_leader=state.leader,
    )
    return judged_as_before(waiting, state, standing.written_at)


def _recovering(state: PartitionState, leader: int, standing: Standing, there: Sequence[int]) -> PartitionState:
    """Return the state of a partition whose leader may lack acknowledged records: its log is what counts from now.

    The leader may break before the others have its log. So those that are there stay among the last known.
    """
    others = [each for each in there if each != leader and each in standing.replicas]
    elected = _elected(state, leader, (leader,), standing)
    is_lone = len(standing.replicas) == 1  # There is no other replica that it could still learn anything from.
    return replace(
        elected,
        elr=(),
        epochs={leader: standing.incarnations[leader]},
        judged_at=None,
        last_leader=None,
        last_known_elr=tuple(others) if standing.effective_min_isr > 1 else (),
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
