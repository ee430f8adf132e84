"""The faults that strike machines: one loses power, or all do, and what was not synced is gone.

A broker's process is killed; then its file system is shut down without another write to its device, not even of the
journal, and mounted again. So the files are what ext4 makes of a device that lost power. The brokers run with
``log.flush.interval.messages=1``, which promises that nothing is lost, whichever machines stop.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from tests.faults.deeds import KILL_SECONDS, Choose, controller, follower, partition_leader, transaction_coordinator
from tests.faults.fault import Fault, Scene

FLUSH_EACH: Final = "log.flush.interval.messages=1"
"""What the brokers are started with for these faults."""


@dataclass(frozen=True, slots=True)
class LosePower:
    """The machine of the broker that has a role loses power, and is started some time later."""

    role: str
    choose: Choose
    hold_seconds: tuple[float, float] = KILL_SECONDS

    @property
    def name(self) -> str:
        return f"power-loss-{self.role}"

    async def strike(self, scene: Scene) -> str:
        victim, what = await self.choose(scene)
        await scene.cluster.order("kill", victim)
        scene.volumes.lose_power(scene.cluster.place(victim))
        return f"power loss of broker {victim}, {what}"

    async def heal(self, scene: Scene) -> None:
        await scene.cluster.start_whatever_is_down()


class LoseAllPower:
    """All machines lose power at once. They start one after the other, in any order."""

    name = "power-loss-all"
    hold_seconds = (0.0, 2.0)

    async def strike(self, scene: Scene) -> str:
        order = scene.rng.sample(scene.cluster.broker_ids, len(scene.cluster.broker_ids))
        scene.notes["order"] = " ".join(map(str, order))
        await scene.cluster.order("kill", *order)
        for broker_id in order:
            scene.volumes.lose_power(scene.cluster.place(broker_id))
        return f"power loss of all brokers, which start in the order {scene.notes['order']}"

    async def heal(self, scene: Scene) -> None:
        for broker_id in scene.notes.pop("order", "").split():
            await scene.cluster.order("start", broker_id)


POWER_FAULTS: Final[Sequence[Fault]] = (
    LosePower("leader", partition_leader),
    LosePower("follower", follower),
    LosePower("transaction-coordinator", transaction_coordinator),
    LosePower("controller", controller),
    LoseAllPower(),
)
