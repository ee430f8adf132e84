"""Drives one ``Group`` as its shard does: carries out its steps against a log that is a list, in made-up time."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from oncelog.coordinator.group import membership
from oncelog.coordinator.group.group import Group
from oncelog.coordinator.group.member import GroupImage, GroupProtocol, Instant, JoinResult, SyncResult
from oncelog.coordinator.group.state import GroupRules, GroupState, JoinRequest, Step, SyncRequest
from oncelog.protocol.errors import ErrorCode

SESSION_MS = 10_000
REBALANCE_MS = 30_000
NO_DELAY = GroupRules(initial_rebalance_delay_ms=0)


R = TypeVar("R")


@dataclass
class Call(Generic[R]):
    """One request of a member, and every response that it got."""

    results: list[R] = field(default_factory=list)

    @property
    def is_parked(self) -> bool:
        return not self.results

    @property
    def result(self) -> R:
        (result,) = self.results
        return result


@dataclass
class Driver:
    """A group, its time and its log."""

    rules: GroupRules = NO_DELAY
    group: Group = None  # type: ignore[assignment]
    log: list[GroupImage] = field(default_factory=list)
    refusal: ErrorCode | None = None
    """What the log says instead of taking a record."""
    now: float = 1000.0
    named: int = 0

    def __post_init__(self) -> None:
        if self.group is None:
            self.group = Group("g", self.rules)

    @property
    def at(self) -> Instant:
        return Instant(self.now, int(self.now * 1000))

    @property
    def state(self) -> GroupState:
        return self.group.state

    def carry_out(self, step: Step) -> None:
        self._respond(step)
        if step.transition is None:
            return
        if self.refusal is not None:
            self._respond(self.group.refuse(step.transition, self.refusal, self.at))
        else:
            self.log.append(step.transition.image)
            self._respond(self.group.apply(step.transition, self.at))

    def _respond(self, step: Step) -> None:
        for join_reply, joined in step.joins:
            join_reply(joined)
        for sync_reply, synced in step.syncs:
            sync_reply(synced)

    def join(
        self,
        member_id: str = "",
        *,
        instance: str | None = None,
        protocols: Sequence[str | tuple[str, bytes]] = ("range",),
        protocol_type: str = "consumer",
        session_ms: int = SESSION_MS,
        rebalance_ms: int = REBALANCE_MS,
        version: int = 3,
    ) -> "Call[JoinResult]":
        """A JoinGroup. By default of a version that lets new members in at once."""
        self.named += 1
        offered = [(name, b"") if isinstance(name, str) else name for name in protocols]
        request = JoinRequest(
            member_id=member_id,
            new_member_id=f"m{self.named}",
            group_instance_id=instance,
            client_id="client",
            client_host="/127.0.0.1",
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=rebalance_ms,
            protocol_type=protocol_type,
            protocols=tuple(GroupProtocol(name, metadata) for name, metadata in offered),
            requires_known_member_id=version >= 4,
            supports_skipping_assignment=version >= 9,
        )
        call: Call[JoinResult] = Call()
        self.carry_out(membership.join(self.group, request, call.results.append, self.at))
        return call

    def sync(
        self,
        member_id: str,
        assignments: dict[str, bytes] | None = None,
        *,
        generation: int | None = None,
        instance: str | None = None,
        protocol_type: str | None = None,
        protocol_name: str | None = None,
    ) -> "Call[SyncResult]":
        request = SyncRequest(
            member_id=member_id,
            group_instance_id=instance,
            generation=self.group.generation if generation is None else generation,
            protocol_type=protocol_type,
            protocol_name=protocol_name,
            assignments=assignments or {},
        )
        call: Call[SyncResult] = Call()
        self.carry_out(membership.sync(self.group, request, call.results.append, self.at))
        return call

    def heartbeat(self, member_id: str, *, generation: int | None = None, instance: str | None = None) -> ErrorCode:
        known = self.group.generation if generation is None else generation
        return membership.heartbeat(self.group, member_id, instance, known, self.at)

    def leave(self, *leavers: tuple[str, str | None]) -> list[ErrorCode]:
        errors, step = membership.leave(self.group, leavers, self.at)
        self.carry_out(step)
        return errors

    def pass_time(self, seconds: float) -> None:
        """Let time pass as a loop would: every deadline on the way is served when it comes."""
        end = self.now + seconds
        while (deadline := self.group.next_deadline()) is not None and deadline <= end:
            self.now = max(self.now, deadline)
            self.carry_out(self.group.expire(self.at))
        self.now = end

    # Whole chapters

    def stable(self, size: int = 2, *, instances: Sequence[str | None] | None = None) -> list[str]:
        """A stable group of ``size`` members; the first of them leads. Member n is assigned ``b"n"``."""
        names = instances or [None] * size
        first = self.join(instance=names[0])
        calls = [first]
        for name in names[1:]:
            calls.append(self.join(instance=name))
        if len(names) > 1:
            leader = first.result.member_id
            calls[0] = self.join(leader, instance=names[0])
        ids = [call.result.member_id for call in calls]
        syncs = [self.sync(member_id, instance=name) for member_id, name in zip(ids[1:], names[1:], strict=True)]
        syncs.append(self.sync(ids[0], {m: str(n).encode() for n, m in enumerate(ids)}, instance=names[0]))
        assert all(sync.result.error is ErrorCode.NONE for sync in syncs)
        assert self.state is GroupState.STABLE
        return ids
