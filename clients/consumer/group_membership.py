"""The membership of a consumer in its group: joining, heartbeats, leaving. ``rebalances`` applies the assignment.

A rebalance is one task: JoinGroup, whose response comes when all members have sent theirs; the assignment of all
members, if this one was made the leader; SyncGroup, which returns its own. The task retries errors that may pass. When
the generation is lost it ends without a result, because owned partitions must be given up before the next attempt.
``poll`` starts the task and takes its result, so the assignment changes only while the application polls.

Heartbeats are sent at the same time, while this is a member, and also watch over the application: if it does not poll
for ``max_poll_interval_ms``, its member leaves, so that others take over its partitions.

::

    UNJOINED ── poll ──> PREPARING ── JoinGroup response ──> COMPLETING ── SyncGroup response ──> STABLE
       ^                     ^                                   │                                  │
       └── generation lost, left ────────────────────────────────┴───────── rejoin needed ──────────┘

The rules are those of Kafka's ``AbstractCoordinator.java``.
"""

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from oncelog.clients.background_tasks import KeptTask
from oncelog.clients.consumer.assigned_partitions import TIMER_SLACK
from oncelog.clients.consumer.consumer_config import ConsumerConfig
from oncelog.clients.consumer.consumer_errors import InstanceFenced
from oncelog.clients.consumer.coordinator_link import NO_RESPONSE, CoordinatorLink
from oncelog.clients.consumer.member_reactions import HEARTBEAT, JOIN, SYNC, Reaction, reaction
from oncelog.clients.errors import BrokerRefused, ClientError, Refusal, error_code
from oncelog.clients.runtime import ClientRuntime
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from oncelog.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from oncelog.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from oncelog.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse

_log = logging.getLogger(__name__)

PROTOCOL_TYPE: Final = "consumer"
NO_GENERATION: Final = -1
_FIRST_WITH_STATIC_MEMBERS: Final = 5
"""Of JoinGroup."""
_JOIN_GRACE_SECONDS: Final = 5.0
"""Seconds that a rebalance may end late before its response times out."""
_LONGEST_REASON: Final = 255


class MemberState(Enum):
    """The state of this member in a rebalance."""

    UNJOINED = auto()
    PREPARING = auto()
    COMPLETING = auto()
    STABLE = auto()


@dataclass(frozen=True, slots=True)
class Generation:
    """The identity of a consumer in its group: none, an id, or a member of a generation."""

    generation_id: int = NO_GENERATION
    member_id: str = ""
    protocol: str | None = None
    """The assignor that was chosen."""

    @property
    def is_lost(self) -> bool:
        return self.generation_id == NO_GENERATION


@dataclass(frozen=True, slots=True)
class Joined:
    """The result of a rebalance for this member."""

    generation: Generation
    assignment: bytes


Subscriptions = Callable[[], list[JoinGroupRequestProtocol]]
AssignMembers = Callable[[JoinGroupResponse], Awaitable[Mapping[str, bytes]]]


class GroupMembership:
    """One member. ``subscriptions`` returns its part of JoinGroup, ``assign_members`` all assignments when it leads."""

    def __init__(
        self,
        config: ConsumerConfig,
        runtime: ClientRuntime,
        link: CoordinatorLink,
        *,
        subscriptions: Subscriptions,
        assign_members: AssignMembers,
        wake: Callable[[], None],
    ) -> None:
        self._link = link
        self._config = config
        self._tasks = runtime.tasks
        self._backoff = runtime.backoff
        self._subscriptions = subscriptions
        self._assign_members = assign_members
        self._wake = wake
        self.state = MemberState.UNJOINED
        self.generation = Generation()
        self.rejoin_needed = True
        self.needs_prepare = True
        """Whether the owned partitions must be committed and revoked before joining, once for each rebalance."""
        self.failure: ClientError | None = None
        """The failure of a heartbeat that only the application can mend."""
        self.poll_deadline = math.inf
        """The time by which the application must poll again; infinite while it is polling."""
        self._reason = ""
        self._join: asyncio.Task[Joined | None] | None = None
        self._heartbeats: KeptTask | None = None

    # Joining

    @property
    def is_rebalancing(self) -> bool:
        return self.state in (MemberState.PREPARING, MemberState.COMPLETING)

    @property
    def is_joining(self) -> bool:
        """Return whether a rebalance has begun whose end has not been taken."""
        return self._join is not None

    def request_rejoin(self, reason: str) -> None:
        """Begin a rebalance with the next poll."""
        if not self.rejoin_needed:
            _log.info("group %s: rejoining: %s", self._link.group_id, reason)
        self.rejoin_needed = True
        self._reason = reason[:_LONGEST_REASON]
        self._wake()

    def start_joining(self) -> None:
        """Begin a rebalance, unless one is under way."""
        if self._join is None:
            self.state = MemberState.PREPARING
            self._join = self._tasks.spawn(self._join_group(), "rebalance", log_failure=False)
            self._join.add_done_callback(lambda _: self._wake())

    def take_joined(self) -> Joined | None:
        """Return the end of the rebalance; None before it, or if the generation was lost since.

        Raises what the application must know.
        """
        if self._join is None or not self._join.done():
            return None
        task, self._join = self._join, None
        self.needs_prepare = True
        joined = task.result()
        return joined if joined is not None and joined.generation is self.generation else None

    async def _join_group(self) -> Joined | None:
        """Join until the group has a generation. Return None if that was lost on the way."""
        attempt = 0
        while True:
            try:
                outcome = await self._attempt_to_join()
            except NO_RESPONSE as error:
                _log.info("group %s: joining is retried: %s", self._link.group_id, error)
                outcome = Reaction.RETRY
            except BrokerRefused as error:  # To say who coordinates the group.
                if not error.is_retriable:
                    raise
                outcome = Reaction.RETRY
            if isinstance(outcome, Joined):
                return outcome
            if self.state is MemberState.UNJOINED:
                return None
            self.state = MemberState.PREPARING
            self.rejoin_needed = True
            if outcome is Reaction.FIND_COORDINATOR:
                self._link.forget()
            if outcome is not Reaction.REJOIN or attempt:
                await asyncio.sleep(self._backoff.pause_seconds(attempt))
            attempt += 1

    async def _attempt_to_join(self) -> Joined | Reaction:
        response = await self._send_join()
        if self.state is not MemberState.PREPARING:
            return Reaction.REJOIN
        outcome = self._react(reaction(JOIN, error_code(response.error_code)), response.error_code, "JoinGroup")
        if response.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.generation = Generation(member_id=response.member_id)
        if outcome is not Reaction.PROCEED:
            return outcome
        if response.protocol_type not in (None, PROTOCOL_TYPE):
            raise BrokerRefused(self._subject, Refusal(error=ErrorCode.INCONSISTENT_GROUP_PROTOCOL))
        generation = Generation(response.generation_id, response.member_id, response.protocol_name)
        self.generation = generation
        self.state = MemberState.COMPLETING
        self._keep_alive()
        is_leader = response.leader == response.member_id
        assignments = await self._assign_members(response) if is_leader else {}
        if self.generation is not generation:
            return Reaction.REJOIN
        synced = await self._send_sync(generation, assignments)
        if self.generation is not generation:
            return Reaction.REJOIN
        outcome = self._react(reaction(SYNC, error_code(synced.error_code)), synced.error_code, "SyncGroup")
        if outcome is not Reaction.PROCEED:
            return outcome
        if synced.protocol_name not in (None, generation.protocol):
            raise BrokerRefused(self._subject, Refusal(error=ErrorCode.INCONSISTENT_GROUP_PROTOCOL))
        self.state = MemberState.STABLE
        self.rejoin_needed = False
        self._reason = ""
        return Joined(generation, synced.assignment)

    async def _send_join(self) -> JoinGroupResponse:
        config = self._config
        rebalance_seconds = config.max_poll_interval_ms / 1000 + _JOIN_GRACE_SECONDS
        request = JoinGroupRequest(
            group_id=self._link.group_id,
            session_timeout_ms=config.session_timeout_ms,
            rebalance_timeout_ms=config.max_poll_interval_ms,
            member_id=self.generation.member_id,
            group_instance_id=config.group_instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocols=self._subscriptions(),
            reason=self._reason,
        )
        return await self._link.send(
            request,
            JoinGroupResponse,
            at_least=0 if config.group_instance_id is None else _FIRST_WITH_STATIC_MEMBERS,
            seconds=max(config.request_timeout_ms / 1000, rebalance_seconds),
        )

    async def _send_sync(self, generation: Generation, assignments: Mapping[str, bytes]) -> SyncGroupResponse:
        request = SyncGroupRequest(
            group_id=self._link.group_id,
            generation_id=generation.generation_id,
            member_id=generation.member_id,
            group_instance_id=self._config.group_instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=generation.protocol,
            assignments=[
                SyncGroupRequestAssignment(member_id=member_id, assignment=assignment)
                for member_id, assignment in assignments.items()
            ],
        )
        rebalance_seconds = self._config.max_poll_interval_ms / 1000 + _JOIN_GRACE_SECONDS
        return await self._link.send(request, SyncGroupResponse, seconds=rebalance_seconds)

    # What responses mean for the membership

    @property
    def _subject(self) -> str:
        return f"group {self._link.group_id}"

    def _react(self, to: Reaction, error: int, api: str) -> Reaction:
        """Do what a reaction means for the membership. Raises what the application must know."""
        if to in (Reaction.REJOIN_WITHOUT_GENERATION, Reaction.REJOIN_AS_NEW, Reaction.FENCED):
            keep = to is Reaction.REJOIN_WITHOUT_GENERATION
            self.lose_generation(f"{api} returned {error_code(error).name}", keep_member_id=keep)
        if to is Reaction.FENCED:
            raise self.fenced()
        if to is Reaction.FAIL:
            raise BrokerRefused(self._subject, Refusal(error=error_code(error)))
        return to

    def fenced(self) -> InstanceFenced:
        """End this member. Return the exception that every poll and commit raises from now on."""
        self.failure = InstanceFenced(f"{self._config.group_instance_id} has joined {self._subject} a second time")
        self._wake()
        return self.failure

    def lose_generation(self, reason: str, *, keep_member_id: bool) -> None:
        """End the membership in this generation. Owned partitions are lost; the next poll reports that and joins."""
        self.state = MemberState.UNJOINED
        self.generation = Generation(member_id=self.generation.member_id if keep_member_id else "")
        self.needs_prepare = True
        self.request_rejoin(reason)

    def raise_failure(self) -> None:
        """Raise what a heartbeat found: being fenced every time, anything else once."""
        failure = self.failure
        if isinstance(failure, InstanceFenced):
            raise InstanceFenced(*failure.args)
        if failure is not None:
            self.failure = None
            raise failure

    # Heartbeats

    def _keep_alive(self) -> None:
        if self._heartbeats is None or self._heartbeats.has_ended:
            self._heartbeats = self._tasks.keep_running(self._beat, "heartbeats")

    async def _beat(self) -> None:
        """Send heartbeats while this is a member."""
        loop = asyncio.get_running_loop()
        interval = self._config.effective_heartbeat_interval_ms / 1000
        last_success = loop.time()
        attempt, pause = 0, interval
        while True:
            await asyncio.sleep(max(0.0, min(pause, self.poll_deadline - loop.time())) if self._is_member else interval)
            if not self._is_member:
                if not self.is_joining:
                    return
                last_success = loop.time()
                continue
            if loop.time() >= self.poll_deadline - TIMER_SLACK:
                await self.leave("the application has not polled for max_poll_interval_ms")
                return
            if await self._is_alive():
                last_success, attempt, pause = loop.time(), 0, interval
                continue
            pause = self._backoff.pause_seconds(attempt)
            attempt += 1
            if loop.time() - last_success >= self._config.session_timeout_ms / 1000:
                self._link.forget()

    @property
    def _is_member(self) -> bool:
        return self.state in (MemberState.COMPLETING, MemberState.STABLE)

    async def _is_alive(self) -> bool:
        """Return whether a heartbeat succeeded. A failure that only the application can mend is kept for it."""
        try:
            return await self._heartbeat()
        except ClientError as error:
            if not error.is_retriable:
                self.failure = error
                self._wake()
        return False

    async def _heartbeat(self) -> bool:
        sent = self.generation
        request = HeartbeatRequest(
            group_id=self._link.group_id,
            generation_id=sent.generation_id,
            member_id=sent.member_id,
            group_instance_id=self._config.group_instance_id,
        )
        seconds = min(self._config.session_timeout_ms, self._config.request_timeout_ms) / 1000
        response = await self._link.send(request, HeartbeatResponse, seconds=seconds)
        if self.generation is not sent:
            return True  # It is about an earlier generation.
        to = reaction(HEARTBEAT, error_code(response.error_code))
        if to is Reaction.REJOIN:
            if self.state is MemberState.STABLE:
                self.request_rejoin("the group is being rebalanced")
            return True
        if to is Reaction.FIND_COORDINATOR:
            self._link.forget()
        return self._react(to, response.error_code, "Heartbeat") is Reaction.PROCEED

    # Leaving

    async def leave(self, reason: str) -> None:
        """End the membership, and send LeaveGroup unless this is a static member, which is expected back.

        Ignores the response: without a request the coordinator removes the member after its session timeout.
        """
        left, was_joining = self.generation, self._join is not None
        sends_leave = (
            self.state is not MemberState.UNJOINED and left.member_id and self._config.group_instance_id is None
        )
        if self._join is not None:
            self._join.cancel()
            self._join = None
        self.lose_generation(reason, keep_member_id=False)
        if not sends_leave:
            return
        if was_joining:
            self._link.hang_up()  # A response to LeaveGroup would come behind that to JoinGroup.
        request = LeaveGroupRequest(
            group_id=self._link.group_id,
            member_id=left.member_id,
            members=[MemberIdentity(member_id=left.member_id, reason=reason[:_LONGEST_REASON])],
        )
        try:
            await self._link.send(request, LeaveGroupResponse)
        except ClientError as error:
            _log.info("group %s: leaving failed: %s", self._link.group_id, error)
