"""The classic group protocol as a state machine: no clock, no socket, no log.

A group goes through *generations*. Members join (JoinGroup parks until all are there), the coordinator picks a protocol
that all support and a leader, the leader computes the assignment and hands it in (SyncGroup parks until then), and the
generation is stable until a member joins, leaves, times out or changes its protocols.

How it is driven. Each event (``membership``, ``expire``) comes with its time and returns a ``Step``: responses to
parked requests, and at most one ``Transition``, a change that must be in the log before it is true. The caller appends
the transition's image and then calls ``apply``, or ``refuse`` if the log did not take it, before anything else happens
to the group. Membership itself is soft state, as in Apache Kafka: after a failover the live members rejoin, and the
others time out. Three changes are written: an assignment (``ASSIGNED``), the last member's leaving
(``EMPTIED``) and a new process taking over a static member of a stable generation (``REPLACED``).

What holds at all times:

* Every state has a deadline that leads out of it. In PreparingRebalance the join deadline; in CompletingRebalance the
  sync deadline, which removes members that never fetch their assignment, the leader included; in Stable the members'
  sessions. A member without a session deadline has a parked request, and that state's deadline ends its wait.
* A parked request gets exactly one response, whatever becomes of its member or of its connection.
* Generations only grow. The leader of a generation is one of its members, and assignments come from it alone.

A reply callable is opaque here: it is handed back in a ``Step``, never called.
"""

from dataclasses import replace
from typing import Final

from oncelog.coordinator.group.member import (
    UNKNOWN_MEMBER_ID,
    GroupImage,
    Instant,
    JoinReply,
    JoinResult,
    Member,
    SyncResult,
)
from oncelog.coordinator.group.rebalance_deadlines import RebalanceDeadlines
from oncelog.coordinator.group.roster import Roster
from oncelog.coordinator.group.sessions import Sessions
from oncelog.coordinator.group.state import (
    TRANSITIONS,
    GroupRules,
    GroupState,
    InitialDelay,
    JoinRequest,
    Step,
    Transition,
    TransitionKind,
)
from oncelog.coordinator.group.subscription import Subscription
from oncelog.protocol.errors import ErrorCode

APPEND_RETRY_MS: Final = 500
"""How long an emptied group waits before it retries a record that the log refused."""

MIN_JOIN_RETRY_MS: Final = 1000
"""The least time after which a rebalance in which no member rejoined is tried again."""


class Group:
    """One group. See the module's text for how it is driven."""

    __slots__ = (
        "deadlines",
        "generation",
        "group_id",
        "pending_members",
        "persisted",
        "protocol_name",
        "protocol_type",
        "roster",
        "rules",
        "sessions",
        "state",
        "subscription",
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
        self.rules = rules
        self.sessions = Sessions()
        self.deadlines = RebalanceDeadlines()
        self.subscription = Subscription()
        """That of this generation's members."""

    @staticmethod
    def from_image(group_id: str, image: GroupImage, rules: GroupRules) -> "Group":
        """Return the group of a record; its sessions do not run before ``resume``."""
        group = Group(group_id, rules)
        for member in image.members:
            group.roster.add(Member.from_image(member, image.protocol_name or ""))
        if image.leader is not None and image.leader in group.roster:
            group.roster.leader = image.leader
        group.generation = image.generation
        group.protocol_type = image.protocol_type
        group.protocol_name = image.protocol_name
        group.state = GroupState.STABLE if image.members else GroupState.EMPTY
        group.subscription = group.roster.subscription(image.protocol_type, image.protocol_name)
        group.persisted = image
        return group

    def resume(self, at: Instant) -> Step:
        """Start the sessions of a loaded group, and rebalance one that is over the size limit."""
        step = Step()
        for member in self.roster:
            self.sessions.touch(member, at)
        if len(self.roster) > self.rules.max_size:
            self._prepare_rebalance(step, at)
        return step

    def retire(self) -> Step:
        """End this group object: members with parked requests must find the next coordinator."""
        step = Step()
        for member in self.roster:
            self.roster.respond_to_join(
                step, member, JoinResult(error=ErrorCode.NOT_COORDINATOR, member_id=member.member_id)
            )
            step.respond_to_sync(member, SyncResult(error=ErrorCode.NOT_COORDINATOR))
        self._become(GroupState.DEAD)
        return step

    # Deadlines

    def expire(self, at: Instant) -> Step:
        """Do what is due: call it when ``next_deadline`` has come, or as often as you like."""
        step = Step()
        size = len(self.roster)
        for member_id in self.sessions.take_due(at.monotonic):
            member = self.roster.get(member_id)
            if member is None or member.is_new or not member.is_parked:
                step.expired.append(member_id)
                self.remove(step, member_id)
        self.rebalance_after_removal(step, size, at)
        if self.deadlines.join is not None and self.deadlines.join <= at.monotonic:
            if not self.deadlines.extend_delay(at):
                self._complete_join(step, at)
        if self.deadlines.sync is not None and self.deadlines.sync <= at.monotonic:
            for member_id in self.deadlines.pending_sync.copy():  # The leader, too, for which all others wait.
                step.expired.append(member_id)
                self.remove(step, member_id)
            self._prepare_rebalance(step, at)
        return step

    def next_deadline(self) -> float | None:
        """Return when ``expire`` has something to do, or None without any deadline."""
        deadlines = (self.sessions.next(), self.deadlines.join, self.deadlines.sync)
        return min((deadline for deadline in deadlines if deadline is not None), default=None)

    # Transitions, by what the log said

    def apply(self, transition: Transition, at: Instant) -> Step:
        """Apply a transition whose image is in the log."""
        step = Step()
        self.persisted = transition.image
        match transition.kind:
            case TransitionKind.ASSIGNED:
                self._apply_assignment(step, transition.image, at)
            case TransitionKind.EMPTIED:
                self.generation = transition.image.generation
                self.protocol_name = None
                self.subscription = self.roster.subscription(self.protocol_type, None)
                self._become(GroupState.EMPTY)
            case TransitionKind.REPLACED:
                self._apply_replacement(step, transition, at)
        return step

    def refuse(self, transition: Transition, error: ErrorCode, at: Instant) -> Step:
        """Drop a transition whose image the log refused, and send the error to the member that caused it."""
        step = Step()
        match transition.kind:
            case TransitionKind.ASSIGNED:
                step.respond_to_sync(self.roster[transition.member_id], SyncResult(error=error))
            case TransitionKind.EMPTIED:
                self.deadlines.await_joins(APPEND_RETRY_MS, at)
            case TransitionKind.REPLACED:
                assert transition.replacement is not None
                step.respond_to_join(transition.replacement, JoinResult(error=error, member_id=UNKNOWN_MEMBER_ID))
        return step

    # Checks

    def validate_generation(self, member_id: str, group_instance_id: str | None, generation: int) -> ErrorCode:
        """Check that a request comes from a member of the present generation."""
        error = self.roster.validate(member_id, group_instance_id)
        if error is ErrorCode.NONE and generation != self.generation:
            return ErrorCode.ILLEGAL_GENERATION
        return error

    def keep_alive(self, member_id: str, at: Instant) -> None:
        """Extend the session of a member that has sent a request."""
        member = self.roster[member_id]
        if not (member.is_new and member.is_parked):
            self.sessions.touch(member, at)

    # Joining

    def admit(self, step: Step, request: JoinRequest, member_id: str, reply: JoinReply, at: Instant) -> None:
        """Add a new member, whose JoinGroup is parked, and rebalance."""
        member = request.to_member(member_id, reply)
        member.is_new = True
        self.sessions.set(member_id, at.monotonic + self.rules.new_member_join_timeout_ms / 1000)
        if self.state is GroupState.EMPTY:
            self.protocol_type = request.protocol_type
        if self.deadlines.initial_delay is not None:
            self.deadlines.initial_delay.has_company = True
        self.pending_members.discard(member_id)
        self.roster.add(member)
        self.rebalance(step, at)

    def replace(self, step: Step, old: Member, new: Member, at: Instant) -> None:
        """Replace a static member by its new process; parked requests of the old one are fenced."""
        self.roster.respond_to_join(step, old, JoinResult(error=ErrorCode.FENCED_INSTANCE_ID, member_id=old.member_id))
        step.respond_to_sync(old, SyncResult(error=ErrorCode.FENCED_INSTANCE_ID))
        self.roster.replace(old, new)
        self.deadlines.end_sync(old.member_id)
        self.sessions.clear(old.member_id)
        self.sessions.touch(new, at)

    def joined(self, member_id: str) -> JoinResult:
        """Return the result of a JoinGroup into the present generation."""
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

    def rebalance(self, step: Step, at: Instant) -> None:
        """Begin a rebalance, or go on with the one under way."""
        if self.state is GroupState.PREPARING_REBALANCE:
            self._complete_join_if_all_joined(step, at)
        else:
            self._prepare_rebalance(step, at)

    def _prepare_rebalance(self, step: Step, at: Instant) -> None:
        if self.state is GroupState.COMPLETING_REBALANCE:
            self._call_off_generation(step, at)
        self.deadlines.end_syncs()
        was_empty = self.state is GroupState.EMPTY
        self._become(GroupState.PREPARING_REBALANCE)
        if not was_empty:
            self.deadlines.await_joins(self.roster.rebalance_timeout_ms(), at)
            self._complete_join_if_all_joined(step, at)
        elif self.rules.initial_rebalance_delay_ms == 0:
            self._complete_join(step, at)
        else:
            delay_ms = self.rules.initial_rebalance_delay_ms
            self.deadlines.delay(InitialDelay(delay_ms, self.roster.rebalance_timeout_ms() - delay_ms), at)

    def _call_off_generation(self, step: Step, at: Instant) -> None:
        for member in self.roster:
            member.assignment = b""
            if member.sync_reply is not None:
                step.respond_to_sync(member, SyncResult(error=ErrorCode.REBALANCE_IN_PROGRESS))
                self.sessions.touch(member, at)

    def _complete_join_if_all_joined(self, step: Step, at: Instant) -> None:
        if self.state is not GroupState.PREPARING_REBALANCE or self.deadlines.initial_delay is not None:
            return
        if not self.pending_members and self.roster.parked_joins == len(self.roster):
            self._complete_join(step, at)

    def _complete_join(self, step: Step, at: Instant) -> None:
        """Begin a generation. Dynamic members that did not rejoin are removed; static ones keep their session."""
        self.deadlines.end_joins()
        for member in list(self.roster):
            if member.join_reply is None and not member.is_static:
                step.expired.append(member.member_id)
                self.remove(step, member.member_id)
        if not self.roster:
            image = GroupImage.empty(self.protocol_type, self.generation + 1, at)
            step.transition = Transition(kind=TransitionKind.EMPTIED, image=image)
        elif self.roster.elect_leader():
            self._begin_generation(step, at)
        else:
            self.deadlines.await_joins(max(self.roster.rebalance_timeout_ms(), MIN_JOIN_RETRY_MS), at)

    def _begin_generation(self, step: Step, at: Instant) -> None:
        self.generation += 1
        self.protocol_name = self.roster.select_protocol()
        self.subscription = self.roster.subscription(self.protocol_type, self.protocol_name)
        self._become(GroupState.COMPLETING_REBALANCE)
        for member in self.roster:
            self.roster.respond_to_join(step, member, self.joined(member.member_id))
            member.is_new = False
            self.sessions.touch(member, at)
        self.deadlines.await_syncs(self.roster.ids(), self.roster.rebalance_timeout_ms(), at)

    # Syncing

    def hand_out_assignment(self, step: Step, member: Member, at: Instant) -> None:
        """Respond to a member's SyncGroup, and begin its session anew."""
        self.deadlines.end_sync(member.member_id)
        result = SyncResult(
            error=ErrorCode.NONE,
            protocol_type=self.protocol_type,
            protocol_name=self.protocol_name,
            assignment=member.assignment,
        )
        step.respond_to_sync(member, result)
        self.sessions.touch(member, at)

    # Transitions: decided here, applied below

    def _apply_assignment(self, step: Step, image: GroupImage, at: Instant) -> None:
        self._become(GroupState.STABLE)
        for member_image in image.members:
            member = self.roster[member_image.member_id]
            member.assignment = member_image.assignment
            if member.sync_reply is not None:
                self.hand_out_assignment(step, member, at)

    def _apply_replacement(self, step: Step, transition: Transition, at: Instant) -> None:
        """Replace a static member of a stable generation.

        Before JoinGroup 9 the response to a replaced leader names the old leader, so that it computes no assignment,
        which a stable group would ignore; from 9 on it says that it leads, and to skip the assignment (KIP-814).
        """
        new = transition.replacement
        assert new is not None
        previous_leader = self.roster.leader
        assert previous_leader is not None
        self.replace(step, self.roster[transition.member_id], new, at)
        result = self.joined(new.member_id)
        if transition.skip_assignment:
            result = replace(result, skip_assignment=new.member_id == self.roster.leader)
        else:
            result = replace(result, leader=previous_leader, members=())
        self.roster.respond_to_join(step, new, result)

    # Leaving

    def remove(self, step: Step, member_id: str) -> None:
        """Remove a member, or an id that waits to become one; its parked requests get UNKNOWN_MEMBER_ID."""
        self.pending_members.discard(member_id)
        self.sessions.clear(member_id)
        member = self.roster.pop(member_id)
        if member is not None:
            self.deadlines.end_sync(member_id)
            step.respond_to_join(member, JoinResult(error=ErrorCode.UNKNOWN_MEMBER_ID, member_id=UNKNOWN_MEMBER_ID))
            step.respond_to_sync(member, SyncResult(error=ErrorCode.UNKNOWN_MEMBER_ID))

    def rebalance_after_removal(self, step: Step, size_before: int, at: Instant) -> None:
        """Rebalance if members were removed. Ids that only waited to become members change no generation."""
        if self.state is GroupState.PREPARING_REBALANCE:
            self._complete_join_if_all_joined(step, at)
        elif len(self.roster) < size_before:
            self._prepare_rebalance(step, at)

    def _become(self, state: GroupState) -> None:
        assert state in TRANSITIONS[self.state], f"{self.group_id}: {self.state.value} -> {state.value}"
        self.state = state
