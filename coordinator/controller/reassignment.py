"""Moving a partition to other brokers: what its assignment goes through. Pure.

While a partition moves, its assignment names the replicas that it shall have (*target*) and those that it had
(*origin*): ``replicas`` has all of them, the target's first, ``adding`` those that are only in the target, ``removing``
those that are only in the origin. The move is complete when every replica of the target is in sync: then the others go.
Another target may be given at any time, and the origin stays what it was before the first; given as target, it is the
way back. (KIP-455, Kafka's ``ReplicaAssignment``.)
"""

from collections.abc import Collection, Sequence
from dataclasses import replace

from oncelog.coordinator.controller.api_error import ApiError
from oncelog.coordinator.metadata_store.znodes import PartitionState, ReplicaAssignment
from oncelog.protocol.errors import ErrorCode

NOT_IN_PROGRESS = ApiError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "No partition reassignment is in progress.")


def is_moving(assignment: ReplicaAssignment) -> bool:
    return bool(assignment.adding or assignment.removing)


def origin_of(assignment: ReplicaAssignment) -> tuple[int, ...]:
    return tuple(replica for replica in assignment.replicas if replica not in assignment.adding)


def target_of(assignment: ReplicaAssignment) -> tuple[int, ...]:
    return tuple(replica for replica in assignment.replicas if replica not in assignment.removing)


def about_step(assignment: ReplicaAssignment, state: PartitionState) -> str:
    """Return an assignment and a state in words, for the log."""
    parts = [f"replicas {_ids(assignment.replicas)}"]
    parts += [f"adding {_ids(assignment.adding)}"] if assignment.adding else []
    parts += [f"removing {_ids(assignment.removing)}"] if assignment.removing else []
    leader = "no leader" if state.leader < 0 else f"leader {state.leader}"
    return ", ".join([*parts, f"{leader} of epoch {state.leader_epoch}", f"ISR {_ids(state.isr) or 'none'}"])


def _ids(brokers: Sequence[int]) -> str:
    return ",".join(map(str, brokers))


def is_reordered(before: ReplicaAssignment, after: ReplicaAssignment) -> bool:
    """Return whether only the order differs and neither moves: only the preferred leader changes."""
    return not is_moving(before) and not is_moving(after) and set(before.replicas) == set(after.replicas)


def reassigned(assignment: ReplicaAssignment, target: Sequence[int]) -> ReplicaAssignment:
    """Return the assignment on the way to the target."""
    origin, wanted = origin_of(assignment), frozenset(target)  # A client may name very many.
    replicas = tuple(dict.fromkeys((*target, *origin)))
    return ReplicaAssignment(
        replicas=replicas,
        adding=tuple(replica for replica in replicas if replica not in origin),
        removing=tuple(replica for replica in replicas if replica not in wanted),
    )


def plan(
    assignment: ReplicaAssignment, target: Sequence[int] | None, live: Collection[int], *, may_resize: bool = True
) -> ReplicaAssignment | ApiError:
    """Return the assignment that a client's request leads to; a target of None cancels the reassignment under way."""
    if target is None:
        return reassigned(assignment, origin_of(assignment)) if is_moving(assignment) else NOT_IN_PROGRESS
    if not target:
        return _invalid("Empty replica list specified in partition reassignment.")
    if len(set(target)) < len(target):
        return _invalid(f"Duplicate replica ids in partition reassignment replica list: {list(target)}")
    if any(replica < 0 for replica in target):
        return _invalid(f"Invalid broker id in replica list: {list(target)}")
    planned = reassigned(assignment, target)
    if not set(planned.adding) <= set(live):
        return _invalid(f"Replica assignment has brokers that are not alive. Replica list: {list(target)}")
    if not may_resize and len(target) != len(origin_of(assignment)):
        return ApiError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"The replication factor is changed from {len(origin_of(assignment))} to {len(target)}",
        )
    return planned


def _invalid(message: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)


def is_complete(assignment: ReplicaAssignment, state: PartitionState) -> bool:
    return set(target_of(assignment)) <= set(state.isr)


def begun_state(
    state: PartitionState, assignment: ReplicaAssignment, usable: Collection[int], controller_epoch: int
) -> PartitionState | None:
    """Return the state while the partition moves; its new leader epoch brings the assignment to every replica.

    Replicas that an earlier reassignment was adding, and that this one does not have, are out of sync at once; None if
    no other in-sync replica could lead then.
    """
    isr = tuple(replica for replica in state.isr if replica in assignment.replicas)
    leader = _leader_among(state, isr, assignment.replicas, usable)
    return None if leader is None else _with(state, leader, isr, controller_epoch)


def refused_drop(
    state: PartitionState, assignment: ReplicaAssignment, min_isr: int, broken: Collection[int] = ()
) -> ApiError | None:
    """Return why a partition with a leader must not get an assignment, where the cluster keeps eligible replicas.

    A reassignment that ends before it is complete drops the replicas that were added. If they are in sync, and fewer
    members of ISR and ELR than the minimum are left, what they have acknowledged is on fewer replicas than promised.
    ``broken``: the members that may lack acknowledged records.
    """
    members = {*state.isr, *state.elr} - set(broken)
    kept = members & set(assignment.replicas)
    if kept == members or len(kept) >= min(min_isr, len(assignment.replicas)):
        return None
    others = sorted(set(assignment.replicas) - members)
    return _invalid(
        f"Replicas that have all acknowledged records would be dropped: {sorted(members - kept)}. {sorted(kept)} would "
        f"be left, fewer than min.insync.replicas={min_isr}. Include those, or wait until more of {others} are in sync."
    )


def waiting_state(
    state: PartitionState, assignment: ReplicaAssignment, controller_epoch: int
) -> PartitionState | ApiError:
    """Return the state of a partition that has no leader, while it moves: what it waits for stays as it is.

    It moves when it has a leader. Until then it keeps every replica that may have acknowledged records.
    """
    needed = {*state.isr, *state.elr, *state.last_known_elr}
    dropped = sorted(needed - set(assignment.replicas))
    if dropped:
        return _invalid(
            f"The partition waits for a leader, and replicas that may have acknowledged records would be dropped: "
            f"{dropped}. Include them, or wait until it has a leader."
        )
    return replace(state, leader_epoch=state.leader_epoch + 1, controller_epoch=controller_epoch)


def completed_state(
    state: PartitionState, target: Sequence[int], usable: Collection[int], controller_epoch: int
) -> PartitionState | None:
    """Return the state of a partition whose new replicas are in sync; None while none of them is fit to lead."""
    isr = tuple(replica for replica in state.isr if replica in target)
    leader = _leader_among(state, isr, target, usable)
    return None if leader is None else _with(state, leader, isr, controller_epoch)


def _leader_among(
    state: PartitionState, isr: Sequence[int], replicas: Sequence[int], usable: Collection[int]
) -> int | None:
    if state.leader in isr:
        return state.leader
    return next((replica for replica in replicas if replica in isr and replica in usable), None)


def _with(state: PartitionState, leader: int, isr: tuple[int, ...], controller_epoch: int) -> PartitionState:
    return replace(
        state, leader=leader, isr=isr, leader_epoch=state.leader_epoch + 1, controller_epoch=controller_epoch
    )
