"""How the leader of a group shares the partitions out: one strategy a file, by the names that all clients know."""

from collections.abc import Mapping
from typing import Final

from oncelog.clients.consumer.assignors.assignor import Assignor
from oncelog.clients.consumer.assignors.cooperative_sticky import CooperativeStickyAssignor
from oncelog.clients.consumer.assignors.range import RangeAssignor
from oncelog.clients.consumer.assignors.round_robin import RoundRobinAssignor
from oncelog.clients.consumer.assignors.sticky import StickyAssignor

ASSIGNORS: Final[Mapping[str, Assignor]] = {
    assignor.name: assignor
    for assignor in (RangeAssignor(), RoundRobinAssignor(), StickyAssignor(), CooperativeStickyAssignor())
}
"""All that there are. They keep no state."""
