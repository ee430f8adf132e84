"""Any sequence of appends, elections, crashes and partitions of the network, on three replicas; and what must hold.

Checked at the instant of every acknowledgement: the record is on every member of the ISR, as its leader sees the ISR
and as the controller does (B60). Checked at the end, when everything has healed: all logs are equal, byte for byte
(B49), their high watermarks are at their ends and never were beyond (B55), and all that was acknowledged is there, in
order, once.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final

from oncelog.broker.replication.leading_partition import ACKS_ALL
from oncelog.broker.storage.log_config import LogConfig
from oncelog.broker.storage.partition_log import AppendInfo, AppendOrigin, PartitionLog
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.records.record_batch import iter_batches
from tests.simulation.replica_cluster import Member, ReplicaCluster
from tests.simulation.virtual_loop import VirtualLoop
from tests.unit.broker.batches import batch, with_header

_UNCRC: Final = 21
"""Bytes of a batch that its CRC covers begin here; base offset and epoch come before."""


class Step(Enum):
    """What may happen next."""

    APPEND = auto()
    """By every broker that believes that it leads, for all replicas or for itself."""
    APPEND_LOCAL = auto()
    ELECT = auto()
    """A member of the ISR, which may be the leader again."""
    CRASH = auto()
    RESTART = auto()
    ISOLATE = auto()
    HEAL = auto()
    SLOW_CONTROLLER = auto()
    FALLING_CONTROLLER = auto()
    """Some brokers do not hear what it decides."""
    FAST_CONTROLLER = auto()
    DELETE = auto()
    """Records below the high watermark."""
    PASS_LITTLE = auto()
    PASS_MUCH = auto()


def batches(log: PartitionLog, start_offset: int) -> dict[int, tuple[int, bytes]]:
    """(leader epoch, content) by base offset, of the batches that reach beyond an offset."""
    found = {}
    for segment in log.segments:
        data = memoryview(segment.file.read_at(segment.size, 0))
        for position, header in iter_batches(data):
            if header.last_offset >= start_offset:
                content = bytes(data[position + _UNCRC : position + header.size])
                found[header.base_offset] = header.partition_leader_epoch, content
    return found


@dataclass(slots=True)
class Acknowledged:
    """A batch that was acknowledged to acks=all."""

    base_offset: int
    content: bytes


@dataclass(slots=True)
class History:
    """One run."""

    cluster: ReplicaCluster
    rng: random.Random
    crash_kind: str
    acknowledged: list[Acknowledged] = field(default_factory=list)
    events: dict[str, int] = field(default_factory=dict)
    seen_end: int = 0
    deleted_to: int = 0
    """The furthest log start that any member ever had."""
    _values: int = 0

    async def run(self, steps: Sequence[Step]) -> None:
        await self.cluster.start()
        for step in steps:
            await self._take(step)
            self._check_offsets()
        await self._heal()
        self._check_end()

    async def _take(self, step: Step) -> None:
        cluster, controller = self.cluster, self.cluster.controller
        cluster.loop.journal.note("steps", f"step: {step.name.lower()}")
        match step:
            case Step.APPEND | Step.APPEND_LOCAL:
                for member in self._leaders():
                    member.act(self._append, member, ACKS_ALL if step is Step.APPEND else 1)
            case Step.ELECT:
                candidates = [m for m in controller.states[0].isr if cluster[m].is_up]
                if candidates:
                    controller.elect(0, self.rng.choice(candidates))
            case Step.CRASH:
                up = [member for member in cluster.members.values() if member.is_up]
                if up:
                    self._crash(self.rng.choice(up))
            case Step.RESTART:
                down = [member for member in cluster.members.values() if not member.is_up]
                if down:
                    await self._restart(self.rng.choice(down))
            case Step.ISOLATE:
                cluster.isolate(self.rng.choice(list(cluster.members)))
            case Step.HEAL:
                cluster.loop.network.heal()
            case Step.SLOW_CONTROLLER:
                controller.delay = lambda: self.rng.uniform(0.001, 2)
                controller.loses_response = lambda: self.rng.random() < 0.3
            case Step.FALLING_CONTROLLER:
                controller.loses_order = lambda: self.rng.random() < 0.4
            case Step.FAST_CONTROLLER:
                controller.delay = lambda: 0.001
                controller.loses_response = controller.loses_order = lambda: False
                controller.tell(controller.states)
            case Step.DELETE:
                for member in self._leaders():
                    member.act(self._delete, member)
            case Step.PASS_LITTLE:
                await self._pass(self.rng.uniform(0, 0.02))
            case Step.PASS_MUCH:
                await self._pass(self.rng.uniform(0.5, 5))

    async def _pass(self, seconds: float) -> None:
        end = self.cluster.loop.time() + seconds
        await self.cluster.until(lambda: self.cluster.loop.time() >= end, "time goes on", 2 * seconds + 1)

    def _leaders(self) -> list[Member]:
        """Everybody who would accept a record."""
        return [
            member
            for member in self.cluster.members.values()
            if member.is_up
            and (partition := member.replica_manager.partition(("t", 0))) is not None
            and partition.leading is not None
        ]

    def _append(self, member: Member, acks: int) -> None:
        self._values += 1
        data = batch(b"%d" % self._values, b"x" * self.rng.choice([1, 50, 400]))
        content = bytes(data[_UNCRC:])
        view, header = with_header(data)
        partition = member.partition().leading
        assert partition is not None
        info = partition.append(view, header, origin=AppendOrigin.CLIENT, required_acks=acks)
        if acks == ACKS_ALL and isinstance(info, AppendInfo):
            record = Acknowledged(info.base_offset, content)
            partition.when_acknowledged(
                info.last_offset + 1, ACKS_ALL, lambda error: self._reported(member, record, error)
            )

    def _reported(self, leader: Member, record: Acknowledged, error: ErrorCode) -> None:
        self.events[error.name] = self.events.get(error.name, 0) + 1
        if error is not ErrorCode.NONE:
            return
        self.acknowledged.append(record)
        state = self.cluster.controller.states[0]
        for broker in {*leader.in_sync(), *state.isr}:
            member = self.cluster[broker]
            if member.is_up and member.has_log():  # Others are compared at the end: a crash has closed their files.
                self._check_has(member, record)

    def _check_has(self, member: Member, record: Acknowledged) -> None:
        log = member.log()
        if record.base_offset >= log.log_start_offset:
            found = batches(log, log.log_start_offset).get(record.base_offset)
            assert found is not None, f"broker {member.broker_id} has nothing at acknowledged {record.base_offset}"
            assert found[1] == record.content, f"broker {member.broker_id} has another record at {record.base_offset}"

    def _delete(self, member: Member) -> None:
        partition = member.partition().leading
        if partition is not None and partition.log.high_watermark > 0:
            partition.delete_records(self.rng.randrange(partition.log.high_watermark + 1))

    def _crash(self, member: Member) -> None:
        member.crash(self.crash_kind, self.rng)  # type: ignore[arg-type]
        if self.rng.random() < 0.8:  # Else it is back before anybody noticed.
            self.cluster.controller.lost(member.broker_id)

    async def _restart(self, member: Member) -> None:
        await member.start()
        self.cluster.controller.returned(member.broker_id)

    def _check_offsets(self) -> None:
        for member in self.cluster.members.values():
            if member.has_log():
                log = member.log()
                assert log.log_start_offset <= log.high_watermark <= log.log_end_offset
                self.deleted_to = max(self.deleted_to, log.log_start_offset)
        self._check_seen_end()

    def _check_seen_end(self) -> None:
        """The end that consumers see does not go back over an election (B81)."""
        seen = [
            (member.partition().leader_epoch, member.log().high_watermark)
            for member in self._leaders()
            if member.partition().end_is_settled
        ]
        if seen and max(seen)[0] == self.cluster.controller.states[0].leader_epoch:
            assert max(seen)[1] >= self.seen_end, f"the end goes back from {self.seen_end} to {max(seen)[1]}"
        self.seen_end = max([self.seen_end, *(end for _, end in seen)])

    async def _heal(self) -> None:
        await self._take(Step.FAST_CONTROLLER)
        self.cluster.loop.network.heal()
        await self._pass(5)  # Letters of a slow controller arrive.
        for member in self.cluster.members.values():
            if not member.is_up:
                await self._restart(member)
        state = self.cluster.controller.states[0]
        await self.cluster.until(lambda: len(state.isr) == len(self.cluster.members), "all are in sync", 60)
        for member in self._leaders():
            member.act(self._append, member, ACKS_ALL)
        await self.cluster.until(self._is_settled, "all is replicated", 10)

    def _is_settled(self) -> bool:
        logs = [member.log() for member in self.cluster.members.values()]
        ends = {offset for log in logs for offset in (log.log_end_offset, log.high_watermark)}
        return len(ends) == 1

    def _check_end(self) -> None:
        # A start that was moved can go back with a crash: it is checkpointed now and then, as in Kafka. What comes back
        # may differ, because leader epochs below its leader's log start do not keep a follower from what it has there.
        start = self.deleted_to
        first, *others = (batches(member.log(), start) for member in self.cluster.members.values())
        for other in others:
            assert other == first, "the replicas differ"
        assert self.acknowledged, "nothing was acknowledged, not even at the end"
        for record in self.acknowledged:
            if record.base_offset >= start:
                assert first.get(record.base_offset, (0, b""))[1] == record.content, f"lost: {record.base_offset}"


def run_history(
    steps: Sequence[Step],
    seed: int,
    *,
    crash_kind: str = "process",
    log_config: LogConfig | None = None,
    prepare: Callable[[ReplicaCluster], None] = lambda cluster: None,
) -> History:
    """Run one in virtual time."""
    rng = random.Random(seed)
    loop = VirtualLoop(rng)
    loop.network.delay_seconds = (0.000_05, rng.choice([0.001, 0.02]))
    loop.network.segment_bytes = rng.choice([64 * 1024, 300])
    loop.network.stall_probability = rng.choice([0.0, 0.01])
    config = log_config or LogConfig(segment_bytes=rng.choice([600, 1 << 20]), min_insync_replicas=rng.choice([1, 2]))
    history = History(ReplicaCluster(loop, rng, log_config=config), rng, crash_kind)
    prepare(history.cluster)
    try:
        loop.run_until_complete(history.run(steps))
    finally:
        history.cluster.kill()
        loop.close()
    return history
