"""The faults and orders that may befall a cluster, one after the other and at the same time.

A broker may lose power, and with that whatever of its logs was not synced, only while the others have all that it has.
Then another one may die, and the third stays where it is until all have everything again: this much is promised by
``min.insync.replicas=2`` where no response waits for disks, and no more (B57). So the other one lives if a
partition has no third replica.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Final, TypeAlias

from oncelog.broker.storage.partition_log import PartitionLog
from oncelog.coordinator.controller.config_changes import (
    ConfigAlteration,
    ConfigOperation,
    ConfigResource,
    OperationType,
    ResourceType,
)
from oncelog.coordinator.controller.leader_elections import ElectionType
from oncelog.coordinator.controller.topic_plan import NewTopic
from oncelog.protocol.topic_partition import TopicPartition
from tests.simulation.cluster_shape import THREE, ClusterShape
from tests.simulation.cluster_stories import NOTICED_SECONDS, assignments, controller_epoch, state_of
from tests.simulation.control_post import KINDS, ControlPost
from tests.simulation.fault_plan import Fault, PlannedFault
from tests.simulation.harsh_faults import DamagedCopy, HarshFaults
from tests.simulation.journal import current_journal
from tests.simulation.replication_history import batches
from tests.simulation.sim_zookeeper import Direction
from tests.simulation.simulated_cluster import SESSION_SECONDS, ClusterBroker, SimulatedCluster
from tests.simulation.worn_links import WornLinks
from tests.simulation.worn_machines import WornMachines

_LOOK_SECONDS: Final = 0.1
_LOOKS_AS_IT_IS: Final = 100
_MOST_LOOKS: Final = 600
_MOST_REPEATED: Final = 20
_CUT_SECONDS: Final = 10.0
_MOST_ELECTIONS: Final = 2
"""Of one partition while a link is cut: one away from the broker that is cut off, and one by balancing."""
_FEWEST_FOR_A_MAJORITY: Final = 3
"""Brokers among which one that is cut off from another one is not half of the cluster."""
_MORE_TOPICS: Final = ("x", "y")


Progress: TypeAlias = Callable[[], Mapping[TopicPartition, int]]
_DeedToOne: TypeAlias = Callable[[ClusterBroker, random.Random], Coroutine[None, None, None]]
_DeedToAll: TypeAlias = Callable[[random.Random], Coroutine[None, None, None]]
_Deed: TypeAlias = Callable[[PlannedFault, random.Random], Coroutine[None, None, None]]


class ClusterFaults:
    """``befall``, then ``heal``."""

    def __init__(
        self,
        cluster: SimulatedCluster,
        rng: random.Random,
        progress: Progress = dict,
        *,
        shape: ClusterShape = THREE,
        power_lost: Callable[[ClusterBroker], None] = lambda broker: None,
    ) -> None:
        """``progress``: the number of acknowledged writes to each partition; ``power_lost``: called before it is."""
        self._cluster = cluster
        self._shape = shape
        self._power_lost = power_lost
        self._progress = progress
        self._rng = rng
        self._busy: set[int] = set()
        """The brokers that something is being done to, so that nothing else is."""
        self._post = ControlPost(cluster)
        self._begun: list[asyncio.Future[None]] = []
        self._damaged = DamagedCopy(cluster, self._everybody_has_everything)
        self._harsh = self._harsh_faults() if shape.harsh else None
        self._deeds: dict[Fault, _Deed] = {
            Fault.KILL: self._to_one(self._kill),
            Fault.POWER_LOSS: self._to_all(self._lose_power if self._harsh is None else self._harsh.strike),
            Fault.DISK: self._to_one(self._fail_disk),
            Fault.FULL_DISK: self._to_one(self._fill_disk),
            Fault.STALLED_DISK: self._to_one(self._stall_disk),
            Fault.RESTART: self._to_one(self._restart),
            Fault.PAUSE: self._to_one(self._pause),
            Fault.ISOLATE: self._to_all(self._isolate),
            Fault.CUT_LINK: self._to_all(self._cut_link),
            Fault.CUT_FROM_ENSEMBLE: self._to_one(self._cut_from_ensemble),
            Fault.EXPIRE: self._to_one(self._expire),
            Fault.ENSEMBLE_DOWN: self._to_all(self._ensemble_down),
            Fault.ENSEMBLE_BEHIND: self._to_one(self._fall_behind),
            Fault.UNREACHABLE: self._to_one(self._report_unreachable),
            Fault.ELECT: self._to_one(self._elect),
            Fault.REASSIGN: self._to_one(self._reassign),
            Fault.CREATE: self._to_one(self._create_topic),
            Fault.DELETE: self._to_one(self._delete_topic),
            Fault.CONFIGURE: self._to_one(self._configure_topic),
            Fault.HOLD_CONTROL: self._to_all(self._hold_control),
            Fault.REPEAT_CONTROL: self._to_all(self._repeat_control),
            Fault.MOVE_AWAY: self._to_one(self._move_away),
            Fault.HEAL: self._to_all(self._heal_network),
            **self._wear(),
        }

    def _harsh_faults(self) -> HarshFaults:
        return HarshFaults(
            self._cluster,
            busy=self._busy,
            damaged=self._damaged,
            start=self._start,
            everything_is_synced=self._shape.flushes,
        )

    def _wear(self) -> dict[Fault, _Deed]:
        async def restart(broker: ClusterBroker) -> None:
            await self._restart(broker, self._rng)

        machines, links = WornMachines(self._damaged, start=self._start, restart=restart), WornLinks(self._cluster)
        return {
            Fault.SHORT_WRITE: self._to_one(machines.shorten_write),
            Fault.SLOW_DISK: self._to_one(machines.slow_down),
            Fault.READ_ERROR: self._to_one(machines.fail_reads),
            Fault.BIT_ROT: self._to_one(machines.rot),
            Fault.LOST_END: self._to_one(machines.lose_end),
            Fault.CLOCK_SKEW: self._to_one(machines.skew_clock),
            Fault.CLOCK_JUMP: self._to_one(machines.jump_clock),
            Fault.ONE_WAY_CUT: self._to_all(links.cut_one_way),
            Fault.REFUSED_LINK: self._to_all(links.refuse),
            Fault.LATE_DELIVERY: self._to_all(links.deliver_late),
        }

    async def befall(self, plan: Sequence[PlannedFault], disturb: Callable[[], Awaitable[None]]) -> None:
        """Carry out the plan, one fault after the other; sometimes clients are disturbed, too."""
        for planned in plan:
            current_journal().note("faults", f"fault: {planned.fault.name.lower()}", str(planned))
            deed = self._deeds[planned.fault](planned, random.Random(planned.seed))
            if planned.in_background:
                self._begun.append(asyncio.ensure_future(deed))  # noqa: TID251
            else:
                await deed
            if planned.disturbs:
                await disturb()
            await asyncio.sleep(planned.pause)

    async def heal(self) -> None:
        """Everything works again, and everybody is there."""
        await asyncio.gather(*self._begun)
        self._begun.clear()
        self._post.release()
        self._cluster.loop.network.heal()
        self._cluster.ensemble.is_up = True
        for broker in self._cluster.brokers.values():
            if broker.store is not None:
                broker.cut_from_ensemble(Direction.NONE)
            self._catch_up(broker)
            await self._start(broker)

    def _to_one(self, deed: _DeedToOne) -> _Deed:
        async def do(planned: PlannedFault, rng: random.Random) -> None:
            if planned.broker_id not in self._busy:
                self._busy.add(planned.broker_id)
                await deed(self._cluster[planned.broker_id], rng)
                self._busy.discard(planned.broker_id)
            else:
                current_journal().note("faults", "fault left out: something else befalls the broker", str(planned))

        return do

    @staticmethod
    def _to_all(deed: _DeedToAll) -> _Deed:
        async def do(planned: PlannedFault, rng: random.Random) -> None:
            await deed(rng)

        return do

    # What happens to one broker

    async def _kill(self, broker: ClusterBroker, rng: random.Random) -> None:
        if broker.broker is not None:
            broker.kill()
        await asyncio.sleep(rng.choice([0.0, 0.3, 2.0]))
        await self._start(broker)

    async def _lose_power(self, rng: random.Random) -> None:
        await self._until_nothing_is_wrong()
        victims = rng.sample(list(self._cluster.brokers.values()), min(self._shape.brokers, 2))
        self._power_lost(victims[0])
        victims[0].crash("power")
        if rng.random() < 0.5 and not self._hold_all_of_a_partition({victim.broker_id for victim in victims}):
            victims[1].kill()
        for broker in victims:
            await asyncio.sleep(rng.choice([0.0, 0.3, 2.0]))
            await self._start(broker)
        await self._until_everybody_has_everything()

    def _hold_all_of_a_partition(self, broker_ids: set[int]) -> bool:
        return any(set(replicas) <= broker_ids for replicas in assignments(self._cluster).values())

    async def _until_nothing_is_wrong(self) -> None:
        await self.heal()
        await asyncio.sleep(SESSION_SECONDS)  # Whose session has ended meanwhile registers again.
        await self._until_everybody_has_everything()

    async def _until_everybody_has_everything(self) -> None:
        if await self._everybody_has_everything_within(_LOOKS_AS_IT_IS):
            return
        with self._cluster.loop.swarm.calmed():  # In a very bad world it may never be so.
            assert await self._everybody_has_everything_within(_MOST_LOOKS), "the replicas do not become equal"

    async def _everybody_has_everything_within(self, looks: int) -> bool:
        needs_all_in_sync = not self._shape.survives_any_power_loss
        for _ in range(looks):
            if self._damaged.is_repaired() if needs_all_in_sync else self._everybody_has_everything():
                return True
            await asyncio.sleep(_LOOK_SECONDS)
        return False

    def _everybody_has_everything(self) -> bool:
        expected = assignments(self._cluster)
        logs = {partition: self._logs(partition) for partition in expected}
        complete = all(len(logs[partition]) >= len(replicas) for partition, replicas in expected.items())
        return complete and all(_are_equal(replicas) for replicas in logs.values())

    def _logs(self, partition: TopicPartition) -> list[PartitionLog]:
        replicas = [broker.running.replica_manager.partition(partition) for broker in self._cluster.alive]
        return [replica.log for replica in replicas if replica is not None and replica.log is not None]

    async def _start(self, broker: ClusterBroker) -> None:
        """It may not be able to, as long as the ensemble is away; then it tries again when everything has healed."""
        if broker.broker is None:
            await broker.try_to_start()

    async def _fail_disk(self, broker: ClusterBroker, rng: random.Random) -> None:
        if broker.broker is not None and self._damaged.may_begin():
            if self._harsh is not None:
                self._damaged.begin()  # Of pages that could not be written some are lost.
            broker.disk.fail(rng.choice(["append", "sync"]), rng.choice([".log", "index", ""]))
            await asyncio.sleep(rng.choice([0.1, 1.0]))
            await self._restart(broker, rng)
            if self._harsh is not None:
                self._damaged.repair()

    async def _fill_disk(self, broker: ClusterBroker, rng: random.Random) -> None:
        """With room for a part of a write, or for none; the broker may be killed before there is room again."""
        if broker.broker is not None:
            broker.disk.fill(rng.choice([0, 1, 50, 400]))
            await asyncio.sleep(rng.choice([0.1, 2.0, 10.0]))
            if rng.random() < 0.2 and broker.broker is not None:
                broker.kill()
            broker.disk.make_room()
            await self._start(broker)

    async def _stall_disk(self, broker: ClusterBroker, rng: random.Random) -> None:
        process = broker.process
        if process is not None:
            process.stall()
            await asyncio.sleep(rng.choice([0.1, 3.0, 8.0]))
            process.resume()

    async def _restart(self, broker: ClusterBroker, rng: random.Random) -> None:
        if broker.broker is not None:
            try:
                async with asyncio.timeout(3 * SESSION_SECONDS):
                    await broker.stop()
            except (TimeoutError, OSError):  # A disk that fails may do so now.
                broker.kill()
        await self._start(broker)

    async def _pause(self, broker: ClusterBroker, rng: random.Random) -> None:
        process = broker.process
        if process is not None:
            process.pause()
            await asyncio.sleep(rng.choice([0.1, 1.0, 4.0, 1.5 * SESSION_SECONDS]))
            process.resume()

    async def _cut_from_ensemble(self, broker: ClusterBroker, rng: random.Random) -> None:
        if broker.store is not None:
            broker.cut_from_ensemble(rng.choice([Direction.TO_CLIENT, Direction.TO_ENSEMBLE, Direction.BOTH]))
            await asyncio.sleep(rng.choice([0.1, 1.0, 1.5 * SESSION_SECONDS]))
            broker.cut_from_ensemble(Direction.NONE)

    async def _fall_behind(self, broker: ClusterBroker, rng: random.Random) -> None:
        if broker.store is not None:
            self._cluster.ensemble.fall_behind(broker.store)
            await asyncio.sleep(rng.choice([0.1, 1.0, SESSION_SECONDS]))
            self._catch_up(broker)

    def _catch_up(self, broker: ClusterBroker) -> None:
        if broker.store is not None:
            self._cluster.ensemble.catch_up(broker.store)

    async def _expire(self, broker: ClusterBroker, rng: random.Random) -> None:
        if broker.store is not None and broker.store.session is not None:
            self._cluster.ensemble.expire(broker.store.session.session_id)

    async def _report_unreachable(self, broker: ClusterBroker, rng: random.Random) -> None:
        if broker.broker is not None:
            broker.broker.controller.report_unreachable(rng.choice(self._shape.broker_ids))

    async def _elect(self, broker: ClusterBroker, rng: random.Random) -> None:
        if broker.broker is not None and broker.process is not None:
            broker.process.run(self._hold_election(broker))

    async def _hold_election(self, broker: ClusterBroker) -> None:
        await broker.running.controller_apis.elect_leaders(None, ElectionType.PREFERRED)

    async def _reassign(self, broker: ClusterBroker, rng: random.Random) -> None:
        if broker.broker is not None and broker.process is not None:
            broker.process.run(self._move(broker, rng))

    async def _move(self, broker: ClusterBroker, rng: random.Random) -> None:
        partition = rng.choice(sorted(assignments(self._cluster)))
        ids, most = self._shape.broker_ids, self._shape.replication_factor
        target = rng.choice([None, rng.sample(ids, min(2, most)), rng.sample(ids, most)])
        await broker.running.controller_apis.alter_reassignments({partition: target})

    async def _create_topic(self, broker: ClusterBroker, rng: random.Random) -> None:
        if broker.broker is not None and broker.process is not None:
            topic = NewTopic(
                name=rng.choice(_MORE_TOPICS),
                partition_count=2,
                replication_factor=min(2, self._shape.replication_factor),
                configs=rng.choice([{}, self._setting(rng)]),
            )
            broker.process.run(broker.running.controller_apis.create_topics([topic]))

    async def _delete_topic(self, broker: ClusterBroker, rng: random.Random) -> None:
        if broker.broker is not None and broker.process is not None:
            name = rng.choice(_MORE_TOPICS)
            broker.process.run(broker.running.controller_apis.delete_topics([name], timeout_seconds=1.0))

    async def _configure_topic(self, broker: ClusterBroker, rng: random.Random) -> None:
        if broker.broker is not None and broker.process is not None:
            resource = ConfigResource(ResourceType.TOPIC, rng.choice(_MORE_TOPICS))
            operations = [ConfigOperation(key, OperationType.SET, value) for key, value in self._setting(rng).items()]
            alteration = ConfigAlteration(resource=resource, operations=tuple(operations))
            if broker.broker.metadata.topic_exists(resource.name):
                broker.process.run(broker.broker.configs.alter([alteration]))

    def _setting(self, rng: random.Random) -> dict[str, str]:
        return {rng.choice(["retention.ms", "segment.ms"]): str(rng.randrange(10**9, 10**10))}

    # What happens to all of them

    async def _isolate(self, rng: random.Random) -> None:
        if self._shape.brokers == 1:
            return
        one, other, *_ = rng.sample(self._shape.broker_ids, min(self._shape.brokers, 3))
        self._cluster.isolate(one, *rng.choice([(), (other,)]))
        await asyncio.sleep(rng.choice([0.1, 1.0, 5.0]))
        if rng.random() < 0.7:
            self._cluster.loop.network.heal()

    async def _hold_control(self, rng: random.Random) -> None:
        receiver, kind = rng.choice(self._shape.broker_ids), rng.choice([None, *KINDS.values()])
        self._post.wants = lambda frame: frame.receiver == receiver and kind in (None, frame.kind)
        await asyncio.sleep(rng.choice([0.5, 2.0, 4.0]))
        if rng.random() < 0.5:
            await self._change_controller(rng)
        self._post.release()

    async def _repeat_control(self, rng: random.Random) -> None:
        if rng.random() < 0.3:
            await self._change_controller(rng)
        past = list(self._post.sent)
        for frame in rng.sample(past, min(len(past), _MOST_REPEATED)):
            await self._post.deliver_again(frame)

    async def _change_controller(self, rng: random.Random) -> None:
        for broker_id in self._cluster.controllers:
            await self._expire(self._cluster[broker_id], rng)
        await asyncio.sleep(rng.choice([0.1, 1.0]))

    async def _move_away(self, broker: ClusterBroker, rng: random.Random) -> None:
        """Bring at least the partitions of one topic elsewhere."""
        others = [other for other in self._shape.broker_ids if other != broker.broker_id]
        copies = min(2, self._shape.replication_factor)  # One alone would lose with its power what is not synced.
        if len(others) < max(copies, self._shape.min_insync_replicas):
            return
        if len(others) > 2:
            others = rng.sample(others, 2)
        self._cluster.isolate(broker.broker_id)
        await asyncio.sleep(rng.choice([0.1, NOTICED_SECONDS]))
        moves = {p: others for p, replicas in assignments(self._cluster).items() if broker.broker_id in replicas}
        chosen = rng.sample(sorted(moves), min(len(moves), 3))
        for controller_id in self._cluster.controllers:
            controller = self._cluster[controller_id]
            if controller is not broker and controller.process is not None:
                targets = {partition: moves[partition] for partition in chosen}
                controller.process.run(controller.running.controller_apis.alter_reassignments(targets))
        await asyncio.sleep(rng.choice([0.5, 2.0]))
        if rng.random() < 0.7:
            await self._change_controller(rng)
        self._cluster.loop.network.heal()

    async def _cut_link(self, rng: random.Random) -> None:
        if self._shape.brokers < _FEWEST_FOR_A_MAJORITY:
            return
        await self._until_nothing_is_wrong()
        controllers, leaders = controller_epoch(self._cluster), self._leader_epochs()
        link = [f"broker {broker_id}" for broker_id in rng.sample(self._shape.broker_ids, 2)]
        for sender, receiver in rng.choice([[link], [link, link[::-1]]]):
            self._cluster.loop.network.sever(sender, receiver)
        await asyncio.sleep(_CUT_SECONDS)
        enough = self._shape.min_insync_replicas + 1
        whole = [partition for partition, replicas in assignments(self._cluster).items() if len(replicas) >= enough]
        before = self._progress()
        await asyncio.sleep(_CUT_SECONDS)
        after = self._progress()
        self._cluster.loop.network.heal()
        if self._cluster.loop.swarm.breaks_connections:
            return  # More is wrong than this link.
        stopped = [partition for partition in whole if partition in before and after[partition] == before[partition]]
        assert not stopped, f"{link} is cut, and writes to {stopped} stop"
        assert controller_epoch(self._cluster) == controllers, f"{link} is cut, and controllers change"
        raised = {p: epoch - leaders[p] for p, epoch in self._leader_epochs().items() if p in leaders}
        assert max(raised.values(), default=0) <= _MOST_ELECTIONS, f"{link} is cut, and leaders change: {raised}"

    def _leader_epochs(self) -> dict[TopicPartition, int]:
        return {partition: state_of(self._cluster, *partition).leader_epoch for partition in assignments(self._cluster)}

    async def _ensemble_down(self, rng: random.Random) -> None:
        self._cluster.ensemble.is_up = False
        await asyncio.sleep(rng.choice([0.1, 1.0, SESSION_SECONDS]))
        self._cluster.ensemble.is_up = True

    async def _heal_network(self, rng: random.Random) -> None:
        self._cluster.loop.network.heal()


def _are_equal(logs: list[PartitionLog]) -> bool:
    """Up to the furthest high watermark. Each replica is compacted, and loses old segments, at its own time."""
    end = max(log.high_watermark for log in logs)
    if any(log.log_end_offset < end for log in logs):
        return False
    if any(log.config.compacts for log in logs):
        return True
    start = max(log.log_start_offset for log in logs)
    contents = [{base: content for base, content in batches(log, start).items() if base < end} for log in logs]
    return contents.count(contents[0]) == len(contents)
