"""The requests of members to their group: JoinGroup, SyncGroup, Heartbeat, LeaveGroup, and who may commit.

Each function decides on one group in one step and changes it; what follows is in the ``Step`` that it returns
(``group``). A SyncGroup of the leader, and a static member that takes over in a stable generation, change nothing
before their ``Transition`` is in the log.
"""

from collections.abc import Iterable

from oncelog.coordinator.group.group import Group
from oncelog.coordinator.group.member import (
    UNKNOWN_MEMBER_ID,
    GroupImage,
    Instant,
    JoinReply,
    JoinResult,
    Member,
    SyncReply,
    SyncResult,
    select_protocol,
)
from oncelog.coordinator.group.roster import images
from oncelog.coordinator.group.state import GroupState, JoinRequest, Step, SyncRequest, Transition, TransitionKind
from oncelog.protocol.errors import ErrorCode

# JoinGroup


def join(group: Group, request: JoinRequest, reply: JoinReply, at: Instant) -> Step:
    """Decide a JoinGroup: it is parked until the next generation begins, or gets its response in this step."""
    if not _has_room_for(group, request.member_id):
        return turn_away(group, request, reply, ErrorCode.GROUP_MAX_SIZE_REACHED, at)
    step = Step()
    if not _supports(group, request):
        step.refuse_join(reply, ErrorCode.INCONSISTENT_GROUP_PROTOCOL, request.member_id)
    elif request.member_id == UNKNOWN_MEMBER_ID:
        _join_as_new_member(group, step, request, reply, at)
    elif request.member_id in group.pending_members and request.group_instance_id is None:
        group.admit(step, request, request.member_id, reply, at)
    else:
        _join_as_known_member(group, step, request, reply, at)
    return step


def turn_away(group: Group, request: JoinRequest, reply: JoinReply, error: ErrorCode, at: Instant) -> Step:
    """Refuse a JoinGroup, and go on without its member."""
    step = Step()
    size = len(group.roster)
    step.refuse_join(reply, error)
    group.remove(step, request.member_id)
    group.rebalance_after_removal(step, size, at)
    return step


def _has_room_for(group: Group, member_id: str) -> bool:
    """Return whether the size limit admits a member. In a rebalance only the parked members count."""
    match group.state:
        case GroupState.PREPARING_REBALANCE:
            member = group.roster.get(member_id)
            if member is not None and member.join_reply is not None:
                return True
            return group.roster.parked_joins < group.rules.max_size
        case GroupState.COMPLETING_REBALANCE | GroupState.STABLE:
            return member_id in group.roster or len(group.roster) < group.rules.max_size
        case _:
            return True


def _supports(group: Group, request: JoinRequest) -> bool:
    if group.state is GroupState.EMPTY:
        return bool(request.protocol_type and request.protocols)
    return request.protocol_type == group.protocol_type and group.roster.supports_any_of(request.protocols)


def _join_as_new_member(group: Group, step: Step, request: JoinRequest, reply: JoinReply, at: Instant) -> None:
    if request.group_instance_id is not None and request.group_instance_id in group.roster.static_ids:
        _take_over(group, step, request, group.roster.static_ids[request.group_instance_id], reply, at)
    elif request.is_to_be_named:
        group.pending_members.add(request.new_member_id)
        group.sessions.set(request.new_member_id, at.monotonic + request.session_timeout_ms / 1000)
        step.refuse_join(reply, ErrorCode.MEMBER_ID_REQUIRED, request.new_member_id)
    else:
        group.admit(step, request, request.new_member_id, reply, at)


def _join_as_known_member(group: Group, step: Step, request: JoinRequest, reply: JoinReply, at: Instant) -> None:
    """Repeat the current generation to a member that changed nothing; but a leader's rejoin asks to reassign."""
    error = group.roster.validate(request.member_id, request.group_instance_id)
    if error is not ErrorCode.NONE:
        step.refuse_join(reply, error, request.member_id)
        return
    member = group.roster[request.member_id]
    unchanged = member.protocols == request.protocols
    match group.state:
        case GroupState.COMPLETING_REBALANCE if unchanged:
            step.joins.append((reply, group.joined(member.member_id)))
        case GroupState.STABLE if unchanged and member.member_id != group.roster.leader:
            step.joins.append((reply, group.joined(member.member_id)))
        case _:
            _rejoin(group, step, request, member, reply)
            group.rebalance(step, at)


def _rejoin(group: Group, step: Step, request: JoinRequest, member: Member, reply: JoinReply) -> None:
    again = JoinResult(error=ErrorCode.REBALANCE_IN_PROGRESS, member_id=member.member_id)
    group.roster.respond_to_join(step, member, again)  # A request that its client gave up: only the latest one waits.
    group.roster.park_join(member, reply)
    group.roster.change_protocols(member, request.protocols)
    member.rebalance_timeout_ms = request.rebalance_timeout_ms
    member.session_timeout_ms = request.session_timeout_ms


def _take_over(group: Group, step: Step, request: JoinRequest, old_id: str, reply: JoinReply, at: Instant) -> None:
    """Replace a static member by its new process; a stable generation goes on, unless its protocol would change."""
    old = group.roster[old_id]
    new = request.to_member(request.new_member_id, reply)
    new.assignment = old.assignment
    heirs = group.roster.with_replaced(old, new)
    if group.state is GroupState.STABLE and select_protocol(heirs) == group.protocol_name:
        step.transition = _replaced(group, old, new, request.supports_skipping_assignment, at)
    else:
        group.replace(step, old, new, at)
        group.rebalance(step, at)


def _replaced(group: Group, old: Member, new: Member, skip_assignment: bool, at: Instant) -> Transition:
    heirs = group.roster.with_replaced(old, new)
    leader = new.member_id if group.roster.leader == old.member_id else group.roster.leader
    return Transition(
        kind=TransitionKind.REPLACED,
        image=_image(group, heirs, leader, {heir.member_id: heir.assignment for heir in heirs}, at),
        member_id=old.member_id,
        replacement=new,
        skip_assignment=skip_assignment,
    )


# SyncGroup


def sync(group: Group, request: SyncRequest, reply: SyncReply, at: Instant) -> Step:
    """Decide a SyncGroup: it is parked until the leader hands in the assignment, or gets its response in this step."""
    step = Step()
    error = _validate_sync(group, request)
    if error is not ErrorCode.NONE:
        step.syncs.append((reply, SyncResult(error=error)))
        return step
    member = group.roster[request.member_id]
    # Only the latest request of a member waits; an earlier one, given up by its client, is to be retried.
    step.respond_to_sync(member, SyncResult(error=ErrorCode.REBALANCE_IN_PROGRESS))
    member.sync_reply = reply
    if group.state is GroupState.STABLE:
        group.hand_out_assignment(step, member, at)
    elif member.member_id == group.roster.leader:
        step.transition = _assigned(group, member, request.assignments, at)
    else:
        group.deadlines.end_sync(member.member_id)
    return step


def _validate_sync(group: Group, request: SyncRequest) -> ErrorCode:
    error = group.validate_generation(request.member_id, request.group_instance_id, request.generation)
    if error is not ErrorCode.NONE:
        return error
    if request.protocol_type not in (None, group.protocol_type):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if request.protocol_name not in (None, group.protocol_name):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if group.state is GroupState.PREPARING_REBALANCE:
        return ErrorCode.REBALANCE_IN_PROGRESS
    return ErrorCode.NONE


def _assigned(group: Group, leader: Member, assignments: dict[str, bytes], at: Instant) -> Transition:
    image = _image(group, group.roster, leader.member_id, assignments, at)
    return Transition(kind=TransitionKind.ASSIGNED, image=image, member_id=leader.member_id)


def _image(
    group: Group, members: Iterable[Member], leader: str | None, assignments: dict[str, bytes], at: Instant
) -> GroupImage:
    assert group.protocol_name is not None
    return GroupImage(
        protocol_type=group.protocol_type,
        generation=group.generation,
        protocol_name=group.protocol_name,
        leader=leader,
        state_timestamp_ms=at.wall_ms,
        members=images(members, group.protocol_name, assignments),
    )


# Heartbeat


def heartbeat(group: Group, member_id: str, group_instance_id: str | None, generation: int, at: Instant) -> ErrorCode:
    """Extend a member's session; REBALANCE_IN_PROGRESS while it must rejoin."""
    error = group.validate_generation(member_id, group_instance_id, generation)
    if error is not ErrorCode.NONE:
        return error
    group.keep_alive(member_id, at)
    if group.state is GroupState.PREPARING_REBALANCE:
        return ErrorCode.REBALANCE_IN_PROGRESS
    return ErrorCode.NONE


# LeaveGroup


def leave(group: Group, leavers: Iterable[tuple[str, str | None]], at: Instant) -> tuple[list[ErrorCode], Step]:
    """Remove members, by (member id, group instance id), together; each gets its own error code.

    An administrator may remove a static member by its instance id alone.
    """
    step = Step()
    size = len(group.roster)
    errors = [_leave(group, step, member_id, group_instance_id) for member_id, group_instance_id in leavers]
    group.rebalance_after_removal(step, size, at)
    return errors, step


def _leave(group: Group, step: Step, member_id: str, group_instance_id: str | None) -> ErrorCode:
    if member_id == UNKNOWN_MEMBER_ID and group_instance_id is not None:
        member_id = group.roster.static_ids.get(group_instance_id, UNKNOWN_MEMBER_ID)
    if member_id not in group.pending_members:
        error = group.roster.validate(member_id, group_instance_id)
        if error is not ErrorCode.NONE:
            return error
    group.remove(step, member_id)
    return ErrorCode.NONE


# OffsetCommit, TxnOffsetCommit


def validate_offset_commit(
    group: Group, member_id: str, group_instance_id: str | None, generation: int, *, transactional: bool
) -> ErrorCode:
    """Allow commits of members of this generation, and of any client while the group has no members.

    Transactional commits of producers older than KIP-447 name no member; their fence is the producer's epoch.
    """
    if generation < 0 and group.state is GroupState.EMPTY:
        return ErrorCode.NONE
    if generation >= 0 or member_id != UNKNOWN_MEMBER_ID or group_instance_id is not None:
        error = group.validate_generation(member_id, group_instance_id, generation)
        if error is not ErrorCode.NONE:
            return error
    elif not transactional:
        return ErrorCode.UNKNOWN_MEMBER_ID
    if not transactional and group.state is GroupState.COMPLETING_REBALANCE:
        return ErrorCode.REBALANCE_IN_PROGRESS
    return ErrorCode.NONE
