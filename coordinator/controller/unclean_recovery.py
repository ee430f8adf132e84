"""Unclean recovery (KIP-966): which replica leads a partition when none certainly has everything. Pure.

All members of the ISR and the ELR are broken or away. What a broken one has lost is the end of its log, so the log with
the greatest end, by the leader epoch of its last batch and then by its offset, has what any of the compared ones has.
The strategy says which logs are compared, and what the partition waits for:

* ``none``: no comparison. The last leader leads when every member is back;
* ``balanced``: all replicas that are up. The members must be back, and the last known ELR, which left the ELR because
  they were broken, while nothing more could be acknowledged. Then the partition waits for reports, a bounded time. A
  replica that had been behind is compared, too: the others may have lost more than it lacks;
* ``longest_log``: all replicas. After a bounded time the greatest end that is known decides.

A log whose records were all deleted, by retention or by a client, knows no leader epoch after a restart. What it had
was committed, since nothing else is deleted so. A log that ends before it lacks committed offsets, whatever its epochs
are, and the partition would give these offsets to other records. So such logs compare by their offsets only.

A broker that reports no log end counts, in the end, as one with less than any other.
"""

from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from oncelog.coordinator.controller.cluster_image import NO_LEADER
from oncelog.coordinator.controller.log_ends import NO_LEADER_EPOCH, UNKNOWN_END
from oncelog.coordinator.controller.recovery_strategy import RecoveryStrategy
from oncelog.coordinator.controller.standing import Standing
from oncelog.coordinator.metadata_store.znodes import PartitionState


class Recovery(NamedTuple):
    """What a partition waits for, and which replica it would elect now."""

    strategy: RecoveryStrategy
    ranked: Sequence[int]
    """The replicas that are there and may be elected, the one with the greatest log end first."""
    absent: Sequence[int]
    """The brokers that the partition waits for."""
    unreported: Sequence[int]
    """The brokers that are there and whose log ends are not known."""
    remembered: Sequence[int]
    """The replicas that stay among the last known if another one is elected."""

    @property
    def is_timed(self) -> bool:
        """Whether the partition gets its leader after a bounded time, if nothing else happens."""
        if not self.ranked or not (self.absent or self.unreported):
            return False
        return self.strategy is RecoveryStrategy.LONGEST_LOG or not self.absent

    def leader(self, *, waited: bool) -> int | None:
        """Return the replica to elect now, or None. ``waited``: the bounded time is over."""
        if not self.ranked:
            return None
        if (self.absent or self.unreported) and not (waited and self.is_timed):
            return None
        return self.ranked[0]


def recovery_of(state: PartitionState, standing: Standing, strategy: RecoveryStrategy) -> Recovery:
    """Return the recovery of a partition of which no member of the ISR or the ELR is there and intact."""
    match strategy:
        case RecoveryStrategy.NONE:
            members = _members(state, standing)
            absent = [member for member in members if member not in standing.broken]
            there = [each for each in members if each in standing.incarnations]
            return Recovery(strategy, there, absent, (), remembered=there)
        case RecoveryStrategy.BALANCED:
            return _balanced(state, standing)
        case RecoveryStrategy.LONGEST_LOG:
            return _longest_log(state, standing)


def _balanced(state: PartitionState, standing: Standing) -> Recovery:
    members = _members(state, standing)
    awaited = list(dict.fromkeys([*members, *standing.in_order(state.last_known_elr)]))
    there = _there(awaited, standing)
    uncertain = [each for each in members if each not in standing.broken or each not in there]
    absent = uncertain or [each for each in awaited if each not in there]
    others = _others(awaited, standing)
    unreported = _unreported([*awaited, *others], [*there, *others], standing)
    are_known = all(each in standing.log_ends for each in there)
    ranked = _ranked([*there, *others] if are_known else there, standing)
    return Recovery(RecoveryStrategy.BALANCED, ranked, absent, unreported, remembered=there)


def _others(awaited: Collection[int], standing: Standing) -> list[int]:
    """Return the other replicas that are up. They can only lead if the ends of all that are awaited are known."""
    registered = [each for each in standing.replicas if each not in awaited and each in standing.incarnations]
    return [each for each in registered if each not in standing.unreachable or each in standing.log_ends]


def _longest_log(state: PartitionState, standing: Standing) -> Recovery:
    others = [*standing.in_order(state.last_known_elr), *standing.replicas]
    compared = list(dict.fromkeys([*_members(state, standing), *others]))
    there = _there(compared, standing) or [each for each in compared if each in standing.incarnations]
    absent = [each for each in compared if each not in there]
    unreported = _unreported(compared, there, standing)
    ranked = _ranked(there, standing)
    return Recovery(RecoveryStrategy.LONGEST_LOG, ranked, absent, unreported, remembered=ranked)


def _members(state: PartitionState, standing: Standing) -> list[int]:
    """Return the members of ISR and ELR, the last leader first."""
    last = state.last_leader if state.leader == NO_LEADER else state.leader
    return sorted(standing.in_order(tuple(dict.fromkeys((*state.isr, *state.elr)))), key=lambda each: each != last)


def _there(compared: Sequence[int], standing: Standing) -> list[int]:
    """Return those that are registered, and reachable or have reported since. A sole one need not report."""
    registered = [each for each in compared if each in standing.incarnations]
    if len(compared) == 1:
        return registered
    return [each for each in registered if each not in standing.unreachable or each in standing.log_ends]


def _unreported(compared: Collection[int], there: Iterable[int], standing: Standing) -> list[int]:
    """Return those without a report; none if there is nothing to compare with."""
    return [each for each in there if each not in standing.log_ends] if len(compared) > 1 else []


def _ranked(there: Collection[int], standing: Standing) -> list[int]:
    """Return the replicas by their log ends, the greatest first; equal ones in the order in which they come.

    Those that end before an emptied log, and those without a report, come last. (A comparison of two ends at a time
    could go round in a circle: -1/40 is more than 5/30, which is more than 0/60, which is more than -1/40.)
    """
    ends = {each: standing.log_ends.get(each, UNKNOWN_END) for each in there}
    committed = max((end.offset for end in ends.values() if end.leader_epoch == NO_LEADER_EPOCH), default=0)
    return sorted(there, key=lambda each: (ends[each].offset >= committed, ends[each]), reverse=True)
