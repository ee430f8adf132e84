"""What holds in a group whatever its members do, in whatever order, and whenever its log refuses to be written."""

from dataclasses import dataclass, field

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from oncelog.coordinator.group.group import Group
from oncelog.coordinator.group.member import JoinResult, SyncResult
from oncelog.coordinator.group.state import GroupRules, GroupState
from oncelog.protocol.errors import ErrorCode
from tests.unit.coordinator.group.group_driver import Call, Driver

INSTANCES = (None, None, "a", "b", "a")
"""Of the five processes that there are; two of them believe that they are the same static member."""

PROCESS = st.integers(0, len(INSTANCES) - 1)
PROTOCOLS = st.sampled_from([("range",), ("range",), ("range", "sticky"), ("sticky", "range")])
VERSIONS = st.sampled_from([3, 4, 9])
SECONDS = st.sampled_from([0.1, 3.0, 9.0, 11.0, 31.0])
LOST = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID)


@dataclass
class Process:
    """A consumer. It knows what its last answers told it, until it restarts."""

    instance: str | None
    member_id: str = ""
    generation: int = -1
    joins: list[Call[JoinResult]] = field(default_factory=list)
    syncs: list[tuple[int, str, Call[SyncResult]]] = field(default_factory=list)

    def learn(self) -> None:
        """Read the response to the last JoinGroup."""
        if not self.joins or self.joins[-1].is_parked:
            return
        result = self.joins[-1].result
        self.member_id = result.member_id
        if result.error is ErrorCode.NONE:
            self.generation = result.generation

    def forget(self) -> None:
        self.joins, self.member_id, self.generation = [], "", -1


class GroupMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.processes = [Process(instance) for instance in INSTANCES]
        self.calls: list[Call[JoinResult] | Call[SyncResult]] = []
        self.handed_in: dict[int, dict[str, bytes]] = {}
        self.leaders: dict[int, str] = {}
        self.generation = 0

    @initialize(delay_ms=st.sampled_from([0, 3000]), max_size=st.sampled_from([2, 4, 9]))
    def configure(self, delay_ms: int, max_size: int) -> None:
        self.driver = Driver(
            rules=GroupRules(initial_rebalance_delay_ms=delay_ms, max_size=max_size, new_member_join_timeout_ms=60_000)
        )

    # What processes do

    @rule(index=PROCESS, protocols=PROTOCOLS, version=VERSIONS)
    def join(self, index: int, protocols: tuple[str, ...], version: int) -> None:
        process = self.processes[index]
        process.learn()
        call = self.driver.join(process.member_id, instance=process.instance, protocols=protocols, version=version)
        process.joins.append(call)
        self.calls.append(call)
        process.learn()
        if not call.is_parked and call.result.error is ErrorCode.MEMBER_ID_REQUIRED:
            self.join(index, protocols, version)

    @rule(version=VERSIONS)
    def all_join(self, version: int) -> None:
        for index in range(len(INSTANCES)):
            self.join(index, ("range",), version)

    @rule(version=VERSIONS)
    def begin_generation(self, version: int) -> None:
        self.all_join(version)
        self.driver.pass_time(3)
        self.all_join(version)

    @rule(index=PROCESS)
    def sync(self, index: int) -> None:
        process = self.processes[index]
        process.learn()
        generation, member_id = process.generation, process.member_id
        proposal = {m: f"{generation}/{m}/{len(self.calls)}".encode() for m in self.driver.group.roster.ids()}
        before = len(self.driver.log)
        call = self.driver.sync(member_id, proposal, generation=generation, instance=process.instance)
        process.syncs.append((generation, member_id, call))
        self.calls.append(call)
        if len(self.driver.log) > before:
            assert self.leaders[generation] == member_id, "only the leader's assignment is written"
            assert generation not in self.handed_in, "and only once"
            self.handed_in[generation] = proposal

    @rule()
    def all_sync(self) -> None:
        for index in range(len(INSTANCES)):
            self.sync(index)

    @rule(index=PROCESS)
    def heartbeat(self, index: int) -> None:
        process = self.processes[index]
        process.learn()
        error = self.driver.heartbeat(process.member_id, generation=process.generation, instance=process.instance)
        if error in LOST:
            process.forget()

    @rule(index=PROCESS, by_instance=st.booleans())
    def leave(self, index: int, by_instance: bool) -> None:
        process = self.processes[index]
        process.learn()
        named = "" if by_instance and process.instance else process.member_id
        if self.driver.leave((named, process.instance)) == [ErrorCode.NONE]:
            process.forget()

    # What happens to them

    @rule(index=PROCESS)
    def restart(self, index: int) -> None:
        self.processes[index].forget()

    @rule(seconds=SECONDS)
    def pass_time(self, seconds: float) -> None:
        self.driver.pass_time(seconds)

    @rule(trouble=st.sampled_from(["log refuses", "log accepts", "fail over"]))
    def trouble(self, trouble: str) -> None:
        match trouble:
            case "log refuses":
                self.driver.refusal = ErrorCode.COORDINATOR_NOT_AVAILABLE
            case "log accepts":
                self.driver.refusal = None
            case _:
                self.fail_over()

    def fail_over(self) -> None:
        """Another broker loads the group from its last record; generations that were never written are lost."""
        driver = self.driver
        image = driver.group.persisted
        driver.carry_out(driver.group.retire())
        driver.group = Group("g", driver.rules) if image is None else Group.from_image("g", image, driver.rules)
        driver.carry_out(driver.group.resume(driver.at))
        self.generation = driver.group.generation
        self.leaders = {g: leader for g, leader in self.leaders.items() if g <= self.generation}

    # What holds

    @invariant()
    def every_request_has_at_most_one_response(self) -> None:
        assert all(len(call.results) <= 1 for call in self.calls)

    @invariant()
    def generations_only_grow(self) -> None:
        assert self.driver.group.generation >= self.generation
        self.generation = self.driver.group.generation

    @invariant()
    def a_generation_has_one_leader_and_it_is_a_member(self) -> None:
        group = self.driver.group
        roster = group.roster
        assert (roster.leader is None) == (len(roster) == 0)
        assert roster.leader is None or roster.leader in roster
        if group.state is GroupState.COMPLETING_REBALANCE:
            assert roster.leader is not None
            assert self.leaders.setdefault(group.generation, roster.leader) == roster.leader
        for call in (call for process in self.processes for call in process.joins):
            if not call.is_parked and call.result.error is ErrorCode.NONE:
                assert bool(call.result.members) == (call.result.leader == call.result.member_id)

    @invariant()
    def assignments_come_from_the_leader_of_their_generation(self) -> None:
        for generation, member_id, call in (sync for process in self.processes for sync in process.syncs):
            if not call.is_parked and call.result.error is ErrorCode.NONE:
                proposal = self.handed_in[generation]
                # A static member's new process has what the old one was given, under its old id.
                allowed = {proposal[member_id]} if member_id in proposal else {b"", *proposal.values()}
                assert call.result.assignment in allowed

    @invariant()
    def static_ids_name_exactly_the_static_members(self) -> None:
        """B73"""
        roster = self.driver.group.roster
        assert roster.static_ids == {m.group_instance_id: m.member_id for m in roster if m.group_instance_id}

    @invariant()
    def a_stable_group_is_what_its_record_says(self) -> None:
        group = self.driver.group
        if group.state is GroupState.STABLE:
            assert group.persisted is not None
            loaded = Group.from_image("g", group.persisted, self.driver.rules)
            assert loaded.generation == group.generation
            assert loaded.roster.leader == group.roster.leader
            assert [(m.member_id, m.assignment) for m in loaded.roster] == [
                (m.member_id, m.assignment) for m in group.roster
            ]

    @invariant()
    def an_unstable_group_has_a_deadline(self) -> None:
        """B68"""
        group = self.driver.group
        if group.state in (GroupState.PREPARING_REBALANCE, GroupState.COMPLETING_REBALANCE):
            assert group.next_deadline() is not None

    def teardown(self) -> None:
        """B68: a parked member gets its response in bounded time, though all others do nothing but heartbeat."""
        if not hasattr(self, "driver"):
            return
        self.driver.refusal = None
        for _ in range(60):
            self.driver.pass_time(3)
            for index in range(len(INSTANCES)):
                self.heartbeat(index)
        assert all(len(call.results) == 1 for call in self.calls)
        self.driver.pass_time(100)
        assert self.driver.state is GroupState.EMPTY
        assert not self.driver.group.pending_members


TestGroup = GroupMachine.TestCase
TestGroup.settings = settings(
    max_examples=200, stateful_step_count=30, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
