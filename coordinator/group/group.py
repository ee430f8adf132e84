"""The classic group protocol as a state machine: no clock, no socket, no log.

A group goes through *generations*. Members join (JoinGroup parks until all are there), the coordinator picks a protocol
that all support and a leader, the leader computes the assignment and hands it in (SyncGroup parks until then), and the
generation is stable until somebody joins, leaves, falls silent or changes its mind.

How it is driven. Every method takes what happened and when, and returns a ``Step``: the parked requests that are now
answered, and at most one ``Transition``, a change that must be in the log before it is true. The caller appends the
transition's image and then calls ``apply``, or ``refuse`` if the log did not take it, and does so before anything else
happens to the group. Membership itself is soft state, as in Apache Kafka: after a failover whoever is still there joins
again, and whoever is not times out. Three changes are written: an assignment (``ASSIGNED``), the last member's leaving
(``EMPTIED``) and a new process taking over a static member of a stable generation (``REPLACED``).

What holds at all times:

* Every state has a deadline that leads out of it. In PreparingRebalance the join deadline; in CompletingRebalance the
  sync deadline, which removes members that never fetch their assignment, the leader included; in Stable the members'
  sessions. A member without a session deadline has a parked request, and that state's deadline answers it.
* A parked request is answered exactly once, whatever becomes of its member or of its connection.
* Generations only grow. The leader of a generation is one of its members, and assignments come from it alone.

A reply callable is opaque here: it is handed back in a ``Step``, never called.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

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
from oncelog.coordinator.group.roster import Roster, images
from oncelog.coordinator.group.sessions import Sessions
from oncelog.coordinator.group.state import (
    TRANSITIONS,
    GroupRules,
    GroupState,
    InitialDelay,
    JoinRequest,
    Step,
    SyncRequest,
    Transition,
    TransitionKind,
)
from oncelog.coordinator.group.subscription import SubscribedTopics, Subscription
from oncelog.protocol.errors import ErrorCode

APPEND_RETRY_MS: Final = 500
"""How long an emptied group waits before it offers its record again to a log that refused it."""

MIN_JOIN_RETRY_MS: Final = 1000
"""The least time before a rebalance in which nobody rejoined is looked at again."""


class Group:
    """One group. See the module's text for how it is driven."""

    __slots__ = (
        "_initial_delay",
        "_join_deadline",
        "_pending_sync",
        "_rules",
        "_sessions",
        "_subscription",
        "_sync_deadline",
        "generation",
        "group_id",
        "pending_members",
        "persisted",
        "protocol_name",
        "protocol_type",
        "roster",
        "state",
    )

    def __init__(self, group_id: str, rules: GroupRules) -> None:
        self.group_id = group_id
        self.state = GroupState.EMPTY
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.roster = Roster()
        self.pending_members: set[str] = set()
        """Ids given out with MEMBER_ID_REQUIRED that have not come back yet."""
        self.persisted: GroupImage | None = None
        """The image in the log; None if there is no record of this group's membership."""
        self._rules = rules
        self._sessions = Sessions()
        self._pending_sync: set[str] = set()
        self._join_deadline: float | None = None
        self._sync_deadline: float | None = None
        self._initial_delay: InitialDelay | None = None
        self._subscription = Subscription()
        """That of this generation's members."""

    @staticmethod
    def from_image(group_id: str, image: GroupImage, rules: GroupRules) -> "Group":
        """The group as its record says it is, before anybody's session runs: see ``resume``."""
        group = Group(group_id, rules)
        for member in image.members:
            group.roster.add(Member.from_image(member, image.protocol_name or ""))
        if image.leader is not None and image.leader in group.roster:
            group.roster.leader = image.leader
        group.generation = image.generation
        group.protocol_type = image.protocol_type
        group.protocol_name = image.protocol_name
        group.state = GroupState.STABLE if image.members else GroupState.EMPTY
        group._subscription = group.roster.subscription(image.protocol_type, image.protocol_name)
        group.persisted = image
        return group

    def resume(self, at: Instant) -> Step:
        """A loaded group begins to live: sessions start, and one that is over the size limit rebalances."""
        step = Step()
        for member in self.roster:
            self._touch(member, at)
        if len(self.roster) > self._rules.max_size:
            self._prepare_rebalance(step, at)
        return step

    def retire(self) -> Step:
        """The group leaves this coordinator: whoever is parked must look for the next one."""
        step = Step()
        for member in self.roster:
            self.roster.answer_join(
                step, member, JoinResult(error=ErrorCode.NOT_COORDINATOR, member_id=member.member_id)
            )
            step.answer_sync(member, SyncResult(error=ErrorCode.NOT_COORDINATOR))
        self._become(GroupState.DEAD)
        return step

    # What members ask

    def join(self, request: JoinRequest, reply: JoinReply, at: Instant) -> Step:
        if not self._has_room_for(request.member_id):
            return self.turn_away(request, reply, ErrorCode.GROUP_MAX_SIZE_REACHED, at)
        step = Step()
        if not self._supports(request):
            step.refuse_join(reply, ErrorCode.INCONSISTENT_GROUP_PROTOCOL, request.member_id)
        elif request.member_id == UNKNOWN_MEMBER_ID:
            self._join_as_new_member(step, request, reply, at)
        elif request.member_id in self.pending_members and request.group_instance_id is None:
            self._admit(step, request, request.member_id, reply, at)
        else:
            self._join_as_known_member(step, request, reply, at)
        return step

    def turn_away(self, request: JoinRequest, reply: JoinReply, error: ErrorCode, at: Instant) -> Step:
        """Refuse a JoinGroup, and go on without its member."""
        step = Step()
        size = len(self.roster)
        step.refuse_join(reply, error)
        self._remove(step, request.member_id)
        self._after_removal(step, size, at)
        return step

    def sync(self, request: SyncRequest, reply: SyncReply, at: Instant) -> Step:
        step = Step()
        error = self._validate_sync(request)
        if error is not ErrorCode.NONE:
            step.syncs.append((reply, SyncResult(error=error)))
            return step
        member = self.roster[request.member_id]
        # Only the latest request of a member waits; an earlier one, given up by its client, is told to try again.
        step.answer_sync(member, SyncResult(error=ErrorCode.REBALANCE_IN_PROGRESS))
        member.sync_reply = reply
        if self.state is GroupState.STABLE:
            self._hand_out_assignment(step, member, at)
        elif member.member_id == self.roster.leader:
            step.transition = self._assigned(member, request.assignments, at)
        else:
            self._no_longer_pending_sync(member.member_id)
        return step

    def heartbeat(self, member_id: str, group_instance_id: str | None, generation: int, at: Instant) -> ErrorCode:
        error = self.validate_generation(member_id, group_instance_id, generation)
        if error is not ErrorCode.NONE:
            return error
        self.keep_alive(member_id, at)
        if self.state is GroupState.PREPARING_REBALANCE:
            return ErrorCode.REBALANCE_IN_PROGRESS
        return ErrorCode.NONE

    def leave(self, leavers: Iterable[tuple[str, str | None]], at: Instant) -> tuple[list[ErrorCode], Step]:
        """Members, by (member id, group instance id), leave together; each gets its own error code.

        An administrator may remove a static member by its instance id alone.
        """
        step = Step()
        size = len(self.roster)
        errors = [self._leave(step, member_id, group_instance_id) for member_id, group_instance_id in leavers]
        self._after_removal(step, size, at)
        return errors, step

    def expire(self, at: Instant) -> Step:
        """Do what is due: call it when ``next_deadline`` has come, or as often as you like."""
        step = Step()
        size = len(self.roster)
        self._expire_members(step, at)
        self._after_removal(step, size, at)
        if self._join_deadline is not None and self._join_deadline <= at.monotonic:
            self._on_join_deadline(step, at)
        if self._sync_deadline is not None and self._sync_deadline <= at.monotonic:
            self._on_sync_deadline(step, at)
        return step

    def next_deadline(self) -> float | None:
        """When ``expire`` has something to do, or None while nothing can run out."""
        deadlines = (self._sessions.next(), self._join_deadline, self._sync_deadline)
        return min((deadline for deadline in deadlines if deadline is not None), default=None)

    # What the log says to a transition

    def apply(self, transition: Transition, at: Instant) -> Step:
        """The transition's image is in the log."""
        step = Step()
        self.persisted = transition.image
        match transition.kind:
            case TransitionKind.ASSIGNED:
                self._apply_assignment(step, transition.image, at)
            case TransitionKind.EMPTIED:
                self._apply_emptied(transition.image)
            case TransitionKind.REPLACED:
                self._apply_replacement(step, transition, at)
        return step

    def refuse(self, transition: Transition, error: ErrorCode, at: Instant) -> Step:
        """The log did not take the image: nothing of the transition happened, and whoever asked for it is told."""
        step = Step()
        match transition.kind:
            case TransitionKind.ASSIGNED:
                step.answer_sync(self.roster[transition.member_id], SyncResult(error=error))
            case TransitionKind.EMPTIED:
                self._join_deadline = at.monotonic + APPEND_RETRY_MS / 1000
            case TransitionKind.REPLACED:
                assert transition.replacement is not None
                step.answer_join(transition.replacement, JoinResult(error=error, member_id=UNKNOWN_MEMBER_ID))
        return step

    # Checks

    def validate_generation(self, member_id: str, group_instance_id: str | None, generation: int) -> ErrorCode:
        error = self.roster.validate(member_id, group_instance_id)
        if error is ErrorCode.NONE and generation != self.generation:
            return ErrorCode.ILLEGAL_GENERATION
        return error

    def validate_offset_commit(
        self, member_id: str, group_instance_id: str | None, generation: int, *, transactional: bool
    ) -> ErrorCode:
        """Who may commit offsets: members of this generation, and anyone while there are no members.

        Transactional commits of producers older than KIP-447 name no member; their fence is the producer's epoch.
        """
        if generation < 0 and self.state is GroupState.EMPTY:
            return ErrorCode.NONE
        if generation >= 0 or member_id != UNKNOWN_MEMBER_ID or group_instance_id is not None:
            error = self.validate_generation(member_id, group_instance_id, generation)
            if error is not ErrorCode.NONE:
                return error
        elif not transactional:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if not transactional and self.state is GroupState.COMPLETING_REBALANCE:
            return ErrorCode.REBALANCE_IN_PROGRESS
        return ErrorCode.NONE

    def subscribed_topics(self) -> SubscribedTopics:
        """Read what the members of this generation subscribe to: bounded work, but work."""
        return self._subscription.read(self.protocol_type)

    def keep_alive(self, member_id: str, at: Instant) -> None:
        """The member has been heard of."""
        member = self.roster[member_id]
        if not (member.is_new and member.is_parked):
            self._touch(member, at)

    def _validate_sync(self, request: SyncRequest) -> ErrorCode:
        error = self.validate_generation(request.member_id, request.group_instance_id, request.generation)
        if error is not ErrorCode.NONE:
            return error
        if request.protocol_type not in (None, self.protocol_type):
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if request.protocol_name not in (None, self.protocol_name):
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if self.state is GroupState.PREPARING_REBALANCE:
            return ErrorCode.REBALANCE_IN_PROGRESS
        return ErrorCode.NONE

    # Joining

    def _has_room_for(self, member_id: str) -> bool:
        """While a rebalance collects members, those that wait count, so that the last to rejoin are turned away."""
        match self.state:
            case GroupState.PREPARING_REBALANCE:
                member = self.roster.get(member_id)
                if member is not None and member.join_reply is not None:
                    return True
                return self.roster.parked_joins < self._rules.max_size
            case GroupState.COMPLETING_REBALANCE | GroupState.STABLE:
                return member_id in self.roster or len(self.roster) < self._rules.max_size
            case _:
                return True

    def _supports(self, request: JoinRequest) -> bool:
        if self.state is GroupState.EMPTY:
            return bool(request.protocol_type and request.protocols)
        return request.protocol_type == self.protocol_type and self.roster.supports_any_of(request.protocols)

    def _join_as_new_member(self, step: Step, request: JoinRequest, reply: JoinReply, at: Instant) -> None:
        if request.group_instance_id is not None and request.group_instance_id in self.roster.static_ids:
            self._take_over(step, request, self.roster.static_ids[request.group_instance_id], reply, at)
        elif request.is_to_be_named:
            self.pending_members.add(request.new_member_id)
            self._sessions.set(request.new_member_id, at.monotonic + request.session_timeout_ms / 1000)
            step.refuse_join(reply, ErrorCode.MEMBER_ID_REQUIRED, request.new_member_id)
        else:
            self._admit(step, request, request.new_member_id, reply, at)

    def _admit(self, step: Step, request: JoinRequest, member_id: str, reply: JoinReply, at: Instant) -> None:
        member = request.to_member(member_id, reply)
        member.is_new = True
        self._sessions.set(member_id, at.monotonic + self._rules.new_member_join_timeout_ms / 1000)
        if self.state is GroupState.EMPTY:
            self.protocol_type = request.protocol_type
        if self._initial_delay is not None:
            self._initial_delay.has_company = True
        self.pending_members.discard(member_id)
        self.roster.add(member)
        self._rebalance(step, at)

    def _join_as_known_member(self, step: Step, request: JoinRequest, reply: JoinReply, at: Instant) -> None:
        """Who changed nothing gets the current generation again; but a leader's rejoin is a wish to reassign."""
        error = self.roster.validate(request.member_id, request.group_instance_id)
        if error is not ErrorCode.NONE:
            step.refuse_join(reply, error, request.member_id)
            return
        member = self.roster[request.member_id]
        unchanged = member.protocols == request.protocols
        match self.state:
            case GroupState.COMPLETING_REBALANCE if unchanged:
                step.joins.append((reply, self._joined(member.member_id)))
            case GroupState.STABLE if unchanged and member.member_id != self.roster.leader:
                step.joins.append((reply, self._joined(member.member_id)))
            case _:
                self._rejoin(step, request, member, reply)
                self._rebalance(step, at)

    def _rejoin(self, step: Step, request: JoinRequest, member: Member, reply: JoinReply) -> None:
        again = JoinResult(error=ErrorCode.REBALANCE_IN_PROGRESS, member_id=member.member_id)
        self.roster.answer_join(step, member, again)  # A request that its client gave up: only the latest one waits.
        self.roster.park_join(member, reply)
        self.roster.change_protocols(member, request.protocols)
        member.rebalance_timeout_ms = request.rebalance_timeout_ms
        member.session_timeout_ms = request.session_timeout_ms

    def _take_over(self, step: Step, request: JoinRequest, old_id: str, reply: JoinReply, at: Instant) -> None:
        """A static member's new process. A stable generation need not notice, unless its protocol would change."""
        old = self.roster[old_id]
        new = request.to_member(request.new_member_id, reply)
        new.assignment = old.assignment
        heirs = self.roster.with_replaced(old, new)
        if self.state is GroupState.STABLE and select_protocol(heirs) == self.protocol_name:
            step.transition = self._replaced(old, new, request.supports_skipping_assignment, at)
        else:
            self._replace(step, old, new, at)
            self._rebalance(step, at)

    def _replace(self, step: Step, old: Member, new: Member, at: Instant) -> None:
        """Whoever still waits in the old process's name is fenced."""
        self.roster.answer_join(step, old, JoinResult(error=ErrorCode.FENCED_INSTANCE_ID, member_id=old.member_id))
        step.answer_sync(old, SyncResult(error=ErrorCode.FENCED_INSTANCE_ID))
        self.roster.replace(old, new)
        self._no_longer_pending_sync(old.member_id)
        self._sessions.clear(old.member_id)
        self._touch(new, at)

    def _joined(self, member_id: str) -> JoinResult:
        assert self.protocol_name is not None
        assert self.roster.leader is not None
        return JoinResult(
            error=ErrorCode.NONE,
            member_id=member_id,
            generation=self.generation,
            protocol_type=self.protocol_type,
            protocol_name=self.protocol_name,
            leader=self.roster.leader,
            members=self.roster.infos(self.protocol_name) if member_id == self.roster.leader else (),
        )

    # Rebalancing

    def _rebalance(self, step: Step, at: Instant) -> None:
        if self.state is GroupState.PREPARING_REBALANCE:
            self._complete_join_if_all_joined(step, at)
        else:
            self._prepare_rebalance(step, at)

    def _prepare_rebalance(self, step: Step, at: Instant) -> None:
        if self.state is GroupState.COMPLETING_REBALANCE:
            self._call_off_generation(step, at)
        self._pending_sync.clear()
        self._sync_deadline = None
        was_empty = self.state is GroupState.EMPTY
        self._become(GroupState.PREPARING_REBALANCE)
        if not was_empty:
            self._join_deadline = at.monotonic + self.roster.rebalance_timeout_ms() / 1000
            self._complete_join_if_all_joined(step, at)
        elif self._rules.initial_rebalance_delay_ms == 0:
            self._complete_join(step, at)
        else:
            delay_ms = self._rules.initial_rebalance_delay_ms
            self._wait_for_company(InitialDelay(delay_ms, self.roster.rebalance_timeout_ms() - delay_ms), at)

    def _call_off_generation(self, step: Step, at: Instant) -> None:
        for member in self.roster:
            member.assignment = b""
            if member.sync_reply is not None:
                step.answer_sync(member, SyncResult(error=ErrorCode.REBALANCE_IN_PROGRESS))
                self._touch(member, at)

    def _wait_for_company(self, delay: InitialDelay, at: Instant) -> None:
        self._initial_delay = delay
        self._join_deadline = at.monotonic + delay.delay_ms / 1000

    def _on_join_deadline(self, step: Step, at: Instant) -> None:
        extended = None if self._initial_delay is None else self._initial_delay.extended()
        if extended is None:
            self._complete_join(step, at)
        else:
            self._wait_for_company(extended, at)

    def _complete_join_if_all_joined(self, step: Step, at: Instant) -> None:
        if self.state is not GroupState.PREPARING_REBALANCE or self._initial_delay is not None:
            return
        if not self.pending_members and self.roster.parked_joins == len(self.roster):
            self._complete_join(step, at)

    def _complete_join(self, step: Step, at: Instant) -> None:
        """Dynamic members that did not rejoin are out; static ones keep their place until their session ends."""
        self._initial_delay = None
        self._join_deadline = None
        for member in list(self.roster):
            if member.join_reply is None and not member.is_static:
                self._remove(step, member.member_id)
        if not self.roster:
            image = GroupImage.empty(self.protocol_type, self.generation + 1, at)
            step.transition = Transition(kind=TransitionKind.EMPTIED, image=image)
        elif self.roster.elect_leader():
            self._begin_generation(step, at)
        else:
            retry_ms = max(self.roster.rebalance_timeout_ms(), MIN_JOIN_RETRY_MS)
            self._join_deadline = at.monotonic + retry_ms / 1000

    def _begin_generation(self, step: Step, at: Instant) -> None:
        self.generation += 1
        self.protocol_name = self.roster.select_protocol()
        self._subscription = self.roster.subscription(self.protocol_type, self.protocol_name)
        self._become(GroupState.COMPLETING_REBALANCE)
        for member in self.roster:
            self.roster.answer_join(step, member, self._joined(member.member_id))
            member.is_new = False
            self._touch(member, at)
        self._pending_sync.update(self.roster.ids())
        self._sync_deadline = at.monotonic + self.roster.rebalance_timeout_ms() / 1000

    # Syncing

    def _hand_out_assignment(self, step: Step, member: Member, at: Instant) -> None:
        self._no_longer_pending_sync(member.member_id)
        result = SyncResult(
            error=ErrorCode.NONE,
            protocol_type=self.protocol_type,
            protocol_name=self.protocol_name,
            assignment=member.assignment,
        )
        step.answer_sync(member, result)
        self._touch(member, at)

    def _no_longer_pending_sync(self, member_id: str) -> None:
        self._pending_sync.discard(member_id)
        if not self._pending_sync:
            self._sync_deadline = None

    def _on_sync_deadline(self, step: Step, at: Instant) -> None:
        """Whoever has not asked for its assignment by now is gone, be it the leader for whom all others wait."""
        for member_id in self._pending_sync.copy():
            self._remove(step, member_id)
        self._prepare_rebalance(step, at)

    # Transitions: decided here, applied below

    def _assigned(self, leader: Member, assignments: dict[str, bytes], at: Instant) -> Transition:
        image = self._image(self.roster, leader.member_id, assignments, at)
        return Transition(kind=TransitionKind.ASSIGNED, image=image, member_id=leader.member_id)

    def _replaced(self, old: Member, new: Member, skip_assignment: bool, at: Instant) -> Transition:
        heirs = self.roster.with_replaced(old, new)
        leader = new.member_id if self.roster.leader == old.member_id else self.roster.leader
        return Transition(
            kind=TransitionKind.REPLACED,
            image=self._image(heirs, leader, {heir.member_id: heir.assignment for heir in heirs}, at),
            member_id=old.member_id,
            replacement=new,
            skip_assignment=skip_assignment,
        )

    def _image(
        self, members: Iterable[Member], leader: str | None, assignments: dict[str, bytes], at: Instant
    ) -> GroupImage:
        assert self.protocol_name is not None
        return GroupImage(
            protocol_type=self.protocol_type,
            generation=self.generation,
            protocol_name=self.protocol_name,
            leader=leader,
            state_timestamp_ms=at.wall_ms,
            members=images(members, self.protocol_name, assignments),
        )

    def _apply_assignment(self, step: Step, image: GroupImage, at: Instant) -> None:
        self._become(GroupState.STABLE)
        for member_image in image.members:
            member = self.roster[member_image.member_id]
            member.assignment = member_image.assignment
            if member.sync_reply is not None:
                self._hand_out_assignment(step, member, at)

    def _apply_emptied(self, image: GroupImage) -> None:
        self.generation = image.generation
        self.protocol_name = None
        self._subscription = self.roster.subscription(self.protocol_type, None)
        self._become(GroupState.EMPTY)

    def _apply_replacement(self, step: Step, transition: Transition, at: Instant) -> None:
        """Before JoinGroup 9 a replaced leader is told the old leader's id, lest it compute an assignment that a
        stable group would ignore; from 9 on it learns that it leads, and to skip the assignment (KIP-814)."""
        new = transition.replacement
        assert new is not None
        previous_leader = self.roster.leader
        assert previous_leader is not None
        self._replace(step, self.roster[transition.member_id], new, at)
        result = self._joined(new.member_id)
        if transition.skip_assignment:
            result = replace(result, skip_assignment=new.member_id == self.roster.leader)
        else:
            result = replace(result, leader=previous_leader, members=())
        self.roster.answer_join(step, new, result)

    # Leaving

    def _leave(self, step: Step, member_id: str, group_instance_id: str | None) -> ErrorCode:
        if member_id == UNKNOWN_MEMBER_ID and group_instance_id is not None:
            member_id = self.roster.static_ids.get(group_instance_id, UNKNOWN_MEMBER_ID)
        if member_id not in self.pending_members:
            error = self.roster.validate(member_id, group_instance_id)
            if error is not ErrorCode.NONE:
                return error
        self._remove(step, member_id)
        return ErrorCode.NONE

    def _expire_members(self, step: Step, at: Instant) -> None:
        for member_id in self._sessions.take_due(at.monotonic):
            member = self.roster.get(member_id)
            if member is None or member.is_new or not member.is_parked:
                self._remove(step, member_id)

    def _remove(self, step: Step, member_id: str) -> None:
        """Take a member, or an id that waits to become one, out of everything; its parked requests are answered."""
        self.pending_members.discard(member_id)
        self._sessions.clear(member_id)
        member = self.roster.pop(member_id)
        if member is not None:
            self._no_longer_pending_sync(member_id)
            step.answer_join(member, JoinResult(error=ErrorCode.UNKNOWN_MEMBER_ID, member_id=UNKNOWN_MEMBER_ID))
            step.answer_sync(member, SyncResult(error=ErrorCode.UNKNOWN_MEMBER_ID))

    def _after_removal(self, step: Step, size_before: int, at: Instant) -> None:
        """Go on without those who are gone. Ids that only waited to become members change no generation."""
        if self.state is GroupState.PREPARING_REBALANCE:
            self._complete_join_if_all_joined(step, at)
        elif len(self.roster) < size_before:
            self._prepare_rebalance(step, at)

    def _touch(self, member: Member, at: Instant) -> None:
        self._sessions.set(member.member_id, at.monotonic + member.session_timeout_ms / 1000)

    def _become(self, state: GroupState) -> None:
        assert state in TRANSITIONS[self.state], f"{self.group_id}: {self.state.value} -> {state.value}"
        self.state = state
