"""What a controller has while it is in office, and loses with it."""

from collections.abc import Callable
from dataclasses import dataclass

from oncelog.coordinator.controller.full_disks import FullDisks
from oncelog.coordinator.controller.leadership import UncleanAllowed
from oncelog.coordinator.controller.reassignments import Reassignments
from oncelog.coordinator.controller.reign import Reign
from oncelog.coordinator.controller.suspects import Suspects
from oncelog.coordinator.controller.topic_deletion import TopicDeletions


@dataclass(frozen=True, slots=True, kw_only=True)
class Office:
    """A reign, and the work in it that takes longer than one step."""

    reign: Reign
    deletions: TopicDeletions
    reassignments: Reassignments
    suspects: Suspects
    full_disks: FullDisks

    @classmethod
    def of(cls, reign: Reign, unclean_allowed: UncleanAllowed, steady_seconds: Callable[[int], float]) -> "Office":
        return cls(
            reign=reign,
            deletions=TopicDeletions(reign),
            reassignments=Reassignments(reign),
            suspects=Suspects(reign, unclean_allowed, steady_seconds),
            full_disks=FullDisks(reign, unclean_allowed),
        )

    async def carry_on(self) -> None:
        """Tell brokers again what they still have to do, and complete what has been done meanwhile."""
        await self.deletions.carry_on(self.reign.state.topics_to_delete)
        await self.reassignments.finish(self.reassignments.under_way())

    def end(self) -> None:
        self.reign.end()
        self.deletions.end()
        self.suspects.end()
