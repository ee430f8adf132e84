"""The faults that strike disks: one that is full, and one that stands still."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from oncelog.protocol.topic_partition import TopicPartition
from tests.faults.cluster_under_test import OrderFailed
from tests.faults.deeds import Choose, controller, follower, partition_leader, some_partition
from tests.faults.fault import Fault, Scene

FULL_SECONDS: Final = (15.0, 40.0)
"""The longest is longer than a follower may lag (``replica.lag.time.max.ms``)."""
STALL_SECONDS: Final = (3.0, 3.0)
_IN_SYNC_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True)
class FullDisk:
    """The disk of whoever has a role is full for a while. It must come back by itself."""

    role: str
    choose: Choose
    hold_seconds: tuple[float, float] = FULL_SECONDS

    @property
    def name(self) -> str:
        return f"full-disk-{self.role}"

    async def strike(self, scene: Scene) -> str:
        victim, what = await self.choose(scene)
        scene.notes["full"] = str(victim)
        scene.volumes.fill(scene.cluster.place(victim))
        return f"fill the disk of broker {victim}, {what}"

    async def heal(self, scene: Scene) -> None:
        if "full" not in scene.notes:
            return
        victim = scene.notes.pop("full")
        state = (await scene.cluster.members())[victim].state
        scene.volumes.make_room(scene.cluster.place(int(victim)))
        if state != "running":
            await scene.cluster.start_whatever_is_down()
            raise OrderFailed(f"broker {victim} with its full disk is {state}")
        await scene.roles.until_in_sync(_IN_SYNC_SECONDS)


class StalledDisk:
    """Every write to the disk of a partition's leader waits for three seconds. No leadership may move."""

    name = "stalled-disk"
    hold_seconds = STALL_SECONDS

    async def strike(self, scene: Scene) -> str:
        partition = some_partition(scene)
        victim = await scene.roles.leader(partition)
        scene.notes |= {"stalled": str(victim), "topic": partition.topic, "partition": str(partition.partition)}
        scene.volumes.freeze(scene.cluster.place(victim))
        return f"freeze the disk of broker {victim}, leader of {partition}"

    async def heal(self, scene: Scene) -> None:
        if "stalled" not in scene.notes:
            return
        victim = int(scene.notes.pop("stalled"))
        scene.volumes.thaw(scene.cluster.place(victim))
        await scene.roles.until_in_sync(_IN_SYNC_SECONDS)
        partition = TopicPartition(scene.notes.pop("topic"), int(scene.notes.pop("partition")))
        leader = await scene.roles.leader(partition)
        if leader != victim:
            raise OrderFailed(f"broker {leader} leads {partition}, which broker {victim} led before its disk stalled")


DISK_FAULTS: Final[Sequence[Fault]] = (
    FullDisk("leader", partition_leader),
    FullDisk("follower", follower),
    FullDisk("controller", controller),
    StalledDisk(),
)
